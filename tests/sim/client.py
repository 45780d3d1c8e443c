"""A client: it knows ids, keys and patience, talks to any process, and keeps at it until it has a final answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from lakepact.errors import Contended, OutcomeUnknown, StoreUnavailable, TransactionClosed
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Busy,
    Cell,
    CellPage,
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
from lakepact.kernel.ports import CellStore
from tests.sim.calls import Disconnected, Network
from tests.sim.process import Process, SimClock

T = TypeVar("T")

PASSING = (Contended, StoreUnavailable, OutcomeUnknown, Disconnected)
"""Whatever a client answers by trying again."""

Ended = Committed | Conflict | Failed | None
"""How a transaction ended for its client; None: it was closed without an effect, having waited too long."""


class Client:
    """One user of the catalog. `running` says whether to begin anything new; what was begun is always finished."""

    def __init__(self, network: Network, processes: Sequence[Process], clock: SimClock, pace_s: float) -> None:
        self._network = network
        self._processes = processes
        self._clock = clock
        self._pace_s = pace_s
        self.random: Random = network.scheduler.random
        self.running = True

    # --- small things ---

    async def pause(self) -> None:
        await self._network.scheduler.sleep(self._pace_s * self.random.random())

    async def wait(self, seconds: float) -> None:
        await self._network.scheduler.sleep(seconds)

    def new_id(self) -> TransactionId:
        return uuid7(self._clock.now_ms(), self.random.getrandbits(74))

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def some(self, keys: Sequence[Key], most: int) -> list[Key]:
        """One to `most` of these keys, in any order."""
        return self.random.sample(keys, self.random.randint(1, min(most, len(keys))))

    def plan(
        self,
        cells: Mapping[Key, Cell],
        values: Mapping[Key, Value | None],
        *,
        reads: Iterable[Key] = (),
        transaction_id: TransactionId | None = None,
        request: str = "",
    ) -> Transaction:
        """A transaction planned on these cells as they were read."""
        transaction_id = transaction_id or self.new_id()
        return Transaction(
            id=transaction_id,
            request_hash=request or transaction_id,
            writes=tuple(Write(key, cells[key].revision, value) for key, value in values.items()),
            reads=tuple(Read(key, cells[key].revision) for key in reads),
            answer={"request": request},
        )

    # --- calls ---

    async def call(
        self,
        kind: str,
        ask: Callable[[CellStore], Coroutine[Any, Any, T]],
        *,
        transaction_id: str | None = None,
        subject: Any = None,
    ) -> T:
        """One call to any process that is up."""
        while not (alive := [process for process in self._processes if process.alive]):
            await self.pause()
        process = self.random.choice(alive)
        return await self._network.call(process, kind, ask, transaction_id=transaction_id, subject=subject)

    async def insist(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Try until there is an answer."""
        while True:
            try:
                return await attempt()
            except PASSING:
                await self.pause()

    async def read(self, keys: Sequence[Key]) -> Mapping[Key, Cell]:
        return await self.insist(lambda: self.call("read", lambda cells: cells.read(keys), subject=tuple(keys)))

    async def scan(self, prefix: str) -> CellPage:
        return await self.insist(
            lambda: self.call("scan", lambda cells: cells.scan(prefix, limit=100), subject=f"{prefix}/")
        )

    async def lookup(self, transaction_id: TransactionId) -> TransactionRecord | None:
        return await self.insist(
            lambda: self.call("lookup", lambda cells: cells.lookup(transaction_id), transaction_id=transaction_id)
        )

    async def commit(self, transaction: Transaction, *, settle_conflict: bool = True) -> CommitResult:
        """One attempt."""
        return await self.call(
            "commit",
            lambda cells: cells.commit(transaction, settle_conflict=settle_conflict),
            transaction_id=transaction.id,
            subject=transaction,
        )

    async def fail(self, transaction: Transaction) -> Committed | Failed:
        return await self.insist(
            lambda: self.call(
                "fail",
                lambda cells: cells.fail(transaction.id, transaction.request_hash, {"refused": True}),
                transaction_id=transaction.id,
                subject=transaction,
            )
        )

    async def submit(self, transaction: Transaction, *, settle_conflict: bool = True) -> Ended:
        """The same request under the same id, until its outcome is known."""
        while True:
            try:
                result = await self.commit(transaction, settle_conflict=settle_conflict)
            except TransactionClosed:
                return None
            except (OutcomeUnknown, Disconnected):
                if self.random.random() < 0.3:
                    record = await self.lookup(transaction.id)
                    if record is not None and record.state is State.COMMITTED:
                        return Committed(transaction.id, record.answer or {})
            except (Contended, StoreUnavailable):
                pass
            else:
                if not isinstance(result, Busy):
                    return result
            await self.pause()
