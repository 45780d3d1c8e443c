"""Several clients in one open transaction, through different processes: each reads, adds its mark, and stages.

A counter holds the marks of all operations that raised it. Whoever stages hands in what it was shown, so of two that
were planned on the same value one is refused and plans again. In the end every acknowledged mark is there, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakepact.errors import StagedMeanwhile
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, Transaction
from tests.sim.actors.overlays import OVER
from tests.sim.broken import PromiseBroken
from tests.sim.client import PASSING, Client
from tests.sim.formats import short
from tests.sim.oracle import Effect, Oracle
from tests.sim.scheduler import Scheduler


def marks_of(value: Mapping[str, object] | None) -> list[str]:
    marks = (value or {}).get("marks", [])
    assert isinstance(marks, list)
    return marks


class Shared:
    """One open transaction, and which marks were acknowledged in it."""

    def __init__(self, transaction_id: TransactionId) -> None:
        self.id = transaction_id
        self.acknowledged: dict[str, Sequence[Key]] = {}
        self.hidden: list[str] = []
        """What a look did not show though it had been acknowledged before: never staged, or only not looked at."""

    def check(self, counters: Mapping[Key, Mapping[str, object] | None], told: str) -> None:
        """Every acknowledged mark is in its counters, and none is there twice."""
        for key, value in counters.items():
            marks = marks_of(value)
            if len(set(marks)) < len(marks):
                raise PromiseBroken("P3", f"{short(self.id)}: {told} has marks twice in {key}: {marks}")
        for mark, keys in self.acknowledged.items():
            for key in keys:
                if mark not in marks_of(counters.get(key)):
                    raise PromiseBroken("P2", f"{short(self.id)}: mark {mark} was staged in {key}, and {told} lost it")
        if self.hidden:
            raise PromiseBroken("P1", f"{short(self.id)}: {told} has them all, but {self.hidden[0]}")


async def sharing(
    clients: Sequence[Client], scheduler: Scheduler, counters: Sequence[Key], others: Sequence[Key], rounds: int
) -> None:
    """The first client opens a transaction and ends it; in between all of them work in it at the same time."""
    first = clients[0]
    for _ in range(rounds):
        await first.pause()
        if not first.running:
            return
        shared = Shared(first.new_id())
        isolation = first.random.choice((Isolation.SERIALIZABLE, Isolation.SNAPSHOT))
        try:
            await first.insist(
                lambda shared=shared, isolation=isolation: first.call(  # type: ignore[misc]
                    "begin",
                    lambda cells: cells.begin(shared.id, isolation=isolation),
                    transaction_id=shared.id,
                    subject=isolation,
                )
            )
            await scheduler.all([_worker(client, shared, counters, others) for client in clients])
            await _end(first, shared)
        except OVER:
            continue


async def _worker(client: Client, shared: Shared, counters: Sequence[Key], others: Sequence[Key]) -> None:
    for _ in range(client.random.randint(1, 3)):
        await client.pause()
        mark = f"{client.random.getrandbits(48):012x}"
        raised = client.some(counters, 2)
        beside = client.some(others, 1) if client.random.random() < 0.3 else []
        try:
            await _raise(client, shared, mark, raised, beside)
        except OVER:
            return


async def _raise(client: Client, shared: Shared, mark: str, raised: Sequence[Key], beside: Sequence[Key]) -> None:
    """One operation, under one id however often it is planned: on a refusal, and as often on no answer at all."""
    while True:
        acknowledged_before = [done for done, keys in shared.acknowledged.items() if set(raised) & set(keys)]
        seen = await client.insist(lambda: _look(client, shared, [*raised, *beside]))
        for done in acknowledged_before:
            for key in shared.acknowledged[done]:
                if key in raised and done not in marks_of(seen[key].value):
                    shared.hidden.append(f"{key} was shown without mark {done} after it had been acknowledged")
        writes = {key: {"marks": [*marks_of(seen[key].value), mark]} for key in raised}
        handed_in = {key: cell.revision for key, cell in seen.items() if cell.writer != shared.id}
        while True:
            try:
                await client.call(
                    "stage",
                    lambda cells, writes=writes, seen=seen: cells.stage(shared.id, mark, writes, seen=seen),  # type: ignore[misc]
                    transaction_id=shared.id,
                    subject=(mark, handed_in),
                )
                shared.acknowledged[mark] = raised
                return
            except StagedMeanwhile:
                break
            except PASSING:
                await client.pause()
                if client.random.random() < 0.5:
                    break


async def _look(client: Client, shared: Shared, keys: Sequence[Key]) -> Mapping[Key, Cell]:
    return await client.call("look", lambda cells: cells.read_in(shared.id, keys, note=False), transaction_id=shared.id)


async def _end(client: Client, shared: Shared) -> None:
    if client.random.random() < 0.3:
        contents: Transaction = await client.insist(
            lambda: client.call("contents", lambda cells: cells.contents(shared.id), transaction_id=shared.id)
        )
        if not contents.sealed:
            shared.check({write.key: write.value for write in contents.writes}, "what it holds")
    plan: Transaction = await client.insist(
        lambda: client.call("seal", lambda cells: cells.seal(shared.id), transaction_id=shared.id)
    )
    shared.check({write.key: write.value for write in plan.writes}, "its plan")
    await client.submit(plan)


def marks_only_grow(oracle: Oracle, effect: Effect) -> None:
    """A commit adds marks to those that were there, and adds none of them twice."""
    for key, (revision, value) in effect.writes.items():
        before = marks_of(oracle.history_of(key)[revision].value)
        after = marks_of(value)
        if after[: len(before)] != before:
            raise PromiseBroken("P2", f"{short(effect.id)} has replaced the marks {before} of {key} by {after}")
        if len(set(after)) < len(after):
            raise PromiseBroken("P3", f"{short(effect.id)} has left marks twice in {key}: {after}")
