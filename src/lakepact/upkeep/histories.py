"""The history of one table, and the receipts that belong to it: Iceberg by its metadata log, Delta by its rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lakepact.catalog.pointers import Change, Kind, Pointer
from lakepact.catalog.receipts import CommittedChange, Receipt, cell_commit_key, commit_key, has_date, receipt_name
from lakepact.delta.ports import DeltaRows
from lakepact.kernel.identity import TransactionId, parse_transaction_id
from lakepact.kernel.model import Cell, Write
from lakepact.upkeep.chain import Version, chain_of
from lakepact.upkeep.completed import Done, Missing
from lakepact.upkeep.days import side_by_side
from lakepact.upkeep.scribe import CannotTell, Scribe

_PAGE: Final = 1_000
_MOST_RENAMES: Final = 20


@dataclass(frozen=True, slots=True)
class Head:
    """A cell as it is now: its last change is wholly known."""

    pointer: Pointer
    revision: int
    writer: TransactionId | None
    change: CommittedChange
    restored: bool = False
    """Whether a restore has made the cell: then its last change happened in another store."""

    @classmethod
    def of(cls, cell: Cell, change: CommittedChange, *, restored: bool = False) -> Head | None:
        if change.pointer is None:
            return None
        return cls(change.pointer, cell.revision, cell.writer, change, restored)

    @property
    def made_its_metadata(self) -> bool:
        """Whether the metadata file came to be with this revision."""
        return self.change.made_its_metadata and not self.restored


@dataclass(frozen=True, slots=True)
class Bounds:
    since_ms: int
    """What is older has no receipt any more, or need not have one."""

    depth: int
    """How many versions of one table are looked at."""


async def settle_table(scribe: Scribe, head: Head, done: Done | None, bounds: Bounds) -> tuple[Missing, ...]:
    """Receipts of the versions below the head, down to where it was complete. What is missing for good."""
    pointer, made = head.pointer, head.made_its_metadata
    last_ms = pointer.summary.get("last-updated-ms")
    until = done.through if done is not None and isinstance(done.through, str) else None
    if not made and pointer.metadata_location == until:
        return ()
    chain = await chain_of(
        scribe.files,
        Version(pointer.metadata_location, last_ms if isinstance(last_ms, int) else None),
        pointer.previous_metadata_location,
        until=until,
        since_ms=bounds.since_ms,
        most=bounds.depth,
    )
    scribe.report.deeper += chain.deeper
    for why in chain.unreadable.values():
        scribe.report.problem(
            f"the history of {'.'.join(pointer.identifier.namespace)}.{pointer.identifier.name}: {why}"
        )
    # Renames have no version. If every revision is a version, it is known which is which.
    anchor = done.revision if chain.met and done is not None else 0 if chain.from_the_first else None
    first = head.revision if made else head.revision - 1
    exact = anchor is not None and first - anchor == len(chain.versions)

    async def one(numbered: tuple[int, Version]) -> Missing | None:
        place, version = numbered
        return await settle_version(scribe, pointer, version, first - place if exact else None)

    below = list(enumerate(chain.versions))[1 if made else 0 :]
    return tuple(missing for missing in await side_by_side(one, below) if missing is not None)


async def settle_version(scribe: Scribe, table: Pointer, version: Version, revision: int | None) -> Missing | None:
    at_ms = version.committed_ms
    if at_ms is None or not has_date(at_ms):
        # Where its receipt lies only the file can tell.
        try:
            receipt = await scribe.of_version(table, version.location, revision, None)
        except CannotTell as error:
            scribe.report.unreadable += 1
            scribe.report.problem(f"a receipt cannot be written: {error}")
            return None
        return await scribe.settle(receipt.name, receipt.document["committed-ms"], _given(receipt), version.location)
    return await scribe.settle(
        receipt_name(Kind.TABLE, at_ms, commit_key(version.location)),
        at_ms,
        lambda: scribe.of_version(table, version.location, revision, at_ms),
        version.location,
    )


async def settle_delta(
    scribe: Scribe, rows: DeltaRows, head: Head, done: Done | None, bounds: Bounds
) -> tuple[Missing, ...]:
    """The same for a Delta table. One transaction may have made several versions, and leaves one receipt for them."""
    pointer, made = head.pointer, head.made_its_metadata
    until = done.through if done is not None and isinstance(done.through, int) else -1
    steps, met = await _steps(rows, pointer.id, until, bounds)
    scribe.report.deeper += not met
    first = head.revision if made else head.revision - 1
    anchor = done.revision if done is not None and until >= 0 else 0
    if not met or first - anchor != len(steps):
        # A rename in between: which revision is which is not written anywhere but in records and receipts.
        await _unsure(scribe, pointer, steps, 1 if made else 0, first, anchor if met else None, bounds)
        return ()

    async def one(place: int) -> Missing | None:
        step, revision = steps[place], first - place
        before = steps[place + 1] if place + 1 < len(steps) else None
        # What was complete is the version before all of these.
        previous = before.version if before is not None else until if until >= 0 else None
        summary = {**pointer.summary, "version": step.version, "ict-ms": step.ict_ms}
        of = Pointer.to_delta(
            pointer.identifier,
            summary,
            Change.CREATE if previous is None else Change.COMMIT,
            None if previous is None else _log_file(pointer, previous),
        )
        change = CommittedChange(
            Kind.DELTA,
            pointer.id,
            revision,
            of.change,
            pointer.identifier,
            pointer.identifier.namespace,
            of,
            generation=scribe.generation,
        )

        async def make() -> Receipt:
            return await scribe.of_change(
                change, step.transaction_id, await scribe.witnesses.by_id(step.transaction_id)
            )

        name = receipt_name(Kind.DELTA, step.ict_ms, change.commit_key)
        return await scribe.settle(name, step.ict_ms, make)

    places = [place for place in range(1 if made else 0, len(steps)) if steps[place].ict_ms >= bounds.since_ms]
    return tuple(missing for missing in await side_by_side(one, places) if missing is not None)


@dataclass(frozen=True, slots=True)
class _Step:
    """What one transaction did to a Delta table."""

    transaction_id: TransactionId
    version: int
    """The last one that it made."""

    ict_ms: int


async def _steps(rows: DeltaRows, table_id: str, until: int, bounds: Bounds) -> tuple[list[_Step], bool]:
    """Newest first, down to the version `until`; and whether that was reached."""
    found: list[_Step] = []
    before: int | None = None
    while len(found) <= bounds.depth:
        page = await rows.versions(table_id, before, _PAGE)
        for row in page:
            if row.version <= until:
                return found, True
            if not found or found[-1].transaction_id != row.transaction_id:
                found.append(_Step(parse_transaction_id(row.transaction_id), row.version, row.info.timestamp_ms))
        if len(page) < _PAGE:
            return found, True
        before = page[-1].version
    return found[: bounds.depth], False


async def _unsure(
    scribe: Scribe,
    pointer: Pointer,
    steps: Sequence[_Step],
    from_place: int,
    first: int,
    anchor: int | None,
    bounds: Bounds,
) -> None:
    """Versions of which only a record with its plan, or the receipt itself, knows which revision they were."""
    renames = min(1 if anchor is None else first - anchor - len(steps), _MOST_RENAMES)
    unknown = 0
    for place in range(from_place, len(steps)):
        step = steps[place]
        if step.ict_ms < bounds.since_ms:
            continue
        revisions = range(first - place, first - place - renames - 1, -1)
        keys = [cell_commit_key(pointer.id, revision, scribe.generation) for revision in revisions]
        names = [receipt_name(Kind.DELTA, step.ict_ms, key) for key in keys]
        told = [await scribe.tells_of(name, _log_file(pointer, step.version)) for name in names]
        if any(told):
            scribe.report.found += 1
        elif not await _settle_by_record(scribe, pointer, step):
            unknown += 1
    if unknown:
        scribe.report.unreadable += unknown
        scribe.report.problem(
            f"Delta table {pointer.id}: {unknown} versions have no receipt and cannot get one. It was renamed among "
            f"them, and the records that know when are trimmed"
        )


async def _settle_by_record(scribe: Scribe, pointer: Pointer, step: _Step) -> bool:
    """Whether the record of its transaction knows all about this version."""
    witness = await scribe.witnesses.by_id(step.transaction_id)
    changes = witness.changes if witness is not None else ()
    for change in changes:
        if change.id == pointer.id and change.kind == Kind.DELTA:
            receipt = await scribe.of_change(change, step.transaction_id, witness)
            await scribe.settle(receipt.name, receipt.document["committed-ms"], _given(receipt))
            return True
    return False


def _log_file(pointer: Pointer, version: int) -> str:
    return f"{pointer.location}/_delta_log/{version:020}.json"


def _given(receipt: Receipt) -> Callable[[], Awaitable[Receipt]]:
    async def make() -> Receipt:
        return receipt

    return make


def head_writes(cell: Cell, note: Cell | None = None) -> tuple[Write, ...]:
    """The write that made a cell what it is, and the note that a drop left beside it."""
    write = Write(cell.key, cell.revision - 1, cell.value)
    return (write,) if note is None else (write, Write(note.key, note.revision - 1, note.value))
