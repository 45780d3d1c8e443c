"""Whatever becomes of receipts, the reconciler writes those that are missing, as they would have been.

One file: every kind of change that leaves a receipt, and every way in which that can be missing.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import orjson
import pytest
from typer.testing import CliRunner

from lakepact.cli import app
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import SystemRng
from lakepact.server.app import build
from lakepact.settings import Settings
from lakepact.upkeep.packing import Packer
from lakepact.upkeep.reconcile import Depth, Reconciler
from tests.support.asgi_client import AsgiClient
from tests.support.postgres import LazyPostgres
from tests.support.stores import place_for
from tests.support.upkeep import DAY_S, HOUR_S, Ahead, Killed, left_behind
from tests.wire import test_delta as delta
from tests.wire.test_receipts import _rename as rename
from tests.wire.world import Json, Wire, append, change, creation, set_properties, table_path

FORGETTING = KernelSettings(trim_after_s=0.0)
"""A store whose records lose their plans at once."""

RESULTS = ("written", "late", "damaged", "unreadable", "failed")
UNKNOWABLE = {"transaction-id", "event-id", "operation", "source", "lineage", "transaction-tables"}
"""What a receipt cannot say when the record is gone."""


@pytest.fixture(params=["sqlite", "file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres) -> dict[str, Any]:
    """The settings of a server on each kind of store, which can be opened again when the server has gone."""
    match request.param:
        case "sqlite":
            return {}
        case "file":
            return {"store": f"file://{tmp_path / 'cells'}"}
        case _:
            database = f"reconcile_{random.getrandbits(64):016x}"
            asyncio.run(_create_database(postgres.url(), database))
            return {"store": postgres.url().replace("/postgres?", f"/{database}?")}


async def _create_database(url: str, database: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE DATABASE {database}")
    await connection.close()


def keeps_rows(wire: Wire) -> bool:
    return not wire.settings.store.startswith("file:")


def files_in(wire: Wire) -> dict[str, Json]:
    """Every loose receipt, by its name in the warehouse."""
    root = wire.path_of(f"{wire.root}/_catalog")
    return {
        str(path.relative_to(root.parent)): orjson.loads(path.read_bytes())
        for path in sorted(root.glob("events/*/*/committed/*.json"))
    }


def notes_in(wire: Wire) -> dict[str, Json]:
    root = wire.path_of(f"{wire.root}/_catalog")
    return {
        str(path.relative_to(root.parent)): orjson.loads(path.read_bytes())
        for path in sorted(root.glob("events/*/arrivals/*.json"))
    }


def remove(wire: Wire, *names: str) -> None:
    for name in names or files_in(wire):
        wire.path_of(f"{wire.root}/{name}").unlink()


async def a_life(wire: Wire) -> None:
    """Everything that leaves a receipt."""
    await wire.namespace("db", owner="ada")
    await wire.namespace("gone")
    await wire.delete("/namespaces/gone")
    await wire.table("t")
    await wire.commit(append(1))
    await wire.commit_all(
        change("t", append(2, 2, 1)), {**creation(), "identifier": {"namespace": ["db"], "name": "b"}}
    )
    await wire.commit_all(change("t", [set_properties(a="b")]), change("b", []))
    await wire.view()
    await wire.post("/tables/rename", rename("b", "c"))
    await wire.commit([set_properties(a="b")], name="c")
    await wire.table("d")
    await wire.commit(append(3), name="d")
    await wire.delete(table_path("d"))
    await wire.post("/namespaces/db/properties", {"updates": {"owner": "bob"}})


async def test_lost_receipts_are_written_as_they_were(store: dict[str, Any], tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, **store) as wire:
        await a_life(wire)
        if keeps_rows(wire):
            await delta.create(wire)
            assert (await delta.commit(wire, delta.add("a.parquet"))).status == 200
            assert (await delta.commit(wire, delta.add("b.parquet"))).status == 200
    there = files_in(wire)
    assert len(there) == (18 if keeps_rows(wire) else 15)
    remove(wire)
    async with left_behind(wire.settings.store, wire.root) as left:
        report = await left.reconcile()
        assert (report.written, report.late, report.found) == (len(there), 0, report.found)
        assert not report.problems
        assert files_in(wire) == there
        again = await left.reconcile()
        assert (again.written, again.failed, again.unchanged) == (0, 0, again.tables)
    assert files_in(wire) == there
    assert not notes_in(wire)


async def test_without_the_records_plans_their_answers_and_the_metadata_log_tell_all_there_is(
    store: dict[str, Any], tmp_path: Path
) -> None:
    """A record keeps its plan for a day. What came before the last change of a cell is told by the metadata log."""
    async with Wire.opened(tmp_path, **store) as wire:
        await a_life(wire)
        if keeps_rows(wire):
            await delta.create(wire)
            assert (await delta.commit(wire, delta.add("a.parquet"))).status == 200
            assert (await delta.commit(wire, delta.add("b.parquet"))).status == 200
    there = files_in(wire)
    remove(wire)
    async with left_behind(wire.settings.store, wire.root, ahead_s=60, settings=FORGETTING) as left:
        while (await left.store.collect()).more:
            pass
        report = await left.reconcile()
        assert not report.problems
    back = files_in(wire)
    # Only records know of: what became of namespaces and names before their last change.
    lost = {(one["kind"], one["change"]) for name, one in there.items() if name not in back}
    assert lost == {("namespace", "create"), ("namespace", "drop"), ("table", "rename")}
    for name, receipt in back.items():
        # A name before a rename, and how many changes there were before it, are in no metadata.
        renamed = receipt["name"] == "c" and receipt["change"] == "create"
        unsure = {"name", "revision"} if renamed else set()
        assert {**receipt, **{key: there[name][key] for key in unsure}} == there[name]


async def test_without_any_record_the_metadata_tells_what_it_can(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        summary = {"operation": "append", "engine-name": "spark", "app-id": "local-7", "total-records": "5"}
        await wire.commit(append(1, summary=summary))
        await wire.commit([set_properties(a="b")])
        await wire.commit([set_properties(a="c")])
    there = files_in(wire)
    remove(wire)
    async with left_behind(wire.settings.store, wire.root, ahead_s=40 * DAY_S) as left:
        while (await left.store.collect()).more:
            pass
        report = await left.reconcile()
        assert (report.written, report.late, report.unreadable) == (5, 5, 0)
        before = notes_in(wire)
        assert (await left.reconcile(full=True)).written == 0
        assert notes_in(wire) == before, "nothing arrives twice"
    back = files_in(wire)
    assert back.keys() == there.keys(), "each lies where the ordinary writer would have put it"
    for name, receipt in back.items():
        assert {**receipt, **{key: there[name][key] for key in UNKNOWABLE}} == there[name]
        assert receipt["source"]["kind"] == "unknown"
    by_revision = {one["revision"]: one for one in back.values() if one["kind"] == "table"}
    assert by_revision[1]["metadata-location"] == made["metadata-location"]
    assert by_revision[2]["source"] == {"kind": "unknown", "engine": "spark", "app-id": "local-7"}
    assert by_revision[3]["source"] == {"kind": "unknown"}, "it kept the snapshot of another"
    assert by_revision[2]["transaction-id"] is None and by_revision[2]["transaction-tables"] == 1
    # The cell itself remembers who wrote it last.
    assert by_revision[4]["transaction-id"] == max(one["transaction-id"] for one in there.values())


async def test_a_receipt_that_comes_late_leaves_a_note_under_the_day_on_which_it_came(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
    there = files_in(wire)
    remove(wire)
    async with left_behind(wire.settings.store, wire.root, ahead_s=DAY_S) as left:
        assert (await left.reconcile()).late == 2
        tomorrow = datetime.fromtimestamp(left.clock.now_ms() / 1000, UTC).strftime("%Y-%m-%d")
    assert files_in(wire) == there
    notes = notes_in(wire)
    assert notes.keys() == {f"_catalog/events/{tomorrow}/arrivals/{one['commit-key']}.json" for one in there.values()}
    assert {note["receipt"] for note in notes.values()} == there.keys()


@pytest.mark.parametrize("damage", [b"", b'{"format": 1, "commit-k', b"[]", b'{"commit-key": "another"}'])
async def test_a_damaged_receipt_is_reported_and_only_mended_when_asked(damage: bytes, tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        await wire.commit(append(1))
        await wire.commit([set_properties(a="b")])
    there = files_in(wire)
    [name] = [name for name, one in there.items() if one["snapshot-id"] == 1 and one["revision"] == 2]
    path = wire.path_of(f"{wire.root}/{name}")
    path.write_bytes(damage)
    async with left_behind(wire.settings.store, wire.root) as left:
        for _ in range(2):
            report = await left.reconcile()
            assert (report.damaged, report.written) == (1, 0)
            assert name in report.problems[0] and "lakepact reconcile --mend" in report.problems[0]
            assert path.read_bytes() == damage
        mended = await left.reconcile(mend=True)
        assert (mended.mended, mended.damaged, mended.written) == (1, 0, 0)
        assert files_in(wire) == there
        assert [note["receipt"] for note in notes_in(wire).values()] == [name], "readers passed it over"
        quiet = await left.reconcile()
        assert (quiet.damaged, quiet.unchanged) == (0, quiet.tables)


async def test_metadata_that_cannot_be_read_is_counted_and_tried_again(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        locations = [(await wire.commit([set_properties(n=str(n))])).json()["metadata-location"] for n in range(5)]
    there = files_in(wire)
    remove(wire)
    broken, gone = (wire.path_of(locations[place]) for place in (1, 3))
    was = broken.read_bytes(), gone.read_bytes()
    broken.write_bytes(was[0][:100])
    gone.unlink()
    async with left_behind(wire.settings.store, wire.root, ahead_s=60, settings=FORGETTING) as left:
        while (await left.store.collect()).more:
            pass
        for _ in range(2):
            report = await left.reconcile()
            assert report.unreadable == 2
            assert any(broken.name in problem and "damaged" in problem for problem in report.problems)
            assert any(gone.name in problem for problem in report.problems)
            assert len(files_in(wire)) == len(there) - 2, "the others have theirs"
        broken.write_bytes(was[0])
        gone.write_bytes(was[1])
        mended = await left.reconcile()
        assert (mended.written, mended.unreadable) == (2, 0)
        assert (await left.reconcile()).unchanged == 2
    back = files_in(wire)
    assert back.keys() == there.keys()
    for name, receipt in back.items():
        told = there[name] | {"revision": receipt["revision"]}
        # What a version has changed is told by the one before it, and two of these could not be read.
        assert receipt in (told, {field: value for field, value in told.items() if field != "changed"})
    assert sum("changed" in receipt for receipt in back.values()) == len(locations) - 2


async def test_a_table_that_has_not_changed_costs_no_file(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        for name in "abc":
            await wire.table(name)
            await wire.commit(append(1), name=name)
    async with left_behind(wire.settings.store, wire.root, ahead_s=HOUR_S) as left:
        first = await left.reconcile()
        assert (first.tables, first.unchanged) == (4, 0)
        left.blobs.read.clear()
        left.blobs.written.clear()
        second = await left.reconcile()
        assert (second.tables, second.unchanged, second.found) == (4, 4, 0)
        assert not [name for name in left.blobs.read if "reconciled/" not in name]
        assert not left.blobs.written
    async with Wire.opened(tmp_path) as wire:
        await wire.commit(append(2, 2, 1), name="b")
    async with left_behind(wire.settings.store, wire.root, ahead_s=HOUR_S) as left:
        third = await left.reconcile()
        assert (third.tables, third.unchanged) == (4, 3)
        metadata = [name for name in left.blobs.read if name.endswith(".metadata.json")]
        assert len(metadata) == 1, "the newest version of the one that has changed"


async def test_two_reconcilers_at_once_come_to_the_same(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await a_life(wire)
    there = files_in(wire)
    remove(wire)
    async with (
        left_behind(wire.settings.store, wire.root) as one,
        left_behind(wire.settings.store, wire.root) as other,
    ):
        reports = await asyncio.gather(one.reconcile(), other.reconcile(full=True), one.reconcile())
    assert not [problem for report in reports for problem in report.problems]
    assert files_in(wire) == there


async def test_killed_before_any_of_its_writes_it_comes_to_the_same_in_the_end(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await a_life(wire)
    there = files_in(wire)
    remove(wire)
    for dies_at in range(1, 1_000):
        async with left_behind(wire.settings.store, wire.root, ahead_s=2 * HOUR_S, dies_at=dies_at) as left:
            try:
                await left.reconcile()
            except Killed:
                noted = {note["receipt"] for note in notes_in(wire).values()}
                assert files_in(wire).keys() <= noted, "a receipt that comes late has its note, whatever happens"
            else:
                break
    assert dies_at > 4
    assert files_in(wire) == there


async def test_what_a_registered_table_was_elsewhere_leaves_no_receipts_here(tmp_path: Path) -> None:
    """Its metadata log tells of commits that another catalog made."""
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        folder = wire.path_of(made["metadata-location"]).parent
        older = folder / "00000-0b64b0d0-6a4f-4d62-8d63-3b9d3f3a1c55.metadata.json"
        foreign = folder / "00001-1b64b0d0-6a4f-4d62-8d63-3b9d3f3a1c55.metadata.json"
        older.write_bytes(orjson.dumps(made["metadata"]))
        log = [{"timestamp-ms": made["metadata"]["last-updated-ms"], "metadata-file": f"file://{older}"}]
        foreign.write_bytes(orjson.dumps({**made["metadata"], "metadata-log": log}))
        assert (await wire.delete(table_path())).status == 204
        body = {"name": "t", "metadata-location": f"file://{foreign}"}
        assert (await wire.post("/namespaces/db/register", body)).status == 200
        await wire.commit(append(1))
    there = files_in(wire)
    remove(wire)
    async with left_behind(wire.settings.store, wire.root) as left:
        await left.reconcile()
    assert files_in(wire) == there
    async with left_behind(wire.settings.store, wire.root, ahead_s=60, settings=FORGETTING) as left:
        while (await left.store.collect()).more:
            pass
        assert (await left.reconcile(full=True)).written == 0
    assert files_in(wire) == there


async def test_receipts_that_were_removed_at_the_end_of_their_retention_do_not_come_back(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        for number in range(3):
            await wire.commit([set_properties(n=str(number))])
    remove(wire)
    async with left_behind(wire.settings.store, wire.root, ahead_s=91 * DAY_S) as left:
        while (await left.store.collect()).more:
            pass
        report = await left.reconcile(receipt_days=90)
    assert not report.problems
    assert not files_in(wire)


async def test_a_receipt_that_is_on_its_way_is_not_missed_but_waited_for(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        await wire.commit(append(1))
    there = files_in(wire)
    remove(wire)
    async with left_behind(wire.settings.store, wire.root) as left:
        young = await left.reconcile(grace_s=HOUR_S)
        assert (young.written, young.problems) == (0, [])
        later = await left.reconcile()
        assert (later.written, later.unchanged) == (3, 0), "nothing was taken for complete"
    assert files_in(wire) == there


async def test_as_a_job_it_begins_a_pass_no_more_often_than_it_shall_whoever_did_the_last(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
    async with left_behind(wire.settings.store, wire.root) as left:
        clock = left.clock
        assert isinstance(clock, Ahead)

        async def turn() -> int:
            """How many tables a server that has just started looks at in its turn."""
            reconciler = Reconciler({"main": left.catalog}, left.store, clock, SystemRng(), Depth(), interval_s=900)
            while await reconciler.work():
                pass
            return reconciler.report.tables

        assert await turn() == 2
        assert await turn() == 0
        clock.ahead_s += 901
        assert await turn() == 2


async def test_a_delta_table_that_was_renamed_among_its_versions_is_not_missed_wrongly(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await delta.create(wire)
        assert (await delta.commit(wire, delta.add("a.parquet"))).status == 200
        assert (await wire.post("/delta-tables/rename", rename("labels", "other"))).status == 204
        assert (await delta.commit(wire, delta.add("b.parquet"), name="other")).status == 200
        assert (await wire.post("/delta-tables/rename", rename("other", "labels"))).status == 204
        assert (await delta.commit(wire, delta.add("c.parquet"))).status == 200
    there = files_in(wire)
    async with left_behind(wire.settings.store, wire.root, ahead_s=60, settings=FORGETTING) as left:
        while (await left.store.collect()).more:
            pass
        whole = await left.reconcile(full=True)
        assert (whole.written, whole.unreadable, whole.problems) == (0, 0, [])
        gone = [name for name, one in there.items() if one["kind"] == "delta" and one["revision"] == 2]
        remove(wire, *gone)
        lost = await left.reconcile(full=True)
        assert (lost.written, lost.unreadable) == (0, 1)
        assert "renamed" in lost.problems[0]
    assert files_in(wire) == {name: one for name, one in there.items() if name not in gone}


async def test_versions_of_a_delta_table_after_a_rename_are_known_once_the_rename_is_behind(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await delta.create(wire)
        assert (await wire.post("/delta-tables/rename", rename("labels", "other"))).status == 204
    async with left_behind(wire.settings.store, wire.root) as left:
        assert (await left.reconcile()).problems == []
    async with Wire.opened(tmp_path) as wire:
        for number in range(3):
            assert (await delta.commit(wire, delta.add(f"{number}.parquet"), name="other")).status == 200
    there = files_in(wire)
    remove(wire, *[name for name, one in there.items() if one["kind"] == "delta" and one["change"] == "commit"])
    async with left_behind(wire.settings.store, wire.root, ahead_s=60, settings=FORGETTING) as left:
        while (await left.store.collect()).more:
            pass
        assert ((done := await left.reconcile()).written, done.problems) == (3, [])
    assert files_in(wire) == there


async def test_on_nothing_but_object_storage(tmp_path: Path) -> None:
    with place_for("s3-strict", tmp_path) as place:
        cells, lake = f"{place.url}/cells", f"{place.url}/lake"
        given = {"store_options": place.options, "warehouse": lake, "warehouse_options": place.options}
        async with Wire.opened(tmp_path, store=cells, **given) as wire:
            await a_life(wire)
        async with left_behind(cells, lake, ahead_s=2 * HOUR_S, options=place.options) as left:
            names = [one.name for one in await left.blobs.list("_catalog/events/")]
            there = {name: await left.blobs.get(name) for name in names}
            assert (await left.reconcile()).written == 0
            for name in names:
                await left.blobs.delete(name)
            report = await left.reconcile(full=True)
            assert (report.written, report.late, report.problems) == (15, 15, [])
            assert {name: await left.blobs.get(name) for name in names} == there
            assert ((again := await left.reconcile()).unchanged, again.written) == (again.tables, 0)
            # And the day is packed, when it has ended.
            packer = Packer({"main": left.blobs}, Ahead(3 * DAY_S), after_s=HOUR_S)
            while await packer.pack_some():
                pass
            assert packer.done.receipts == 15 + 15, "those of the day, and those that came late"


def test_the_command_says_what_it_found_in_words_and_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def made() -> Wire:
        async with Wire.opened(tmp_path) as wire:
            await wire.namespace()
            await wire.table()
        return wire

    wire = asyncio.run(made())
    monkeypatch.setenv("LAKEPACT_DATA", wire.settings.data)
    there = files_in(wire)
    name = next(iter(there))
    remove(wire, name)
    done = CliRunner().invoke(app, ["reconcile"])
    assert done.exit_code == 0, done.output
    assert "2 tables, views and namespaces looked at (0 unchanged)" in done.output
    assert "1 written (0 late)" in done.output
    assert files_in(wire) == there
    wire.path_of(f"{wire.root}/{name}").write_bytes(b"{")
    told = CliRunner().invoke(app, ["reconcile", "--full"])
    assert told.exit_code == 1
    assert ", 1 damaged" in told.output and "lakepact reconcile --mend" in told.output
    mended = CliRunner().invoke(app, ["reconcile", "--mend", "--json"])
    assert mended.exit_code == 0, mended.output
    assert orjson.loads(mended.stdout)["mended"] == 1
    assert files_in(wire) == there
    monkeypatch.setenv("LAKEPACT_RECEIPTS", "false")
    assert CliRunner().invoke(app, ["reconcile"]).exit_code == 2


async def test_the_server_does_it_by_itself_and_says_so_in_metrics(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        await wire.commit(append(1))
    there = files_in(wire)
    remove(wire, *[name for name, one in there.items() if one["change"] == "commit"])
    # Records lose their plans at once, so it is not from there that it comes back.
    given = {"trim_after_s": 0, "upkeep_interval_s": 0.01, "reconcile_interval_s": 0.01}
    service = await build(Settings.load(data=wire.settings.data, log_level="error", **given))
    try:
        assert await service.upkeep.turn()
        assert files_in(wire) == there
        metrics = (await AsgiClient(service.asgi).send("GET", "/metrics")).body.decode()
    finally:
        await service.close()
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(values["lakepact_receipts_reconciled_timestamp_seconds"]) > 0
    counted = {result: values[f'lakepact_receipts_reconciled_total{{result="{result}"}}'] for result in RESULTS}
    assert counted == {**dict.fromkeys(RESULTS, "0.0"), "written": "1.0"}
