"""A packed day that is damaged is made again from what is left of it; what is lost is said, once, and stops nobody."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable

import pytest

from lakepact.catalog.receipts import date_of
from lakepact.errors import Unreadable
from lakepact.upkeep.arrivals import put_receipt
from lakepact.upkeep.mending import Mended, damages, mend_all
from lakepact.upkeep.segments import folder_of, manifest_name
from lakepact.upkeep.shelf import Shelf, read_manifest
from tests.support.packed_days import World, receipt
from tests.support.upkeep import DAY_S, Killed, Watched

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "empty": lambda whole: b"",
    "cut short": lambda whole: whole[: len(whole) // 2],
    "other bytes": lambda whole: bytes([*whole[:30], whole[30] ^ 0xFF, *whole[31:]]),
    "another file": lambda whole: gzip.compress(b'{"commit-key": "00", "committed-ms": 1}\n'),
    "gone": lambda whole: None,
}


async def packed_world() -> World:
    """A day in three segments, and a late one in a segment of its own."""
    world = World()
    await world.put(*range(20))
    await world.pack(most_receipts=8)
    await a_moment_later(world)
    await put_receipt(world.blobs, world.clock, receipt(99, world.noon_ms))
    world.clock.ahead_s += 1.5 * DAY_S
    await world.pack()
    return world


async def a_moment_later(world: World) -> None:
    """Until what is written is younger than the manifest."""
    manifest = await read_manifest(world.blobs, world.day)
    assert manifest is not None
    while world.clock.now_ms() <= manifest.packed_ms:
        await asyncio.sleep(0)


async def break_(world: World, name: str, damage: str) -> bytes:
    whole = await world.blobs.get(name)
    assert whole is not None
    await world.blobs.delete(name)
    bad = DAMAGES[damage](whole)
    if bad is not None:
        await world.blobs.put(name, bad)
    return whole


async def segments(world: World, date: str | None = None) -> list[str]:
    return [name for name in await world.names(folder_of(date or world.day)) if name.endswith(".gz")]


async def wrong(world: World) -> dict[str, list[str]]:
    return {date: found async for date, found in damages(world.blobs, world.clock) if found}


async def mend(world: World) -> Mended:
    done = Mended()
    async for _ in mend_all(world.blobs, world.clock, done):
        pass
    return done


async def notes(world: World) -> list[str]:
    return [name for name in await world.names() if f"{date_of(world.clock.now_ms())}/arrivals/" in name]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_segment_is_made_again_from_single_files_byte_for_byte(damage: str) -> None:
    world = await packed_world()
    came = date_of(int(world.clock.now_ms() - 1.5 * DAY_S * 1000))
    for name in ((await segments(world))[1], (await segments(world, came))[0]):
        manifests = [await world.blobs.get(manifest_name(date)) for date in (world.day, came)]
        whole = await break_(world, name, damage)
        assert len(await wrong(world)) == 1
        assert (await mend(world)).rebuilt == [name]
        assert await world.blobs.get(name) == whole
        assert [await world.blobs.get(manifest_name(date)) for date in (world.day, came)] == manifests
        assert not await wrong(world) and not await notes(world)


async def test_a_receipt_that_came_after_its_day_was_packed_does_not_keep_a_segment_from_being_made_again() -> None:
    world = World()
    await world.put(*range(20))
    await world.pack()
    await a_moment_later(world)
    await put_receipt(world.blobs, world.clock, receipt(99, world.noon_ms))
    [name] = await segments(world)
    whole = await break_(world, name, "cut short")
    assert (await mend(world)).rebuilt == [name]
    assert await world.blobs.get(name) == whole


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_segment_that_cannot_be_made_again_is_set_aside_and_what_lies_loose_is_noted(damage: str) -> None:
    world = await packed_world()
    name = (await segments(world))[1]
    manifest = await read_manifest(world.blobs, world.day)
    assert manifest is not None
    middle = manifest.segments[1]
    held = sorted(
        number for number in range(20) if middle.first <= receipt(number, 0).document["commit-key"] <= middle.last
    )
    gone = receipt(held[0], world.noon_ms + held[0])
    await world.blobs.delete(gone.name)
    whole = await break_(world, name, damage)
    with pytest.raises(Unreadable, match="lakepact reconcile --mend"):
        await Shelf(world.blobs).has(gone.name)
    done = await mend(world)
    assert (len(done.lost), done.rebuilt) == (1, [])
    assert name in done.lost[0] and world.day in done.lost[0] and "backup" in done.lost[0]
    now = await read_manifest(world.blobs, world.day)
    assert now is not None and ([one.name for one in now.lost], len(now.segments)) == ([middle.name], 2)
    # Everything but what is really gone is found by readers who are beyond that day.
    assert done.noted == len(held) - 1 + 1, "and the late one, of which nobody can tell whether it was in there"
    assert await Shelf(world.blobs).has(gone.name) is False
    world.clock.ahead_s += 1.5 * DAY_S
    await world.pack()
    late = (await world.packed(date_of(int(world.clock.now_ms() - 1.5 * DAY_S * 1000))))["late"]
    assert late == [*held[1:], 99]
    # It is said once, and nothing is done twice.
    again = await mend(world)
    assert (again.lost, again.rebuilt, again.noted) == ([], [], 0)
    assert not await wrong(world)
    # And it comes back, with the bytes of a backup.
    await world.blobs.delete(name)
    await world.blobs.put(name, whole)
    await mend(world)
    back = await read_manifest(world.blobs, world.day)
    assert back is not None and not back.lost and set(back.segments) == set(manifest.segments)


@pytest.mark.parametrize("damage", [one for one in DAMAGES if one != "gone"])
async def test_a_manifest_is_made_again_from_the_segments_beside_it(damage: str) -> None:
    world = await packed_world()
    before = await world.packed(world.day)
    await break_(world, manifest_name(world.day), damage)
    assert list(await wrong(world)) == [world.day]
    with pytest.raises(Unreadable, match=world.day):
        await Shelf(world.blobs).has(receipt(500, world.noon_ms).name)
    done = await mend(world)
    assert (done.rebuilt, done.lost) == ([manifest_name(world.day)], [])
    assert await world.packed(world.day) == before
    assert not await wrong(world)


async def test_manifest_and_segment_damaged_the_rest_of_the_day_is_saved() -> None:
    world = await packed_world()
    name = (await segments(world))[2]
    await break_(world, manifest_name(world.day), "empty")
    await break_(world, name, "cut short")
    done = await mend(world)
    assert (done.rebuilt, len(done.lost)) == ([manifest_name(world.day)], 1)
    packed = (await world.packed(world.day))["iceberg"]
    assert len(packed) == 16 and done.noted == 4 + 1
    assert not await wrong(world)


async def test_killed_before_any_of_its_writes_it_comes_to_the_same_in_the_end() -> None:
    world = await packed_world()
    blobs = world.blobs
    [_, middle, _] = await segments(world)
    manifest = await read_manifest(world.blobs, world.day)
    assert manifest is not None
    for number in range(20):
        one = receipt(number, world.noon_ms + number)
        if one.document["commit-key"] == manifest.segments[1].first:
            await blobs.delete(one.name)
    await break_(world, middle, "cut short")
    for dies_at in range(1, 30):
        world.blobs = Watched(blobs, dies_at=dies_at)
        try:
            done = await mend(world)
        except Killed:
            continue
        break
    world.blobs = blobs
    assert len(done.lost) == 1 and len(await notes(world)) == 8
    assert not await wrong(world)
