"""How many rounds of requests each operation takes on a document store. Counted, not timed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Committed, Read, Transaction, Write
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores.memory import MemoryDocuments
from tests.support.rounds import RoundCounting


class World:
    def __init__(self) -> None:
        self.memory = MemoryDocuments()
        self.documents = RoundCounting(self.memory)
        self.cells = self.another_process()

    def another_process(self) -> DocumentCells:
        return DocumentCells(self.documents, SystemClock(), SystemRng(), AsyncioTasks())

    async def commit(self, keys: list[Key], revision: int, reads: tuple[Read, ...] = ()) -> int:
        """Commit one change to each cell and wait for the background work; the rounds until the answer."""
        transaction = Transaction(
            fresh_id(), "hash", tuple(Write(key, revision, {"n": revision}) for key in keys), reads
        )
        result, rounds = await self.documents.count(lambda: self.cells.commit(transaction))
        assert isinstance(result, Committed)
        return rounds


def fresh_id() -> TransactionId:
    return uuid7(SystemClock().now_ms(), SystemRng().bits(74))


def keys(count: int) -> list[Key]:
    return [key_of("main", "tables", f"t{number}") for number in range(count)]


def run(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await test(world)
        await world.documents.settle()

    asyncio.run(main())


@pytest.mark.parametrize("count", [1, 10, 100])
def test_a_commit_takes_three_rounds_whatever_the_number_of_cells(count: int) -> None:
    async def claim(world: World) -> None:
        assert await world.commit(keys(count), 0) == 3
        await world.documents.settle()
        assert await world.commit(keys(count), 1) == 3

    run(claim)


@pytest.mark.parametrize("count", [1, 10, 100])
def test_a_cold_process_reads_beside_creating_the_record(count: int) -> None:
    async def claim(world: World) -> None:
        await world.commit(keys(count), 0)
        await world.documents.settle()
        world.cells = world.another_process()
        assert await world.commit(keys(count), 1) == 3

    run(claim)


@pytest.mark.parametrize("count", [1, 10, 100])
def test_a_cold_caller_that_reads_first_takes_at_most_four_rounds_for_one_cell_and_five_for_a_cut(count: int) -> None:
    async def claim(world: World) -> None:
        await world.commit(keys(count), 0)
        await world.documents.settle()
        world.cells = world.another_process()
        _, reading = await world.documents.count(lambda: world.cells.read(keys(count)))
        assert reading == (1 if count == 1 else 2)
        assert await world.commit(keys(count), 1) == 3

    run(claim)


def test_unfinalized_cells_cost_the_same_process_no_round() -> None:
    async def claim(world: World) -> None:
        await world.commit(keys(10), 0)
        # No settling: the values of the first commit are still to be written into the cells.
        assert await world.commit(keys(10), 1) <= 5

    run(claim)


def test_read_only_cells_add_one_round_for_validation() -> None:
    async def claim(world: World) -> None:
        await world.commit(keys(3), 0)
        await world.documents.settle()
        assert await world.commit(keys(2), 1, (Read(keys(3)[2], 1),)) == 4

    run(claim)


@pytest.mark.parametrize("count", [2, 10, 100])
def test_a_warm_cut_takes_one_round(count: int) -> None:
    async def claim(world: World) -> None:
        await world.commit(keys(count), 0)
        await world.documents.settle()
        _, warm = await world.documents.count(lambda: world.cells.read(keys(count)))
        assert warm == 1

    run(claim)


def test_a_page_takes_one_round_to_list_and_one_to_read_what_is_not_remembered() -> None:
    async def claim(world: World) -> None:
        await world.commit(keys(10), 0)
        await world.documents.settle()
        _, warm = await world.documents.count(lambda: world.cells.scan("main/tables"))
        assert warm == 1
        world.cells = world.another_process()
        page, cold = await world.documents.count(lambda: world.cells.scan("main/tables"))
        assert cold == 2
        assert len(page.cells) == 10

    run(claim)


def test_an_operation_in_an_overlay_takes_one_round_to_look_and_two_to_stage() -> None:
    async def claim(world: World) -> None:
        await world.commit(keys(20), 0)
        await world.documents.settle()
        opened = fresh_id()
        await world.documents.count(lambda: world.cells.begin(opened))
        for number, key in enumerate(keys(20)):
            around = [key, key_of("main", "names", key)]
            seen, looking = await world.documents.count(
                lambda around=around: world.cells.read_in(opened, around, note=False)  # type: ignore[misc]
            )
            _, staging = await world.documents.count(
                lambda number=number, key=key, seen=seen: world.cells.stage(  # type: ignore[misc]
                    opened, f"op{number}", {key: {"n": number}}, seen=seen
                )
            )
            # The first look reads the log, and cells that this process has never met are read twice for a cut.
            assert (looking, staging) == (3 if number == 0 else 2, 2)
            _, again = await world.documents.count(
                lambda around=around: world.cells.read_in(opened, around, note=False)  # type: ignore[misc]
            )
            assert again == 1
        page, scanning = await world.documents.count(lambda: world.cells.scan_in(opened, "main/tables"))
        assert (len(page.cells), scanning) == (20, 1)

    run(claim)


def test_looks_of_a_cold_process_take_one_more_round_for_what_is_staged_meanwhile() -> None:
    async def claim(world: World) -> None:
        opened, (key,) = fresh_id(), keys(1)
        await world.documents.count(lambda: world.cells.begin(opened))
        await world.documents.count(lambda: world.cells.stage(opened, "first", {key: {"n": 0}}))
        cold = world.another_process()
        # The change lands after both looks have listed the log, each for itself, and before they look on.
        (_, *looks), rounds = await world.documents.count(
            lambda: asyncio.gather(
                world.cells.stage(opened, "op", {key: {"n": 1}}),
                cold.read_in(opened, [key], note=False),
                cold.read_in(opened, [key], note=False),
            )
        )
        assert [look[key].value for look in looks] == [{"n": 1}] * 2
        assert rounds == 5

    run(claim)


def test_the_thousandth_staged_change_takes_as_many_rounds_as_the_first() -> None:
    async def claim(world: World) -> None:
        opened = fresh_id()
        await world.documents.count(lambda: world.cells.begin(opened))
        taken = []
        for number in range(50):
            key = key_of("main", "tables", f"t{number}")
            _, rounds = await world.documents.count(
                lambda key=key, number=number: world.cells.stage(opened, f"op{number}", {key: {"n": 1}})  # type: ignore[misc]
            )
            taken.append(rounds)
        assert max(taken[1:]) == min(taken[1:]) == 2

    run(claim)
