"""Many at once, over several handles: what must hold in every order."""

from __future__ import annotations

import asyncio
import random

from lakepact.errors import Contended, OutcomeUnknown
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Busy, CommitResult, Committed, Conflict, Transaction
from lakepact.kernel.ports import CellStore
from tests.conformance.cells.world import A, B, C, World, keys


async def _commit(store: CellStore, transaction: Transaction) -> CommitResult:
    """Commit until it is decided: busy, contended and unknown mean that the same id may try again."""
    while True:
        try:
            result = await store.commit(transaction)
        except (Contended, OutcomeUnknown):
            continue
        if not isinstance(result, Busy):
            return result


async def test_p2_no_increment_is_lost(world: World) -> None:
    handles = [world.store, await world.open()]
    await world.put({A: {"n": 0}})

    async def increment(store: CellStore, times: int) -> None:
        while times:
            cell = (await store.read([A]))[A]
            assert cell.value is not None
            if isinstance(
                await _commit(store, world.transaction({A: (cell.revision, {"n": cell.value["n"] + 1})})), Committed
            ):
                times -= 1

    await asyncio.gather(*(increment(handles[number % 2], 4) for number in range(8)))
    cell = await world.cell(A)
    assert (cell.value, cell.revision) == ({"n": 32}, 33)


async def test_of_those_who_plan_on_one_revision_one_commits_while_an_open_transaction_remembers(world: World) -> None:
    handles = [world.store, await world.open()]
    cells = keys(3, "shared")
    await world.put({key: {"n": 0} for key in cells})
    await world.store.begin(world.id())
    for revision in range(1, 9):
        # In any order: what is kept of the past is kept by one of them, and nobody waits in a circle.
        plans = [
            world.transaction({key: (revision, {"n": revision}) for key in (cells if number % 2 else cells[::-1])})
            for number in range(6)
        ]
        results = await asyncio.gather(*(_commit(handles[number % 2], plan) for number, plan in enumerate(plans)))
        assert sorted(type(one).__name__ for one in results) == ["Committed"] + ["Conflict"] * 5


async def test_p1_an_auditor_never_sees_money_come_or_go(world: World) -> None:
    handles = [world.store, await world.open()]
    accounts = keys(6, "accounts")
    await world.put({key: {"balance": 100} for key in accounts})
    working = 4

    async def transfer(number: int, store: CellStore) -> None:
        nonlocal working
        chance = random.Random(number)
        for _ in range(12):
            legs = chance.sample(accounts, 3)
            cells = await store.read(legs)
            amounts = (-2, 1, 1)
            await _commit(
                store,
                world.transaction(
                    {
                        key: (cells[key].revision, {"balance": (cells[key].value or {})["balance"] + amount})
                        for key, amount in zip(legs, amounts, strict=True)
                    }
                ),
            )
        working -= 1

    async def audit(store: CellStore) -> int:
        cuts = 0
        while working:
            cells = await store.read(accounts)
            assert sum((cell.value or {})["balance"] for cell in cells.values()) == 600
            cuts += 1
        return cuts

    *_, cuts = await asyncio.gather(
        *(transfer(number, handles[number % 2]) for number in range(4)), audit(handles[0]), audit(handles[1])
    )
    assert cuts
    assert sum((cell.value or {})["balance"] for cell in (await world.store.read(accounts)).values()) == 600


async def test_p3_one_id_committed_by_many_takes_effect_once(world: World) -> None:
    handles = [world.store, await world.open()]
    await world.put({A: {"n": 0}})
    plan = world.transaction({A: (1, {"n": 1}), B: (0, {"n": 1})}, answer={"ok": True})
    results = await asyncio.gather(*(_commit(handles[number % 2], plan) for number in range(10)))
    assert all(isinstance(result, Committed) and result.answer == {"ok": True} for result in results)
    assert [(await world.cell(key)).revision for key in (A, B)] == [2, 1]


async def test_p2_of_many_creations_of_one_cell_one_wins(world: World) -> None:
    handles = [world.store, await world.open()]
    plans = [world.transaction({A: (0, {"by": number}), B: (0, {"by": number})}) for number in range(8)]
    results = await asyncio.gather(*(_commit(handles[number % 2], plan) for number, plan in enumerate(plans)))
    winners = [plan for plan, result in zip(plans, results, strict=True) if isinstance(result, Committed)]
    assert len(winners) == 1
    cells = await world.store.read([A, B])
    assert {cell.writer for cell in cells.values()} == {winners[0].id}
    assert {cell.revision for cell in cells.values()} == {1}


async def _skew(world: World, first: Key, second: Key, revision: int, rounds: int) -> None:
    """Two transactions, each of which reads both cells and writes one: they must not both commit."""
    handles = [world.store, await world.open()]
    for number in range(rounds):
        plans = [
            world.transaction({first: (revision + number, {"by": 0})}, {second: revision}),
            world.transaction({second: (revision, {"by": 1})}, {first: revision + number}),
        ]
        results = await asyncio.gather(*(_commit(store, plan) for store, plan in zip(handles, plans, strict=True)))
        assert sum(isinstance(result, Committed) for result in results) == 1
        if isinstance(results[1], Committed):
            return


async def test_p4_write_skew_is_impossible(world: World) -> None:
    await world.put({A: {"on": 1}, B: {"on": 1}})
    await _skew(world, A, B, 1, 6)


async def test_p4_write_skew_is_impossible_on_cells_that_do_not_exist_yet(world: World) -> None:
    for number in range(6):
        first, second = keys(2, f"skew-{number}")
        await _skew(world, first, second, 0, 1)


async def test_p4_of_three_in_a_circle_not_all_commit(world: World) -> None:
    """Each reads what the next one writes: any two of them are fine, all three would have no order."""
    for number in range(4):
        cells = keys(3, f"circle-{number}")
        plans = [world.transaction({cells[i]: (0, {"by": i})}, {cells[(i + 1) % 3]: 0}) for i in range(3)]
        results = await asyncio.gather(*(_commit(world.store, plan) for plan in plans))
        assert 1 <= sum(isinstance(result, Committed) for result in results) < 3


async def test_p6_transactions_over_the_same_cells_in_any_order_all_get_an_answer(world: World) -> None:
    handles = [world.store, await world.open()]
    cells = keys(5)
    await world.put({key: {"n": 0} for key in cells})
    chance = random.Random(7)

    async def work(store: CellStore, orders: list[list[Key]]) -> int:
        committed = 0
        for order in orders:
            found = await store.read(order)
            reads = {key: found[key].revision for key in order[3:]}
            writes = {key: (found[key].revision, {"n": 1}) for key in order[:3]}
            result = await _commit(store, world.transaction(writes, reads))
            assert isinstance(result, Committed | Conflict)
            committed += isinstance(result, Committed)
        return committed

    orders = [[chance.sample(cells, 5) for _ in range(6)] for _ in range(6)]
    committed = sum(await asyncio.gather(*(work(handles[i % 2], orders[i]) for i in range(6))))
    assert committed > 0
    found = await world.store.read(cells)
    assert sum(cell.revision - 1 for cell in found.values()) == 3 * committed


async def test_p10_commits_on_different_cells_all_go_through_at_once(world: World) -> None:
    results = await asyncio.gather(
        *(world.store.commit(world.transaction({key: (0, {"n": 1})}, {C: 0})) for key in keys(20))
    )
    assert all(isinstance(result, Committed) for result in results)


async def test_p9_a_failure_and_a_commit_of_one_id_agree_on_the_answer(world: World) -> None:
    handles = [world.store, await world.open()]
    for _ in range(6):
        plan = world.transaction({A: ((await world.cell(A)).revision, {"n": 1})}, answer={"committed": True})

        async def fail(plan: Transaction = plan) -> object:
            while True:
                try:
                    return await handles[1].fail(plan.id, plan.request_hash, {"failed": True})
                except Exception as error:
                    if getattr(error, "type", "") != "contended":
                        raise

        one, two = await asyncio.gather(_commit(handles[0], plan), fail())
        assert type(one) is type(two)
        assert one.answer == two.answer  # type: ignore[union-attr]
