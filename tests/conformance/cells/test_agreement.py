"""Every store gives the same answers as the memory store to the same calls, in any order anyone may think of.

A seeded walk makes calls on two worlds at once, with the same ids and the same values, and compares what comes back:
results, errors by type, records, cells. What the contract leaves to the store is kept out of the walk: which instant an
open transaction sees (so it reads everything when it begins), and who is in the way of whom (so whoever is ends).
"""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

from lakepact.errors import LakepactError, SnapshotTooOld, WrongState
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Busy,
    Cell,
    CellPage,
    Conflict,
    Isolation,
    Read,
    State,
    Transaction,
    TransactionRecord,
    Write,
)
from lakepact.kernel.ports import CellStore
from tests.conformance.cells.world import Surroundings, World, keys

CELLS = keys(5)
STEPS = 120


@pytest.fixture
def memory_world(surroundings: Surroundings) -> AbstractAsyncContextManager[World]:
    # The same surroundings, so the same clock.
    return World.opened("memory", surroundings)


@pytest.mark.parametrize("seed", range(6))
async def test_two_stores_agree_on_every_answer(world: World, memory_world: World, seed: int) -> None:
    walk = Walk(world, [world.store, memory_world.store], random.Random(seed))
    for _ in range(STEPS):
        await walk.step()
    await walk.compare_cells()
    await walk.compare_records()


class Walk:
    def __init__(self, world: World, stores: list[CellStore], chance: random.Random) -> None:
        self._world = world
        self._stores = stores
        self._chance = chance
        self._revisions = dict.fromkeys(CELLS, 0)
        self._transactions: list[Transaction] = []
        self._open: list[TransactionId] = []
        self._looked: dict[TransactionId, dict[Key, Cell]] = {}
        self._number = 0

    async def step(self) -> None:
        chance = self._chance
        steps = [self._commit, self._commit, self._again, self._prepare, self._fail, self._abort, self._begin]
        steps += [self._look, self._scan_in, self._stage_on_what_was_shown, self._contents]
        steps += [self._read_in, self._stage, self._finish_open, self._renew, self._pass_time, self.compare_cells]
        await chance.choice(steps)()

    # --- calls ---

    async def _commit(self) -> None:
        transaction = self._plan()
        self._transactions.append(transaction)
        await self._same("commit", transaction, settle_conflict=self._chance.random() < 0.7)

    async def _prepare(self) -> None:
        transaction = self._plan() if self._chance.random() < 0.7 else self._some()
        self._transactions.append(transaction)
        await self._same("prepare", transaction, settle_conflict=self._chance.random() < 0.7)

    async def _again(self) -> None:
        """A transaction seen before: as it was, with a new plan, or under another hash."""
        transaction = self._some()
        match self._chance.randrange(4):
            case 0:
                transaction = replace(self._plan(), id=transaction.id, request_hash=transaction.request_hash)
            case 1 if self._chance.random() < 0.3:
                transaction = replace(transaction, request_hash="other")
        await self._same("commit", transaction)

    async def _fail(self) -> None:
        transaction = self._some()
        self._transactions.append(transaction)
        await self._same("fail", transaction.id, transaction.request_hash, {"failed": self._next()})

    async def _abort(self) -> None:
        await self._same("abort", self._some().id)

    async def _renew(self) -> None:
        await self._same("renew", self._some().id, self._chance.choice([30.0, 3_000.0]))

    async def _begin(self) -> None:
        isolation = self._chance.choice(list(Isolation))
        transaction = Transaction(self._world.id(), "hash")
        self._transactions.append(transaction)
        self._open.append(transaction.id)
        await self._same("begin", transaction.id, request_hash="hash", isolation=isolation, ttl_s=200.0)
        await self._same("read_in", transaction.id, CELLS)

    async def _read_in(self) -> None:
        if self._open:
            await self._same("read_in", self._chance.choice(self._open), self._chance.sample(CELLS, 2))

    async def _stage(self) -> None:
        if self._open:
            operation, key = f"op-{self._chance.randrange(4)}", self._chance.choice(CELLS)
            await self._same("stage", self._chance.choice(self._open), operation, {key: self._value()})

    async def _look(self) -> None:
        if self._open:
            transaction_id = self._chance.choice(self._open)
            cells = await self._same("read_in", transaction_id, self._chance.sample(CELLS, 2), note=False)
            if cells is not None:
                self._looked[transaction_id] = cells

    async def _scan_in(self) -> None:
        if self._open:
            await self._same("scan_in", self._chance.choice(self._open), CELLS[0].rpartition("/")[0])

    async def _stage_on_what_was_shown(self) -> None:
        """Shown just now, or a while ago: then it may have been staged meanwhile."""
        if self._chance.random() < 0.5:
            await self._look()
        if self._looked:
            transaction_id = self._chance.choice(list(self._looked))
            operation, key = f"op-{self._chance.randrange(40)}", self._chance.choice(CELLS)
            seen = self._looked[transaction_id]
            await self._same("stage", transaction_id, operation, {key: self._value()}, seen=seen)

    async def _contents(self) -> None:
        if self._open:
            # Whoever meets an expired transaction ends it, and not everyone met the same ones.
            for store in self._stores:
                await store.recover()
            await self._same("contents", self._chance.choice(self._open))

    async def _finish_open(self) -> None:
        if self._open:
            transaction_id = self._chance.choice(self._open)
            plan = await self._same("seal", transaction_id, {"sealed": True})
            if isinstance(plan, Transaction):
                self._transactions.append(plan)
                await self._same(self._chance.choice(["commit", "prepare"]), plan)

    async def _pass_time(self) -> None:
        self._world.clock.advance(self._chance.choice([1, 60, 300]))
        if self._chance.random() < 0.3:
            for store in self._stores:
                await store.recover()

    async def compare_cells(self) -> None:
        cells = await self._same("read", CELLS)
        self._revisions = {key: cell.revision for key, cell in cells.items()}

    async def compare_records(self) -> None:
        # Whoever meets an expired transaction ends it, and not everyone met the same ones.
        for store in self._stores:
            await store.recover()
        for transaction_id in {transaction.id for transaction in self._transactions}:
            await self._same("lookup", transaction_id)

    # --- both ---

    async def _same(self, call: str, *arguments: Any, **named: Any) -> Any:
        outcomes = [await _outcome(store, call, *arguments, **named) for store in self._stores]
        if SnapshotTooOld in outcomes:
            # One of them keeps no history. They would go different ways from here, so the transaction ends in both.
            for store in self._stores:
                await store.abort(arguments[0])
            return None
        if any(isinstance(outcome, Busy) for outcome in outcomes):
            # Who is in whose way is the stores' own affair. Once nobody is, they agree again.
            await self._end_prepared()
            for number, store in enumerate(self._stores):
                if isinstance(outcomes[number], Busy):
                    outcomes[number] = await _outcome(store, call, *arguments, **named)
        if call == "stage" and WrongState in map(_comparable, outcomes):
            # Whether a call that was staged before its transaction ended is acknowledged again is the stores' affair.
            return None
        assert _comparable(outcomes[0]) == _comparable(outcomes[1]), (call, arguments, named)
        return outcomes[0] if not isinstance(outcomes[0], type) else None

    async def _end_prepared(self) -> None:
        for store in self._stores:
            for record in (await store.transactions([State.PREPARED])).transactions:
                await store.abort(record.id)

    # --- chance ---

    def _plan(self) -> Transaction:
        chosen = self._chance.sample(CELLS, 3)
        writes, reads = chosen[: self._chance.randint(1, 2)], chosen[2 : 2 + self._chance.randint(0, 1)]
        return Transaction(
            self._world.id(),
            "hash",
            tuple(Write(key, self._guess(key), self._value()) for key in writes),
            tuple(Read(key, self._guess(key)) for key in reads),
            {"answer": self._next()},
        )

    def _guess(self, key: Key) -> int:
        """The revision last seen, or one off."""
        return max(0, self._revisions[key] + self._chance.choice([0, 0, 0, 0, 1, -1]))

    def _value(self) -> dict[str, int] | None:
        return {"n": self._next()} if self._chance.random() < 0.85 else None

    def _some(self) -> Transaction:
        """A transaction of the past, or one never heard of."""
        if self._transactions and self._chance.random() < 0.9:
            return self._chance.choice(self._transactions[-12:])
        return self._plan()

    def _next(self) -> int:
        self._number += 1
        return self._number


async def _outcome(store: CellStore, call: str, *arguments: Any, **named: Any) -> Any:
    try:
        return await getattr(store, call)(*arguments, **named)
    except LakepactError as error:
        return type(error)


def _comparable(outcome: Any) -> Any:
    """What the contract says of an outcome: not the order of cells, not instants, not how far finishing has got."""
    match outcome:
        case Conflict():
            return replace(outcome, moved=tuple(sorted(outcome.moved, key=lambda cell: cell.key)))
        case Transaction():
            writes = sorted(outcome.writes, key=lambda write: write.key)
            return replace(outcome, writes=tuple(writes), reads=tuple(sorted(outcome.reads, key=lambda read: read.key)))
        case TransactionRecord():
            known: list[Any] = []
            if outcome.state is State.FAILED:
                known = sorted(outcome.moved, key=lambda cell: cell.key)
            if outcome.state is State.COMMITTED:
                writes = sorted(outcome.writes, key=lambda write: write.key)
                known = [outcome.answer, *writes, *sorted(outcome.reads, key=lambda read: read.key)]
            return (outcome.id, outcome.state, outcome.request_hash, outcome.isolation, known)
        case type() if issubclass(outcome, WrongState):
            # A transaction that has ended is also no longer open: stores may say either.
            return WrongState
        case CellPage():
            return (sorted(outcome.cells, key=lambda cell: cell.key), outcome.after is None)
        case None | dict() | type():
            return outcome
        case _:
            return type(outcome), outcome.id, getattr(outcome, "answer", None), getattr(outcome, "replayed", None)
