"""Open transactions: staged over several calls and processes, then committed, prepared, aborted or left alone."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from lakepact.errors import SnapshotTooOld, TransactionNotFound, WrongState
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Busy, Cell, CellPage, Isolation, Prepared, Transaction, Value
from tests.sim.actors.lists import appended
from tests.sim.broken import PromiseBroken
from tests.sim.client import PASSING, Client
from tests.sim.scheduler import Scheduler

T = TypeVar("T")

OVER = (SnapshotTooOld, WrongState, TransactionNotFound)
"""Whatever ends a session early: it expired, was closed, or cannot show its instant any more."""


class Session:
    """One open transaction, and what its client knows of it."""

    def __init__(self, client: Client, isolation: Isolation) -> None:
        self.client = client
        self.isolation = isolation
        self.id: TransactionId = client.new_id()
        self.shown: dict[Key, Cell] = {}
        """What was read before it was staged over."""

        self.staged: dict[Key, Value] = {}
        """What the acknowledged staging calls come to."""

        self.operations: list[tuple[str, dict[Key, Value]]] = []

    async def ask(self, kind: str, ask: Callable[[Any], Coroutine[Any, Any, T]], subject: Any = None) -> T:
        """Sent again, word for word, until it is answered."""
        return await self.client.insist(lambda: self.client.call(kind, ask, transaction_id=self.id, subject=subject))

    async def begin(self, ttl_s: float) -> None:
        await self.ask(
            "begin", lambda cells: cells.begin(self.id, ttl_s=ttl_s, isolation=self.isolation), self.isolation
        )

    async def read(self, keys: Sequence[Key]) -> Mapping[Key, Cell]:
        staged_before = {key: self.staged[key] for key in keys if key in self.staged}
        cells: Mapping[Key, Cell] = await self.ask("read_in", lambda store: store.read_in(self.id, keys))
        for key, value in staged_before.items():
            cell = cells[key]
            if cell.writer != self.id or cell.value != value:
                raise PromiseBroken("P1", f"{self.id} has staged {value} in {key} and reads {cell}")
        for key, cell in cells.items():
            if cell.writer != self.id:
                self.shown.setdefault(key, cell)
        return cells

    async def look(self, keys: Sequence[Key]) -> None:
        """Without a trace; and once through everything there is."""
        staged_before = dict(self.staged)
        looked: Mapping[Key, Cell] = await self.ask("look", lambda store: store.read_in(self.id, keys, note=False))
        prefix = keys[0].rpartition("/")[0]
        page: CellPage = await self.ask("scan_in", lambda store: store.scan_in(self.id, prefix), f"{prefix}/")
        shown = {cell.key: cell for cell in page.cells}
        for key, value in staged_before.items():
            for cell in (looked.get(key, shown.get(key)), shown.get(key)):
                if cell is None or cell.value != value:
                    raise PromiseBroken("P1", f"{self.id} has staged {value} in {key} and is shown {cell}")

    async def check_contents(self) -> None:
        contents: Transaction = await self.ask("contents", lambda store: store.contents(self.id))
        if not contents.sealed:
            self.check_plan(contents)

    async def stage(self, writes: dict[Key, Value], operation: str | None = None) -> None:
        operation = operation or f"{self.client.random.getrandbits(48):012x}"
        await self.ask("stage", lambda store: store.stage(self.id, operation, writes))
        self.operations.append((operation, writes))
        self.staged.update(writes)

    async def stage_again(self) -> None:
        """A copy of an earlier staging call arrives late: it must change nothing."""
        operation, writes = self.client.random.choice(self.operations)
        await self.ask("stage", lambda store: store.stage(self.id, operation, writes))

    async def seal(self) -> Transaction:
        return await self.ask("seal", lambda store: store.seal(self.id, {"sealed": self.id}))

    def check_plan(self, plan: Transaction) -> None:
        planned = {write.key: write.value for write in plan.writes}
        if planned != self.staged:
            raise PromiseBroken("P3", f"{self.id} has staged {self.staged}, and its plan is {planned}")

    async def prepare(self, plan: Transaction) -> bool:
        """True if it is prepared now."""
        while True:
            result = await self.ask("prepare", lambda store: store.prepare(plan), plan)
            if not isinstance(result, Busy):
                return isinstance(result, Prepared)
            await self.client.pause()

    async def abort(self) -> None:
        await self.ask("abort", lambda store: store.abort(self.id))


async def overlay(
    client: Client, scheduler: Scheduler, keys: Sequence[Key], rounds: int, ttls_s: Sequence[float]
) -> None:
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        isolation = client.random.choice((Isolation.SERIALIZABLE, Isolation.SERIALIZABLE, Isolation.SNAPSHOT))
        session = Session(client, isolation)
        ttl_s = client.random.choice(ttls_s)
        try:
            await session.begin(ttl_s)
            for number in range(client.random.randint(1, 4)):
                await _work(session, scheduler, keys, number)
            await _end(session, scheduler, keys, ttl_s)
        except OVER:
            if client.random.random() < 0.5:
                continue
            try:
                await session.abort()
            except OVER:
                continue


async def _work(session: Session, scheduler: Scheduler, keys: Sequence[Key], number: int) -> None:
    client = session.client
    await client.pause()
    chance = client.random.random()
    if chance < 0.25:
        # Two readers of one session at the same time, on two processes: still one instant for both.
        await scheduler.all([session.read(client.some(keys, 2)), session.read(client.some(keys, 2))])
    elif chance < 0.35:
        await session.read(client.some(keys, 3))
    elif chance < 0.4:
        await session.look(client.some(keys, 3))
        await session.check_contents()
    elif chance < 0.5 and session.operations:
        await session.stage_again()
    elif chance < 0.6:
        await session.ask("renew", lambda store: store.renew(session.id))
    else:
        await _append(session, client.some(keys, 2), number)


async def _append(session: Session, chosen: Sequence[Key], number: int) -> None:
    unread = [key for key in chosen if key not in session.shown]
    if unread:
        await session.read(unread)
    values = appended(session.shown, chosen, session.id[-12:])
    await session.stage({key: {**value, "note": number} for key, value in values.items()})
    if session.client.random.random() < 0.3:
        await session.read(chosen)


async def _end(session: Session, scheduler: Scheduler, keys: Sequence[Key], ttl_s: float) -> None:
    client = session.client
    chance = client.random.random()
    if chance < 0.1:
        await session.abort()
        return
    if chance < 0.2:
        return
    if chance < 0.4:
        # A staging call races the seal: if it was acknowledged, it is in the plan.
        await scheduler.all([_late_append(session, keys), session.seal()])
    plan = await session.seal()
    session.check_plan(plan)
    if chance < 0.75:
        await client.submit(plan)
        return
    if not await session.prepare(plan):
        return
    await client.wait(ttl_s * client.random.choice((0.0, 0.0, 0.3, 1.2)))
    if chance < 0.8:
        return
    if chance < 0.85:
        await session.abort()
    else:
        await client.submit(plan)


async def _late_append(session: Session, keys: Sequence[Key]) -> None:
    try:
        await _append(session, session.client.some(keys, 1), 99)
    except OVER:
        return


async def two_phase(client: Client, keys: Sequence[Key], rounds: int, ttl_s: float) -> None:
    """Prepares a plan that was never open, then commits it, perhaps through another process, or leaves it."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        chosen = client.some(keys, 2)
        others = [key for key in client.some(keys, 2) if key not in chosen]
        cells = await client.read([*chosen, *others])
        transaction_id = client.new_id()
        values = appended(cells, chosen, transaction_id[-12:])
        plan = client.plan(cells, values, reads=others, transaction_id=transaction_id)
        try:
            if not await _prepared(client, plan):
                continue
            await client.wait(ttl_s * client.random.choice((0.0, 0.0, 0.5)))
            if client.random.random() < 0.85:
                await client.submit(plan)
        except OVER:
            continue


async def _prepared(client: Client, plan: Transaction) -> bool:
    while True:
        try:
            result = await client.call(
                "prepare", lambda cells: cells.prepare(plan), transaction_id=plan.id, subject=plan
            )
        except PASSING:
            await client.pause()
            continue
        if not isinstance(result, Busy):
            return isinstance(result, Prepared)
        await client.pause()
