"""The tree of commands, and the one place where errors become text and exit codes.

Commands are imported when they are used: only what every invocation needs is imported here.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final

import typer

from lakepact.cli.lazy import LazyGroup, lazy_group
from lakepact.errors import LakepactError
from lakepact.standard_streams import open_standard_streams

JSON_ASKED_FOR: Final = "lakepact.json"
CA_BUNDLE_VARIABLE: Final = "LAKEPACT_CA_BUNDLE"

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "audit": ("audit:audit", "List who did what, and its outcome, newest first."),
    "backup": ("backup:backup", "Save the catalog's metadata as of one instant."),
    "collect": ("upkeep:collect", "Trim and delete records of finished transactions."),
    "demo": ("demo:demo", "Run a pipeline on Spark while things fail and are killed."),
    "doctor": ("doctor:doctor", "Check this installation, and say what to do."),
    "dropped": ("dropped:dropped", "List dropped tables and views that can come back."),
    "graph": ("graph:graph", "Show what a pipeline reads and makes."),
    "history": ("history:history", "Show the versions of a table and who made them."),
    "pack": ("pack:pack", "Pack the receipts of days that have ended into segments."),
    "project": ("project:project", "Bring the tables of namespace lakepact up to date."),
    "reconcile": ("reconcile:reconcile", "Find committed changes that have no receipt, and write it."),
    "recover": ("upkeep:recover", "Finish what crashed processes left unfinished."),
    "restore": ("backup:restore", "Put a backup into an empty store of any kind."),
    "run": ("run:run", "Run a pipeline as one transaction."),
    "serve": ("serve:serve", "Run the catalog server."),
    "undrop": ("dropped:undrop", "Bring back a dropped table or view."),
    "delta": ("delta:delta_app", "Delta tables of a server."),
    "gc": ("gc:gc_app", "Delete what nobody needs any more."),
}
"""Commands and groups with a module of their own, each with its line in `lakepact --help`."""

GROUPS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "config": ("What this process is set to.", {"show": "configuration:show"}),
    "grants": (
        "Who may do what on a server.",
        {"add": "grants:add", "check": "grants:check", "list": "grants:list_", "remove": "grants:remove"},
    ),
    "mirror": (
        "Copies of Delta tables for engines that do not ask a server.",
        {"retry": "mirror:retry", "run": "mirror:run", "status": "mirror:status"},
    ),
    "namespaces": (
        "Namespaces of a server.",
        {"create": "namespaces:create", "drop": "namespaces:drop", "list": "namespaces:list_"},
    ),
    "store": ("The place where cells and records are kept.", {"probe": "store:probe"}),
    "tables": (
        "Tables of a server.",
        {
            "drop": "tables:drop",
            "govern": "governance:govern",
            "list": "tables:list_",
            "register": "tables:register",
            "rename": "tables:rename",
            "show": "tables:show",
        },
    ),
    "tokens": (
        "API tokens, in a store.",
        {"create": "tokens:create", "list": "tokens:list_", "revoke": "tokens:revoke", "rotate": "tokens:rotate"},
    ),
    "transactions": (
        "Transactions as the records of a store.",
        {"list": "transactions:list_", "show": "transactions:show"},
    ),
    "tx": (
        "Transactions over many statements, of a server.",
        {"abort": "tx:abort", "begin": "tx:begin", "commit": "tx:commit", "list": "tx:list_", "show": "tx:show"},
    ),
}


class _Reporting(LazyGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LakepactError as error:
            from lakepact.cli.output import report

            raise typer.Exit(report(error, as_json=ctx.meta.get(JSON_ASKED_FOR, False))) from None


app = typer.Typer(
    name="lakepact",
    cls=lazy_group(
        {name: target for name, (target, _) in COMMANDS.items()},
        {name: line for name, (_, line) in COMMANDS.items()},
        _Reporting,
    ),
    help="A lakehouse catalog whose tables move together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: it needs no library, and shows a flag as a flag.
    rich_markup_mode=None,
)
for _name, (_help, _targets) in GROUPS.items():
    app.add_typer(
        typer.Typer(cls=lazy_group(_targets), help=_help, no_args_is_help=True, rich_markup_mode=None), name=_name
    )


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _print_version(asked: bool) -> None:
    if asked:
        from lakepact import __version__

        typer.echo(f"lakepact {__version__}")
        raise typer.Exit


@app.callback()
def lakepact(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    ca_bundle: Annotated[
        str | None,
        typer.Option(
            "--ca-bundle",
            metavar="FILE",
            envvar=CA_BUNDLE_VARIABLE,
            show_envvar=True,
            help="Who may vouch for a server over https. Default: the system's authorities.",
        ),
    ] = None,
) -> None:
    from lakepact.server.logs import configure_command

    configure_command()
    if ca_bundle and ca_bundle != os.environ.get(CA_BUNDLE_VARIABLE):
        # For this command and the processes it starts.
        context.with_resource(_environment(CA_BUNDLE_VARIABLE, ca_bundle))


def main() -> None:
    """Run the command, and leave without Python's own goodbye.

    obstore's threads may still be letting go of Python objects when the interpreter shuts down, and then the process
    aborts, with all its work done. Nothing of ours waits for that goodbye: stores are closed and the output is flushed.
    """
    code = 1
    open_standard_streams()
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        with suppress(OSError):
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        # Its disk may be full, or its reader gone. The exit code still says how the command ended.
        with suppress(OSError):
            stream.flush()
    if (logs := sys.modules.get("lakepact.server.logs")) is not None:
        logs.flush()
    os._exit(code)
