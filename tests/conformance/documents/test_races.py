"""Races: one winner, and no update lost.

Not on moto: its server checks a condition and writes in two steps on several threads, so two puts can both pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lakepact.kernel.ports import Applied, DocumentStore, Refused, Unknown
from tests.support.stores import KINDS, Place, opened_documents, place_for

ATOMIC_KINDS = [kind for kind in KINDS if kind != "s3-moto"]


@pytest.fixture(params=ATOMIC_KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_for(request.param, tmp_path) as place:
        yield place


async def several(place: Place, stack: AsyncExitStack, count: int) -> list[DocumentStore]:
    first = await stack.enter_async_context(opened_documents(place))
    if place.kind == "memory":
        return [first] * count
    return [first, *[await stack.enter_async_context(opened_documents(place)) for _ in range(count - 1)]]


async def test_of_32_concurrent_creators_exactly_one_succeeds(place: Place) -> None:
    async with AsyncExitStack() as stack:
        stores = await several(place, stack, 4)
        for round_number in range(3):
            name = f"cells/contested-{round_number}.json"
            bids = [b'{"creator":%d}' % creator for creator in range(32)]

            outcomes = await asyncio.gather(
                *(stores[number % 4].create(name, data) for number, data in enumerate(bids))
            )

            winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Applied)]
            assert len(winners) == 1
            assert all(outcome == Refused() for number, outcome in enumerate(outcomes) if number != winners[0])
            document = await stores[0].get(name)
            assert document is not None
            assert document.data == bids[winners[0]]


async def test_of_32_concurrent_swaps_of_one_version_exactly_one_succeeds(place: Place) -> None:
    async with AsyncExitStack() as stack:
        stores = await several(place, stack, 4)
        created = await stores[0].create("cells/contested.json", b"{}")
        assert isinstance(created, Applied)
        bids = [b'{"swapper":%d}' % swapper for swapper in range(32)]

        outcomes = await asyncio.gather(
            *(stores[number % 4].swap("cells/contested.json", created.token, data) for number, data in enumerate(bids))
        )

        winners = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Applied)]
        assert len(winners) == 1
        assert all(outcome == Refused() for number, outcome in enumerate(outcomes) if number != winners[0])
        document = await stores[0].get("cells/contested.json")
        assert document is not None
        assert document.data == bids[winners[0]]


async def test_a_counter_never_loses_an_update(place: Place) -> None:
    increments = 12

    async def count(store: DocumentStore) -> None:
        done = 0
        while done < increments:
            document = await store.get("cells/counter.json")
            assert document is not None
            outcome = await store.swap("cells/counter.json", document.token, b"%d" % (int(document.data) + 1))
            assert not isinstance(outcome, Unknown), outcome
            done += isinstance(outcome, Applied)

    async with AsyncExitStack() as stack:
        stores = await several(place, stack, 4)
        await stores[0].create("cells/counter.json", b"0")

        await asyncio.gather(*(count(store) for store in stores * 2))

        document = await stores[0].get("cells/counter.json")
        assert document is not None
        assert int(document.data) == increments * 8


# Not on memory: none of its steps can be interrupted, so its reader would never let the writer in.
@pytest.mark.parametrize("place", [kind for kind in ATOMIC_KINDS if kind != "memory"], indirect=True)
async def test_a_reader_never_sees_half_a_document(place: Place) -> None:
    writing = True

    async def read(store: DocumentStore) -> int:
        seen = 0
        while writing:
            document = await store.get("cells/big.json")
            assert document is not None
            assert len(set(document.data)) == 1
            assert len(document.data) == 100_000
            seen += 1
        return seen

    async def write(store: DocumentStore) -> None:
        nonlocal writing
        for fill in (b"b", b"c", b"d", b"e", b"f", b"g"):
            document = await store.get("cells/big.json")
            assert document is not None
            assert isinstance(await store.swap("cells/big.json", document.token, fill * 100_000), Applied)
        writing = False

    async with AsyncExitStack() as stack:
        first, second, third = await several(place, stack, 3)
        await first.create("cells/big.json", b"a" * 100_000)
        seen, *_ = await asyncio.gather(read(first), read(second), write(third))

        assert seen > 0
