"""Transactions as people ask about them: which ones, since when, on what, and what each of them waits for."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact.catalog import guarded_transactions
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.keys import levels_of
from lakepact.catalog.overlay import WAREHOUSE, warehouse_of
from lakepact.catalog.receipts import CommittedChange
from lakepact.catalog.transactions import asked_for
from lakepact.errors import LakepactError
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, State, Transaction, TransactionRecord
from lakepact.server.rest.errors import NoSuchTransaction
from lakepact.server.ui.window import Window

UNDECIDED: Final = (State.OPEN, State.PREPARING, State.PREPARED, State.RETRYABLE)
DECIDED: Final = (State.COMMITTED, State.FAILED, State.ABORTED)

_WINDOWS_S: Final = (15, 60, 300, 1_800, 7_200, 43_200, 259_200, 2_592_000)
"""How far to look back, until there are enough: a store lists the oldest first."""

_PAGE: Final = 200
_MOST_PAGES: Final = 10
_PAGES_OF_A_HALF: Final = 2
"""Of a period that is one of many: most are too long, and are read for nothing."""

MOST_UNDECIDED: Final = 100
_MOST_LOOKED_INTO: Final = 25


@dataclass(frozen=True, slots=True)
class Touched:
    """Something that a transaction has read or changes."""

    what: str
    """`table`, `view`, `delta`, `namespace`, `name` or `state`."""

    name: str
    identifier: tuple[str, ...] | None
    """Namespace and name, if it has a page."""

    written: bool
    base: int
    actual: int | None
    """The revision that it has now, if it was looked at."""

    @property
    def moved(self) -> bool:
        return self.actual is not None and self.actual != self.base


@dataclass(frozen=True, slots=True)
class Activity:
    record: TransactionRecord
    touched: Sequence[Touched] = ()
    waits_for: str = ""
    held_by: tuple[str, ...] = ()
    """Other transactions that hold something this one wants."""

    @property
    def conflicts(self) -> list[Touched]:
        return [one for one in self.touched if one.moved]


@dataclass(frozen=True, slots=True)
class Ended:
    record: TransactionRecord
    changes: Sequence[CommittedChange]
    """The tables, views and namespaces that it has moved together, as far as they are in sight."""


@dataclass(frozen=True, slots=True)
class Recent:
    ended: Sequence[Ended]
    """The newest first."""

    following: str | None


async def transaction(window: Window, transaction_id: TransactionId) -> TransactionRecord:
    """One of them. Those who see a part of the warehouse do not learn that there is one that they may not look at."""
    record = await window.inside.transactions.load(transaction_id)
    if record is not None and await window.sight.shown([record]):
        return record
    if record is not None and window.whole:
        raise Forbidden(
            f"transaction {transaction_id} is somebody else's, and not committed; to look at it needs the role "
            f"manage on warehouse {window.warehouse}"
        )
    raise NoSuchTransaction(
        f"there is no transaction {transaction_id} in warehouse {window.warehouse}. If it was sent and "
        f"is not here, it did not happen, or it is older than the key horizon"
    )


def owner_of(record: TransactionRecord) -> str | None:
    """Whose it is, where the server knows."""
    return guarded_transactions.owner_of(record)


async def undecided(window: Window) -> tuple[list[Activity], bool]:
    """What has not ended, the oldest first; and whether there is more than is shown."""
    records, more = await undecided_records(window)
    looked_into = [
        await look_into(window, record) if number < _MOST_LOOKED_INTO else Activity(record, (), waits_for(record))
        for number, record in enumerate(records)
    ]
    return _with_holders(looked_into), more


async def undecided_records(window: Window) -> tuple[list[TransactionRecord], bool]:
    found: list[TransactionRecord] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        page = await window.transactions.list(UNDECIDED, after, _PAGE)
        found += page.transactions
        after = page.after
        if after is None or len(found) > MOST_UNDECIDED:
            break
    # Those of others are not counted for who sees a part of the warehouse.
    more = len(found) > MOST_UNDECIDED or (after is not None and window.whole)
    return found[:MOST_UNDECIDED], more


async def recent(
    window: Window,
    *,
    states: Iterable[State] = DECIDED,
    before: TransactionId | None = None,
    limit: int = 50,
) -> Recent:
    """The newest of those that have ended, or those made before this one."""
    wanted = list(states)
    end_ms = window.now_ms() + 60_000 if before is None else timestamp_ms(before) + 1
    newest = (await _newest(window, wanted, end_ms, before, limit))[::-1]
    following = str(newest[limit - 1].id) if len(newest) > limit else None
    changes = await window.sight.moved(newest[:limit])
    return Recent([Ended(record, changes[record.id]) for record in newest[:limit]], following)


async def look_into(window: Window, record: TransactionRecord) -> Activity:
    """What it touches, compared with what is there now."""
    try:
        contents = await window.inside.transactions.contents(record.id)
        touched = {one.key: None for one in contents.reads} | {one.key: one.value for one in contents.writes}
        keys = [key for key in touched if _counts(key)]
        # Whatever a transaction may name may also be read at once.
        cells = await window.inside.parts.store.read(keys) if keys and not record.state.final else {}
        seen = await window.sight.cells({key: touched[key] for key in keys})
    except LakepactError:
        return Activity(record, (), waits_for(record))
    return Activity(record, _touched(contents, cells, seen), waits_for(record))


def conflict_of(record: TransactionRecord) -> Mapping[str, Any] | None:
    """Why it was refused, if it was."""
    error = (record.answer or {}).get("error")
    return error if isinstance(error, dict) else None


def waits_for(record: TransactionRecord) -> str:
    match record.state:
        case State.OPEN:
            return "its client, to stage more, commit or abort. It holds nothing"
        case State.PREPARED:
            return "its client, to commit or abort. Until then it holds its tables"
        case State.PREPARING:
            return "its coordinator, which is taking locks; if that is gone, whoever wants the tables ends it"
        case State.RETRYABLE:
            return "its client, to send the same request again. Nothing was applied, and it holds nothing"
        case _:
            return ""


async def _newest(
    window: Window, states: Sequence[State], end_ms: int, before: TransactionId | None, limit: int
) -> list[TransactionRecord]:
    """More than `limit` of the newest records, the oldest of them first; fewer if there are not so many.

    A store lists the oldest first, and a listing that is read in part has the wrong end of it. So only a period that is
    read to its end counts: it grows until it holds enough, and if it then holds more than is read, it is halved.
    """
    found: list[TransactionRecord] = []
    read_ms = end_ms
    """Everything since this moment is in `found`."""

    for window_s in _WINDOWS_S:
        since_ms = end_ms - window_s * 1000
        some, complete = await _since(window, states, since_ms, before, _MOST_PAGES)
        while not complete and read_ms - since_ms > 1:
            middle_ms = (since_ms + read_ms) // 2
            some, complete = await _since(window, states, middle_ms, before, _PAGES_OF_A_HALF)
            if complete and len(some) <= limit:
                # Too few: go further back from here.
                found, read_ms, complete = some, middle_ms, False
            else:
                since_ms = middle_ms
        if not complete:
            # More records of one millisecond than are read.
            return found or some
        found, read_ms = some, since_ms
        if len(found) > limit:
            break
    return found


async def _since(
    window: Window, states: Sequence[State], since_ms: int, before: TransactionId | None, most_pages: int
) -> tuple[list[TransactionRecord], bool]:
    """What was made since then, the oldest first; and whether that is all of it."""
    found: list[TransactionRecord] = []
    after: str | None = None
    store = window.inside.parts.store
    for _ in range(most_pages):
        page = await store.transactions(states, made_since_ms=max(since_ms, 0), after=after, limit=_PAGE)
        earlier = [one for one in page.transactions if before is None or one.id < before]
        found += await window.sight.shown([one for one in earlier if _is_ours(one, window.warehouse)])
        after = page.after
        if after is None or len(earlier) < len(page.transactions):
            return found, True
    return found, False


def _is_ours(record: TransactionRecord, warehouse: str) -> bool:
    """Of this warehouse, and somebody's: upkeep notes down for itself what nobody has asked for."""
    if warehouse_of(record) != warehouse or not asked_for(record) or _is_backup(record):
        return False
    return bool(record.answer) or bool(record.properties) or any(_counts(write.key) for write in record.writes)


def _is_backup(record: TransactionRecord) -> bool:
    """What a backup has read in: it belongs to no warehouse, and is always aborted."""
    return record.properties.get("purpose") == "backup" and WAREHOUSE not in record.properties


def _counts(key: Key) -> bool:
    return segments_of(key)[1] not in ("answers", "locations", "staged", "dropped")


def _touched(contents: Transaction, cells: Mapping[Key, Cell], seen: Container[Key]) -> list[Touched]:
    found = [
        _touch(one.key, one.revision, one.value, cells, written=True) for one in contents.writes if one.key in seen
    ]
    found += [_touch(one.key, one.revision, None, cells, written=False) for one in contents.reads if one.key in seen]
    return sorted(found, key=lambda one: (not one.written, one.what == "name", one.name))


def _touch(
    key: Key, base: int, value: Mapping[str, Any] | None, cells: Mapping[Key, Cell], *, written: bool
) -> Touched:
    cell = cells.get(key)
    _, family, *rest = segments_of(key)
    actual = cell.revision if cell is not None else None
    document = value or (cell.value if cell is not None else None) or {}
    match family:
        case "tables" | "views" | "delta":
            what = {"tables": "table", "views": "view", "delta": "delta"}[family]
            if "name" in document:
                identifier = (*document["namespace"], document["name"])
                return Touched(what, ".".join(identifier), identifier, written, base, actual)
            return Touched(what, rest[-1], None, written, base, actual)
        case "names":
            identifier = (*levels_of(rest[0]), rest[-1])
            return Touched("name", ".".join(identifier), identifier, written, base, actual)
        case "namespaces":
            levels = (*(levels_of(rest[0]) if rest[0] != "." else ()), rest[-1])
            return Touched("namespace", ".".join(levels), None, written, base, actual)
        case _:
            return Touched(family, "/".join(rest), None, written, base, actual)


def _with_holders(found: Sequence[Activity]) -> list[Activity]:
    """Who of them holds what another one wants."""
    holders: dict[tuple[str, str], str] = {}
    for one in found:
        if one.record.state in (State.PREPARED, State.PREPARING):
            holders |= {(touched.what, touched.name): str(one.record.id) for touched in one.touched}
    return [
        Activity(
            one.record,
            one.touched,
            one.waits_for,
            tuple(
                sorted(
                    {
                        holder
                        for touched in one.touched
                        if (holder := holders.get((touched.what, touched.name), "")) not in ("", str(one.record.id))
                    }
                )
            ),
        )
        for one in found
    ]
