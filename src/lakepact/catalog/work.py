"""How every change of the catalog happens: look at cells, plan, write files, commit; look again if something moved.

A plan is a function of what it reads. It runs against a `Draft`, which remembers the revision of every cell it shows,
so a plan that turns out to be out of date is refused by the kernel and made again on the newer state: that is the
server-side retry. A refusal raised by a plan is final for the request, and is stored under its key if it has one.

The answer of a change is a small document stored with the transaction. The first caller and everybody who asks again
with the same key get it from there.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from lakepact.catalog.delta_attempts import PlannedRows
from lakepact.catalog.delta_steps import DeltaStep, beside_of, changes_of_rows
from lakepact.catalog.errors import BadRequest, CommitFailed, Refusal, refusal_of
from lakepact.catalog.files import MetadataFile, MetadataFiles, check_size, serialized
from lakepact.catalog.keys import CHANGEABLE, family_of
from lakepact.catalog.pointers import Pointer
from lakepact.catalog.watch import Watch
from lakepact.delta.ports import DeltaRows
from lakepact.errors import (
    Contended,
    FileNotLive,
    InvalidRequest,
    KeyReused,
    OutcomeUnknown,
    RowsGone,
    StoreUnavailable,
)
from lakepact.iceberg.errors import StaleUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit
from lakepact.kernel.identity import TransactionId, uuid4
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Busy,
    Cell,
    CommitResult,
    Committed,
    Conflict,
    Failed,
    Read,
    State,
    Transaction,
    TransactionRecord,
    Value,
    Write,
)
from lakepact.kernel.ports import CellStore, Clock, Rng, Tasks
from lakepact.limits import LARGE_INPUT_BYTES, LARGE_METADATA_BYTES
from lakepact.runtime import off_loop

P = ParamSpec("P")
T = TypeVar("T")

_ATTEMPTS: Final = 64
"""Plans made for one request before it is told to come back later. Each lost one is somebody else's success."""


_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Call:
    """One request: under which id, and who sent it."""

    transaction_id: TransactionId
    operation: str
    keyed: bool = False
    """Whether the id is the client's Idempotency-Key: then refusals are stored too, and a replay is looked for."""

    request_hash: str = ""
    source: JsonObject = field(default_factory=dict)
    """Who sent it, for the receipt."""

    warehouse: str = ""
    """Where it was sent to. A refusal has no cells that would tell."""

    guard: PlanGuard | None = None
    """Who sees to it that whoever asks may do this. None: nobody needs to."""

    judge: Judge | None = None
    """The same for what a transaction publishes."""

    input_bytes: int = 0
    """The size of the request's body: what grows with it is computed outside of the event loop."""

    give_up_s: float | None = None
    """The reading of the clock's `monotonic_s` after which nothing of this call is handed to the store any more, since
    the client does not wait for it. None: the client has not said how long it waits."""

    def deadline_s(self, limit_s: float) -> float:
        """Return the earlier of the two: this limit, and when the client gives up."""
        return limit_s if self.give_up_s is None else min(limit_s, self.give_up_s)

    @property
    def statement(self) -> str:
        """What tells it from all others inside of a transaction, also from another request under the same key."""
        if not self.keyed:
            return self.transaction_id
        return str(uuid.uuid5(uuid.UUID(self.transaction_id), self.request_hash))


def give_up_before(waits_until_s: float, now_s: float) -> float:
    """Return when to give up a call whose client waits until then: early enough for the refusal to arrive in time.

    That is a tenth of the time earlier, and at most a second.
    """
    return waits_until_s - min((waits_until_s - now_s) / 10, 1.0)


class PlanGuard(Protocol):
    """Looks at every attempt of a change, before it is planned and before it is committed. Raises to forbid it."""

    async def before(self, draft: Draft) -> None: ...

    async def after(self, draft: Draft) -> None: ...


class Judge(Protocol):
    """Looks at what a transaction is about to leave for everybody."""

    def check_table(self, pointer: Pointer, before: JsonObject | None, after: JsonObject) -> None:
        """A table's next version, and the one that it follows (None: it is new). Raises to forbid it."""
        ...

    def sees(self, pointer: Pointer) -> bool:
        """Whether a refusal may name it."""
        ...

    async def check_held(self, keys: Sequence[Key]) -> None:
        """These cells were only read, and are about to be held against everybody else. Raises to forbid it."""
        ...


@dataclass(frozen=True, slots=True)
class Done:
    """A change that has happened, now or when the same key was used before."""

    transaction_id: TransactionId
    result: JsonObject
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class NewFile:
    location: str
    document: JsonObject
    text: bytes = field(repr=False)
    digest: str


ReadsMany: TypeAlias = Callable[[Sequence[Key]], Awaitable[Mapping[Key, Cell]]]


def unique_name(transaction_id: TransactionId, table_id: str, attempt: str) -> str:
    """It follows from who made the file, so that it can be told who has."""
    return str(uuid.uuid5(uuid.UUID(transaction_id), f"{table_id}/{attempt}"))


class Draft:
    """What one attempt has read and means to write."""

    def __init__(self, cells: ReadsMany, transaction_id: TransactionId, attempt: str, now_ms: int, rng: Rng) -> None:
        """`attempt` tells this one from others under the same id."""
        self.transaction_id = transaction_id
        self.now_ms = now_ms
        self.files: list[NewFile] = []
        self.dropped_files: list[str] = []
        """Metadata files that tables let go of, and asked to have deleted."""

        self.commits: dict[Key, list[Commit]] = {}
        """What was asked of each table that exists, by its cell: an open transaction may have to do it again."""

        self.found_by_id: list[Pointer] = []
        """Tables that show that this was done before, under other names than it asks for. They may be anybody's."""

        self.delta: dict[str, DeltaStep] = {}
        """What happens to Delta tables, by their ids: rows that are written before the commit."""

        self.input_bytes = 0
        """The size of the request."""

        self.base_bytes = 0
        """The size of the largest metadata file that this attempt has read."""

        self.is_staged = False
        """Whether this is staged into an open transaction, whose publishing checks what must hold at the commit."""

        self.sees: Callable[[Pointer], bool] = lambda pointer: True
        """Whether a refusal may name this table to the requester. Authorization sets it."""

        self.seen: dict[Key, Cell] = {}
        self.writes: dict[Key, Value | None] = {}
        self._cells = cells
        self._attempt = attempt
        self._rng = rng
        # Ordered, so that the same requests always make the same storage calls.
        self._depends: dict[Key, None] = {}
        self._last_checks: list[Callable[[], Awaitable[None]]] = []

    def new_uuid(self) -> str:
        """The id of a new table or view."""
        return uuid4(self._rng.bits(128))

    async def read(self, *keys: Key) -> list[Cell]:
        """These cells, each as this attempt saw it first."""
        missing = [key for key in keys if key not in self.seen]
        if missing:
            self.seen.update(await self._cells(missing))
        return [self.seen[key] for key in keys]

    async def read_and_glance(self, keys: Sequence[Key], at: Sequence[Key]) -> tuple[list[Cell], list[Cell]]:
        """These cells, and others in the same look: whatever becomes of the others, the plan stands."""
        noted = [key for key in at if key in self.seen]
        cells = await self.read(*keys, *at)
        for key in at:
            if key not in noted:
                self.seen.pop(key, None)
        return cells[: len(keys)], cells[len(keys) :]

    async def read_again(self, *keys: Key) -> list[Cell]:
        """These cells as they are now."""
        for key in keys:
            self.seen.pop(key, None)
        return await self.read(*keys)

    def write(self, key: Key, value: Value | None) -> None:
        """Replace a cell that was read."""
        self.writes[key] = value

    async def current(self, key: Key) -> Value | None:
        """What the cell holds once this draft is committed."""
        if key in self.writes:
            return self.writes[key]
        [cell] = await self.read(key)
        return cell.value

    def depend_on(self, key: Key) -> None:
        """The plan is right only while this cell, which was read, stays as it is."""
        self._depends[key] = None

    def check_last(self, check: Callable[[], Awaitable[None]]) -> None:
        """Something whose refusal would tell of what others have: it is for those who may do all the rest."""
        self._last_checks.append(check)

    async def run_last_checks(self) -> None:
        for check in self._last_checks:
            await check()

    def starts_from(self, file: MetadataFile) -> JsonObject:
        """Note the size of a metadata file that this attempt works on. Returns its document."""
        self.base_bytes = max(self.base_bytes, len(file.text))
        return file.document

    async def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a computation on what a client sent: in a worker thread if the request or its metadata is large."""
        if self.input_bytes <= LARGE_INPUT_BYTES and self.base_bytes <= LARGE_METADATA_BYTES:
            return function(*args, **kwargs)
        return await off_loop(function, *args, **kwargs)

    async def put(self, location: str, document: JsonObject, most_bytes: int) -> str:
        """Add a metadata file of at most `most_bytes`, to be written. Returns the digest of its text."""
        return (await self.put_named(document, lambda digest: location, most_bytes))[1]

    async def put_named(self, document: JsonObject, place: Callable[[str], str], most_bytes: int) -> tuple[str, str]:
        """The same for a file whose location follows from its digest. Returns both."""
        text, digest = await self.compute(serialized, document)
        check_size(len(text), most_bytes)
        location = place(digest)
        self.files.append(NewFile(location, document, text, digest))
        return location, digest

    def unique_name(self, table_id: str) -> str:
        """What tells this attempt's metadata file of this table from every other one."""
        return unique_name(self.transaction_id, table_id, self._attempt)

    @property
    def changes_nothing(self) -> bool:
        return not self.writes

    @property
    def changes(self) -> int:
        """How many tables, views and namespaces it changes."""
        return sum(family_of(key) in CHANGEABLE for key in self.writes)

    @property
    def planned_writes(self) -> tuple[Write, ...]:
        return tuple(Write(key, self.seen[key].revision, value) for key, value in self.writes.items())

    def transaction(self, call: Call, answer: Value, beside: Value | None) -> Transaction:
        return Transaction(
            call.transaction_id,
            call.request_hash,
            writes=self.planned_writes,
            reads=tuple(Read(key, self.seen[key].revision) for key in self._depends if key not in self.writes),
            answer=answer,
            beside=beside,
        )


Plan: TypeAlias = Callable[[Draft], Awaitable[JsonObject]]
"""Reads, decides, writes into the draft, and returns the result to store. Raises a `Refusal` if it must not be."""


class Worker:
    def __init__(
        self,
        store: CellStore,
        files: MetadataFiles,
        rows: DeltaRows | None,
        clock: Clock,
        rng: Rng,
        tasks: Tasks,
        *,
        warehouse: str,
        deadline_s: float,
        held_wait_s: float,
        on_committed: Callable[[Transaction, Draft], Coroutine[Any, Any, None]],
        watch: Watch,
    ) -> None:
        self._held_wait_s = held_wait_s
        self.store = store
        self._files = files
        self._rows = rows
        self._warehouse = warehouse
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._deadline_s = deadline_s
        self._on_committed = on_committed
        self._watch = watch

    async def read(self, keys: Sequence[Key]) -> Mapping[Key, Cell]:
        return await self.store.read(keys)

    async def perform(self, call: Call, plan: Plan) -> Done:
        """Make the change happen once, or say why not.

        Raises a `Refusal` or `InvalidRequest` (nothing happened, and never will under this key), `Contended` or
        `StoreUnavailable` (nothing happened yet), or `OutcomeUnknown`.
        """
        deadline = call.deadline_s(self._clock.monotonic_s() + self._deadline_s)
        if call.keyed and (done := await self._earlier(call, deadline)) is not None:
            return done
        rows = PlannedRows(self._rows, call.transaction_id, call.request_hash, discards=True)
        for attempt in range(_ATTEMPTS):
            if self._clock.monotonic_s() > deadline:
                raise out_of_time(call)
            draft = Draft(self.store.read, call.transaction_id, str(attempt), self._clock.now_ms(), self._rng)
            try:
                result = await planned(call, plan, draft)
            except (Refusal, InvalidRequest, StaleUpdate) as error:
                if attempt + 1 < _ATTEMPTS and await is_torn(self.store, draft):
                    continue
                return await self._refuse(call, as_refusal(error))
            if draft.changes_nothing and not call.keyed:
                return Done(call.transaction_id, result)
            if not await write_files(self._files, self._tasks, draft):
                continue
            try:
                # Nobody sees them before the commit.
                await rows.place(changes_of_rows(draft.planned_writes, draft.delta))
            except FileNotLive as error:
                if await self._has_moved(draft):
                    continue
                return await self._refuse(call, as_refusal(error))
            done = await self._commit(call, draft, result, deadline, rows)
            if done is not None:
                return done
            self._watch.retried(call.operation, call.transaction_id)
            await self._clock.sleep(self._pause(attempt))
        raise Contended(
            f"{call.operation}: other commits changed the same tables during each of {_ATTEMPTS} attempts. Nothing was "
            f"applied; send the request again"
        )

    async def _has_moved(self, draft: Draft) -> bool:
        """Whether a table has moved since this plan looked at it: then the plan is made again, and judged again."""
        now = await self.store.read(draft.writes)
        return any(cell.revision != draft.seen[key].revision for key, cell in now.items())

    async def _earlier(self, call: Call, deadline: float) -> Done | None:
        """What became of this key when it was used before; None if it is free, or may try again."""
        attempt = 0
        while True:
            record = await self.store.lookup(call.transaction_id)
            if record is None:
                return None
            check_same_request(record, call)
            match record.state:
                case State.COMMITTED | State.FAILED:
                    return replay(record)
                case State.PREPARING if record.lease_ms is not None and self._clock.now_ms() < record.lease_ms:
                    if self._clock.monotonic_s() > deadline:
                        raise in_flight(call)
                    await self._clock.sleep(self._pause(attempt))
                    attempt += 1
                case State.ABORTED:
                    raise KeyReused(
                        f"transaction {record.id} was given up; send the request with a new Idempotency-Key"
                    )
                case _:
                    # Free again, or whoever was at it has gone: the kernel takes over from there.
                    return None

    async def _refuse(self, call: Call, refusal: Refusal) -> Done:
        self._watch.refused()
        if not call.keyed:
            raise refusal
        answer = {
            "operation": call.operation,
            "warehouse": call.warehouse,
            "error": refusal.to_json(),
            "source": call.source,
        }
        settled = await self.store.fail(call.transaction_id, call.request_hash, answer)
        if isinstance(settled, Committed):
            # Another attempt under this key got through, and what it did is why this one was refused.
            return Done(settled.id, settled.answer["result"], replayed=True)
        raise refusal_of(settled.answer["error"])

    async def _commit(
        self, call: Call, draft: Draft, result: JsonObject, deadline: float, rows: PlannedRows
    ) -> Done | None:
        """None if something has moved since it was read: plan again."""
        # Where it was asked for is said even when nothing else of it is left.
        answer = {
            "operation": call.operation,
            "warehouse": self._warehouse,
            "result": result,
            "source": call.source,
        }
        if self._clock.monotonic_s() > deadline:
            raise out_of_time(call)
        beside = beside_of(self._warehouse, call.transaction_id, draft.planned_writes, draft.delta)
        transaction = draft.transaction(call, answer, beside)
        try:
            outcome: CommitResult = await unless_held(
                lambda: self.store.commit(transaction, settle_conflict=False),
                self._clock,
                self._rng,
                min(self._held_wait_s, deadline - self._clock.monotonic_s()),
            )
        except RowsGone:
            # Another attempt under this key has planned anew, or another request has used the same key.
            rows.lost()
            return None
        except OutcomeUnknown:
            if (done := await self._settled(call)) is not None:
                return done
            self._watch.unknown()
            raise
        match outcome:
            case Committed():
                if not outcome.replayed:
                    self._watch.applied(draft.changes)
                    self._tasks.background(self._on_committed(transaction, draft))
                return Done(outcome.id, outcome.answer["result"], outcome.replayed)
            case Failed():
                raise refusal_of(outcome.answer["error"])
            case Conflict():
                return None
            case Busy():
                raise Contended(
                    f"{call.operation}: transaction {outcome.owner or 'of somebody else'} holds one of the tables. "
                    f"Nothing was applied; send the request again",
                    owner=outcome.owner,
                    retry_after_s=outcome.retry_after_s,
                )

    async def _settled(self, call: Call) -> Done | None:
        """What the record says of a commit whose answer said nothing. None: the record does not say either."""
        try:
            record = await self.store.lookup(call.transaction_id)
        except (Contended, StoreUnavailable):
            # "Not available" would be taken for "did not happen".
            return None
        if record is None:
            return None
        if record.state in (State.COMMITTED, State.FAILED):
            return replay(record)
        if record.state is State.PREPARING and call.keyed:
            raise in_flight(call)
        return None

    def _pause(self, attempt: int) -> float:
        return float(min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S) * (0.5 + self._rng.uniform() / 2))


async def is_torn(store: CellStore, draft: Draft) -> bool:
    """Return whether the cells that a plan was refused on are not of one instant: one has moved since it was read.

    A plan reads cells one after another. If another request commits in between, the plan may see half of that: a name
    that is free, and its location taken. A refusal for such a reason would be wrong, and final. A single cell cannot be
    torn.
    """
    if len(draft.seen) < 2:
        return False
    now = await store.read(list(draft.seen))
    return any(now[key].revision != cell.revision for key, cell in draft.seen.items())


async def unless_held(attempt: Callable[[], Awaitable[T | Busy]], clock: Clock, rng: Rng, wait_s: float) -> T | Busy:
    """Attempt a commit or a prepare until nothing that it needs is held by another transaction, for up to `wait_s`.

    Stores answer `Busy` at once; waiting is done here, so that it is the same on all of them. Whoever holds a table by
    a prepared transaction is usually about to commit it.
    """
    until_s = clock.monotonic_s() + wait_s
    pause_s = _FIRST_PAUSE_S
    while True:
        outcome = await attempt()
        if not isinstance(outcome, Busy) or clock.monotonic_s() + pause_s > until_s:
            return outcome
        await clock.sleep(pause_s * (0.5 + rng.uniform() / 2))
        if clock.monotonic_s() > until_s:
            # A busy machine sleeps longer. What is attempted now may take effect after the client has given up.
            return outcome
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


async def planned(call: Call, plan: Plan, draft: Draft) -> JsonObject:
    """What the plan comes to, if whoever asks may do it. Each attempt is looked at: a name may stand for another table
    by then."""
    draft.input_bytes = call.input_bytes
    if call.guard is not None:
        await call.guard.before(draft)
    result = await plan(draft)
    if call.guard is not None:
        await call.guard.after(draft)
    await draft.run_last_checks()
    return result


async def write_files(files: MetadataFiles, tasks: Tasks, draft: Draft) -> bool:
    """Side by side. False: an earlier attempt under the same id has left another file under the same name."""
    if not draft.files:
        return True
    return all(await tasks.all([files.write(one.location, one.text, one.document, one.digest) for one in draft.files]))


def as_refusal(error: Refusal | InvalidRequest | StaleUpdate) -> Refusal:
    """The answer to a request that cannot be carried out, in Iceberg's words."""
    match error:
        case Refusal():
            return error
        case StaleUpdate():
            # Computed on an older table: clients refresh and try again on this one.
            return CommitFailed(f"Requirement failed: {error}")
        case InvalidRequest():
            return BadRequest(str(error))


def check_same_request(record: TransactionRecord, call: Call) -> None:
    if record.request_hash != call.request_hash:
        raise key_reused(record.id)


def key_reused(key: TransactionId) -> KeyReused:
    return KeyReused(
        f"Idempotency-Key {key} was used for a different request. Use a new key for each request, and the same key "
        f"only to send the same request again"
    )


def replay(record: TransactionRecord) -> Done:
    """The stored answer of a transaction that has ended."""
    answer: Mapping[str, Any] = record.answer or {}
    if record.state is State.FAILED:
        raise refusal_of(answer["error"])
    return Done(record.id, answer["result"], replayed=True)


def out_of_time(call: Call) -> Contended:
    return Contended(
        f"{call.operation}: the time for this request ended before the commit. Nothing was applied; send it again, "
        f"with more time if the client limits it"
    )


def in_flight(call: Call) -> Contended:
    return Contended(
        f"another request with Idempotency-Key {call.transaction_id} is still at work; send the same request again to "
        f"get its answer",
        owner=call.transaction_id,
    )
