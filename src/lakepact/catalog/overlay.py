"""The catalog as seen from inside an open transaction: every read is of one instant, every change is staged.

A plan is the same as outside. It reads through the transaction without leaving a trace; then all that it read and all
that it writes is staged in one step, which is refused if another call of the same transaction came in between. Reads
that a client asks for become part of what the transaction depends on.

A transaction that has ended refuses every change, with what became of it. After a commit its reads are still answered
for a while, from what it wrote: engines are lazy. Later, and after an abort, its listings are empty and other reads are
refused.

A long module, for it stands in for every operation of the catalog, and staging them is one mechanism.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

import orjson

from lakepact.access.rules import Scope
from lakepact.catalog.cells import MainCells
from lakepact.catalog.delta_steps import DELTA_CELLS, DeltaStep, StagedDelta, kept, kept_steps, needed
from lakepact.catalog.delta_tables import DeltaCommit, DeltaTable
from lakepact.catalog.edits import Digest, Edits, TableEdit
from lakepact.catalog.errors import BadRequest, Refusal, refusal_of
from lakepact.catalog.files import MetadataFile
from lakepact.catalog.grants import refuse_granted
from lakepact.catalog.keys import family_of
from lakepact.catalog.listing import Page, Visible
from lakepact.catalog.names import TableAt
from lakepact.catalog.namespaces import check_namespace
from lakepact.catalog.operations import Operations, Parts
from lakepact.catalog.pointers import Change, Kind, Pointer, identifier_json
from lakepact.catalog.staged import STAGED, StagedNote, with_note, without_note
from lakepact.catalog.work import Call, Done, Draft, Plan, as_refusal, out_of_time, planned, write_files
from lakepact.delta.ports import VersionRow
from lakepact.errors import Contended, InvalidRequest, KeyReused, StagedMeanwhile, TransactionNotFound, WrongState
from lakepact.iceberg import names as words
from lakepact.iceberg.errors import StaleUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.intent import adds_snapshots, has_snapshots
from lakepact.iceberg.requests import Commit, CreateTable
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, CellPage, State, Transaction, TransactionRecord, Value, Write

PRINCIPAL: Final = "lakepact.principal"
"""The property that says whose transaction it is."""

READ_ONLY: Final = "lakepact.read-only"
"""The property of a transaction that only reads."""

WAREHOUSE: Final = "lakepact.warehouse"
"""The property that says which warehouse a transaction belongs to."""

GRACE_MS: Final = 600_000
"""For how long the reads of a committed transaction are still answered."""

NOTING: Final = "noteLocation"
"""The operation of a step that only remembers something for collection. It leaves no receipt."""

MARKING: Final = "markNamespace"
"""The operation of a step that changes nothing anybody sees. It leaves no receipt."""

ABORTING: Final = "noteAbort"
"""The operation of a record that only says who has aborted another transaction. It leaves no receipt."""

_GC_ENABLED: Final = "gc.enabled"
_ATTEMPTS: Final = 64
_MOST_ANSWERS: Final = 64
"""Kept of each place for answers. A key is used again soon or never."""


class OverlayCells:
    """Cells as an open transaction sees them. What is read this way the transaction depends on."""

    def __init__(self, parts: Parts, transaction_id: TransactionId) -> None:
        self._parts = parts
        self._id = transaction_id
        self._properties: Mapping[str, str] | None = None

    async def read(self, *keys: Key) -> list[Cell]:
        found = await self.read_many(keys, note=True)
        return [found[key] for key in keys]

    read_again = read

    async def scan(self, prefix: str, after: str | None, limit: int) -> CellPage:
        # A listing is no dependency: engines list everything when a name is unknown.
        await self.properties()
        try:
            return await self._parts.store.scan_in(self._id, prefix, after, limit)
        except (WrongState, TransactionNotFound) as error:
            await self._frozen(error)
            return await self._parts.store.scan(prefix, after, limit)

    async def read_many(self, keys: Sequence[Key], *, note: bool) -> Mapping[Key, Cell]:
        await self.properties()
        try:
            return await self._parts.store.read_in(self._id, keys, note=note)
        except (WrongState, TransactionNotFound) as error:
            record = await self._parts.store.lookup(self._id)
            if note and record is not None and record.state in (State.OPEN, State.PREPARED):
                # Sealed: nothing can depend on this read any more, but it can still be answered.
                return await self.read_many(keys, note=False)
            written = await self._frozen(error)
            others = await self._parts.store.read([key for key in keys if key not in written])
            return {key: written[key] if key in written else others[key] for key in keys}

    def know(self, record: TransactionRecord) -> None:
        """Take this from whoever has just looked."""
        if belongs_to(record, self._parts.warehouse.name):
            self._properties = record.properties

    async def properties(self) -> Mapping[str, str]:
        """What the transaction was begun with. Asked once: it never changes, and a transaction is of one warehouse."""
        if self._properties is None:
            record = await self._parts.store.lookup(self._id)
            if record is None or not belongs_to(record, self._parts.warehouse.name):
                raise closed(self._id, None)
            self._properties = record.properties
        return self._properties

    async def _frozen(self, error: Exception) -> dict[Key, Cell]:
        """What a transaction wrote that was committed a short while ago. For any other the error stands."""
        record = await self._parts.store.lookup(self._id)
        now_ms = self._parts.clock.now_ms()
        if record is None or record.state is not State.COMMITTED or (record.decided_ms or 0) + GRACE_MS < now_ms:
            raise closed(self._id, record) from error
        return {write.key: Cell(write.key, write.revision + 1, write.value, record.id) for write in record.writes}


class QuietCells:
    """The same cells, looked at without a trace."""

    def __init__(self, cells: OverlayCells) -> None:
        self._cells = cells

    async def read(self, *keys: Key) -> list[Cell]:
        found = await self._cells.read_many(keys, note=False)
        return [found[key] for key in keys]

    read_again = read


class OverlayWorker:
    """Makes changes by staging them."""

    def __init__(self, parts: Parts, transaction_id: TransactionId, cells: OverlayCells) -> None:
        self._parts = parts
        self._id = transaction_id
        self._cells = cells

    async def read(self, keys: Sequence[Key]) -> Mapping[Key, Cell]:
        """For a change: once the transaction has ended there is nothing to plan on, whatever may still be read."""
        try:
            return await self._parts.store.read_in(self._id, keys, note=False)
        except (WrongState, TransactionNotFound) as error:
            raise closed(self._id, await self._parts.store.lookup(self._id)) from error

    async def perform(self, call: Call, plan: Plan) -> Done:
        """Stage the change once, or say why not. Raises what a `Worker` raises; a refusal ends nothing."""
        parts = self._parts
        deadline = call.deadline_s(parts.clock.monotonic_s() + parts.settings.deadline_s)
        await self.check_takes_changes()
        for attempt in range(_ATTEMPTS):
            if parts.clock.monotonic_s() > deadline:
                raise out_of_time(call)
            draft = Draft(self.read, self._id, f"{call.transaction_id}/{attempt}", parts.clock.now_ms(), parts.rng)
            draft.is_staged = True
            if call.keyed and (done := await self._earlier(call, draft)) is not None:
                return done
            try:
                result = await planned(call, plan, draft)
            except (Refusal, InvalidRequest, StaleUpdate) as error:
                await self._refuse(call, draft, as_refusal(error))
            if draft.changes_nothing and not call.keyed:
                return Done(self._id, result)
            if not await write_files(parts.files, parts.tasks, draft):
                continue
            await self._remember_locations(draft)
            for table_id, step in draft.delta.items():
                await needed(parts.rows).stage(self._id, table_id, call.statement, kept(step))
            if await self._stage(call, draft, self._staged(call, draft), {"result": result}):
                return Done(self._id, result)
            parts.watch.retried(call.operation, self._id)
        raise Contended(
            f"{call.operation}: other calls of transaction {self._id} kept coming in between; send it again"
        )

    async def check_takes_changes(self) -> None:
        """Whether it is here and not read-only. Whether it is still open shows when it is read and staged into."""
        if (await self._cells.properties()).get(READ_ONLY) == "true":
            raise BadRequest(f"transaction {self._id} is read-only; begin one that is not")

    async def _earlier(self, call: Call, draft: Draft) -> Done | None:
        [cell] = await draft.read(self._answers_key(call))
        answer = (cell.value or {}).get(call.transaction_id)
        if answer is None:
            if await self._parts.store.lookup(call.transaction_id) is not None:
                raise KeyReused(f"Idempotency-Key {call.transaction_id} was used outside of transaction {self._id}")
            return None
        if answer["hash"] != call.request_hash:
            raise KeyReused(f"Idempotency-Key {call.transaction_id} was used for a different request in {self._id}")
        if "error" in answer:
            raise refusal_of(answer["error"])
        return Done(self._id, answer["result"], replayed=True)

    async def _refuse(self, call: Call, draft: Draft, refusal: Refusal) -> None:
        """A refusal is an answer too: under a key it is kept, and whatever the plan has read is not."""
        if call.keyed:
            answers = draft.seen[self._answers_key(call)]
            draft.seen.clear()
            draft.seen[answers.key] = answers
            await self._stage(call, draft, {}, {"error": refusal.to_json()})
        raise refusal

    async def _stage(self, call: Call, draft: Draft, writes: dict[Key, Value | None], answer: JsonObject) -> bool:
        """False if another call of this transaction has staged something that was read here: plan again."""
        if call.keyed:
            key = self._answers_key(call)
            kept = list((draft.seen[key].value or {}).items())[-(_MOST_ANSWERS - 1) :]
            writes[key] = {**dict(kept), call.transaction_id: {"hash": call.request_hash, **answer}}
        try:
            await self._parts.store.stage(self._id, call.statement, writes, seen=draft.seen)
        except StagedMeanwhile:
            return False
        except (WrongState, TransactionNotFound) as error:
            raise closed(self._id, await self._parts.store.lookup(self._id)) from error
        return True

    async def _remember_locations(self, draft: Draft) -> None:
        """Note, outside of the transaction, where its new tables are: however it ends, their files can be found."""
        for key, value in draft.writes.items():
            if family_of(key) != "locations" or value is None or draft.seen[key].writer == self._id:
                continue
            note = self._parts.keys.staged_location(self._id, value["location"])
            if (await self._parts.store.read([note]))[note].exists:
                continue
            begun = {"location": value["location"], "transaction-id": self._id, "id": value["id"]}
            written = Write(note, 0, begun)
            # A conflict means that another call of the transaction has noted it meanwhile.
            await self._parts.store.commit(
                Transaction(self._parts.new_id(), "", (written,), answer={"operation": NOTING, "result": {}})
            )

    def _staged(self, call: Call, draft: Draft) -> dict[Key, Value | None]:
        """The writes, each table's pointer with what publishing needs to know."""
        writes: dict[Key, Value | None] = {}
        for key, value in draft.writes.items():
            if value is not None and family_of(key) == "views":
                value = self._with_outside_predecessor(draft.seen[key], value)
            if value is not None and family_of(key) == DELTA_CELLS:
                step, before_it = draft.delta.get(segments_of(key)[-1]), StagedDelta.of(draft.seen[key], self._id)
                noted = before_it.next(call.statement, blind=step.blind) if step is not None else before_it.next(None)
                value = {**value, STAGED: noted.to_json()}
            if value is not None and family_of(key) == "tables":
                before, pointer = StagedNote.of(draft.seen[key], self._id), Pointer.from_json(value)
                if pointer.change is Change.REGISTER:
                    note = before.registered(pointer.metadata_location)
                else:
                    note = before.next(draft.commits.get(key))
                value = with_note(value, note)
            writes[key] = value
        return writes

    def _with_outside_predecessor(self, before: Cell, view: Value) -> Value:
        """What came in between nobody outside has seen: the predecessor of a view is the one it had before all this."""
        if before.writer != self._id or before.value is None:
            return view
        previous = "previous-metadata-location"
        return {**view, previous: before.value[previous]}

    def _answers_key(self, call: Call) -> Key:
        """Where the answer to this key is kept. Several places, so that calls seldom get in each other's way."""
        return self._parts.keys.answers(call.transaction_id[-1])


class Overlay(Operations):
    """All operations, inside one open transaction."""

    def __init__(self, parts: Parts, transaction_id: TransactionId) -> None:
        self.id = transaction_id
        cells = OverlayCells(parts, transaction_id)
        worker = OverlayWorker(parts, transaction_id, cells)
        self._check_takes_changes = worker.check_takes_changes
        self.know = cells.know
        self.quietly = QuietCells(cells)
        self.properties = cells.properties
        super().__init__(parts, cells, worker)

    @property
    def open_transaction(self) -> TransactionId | None:
        return self.id

    async def list_namespaces(
        self,
        parent: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await empty_if_ended(super().list_namespaces(parent, token, size, visible=visible))

    async def list_tables(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await empty_if_ended(super().list_tables(namespace, token, size, visible=visible))

    async def list_views(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await empty_if_ended(super().list_views(namespace, token, size, visible=visible))

    async def list_delta(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await empty_if_ended(super().list_delta(namespace, token, size, visible=visible))

    async def _delta_staged(self, pointer: Pointer) -> tuple[DeltaStep | None, int]:
        [cell] = await self._cells.read(self._names.pointer_key(pointer))
        if cell.writer != self.id or cell.value is None:
            return None, 0
        if STAGED in cell.value:
            note = StagedDelta.from_json(cell.value[STAGED])
            return await self._delta.staged_in(self.id, pointer, note), len(note.statements)
        # Prepared: its statements are together as one, and its version is not published yet.
        record = await self.parts.store.lookup(self.id)
        if record is None or record.state is not State.PREPARED:
            return None, 0
        return (await kept_steps(needed(self.parts.rows), self.id)).get(pointer.id), 0

    async def load_delta_of(
        self, pointer: Pointer, *, version: int | None = None, timestamp_ms: int | None = None, files: bool = True
    ) -> DeltaTable:
        table = await super().load_delta_of(pointer, version=version, timestamp_ms=timestamp_ms, files=files)
        await self._note_read(pointer, rows=files)
        return table

    async def delta_history_of(self, pointer: Pointer, before: int | None, limit: int) -> Sequence[VersionRow]:
        await self._note_read(pointer, rows=True)
        return await super().delta_history_of(pointer, before, limit)

    async def _note_read(self, pointer: Pointer, *, rows: bool) -> None:
        """Note that the client was shown this table. Appends are rebased only past versions that do not change it.

        `rows`: it was shown the table's files too, and what it appends may be computed from them.
        """
        keys = self.parts.keys
        await self._cells.read(keys.head_read(pointer.id), *([keys.rows_read(pointer.id)] if rows else []))

    async def commit_delta(self, call: Call, commits: Sequence[DeltaCommit], iceberg: Sequence[Commit] = ()) -> Done:
        refuse_destruction(iceberg)
        return await super().commit_delta(call, commits, iceberg)

    async def drop_namespace(self, call: Call, namespace: Sequence[str]) -> Done:
        check_namespace(namespace)

        async def plan(draft: Draft) -> JsonObject:
            # Once more when it is published; whoever drops it here had better know now.
            holding = self.parts.grants.holding(Scope.namespace(namespace))
            refuse_granted(namespace, (await self.parts.store.read([holding]))[holding])
            return await self._namespaces.drop(draft, namespace, None)

        return await self._worker.perform(call, plan)

    async def table_file(self, location: str) -> MetadataFile:
        return guarded(await super().table_file(location))

    async def _file_at(self, table: TableAt) -> MetadataFile:
        return guarded(await super()._file_at(table))

    async def file_of(self, pointer: Pointer) -> MetadataFile:
        file = await super().file_of(pointer)
        return guarded(file) if pointer.kind is Kind.TABLE else file

    async def table_after(self, done: Done) -> MetadataFile:
        return guarded(await super().table_after(done))

    async def stage_table(self, namespace: tuple[str, ...], request: CreateTable) -> JsonObject:
        # The client is about to write files for it, and had better know now.
        await self._check_takes_changes()
        return await super().stage_table(namespace, request)

    async def commit_table(self, call: Call, commit: Commit) -> Done:
        refuse_destruction([commit])
        try:
            return await super().commit_table(call, commit)
        except ClosedTransaction as error:
            [found] = await self._already_in([commit], error)
            return Done(self.id, {"metadata-location": found["metadata-location"]}, replayed=True)

    async def commit_tables(self, call: Call, commits: Sequence[Commit]) -> Done:
        refuse_destruction(commits)
        try:
            return await super().commit_tables(call, commits)
        except ClosedTransaction as error:
            return Done(self.id, {"results": await self._already_in(commits, error)}, replayed=True)

    async def edit_tables(self, call: Call, edits: Sequence[TableEdit], digest: Digest) -> Done:
        """Many tables, each by updates or by a whole document. Once in a transaction: see `edits`."""
        commits = [edit.payload for edit in edits if isinstance(edit.payload, Commit)]
        refuse_destruction(commits)
        self._check_many(len(edits), commits)
        plans = Edits(self.parts.keys, self._names, self._tables)
        return await self._worker.perform(call, lambda draft: plans.stage(draft, edits, digest))

    async def _already_in(self, commits: Sequence[Commit], error: ClosedTransaction) -> list[JsonObject]:
        """Where the tables are, if these commits were staged before and only the answer was lost. Else the error.

        Refusing them would make the client delete files that are live, or will be when the transaction is committed.
        """
        found = [await self._with_snapshots_of(commit) for commit in commits]
        leave_traces = [bool(adds_snapshots(commit.updates)) for commit in commits]
        if not any(leave_traces) or any(
            trace and pointer is None for trace, pointer in zip(leave_traces, found, strict=True)
        ):
            raise error
        return [
            {
                "identifier": identifier_json(pointer.identifier),
                "metadata-location": pointer.metadata_location,
            }
            for pointer in found
            if pointer is not None
        ]

    async def _with_snapshots_of(self, commit: Commit) -> Pointer | None:
        """The table of this commit, as the transaction has left it or as everybody sees it, if it shows the commit."""
        assert commit.identifier is not None
        if not adds_snapshots(commit.updates):
            return None
        record = await self.parts.store.lookup(self.id)
        pointers: list[Pointer | None] = []
        if record is not None and record.state not in (State.ABORTED, State.FAILED):
            writes = (await self.parts.store.contents(self.id)).writes
            held = [one.value for one in writes if one.value is not None and family_of(one.key) == "tables"]
            pointers += [Pointer.from_json(without_note(value)) for value in held]
        pointers.append(await self._names.find_kind(MainCells(self.parts.store), commit.identifier, Kind.TABLE))
        for pointer in pointers:
            if pointer is not None and pointer.identifier == commit.identifier:
                file = await self.parts.files.of(pointer)
                if has_snapshots(file.document, commit.updates):
                    return pointer
        return None

    # --- small documents of users ---

    async def put_state(self, call: Call, name: str, value: JsonObject | None, revision: int | None) -> Done:
        """Stage a document, if it is at this revision as the transaction sees it (None: whatever it is at)."""

        async def plan(draft: Draft) -> JsonObject:
            key = self.parts.keys.state(name)
            [cell] = await draft.read(key)
            check_revision(name, cell, revision)
            owner = (cell.value or {}).get("principal", call.source.get("principal"))
            owned = {} if owner is None else {"principal": owner}
            draft.write(key, None if value is None else {"value": value, **owned})
            return {"name": name, "revision": cell.revision + (cell.writer != self.id)}

        return await self._worker.perform(call, plan)


class ClosedTransaction(BadRequest):
    """The transaction has ended, or there is none. A 400 for everything: engines show it, and clean up after it."""


class EndedTransaction(ClosedTransaction):
    """The transaction is committed, aborted or failed, and its reads are no longer answered."""


async def empty_if_ended(listing: Awaitable[Page]) -> Page:
    """Return an empty page in the place of an `EndedTransaction`.

    An engine may have a catalog of a transaction configured long after it has ended. It lists all its catalogs for one
    query of their schemas, and an error would fail the query for the other catalogs too.
    """
    try:
        return await listing
    except EndedTransaction:
        return Page(())


def closed(transaction_id: TransactionId, record: TransactionRecord | None) -> ClosedTransaction:
    again = "Begin a new one"
    if record is None:
        return ClosedTransaction(f"there is no transaction {transaction_id}. {again}")
    kind = EndedTransaction if record.state in (State.COMMITTED, State.ABORTED, State.FAILED) else ClosedTransaction
    match record.state:
        case State.COMMITTED:
            what = "is committed: all of it is visible, and it takes no more statements"
        case State.ABORTED if record.expired:
            what = "has expired: it was neither committed nor renewed in time, and nothing of it was applied"
        case State.ABORTED:
            what = "was aborted: nothing of it was applied"
        case State.FAILED:
            what = f"failed at its commit: nothing of it was applied ({_why(record)})"
        case State.RETRYABLE | State.PREPARING:
            what = "is being committed; ask for its state, or commit it again"
        case State.PREPARED:
            what = "is prepared and takes no more statements: commit or abort it"
        case State.OPEN:
            what = "is sealed for its commit and takes no more statements: commit or abort it"
    return kind(f"transaction {transaction_id} {what}. {again}")


def warehouse_of(record: TransactionRecord) -> str | None:
    """A transaction stays in one warehouse: it says which, its answer does, or its cells. None: nobody says."""
    if (said := record.properties.get(WAREHOUSE) or (record.answer or {}).get("warehouse")) is not None:
        return str(said)
    named = {segments_of(write.key)[0] for write in record.writes}
    return named.pop() if len(named) == 1 else None


def belongs_to(record: TransactionRecord, warehouse: str) -> bool:
    """Of one that was given up long ago nothing is left, not even where it was: it tells of nobody."""
    said = warehouse_of(record)
    return said == warehouse or (said is None and record.answer is None)


def guarded(file: MetadataFile) -> MetadataFile:
    """The file as an engine sees it that must not delete anything: Spark purges and expires files itself, at once.

    In answers only, never stored.
    """
    properties = {**(file.document.get("properties") or {}), _GC_ENABLED: "false"}
    document = {**file.document, "properties": properties}
    return MetadataFile(file.location, file.name, orjson.dumps(document), document, file.digest)


def refuse_destruction(commits: Sequence[Commit]) -> None:
    """Engines delete files right after such a commit, long before the transaction is published."""
    for commit in commits:
        if any(update.action == words.REMOVE_SNAPSHOTS for update in commit.updates):
            raise BadRequest(
                "remove-snapshots cannot be part of a transaction: the engine would delete live files before the "
                "commit. Expire snapshots outside of it"
            )


def check_revision(name: str, cell: Cell, revision: int | None) -> None:
    if revision is not None and cell.revision != revision:
        raise BadRevision(
            f"document {name!r} is at revision {cell.revision}, not {revision}; read it again",
            {"name": name, "expected": revision, "actual": cell.revision},
        )


class BadRevision(Refusal):
    """A document was compared with a revision it is not at."""

    type = "CommitFailedException"
    code = 409


def _why(record: TransactionRecord) -> str:
    answer: Mapping[str, Any] = record.answer or {}
    return str((answer.get("error") or {}).get("message", "a conflict"))
