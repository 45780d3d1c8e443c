"""Closed days are packed once, whoever packs them and whatever crashes; nothing is removed before its time."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from lakepact.catalog import Catalog, CatalogSettings
from lakepact.catalog.receipts import Receipt, date_of, receipt_name
from lakepact.catalog.warehouse import Warehouse
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Transaction, Write
from lakepact.kernel.ports import BlobStore
from lakepact.runtime import AsyncioTasks, SystemRng
from lakepact.stores import open_store
from lakepact.stores.memory import MemoryBlobs
from lakepact.upkeep.arrivals import Put, put_note, put_receipt
from lakepact.upkeep.packing import Packer
from lakepact.upkeep.retention import POSITION, Removed, Retention
from lakepact.upkeep.segments import folder_of, manifest_name, unpack
from lakepact.upkeep.shelf import NotAReceipt, Shelf, read_manifest
from tests.support.upkeep import DAY_S, HOUR_S, Ahead, Killed, Watched

DAY_MS = int(DAY_S * 1000)
ROOT = "memory://w"


def receipt(number: int, committed_ms: int, kind: str = "table") -> Receipt:
    key = hashlib.sha256(str(number).encode()).hexdigest()
    document = {"format": 1, "commit-key": key, "committed-ms": committed_ms, "kind": kind, "number": number}
    return Receipt(receipt_name(kind, committed_ms, key), document)


class World:
    """A warehouse with receipts of two days ago, and a clock."""

    def __init__(self) -> None:
        self.blobs = MemoryBlobs()
        self.clock = Ahead()
        self.noon_ms = (self.clock.now_ms() // DAY_MS - 2) * DAY_MS + DAY_MS // 2
        self.day = date_of(self.noon_ms)

    async def put(self, *numbers: int, kind: str = "table", days_later: int = 0) -> list[Receipt]:
        made = [receipt(number, self.noon_ms + number + days_later * DAY_MS, kind) for number in numbers]
        for one in made:
            await self.blobs.put(one.name, one.to_bytes())
        return made

    def packer(self, blobs: BlobStore | None = None, **more: Any) -> Packer:
        return Packer({"main": blobs or self.blobs}, self.clock, after_s=6 * HOUR_S, **more)

    async def pack(self, blobs: BlobStore | None = None, **more: Any) -> Packer:
        packer = self.packer(blobs, **more)
        while await packer.pack_some():
            pass
        return packer

    async def packed(self, date: str) -> dict[str, list[int]]:
        """By the kind of segment: the numbers of the receipts in it."""
        manifest = await read_manifest(self.blobs, date)
        assert manifest is not None
        found: dict[str, list[int]] = {}
        for segment in manifest.segments:
            receipts = unpack(segment, await self.blobs.get(folder_of(date) + segment.name))
            keys = [one["commit-key"] for one in receipts]
            assert (keys, keys[0], keys[-1], len(keys)) == (sorted(keys), segment.first, segment.last, segment.receipts)
            found.setdefault(segment.name.partition("-")[0], []).extend(one["number"] for one in receipts)
        return {kind: sorted(numbers) for kind, numbers in found.items()}

    async def names(self, prefix: str = "") -> list[str]:
        return [entry.name for entry in await self.blobs.list(prefix, None, 100_000)]


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


# --- retention ---


async def removed(world: World, *, through: str | None, receipt_days: int = 90, loose_days: int = 90) -> Removed:
    store = await open_store("memory://")
    catalog = Catalog(
        Warehouse("main", ROOT), store, world.blobs, world.clock, SystemRng(), AsyncioTasks(), CatalogSettings()
    )
    if through is not None:
        key = key_of("main", "state", POSITION)
        write = Write(key, 0, {"value": {"through": through}})
        await store.commit(Transaction(uuid7(Ahead().now_ms(), 1), "", (write,)))
    retention = Retention({"main": catalog}, world.clock, receipt_days=receipt_days, loose_days=loose_days)
    while await retention.remove_some():
        pass
    await store.close()
    return retention.done


def later(world: World, days: float) -> str:
    world.clock.ahead_s += days * DAY_S
    return date_of(world.clock.now_ms())


async def packed_world(numbers: Iterable[int] = range(10)) -> World:
    world = World()
    await world.put(*numbers)
    await world.pack()
    return world


async def test_nothing_is_removed_that_is_not_projected() -> None:
    world = await packed_world()
    before = await world.names()
    today = later(world, 400)
    assert await removed(world, through=None, loose_days=1, receipt_days=1) == Removed()
    earlier = date_of(world.noon_ms - DAY_MS)
    assert await removed(world, through=earlier, loose_days=1, receipt_days=1) == Removed()
    assert await world.names() == before
    assert (await removed(world, through=today)).days == 1
    assert not await world.names()


async def test_nothing_is_removed_before_its_time() -> None:
    world = await packed_world()
    before = await world.names()
    today = later(world, 88)
    assert await removed(world, through=today) == Removed()
    assert await world.names() == before


async def test_kept_for_ever_only_loose_files_go_and_segments_stay() -> None:
    world = await packed_world()
    today = later(world, 400)
    assert await removed(world, through=today, receipt_days=0, loose_days=7) == Removed(loose=10)
    assert await world.packed(world.day) == {"iceberg": list(range(10))}
    assert len(await world.names()) == 2


async def test_loose_files_stay_if_their_day_is_not_packed_or_a_segment_is_damaged() -> None:
    world = World()
    await world.put(1, 2)
    today = later(world, 30)
    assert await removed(world, through=today, loose_days=7) == Removed()
    await world.pack()
    [segment] = [name for name in await world.names(folder_of(world.day)) if name.endswith(".gz")]
    whole = await world.blobs.get(segment)
    assert whole is not None
    await world.blobs.delete(segment)
    await world.blobs.put(segment, whole[:-10])
    assert await removed(world, through=today, loose_days=7) == Removed()
    await world.blobs.delete(segment)
    await world.blobs.put(segment, whole)
    assert await removed(world, through=today, loose_days=7) == Removed(loose=2)


async def test_a_loose_receipt_that_is_in_no_segment_of_its_day_stays() -> None:
    world = await packed_world()
    late = receipt(99, world.noon_ms)
    await put_receipt(world.blobs, world.clock, late)
    today = later(world, 30)
    await world.pack()
    done = await removed(world, through=today, loose_days=7)
    assert (done.loose, done.notes) == (10, 1), "the note's receipt is in a segment of the day on which it came"
    assert late.name in await world.names()


async def test_what_came_after_the_projections_last_looked_waits_for_them() -> None:
    world = await packed_world()
    # By the store's clock it was written today.
    through = date_of(world.clock.now_ms() - DAY_MS)
    later(world, 400)
    done = await removed(world, through=through)
    assert (done.days, done.loose) == (0, 0)
    assert (await removed(world, through=date_of(world.clock.now_ms()))).days == 1


async def test_a_removal_that_was_cut_short_is_finished_by_the_next() -> None:
    world = await packed_world()
    today = later(world, 400)
    blobs = world.blobs
    for dies_at in range(1, 13):
        world.blobs = Watched(blobs, dies_at=dies_at)  # type: ignore[assignment]
        try:
            await removed(world, through=today)
        except Killed:
            manifest = await blobs.get(manifest_name(world.day))
            segments = [entry.name for entry in await blobs.list(folder_of(world.day)) if entry.name.endswith(".gz")]
            assert manifest is None or segments, "a manifest never names what is not there"
    assert not await blobs.list("")


async def test_segments_of_a_packer_that_was_not_the_first_are_removed() -> None:
    world = await packed_world()
    orphan = f"{folder_of(world.day)}iceberg-00007-0123456789abcdef.jsonl.gz"
    await world.blobs.put(orphan, b"x")
    today = later(world, 30)
    assert (await removed(world, through=today, loose_days=7)).segments == 1
    assert orphan not in await world.names()
    assert await world.packed(world.day) == {"iceberg": list(range(10))}
