"""Receipts go once they are packed, compared and projected, and not before; whatever is in doubt stays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from lakepact.catalog import Catalog, CatalogSettings
from lakepact.catalog.receipts import date_of
from lakepact.catalog.warehouse import Warehouse
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Transaction, Write
from lakepact.runtime import AsyncioTasks, SystemRng
from lakepact.stores import open_store
from lakepact.upkeep.arrivals import put_receipt
from lakepact.upkeep.collection import Class, Report
from lakepact.upkeep.collection.receipts import COMMITS, POSITION, Removed, Retention
from lakepact.upkeep.mending import Mended, damages, mend_all
from lakepact.upkeep.segments import folder_of, key_of_name, manifest_name, pack
from lakepact.upkeep.shelf import read_manifest
from tests.support.packed_days import DAY_MS, World, receipt
from tests.support.upkeep import DAY_S, Ahead, Killed, Watched

ROOT = "memory://w"


async def removed(
    world: World,
    *,
    through: str | None,
    receipt_days: int = 90,
    loose_days: int = 90,
    tables: bool = True,
    dry_run: bool = False,
    report: Report | None = None,
) -> Removed:
    store = await open_store("memory://")
    catalog = Catalog(
        Warehouse("main", ROOT), store, world.blobs, world.clock, SystemRng(), AsyncioTasks(), CatalogSettings()
    )
    if through is not None:
        writes = [Write(key_of("main", "state", POSITION), 0, {"value": {"through": through}})]
        writes += [Write(catalog.parts.keys.name(COMMITS), 0, {"id": "of no table"})] * tables
        await store.commit(Transaction(uuid7(Ahead().now_ms(), 1), "", tuple(writes)))
    retention = Retention(
        {"main": catalog},
        world.clock,
        receipt_days=receipt_days,
        loose_days=loose_days,
        report=report,
        dry_run=dry_run,
    )
    await retention.run()
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
    # The position is there, and what it stands for was dropped.
    assert await removed(world, through=today, tables=False) == Removed()
    assert await world.names() == before
    assert (await removed(world, through=today)).days == 1
    assert not await world.names()


async def test_who_asks_is_told_why_nothing_goes() -> None:
    world = await packed_world()
    later(world, 400)
    report = Report()
    await removed(world, through=None, report=report)
    assert not report.removals
    [left] = report.left
    assert "receipts of main" in left and "lakepact project" in left


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


@pytest.mark.parametrize("whole_days", [False, True])
async def test_a_dry_run_lists_every_file_once_with_a_reason_and_takes_none(whole_days: bool) -> None:
    world = await packed_world()
    await put_receipt(world.blobs, world.clock, receipt(99, world.noon_ms))
    today = later(world, 400)
    await world.pack()
    before, told, done = await world.names(), Report(), Report()
    days = 90 if whole_days else 0
    await removed(world, through=today, receipt_days=days, report=told, dry_run=True)
    assert await world.names() == before
    await removed(world, through=today, receipt_days=days, report=done)
    assert {one.what for one in told.removals} == set(before) - set(await world.names())
    assert told.counts == done.counts == {Class.RECEIPTS: len(before) if whole_days else 11}, "ten and a note"
    assert all(one.why.startswith("projected") and one.table.startswith("receipts of 2") for one in told.removals)


async def test_single_files_stay_until_their_day_is_packed() -> None:
    world = World()
    await world.put(1, 2)
    today = later(world, 400)
    for days in (0, 90):
        report = Report()
        assert await removed(world, through=today, loose_days=7, receipt_days=days, report=report) == Removed()
        assert "not packed yet: lakepact pack" in report.left[0]
    await world.pack()
    assert await removed(world, through=today, loose_days=7, receipt_days=0) == Removed(loose=2)


async def broken(world: World, damage: bytes | None = b"") -> bytes:
    """Put something else in the place of the day's segment; what was there."""
    [segment] = [name for name in await world.names(folder_of(world.day)) if name.endswith(".gz")]
    whole = await world.blobs.get(segment)
    assert whole is not None
    await world.blobs.delete(segment)
    if damage is not None:
        await world.blobs.put(segment, damage or whole[:-10])
    return whole


async def test_a_damaged_segment_is_made_again_before_its_single_files_go() -> None:
    world = await packed_world()
    today = later(world, 30)
    whole = await broken(world)
    assert await removed(world, through=today, loose_days=7) == Removed(loose=10)
    assert await world.packed(world.day) == {"iceberg": list(range(10))}
    [segment] = [name for name in await world.names(folder_of(world.day)) if name.endswith(".gz")]
    assert await world.blobs.get(segment) == whole


@pytest.mark.parametrize("days", [0, 90])
async def test_where_a_segment_cannot_be_made_again_everything_of_its_day_stays(days: int) -> None:
    world = await packed_world()
    await world.blobs.delete(receipt(3, world.noon_ms + 3).name)
    today = later(world, 400)
    await broken(world)
    before, report = await world.names(), Report()
    assert await removed(world, through=today, loose_days=7, receipt_days=days, report=report) == Removed()
    assert await world.names() == before
    assert world.day in report.left[0] and "lakepact reconcile --mend" in report.left[0]


async def test_a_file_that_is_not_what_was_packed_stays() -> None:
    world = await packed_world()
    changed = receipt(3, world.noon_ms + 3)
    changed.document["source"] = "somebody's"
    await world.blobs.delete(changed.name)
    await world.blobs.put(changed.name, changed.to_bytes())
    today, report = later(world, 30), Report()
    assert await removed(world, through=today, loose_days=7, report=report) == Removed(loose=9)
    assert changed.name in await world.names()
    assert f"{changed.name} is not what was packed" in report.left[0]


async def test_a_damaged_receipt_keeps_its_day() -> None:
    """Nobody has projected it. Mended, it gets a note, and then its day may go."""
    world = World()
    await world.put(1)
    bad = receipt(2, world.noon_ms)
    await world.blobs.put(bad.name, b"{")
    await world.pack()
    today, report = later(world, 400), Report()
    assert (await removed(world, through=today, report=report)).days == 0
    assert bad.name in report.left[0] and "--mend" in report.left[0]
    assert await world.blobs.get(bad.name) == b"{"


async def test_killed_anywhere_between_packing_and_the_last_deletion_nothing_is_lost() -> None:
    """Whatever goes is in a segment that is whole, at every moment; and in the end all of it has gone."""
    world = World()
    await world.put(*range(5))
    blobs, today = world.blobs, later(world, 30)
    deaths = 0
    for dies_at in range(1, 30):
        world.blobs = Watched(blobs, dies_at=dies_at)
        try:
            await world.pack()
            await removed(world, through=today, receipt_days=0, loose_days=7)
        except Killed:
            deaths += 1
            world.blobs = blobs
            loose = {key for key in map(_number, await world.names("_catalog/events/")) if key is not None}
            manifest = await blobs.get(manifest_name(world.day))
            packed = await world.packed(world.day) if manifest is not None else {}
            assert loose | set(packed.get("iceberg", ())) == set(range(5))
            continue
        break
    assert deaths >= 3
    world.blobs = blobs
    assert await world.packed(world.day) == {"iceberg": list(range(5))}
    assert not await world.names("_catalog/events/")


def _number(name: str) -> int | None:
    return next((one for one in range(5) if key_of_name(receipt(one, 0).name) == key_of_name(name)), None)


async def test_days_in_which_nothing_is_left_to_do_are_not_looked_at_again() -> None:
    world = await packed_world()
    today = later(world, 30)
    store = await open_store("memory://")
    watched = Watched(world.blobs)
    catalog = Catalog(
        Warehouse("main", ROOT), store, watched, world.clock, SystemRng(), AsyncioTasks(), CatalogSettings()
    )
    writes = (
        Write(key_of("main", "state", POSITION), 0, {"value": {"through": today}}),
        Write(catalog.parts.keys.name(COMMITS), 0, {"id": "of no table"}),
    )
    await store.commit(Transaction(uuid7(Ahead().now_ms(), 1), "", writes))
    late = receipt(99, world.noon_ms)
    await world.blobs.put(late.name, late.to_bytes())
    retention = Retention({"main": catalog}, world.clock, receipt_days=0, loose_days=7)
    await retention.run()
    assert (retention.done.loose, watched.read[manifest_name(world.day)]) == (10, 1)
    await retention.run()
    assert watched.read[manifest_name(world.day)] == 1
    await store.close()


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
    for dies_at in range(1, 14):
        world.blobs = Watched(blobs, dies_at=dies_at)
        try:
            await removed(world, through=today)
        except Killed:
            manifest = await blobs.get(manifest_name(world.day))
            segments = [entry.name for entry in await blobs.list(folder_of(world.day)) if entry.name.endswith(".gz")]
            assert manifest is None or segments, "a manifest never names what is not there"
    assert not await blobs.list("")


async def test_segments_of_a_packer_that_was_not_the_first_are_removed() -> None:
    world = await packed_world()
    some = sorted(
        (one.document["commit-key"], one.to_bytes()) for one in (receipt(n, world.noon_ms + n) for n in (3, 4))
    )
    segment, data = pack("iceberg", 7, some)
    orphan, unreadable = (
        f"{folder_of(world.day)}{segment.name}",
        f"{folder_of(world.day)}iceberg-00008-{'0' * 16}.jsonl.gz",
    )
    await world.blobs.put_all({orphan: data, unreadable: b"x"})
    today = later(world, 30)
    assert (await removed(world, through=today, loose_days=7)).segments == 1
    assert orphan not in await world.names() and unreadable in await world.names()
    assert await world.packed(world.day) == {"iceberg": list(range(10))}


@pytest.mark.parametrize("mended", [True, False])
async def test_a_manifest_that_is_gone_takes_nothing_with_it(mended: bool) -> None:
    """What it named is all there is: neither who packs nor who collects may take it for what nobody needs."""
    world = await packed_world(range(10))
    later(world, 3)
    await put_receipt(world.blobs, world.clock, receipt(99, world.noon_ms))
    today = later(world, 97)
    await world.pack()
    await removed(world, through=today, receipt_days=0, loose_days=7)
    await world.blobs.delete(manifest_name(world.day))
    if mended:
        assert [date async for date, wrong in damages(world.blobs, world.clock) if wrong] == [world.day]
        done = Mended()
        async for _ in mend_all(world.blobs, world.clock, done):
            pass
        assert done.rebuilt == [manifest_name(world.day)]
        assert [date async for date, wrong in damages(world.blobs, world.clock) if wrong] == []
    await world.pack()
    today = later(world, 2)
    await removed(world, through=today, receipt_days=0, loose_days=7)
    assert set(range(10)) <= set((await world.packed(world.day))["iceberg"])


async def test_a_segment_that_its_manifest_has_forgotten_is_kept_and_named_again() -> None:
    world = await packed_world(range(10))
    manifest = await read_manifest(world.blobs, world.day)
    assert manifest is not None
    was = manifest.to_bytes()
    await world.blobs.replace(manifest_name(world.day), replace(manifest, segments=()).to_bytes(), was)
    later(world, 97)
    today = later(world, 3)
    await removed(world, through=today, receipt_days=0)
    assert [wrong async for _, wrong in damages(world.blobs, world.clock) if wrong]
    async for _ in mend_all(world.blobs, world.clock, Mended()):
        pass
    assert (await world.packed(world.day))["iceberg"] == list(range(10))
