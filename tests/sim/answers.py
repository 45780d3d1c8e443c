"""What may be answered: every answer of the kernel is compared with the oracle's account of what happened.

An answer is judged when it is given. "Committed" must be true and durable, "conflict" must be true and final, anything
that says "nothing was applied" must stay true, and every read must have been true at one instant of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from lakepact.errors import (
    Contended,
    Damaged,
    InvalidTransactionId,
    KeyReused,
    LakepactError,
    OutcomeUnknown,
    SnapshotTooOld,
    StagedMeanwhile,
    StoreUnavailable,
    TransactionClosed,
    TransactionNotFound,
    WrongState,
)
from lakepact.kernel.model import (
    Busy,
    Cell,
    CellPage,
    Committed,
    Conflict,
    Failed,
    Isolation,
    Prepared,
    Transaction,
    TransactionRecord,
)
from tests.sim.broken import PromiseBroken
from tests.sim.calls import Call
from tests.sim.counters import Counters
from tests.sim.documents import Request
from tests.sim.formats import short
from tests.sim.history import Operation
from tests.sim.oracle import FINAL, FOREVER, Effect, Oracle
from tests.sim.scheduler import Scheduler, Task

_ALWAYS: Final = (Contended, StoreUnavailable)
_OPEN: Final = (*_ALWAYS, OutcomeUnknown, WrongState, TransactionNotFound)
_HONEST_ERRORS: Final[dict[str, tuple[type[LakepactError], ...]]] = {
    "commit": (*_ALWAYS, OutcomeUnknown, KeyReused, TransactionClosed, TransactionNotFound, InvalidTransactionId),
    "prepare": (*_ALWAYS, OutcomeUnknown, KeyReused, TransactionClosed, TransactionNotFound, InvalidTransactionId),
    "fail": (*_ALWAYS, OutcomeUnknown, WrongState, InvalidTransactionId),
    "begin": (*_ALWAYS, OutcomeUnknown, InvalidTransactionId),
    "read_in": (*_OPEN, SnapshotTooOld),
    "look": (*_OPEN, SnapshotTooOld),
    "scan_in": (*_OPEN, SnapshotTooOld),
    "contents": (*_ALWAYS, TransactionNotFound),
    "stage": (*_OPEN, SnapshotTooOld, StagedMeanwhile),
    "seal": _OPEN,
    "renew": _OPEN,
    "abort": _OPEN,
}
"""Which errors each call may answer with; the others may only say that the store or others were in the way."""


def planned_on(transaction: Transaction) -> dict[str, int]:
    """The revision of every cell a plan depends on, written or read."""
    planned: dict[str, int] = {write.key: write.revision for write in transaction.writes}
    planned.update((read.key, read.revision) for read in transaction.reads)
    return planned


class Attempts:
    """What is known of one transaction id from its callers."""

    __slots__ = ("acknowledged", "first_started", "open", "unknown")

    def __init__(self, first_started: int) -> None:
        self.first_started = first_started
        self.open = 0
        """Commit calls at work on it right now."""

        self.unknown = False
        """Whether a commit call of it has ended without saying how: it died, or said so."""

        self.acknowledged = FOREVER
        """The first step at which somebody was told that it is committed."""


class OpenReads:
    """What one open transaction has been shown: all of it must have been true at one instant."""

    __slots__ = ("ended", "handed_in", "isolation", "shown", "staged", "started")

    def __init__(self, started: int, isolation: Isolation) -> None:
        self.started = started
        self.ended = started
        self.isolation = isolation
        self.shown: dict[str, int] = {}
        self.handed_in: dict[str, list[Mapping[str, int]]] = {}
        """For each staging call what its copies were planned on: cells that were not staged, at these revisions."""

        self.staged: set[str] = set()
        """Which of these were acknowledged."""


class Answers:
    """The judge of all calls of one run."""

    def __init__(self, scheduler: Scheduler, oracle: Oracle, counters: Counters) -> None:
        self._scheduler = scheduler
        self._oracle = oracle
        self._counters = counters
        self.attempts: dict[str, Attempts] = {}
        self.open_reads: dict[str, OpenReads] = {}
        self.cuts: list[Operation] = []
        self.asked: list[Transaction] = []
        """Every plan that was ever asked to be committed without having been open, in order."""

        self.too_old: Callable[[str], bool] = lambda _: False
        """Whether an id may be refused for its age; the world knows the time."""

        oracle.on_commit.append(self._committed)

    # --- a call's life ---

    def arrived(self, call: Call) -> None:
        if call.transaction_id is None:
            return
        attempts = self.attempts.get(call.transaction_id)
        if attempts is None:
            attempts = self.attempts[call.transaction_id] = Attempts(call.started)
        if call.kind == "commit":
            attempts.open += 1
            if not call.subject.sealed:
                self.asked.append(call.subject)
        elif call.kind == "begin":
            self.open_reads.setdefault(call.transaction_id, OpenReads(call.started, call.subject))
        elif call.kind == "stage" and call.subject is not None:
            operation, handed_in = call.subject
            self.open_reads[call.transaction_id].handed_in.setdefault(operation, []).append(handed_in)

    def crashed(self, call: Call) -> None:
        if call.transaction_id is None:
            return
        state = self._oracle.state_now(call.transaction_id)
        self._counters[f"crash in {state or 'none'}"] += 1
        if call.kind == "commit":
            attempts = self.attempts[call.transaction_id]
            attempts.open -= 1
            attempts.unknown = True

    def answered(self, call: Call, result: Any, failure: Exception | None) -> None:
        if call.kind == "commit":
            attempts = self.attempts[call.transaction_id or ""]
            attempts.open -= 1
            attempts.unknown = attempts.unknown or isinstance(failure, OutcomeUnknown)
            call.denied = not isinstance(failure, OutcomeUnknown) and not isinstance(result, Committed)
        if failure is not None:
            self._error(call, failure)
            return
        match call.kind:
            case "commit" | "prepare" | "fail":
                self._decision(call, result)
            case "read":
                self._cut(call, result)
            case "scan":
                self._page(call, result)
            case "read_in":
                self._read_in(call, result)
            case "look":
                outside = [cell for cell in result.values() if cell.writer != call.transaction_id]
                self._shown(call, outside, call.started, self._scheduler.steps)
            case "scan_in":
                self._page(call, result)
            case "stage" if call.subject is not None:
                self.open_reads[call.transaction_id or ""].staged.add(call.subject[0])
            case "seal":
                self._seal(call, result)
            case "lookup" | "begin" | "renew" | "abort":
                self._record(call, result)

    def _committed(self, effect: Effect, request: Request) -> None:
        asked_by = request.task.root
        if isinstance(asked_by, Call) and asked_by.denied:
            raise PromiseBroken("P9", f"{asked_by} said that nothing was applied; now its own commit has landed")
        attempts = self.attempts.get(effect.id)
        if attempts is None or (attempts.open == 0 and not attempts.unknown):
            raise PromiseBroken("P9", f"{short(effect.id)} was committed after every caller was told it was not")

    # --- decisions ---

    def _decision(self, call: Call, result: Any) -> None:
        transaction_id = call.transaction_id or ""
        oracle, counters = self._oracle, self._counters
        if result.id != transaction_id:
            raise PromiseBroken("P9", f"{call} was answered with {result}")
        counters["replayed"] += bool(getattr(result, "replayed", False))
        match result:
            case Committed():
                self._check_committed(call, result)
            case Conflict():
                self._check_conflict(call, result)
            case Failed():
                record = oracle.records.get(transaction_id)
                if record is None or record.state != "failed" or (record.answer or {}) != result.answer:
                    raise PromiseBroken("P9", f"{call} was answered with {result}, which is not what is stored")
                counters["failed on request"] += 1
            case Busy():
                counters["busy"] += 1
                self._check_in_the_way(call, result.owner)
            case Prepared():
                if "prepared" not in oracle.states_between(transaction_id, call.started, self._scheduler.steps):
                    raise PromiseBroken("P9", f"{call} was answered with {result}, and it never was prepared")

    def _check_committed(self, call: Call, result: Committed) -> None:
        effect = self._oracle.effects.get(call.transaction_id or "")
        if effect is None:
            raise PromiseBroken("P9", f"{call} was answered with {result}, and it is not committed")
        if (effect.answer or {}) != result.answer:
            raise PromiseBroken("P9", f"{call} was answered with {result}, but the stored answer is {effect.answer}")
        if not result.replayed and effect.step < call.started:
            raise PromiseBroken("P9", f"{call} was answered as if it had just been committed; that was long ago")
        self._acknowledge(effect.id)

    def _acknowledge(self, transaction_id: str) -> None:
        attempts = self.attempts[transaction_id]
        attempts.acknowledged = min(attempts.acknowledged, self._scheduler.steps)

    def _check_conflict(self, call: Call, result: Conflict) -> None:
        transaction_id = call.transaction_id or ""
        oracle = self._oracle
        self._counters["conflict" if result.final else "conflict not settled"] += 1
        if result.final and oracle.state_now(transaction_id) != "failed":
            state = oracle.state_now(transaction_id)
            raise PromiseBroken("P9", f"{call} was answered with a final conflict, and its record is {state}")
        effect = oracle.effects.get(transaction_id)
        if effect is not None and "retryable" not in oracle.states_between(transaction_id, call.started, effect.step):
            # Another attempt under the same id may commit, but only after this one has let go of the record.
            raise PromiseBroken("P9", f"{call} was answered with a conflict, and it is committed")
        if not result.moved:
            raise PromiseBroken("P9", f"{call} was answered with a conflict that names no cell")
        asked: Transaction = call.subject
        planned = planned_on(asked)
        start = self.attempts[transaction_id].first_started if result.replayed else call.started
        for moved in result.moved:
            visible_from, visible_until = oracle.visible(moved.key, moved.actual)
            if moved.expected == moved.actual or visible_from > self._scheduler.steps or visible_until <= start:
                raise PromiseBroken(
                    "P9",
                    f"{call}: {moved} is not true: that revision was visible from {visible_from} to {visible_until}",
                )
            if not result.replayed and planned.get(moved.key) != moved.expected:
                raise PromiseBroken("P9", f"{call}: {moved} is not what was planned: {planned}")

    def _check_in_the_way(self, call: Call, owner: str | None) -> None:
        """Whoever is named as being in the way must have something to do with these very cells."""
        if owner is None or owner == call.transaction_id:
            return
        record = self._oracle.records.get(owner)
        if record is None or record.trimmed:
            return
        subject = call.subject
        if isinstance(subject, Transaction):
            asked = set(planned_on(subject))
        elif call.kind == "scan":
            asked = {key for key in record.touched if key.startswith(subject)}
        else:
            asked = set(subject or record.touched)
        if not asked & set(record.touched):
            raise PromiseBroken("P10", f"{call} was held up by {short(owner)}, which shares no cell with it")

    # --- reads ---

    def _shown(self, call: Call, cells: Iterable[Cell], earliest: int, latest: int) -> None:
        """There must be an instant within these bounds at which all these cells were as shown."""
        oracle = self._oracle
        for cell in cells:
            history = oracle.history_of(cell.key)
            if not 0 <= cell.revision < len(history):
                raise PromiseBroken("P1", f"{call} showed {cell}, which was never committed")
            version = history[cell.revision]
            if version.value != cell.value or version.writer != cell.writer:
                raise PromiseBroken("P1", f"{call} showed {cell}; the committed one is {version.value}")
            visible_from, visible_until = oracle.visible(cell.key, cell.revision)
            if visible_until <= earliest and earliest == call.started:
                raise PromiseBroken("P4", f"{call} showed {cell}, which was replaced before the call began")
            earliest = max(earliest, visible_from)
            latest = min(latest, visible_until - 1)
        if earliest > latest:
            shown = ", ".join(f"{cell.key}@{cell.revision}" for cell in cells)
            raise PromiseBroken("P1", f"{call} showed {shown}, which were never true at one instant")

    def _cut(self, call: Call, cells: Mapping[str, Cell]) -> None:
        if set(cells) != set(call.subject):
            raise PromiseBroken("P1", f"{call} was asked for {call.subject} and showed {list(cells)}")
        end = self._scheduler.steps
        self._shown(call, cells.values(), call.started, end)
        if call.slept:
            self._counters["reader waited"] += 1
        self._remember_cut(call.started, end, {cell.key: cell.revision for cell in cells.values()})

    def _remember_cut(self, start: int, end: int, reads: Mapping[str, int]) -> None:
        self.cuts.append(Operation(f"cut {len(self.cuts)}", start, end, reads, {}))

    def _page(self, call: Call, page: CellPage) -> None:
        """A scan is no cut: each cell on its own must have been true; and what was there all along must be shown."""
        end = self._scheduler.steps
        for cell in page.cells:
            if call.kind == "scan" or cell.writer != call.transaction_id:
                self._shown(call, (cell,), call.started, end)
        if page.after is not None:
            return
        shown = {cell.key for cell in page.cells}
        for key, history in self._oracle.versions.items():
            if key.startswith(call.subject) and key not in shown:
                last = next((version for version in reversed(history) if version.step <= call.started), None)
                quiet = history[-1].step <= call.started
                if last is not None and last.value is not None and quiet:
                    raise PromiseBroken("P1", f"{call} did not show {key}, which was there all along")

    def _read_in(self, call: Call, cells: Mapping[str, Cell]) -> None:
        transaction_id = call.transaction_id or ""
        reads = self.open_reads[transaction_id]
        end = reads.ended = self._scheduler.steps
        for cell in cells.values():
            if cell.writer != transaction_id:
                self._shown(call, (cell,), reads.started, end)
                if reads.shown.setdefault(cell.key, cell.revision) != cell.revision:
                    raise PromiseBroken("P1", f"{call} showed {cell}, and before at {reads.shown[cell.key]}")
        spans = [self._oracle.visible(key, revision) for key, revision in reads.shown.items()]
        if max((start for start, _ in spans), default=0) >= min((until for _, until in spans), default=FOREVER):
            raise PromiseBroken("P1", f"{call}: what it was shown was never true at one instant: {reads.shown}")

    def _seal(self, call: Call, plan: Transaction) -> None:
        """The plan depends on all that was shown, or on none of it if that is what was asked for."""
        reads = self.open_reads[call.transaction_id or ""]
        planned = planned_on(plan)
        if reads.isolation is Isolation.SNAPSHOT:
            if plan.reads:
                raise PromiseBroken("P9", f"{call}: a plan under snapshot isolation depends on reads")
            return
        for key, revision in reads.shown.items():
            if planned.get(key) != revision:
                raise PromiseBroken("P4", f"{call}: {key} was shown at {revision}, the plan says {planned.get(key)}")
        for operation in reads.staged:
            # Which of its copies was staged nobody can tell; the plan depends on what one of them was planned on.
            copies = reads.handed_in[operation]
            if not any(all(planned.get(key) == at for key, at in copy.items()) for copy in copies):
                raise PromiseBroken("P4", f"{call}: {operation} was planned on {copies}, the plan on {planned}")

    # --- records and errors ---

    def _record(self, call: Call, record: TransactionRecord | None) -> None:
        transaction_id = call.transaction_id or ""
        states = self._oracle.states_between(transaction_id, call.started, self._scheduler.steps)
        state = record.state.value if record is not None else None
        if state not in states:
            raise PromiseBroken("P9", f"{call} said {state}; it was {states}")
        effect = self._oracle.effects.get(transaction_id)
        if record is None or state != "committed" or effect is None:
            return
        if (record.answer or {}) != (effect.answer or {}):
            raise PromiseBroken("P9", f"{call} said {record.answer}; the answer is {effect.answer}")
        shown = {write.key: (write.revision, write.value) for write in record.writes}
        if shown and shown != effect.writes:
            raise PromiseBroken("P9", f"{call} said it wrote {shown}; it wrote {effect.writes}")
        self._acknowledge(transaction_id)

    def _error(self, call: Call, failure: Exception) -> None:
        transaction_id = call.transaction_id or ""
        oracle, counters = self._oracle, self._counters
        if isinstance(failure, Damaged):
            raise PromiseBroken("P8", f"{call}: {type(failure).__name__}: {failure}") from failure
        if not isinstance(failure, _HONEST_ERRORS.get(call.kind, _ALWAYS)):
            raise PromiseBroken("P9", f"{call} ended with {type(failure).__name__}: {failure}") from failure
        match failure:
            case OutcomeUnknown():
                counters["outcome unknown"] += 1
            case SnapshotTooOld():
                counters["snapshot too old"] += 1
            case StagedMeanwhile():
                counters["staged meanwhile"] += 1
            case Contended():
                counters["contended"] += 1
                self._check_in_the_way(call, failure.owner)
            case KeyReused():
                counters["key reused"] += 1
                record = oracle.records.get(transaction_id)
                if record is not None and record.request_hash == call.subject.request_hash:
                    raise PromiseBroken("P9", f"{call} was refused as another request, and it is the same")
            case TransactionClosed():
                if oracle.state_now(transaction_id) not in FINAL:
                    state = oracle.state_now(transaction_id)
                    raise PromiseBroken("P9", f"{call} was told that it has ended; it is {state}")
            case InvalidTransactionId():
                counters["id beyond the horizon refused"] += 1
                if not self.too_old(transaction_id):
                    raise PromiseBroken("P9", f"{call}: {failure}")
            case TransactionNotFound():
                states = oracle.states_between(transaction_id, call.started, self._scheduler.steps)
                if None not in states:
                    raise PromiseBroken("P9", f"{call} was told that there is no such transaction; it was {states}")

    # --- the end ---

    def operations(self) -> list[Operation]:
        """Everything that must have a place in one serial order."""
        operations = list(self.cuts)
        for effect in self._oracle.effects.values():
            attempts = self.attempts[effect.id]
            end = attempts.acknowledged if attempts.acknowledged < FOREVER else None
            writes = {key: revision for key, (revision, _) in effect.writes.items()}
            operations.append(Operation(effect.id, attempts.first_started, end, effect.reads, writes))
        for transaction_id, reads in self.open_reads.items():
            if reads.shown:
                name = f"overlay {transaction_id}"
                operations.append(Operation(name, reads.started, reads.ended, reads.shown, {}))
        return operations


class BackgroundErrors:
    """Background work may fail because the store did; any other error in it is a fault of the kernel."""

    def ended(self, task: Task) -> None:
        failure = task.failure
        if isinstance(failure, Damaged):
            raise PromiseBroken("P8", f"in the background: {type(failure).__name__}: {failure}") from failure
        if failure is not None and not isinstance(failure, LakepactError):
            raise PromiseBroken("P9", f"in the background: {type(failure).__name__}: {failure}") from failure
