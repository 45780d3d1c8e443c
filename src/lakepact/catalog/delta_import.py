"""Import of a Delta table that lies in the warehouse: its log becomes rows, with the same versions at the same place.

The log is read to its end before anything is written, so what cannot be carried is refused with nothing changed. A log
of moderate size is one transaction. A longer one takes several, each of which shows a consistent prefix of its
versions; whoever runs the import again goes on where the last one ended, whatever ended it. The same way a read-only
import follows a log that has grown since.

Without a take-over the table keeps the protocol of its log and is read-only here. The take-over is one more version,
made after the rows have been compared with the log; foreign writers are refused once the mirror has written it.

A recovery is a take-over of a table that another Lakepact catalog managed, and whose log is that catalog's mirror. It
is right only if that catalog is lost: whoever asks for it says so. Until its last version is there the pointer carries
`RECOVERING`, since the protocol of the log would else make half of a table look like one of ours.

Under an Idempotency-Key the last transaction of an import has that id, and holds the answer. So the same request again
is told what the first one did, whatever has become of the table since; only the comparison with the log is made anew.

A long module, for import, take-over and recovery are one walk through a log, with different ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from lakepact.catalog.announced import owner_of
from lakepact.catalog.cells import MainCells
from lakepact.catalog.delta_logs import Log, open_log
from lakepact.catalog.delta_steps import needed, version_of
from lakepact.catalog.delta_tables import RECOVERING, SHAPE
from lakepact.catalog.delta_verify import Parity, verify
from lakepact.catalog.errors import BadRequest, CommitFailed, Refusal, refusal_of
from lakepact.catalog.names import Names
from lakepact.catalog.namespaces import Namespaces
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlaps import Folders
from lakepact.catalog.pointers import Change, Kind, Pointer, identifier_json, shown
from lakepact.catalog.tables import Tables, already_exists
from lakepact.catalog.work import Call, Done, Draft, as_refusal, check_same_request, is_torn, replay, unless_held
from lakepact.delta.actions import Action, Add, JsonObject, Remove
from lakepact.delta.beside import DeltaChanges, NewTable, NewVersion
from lakepact.delta.codec import sorted_actions
from lakepact.delta.errors import BadLog, DeltaError, UnsupportedFeature
from lakepact.delta.log_reader import Base, Version
from lakepact.delta.ports import DeltaRows, TableChange
from lakepact.delta.protocol import is_managed, take_over, take_over_problems
from lakepact.delta.state import Replay
from lakepact.delta.stats import num_records
from lakepact.errors import Contended, InvalidRequest, KeyReused, RowsGone
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import uuid4
from lakepact.kernel.model import Busy, Committed, Failed, State, Transaction

_ATTEMPTS: Final = 10
_LOG_ENGINE: Final = "delta_log"
"""The mirror that writes the log: without it a take-over would keep nobody out."""


OF_A_CHECKPOINT: Final = "checkpoint"
"""Instead of the digest of a commit file, for a first version whose file is gone: it came from a log all the same."""


_Answers: TypeAlias = Callable[[Pointer], JsonObject]
"""What is said of an import once the table is what this pointer says."""


@dataclass(frozen=True, slots=True)
class ImportDelta:
    """What is asked for."""

    identifier: Identifier
    location: str
    take_over: bool = False
    dry_run: bool = False
    recover: bool = False
    """The Lakepact catalog that managed it is lost, and this one manages it from here on."""

    @property
    def becomes_ours(self) -> bool:
        return self.take_over or self.recover


@dataclass(frozen=True, slots=True)
class _Planned:
    """One version as it will be in the rows."""

    number: int
    ict_ms: int
    actions: tuple[Action, ...]
    operation: str
    parameters: JsonObject = field(default_factory=dict)
    more: JsonObject = field(default_factory=dict)
    digest: str = ""
    tombstones: bool = False
    """Whether it removes files that are not there: a checkpoint does, and some writers do."""


@dataclass(slots=True)
class _Survey:
    """What the log says, and what that means."""

    replay: Replay = field(default_factory=Replay)
    first: int | None = None
    """The oldest version to import; None if there is nothing to do."""

    versions: int = 0
    ict_ms: int = -1
    dropped: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    take_over_problems: list[str] = field(default_factory=list)
    held: list[_Planned] | None = field(default_factory=list)
    """All of it, if it is little enough for one transaction."""

    def to_json(self) -> dict[str, Any]:
        files = self.replay.files.values()
        counts = [num_records(one.stats) for one in files]
        known = [count for count in counts if count is not None]
        return {
            "first-version": self.first,
            "versions": self.versions,
            "files": len(counts),
            "size-bytes": sum(one.size for one in files),
            "rows": sum(known) if len(known) == len(counts) else None,
            "dropped": sorted(self.dropped),
            "problems": self.problems,
            "take-over-problems": self.take_over_problems,
        }


class DeltaImport:
    """Imports into one warehouse, and comparisons with the logs there."""

    def __init__(self, parts: Parts, *, most_actions: int = 100_000, most_versions: int = 1_000) -> None:
        """`most_actions`, `most_versions`: what one transaction carries."""
        self._parts = parts
        self._cells = MainCells(parts.store)
        self._names = Names(parts.keys)
        self._namespaces = Namespaces(parts.keys, parts.warehouse, self._cells)
        self._tables = Tables(parts.keys, parts.warehouse, self._names, self._namespaces, parts.files, Folders(parts))
        self._most_actions = most_actions
        self._most_versions = most_versions

    # --- comparing ---

    async def verify(self, pointer: Pointer) -> dict[str, Any]:
        """The rows of a table against its log."""
        needed(self._parts.rows)
        parity = await self._compare(pointer)
        return {
            "identifier": identifier_json(pointer.identifier),
            "table-id": pointer.id,
            "location": pointer.location,
            **parity.to_json(),
        }

    async def _compare(self, pointer: Pointer) -> Parity:
        log = await self._open(self._parts.warehouse.blob_name(pointer.location))
        return await verify(needed(self._parts.rows), log, pointer.id, version_of(pointer))

    # --- importing ---

    async def run(self, call: Call, request: ImportDelta) -> Done:
        """Import, or go on importing. Raises a `Refusal` or a `DeltaError` with nothing changed by this run."""
        if request.dry_run or not call.keyed:
            return await self._run(call, request)
        if (earlier := await self._earlier(call, request)) is not None:
            return earlier
        try:
            return await self._run(call, request)
        except (BadRequest, InvalidRequest) as error:
            # Any other refusal has to do with what others have done: the same request may find it otherwise.
            return await self._refuse(call, request, as_refusal(error))

    async def _run(self, call: Call, request: ImportDelta) -> Done:
        rows = needed(self._parts.rows)
        self._parts.warehouse.check_location(request.location)
        folder = self._parts.warehouse.blob_name(request.location)
        location = f"{self._parts.warehouse.root}/{folder}"
        there = await self._there(rows, request, folder)
        if there is not None and await _is_ours(rows, there):
            # Taken over before, perhaps by this very request whose answer was lost.
            return await self._end(call, request, there, self._said(request, location, _Survey(), managed=True))
        log = await self._open(folder)
        survey = await self._survey(rows, log, there, request)
        says = self._said(request, location, survey, managed=False)
        if request.dry_run:
            return Done(call.transaction_id, {**self._answer(request, location, survey, there, False), "parity": None})
        pointer, done = there, None
        async for batch, is_last in _with_last(self._batches(log, survey, pointer)):
            ends = is_last and not request.becomes_ours
            pointer, done = await self._write(
                rows,
                call if ends else self._part_of(call),
                request.identifier,
                location,
                batch,
                pointer,
                says,
                recovering=request.recover,
            )
        if pointer is None:
            raise BadLog(f"{location} has no version to import")
        if request.becomes_ours and not (await self._compare(pointer)).count:
            says = self._said(request, location, survey, managed=True)
            pointer, done = await self._take_over(rows, call, request, location, survey, pointer, says)
        elif done is None or request.becomes_ours:
            return await self._end(call, request, pointer, says)
        return await self._compared(done, request)

    def _part_of(self, call: Call) -> Call:
        """One of several transactions of an import, which must not be taken for its end."""
        return Call(self._parts.new_id(), call.operation, source=call.source)

    async def _there(self, rows: DeltaRows, request: ImportDelta, folder: str) -> Pointer | None:
        """What an earlier run has made of it; None if it has not begun. Refuses what is somebody else's."""
        await self._names.namespace(self._cells, request.identifier.namespace)
        pointer = await self._names.find(self._cells, request.identifier)
        if pointer is None:
            [owner] = await self._cells.read(self._parts.keys.location(folder))
            if owner_of(owner.value) is None:
                return None
            # Perhaps another import of it was faster between these two looks.
            pointer = await self._names.find(self._cells, request.identifier)
        if pointer is None:
            raise BadRequest(f"location {request.location} belongs to another table of this catalog")
        if pointer.kind is not Kind.DELTA or self._parts.warehouse.blob_name(pointer.location) != folder:
            raise already_exists(pointer)
        if await _is_ours(rows, pointer) and not request.becomes_ours:
            raise already_exists(pointer)
        return pointer

    async def _survey(self, rows: DeltaRows, log: Log, there: Pointer | None, request: ImportDelta) -> _Survey:
        """All of the log, read once. Problems are raised, or told by a dry run."""
        survey = _Survey()
        size = 0
        try:
            async for one in self._planned(log, survey, there):
                sorted_actions(one.actions)
                survey.first = one.number if survey.first is None else survey.first
                survey.versions += 1
                size += len(one.actions)
                if size > self._most_actions or survey.versions > self._most_versions:
                    survey.held = None
                elif survey.held is not None:
                    survey.held.append(one)
            if there is not None:
                await self._check_prefix(rows, log, there)
        except UnsupportedFeature as error:
            survey.problems += error.problems
        except DeltaError as error:
            survey.problems.append(str(error))
        protocol, metadata = survey.replay.protocol, survey.replay.metadata
        if protocol is not None and metadata is not None:
            survey.take_over_problems += take_over_problems(protocol, metadata, recover=True)
            survey.problems += _not_to_manage(is_managed(protocol), request)
        found = [*survey.problems, *(survey.take_over_problems if request.becomes_ours else ())]
        if found and not request.dry_run:
            raise UnsupportedFeature(
                [f"{request.location} cannot be imported, nothing was written: {found[0]}", *found[1:]]
            )
        return survey

    async def _check_prefix(self, rows: DeltaRows, log: Log, there: Pointer) -> None:
        """What is there already was read from this very log."""
        version = version_of(there)
        if log.newest < version:
            raise BadLog(f"the table is at version {version} and the log only at {log.newest}: it was made anew")
        file, [row] = log.listing.commits.get(version), await rows.versions(there.id, version + 1, 1)
        if file is not None and row.digest and await log.digest(file.name) != row.digest:
            raise BadLog(f"{file.name} is not the file that was imported as version {version}: the log was made anew")

    async def _planned(self, log: Log, survey: _Survey, there: Pointer | None) -> AsyncIterator[_Planned]:
        """The versions that are still to be imported. The survey's replay goes along."""
        after = None if there is None else version_of(there)
        survey.replay, survey.ict_ms = Replay(), -1 if there is None else there.summary["ict-ms"]
        async for step in log.steps(None if after is None else min(after, log.newest)):
            survey.dropped.update(dict.fromkeys(step.dropped))
            if isinstance(step, Base):
                survey.replay = Replay(step.state)
                if after is None:
                    survey.ict_ms = step.timestamp_ms
                    actions = tuple(step.state.actions())
                    commit = log.listing.commits.get(step.state.version)
                    digest = OF_A_CHECKPOINT if commit is None else await log.digest(commit.name)
                    yield _Planned(step.state.version, step.timestamp_ms, actions, "IMPORT", {}, {}, digest, True)
                continue
            live = survey.replay.files
            loose = any(isinstance(one, Remove) and one.key not in live for one in step.actions)
            survey.replay.apply(step.number, step.actions)
            if after is None or step.number > after:
                survey.ict_ms = max(step.timestamp_ms, survey.ict_ms + 1)
                yield _of_version(step, survey.ict_ms, tombstones=loose)

    async def _batches(self, log: Log, survey: _Survey, there: Pointer | None) -> AsyncIterator[list[_Planned]]:
        if survey.held is not None:
            if survey.held:
                yield survey.held
            return
        batch: list[_Planned] = []
        size = 0
        async for one in self._planned(log, survey, there):
            if batch and (size + len(one.actions) > self._most_actions or len(batch) >= self._most_versions):
                yield batch
                batch, size = [], 0
            batch.append(one)
            size += len(one.actions)
        if batch:
            yield batch

    async def _take_over(
        self,
        rows: DeltaRows,
        call: Call,
        request: ImportDelta,
        location: str,
        survey: _Survey,
        pointer: Pointer,
        says: _Answers,
    ) -> tuple[Pointer, Done]:
        identifier = request.identifier
        log = await self._open(self._parts.warehouse.blob_name(location))
        if log.newest != version_of(pointer):
            raise CommitFailed(
                f"{location} has got version {log.newest} meanwhile. {shown(identifier)} is imported up to "
                f"{version_of(pointer)}, and not taken over; stop its writers and import it again"
            )
        state, version = survey.replay.state(), version_of(pointer) + 1
        ict_ms = max(self._parts.clock.now_ms(), pointer.summary["ict-ms"] + 1)
        actions = take_over(
            state.protocol, state.metadata, version=version, timestamp_ms=ict_ms, recover=request.recover
        )
        operation = "RECOVER" if request.recover else "TAKE OVER"
        planned = _Planned(version, ict_ms, actions, operation, more={"engineInfo": "Lakepact"})
        return await self._write(rows, call, identifier, location, [planned], pointer, says, (_LOG_ENGINE,))

    # --- writing ---

    async def _write(
        self,
        rows: DeltaRows,
        call: Call,
        identifier: Identifier,
        location: str,
        batch: Sequence[_Planned],
        there: Pointer | None,
        says: _Answers,
        engines: tuple[str, ...] = (),
        *,
        recovering: bool = False,
    ) -> tuple[Pointer, Done]:
        """One transaction, under the id of this call: these versions, and the table itself if it is not there."""
        table_id = uuid4(self._parts.rng.bits(128)) if there is None else there.id
        summary = {
            "uuid": table_id,
            "location": location,
            "version": batch[-1].number,
            "ict-ms": batch[-1].ict_ms,
            SHAPE: None,
            **({RECOVERING: True} if recovering else {}),
        }
        changes = [TableChange(table_id, one.number, one.actions) for one in batch]
        tombstones = any(one.tombstones for one in batch)
        for attempt in range(_ATTEMPTS):
            draft = Draft(
                self._parts.store.read, call.transaction_id, str(attempt), self._parts.clock.now_ms(), self._parts.rng
            )
            try:
                pointer = await self._planned_pointer(draft, identifier, there, summary)
            except Refusal:
                if attempt + 1 < _ATTEMPTS and await is_torn(self._parts.store, draft):
                    # Another import was faster between two of the looks: the next attempt sees all of it.
                    continue
                raise
            await rows.put(call.transaction_id, changes, request_hash=call.request_hash, tombstones=tombstones)
            transaction = draft.transaction(
                call,
                {"operation": call.operation, "result": says(pointer), "source": call.source},
                self._beside(pointer, batch, new=there is None, engines=engines),
            )
            done = await self._commit(transaction)
            if done is not None:
                if not done.replayed:
                    self._parts.watch.applied(draft.changes)
                    self._parts.tasks.background(self._parts.watch.committed(transaction))
                return pointer, done
            self._parts.watch.retried(call.operation, call.transaction_id)
        await rows.discard(call.transaction_id)
        raise Contended(f"others kept changing {shown(identifier)}; import it again to go on")

    async def _planned_pointer(
        self, draft: Draft, identifier: Identifier, there: Pointer | None, summary: JsonObject
    ) -> Pointer:
        if there is not None:
            return await self._next(draft, identifier, there, summary)
        await self._namespaces.enter(draft, identifier.namespace)
        await self._tables.refuse_taken(draft, identifier)
        pointer = Pointer.to_delta(identifier, dict(summary), Change.CREATE)
        await self._tables.claim(draft, pointer)
        await draft.run_last_checks()
        return pointer

    async def _next(self, draft: Draft, identifier: Identifier, there: Pointer, summary: JsonObject) -> Pointer:
        now = await self._names.find_kind(draft, identifier, Kind.DELTA)
        if now is None or now.id != there.id or version_of(now) != version_of(there):
            raise CommitFailed(
                f"{shown(identifier)} has changed while it was imported, perhaps by another import. What was imported "
                f"is consistent; import it again to go on"
            )
        key = self._names.pointer_key(now)
        await draft.read(key)
        kept = {name: value for name, value in now.summary.items() if name != RECOVERING}
        pointer = Pointer.to_delta(identifier, {**kept, **summary}, Change.COMMIT, now.metadata_location)
        draft.write(key, pointer.to_json())
        return pointer

    def _beside(
        self, pointer: Pointer, batch: Sequence[_Planned], *, new: bool, engines: tuple[str, ...]
    ) -> dict[str, Any]:
        namespace, name = ".".join(pointer.identifier.namespace), pointer.identifier.name
        follow = (*self._parts.settings.mirrors, *engines) if new else engines
        return DeltaChanges(
            self._parts.warehouse.name,
            create=(NewTable(pointer.id, namespace, name, pointer.location, batch[0].number - 1),) if new else (),
            versions=tuple(_new_version(pointer.id, one) for one in batch),
            mirrors={pointer.id: follow} if follow else {},
        ).document()

    async def _commit(self, transaction: Transaction) -> Done | None:
        """None if something has moved: plan again."""
        try:
            outcome = await unless_held(
                lambda: self._parts.store.commit(transaction, settle_conflict=False),
                self._parts.clock,
                self._parts.rng,
                self._parts.settings.held_wait_s,
            )
        except RowsGone:
            return None
        match outcome:
            case Committed():
                return Done(outcome.id, dict(outcome.answer["result"]), outcome.replayed)
            case Failed():
                raise refusal_of(outcome.answer["error"])
            case Busy():
                raise Contended("another transaction holds the table; import it again to go on", owner=outcome.owner)
        return None

    # --- the same request again ---

    async def _earlier(self, call: Call, request: ImportDelta) -> Done | None:
        record = await self._parts.store.lookup(call.transaction_id)
        if record is None:
            return None
        check_same_request(record, call)
        if record.state is State.ABORTED:
            raise KeyReused(f"transaction {record.id} was given up; send the request with a new Idempotency-Key")
        return await self._compared(replay(record), request) if record.state.final else None

    async def _end(self, call: Call, request: ImportDelta, pointer: Pointer, says: _Answers) -> Done:
        """There is nothing to write (any more): under a key the answer is kept all the same."""
        done = Done(call.transaction_id, dict(says(pointer)))
        if call.keyed:
            answer = {
                "operation": call.operation,
                "warehouse": call.warehouse,
                "result": done.result,
                "source": call.source,
            }
            done = await self._commit(Transaction(call.transaction_id, call.request_hash, answer=answer)) or done
        return await self._compared(done, request)

    async def _refuse(self, call: Call, request: ImportDelta, refusal: Refusal) -> Done:
        answer = {"operation": call.operation, "warehouse": call.warehouse, "error": refusal.to_json()}
        settled = await self._parts.store.fail(call.transaction_id, call.request_hash, answer)
        if isinstance(settled, Committed):
            return await self._compared(Done(settled.id, settled.answer["result"], replayed=True), request)
        raise refusal_of(settled.answer["error"])

    async def _compared(self, done: Done, request: ImportDelta) -> Done:
        """What was done, and what the log says now. The table may have gone since."""
        pointer = await self._names.find_kind(self._cells, request.identifier, Kind.DELTA)
        is_there = pointer is not None and pointer.id == done.result["table-id"]
        parity = (await self._compare(pointer)).to_json() if pointer is not None and is_there else None
        return replace(done, result={**done.result, "parity": parity})

    # --- answering ---

    async def _open(self, folder: str) -> Log:
        return await open_log(self._parts.blobs, self._parts.tasks, folder)

    def _said(self, request: ImportDelta, location: str, survey: _Survey, *, managed: bool) -> _Answers:
        return lambda pointer: self._answer(request, location, survey, pointer, managed)

    def _answer(
        self, request: ImportDelta, location: str, survey: _Survey, pointer: Pointer | None, managed: bool
    ) -> JsonObject:
        return {
            "identifier": identifier_json(request.identifier),
            "table-id": None if pointer is None else pointer.id,
            "location": location,
            "dry-run": request.dry_run,
            "version": survey.replay.version if pointer is None or request.dry_run else version_of(pointer),
            "timestamp-ms": None if pointer is None else pointer.summary["ict-ms"],
            "read-only": not managed,
            **survey.to_json(),
        }


async def _with_last(batches: AsyncIterator[list[_Planned]]) -> AsyncIterator[tuple[list[_Planned], bool]]:
    """Each of them, and whether it is the last."""
    held: list[_Planned] | None = None
    async for batch in batches:
        if held is not None:
            yield held, False
        held = batch
    if held is not None:
        yield held, True


def _not_to_manage(managed: bool, request: ImportDelta) -> Iterator[str]:
    """Two catalogs must not manage one table; and a table of none has not lost one."""
    if managed and not request.recover:
        yield (
            "a Lakepact catalog manages this table and this log is its mirror; a second catalog must not. If that "
            "catalog is lost, and only then, recover the table: --recover, or 'recover' in the request"
        )
    if request.recover and not managed:
        yield (
            "no Lakepact catalog has managed this table, so there is nothing to recover it from: import it without "
            "--recover, and take it over if nobody else writes it any more"
        )


async def _is_ours(rows: DeltaRows, pointer: Pointer) -> bool:
    if RECOVERING in pointer.summary:
        return False
    protocol = (await rows.contents(pointer.id, version_of(pointer))).protocol
    return protocol is not None and is_managed(protocol)


def _of_version(step: Version, ict_ms: int, *, tombstones: bool) -> _Planned:
    info = step.info
    if info is None:
        return _Planned(step.number, ict_ms, step.actions, "UNKNOWN", digest=step.digest, tombstones=tombstones)
    return _Planned(
        step.number,
        ict_ms,
        step.actions,
        info.operation,
        info.operation_parameters,
        info.more,
        step.digest,
        tombstones,
    )


def _new_version(table_id: str, one: _Planned) -> NewVersion:
    return NewVersion(
        table_id,
        one.number,
        one.ict_ms,
        one.operation,
        adds=sum(isinstance(action, Add) for action in one.actions),
        removes=sum(isinstance(action, Remove) for action in one.actions),
        operation_params=one.parameters,
        commit_info=one.more,
        digest=one.digest,
        tombstones=one.tombstones,
    )
