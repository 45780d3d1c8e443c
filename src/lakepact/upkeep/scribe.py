"""Sees to it that a receipt is there, and counts what was found. Never overwrites one, unless it is asked to mend.

What is made here is what the ordinary writer would have made, in everything that can still be known. Where a record is
gone, what remains is the metadata; its receipt names no transaction and stands for itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from lakepact.catalog import Catalog
from lakepact.catalog.errors import NotFound, Refusal
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.pointers import Change, Kind, Pointer
from lakepact.catalog.receipts import CommittedChange, Receipt, has_date, receipt_of
from lakepact.errors import Unreadable
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.summary import summarize_snapshot
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.ports import Clock
from lakepact.upkeep.arrivals import Put, put_note, put_receipt
from lakepact.upkeep.bases import base_of
from lakepact.upkeep.completed import Missing
from lakepact.upkeep.segments import date_of_name, key_of_name, receipt_in
from lakepact.upkeep.shelf import NotAReceipt, Shelf
from lakepact.upkeep.sizes import DeltaSizes
from lakepact.upkeep.witnesses import Witness, Witnesses

UNKNOWN: Final = "unknown"
"""The kind of a source of which nothing but the metadata is left."""

_ENGINE: Final = {
    "engine-name": "engine",
    "engine-version": "engine-version",
    "app-id": "app-id",
    "spark.app.id": "app-id",
    "app-name": "app-name",
    "trino_query_id": "query-id",
    "flink.job-id": "job-id",
}
"""What engines write into a snapshot's summary about themselves, and what it is called in a source."""

_MOST_PROBLEMS: Final = 100

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Report:
    """What a pass has come to."""

    tables: int = 0
    """Tables, views and namespaces looked at, dropped ones too."""

    unchanged: int = 0
    """Those of them that have not changed since they were found complete."""

    transactions: int = 0
    """Records looked at."""

    found: int = 0
    """Receipts that were there."""

    written: int = 0
    late: int = 0
    """Those written of which a note was left, since they came more than an hour after their commit."""

    mended: int = 0
    unreadable: int = 0
    """Versions without a receipt, and without a file that could be read to write it."""

    damaged: int = 0
    """Files in the place of a receipt that are none, and packed days that cannot be read."""

    rebuilt: int = 0
    """Segments and manifests of packed days that were damaged, and are whole again."""

    lost: int = 0
    """Segments that could not be made again, and were set aside."""

    deeper: int = 0
    """Tables with more versions than were looked at."""

    failed: int = 0
    """Tables and transactions that could not be looked at; the next pass tries again."""

    problems: list[str] = field(default_factory=list)
    """The first hundred, in words."""

    def problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            _log.warning("reconciling receipts", problem=text)
            self.problems.append(text)


class CannotTell(Exception):
    """There is not enough left to write this receipt. The message says what is missing."""


class Scribe:
    """For the receipts of one warehouse, while one pass lasts."""

    def __init__(
        self, catalog: Catalog, clock: Clock, witnesses: Witnesses, report: Report, *, mend: bool, grace_s: float
    ) -> None:
        """`grace_s`: for how long after a commit its receipt may be on its way, and is not missed."""
        parts = catalog.parts
        self.witnesses = witnesses
        self.report = report
        self.blobs = parts.blobs
        self.generation = catalog.settings.generation
        # With a cache of its own that holds nothing: old versions shall not drive out what clients ask for.
        self.files = MetadataFiles(parts.warehouse, parts.blobs, 0, look_every_time=False)
        self._shelf = Shelf(parts.blobs)
        self._sizes = DeltaSizes(parts.rows)
        self._clock = clock
        self._mend = mend
        self._reported: set[str] = set()
        self._grace_ms = int(grace_s * 1000)

    async def settle(
        self, name: str, committed_ms: int, make: Callable[[], Awaitable[Receipt]], of: str | None = None
    ) -> Missing | None:
        """The receipt that should lie at `name` is there afterwards; or what is missing, which has been reported.

        `of`: the metadata file it tells of, for the next pass to try again.
        """
        if self._shelf.knows(name):
            # By its record, and now by its table: it is counted once.
            return None
        try:
            there = await self._shelf.has(name)
        except Unreadable as error:
            self.damaged_day(date_of_name(name), str(error))
            return Missing(name, of, committed_ms)
        if there is True:
            self.report.found += 1
            return None
        if 0 <= self._clock.now_ms() - committed_ms < self._grace_ms:
            return Missing(name, of, committed_ms, young=True)
        try:
            if isinstance(there, NotAReceipt) and not self._mend:
                if self._is_new(name):
                    self.report.damaged += 1
                    self.report.problem(
                        f"{name} is damaged: it is no receipt. It was left as it is; look at it, and have it written "
                        f"anew: lakepact reconcile --mend"
                    )
                return Missing(name, of, committed_ms)
            receipt = await make()
        except CannotTell as error:
            if self._is_new(name):
                self.report.unreadable += 1
                self.report.problem(f"{name} cannot be written: {error}")
            return Missing(name, of, committed_ms)
        if isinstance(there, NotAReceipt):
            await self._replace(receipt, there)
        else:
            await self._write(name, receipt)
        return None

    def damaged_day(self, date: str, why: str) -> None:
        """What was packed on this day cannot be read: nobody can tell which receipts are in it."""
        if self._is_new(f"day {date}"):
            self.report.damaged += 1
            self.report.problem(f"the receipts of {date}: {why}")

    def _is_new(self, name: str) -> bool:
        """Whether this is the first time in this pass that something is amiss with it: it is reported once."""
        if name in self._reported:
            return False
        self._reported.add(name)
        return True

    async def _write(self, name: str, receipt: Receipt) -> None:
        if receipt.name != name and await self._shelf.has(receipt.name) is not False:
            # The file has another date than the log said, and that is what counts.
            self.report.found += 1
            return
        put = await put_receipt(self.blobs, self._clock, receipt)
        self._shelf.put(receipt.name)
        if put is Put.THERE:
            # Somebody else was a little faster.
            self.report.found += 1
            return
        self.report.written += 1
        self.report.late += put is Put.LATE
        _log.info("a missing receipt was written", receipt=receipt.name, late=put is Put.LATE)

    async def _replace(self, receipt: Receipt, there: NotAReceipt) -> None:
        # Readers have passed it over, so they are told of it like of one that comes late.
        await put_note(self.blobs, self._clock, receipt)
        if await self.blobs.replace(receipt.name, receipt.to_bytes(), there.data):
            self._shelf.put(receipt.name)
            self.report.mended += 1
            _log.info("a damaged receipt was written anew", receipt=receipt.name, was=there.data[:200])

    async def tells_of(self, name: str, metadata_location: str) -> bool:
        """Whether there is a receipt of this name, and it tells how this version was made."""
        data = await self.blobs.get(name)
        if data is None:
            return await self._shelf.has(name) is True
        document = receipt_in(data, key_of_name(name)) or {}
        made = document.get("change") in (Change.CREATE, Change.COMMIT)
        return made and document.get("metadata-location") == metadata_location

    # --- what a receipt is made of ---

    async def of_change(
        self, change: CommittedChange, transaction_id: TransactionId, witness: Witness | None
    ) -> Receipt:
        """Of a change that is wholly known, by its cell or its record. Without a witness: all but who did it."""
        exact = witness.change(change.commit_key) if witness is not None else None
        metadata = await self._metadata(exact or change)
        return receipt_of(
            exact or change,
            transaction_id=transaction_id,
            tables=await self._tables(witness) if witness is not None else 1,
            answer=witness.answer if witness is not None else await self._unknown(metadata, change.pointer),
            metadata=metadata,
            base=await base_of(exact or change, self.files),
            size=await self._sizes.after(exact or change),
        )

    async def of_version(
        self, table: Pointer, location: str, revision: int | None, committed_ms: int | None
    ) -> Receipt:
        """Of an older version of a table, from its metadata file and whatever record tells of it."""
        document = await self._document(location)
        if document["table-uuid"].lower() != table.id.lower():
            raise CannotTell(f"{location} belongs to another table, {document['table-uuid']}")
        log = document.get("metadata-log") or ()
        previous = log[-1]["metadata-file"] if log else None
        kind = Change.COMMIT if previous is not None else Change.CREATE
        pointer = Pointer.to(Kind.TABLE, table.identifier, document, location, kind, previous)
        change = CommittedChange(
            Kind.TABLE,
            table.id,
            revision,
            kind,
            table.identifier,
            table.identifier.namespace,
            pointer,
            generation=self.generation,
        )
        made_ms = document["last-updated-ms"] if has_date(document["last-updated-ms"]) else committed_ms
        witness = await self.witnesses.by_location(location, table.id, made_ms or self._clock.now_ms())
        if witness is not None:
            return await self.of_change(change, witness.transaction_id, witness)
        if not has_date(document["last-updated-ms"]):
            raise CannotTell(f"{location} says {document['last-updated-ms']} of its time, and no record tells more")
        return receipt_of(
            change,
            transaction_id=None,
            tables=1,
            answer=await self._unknown(document, pointer),
            metadata=document,
            base=await base_of(change, self.files),
        )

    async def _tables(self, witness: Witness) -> int:
        """How many receipts its transaction leaves. An answer also names tables that were only looked at."""
        if witness.changes or len(witness.locations) < 2:
            return max(1, len(witness.changes))
        made = 0
        for location in witness.locations:
            try:
                uuid = (await self.files.table(location)).document["table-uuid"]
                made += witness.made(location, uuid)
            except (Refusal, NotFound, Unreadable):
                # A view, a Delta table, or a file that is gone: it was changed, most likely.
                made += 1
        return max(1, made)

    async def _document(self, location: str) -> JsonObject:
        try:
            return (await self.files.table(location)).document
        except (NotFound, Unreadable) as error:
            raise CannotTell(str(error)) from error
        except Refusal as error:
            raise CannotTell(str(error)) from error

    async def _metadata(self, change: CommittedChange) -> JsonObject | None:
        """The metadata of the version that the change made, as the ordinary writer has it."""
        if change.pointer is None or not change.has_new_metadata or change.kind == Kind.DELTA:
            return None
        load = self.files.table if change.kind == Kind.TABLE else self.files.view
        try:
            return (await load(change.pointer.metadata_location)).document
        except NotFound:
            return {"last-updated-ms": change.pointer.summary.get("last-updated-ms")}
        except Unreadable as error:
            raise CannotTell(str(error)) from error

    async def _unknown(self, metadata: JsonObject | None, pointer: Pointer | None) -> Mapping[str, Any]:
        """What stands for the answer of a transaction that nobody remembers: the source, as far as metadata tells."""
        source: dict[str, Any] = {"kind": UNKNOWN}
        if metadata is None or pointer is None or pointer.kind is not Kind.TABLE:
            return {"source": source}
        snapshot = summarize_snapshot(metadata, pointer.summary.get("current-snapshot-id"))
        if snapshot is not None and not await self._had(pointer.previous_metadata_location, snapshot.snapshot_id):
            source |= {name: snapshot.summary[word] for word, name in _ENGINE.items() if word in snapshot.summary}
        return {"source": source}

    async def _had(self, previous: str | None, snapshot_id: int) -> bool:
        """Whether the version before had this snapshot too: then its writer is not who made this version."""
        if previous is None:
            return False
        try:
            document = (await self.files.table(previous)).document
        except (Refusal, NotFound, Unreadable):
            return True
        return any(one["snapshot-id"] == snapshot_id for one in document.get("snapshots") or ())
