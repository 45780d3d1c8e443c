"""Closed days are packed once, whoever packs them and whatever crashes."""

from __future__ import annotations

import asyncio
import gzip

import orjson
import pytest

from lakepact.catalog.receipts import date_of, receipt_name
from lakepact.upkeep.arrivals import Put, put_note, put_receipt
from lakepact.upkeep.packing import Packer
from lakepact.upkeep.segments import folder_of, manifest_name
from lakepact.upkeep.shelf import NotAReceipt, Shelf, read_manifest
from tests.support.packed_days import DAY_MS, World, receipt
from tests.support.upkeep import DAY_S, Killed, Watched


async def test_a_closed_day_is_packed_and_its_loose_files_stay() -> None:
    world = World()
    made = await world.put(*range(250)) + await world.put(*range(1_000, 1_030), kind="delta")
    await world.put(2_000, days_later=2)
    packer = await world.pack(most_receipts=100)
    assert await world.packed(world.day) == {"iceberg": list(range(250)), "delta": list(range(1_000, 1_030))}
    assert (packer.done.days, packer.done.receipts, packer.done.segments) == (1, 280, 4)
    assert {one.name for one in made} <= set(await world.names())
    manifest = orjson.loads(await world.blobs.get(manifest_name(world.day)) or b"")
    assert (manifest["format"], manifest["date"], manifest["receipts"]) == (1, world.day, 280)
    assert await read_manifest(world.blobs, date_of(world.noon_ms + 2 * DAY_MS)) is None, "today is not closed"
    before = await world.names()
    await world.pack()
    assert await world.names() == before


async def test_segments_are_lines_that_anybody_can_read() -> None:
    world = World()
    made = await world.put(*range(5))
    await world.pack()
    [name] = [name for name in await world.names(folder_of(world.day)) if name.endswith(".gz")]
    lines = gzip.decompress(await world.blobs.get(name) or b"").decode().splitlines()
    assert [orjson.loads(line) for line in lines] == [
        one.document for one in sorted(made, key=lambda one: str(one.document["commit-key"]))
    ]


async def test_segments_are_bounded_in_bytes() -> None:
    world = World()
    await world.put(*range(50))
    size = len(receipt(0, world.noon_ms).to_bytes()) + 1
    packer = await world.pack(most_bytes=size * 10)
    assert packer.done.segments in (5, 6)
    manifest = await read_manifest(world.blobs, world.day)
    assert manifest is not None and all(segment.bytes <= size * 10 for segment in manifest.segments)


async def test_what_comes_after_its_day_was_packed_is_in_the_segments_of_the_day_on_which_it_came() -> None:
    world = World()
    await world.put(1, 2)
    await world.pack()
    late = receipt(3, world.noon_ms)
    assert await put_receipt(world.blobs, world.clock, late) is Put.LATE
    came = date_of(world.clock.now_ms())
    world.clock.ahead_s += DAY_S * 1.5
    await world.pack()
    assert await world.packed(world.day) == {"iceberg": [1, 2]}, "a packed day never changes"
    assert await world.packed(came) == {"late": [3]}


async def test_a_note_without_its_receipt_says_nothing() -> None:
    """The writer died between the two. Whoever finds the receipt missing leaves another note."""
    world = World()
    await put_note(world.blobs, world.clock, receipt(1, world.noon_ms))
    came = date_of(world.clock.now_ms())
    world.clock.ahead_s += DAY_S * 1.5
    await world.pack()
    assert await world.packed(came) == {}


async def test_a_receipt_that_somebody_has_copied_to_another_day_is_the_same_receipt_there() -> None:
    world = World()
    [one] = await world.put(1)
    copy = receipt_name("table", world.noon_ms - DAY_MS, one.document["commit-key"])
    await world.blobs.put(copy, one.to_bytes())
    await world.pack()
    for date in (world.day, date_of(world.noon_ms - DAY_MS)):
        assert await world.packed(date) == {"iceberg": [1]}, "readers compare commit keys"


async def test_a_damaged_receipt_is_left_out_and_named() -> None:
    world = World()
    await world.put(1, 2)
    broken = receipt(3, world.noon_ms)
    await world.blobs.put(broken.name, b'{"format": 1, "comm')
    packer = await world.pack()
    assert packer.done.damaged == [broken.name]
    manifest = await read_manifest(world.blobs, world.day)
    assert manifest is not None and manifest.damaged == (broken.name,)
    assert await world.packed(world.day) == {"iceberg": [1, 2]}
    assert await world.blobs.get(broken.name) == b'{"format": 1, "comm'


async def test_killed_before_any_write_it_is_packed_the_same_in_the_end() -> None:
    world = World()
    await world.put(*range(30))
    await world.put(*range(100, 110), kind="delta")
    deaths = 0
    while True:
        watched = Watched(world.blobs, dies_at=deaths + 1)
        try:
            await world.pack(watched, most_receipts=10)
        except Killed:
            deaths += 1
            assert deaths < 10
            continue
        break
    assert deaths == 5, "four segments and a manifest"
    assert await world.packed(world.day) == {"iceberg": list(range(30)), "delta": list(range(100, 110))}
    assert len(await world.names(folder_of(world.day))) == 5, "no segment was made twice"


async def test_two_packers_at_once_leave_one_manifest_and_lose_nothing() -> None:
    world = World()
    await world.put(*range(100))
    one, other = world.packer(most_receipts=20), world.packer(most_receipts=30)

    async def to_the_end(packer: Packer) -> None:
        while await packer.pack_some():
            await asyncio.sleep(0)

    await asyncio.gather(to_the_end(one), to_the_end(other))
    assert await world.packed(world.day) == {"iceberg": list(range(100))}


async def test_a_shelf_knows_what_is_loose_and_what_is_packed() -> None:
    world = World()
    [packed] = await world.put(1)
    await world.pack()
    await world.blobs.delete(packed.name)
    [loose] = await world.put(2)
    broken = receipt(3, world.noon_ms)
    await world.blobs.put(broken.name, b"{")
    shelf = Shelf(world.blobs)
    assert await shelf.has(packed.name) is True
    assert await shelf.has(loose.name) is True
    assert await shelf.has(broken.name) == NotAReceipt(b"{")
    assert await shelf.has(receipt(4, world.noon_ms).name) is False


# --- lateness ---


async def test_only_what_comes_more_than_an_hour_late_leaves_a_note() -> None:
    world = World()
    for number, minutes in enumerate((0, 59, 61)):
        one = receipt(number, world.clock.now_ms() - minutes * 60_000)
        assert await put_receipt(world.blobs, world.clock, one) is (Put.LATE if minutes > 60 else Put.WRITTEN)
        assert await put_receipt(world.blobs, world.clock, one) is not Put.LATE
    notes = [name for name in await world.names() if "/arrivals/" in name]
    assert [name.rpartition("/")[2] for name in notes] == [receipt(2, 0).name.rpartition("/")[2]]


async def test_the_note_is_there_before_the_receipt() -> None:
    world = World()
    late = receipt(1, world.noon_ms)
    with pytest.raises(Killed):
        await put_receipt(Watched(world.blobs, dies_at=2), world.clock, late)
    assert [name.split("/")[3] for name in await world.names()] == ["arrivals"]
    assert await put_receipt(world.blobs, world.clock, late) is Put.LATE
    assert late.name in await world.names()


async def test_past_midnight_there_is_a_note_on_either_day() -> None:
    world = World()

    class Slow(Watched):
        async def put(self, name: str, data: bytes) -> bool:
            if "/committed/" in name:
                world.clock.ahead_s += DAY_S
            return await super().put(name, data)

    await put_receipt(Slow(world.blobs), world.clock, receipt(1, world.noon_ms))
    assert len([name for name in await world.names() if "/arrivals/" in name]) == 2
