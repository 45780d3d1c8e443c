"""Text for people on standard output, or one JSON document for programs. Errors go to standard error.

An error prints its type and its message, never a traceback, and ends the process with a code of its own:

    0  done
    1  done, and the result is bad (`demo` found a promise broken)
    2  the request is wrong, or this cannot be done here; nothing was written
    3  somebody else is in the way; try again
    4  nobody answered; nothing was written by this command, try again
    5  stored state contradicts itself; a person must look
    6  it is not known whether it happened; look it up
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson
import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lakepact.catalog.errors import Refusal
from lakepact.client import Conflict, Refused, Unavailable, Unknown
from lakepact.errors import (
    Contended,
    Damaged,
    InvalidRequest,
    LakepactError,
    OutcomeUnknown,
    SnapshotTooOld,
    StoreUnavailable,
    StoreUnsuitable,
    TransactionError,
)

EXIT_CODES: Final[Sequence[tuple[type[LakepactError], int]]] = (
    (SnapshotTooOld, 3),
    (Conflict, 3),
    (Refused, 2),
    (Refusal, 2),
    (Unavailable, 4),
    (Unknown, 6),
    (InvalidRequest, 2),
    (TransactionError, 2),
    (StoreUnsuitable, 2),
    (Contended, 3),
    (StoreUnavailable, 4),
    (OutcomeUnknown, 6),
    (Damaged, 5),
    (LakepactError, 6),
)
"""The first match counts. An error of no known kind says nothing about what happened, so it counts as unknown."""

_NEW_TRANSACTION: Final = "Begin a new one"
"""How the server and the client end a message about a transaction that has ended."""

_PIPED_WIDTH: Final = 200
_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters and those that turn the direction of text: in a name they are there to deceive. Tabs and the ends
of lines are shown as they are, except in the cells of a table."""


def console() -> Console:
    """Standard output, for what moves or is coloured. Without a terminal lines have a width all the same."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_PIPED_WIDTH)


def say(text: str = "", *, err: bool = False) -> None:
    """Some lines for people. What they name is shown as it is, and does nothing to the terminal."""
    typer.echo(_visible(text), err=err)


def _visible(text: str) -> str:
    return _INVISIBLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def print_json(document: Any) -> None:
    """One JSON document on standard output, the same bytes for the same content."""
    text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS, default=_as_plain)
    # In JSON all of these are inside of strings, where the escape means the same.
    typer.echo(_visible(text.decode()))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table. Without a terminal there is no width to fit into: every row is one line, and nothing is cut."""
    rows = [[_visible(cell).replace("\n", "\\u000a").replace("\t", "\\u0009") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _print_plain([columns, *rows] if any(columns) else rows)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        # As it is: names may have brackets, which would be taken for markup.
        table.add_row(*map(Text, row))
    console().print(table)


def _print_plain(lines: Sequence[Sequence[str]]) -> None:
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(line, widths, strict=True))
        typer.echo("  ".join(padded).rstrip())


def report(error: LakepactError, *, as_json: bool) -> int:
    """Print the error, with advice as commands, and return its exit code."""
    message = str(error)
    if message.endswith(_NEW_TRANSACTION):
        message += ": lakepact tx begin"
    if as_json:
        document = {"error": {"type": error.type, "message": message}}
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode(), err=True)
    else:
        say(f"error: {error.type}: {message}", err=True)
    return exit_code(error)


def exit_code(error: LakepactError) -> int:
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def instant(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "-"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _as_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    return dict(value)
