"""Days of receipts: packed by hand, collected once they are projected, mended when they are damaged. Nothing that was
collected comes back, and nothing that was lost stays away that something still tells of."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from lakepact.catalog.keys import Keys
from lakepact.catalog.receipts import date_of
from lakepact.cli import app
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Committed, Transaction, Write
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock
from lakepact.stores import open_store
from lakepact.upkeep.collection import Report
from lakepact.upkeep.collection.receipts import COMMITS, POSITION, Retention
from lakepact.upkeep.packing import Packer
from tests.support.upkeep import DAY_S, HOUR_S, Left, left_behind
from tests.wire import test_delta as delta
from tests.wire.test_reconcile import a_life, files_in, notes_in, remove
from tests.wire.world import Json, Wire, append, set_properties

RUN = CliRunner()


async def projected(store: CellStore, now_ms: int) -> None:
    """As if projections had come so far. What they are made of is another suite's."""
    writes = (
        Write(key_of("main", "state", POSITION), 0, {"value": {"through": date_of(now_ms)}}),
        Write(Keys("main").name(COMMITS), 0, {"kind": "table", "uuid": "of no table"}),
    )
    assert isinstance(await store.commit(Transaction(uuid7(now_ms, 7), "", writes)), Committed)


async def packed(left: Left) -> None:
    packer = Packer({"main": left.blobs}, left.clock, after_s=HOUR_S)
    while await packer.pack_some():
        pass


async def collected(left: Left, *, receipt_days: int = 0, dry_run: bool = False) -> Report:
    report = Report()
    await Retention(
        {"main": left.catalog}, left.clock, receipt_days=receipt_days, loose_days=90, report=report, dry_run=dry_run
    ).run()
    return report


def segments_in(wire: Wire) -> list[Path]:
    return sorted(wire.path_of(f"{wire.root}/_catalog/segments").glob("*/*.jsonl.gz"))


async def lived(tmp_path: Path) -> tuple[Wire, dict[str, Json]]:
    async with Wire.opened(tmp_path) as wire:
        await a_life(wire)
        await delta.create(wire)
        assert (await delta.commit(wire, delta.add("a.parquet"))).status == 200
    return wire, files_in(wire)


async def test_what_was_collected_is_not_missed_and_does_not_come_back(tmp_path: Path) -> None:
    wire, there = await lived(tmp_path)
    async with left_behind(wire.settings.store, wire.root, ahead_s=100 * DAY_S) as left:
        await packed(left)
        assert not (await collected(left)).removals, "nobody has projected them"
        await projected(left.store, left.clock.now_ms())
        told = await collected(left, dry_run=True)
        assert files_in(wire) == there
        done = await collected(left)
        assert {one.what for one in told.removals} == {one.what for one in done.removals} == set(there)
        assert not files_in(wire) and not done.left
        # Records, cells, metadata logs and rows still tell of all of them.
        report = await left.reconcile(full=True)
        assert (report.written, report.damaged, report.failed) == (0, 0, 0)
        assert report.found == len(there)
        assert not files_in(wire) and not notes_in(wire)


async def test_days_that_were_collected_altogether_do_not_come_back_either(tmp_path: Path) -> None:
    wire, there = await lived(tmp_path)
    async with left_behind(wire.settings.store, wire.root, ahead_s=100 * DAY_S) as left:
        while (await left.store.collect()).more:
            pass
        await packed(left)
        await projected(left.store, left.clock.now_ms())
        done = await collected(left, receipt_days=40)
        assert len(done.removals) == len(there) + len({name.split("/")[3] for name in there}) + 1, "two and a manifest"
        own = wire.path_of(f"{wire.root}/_catalog")
        assert not [path for place in ("events", "segments") for path in (own / place).rglob("*") if path.is_file()]
        report = await left.reconcile(full=True, receipt_days=40)
        assert (report.written, report.failed) == (0, 0)
        assert not files_in(wire)


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b", None])
async def test_a_segment_that_is_lost_is_said_and_its_receipts_are_written_anew(
    damage: bytes | None, tmp_path: Path
) -> None:
    wire, there = await lived(tmp_path)
    async with left_behind(wire.settings.store, wire.root, ahead_s=2 * DAY_S) as left:
        await packed(left)
        remove(wire)
        bad = segments_in(wire)[1]
        assert bad.name.startswith("iceberg-")
        bad.unlink()
        if damage is not None:
            bad.write_bytes(damage)
        day = bad.parent.name
        for _ in range(2):
            report = await left.reconcile(full=True)
            assert (report.damaged, report.written, report.failed) == (1, 0, 0)
            assert day in report.problems[0] and bad.name in report.problems[0]
            assert "lakepact reconcile --mend" in report.problems[0]
        mended = await left.reconcile(mend=True)
        assert (mended.lost, mended.rebuilt, mended.damaged, mended.failed) == (1, 0, 0, 0)
        assert day in mended.problems[0] and "backup" in mended.problems[0]
        # The plans of the records are still there, so they are what they were.
        gone = {name: one for name, one in there.items() if "/iceberg/" in name}
        assert files_in(wire) == gone and mended.written == mended.late == len(gone)
        assert {note["receipt"] for note in notes_in(wire).values()} == set(gone)
        quiet = await left.reconcile(full=True)
        assert (quiet.damaged, quiet.written, quiet.problems) == (0, 0, [])


async def test_a_damaged_manifest_is_said_and_made_again(tmp_path: Path) -> None:
    wire, there = await lived(tmp_path)
    async with left_behind(wire.settings.store, wire.root, ahead_s=2 * DAY_S) as left:
        await packed(left)
        remove(wire)
        manifest = segments_in(wire)[0].parent / "manifest.json"
        whole = orjson.loads(manifest.read_bytes())
        manifest.write_bytes(manifest.read_bytes()[:100])
        # Not only by those who look at everything.
        report = await left.reconcile()
        assert (report.damaged, report.written) == (1, 0)
        mended = await left.reconcile(mend=True)
        assert (mended.rebuilt, mended.lost, mended.damaged, mended.written) == (1, 0, 0, 0)
        again = orjson.loads(manifest.read_bytes())
        assert sorted(again.pop("segments"), key=str) == sorted(whole.pop("segments"), key=str)
        assert {**again, "packed-ms": 0} == {**whole, "packed-ms": 0}
        assert (await left.reconcile(full=True)).found == len(there)


# --- by hand ---


@pytest.fixture
def old_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wire:
    """What a server has left behind, on days of last year."""

    async def made() -> Wire:
        async with Wire.opened(tmp_path) as wire:
            await wire.namespace()
            await wire.table()
            for number in range(3):
                await wire.commit([set_properties(n=str(number))])
            await wire.commit(append(1))
        return wire

    wire = asyncio.run(made())
    events = wire.path_of(f"{wire.root}/_catalog/events")
    [today] = list(events.iterdir())
    today.rename(events / "2025-01-31")
    monkeypatch.setenv("LAKEPACT_DATA", wire.settings.data)
    return wire


def invoke(*words: str, code: int = 0) -> str:
    done = RUN.invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


def invoke_json(*words: str) -> Any:
    done = RUN.invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    return orjson.loads(done.stdout)


def test_packing_and_collecting_by_hand(old_days: Wire) -> None:
    there = files_in(old_days)
    assert invoke("gc", "--dry-run").count("receipts of main: no projections") == 1

    async def project() -> None:
        store = await open_store(old_days.settings.store)
        await projected(store, SystemClock().now_ms())
        await store.close()

    asyncio.run(project())
    told = invoke_json("gc", "--class", "receipts", "--dry-run")
    assert not told["removed"] and "not packed yet: lakepact pack" in told["left"][0]
    assert f"1 days packed: {len(there)} receipts in 1 segments\n" in invoke("pack")
    assert invoke_json("pack") == {"days": 0, "receipts": 0, "segments": 0, "damaged": []}
    told = invoke_json("gc", "--class", "receipts", "--dry-run")
    assert {one["what"] for one in told["removed"]} == set(there)
    assert {one["rule"] for one in told["removed"]} == {"receipts"}
    assert told["counts"] == {"receipts": len(there)} and told["left"] == []
    assert files_in(old_days) == there
    done = invoke("gc")
    assert f"Removed: {len(there)} of receipts" in done and "in a segment of its day" in done
    assert not files_in(old_days)
    assert "Removed: nothing" in invoke("gc", "--class", "receipts")


def test_a_damaged_receipt_is_not_packed_and_the_command_says_so(old_days: Wire) -> None:
    name = next(iter(files_in(old_days)))
    old_days.path_of(f"{old_days.root}/{name}").write_bytes(b"{")
    output = invoke("pack", code=1)
    assert "1 days packed" in output and f"{name} is damaged and was not packed: lakepact reconcile --mend" in output


def test_how_long_receipts_are_kept_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEPACT_RECEIPT_DAYS", "7")
    assert "32 days" in invoke("config", "show", code=2)
