"""Groups of commands whose modules are imported when a command of theirs is used.

`lakepact --version` and `lakepact --help` would otherwise import the server, the stores and their libraries, which
takes longer than most commands do. A group knows the location of each command's function, and, where its help must not
import them, their help lines.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

_PACKAGE: Final = "lakepact.cli"


class LazyGroup(TyperGroup):
    """A group whose commands are imported at first use. `lazy_group` makes one."""

    targets: ClassVar[Mapping[str, str]] = {}
    """By the command's name: `module:function` or `module:typer_app`, inside `lakepact.cli`."""

    lines: ClassVar[Mapping[str, str]] = {}
    """Help lines of the commands. If one is missing, the command is imported for it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.targets, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.targets:
            return super().get_command(ctx, cmd_name)
        if self._listing and cmd_name in self.lines:
            return TyperCommand(cmd_name, help=self.lines[cmd_name], rich_markup_mode=None)
        return _loaded(cmd_name, self.targets[cmd_name])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_commands(ctx, formatter)
        finally:
            self._listing = False


def lazy_group(
    targets: Mapping[str, str], lines: Mapping[str, str] | None = None, base: type[LazyGroup] = LazyGroup
) -> type[LazyGroup]:
    """A class of groups with these commands, for `typer.Typer(cls=…)`."""
    return type(base.__name__, (base,), {"targets": dict(targets), "lines": dict(lines or {})})


def _loaded(name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    command_or_group = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), attribute)
    if isinstance(command_or_group, typer.Typer):
        command: Any = typer.main.get_command(command_or_group)
    else:
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name)(command_or_group)
        command = typer.main.get_command(alone)
    command.name = name
    return command
