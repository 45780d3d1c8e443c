"""Options that several commands share, and the way from options to an open store."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

import typer

from lakepact.cli.app import JSON_ASKED_FOR
from lakepact.cli.output import say
from lakepact.client import Identifier, Lake, LoadedTable, Name, NotFound, Retry, Transaction, Unavailable, connect
from lakepact.client.lake import DEFAULT_URI, URI_VARIABLE
from lakepact.client.token import TOKEN_VARIABLE, given_token, source_of
from lakepact.errors import InvalidRequest, InvalidSetting
from lakepact.kernel.identity import parse_transaction_id
from lakepact.kernel.ports import CellStore
from lakepact.kernel.trusted_time import TrustedClock
from lakepact.runtime import SystemClock
from lakepact.settings import Settings
from lakepact.stores import absent, open_store
from lakepact.upkeep.clock_evidence import ClockEvidence, explained

if TYPE_CHECKING:
    from lakepact.server.app import WithoutServer

T = TypeVar("T")

_RETRY: Final = Retry(attempts=5, deadline_s=20.0)
"""Short, because a person waits at the terminal."""

_CONNECT_S: Final = 10.0
_TIME: Final = re.compile(r"(\d{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started this process: then the master is its business."""


def _remember(context: typer.Context, value: bool) -> bool:
    # Errors are printed above all commands, and they too come as JSON if the command was asked for it.
    context.find_root().meta[JSON_ASKED_FOR] = value
    return value


Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.", callback=_remember, is_eager=True)
]

StoreUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The store. Without it: LAKEPACT_STORE, lakepact.toml, the default."),
]

Limit: TypeAlias = Annotated[
    int, typer.Option("--limit", min=1, help="How many transactions one pass or page may touch.")
]

Uri: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--uri", metavar="URL", envvar=URI_VARIABLE, help="Where the server is. Default: http://127.0.0.1:8181."
    ),
]

WarehouseName: TypeAlias = Annotated[
    str | None, typer.Option("--warehouse", metavar="NAME", help="One of the server's. Without it: its default one.")
]

Token: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token", envvar=TOKEN_VARIABLE, show_envvar=True, help="A bearer token; @FILE reads it from a file."
    ),
]

Master: TypeAlias = Annotated[
    str | None, typer.Option("--master", help="Where Spark runs. Default: local[*], or what spark-submit says.")
]
JarsFolder: TypeAlias = Annotated[
    str | None, typer.Option("--jars", metavar="DIR", help="A folder with the runtimes, if no registry is reached.")
]
SparkSettings: TypeAlias = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
]

InTransaction: TypeAlias = Annotated[
    str | None, typer.Option("--transaction", metavar="ID", help="Work inside this open transaction.")
]


def connected(uri: str | None, warehouse: str | None, token: str | None) -> Lake:
    """The server that the options name."""
    if warehouse is not None and "@" in warehouse:
        name, _, id = warehouse.partition("@")
        raise InvalidSetting(
            f"--warehouse {warehouse} names a transaction too. Write --warehouse {name} --transaction {id}, with the "
            f"commands that work inside of one: namespaces, tables and delta"
        )
    try:
        if token:
            # A mistake in the command line is reported before the server is looked for.
            source_of(given_token(token) or "")
        _check_listening(uri or DEFAULT_URI)
        return connect(uri, warehouse, token, retry=_RETRY)
    except ValueError as error:
        raise InvalidSetting(str(error)) from None


def _check_listening(uri: str) -> None:
    """Fail at once if nothing listens there: at a terminal, waiting for a server that is not running helps nobody.

    Other failures are left to the client, which retries them: a server that is starting or overloaded does listen.
    """
    target = urlsplit(uri)
    if not target.hostname:
        return
    try:
        port = target.port or (443 if target.scheme == "https" else 80)
        socket.create_connection((target.hostname, port), timeout=_CONNECT_S).close()
    except ConnectionRefusedError:
        raise Unavailable(
            f"cannot connect to {uri}: connection refused. Is the server running? Start one with `lakepact serve`, or "
            f"name another with --uri or {URI_VARIABLE}"
        ) from None
    except socket.gaierror as error:
        raise Unavailable(
            f"cannot connect to {uri}: the host {target.hostname} is not known ({error.strerror}). Correct --uri or "
            f"{URI_VARIABLE}"
        ) from None
    except OSError:
        return


def inside(lake: Lake, transaction_id: str | None) -> Lake | Transaction:
    """The catalog itself, or as it is inside the transaction. One command is too short to need renewal."""
    if transaction_id is None:
        return lake
    return lake.join(parse_transaction_id(transaction_id)).begin(renew=False)


def iceberg_table(where: Lake | Transaction, name: Identifier, command: str) -> LoadedTable:
    """A table that Iceberg's clients see. `command`: what shows the same of one that they do not."""
    with told_if_delta(where, name, command):
        return where.tables.load(name)


@contextmanager
def told_if_delta(where: Lake | Transaction, name: Identifier, command: str) -> Iterator[None]:
    """Whoever looks for a Delta table among the others is told where it is."""
    try:
        yield
    except NotFound:
        if not where.delta.exists(name):
            raise
        shown = ".".join(name)
        raise InvalidRequest(f"{shown} is a Delta table: lakepact delta {command} {shown}") from None


@contextmanager
def told_if_iceberg(where: Lake | Transaction, name: Identifier, command: str) -> Iterator[None]:
    """The same, the other way round."""
    try:
        yield
    except NotFound:
        if not where.tables.exists(name):
            raise
        shown = ".".join(name)
        raise InvalidRequest(f"{shown} is an Iceberg table: lakepact {command} {shown}") from None


def written(read: Callable[[Name], Identifier], name: str) -> Identifier:
    """A name as it was written on the command line."""
    try:
        return read(name)
    except ValueError:
        if all(name.split(".")):
            raise InvalidRequest(f"{name!r} has no namespace; write it before the name, as in sales.{name}") from None
        raise InvalidRequest(
            f"{name!r} is not a name; write its levels with a dot between two, as in sales.eu"
        ) from None


def pairs(option: str, given: Iterable[str] | None) -> dict[str, str]:
    """`--property name=value`, any number of times."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"{option} {text!r} is not name=value")
        found[name] = value
    return found


def seconds(option: str, text: str) -> float:
    """A time as people write it: `30s`, `15m`, `36h`, `7d`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise InvalidRequest(f"{option} {text!r} is no time: write a number and s, m, h or d, as in 15m")
    return float(int(found[1]) * _SECONDS[found[2]])


def spark_master(asked: str | None) -> str | None:
    """Where Spark runs. None: where spark-submit says."""
    return asked or (None if _SUBMITTED in os.environ else "local[*]")


def with_catalogs(settings: Settings, work: Callable[[WithoutServer], Awaitable[T]]) -> T:
    """Open store and warehouses as a server does, do the work, close them."""
    from lakepact.server.app import without_server

    _check_there(settings)

    async def run() -> T:
        async with without_server(settings) as opened:
            return await work(opened)

    return asyncio.run(run())


def with_store(
    settings: Settings,
    work: Callable[[CellStore], Awaitable[T]],
    *,
    makes: bool = False,
    deletes: bool = False,
    correct: str = "Give its URL with --store",
) -> T:
    """Open the store the settings name, do the work, close it.

    `makes`: whether it may be a new one. `deletes`: whether the work deletes by age, which needs a confirmed clock.
    `correct`: what to do if there is none, where the command has no `--store`.
    """
    if not makes:
        _check_there(settings, correct)

    async def run() -> T:
        clock = TrustedClock(SystemClock())
        store = await open_store(settings.store, settings.kernel(), clock=clock, options=settings.store_options)
        try:
            judgement = await ClockEvidence(clock, store).read(writes=deletes)
            if deletes and not judgement.confirmed:
                say(f"Nothing is deleted: {explained(judgement)}", err=True)
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())


def _check_there(settings: Settings, correct: str = "Give its URL with --store") -> None:
    """To look after a store that is not there would make an empty one, and find everything in order."""
    away = absent(settings.store)
    if away is not None:
        raise InvalidSetting(
            f"there is no store at {away.absolute()}. {correct}, or run this where the server runs, with its settings"
        )
