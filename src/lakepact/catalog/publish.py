"""Publishing: how what a transaction has staged becomes visible, all of it at one instant and with one timestamp.

The staged plan is turned into the plan that is committed. Each table gets one more metadata version, the only one that
anybody outside will see. A table that has moved since the transaction read it is a conflict, with two exceptions (ADR
0025). Under snapshot isolation, changes of an Iceberg table's metadata are rebased on the newer version if their
requirements hold there and nobody else has changed the same parts. Appends to a Delta table are rebased if they
contradict nothing, under serializable isolation only if the transaction has not read the table's rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from lakepact.catalog.conditions import Conditions, Mark
from lakepact.catalog.delta_attempts import PlannedRows
from lakepact.catalog.delta_conflicts import log_conflicts, rebased, version_conflict_json
from lakepact.catalog.delta_steps import (
    DELTA_CELLS,
    DeltaStep,
    StagedDelta,
    beside_of,
    changes_of_rows,
    keep_steps,
    kept_steps,
    needed,
    noted,
    staged_steps,
)
from lakepact.catalog.errors import CommitFailed, MissingFile, Refusal, refusal_of
from lakepact.catalog.keys import INSIDE_ONLY, Keys, family_of, levels_of
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlay import closed
from lakepact.catalog.pointers import Change, Kind, Pointer, identifier_json, shown
from lakepact.catalog.staged import STAGED, StagedNote, without_note
from lakepact.catalog.work import Call, Done, Draft, as_refusal, out_of_time, replay, unless_held, write_files
from lakepact.errors import (
    Contended,
    FileNotLive,
    InvalidRequest,
    PreparedOtherwise,
    RowsGone,
    TransactionNotFound,
    WrongState,
)
from lakepact.iceberg.draft import Context
from lakepact.iceberg.errors import StaleUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import next_metadata_location
from lakepact.iceberg.publish import published
from lakepact.iceberg.rebase import changed_parts
from lakepact.iceberg.requirements import check_all
from lakepact.iceberg.updates import apply
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import (
    Busy,
    Cell,
    CommitResult,
    Committed,
    Conflict,
    Failed,
    Isolation,
    Moved,
    Prepared,
    PrepareResult,
    Read,
    State,
    Transaction,
    TransactionRecord,
    Value,
    Write,
)

_ATTEMPTS: Final = 32
_POINTERS: Final = ("tables", "views", DELTA_CELLS)
_LOOKED_UP: Final = frozenset({"names", "namespaces", "state"})
"""The families whose cells clients look up by name, and which tell them something even if they hold nothing."""

Decide: TypeAlias = Callable[[Transaction], Awaitable[CommitResult | PrepareResult]]


class Publisher:
    def __init__(
        self,
        parts: Parts,
        *,
        mark: Mark,
        on_committed: Callable[[Transaction, Draft], Coroutine[Any, Any, None]],
    ) -> None:
        """`mark` puts a mark on a namespace that is to be dropped, in a transaction of its own."""
        self._parts = parts
        self._conditions = Conditions(parts, mark)
        self._on_committed = on_committed

    async def commit(self, call: Call, record: TransactionRecord) -> Done:
        """Publish the transaction of this call. Idempotent: once it has ended, its answer is given again."""
        store = self._parts.store
        if record.state is State.ABORTED:
            raise closed(call.transaction_id, record)
        if record.state in (State.COMMITTED, State.FAILED):
            return replay(record)
        if record.state is State.PREPARED:
            return await self._commit_prepared(call, record)
        try:
            return await self._decide(
                call, record.isolation, lambda transaction: store.commit(transaction, settle_conflict=False)
            )
        except PreparedOtherwise:
            # Somebody has prepared it meanwhile, at another time: that plan is the one that counts.
            return await self.commit(call, await self._record(call))

    async def _commit_prepared(self, call: Call, record: TransactionRecord) -> Done:
        prepared = Transaction(record.id, record.request_hash, record.writes, record.reads, sealed=True)
        try:
            transaction = await self._with_kept_rows(self._answered(call, prepared))
        except RowsGone:
            # Another commit of it was faster: then its statements are not kept any more.
            if (now := await self._record(call)).state.final:
                return replay(now)
            raise
        return await self._settled(call, transaction, self._parts.store.commit)

    async def prepare(self, call: Call) -> TransactionRecord:
        """Make sure that the commit will succeed: everything it needs is held until then."""
        store = self._parts.store
        record = await self._record(call)
        if record.state not in (State.PREPARED, State.COMMITTED):
            await self._decide(
                call, record.isolation, lambda transaction: store.prepare(transaction, settle_conflict=False), keep=True
            )
        return await self._record(call)

    async def refuse(self, call: Call, refusal: Refusal) -> None:
        """End an open transaction with this refusal as its answer, whoever asks from now on."""
        record = await self._record(call)
        self._parts.watch.refused()
        answer = self._answer(call, {"error": refusal.to_json()})
        await self._parts.store.fail(record.id, record.request_hash, answer)

    async def _record(self, call: Call) -> TransactionRecord:
        record = await self._parts.store.lookup(call.transaction_id)
        if record is None or record.state is State.ABORTED:
            raise closed(call.transaction_id, record)
        return record

    # --- the decision ---

    async def _decide(self, call: Call, isolation: Isolation, decide: Decide, *, keep: bool = False) -> Done:
        """Plan, and plan again while only such cells have moved as can be followed. `keep`: the commit comes later."""
        try:
            sealed = await self._parts.store.seal(call.transaction_id)
        except (WrongState, TransactionNotFound) as error:
            raise closed(call.transaction_id, await self._parts.store.lookup(call.transaction_id)) from error
        if keep and call.judge is not None:
            # What is written was judged before. What was only read is held as well, and keeps its owners from it.
            await call.judge.check_held([*(read.key for read in sealed.reads), *(one.key for one in sealed.writes)])
        moved: dict[Key, Cell] = {}
        rows = PlannedRows(self._parts.rows, sealed.id, sealed.request_hash, discards=False)
        for attempt in range(_ATTEMPTS):
            draft = Draft(
                self._parts.store.read,
                call.transaction_id,
                f"publish/{attempt}",
                self._parts.clock.now_ms(),
                self._parts.rng,
            )
            try:
                transaction = await self._plan(call, sealed, draft, moved, isolation)
                transaction = await self._with_rows(transaction, sealed, rows, keep=keep)
            except FileNotLive as error:
                return await self._fail(call, sealed, await self._conflict_or(call, error, sealed))
            except RowsGone:
                record = await self._record(call)
                if record.state.final:
                    return replay(record)
                if record.state is State.PREPARED:
                    # What was sealed is what somebody has prepared meanwhile; its statements are kept as one.
                    if keep:
                        return Done(record.id, {})
                    raise PreparedOtherwise(f"transaction {record.id} was prepared meanwhile") from None
                raise
            except (Refusal, InvalidRequest, StaleUpdate) as error:
                return await self._fail(call, sealed, as_refusal(error))
            if not await write_files(self._parts.files, self._parts.tasks, draft):
                continue
            try:
                outcome = await self._decided(call, transaction, decide)
            except RowsGone:
                # Another attempt to commit it has put them aside, and does not count: they are written again.
                rows.lost()
                continue
            except InvalidRequest as error:
                # It names more cells than one commit may: it will do so however often it is tried.
                return await self._fail(call, sealed, as_refusal(error))
            if not isinstance(outcome, Conflict):
                return await self._ended(call, transaction, outcome, draft)
            if outcome.final:
                raise _conflict(sealed, outcome.moved, {})
            self._parts.watch.retried(call.operation, call.transaction_id)
            cells = await self._parts.store.read([one.key for one in outcome.moved])
            rechecked = self._conditions.rechecked(sealed)
            if not all(key in rechecked or _can_rebase(self._parts.keys, sealed, key, isolation) for key in cells):
                found = await self._last_known(call, cells)
                return await self._fail(call, sealed, _conflict(sealed, outcome.moved, found))
            moved.update(cells)
        raise Contended(f"transaction {call.transaction_id}: others kept changing its tables; commit it again")

    async def _last_known(self, call: Call, cells: Mapping[Key, Cell]) -> dict[Key, Value | None]:
        """What these cells hold, and of those that were dropped what they have left behind; but nothing of a table that
        is out of sight of whoever asks by now."""
        notes = {key: self._parts.keys.dropped(segments_of(key)[-1]) for key in cells if family_of(key) in _POINTERS}
        left = await self._parts.store.read([notes[key] for key in notes if cells[key].value is None])
        found = {
            key: cell.value if cell.value is not None or key not in notes else left[notes[key]].value
            for key, cell in cells.items()
        }
        if call.judge is None:
            return found
        hidden = {
            key for key in notes if (value := found[key]) is not None and not call.judge.sees(Pointer.from_json(value))
        }
        return {key: None if key in hidden else value for key, value in found.items()}

    async def _settled(self, call: Call, transaction: Transaction, decide: Decide) -> Done:
        draft = Draft(
            self._parts.store.read, call.transaction_id, "publish", self._parts.clock.now_ms(), self._parts.rng
        )
        return await self._ended(call, transaction, await self._decided(call, transaction, decide), draft)

    async def _decided(self, call: Call, transaction: Transaction, decide: Decide) -> CommitResult | PrepareResult:
        parts = self._parts
        now_s = parts.clock.monotonic_s()
        wait_s = call.deadline_s(now_s + parts.settings.held_wait_s) - now_s
        if wait_s < 0:
            raise out_of_time(call)
        try:
            return await unless_held(lambda: decide(transaction), parts.clock, parts.rng, wait_s)
        except PreparedOtherwise:
            raise
        except (WrongState, TransactionNotFound) as error:
            # It has expired, or somebody has aborted it, since it was looked at.
            raise closed(transaction.id, await self._parts.store.lookup(transaction.id)) from error

    async def _ended(
        self, call: Call, transaction: Transaction, outcome: CommitResult | PrepareResult, draft: Draft
    ) -> Done:
        match outcome:
            case Committed():
                if not outcome.replayed:
                    self._parts.watch.applied(len(results_of(transaction.writes)))
                    self._parts.tasks.background(self._on_committed(transaction, draft))
                return Done(outcome.id, outcome.answer["result"], outcome.replayed)
            case Prepared():
                return Done(outcome.id, {})
            case Failed():
                raise refusal_of(outcome.answer["error"])
            case Conflict():
                raise _conflict(transaction, outcome.moved, {})
            case Busy():
                step = "prepare" if call.operation == "prepareTransaction" else "commit"
                raise Contended(
                    f"transaction {outcome.owner or 'of somebody else'} holds a table of {call.transaction_id}. "
                    f"Nothing was applied, and nothing is held; {step} it again, or abort it. Whoever manages the "
                    f"table may abort the transaction that holds it",
                    owner=outcome.owner,
                    retry_after_s=outcome.retry_after_s,
                )

    async def _fail(self, call: Call, sealed: Transaction, refusal: Refusal) -> Done:
        self._parts.watch.refused()
        answer = self._answer(call, {"error": refusal.to_json()})
        settled = await self._parts.store.fail(sealed.id, sealed.request_hash, answer)
        if isinstance(settled, Committed):
            return Done(settled.id, settled.answer["result"], replayed=True)
        if isinstance(refusal, CommitFailed):
            await log_conflicts(self._parts.rows, sealed.id, refusal, self._parts.clock.now_ms())
        raise refusal_of(settled.answer["error"])

    # --- the rows of Delta tables: written before the decision, seen after it ---

    async def _with_rows(
        self, plan: Transaction, sealed: Transaction, planned: PlannedRows, *, keep: bool
    ) -> Transaction:
        """The plan, and what happens to Delta tables beside its cells. `keep`: its commit comes later."""
        live = {write.key for write in plan.writes if write.value is not None}
        notes = {segments_of(key)[-1]: note for key, note in noted(sealed.writes).items() if key in live}
        steps: Mapping[str, DeltaStep] = {}
        if notes:
            rows = needed(self._parts.rows)
            steps = await staged_steps(rows, plan.id, notes)
            await planned.place(changes_of_rows(plan.writes, steps))
            if keep:
                await keep_steps(rows, plan.id, steps)
        return replace(plan, beside=beside_of(self._parts.warehouse.name, plan.id, plan.writes, steps))

    async def _conflict_or(self, call: Call, error: FileNotLive, sealed: Transaction) -> Refusal:
        """A file that is to be removed has gone: because its table has moved, or because it never was there."""
        planned = {write.key: write.revision for write in sealed.writes if family_of(write.key) == DELTA_CELLS}
        cells = await self._parts.store.read(planned)
        moved = [
            Moved(key, planned[key], cell.revision) for key, cell in cells.items() if cell.revision != planned[key]
        ]
        return _conflict(sealed, moved, await self._last_known(call, cells)) if moved else as_refusal(error)

    async def _with_kept_rows(self, prepared: Transaction) -> Transaction:
        steps: Mapping[str, DeltaStep] = {}
        if any(family_of(write.key) == DELTA_CELLS for write in prepared.writes):
            steps = await kept_steps(needed(self._parts.rows), prepared.id)
        return replace(prepared, beside=beside_of(self._parts.warehouse.name, prepared.id, prepared.writes, steps))

    # --- the plan ---

    async def _plan(
        self, call: Call, sealed: Transaction, draft: Draft, moved: Mapping[Key, Cell], isolation: Isolation
    ) -> Transaction:
        never_were = {
            segments_of(write.key)[-1]
            for write in sealed.writes
            if family_of(write.key) in _POINTERS and write.revision == 0 and write.value is None
        }
        kept = [write for write in sealed.writes if not _is_passing(write, never_were)]
        undone = [write for write in sealed.writes if family_of(write.key) in _LOOKED_UP and _is_passing(write, set())]
        draft.now_ms = await self._common_time(draft.now_ms, kept, moved)
        writes = {write.key: await self._write(call, draft, sealed, write, moved.get(write.key)) for write in kept}
        # All reads were of one instant: one that writes nothing has its place in the order there, whatever moved since.
        depends = sealed.reads if kept else ()
        reads = {read.key: read.revision for read in depends if family_of(read.key) not in INSIDE_ONLY}
        if kept and isolation is Isolation.SERIALIZABLE:
            # A name that was created and dropped again inside: the transaction has still seen that it was free.
            reads.update({write.key: write.revision for write in undone})
        sees = call.judge.sees if call.judge is not None else lambda pointer: True
        await self._conditions.secure(sealed, writes, reads, sees)
        plan = Transaction(
            sealed.id,
            sealed.request_hash,
            writes=tuple(writes.values()),
            reads=tuple(Read(key, revision) for key, revision in reads.items() if key not in writes),
            sealed=True,
        )
        return self._answered(call, plan)

    def _answered(self, call: Call, plan: Transaction) -> Transaction:
        answer = self._answer(call, {"result": {"results": results_of(plan.writes)}})
        return Transaction(plan.id, plan.request_hash, plan.writes, plan.reads, answer, plan.sealed)

    def _answer(self, call: Call, what: JsonObject) -> JsonObject:
        return {"operation": call.operation, "warehouse": self._parts.warehouse.name, **what, "source": call.source}

    async def _common_time(self, now_ms: int, writes: Iterable[Write], moved: Mapping[Key, Cell]) -> int:
        """No table may become older than it was."""
        writes = list(writes)
        times = [now_ms, *(note.base_ict_ms + 1 for note in noted(writes).values())]
        followed = (Pointer.of(moved[key]) for key in noted(writes) if key in moved)
        times += [pointer.summary["ict-ms"] + 1 for pointer in followed if pointer is not None]
        for write in writes:
            if (note := _note_of(write)) is None:
                continue
            newer = Pointer.of(moved[write.key]) if write.key in moved else None
            location = newer.metadata_location if newer is not None else note.base_location
            if location is not None:
                times.append((await self._parts.files.table(location)).document["last-updated-ms"])
        return max(times)

    async def _write(self, call: Call, draft: Draft, sealed: Transaction, write: Write, current: Cell | None) -> Write:
        """Return the write that is committed. `current` is the cell's newer content, if it has moved."""
        if write.value is not None and family_of(write.key) == DELTA_CELLS and STAGED in write.value:
            return await self._write_delta(draft, sealed, write, current)
        note = _note_of(write)
        if note is None or write.value is None:
            return write
        revision = write.revision if current is None else current.revision
        pointer = Pointer.from_json(without_note(write.value))
        base_location: str | None
        if current is not None:
            pointer, metadata = await self._rebased(draft, note, write, current, pointer)
            base_location = pointer.metadata_location
        elif pointer.metadata_location == note.base_location:
            # Renamed or registered, and nothing else.
            return Write(write.key, revision, pointer.to_json())
        else:
            metadata = draft.starts_from(await self._parts.files.of(pointer))
            base_location = note.base_location
        file = None if base_location is None else await self._parts.files.table(base_location)
        base = None if file is None else draft.starts_from(file)
        document = published(metadata, base=base, base_location=base_location, now_ms=draft.now_ms)
        location = next_metadata_location(document, base_location, draft.unique_name(pointer.id))
        digest = await draft.put(location, document, self._parts.files.most_bytes_after(file))
        change = Change.CREATE if base is None else Change.COMMIT
        new = Pointer.to(Kind.TABLE, pointer.identifier, document, location, change, base_location, digest=digest)
        if call.judge is not None:
            call.judge.check_table(new, base, document)
        return Write(write.key, revision, new.to_json())

    async def _write_delta(self, draft: Draft, sealed: Transaction, write: Write, current: Cell | None) -> Write:
        """All statements are one version, with the time of the whole transaction."""
        assert write.value is not None
        note = StagedDelta.from_json(write.value[STAGED])
        pointer = Pointer.from_json(without_note(write.value))
        if current is not None:
            rows = needed(self._parts.rows)
            # Noted only under serializable isolation, where what was loaded must not have moved.
            loaded = self._parts.keys.head_read(pointer.id) in {read.key for read in sealed.reads}
            pointer = await rebased(
                rows, draft.transaction_id, pointer, note, current, draft.now_ms, head_was_read=loaded
            )
            return Write(write.key, current.revision, pointer.to_json())
        if note.statements:
            summary = {**pointer.summary, "version": note.base_version + 1, "ict-ms": draft.now_ms}
            change = Change.CREATE if note.base_version < 0 else Change.COMMIT
            pointer = Pointer.to_delta(pointer.identifier, summary, change, pointer.previous_metadata_location)
        return Write(write.key, write.revision, pointer.to_json())

    async def _rebased(
        self, draft: Draft, note: StagedNote, write: Write, current: Cell, staged: Pointer
    ) -> tuple[Pointer, JsonObject]:
        """Apply the staged commits to the table's newer version. Return its pointer and the metadata that results.

        Raises `CommitFailed` if a requirement does not hold there, or if somebody else has changed a part of the table
        that the commits change too.
        """
        pointer = Pointer.of(current)
        assert note.commits is not None and note.base_location is not None
        if pointer is None or pointer.identifier != staged.identifier:
            raise _rebase_conflict(staged, write, current, "it was renamed or dropped meanwhile")
        newer = draft.starts_from(await self._parts.files.of(pointer))
        try:
            base = draft.starts_from(await self._parts.files.table(note.base_location))
        except MissingFile:
            if any(one["metadata-file"] == note.base_location for one in newer.get("metadata-log") or ()):
                raise
            # The table deletes its old metadata files, and this one has fallen off its log.
            why = f"the version it was changed on ({note.base_location}) was deleted, so the two cannot be compared"
            raise _rebase_conflict(staged, write, current, why) from None
        metadata = newer
        for commit in note.commits:
            if parts := changed_parts(base, newer, commit.updates):
                raise _rebase_conflict(staged, write, current, f"others have changed {', '.join(parts)} as well", parts)
            if failures := check_all(metadata, commit.requirements):
                raise _rebase_conflict(staged, write, current, failures[0].message)
            try:
                metadata = (await draft.compute(apply, metadata, commit.updates, Context(draft.now_ms))).metadata
            except (InvalidRequest, StaleUpdate) as error:
                # The change was valid when it was staged: it does not fit what others have made of the table.
                raise _rebase_conflict(staged, write, current, str(error)) from error
        return pointer, metadata


def results_of(writes: Iterable[Write]) -> list[JsonObject]:
    """The tables and views of a committed plan, and where their metadata is."""
    return [
        {
            "identifier": {"namespace": write.value["namespace"], "name": write.value["name"]},
            "metadata-location": write.value["metadata-location"],
        }
        for write in writes
        if write.value is not None and family_of(write.key) in _POINTERS
    ]


def _note_of(write: Write) -> StagedNote | None:
    if write.value is None or STAGED not in write.value or family_of(write.key) == DELTA_CELLS:
        return None
    return StagedNote.from_json(write.value[STAGED])


def _is_passing(write: Write, never_were: set[str]) -> bool:
    """Whether the write means nothing outside: answers, and what came and went within the transaction."""
    if family_of(write.key) in INSIDE_ONLY:
        return True
    if family_of(write.key) == "dropped":
        return segments_of(write.key)[-1] in never_were
    return write.revision == 0 and write.value is None


def _can_rebase(keys: Keys, sealed: Transaction, key: Key, isolation: Isolation) -> bool:
    """Return whether the plan may be made again although this cell has moved.

    Under serializable isolation nothing that the transaction was shown may have moved, and staging a commit shows the
    table it is for. The one exception are appends to a Delta table whose rows were not read: they hold whatever the
    table contains. Cells that only publishing itself has read may always be read again, and so may the cells of
    locations that it checks again (`Conditions.rechecked`).
    """
    if key not in {*(one.key for one in sealed.writes), *(one.key for one in sealed.reads)}:
        return True
    if (delta := noted(sealed.writes).get(key)) is not None:
        was_read = keys.rows_read(segments_of(key)[-1]) in {read.key for read in sealed.reads}
        return delta.blind and not (isolation is Isolation.SERIALIZABLE and was_read)
    if isolation is Isolation.SERIALIZABLE:
        return False
    notes = {write.key: note for write in sealed.writes if (note := _note_of(write)) is not None}
    return key in notes and bool(notes[key].commits)


def _rebase_conflict(staged: Pointer, write: Write, current: Cell, why: str, parts: Sequence[str] = ()) -> CommitFailed:
    """The refusal of changes of one table that cannot be applied to its newer version."""
    conflict: JsonObject = {
        "cell": write.key,
        "identifier": identifier_json(staged.identifier),
        "access": "write",
        "expected": write.revision,
        "actual": current.revision,
        **({"changed": list(parts)} if parts else {}),
    }
    return CommitFailed(
        f"Transaction failed: table {shown(staged.identifier)} has moved since the transaction read it, and its "
        f"changes cannot be applied to the newer version: {why}. Nothing was applied; run it again",
        {"conflicts": [conflict]},
    )


def _conflict(sealed: Transaction, moved: Sequence[Moved], found: Mapping[Key, Value | None]) -> CommitFailed:
    """The refusal of a transaction whose cells have moved. It names them."""
    new = {segments_of(one.key)[-1] for one in sealed.writes if one.revision == 0 and family_of(one.key) in _POINTERS}
    # Of an id that it has taken for something new it saw nothing: whose that is by now is not for it to tell.
    found = {key: value for key, value in found.items() if segments_of(key)[-1] not in new}
    values: dict[Key, Value | None] = {write.key: write.value for write in sealed.writes}
    named = [
        {
            "cell": one.key,
            **_identified(one.key, values.get(one.key) or found.get(one.key) or {}),
            "access": "write" if one.key in values else "read",
            "expected": one.expected,
            "actual": one.actual,
        }
        for one in moved
    ]
    tables = ", ".join(dict.fromkeys(_shown(one) for one in named))
    details: JsonObject = {"conflicts": named}
    if versions := _version_conflicts(sealed, moved, found):
        details["version-conflicts"] = versions
    return CommitFailed(
        f"Transaction failed: {tables} changed since {sealed.id} read it. Nothing was applied; run it again", details
    )


def _version_conflicts(
    sealed: Transaction, moved: Sequence[Moved], found: Mapping[Key, Value | None]
) -> list[JsonObject]:
    """Of Delta tables among them: the version each was expected at, and the one it has."""
    notes = noted(sealed.writes)
    values = {one.key: found.get(one.key) for one in moved if one.key in notes}
    return [
        version_conflict_json(Pointer.from_json(value), notes[key].base_version)
        for key, value in values.items()
        if value is not None
    ]


def _identified(key: Key, value: Value) -> JsonObject:
    """The table or view that a cell is about."""
    if family_of(key) == "names":
        _, _, path, name = segments_of(key)
        return {"identifier": {"namespace": levels_of(path), "name": name}}
    if family_of(key) in _POINTERS and "name" in value:
        return {"identifier": {"namespace": value["namespace"], "name": value["name"]}}
    return {}


def _shown(conflict: Mapping[str, Any]) -> str:
    identifier = conflict.get("identifier")
    return conflict["cell"] if identifier is None else ".".join((*identifier["namespace"], identifier["name"]))
