"""One commit on a store that can only swap one document at a time, in rounds.

    1. read the cells            side by side with 2; a remembered cell needs no reading
    2. create the record         the whole plan is in it
    3. lock every cell           compare-and-swap, all side by side
    4. validate                  read again what was only read; empty if nothing was
    5. swap the record           preparing -> committed: the one instant at which everything becomes visible
    6. finish                    in the background, after the answer: values into cells, locks cleared

A commit of a hundred cells takes as many rounds as a commit of one. A `Coordinator` is one attempt by one process to
drive one transaction through them; its nonce is the record's owner while it does. It may be stalled, fenced, taken
over or killed at any line: what it knows is only ever a reason to try a swap, and the record decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from lakepact.errors import (
    OutcomeUnknown,
    StoreUnavailable,
    TransactionClosed,
    TransactionNotFound,
    WrongState,
)
from lakepact.kernel import decide
from lakepact.kernel.access import Access, CellVersion, DeadlinePassed, RecordVersion
from lakepact.kernel.decide import Claim, Standing
from lakepact.kernel.documents import Lock, RecordDocument
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Busy,
    Committed,
    Conflict,
    Failed,
    Moved,
    Prepared,
    PrepareResult,
    State,
    Transaction,
)
from lakepact.kernel.resolve import Resolver, blocker


@dataclass(frozen=True, slots=True)
class Held:
    """The lock is on the cell, at our epoch, at the planned revision."""

    version: CellVersion


@dataclass(frozen=True, slots=True)
class Blocked:
    """Another undecided transaction is in the way, on this cell."""

    key: Key
    owner: TransactionId
    hopeless: bool
    """It will hold its locks for longer than this call may take."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Our record was swapped by somebody else: this epoch is over."""


@dataclass(frozen=True, slots=True)
class AllHeld:
    """Every lock of this round is held."""

    cells: Mapping[Key, CellVersion]


@dataclass(frozen=True, slots=True)
class SomeMoved:
    """A conflict: these cells are not at their planned revisions."""

    moved: tuple[Moved, ...]


@dataclass(frozen=True, slots=True)
class Collision:
    """Others are in the way, on these cells."""

    blocked: tuple[Blocked, ...]

    @property
    def hopeless(self) -> bool:
        return any(each.hopeless for each in self.blocked)


LockResult: TypeAlias = Held | Moved | Blocked | Fenced
RoundResult: TypeAlias = AllHeld | SomeMoved | Collision | Fenced


class Coordinator:
    def __init__(self, access: Access, transaction: Transaction, *, settle_conflict: bool, hold: bool = False) -> None:
        self._access = access
        self._resolver = Resolver(access)
        self._transaction = transaction
        self._settle_conflict = settle_conflict
        self._hold = hold
        """Prepare only: stop with all locks held, those of read cells too."""

        self._owner = access.fresh_owner()
        self._contended: set[Key] = set()
        """Cells on which another transaction was met: these are locked first, in key order."""

    async def run(self) -> PrepareResult:
        record: RecordVersion | None = None
        attempt = 0
        try:
            while True:
                if record is None:
                    claimed = await self._claim(first=attempt == 0)
                    if not isinstance(claimed, _Claimed):
                        return claimed
                    record = claimed.version
                outcome = await self._lock_all(record)
                if isinstance(outcome, AllHeld) and not record.document.reads_locked:
                    outcome = await self._validate(record.document) or outcome
                attempt += 1
                done: PrepareResult | None = None
                match outcome:
                    case AllHeld(cells):
                        done = await self._decide(record, cells)
                    case SomeMoved(moved):
                        done = await self._conflict(record, moved)
                    case Collision(blocked):
                        self._contended.update(each.key for each in blocked)
                        if not outcome.hopeless and self._worth_another(attempt):
                            record = await self._step_back(record, attempt)
                            continue
                        done = await self._give_up(record, blocked[0].owner)
                    case Fenced():
                        pass
                if done is not None:
                    return done
                # Somebody swapped our record: to make way for themselves, or to go on under the same id.
                record = None
                if not self._worth_another(attempt):
                    return await self._last_word()
        except StoreUnavailable as error:
            if record is None:
                # Without the record in hand, what an earlier or another attempt under this id has done is not known.
                raise OutcomeUnknown(self._transaction.id, str(error)) from error
            # The commit swap was never sent, and never will be: nothing is applied.
            if isinstance(error, DeadlinePassed):
                return self._busy(None)
            self._access.tasks.background(self._abandon(record))
            raise

    async def _last_word(self) -> PrepareResult:
        """We no longer own the record and stop trying: what it says now is all we may say."""
        found = await self._access.record(self._transaction.id)
        if found is not None and found.document.state.final:
            return replay(found.document)
        if found is not None and found.document.state is State.RETRYABLE:
            return self._busy(None)
        raise OutcomeUnknown(self._transaction.id, "another attempt under the same id has not ended yet")

    def _worth_another(self, attempt: int) -> bool:
        """Whether there is time for one more attempt and, should it fail, for giving up in good order."""
        settings = self._access.settings
        return attempt < settings.attempts and self._access.remaining_s() > 2 * settings.max_backoff_s

    # --- 2: the record ---

    async def _claim(self, *, first: bool) -> _Claimed | PrepareResult:
        """Become the owner of the transaction's record, or learn its answer."""
        transaction = self._transaction
        if first and not transaction.sealed:
            created = decide.preparing(
                transaction,
                self._access.identity(self._owner),
                self._access.settings.write_format,
                lock_reads=self._hold,
            )
            version = await self._create_beside_reading(created)
            if version is not None:
                return _Claimed(version)
        attempt = 0
        while True:
            found = await self._access.record(transaction.id)
            if found is None:
                raise TransactionNotFound(
                    f"transaction {transaction.id} has no record; begin it, or commit it without sealing it first"
                )
            match decide.claim(found.document, transaction.request_hash, self._access.now_ms()):
                case Claim.REPLAY:
                    return replay(found.document)
                case Claim.TAKE_OVER:
                    version = await self._take_over(found)
                    if version is not None:
                        return _Claimed(version)
                case Claim.WAIT:
                    pass
                case Claim.COMMIT_PREPARED:
                    done = await self._commit_prepared(found)
                    if done is not None:
                        return done
                case Claim.EXPIRE:
                    await self._access.write_record(found, decide.aborted(found.document, self._access.now_ms()))
                    continue
            await self._access.pause(attempt)
            attempt += 1

    async def _create_beside_reading(self, record: RecordDocument) -> RecordVersion | None:
        """Create the record and read the cells that are not remembered, in one round."""
        unknown = [key for key in _wanted_locks(record) if self._access.remembered_cell(key) is None]
        created: list[RecordVersion | None] = []

        async def create() -> None:
            created.append(await self._access.write_record(None, record))

        async def read(key: Key) -> None:
            # Only to have it at hand: whoever locks the cell reads it again if this has failed.
            with suppress(StoreUnavailable):
                await self._access.cell(key)

        await self._access.tasks.all([create(), *(read(key) for key in unknown)])
        return created[0]

    async def _take_over(self, found: RecordVersion) -> RecordVersion | None:
        if found.document.staged and not self._transaction.sealed:
            raise WrongState(
                f"transaction {found.document.id} was begun; call seal() first and commit the plan it returns"
            )
        taken = decide.taken_over(
            found.document, self._transaction, self._access.identity(self._owner), lock_reads=self._hold
        )
        return await self._access.write_record(found, taken)

    async def _commit_prepared(self, found: RecordVersion) -> PrepareResult | None:
        """All locks are held, and the record says so: no knowledge of our own is needed to commit it."""
        if self._hold:
            assert found.document.expires_ms is not None
            return Prepared(found.document.id, found.document.expires_ms)
        plan, prepared = self._transaction, found.document.public()
        decide.check_prepared(plan.id, (plan.writes, plan.reads), (prepared.writes, prepared.reads))
        return await self._commit_record(found, {})

    # --- 3: the locks ---

    async def _lock_all(self, record: RecordVersion) -> RoundResult:
        """First the contended cells, one after another in key order, waiting at each; then all others side by side.

        Whoever waits holds only contended cells that come earlier in the order, and whoever is blocked on any other
        cell steps back. So waiting never goes in a circle, and one contender always gets through.
        """
        wanted = _wanted_locks(record.document)
        held: dict[Key, CellVersion] = {}
        for key in sorted(self._contended & wanted.keys()):
            match await self._lock(record.document, key, wanted[key], patient=True):
                case Held(version):
                    held[key] = version
                case Moved() as moved:
                    return SomeMoved((moved,))
                case Blocked() as blocked:
                    return Collision((blocked,))
                case Fenced() as fenced:
                    return fenced
        others = [key for key in wanted if key not in held]
        results = await self._access.tasks.all(
            [self._lock(record.document, key, wanted[key], patient=False) for key in others]
        )
        if any(isinstance(result, Fenced) for result in results):
            return Fenced()
        held.update({key: got.version for key, got in zip(others, results, strict=True) if isinstance(got, Held)})
        return _trouble_in(results) or AllHeld(held)

    async def _lock(self, record: RecordDocument, key: Key, expected: int, *, patient: bool) -> LockResult:
        """Put our lock on the effective cell in one swap: over another's committed value, or over a stale lock.

        A remembered version may only be used to try. Whatever it seems to say, a fresh read decides on blocked
        and moved.
        """
        lock = Lock(record.id, record.epoch)
        version = self._access.remembered_cell(key)
        fresh = False
        attempt = 0
        while True:
            if version is None:
                version = await self._access.cell(key)
                fresh = True
            found = version.document.lock
            if found is not None and found.transaction == record.id:
                if found.epoch > lock.epoch:
                    return Fenced()
                if found == lock and fresh:
                    return Held(version)
                resolved = decide.resolve(version.document, record)
            else:
                version, resolved = await self._resolver.effective(version)
            if resolved.standing is Standing.UNDECIDED and fresh:
                in_the_way = blocker(resolved)
                if not await self._resolver.end_if_over(in_the_way):
                    hopeless = self._outlasts_this_call(in_the_way)
                    if hopeless or not patient or attempt >= self._access.settings.attempts:
                        return Blocked(key, in_the_way.id, hopeless)
                    await self._access.pause(attempt)
            elif resolved.standing is not Standing.UNDECIDED and resolved.cell.revision == expected:
                written = await self._access.lock_cell(version, version.document.rewritten(resolved.cell, lock))
                if written is not None:
                    return Held(written)
            elif resolved.standing is not Standing.UNDECIDED and fresh:
                return Moved(key, expected, resolved.cell.revision)
            # What this process has written to the cell meanwhile (a value applied in the background) needs no reading.
            newer = self._access.remembered_cell(key)
            version = newer if newer is not None and newer.token != version.token else None
            fresh = False
            attempt += 1

    def _outlasts_this_call(self, record: RecordDocument) -> bool:
        remaining_ms = record.lease_ms - self._access.now_ms()
        return record.state is State.PREPARED and remaining_ms > self._access.remaining_s() * 1000

    async def _step_back(self, record: RecordVersion, attempt: int) -> RecordVersion | None:
        """A new epoch makes all our locks stale at once; only then may anyone else take them."""
        next_record = decide.stepped_back(record.document, self._access.identity(self._owner))
        stepped = await self._access.write_record(record, next_record)
        await self._access.pause(attempt)
        return stepped

    # --- 4: validation ---

    async def _validate(self, record: RecordDocument) -> SomeMoved | Collision | None:
        """Read again what was only read. A foreign undecided lock counts as in the way: it may be our write skew."""
        results = await self._access.tasks.all(
            [self._validate_read(key, revision) for key, revision in record.reads.items()]
        )
        return _trouble_in(results)

    async def _validate_read(self, key: Key, expected: int) -> Moved | Blocked | None:
        _, resolved = await self._resolver.effective(await self._access.cell(key))
        if resolved.standing is Standing.UNDECIDED and key in blocker(resolved).plan:
            return Blocked(key, blocker(resolved).id, self._outlasts_this_call(blocker(resolved)))
        if resolved.cell.revision != expected:
            return Moved(key, expected, resolved.cell.revision)
        return None

    # --- 5: the decision ---

    async def _decide(self, record: RecordVersion, held: Mapping[Key, CellVersion]) -> PrepareResult | None:
        if not self._hold:
            return await self._commit_record(record, held)
        now_ms, settings = self._access.now_ms(), self._access.settings
        asked_ms = record.document.expires_ms or now_ms + int(settings.open_ttl_s * 1000)
        expires_ms = min(asked_ms, now_ms + int(settings.prepared_s * 1000))
        prepared = await self._access.write_record(record, decide.prepared(record.document, expires_ms))
        return Prepared(record.document.id, expires_ms) if prepared is not None else None

    async def _commit_record(self, record: RecordVersion, held: Mapping[Key, CellVersion]) -> Committed | None:
        """The swap. None if somebody else swapped the record first: then nothing of ours was applied."""
        self._access.check_deadline()
        decided = decide.committed(record.document, self._transaction.answer, self._access.now_ms())
        try:
            committed = await self._access.write_record(record, decided)
        except StoreUnavailable as error:
            raise OutcomeUnknown(record.document.id, str(error)) from error
        if committed is None:
            return None
        self._clean_up(committed, held)
        return Committed(record.document.id, committed.document.answer or {})

    async def _conflict(self, record: RecordVersion, moved: tuple[Moved, ...]) -> Conflict | None:
        """A refusal is an answer only once our own record says so."""
        everything = await self._survey(record.document, moved)
        if self._settle_conflict:
            refusal = decide.failed(record.document, self._access.identity(self._owner), moved=everything)
            refused = await self._access.write_record(record, refusal)
        else:
            refused = await self._resolver.give_up(record)
        if refused is None:
            return None
        self._clean_up(refused)
        return Conflict(record.document.id, everything, final=self._settle_conflict)

    async def _survey(self, record: RecordDocument, moved: tuple[Moved, ...]) -> tuple[Moved, ...]:
        """Every cell that has moved, not only the first one met."""
        found = {cell.key: cell for cell in moved}
        expected = {**{key: planned.revision for key, planned in record.plan.items()}, **record.reads}

        async def look(key: Key) -> None:
            version = await self._access.cell(key)
            if version.document.lock == Lock(record.id, record.epoch):
                return
            _, resolved = await self._resolver.effective(version)
            if resolved.cell.revision != expected[key]:
                found[key] = Moved(key, expected[key], resolved.cell.revision)

        await self._access.tasks.all([look(key) for key in expected if key not in found])
        return tuple(found[key] for key in expected if key in found)

    async def _give_up(self, record: RecordVersion, owner: TransactionId) -> Busy | None:
        given_up = await self._resolver.give_up(record)
        if given_up is None:
            return None
        self._clean_up(given_up)
        return self._busy(owner)

    def _busy(self, owner: TransactionId | None) -> Busy:
        return Busy(self._transaction.id, owner, self._access.settings.max_backoff_s)

    # --- 6: after the answer ---

    def _clean_up(self, record: RecordVersion, held: Mapping[Key, CellVersion] | None = None) -> None:
        """Best effort: whoever meets a lock we leave behind resolves it, and recovery does the rest."""
        self._access.tasks.background(Resolver(self._access.anew()).clean_up(record, held))

    async def _abandon(self, record: RecordVersion) -> None:
        """The store failed us before the commit swap was sent, so it never will be: free the cells and the id."""
        resolver = Resolver(self._access.anew())
        given_up = await resolver.give_up(record)
        if given_up is not None:
            await resolver.clean_up(given_up)


@dataclass(frozen=True, slots=True)
class _Claimed:
    version: RecordVersion


def _trouble_in(results: Sequence[LockResult | None]) -> SomeMoved | Collision | None:
    """What keeps a round from going on. A cell that has moved decides, whoever else is in the way."""
    moved = tuple(result for result in results if isinstance(result, Moved))
    blocked = tuple(result for result in results if isinstance(result, Blocked))
    if moved:
        return SomeMoved(moved)
    return Collision(blocked) if blocked else None


def _wanted_locks(record: RecordDocument) -> dict[Key, int]:
    wanted = {key: planned.revision for key, planned in record.plan.items()}
    if record.reads_locked:
        wanted.update(record.reads)
    return wanted


def replay(record: RecordDocument) -> Committed | Conflict | Failed:
    """The stored answer of a decided transaction."""
    match record.state:
        case State.COMMITTED:
            return Committed(record.id, record.answer or {}, replayed=True)
        case State.FAILED if record.moved:
            return Conflict(record.id, record.moved, replayed=True)
        case State.FAILED:
            return Failed(record.id, record.answer or {}, replayed=True)
        case _:
            raise closed(record)


def closed(record: RecordDocument) -> TransactionClosed:
    return TransactionClosed(
        f"transaction {record.id} was {record.state.value}; nothing of it was applied. "
        f"Begin again with a new transaction id"
        if record.state is not State.COMMITTED
        else f"transaction {record.id} is committed already; begin a new transaction for further changes"
    )
