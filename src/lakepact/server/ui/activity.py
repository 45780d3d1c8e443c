"""Transactions as people ask about them: which ones, since when, on what, and what each of them waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lakepact.catalog import Catalog
from lakepact.catalog.edits import is_guard
from lakepact.catalog.keys import levels_of
from lakepact.catalog.overlay import belongs_to
from lakepact.catalog.receipts import CommittedChange, changes_of
from lakepact.errors import LakepactError
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, Moved, State, Transaction, TransactionRecord

Shows: TypeAlias = Callable[[TransactionRecord], bool]
"""Whether whoever looks may see this one."""

UNDECIDED: Final = (State.OPEN, State.PREPARING, State.PREPARED, State.RETRYABLE)
DECIDED: Final = (State.COMMITTED, State.FAILED, State.ABORTED)

_WINDOWS_S: Final = (15, 60, 300, 1_800, 7_200, 43_200, 259_200, 2_592_000)
"""How far to look back, until there are enough: a store lists the oldest first."""

_PAGE: Final = 200
_MOST_PAGES: Final = 10
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
class Recent:
    records: Sequence[TransactionRecord]
    """The newest first."""

    following: str | None


async def undecided(catalog: Catalog, shows: Shows) -> tuple[list[Activity], bool]:
    """What has not ended, the oldest first; and whether there is more than is shown."""
    records, more = await undecided_records(catalog, shows)
    looked_into = [
        await look_into(catalog, record) if number < _MOST_LOOKED_INTO else Activity(record, (), waits_for(record))
        for number, record in enumerate(records)
    ]
    return _with_holders(looked_into), more


async def undecided_records(catalog: Catalog, shows: Shows) -> tuple[list[TransactionRecord], bool]:
    return await _all(catalog, UNDECIDED, MOST_UNDECIDED, shows)


async def recent(
    catalog: Catalog,
    shows: Shows,
    *,
    states: Iterable[State] = DECIDED,
    before: TransactionId | None = None,
    limit: int = 50,
) -> Recent:
    """The newest of those that have ended, or those made before this one."""
    wanted = list(states)
    end_ms = catalog.parts.clock.now_ms() + 60_000 if before is None else timestamp_ms(before)
    found: list[TransactionRecord] = []
    for window_s in _WINDOWS_S:
        some, complete = await _since(catalog, shows, wanted, end_ms - window_s * 1000, before)
        if not complete and found:
            break
        found = some
        if len(found) > limit:
            break
    newest = found[::-1]
    following = str(newest[limit - 1].id) if len(newest) > limit else None
    return Recent(newest[:limit], following)


async def look_into(catalog: Catalog, record: TransactionRecord) -> Activity:
    """What it touches, compared with what is there now."""
    try:
        contents = await catalog.transactions.contents(record.id)
        touched = [*(one.key for one in contents.writes), *(one.key for one in contents.reads)]
        keys = [key for key in touched if _counts(key)]
        # Whatever a transaction may name may also be read at once.
        cells = await catalog.parts.store.read(keys) if keys and not record.state.final else {}
    except LakepactError:
        return Activity(record, (), waits_for(record))
    return Activity(record, _touched(contents, cells), waits_for(record))


def changed_by(record: TransactionRecord) -> tuple[CommittedChange, ...]:
    """The tables, views and namespaces that a commit has moved together."""
    return changes_of(record.writes)


def conflict_of(record: TransactionRecord) -> Mapping[str, Any] | None:
    """Why it was refused, if it was."""
    error = (record.answer or {}).get("error")
    return error if isinstance(error, dict) else None


def moved_of(record: TransactionRecord) -> Sequence[Moved]:
    return record.moved


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


async def _all(
    catalog: Catalog, states: Sequence[State], most: int, shows: Shows
) -> tuple[list[TransactionRecord], bool]:
    found: list[TransactionRecord] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        page = await catalog.transactions.list(states, after, _PAGE)
        found += [one for one in page.transactions if shows(one)]
        after = page.after
        if after is None or len(found) > most:
            break
    return found[:most], after is not None or len(found) > most


async def _since(
    catalog: Catalog, shows: Shows, states: Sequence[State], since_ms: int, before: TransactionId | None
) -> tuple[list[TransactionRecord], bool]:
    """What was made since then, the oldest first; and whether that is all of it."""
    found: list[TransactionRecord] = []
    after: str | None = None
    for _ in range(_MOST_PAGES):
        page = await catalog.parts.store.transactions(states, made_since_ms=max(since_ms, 0), after=after, limit=_PAGE)
        for record in page.transactions:
            if before is not None and record.id >= before:
                return found, True
            if _is_ours(record, catalog.warehouse.name) and shows(record):
                found.append(record)
        after = page.after
        if after is None:
            return found, True
    return found, False


def _is_ours(record: TransactionRecord, warehouse: str) -> bool:
    """Of this warehouse, and somebody's: upkeep notes down for itself what nobody has asked for."""
    if is_guard(record) or not belongs_to(record, warehouse):
        return False
    return bool(record.answer) or bool(record.properties) or any(_counts(write.key) for write in record.writes)


def _counts(key: Key) -> bool:
    return segments_of(key)[1] not in ("answers", "locations", "staged", "dropped")


def _touched(contents: Transaction, cells: Mapping[Key, Cell]) -> list[Touched]:
    found = [
        _touch(one.key, one.revision, one.value, cells, written=True) for one in contents.writes if _counts(one.key)
    ]
    found += [_touch(one.key, one.revision, None, cells, written=False) for one in contents.reads if _counts(one.key)]
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
