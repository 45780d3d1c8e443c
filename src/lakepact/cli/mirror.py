from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lakepact.cli.options import Json, StoreUrl, with_catalogs, with_store
from lakepact.cli.output import print_json, print_rows, say
from lakepact.delta.ports import DeltaRows, MirrorRow
from lakepact.errors import InvalidRequest, InvalidSetting
from lakepact.kernel.ports import CellStore
from lakepact.mirrors import ENGINES
from lakepact.runtime import SystemClock
from lakepact.settings import Settings
from lakepact.stores import delta_rows

if TYPE_CHECKING:
    from lakepact.server.app import WithoutServer

TableName = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Only this table: its id, or namespace.name.")
]
EngineName = Annotated[
    str | None, typer.Option("--engine", metavar="ENGINE", help=f"Only this engine: {' or '.join(ENGINES)}.")
]


@dataclass(frozen=True, slots=True)
class Followed:
    """One line of `mirror status`."""

    warehouse: str
    table: str
    table_id: str
    engine: str
    state: str
    mirrored_version: int
    current_version: int
    lag_ms: int
    """For how long the first version that is missing has been missing."""

    attempts: int
    last_error: str | None


def run(
    store: StoreUrl = None,
    once: Annotated[bool, typer.Option("--once", help="Do what there is to do now, and end.")] = False,
    json: Json = False,
) -> None:
    """Bring the mirrors up to date, and keep them so: the work that servers do in the background."""
    settings = Settings.load(store=store)

    async def work(opened: WithoutServer) -> list[Followed]:
        rows, mirrors = _rows(opened.store), opened.mirrors
        assert mirrors is not None, "a store with rows has mirrors"
        if not once:
            mirrors.start()
            await _asked_to_end(quiet=json)
            await mirrors.stop()
        else:
            while await mirrors.turn():
                pass
        return [one for one in await _status(rows, settings) if one.mirrored_version < one.current_version]

    behind = with_catalogs(settings, work)
    if json:
        print_json({"behind": behind})
        return
    say("Every mirror is in step." if not behind else f"{len(behind)} are not in step: lakepact mirror status")


def status(store: StoreUrl = None, table: TableName = None, json: Json = False) -> None:
    """How far engines have followed Delta tables, and what keeps them."""
    settings = Settings.load(store=store)

    async def work(store: CellStore) -> list[Followed]:
        rows = _rows(store)
        table_id = None if table is None else await _table_id(rows, settings, table)
        return await _status(rows, settings, table_id)

    found = with_store(settings, work)
    if json:
        print_json(found)
        return
    print_rows(
        ("warehouse", "table", "engine", "state", "version", "lag", "attempts", "last error"),
        [
            (
                one.warehouse,
                one.table,
                one.engine,
                one.state,
                f"{one.mirrored_version} of {one.current_version}",
                f"{one.lag_ms / 1000:.1f} s",
                str(one.attempts),
                one.last_error or "-",
            )
            for one in found
        ],
    )


def retry(store: StoreUrl = None, table: TableName = None, engine: EngineName = None, json: Json = False) -> None:
    """Let mirrors that wait, are dead or in conflict be tried again at once."""
    settings = Settings.load(store=store)
    if engine is not None and engine not in ENGINES:
        raise InvalidRequest(f"there is no engine {engine!r}; the engines are {', '.join(ENGINES)}")

    async def work(store: CellStore) -> int:
        rows = _rows(store)
        table_id = None if table is None else await _table_id(rows, settings, table)
        return await rows.retry(table_id=table_id, engine=engine)

    count = with_store(settings, work)
    if json:
        print_json({"retried": count})
        return
    say(f"{count} will be tried by a server within {settings.mirror_interval_s:g} s, or now: lakepact mirror run")


async def _asked_to_end(*, quiet: bool) -> None:
    """Wait for SIGTERM or SIGINT, and say that this is what ends it."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    if not quiet:
        say("Mirrors are kept in step. Ctrl-C ends it.")
    await ended.wait()


def _rows(store: CellStore) -> DeltaRows:
    rows = delta_rows(store)
    if rows is None:
        raise InvalidSetting(
            "this store keeps documents and has no Delta tables, so nothing to mirror; name one of SQLite or PostgreSQL"
        )
    return rows


async def _status(rows: DeltaRows, settings: Settings, table_id: str | None = None) -> list[Followed]:
    names = {one.table_id: one for name in settings.places() for one in await rows.tables(name)}
    now_ms = SystemClock().now_ms()
    found = []
    for row in await rows.mirror_status(table_id=table_id):
        table = names.get(row.table_id)
        found.append(
            Followed(
                table.warehouse if table is not None else "-",
                f"{table.namespace}.{table.name}" if table is not None else row.table_id,
                row.table_id,
                row.engine,
                row.state,
                row.mirrored_version,
                row.current_version,
                await _lag_ms(rows, row, now_ms),
                row.attempts,
                row.last_error,
            )
        )
    return found


async def _lag_ms(rows: DeltaRows, row: MirrorRow, now_ms: int) -> int:
    if row.mirrored_version >= row.current_version:
        return 0
    first = await rows.versions(row.table_id, row.mirrored_version + 2, 1)
    return max(now_ms - first[0].info.timestamp_ms, 0) if first else 0


async def _table_id(rows: DeltaRows, settings: Settings, table: str) -> str:
    if await rows.table(table) is not None:
        return table
    for warehouse in settings.places():
        for one in await rows.tables(warehouse):
            if f"{one.namespace}.{one.name}" == table:
                return one.table_id
    raise InvalidRequest(f"there is no Delta table {table!r}; name its id, or namespace.name")
