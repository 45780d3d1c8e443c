"""Documents of the next format are read and kept; documents beyond it are refused and never rewritten."""

from __future__ import annotations

import orjson
import pytest

from lakepact.errors import FormatTooNew, MissingRecord, Unreadable
from lakepact.kernel.documents import name_of_record
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, key_of, name_of_cell
from lakepact.kernel.model import Committed, Transaction, Write
from lakepact.kernel.settings import KernelSettings
from tests.unit.kernel.worlds import World, run

KEY = key_of("main", "tables", "orders")


def future_cell(document_format: int, **extra: object) -> bytes:
    fields = {"format": document_format, "key": KEY, "revision": 4, "writes": 9, "value": {"n": 4}, "writer": None}
    return orjson.dumps({**fields, **extra})


def change(world: World, revision: int, key: Key = KEY) -> Transaction:
    return Transaction(world.fresh_id(), "hash", (Write(key, revision, {"n": revision + 1}),))


async def stored(world: World, name: str) -> dict[str, object]:
    document = await world.documents.get(name)
    assert document is not None
    loaded: dict[str, object] = orjson.loads(document.data)
    return loaded


def test_a_document_of_the_next_format_is_read_and_its_unknown_fields_survive_a_rewrite() -> None:
    async def claim(world: World) -> None:
        await world.documents.create(name_of_cell(KEY), future_cell(2, colour="blue"))
        assert (await world.cells.read([KEY]))[KEY].revision == 4
        assert isinstance(await world.cells.commit(change(world, 4)), Committed)
        await world.tasks.drain()
        after = await stored(world, name_of_cell(KEY))
        assert (after["format"], after["revision"], after["colour"]) == (2, 5, "blue")

    run(claim)


def test_a_document_beyond_the_next_format_is_refused_and_left_as_it_is() -> None:
    async def claim(world: World) -> None:
        data = future_cell(3)
        await world.documents.create(name_of_cell(KEY), data)
        with pytest.raises(FormatTooNew, match="Upgrade this process"):
            await world.cells.read([KEY])
        with pytest.raises(FormatTooNew):
            await world.cells.commit(change(world, 4))
        document = await world.documents.get(name_of_cell(KEY))
        assert document is not None and document.data == data

    run(claim)


def test_a_process_writes_the_next_format_once_it_is_switched() -> None:
    async def claim(world: World) -> None:
        await world.cells.commit(change(world, 0))
        await world.tasks.drain()
        assert (await stored(world, name_of_cell(KEY)))["format"] == 1
        world.settings = KernelSettings(write_format=2)
        switched = world.another_process()
        transaction = change(world, 1)
        assert isinstance(await switched.commit(transaction), Committed)
        await world.tasks.drain()
        assert (await stored(world, name_of_cell(KEY)))["format"] == 2
        assert (await stored(world, name_of_record(transaction.id)))["format"] == 2
        # A process that still writes the old format reads it, and does not take it back.
        assert isinstance(await world.cells.commit(change(world, 2)), Committed)
        await world.tasks.drain()
        assert (await stored(world, name_of_cell(KEY)))["format"] == 2

    run(claim)


@pytest.mark.parametrize("data", [b"", b"not json", b"[]", b"{}", b'{"format": 1}', b'{"format": "1"}'])
def test_a_damaged_document_is_an_error_that_names_it(data: bytes) -> None:
    async def claim(world: World) -> None:
        await world.documents.create(name_of_cell(KEY), data)
        with pytest.raises(Unreadable, match="cells/main/tables/orders"):
            await world.cells.read([KEY])

    run(claim)


def test_a_lock_whose_record_is_missing_fails_closed() -> None:
    async def claim(world: World) -> None:
        lost = world.fresh_id()
        await world.documents.create(name_of_cell(KEY), future_cell(1, lock={"tx": lost, "epoch": 1}))
        with pytest.raises(MissingRecord, match=lost):
            await world.cells.read([KEY])
        with pytest.raises(MissingRecord):
            await world.cells.commit(change(world, 4))

    run(claim)


def test_a_cell_in_the_place_of_another_is_damage() -> None:
    async def claim(world: World) -> None:
        other = key_of("main", "tables", "customers")
        await world.documents.create(name_of_cell(other), future_cell(1))
        with pytest.raises(Unreadable, match="orders"):
            await world.cells.read([other])

    run(claim)


def test_64_bit_integers_and_unicode_survive() -> None:
    async def claim(world: World) -> None:
        value = {"snapshot": 9_223_372_036_854_775_807, "name": "täble ☃", "nested": {"a": [1, None, True]}}
        transaction = Transaction(world.fresh_id(), "hash", (Write(KEY, 0, value),), answer={"id": -(2**63)})
        await world.cells.commit(transaction)
        cold = world.another_process()
        assert (await cold.read([KEY]))[KEY].value == value
        record = await cold.lookup(TransactionId(transaction.id.upper()))
        assert record is not None and record.answer == {"id": -(2**63)}

    run(claim)
