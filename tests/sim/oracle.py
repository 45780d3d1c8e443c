"""What may happen to a document, checked at the instant of every applied write.

The oracle reads the bytes on their way into the store and keeps its own account: which revision of which cell was
made by which transaction, and at which step it became visible. It knows the rules of `docs/protocol.md`, and nothing
of the kernel's code. `answers.py` compares what clients are told with this account, `history.py` orders it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lakepact.kernel.keys import Key, name_of_cell
from tests.sim.broken import PromiseBroken
from tests.sim.counters import Counters
from tests.sim.documents import Request
from tests.sim.formats import CELLS, RECORDS, STAGED, Lock, SeenCell, SeenRecord, fields_of, short
from tests.sim.scheduler import Host, Scheduler

FOREVER: Final = 1 << 60
UNDECIDED: Final = ("preparing", "prepared")
FINAL: Final = ("committed", "aborted", "failed")

_NEXT_STATES: Final[dict[str | None, tuple[str, ...]]] = {
    None: ("open", "preparing", "failed"),
    "open": ("open", "preparing", "aborted", "failed"),
    "preparing": ("preparing", "prepared", "committed", "failed", "retryable"),
    "prepared": ("prepared", "committed", "aborted"),
    "retryable": ("preparing", "aborted", "failed"),
    "committed": ("committed",),
    "aborted": ("aborted",),
    "failed": ("failed",),
}
"""Every transition there is; `preparing` to itself is a step back or a take-over, the others renew or finish."""


class Version:
    """One revision of a cell, visible from `step` on."""

    __slots__ = ("step", "value", "writer")

    def __init__(self, step: int, value: dict[str, Any] | None, writer: str | None) -> None:
        self.step = step
        self.value = value
        self.writer = writer


class Effect:
    """What a committed transaction did, and when."""

    __slots__ = ("answer", "id", "reads", "step", "writes")

    def __init__(self, record: SeenRecord, step: int) -> None:
        self.id = record.id
        self.step = step
        self.answer = record.answer
        self.writes = {key: (entry["revision"], entry["value"]) for key, entry in record.plan.items()}
        self.reads = record.reads if record.isolation == "serializable" else {}


Invariant = Callable[["Oracle", Effect], None]
"""A truth of one workload, asked for after every commit. It raises `PromiseBroken`."""

NOT_THERE: Final = Version(-1, None, None)


class Oracle:
    def __init__(self, scheduler: Scheduler, counters: Counters) -> None:
        self._scheduler = scheduler
        self._counters = counters
        self.cells: dict[str, SeenCell] = {}
        self.records: dict[str, SeenRecord] = {}
        self.versions: dict[str, list[Version]] = {}
        """For each key its revisions in order; revision 0 is a cell that never was."""

        self.effects: dict[str, Effect] = {}
        self.states: dict[str, list[tuple[int, str | None]]] = {}
        """For each transaction the states of its record, with the step at which each began."""

        self.invariants: list[Invariant] = []
        self.on_commit: list[Callable[[Effect, Request], None]] = []
        self.may_delete: Callable[[str], bool] = lambda _: False
        """Whether a record of this transaction is old enough to be deleted; the world knows the time."""

        self._written_by: dict[str, Host | None] = {}
        """Which process wrote each record's current version."""

        self._committed_by: dict[str, Host | None] = {}

    # --- what clients may be told ---

    def history_of(self, key: str) -> list[Version]:
        found = self.versions.get(key)
        if found is None:
            found = self.versions[key] = [NOT_THERE]
        return found

    def visible(self, key: str, revision: int) -> tuple[int, int]:
        """The steps from which and before which this revision was what every reader had to see."""
        history = self.history_of(key)
        if not 0 <= revision < len(history):
            return FOREVER, -1
        after = history[revision + 1].step if revision + 1 < len(history) else FOREVER
        return history[revision].step, after

    def current(self, key: str) -> tuple[int, dict[str, Any] | None]:
        history = self.history_of(key)
        return len(history) - 1, history[-1].value

    def states_between(self, transaction_id: str, start: int, end: int) -> set[str | None]:
        """Every state the record was in between these steps."""
        found: set[str | None] = set()
        before: str | None = None
        for step, state in self.states.get(transaction_id, ()):
            if step > end:
                break
            if step > start:
                found.add(state)
            else:
                before = state
        found.add(before)
        return found

    def state_now(self, transaction_id: str) -> str | None:
        record = self.records.get(transaction_id)
        return record.state if record is not None else None

    def counts(self, cell: SeenCell, lock: Lock) -> bool:
        """Whether this lock still protects something: nobody may take it off without fencing or applying first."""
        record = self.records.get(lock[0])
        if record is None or lock[1] != record.epoch or record.finalized:
            return False
        planned = record.plan.get(cell.key)
        if planned is not None:
            return planned["revision"] == cell.revision and record.state in ("preparing", "prepared", "committed")
        locked_read = record.reads_locked and record.reads.get(cell.key) == cell.revision
        return locked_read and record.state in UNDECIDED

    # --- what happens to the store ---

    def written(self, request: Request, name: str, data: bytes) -> None:
        if name.startswith(CELLS):
            cell = SeenCell(fields_of(data))
            if name_of_cell(Key(cell.key)) != name:
                raise PromiseBroken("P2", f"{name} was given the content of cell {cell.key}")
            self._cell_written(self.cells.get(cell.key), cell, request)
            self.cells[cell.key] = cell
        elif name.startswith(RECORDS):
            record = SeenRecord(fields_of(data))
            self._record_written(self.records.get(record.id), record, request)
        elif not name.startswith(STAGED):
            raise PromiseBroken("P8", f"{name} is not a document of the protocol")

    def deleted(self, request: Request, name: str) -> None:
        if name.startswith(CELLS):
            raise PromiseBroken("P8", f"cell document {name} was deleted")
        if name.startswith(STAGED):
            owner = name.split("/")[4]
            state = self.state_now(owner)
            if owner in self.records and state not in FINAL:
                raise PromiseBroken("P8", f"the staging log of {short(owner)} was deleted while it is {state}")
            return
        record = next(record for record in self.records.values() if name.endswith(f"{record.id}.json"))
        if record.state not in FINAL or not record.finalized:
            raise PromiseBroken("P8", f"the record of {short(record.id)} was deleted while {record.state}")
        if not self.may_delete(record.id):
            raise PromiseBroken("P8", f"the record of {short(record.id)} was deleted within the horizon")
        for cell in self.cells.values():
            if cell.lock is not None and cell.lock[0] == record.id:
                raise PromiseBroken(
                    "P8",
                    f"the record of {short(record.id)} was deleted while {cell.key} carries its lock {cell.lock[1]}",
                )
        del self.records[record.id]
        self.states[record.id].append((self._scheduler.steps, None))
        self._counters["record deleted"] += 1

    # --- cells ---

    def _cell_written(self, old: SeenCell | None, new: SeenCell, request: Request) -> None:
        if old is None:
            old = SeenCell({"key": new.key, "revision": 0, "writes": 0, "value": None, "writer": None})
        if new.writes <= old.writes:
            raise PromiseBroken("P2", f"{new.key}: writes went from {old.writes} to {new.writes}; bytes may repeat")
        if new.revision == old.revision:
            if new.value != old.value or new.writer != old.writer:
                raise PromiseBroken("P2", f"{new.key}: revision {new.revision} was given another value or writer")
            if old.lock is not None and old.lock != new.lock:
                self._lock_removed(old, old.lock)
        elif new.revision == old.revision + 1:
            self._value_applied(old, new, request)
        else:
            raise PromiseBroken("P2", f"{new.key}: revision went from {old.revision} to {new.revision}")
        if new.lock is not None and new.lock != old.lock:
            self._lock_taken(new, new.lock)

    def _lock_removed(self, old: SeenCell, lock: Lock) -> None:
        if self.counts(old, lock):
            state = self.state_now(lock[0])
            promise = "P3" if state == "committed" else "P2"
            raise PromiseBroken(
                promise, f"{old.key}: the lock of {short(lock[0])} (epoch {lock[1]}) was removed while it is {state}"
            )
        self._counters["stale lock overwritten"] += 1

    def _value_applied(self, old: SeenCell, new: SeenCell, request: Request) -> None:
        effect = self.effects.get(new.writer or "")
        if effect is None:
            raise PromiseBroken(
                "P1", f"{new.key}: {short(new.writer)} was applied but is {self.state_now(new.writer or '')}"
            )
        if effect.writes.get(new.key) != (old.revision, new.value):
            raise PromiseBroken("P3", f"{new.key}: revision {new.revision} is not what {short(effect.id)} had planned")
        if old.lock is None or old.lock[0] != new.writer or not self.counts(old, old.lock):
            raise PromiseBroken("P2", f"{new.key}: {short(new.writer)} was applied over a lock that is not its own")
        if request.host is not self._committed_by.get(effect.id):
            self._counters["help forward"] += 1

    def _lock_taken(self, new: SeenCell, lock: Lock) -> None:
        record = self.records.get(lock[0])
        if record is None:
            raise PromiseBroken("P8", f"{new.key} was locked by {short(lock[0])}, which has no record")
        if lock[1] > record.epoch:
            raise PromiseBroken("P2", f"{new.key} was locked by {short(lock[0])} at an epoch beyond its record's")

    # --- records ---

    def _record_written(self, old: SeenRecord | None, new: SeenRecord, request: Request) -> None:
        step = self._scheduler.steps
        self._check_transition(old, new)
        self.records[new.id] = new
        if old is None or old.state != new.state:
            self.states.setdefault(new.id, []).append((step, new.state))
        self._count(old, new, request)
        self._written_by[new.id] = request.host
        if new.state == "prepared" and (old is None or old.state != "prepared"):
            self._check_all_locked(new, "prepared")
        if new.state == "committed":
            if old is None or old.state != "committed":
                self._committed(new, request)
            if new.finalized and old is not None and not old.finalized:
                self._check_all_applied(new)

    def _check_transition(self, old: SeenRecord | None, new: SeenRecord) -> None:
        who = short(new.id)
        if old is None:
            if new.id in self.states:
                raise PromiseBroken("P3", f"the record of {who} was created again after it was deleted")
            if new.state not in _NEXT_STATES[None]:
                raise PromiseBroken("P2", f"the record of {who} was created as {new.state}")
            return
        if new.writes <= old.writes:
            raise PromiseBroken("P2", f"record {who}: writes went from {old.writes} to {new.writes}; bytes may repeat")
        if new.epoch < old.epoch:
            raise PromiseBroken("P2", f"record {who}: epoch went back from {old.epoch} to {new.epoch}")
        if new.request_hash != old.request_hash:
            raise PromiseBroken("P3", f"record {who}: its request was exchanged for another")
        if old.state in FINAL:
            if new.state != old.state or new.answer != old.answer:
                raise PromiseBroken("P9", f"record {who}: {old.state} was final, and became {new.state}")
            if old.finalized and not new.finalized:
                raise PromiseBroken("P7", f"record {who}: finalized, and then not")
            if (new.owner, new.epoch) != (old.owner, old.epoch):
                raise PromiseBroken("P2", f"record {who}: {old.state}, and then taken over")
            if new.trimmed and not new.finalized:
                raise PromiseBroken("P8", f"record {who}: trimmed before it was finalized")
            return
        if new.state not in _NEXT_STATES[old.state]:
            raise PromiseBroken("P2", f"record {who}: {old.state} became {new.state}")
        if not set(old.touched) <= set(new.touched):
            forgotten = sorted(set(old.touched) - set(new.touched))
            raise PromiseBroken("P6", f"record {who}: {forgotten} were forgotten in touched")
        if new.state in UNDECIDED and (new.plan, new.reads) != (old.plan, old.reads) and new.epoch == old.epoch:
            raise PromiseBroken("P2", f"record {who}: another plan under the same epoch {new.epoch}")
        if new.owner != old.owner and new.epoch == old.epoch:
            raise PromiseBroken("P2", f"record {who}: another owner under the same epoch {new.epoch}")

    def _committed(self, record: SeenRecord, request: Request) -> None:
        """The one instant: from here on every reader must see all of it."""
        step = self._scheduler.steps
        if record.id in self.effects:
            raise PromiseBroken("P3", f"{short(record.id)} took effect a second time")
        for key, entry in record.plan.items():
            revision = len(self.history_of(key)) - 1
            if entry["revision"] != revision:
                raise PromiseBroken(
                    "P2",
                    f"{short(record.id)} was committed on {key} revision {entry['revision']}, which is at {revision}",
                )
        self._check_all_locked(record, "committed")
        effect = self.effects[record.id] = Effect(record, step)
        self._committed_by[record.id] = request.host
        for key, (_, value) in effect.writes.items():
            history = self.versions[key]
            if value is not None and history[-1].value is None and len(history) > 1:
                self._counters["tombstone revived"] += 1
            history.append(Version(step, value, record.id))
        self._counters["committed"] += 1
        for listener in self.on_commit:
            listener(effect, request)
        for invariant in self.invariants:
            invariant(self, effect)

    def _check_all_locked(self, record: SeenRecord, state: str) -> None:
        wanted = {key: entry["revision"] for key, entry in record.plan.items()}
        if record.reads_locked:
            wanted.update(record.reads)
        for key, revision in wanted.items():
            cell = self.cells.get(key)
            if cell is None or cell.revision != revision or cell.lock != (record.id, record.epoch):
                promise = "P2" if key in record.plan else "P4"
                lock = f"{short(cell.lock[0])} epoch {cell.lock[1]}" if cell is not None and cell.lock else "nobody"
                raise PromiseBroken(
                    promise,
                    f"{short(record.id)} (epoch {record.epoch}) became {state} without its lock on {key}: it is at "
                    f"{cell.revision if cell else 0}, wanted at {revision}, locked by {lock}",
                )

    def _check_all_applied(self, record: SeenRecord) -> None:
        effect = self.effects[record.id]
        for key, (revision, _) in effect.writes.items():
            if self.cells[key].revision <= revision:
                raise PromiseBroken("P3", f"{short(record.id)} was finalized before it was applied to {key}")

    def _count(self, old: SeenRecord | None, new: SeenRecord, request: Request) -> None:
        counters, last_writer = self._counters, self._written_by.get(new.id)
        if new.trimmed and old is not None and not old.trimmed:
            counters["trimmed"] += 1
        if old is None or old.state in FINAL:
            return
        if old.state in UNDECIDED and new.state in ("retryable", "aborted") and request.host is not last_writer:
            counters["rolled back by another"] += 1
        if old.state == "prepared" and new.state == "committed" and request.host is not last_writer:
            counters["prepared committed by another process"] += 1
        if old.state in ("preparing", "retryable") and new.state == "preparing" and new.epoch > old.epoch:
            counters["collision step back" if new.owner == old.owner else "take-over by the same key"] += 1
        if new.state == "aborted":
            counters["expired"] += 1
