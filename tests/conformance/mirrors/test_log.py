"""The logs of Delta tables: complete, in order, the same bytes whoever writes them, and never somebody else's."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakepact.catalog.pointers import Kind
from lakepact.delta.ports import MirrorState
from lakepact.errors import StoreUnavailable
from lakepact.iceberg.requests import Identifier
from tests.conformance.mirrors.lake import Killed, Lake

IDS = pa.schema([("id", pa.int64()), ("v", pa.string())])


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "v": [f"v{number}" for number in numbers]}, IDS)


def seen(place: Path, version: int | None = None) -> list[int]:
    """What delta-rs reads."""
    rows = DeltaTable(str(place), version=version).to_pyarrow_table()
    return sorted(rows["id"].to_pylist())


def name_of(version: int) -> str:
    return f"{version:020}.json"


async def test_a_log_follows_its_table_and_others_read_it(lake: Lake) -> None:
    mirrors = lake.mirrors()
    await lake.create("a", IDS)
    await lake.append(a=ids(1, 2))
    await lake.append(a=ids(3))
    await lake.commit(a=[*await lake.remove_all("a"), *await lake.files("a", ids(9))])
    assert not (await lake.place("a") / "_delta_log").exists(), "nothing is written before somebody does it"

    assert await mirrors.turn() is False

    place = await lake.place("a")
    assert await lake.log("a") == [name_of(version) for version in range(4)]
    assert [seen(place, version) for version in range(4)] == [[], [1, 2], [1, 2, 3], [9]]
    status = await lake.status("a")
    assert (status.mirrored_version, status.state, status.lease_owner) == (3, MirrorState.ACTIVE, None)
    assert len([lag for engine, lag in lake.lags if engine == "delta_log" and lag >= 0]) == 4


async def test_a_commit_is_mirrored_right_after_it(lake: Lake) -> None:
    lake.watch.mirrors = lake.mirrors()
    await lake.create("a", IDS)
    await lake.create("b", IDS)
    for number in range(5):
        await lake.append(a=ids(number), b=ids(number))
        assert seen(await lake.place("a")) == seen(await lake.place("b")) == list(range(number + 1))
        latest = lake.manifest()
        assert latest["tables"] == {await lake.location("a"): number + 1, await lake.location("b"): number + 1}


async def test_every_commit_has_a_manifest_and_the_latest_has_all_tables(lake: Lake) -> None:
    await lake.create("a", IDS)
    await lake.create("b", IDS)
    await lake.append(a=ids(1), b=ids(1))
    await lake.append(b=ids(2))
    await lake.mirrors().turn()

    a, b = await lake.location("a"), await lake.location("b")
    numbered = [lake.manifest(f"{number:020}.json") for number in range(1, 5)]
    assert [one["tables"] for one in numbered] == [{a: 0}, {b: 0}, {a: 1, b: 1}, {b: 2}]
    assert [one["sequence"] for one in numbered] == [1, 2, 3, 4]
    latest = lake.manifest()
    assert (latest["sequence"], latest["tables"], latest["behind"]) == (4, {a: 1, b: 2}, {})
    assert latest["transaction-id"] == numbered[-1]["transaction-id"]
    assert latest["timestamp-ms"] == numbered[-1]["timestamp-ms"]
    assert await lake.rows.outgoing("main") == []


async def test_a_dropped_table_leaves_the_cut(lake: Lake) -> None:
    mirrors = lake.mirrors()
    await lake.create("a", IDS)
    await lake.create("b", IDS)
    await mirrors.turn()
    a, b = await lake.location("a"), await lake.location("b")
    await lake.catalog.rename(lake.call("renameTable"), Identifier(("db",), "a"), Identifier(("db",), "c"), Kind.DELTA)
    await lake.catalog.drop(lake.call("dropTable"), Identifier(("db",), "b"), Kind.DELTA)
    await mirrors.turn()
    assert lake.manifest()["tables"] == {a: 0}
    assert lake.manifest("00000000000000000004.json")["tables"] == {b: None}


async def test_a_table_whose_log_is_switched_off_leaves_the_cut(lake: Lake) -> None:
    """At the version its log stopped at it would not belong to the others any more."""
    mirrors = lake.mirrors()
    a = await lake.create("a", IDS)
    await lake.create("b", IDS)
    await lake.append(a=ids(1), b=ids(1))
    await mirrors.turn()
    await lake.rows.set_mirrors(a, [])
    await lake.append(a=ids(2), b=ids(2))
    await mirrors.turn()
    assert lake.manifest()["tables"] == {await lake.location("b"): 2}
    await lake.rows.set_mirrors(a, ["delta_log"])
    await lake.append(a=ids(3), b=ids(3))
    await mirrors.turn()
    assert lake.manifest()["tables"] == {await lake.location(name): 3 for name in "ab"}


async def test_a_lost_latest_is_made_again_from_the_manifests(sqlite_lake: Lake) -> None:
    lake, mirrors = sqlite_lake, sqlite_lake.mirrors()
    for name in ("a", "b"):
        await lake.create(name, IDS)
    await lake.append(a=ids(1), b=ids(1))
    await mirrors.turn()
    before = lake.manifest()
    for content in (None, b"{"):
        os.unlink(lake.folder / "_transactions" / "latest")
        if content is not None:
            (lake.folder / "_transactions" / "latest").write_bytes(content)
        await lake.append(a=ids(2))
        await lake.mirrors("somebody-new").turn()
        expected = {**before["tables"], await lake.location("a"): lake.manifest()["tables"][await lake.location("a")]}
        assert lake.manifest()["tables"] == expected
        assert lake.manifest()["tables"][await lake.location("b")] == 1


async def test_checkpoints_come_every_ten_versions_and_are_read(lake: Lake) -> None:
    lake.watch.mirrors = lake.mirrors()
    await lake.create("a", IDS)
    for number in range(1, 32):
        removed = await lake.remove_all("a") if number % 7 == 0 else []
        await lake.commit(a=[*removed, *await lake.files("a", ids(number))])
    names = await lake.log("a")
    assert [name for name in names if "checkpoint" in name] == [
        *(f"{version:020}.checkpoint.parquet" for version in (10, 20, 30)),
        "_last_checkpoint",
    ]
    place = await lake.place("a")
    last = orjson.loads((place / "_delta_log" / "_last_checkpoint").read_bytes())
    assert last["version"] == 30
    # With nothing else to begin from: the checkpoints alone carry all that came before them.
    for version in range(30):
        os.unlink(place / "_delta_log" / name_of(version))
    assert seen(place) == [28, 29, 30, 31]


async def test_a_last_checkpoint_never_moves_back_and_a_failing_one_fails_nothing(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    lake.watch.mirrors = lake.mirrors()
    await lake.create("a", IDS)
    place = await lake.place("a")
    for number in range(1, 10):
        await lake.append(a=ids(number))
    (place / "_delta_log" / "_last_checkpoint").write_bytes(b'{"version":999,"size":1}')
    await lake.append(a=ids(10))
    assert orjson.loads((place / "_delta_log" / "_last_checkpoint").read_bytes())["version"] == 999
    lake.blobs.fail = lambda name: StoreUnavailable("no") if "checkpoint" in name else None
    for number in range(11, 22):
        await lake.append(a=ids(number))
    assert (await lake.status("a")).mirrored_version == 21
    assert not lake.failures


@pytest.mark.parametrize("forked_at", [0, 2])
async def test_a_log_that_somebody_else_has_written_is_reported_and_left_alone(lake: Lake, forked_at: int) -> None:
    mirrors = lake.mirrors()
    a = await lake.create("a", IDS)
    await lake.create("b", IDS)
    place = await lake.place("a")
    theirs = place / "_delta_log" / name_of(forked_at)
    if forked_at:
        await lake.append(a=ids(1), b=ids(1))
        await mirrors.turn()
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_bytes(b'{"commitInfo":{"operation":"WRITE","engineInfo":"somebody"}}\n')
    await lake.append(a=ids(2), b=ids(2))
    await lake.append(a=ids(3), b=ids(3))

    await mirrors.turn()

    status = await lake.status("a")
    assert (status.state, status.mirrored_version) == (MirrorState.CONFLICT, forked_at - 1)
    assert status.last_error is not None and theirs.name in status.last_error and "mirror retry" in status.last_error
    assert lake.failures == [("delta_log", "conflict")]
    assert theirs.read_bytes().startswith(b'{"commitInfo":{"operation":"WRITE","engineInfo":"somebody"}}')
    assert not (place / "_delta_log" / name_of(forked_at + 1)).exists()
    # The others are in step, and the cut says what is missing.
    newest = (await lake.status("b")).current_version
    assert (await lake.status("b")).mirrored_version == newest
    assert lake.manifest()["tables"] == {await lake.location("b"): newest}
    assert lake.manifest()["behind"] == {await lake.location("a"): newest}
    # Nothing is tried again by itself,
    await mirrors.turn()
    assert lake.failures == [("delta_log", "conflict")]
    # and by command, once a person has looked.
    os.unlink(theirs)
    assert await lake.rows.retry(table_id=a) == 1
    await mirrors.turn()
    assert (await lake.status("a")).mirrored_version == newest
    assert lake.manifest()["tables"] == {await lake.location(name): newest for name in "ab"}
    assert lake.manifest()["behind"] == {}
    assert seen(place) == seen(await lake.place("b"))


async def test_a_table_whose_place_fails_is_tried_again_and_keeps_nobody_back(lake: Lake) -> None:
    mirrors = lake.mirrors()
    await lake.create("a", IDS)
    await lake.create("b", IDS)
    await mirrors.turn()
    a = (await lake.place("a")).name
    lake.blobs.fail = lambda name: StoreUnavailable("no such luck") if f"{a}/_delta_log" in name else None
    lake.clock.stop()
    pauses = []
    for number in range(8):
        await lake.append(a=ids(number), b=ids(number))
        await mirrors.turn()
        status = await lake.status("a")
        assert (status.state, status.mirrored_version, status.attempts) == (MirrorState.RETRYING, 0, number + 1)
        assert status.last_error == "no such luck"
        pauses.append((status.next_attempt_ms - lake.clock.now_ms()) / 1000)
        assert seen(await lake.place("b")) == list(range(number + 1)), "the other one is in step"
        await mirrors.turn()
        assert (await lake.status("a")).attempts == number + 1, "it waits for its time"
        lake.clock.advance(pauses[-1] + 1)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    # After a while the cuts go on without it, and say so.
    assert lake.manifest()["tables"] == {await lake.location("b"): 8}
    lake.blobs.fail = lambda name: None
    await mirrors.turn()
    assert seen(await lake.place("a")) == list(range(8))
    assert lake.manifest()["tables"] == {await lake.location(name): 8 for name in "ab"}


async def test_a_mirror_is_given_up_only_where_that_is_wanted(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    mirrors = lake.mirrors(max_attempts=2)
    await lake.create("a", IDS)
    lake.blobs.fail = lambda name: StoreUnavailable("no")
    await mirrors.turn()
    lake.clock.advance(2)
    await mirrors.turn()
    assert (await lake.status("a")).state is MirrorState.DEAD
    assert lake.failures[-1] == ("delta_log", "dead") or ("delta_log", "dead") in lake.failures
    lake.blobs.fail = lambda name: None
    lake.clock.advance(3_600)
    await mirrors.turn()
    assert (await lake.status("a")).mirrored_version == -1
    assert await lake.rows.retry(engine="delta_log") == 1
    await mirrors.turn()
    assert (await lake.status("a")).mirrored_version == 0


async def _story(lake: Lake) -> None:
    """Commits whose bytes are the same every time."""
    await lake.create("a", IDS)
    await lake.create("b", IDS)
    for number in range(1, 13):
        await lake.append(a=ids(number), b=ids(number))


async def test_killed_between_any_two_files_it_goes_on_with_the_same_bytes(sqlite_lake: Lake) -> None:
    lake = sqlite_lake
    await _story(lake)
    expected: dict[str, bytes] | None = None
    steps = 0
    while True:
        # A new world for the mirrors: nothing is written yet, and nothing noted.
        lake.blobs.die_after = steps
        victim = lake.mirrors(f"victim-{steps}")
        killed = False
        try:
            await victim.turn()
        except Killed:
            killed = True
        lake.blobs.die_after = None
        # Its leases are still there: somebody else waits until they have run out.
        lake.clock.advance(21)
        await lake.mirrors(f"heir-{steps}").turn()
        found = lake.tree()
        if expected is None:
            expected = found
            assert len(expected) == 2 * 13 + 14 + 1 + 2 * 2, sorted(expected)
        assert found == expected, steps
        assert [(await lake.status(name)).mirrored_version for name in "ab"] == [12, 12]
        assert await lake.rows.outgoing("main") == []
        if not killed:
            break
        steps += 1
        await _forget(lake)
    assert steps == len(expected)


async def _forget(lake: Lake) -> None:
    """As if no mirror had ever run."""
    for name in lake.tree():
        os.unlink(lake.folder / name)
    database = sqlite3.connect(lake.folder.parent / "lakepact.db")
    with database:
        database.execute("UPDATE dl_mirrors SET mirrored_version = -1")
        database.execute("UPDATE dl_cuts SET numbered = 0, published = 0")
        database.execute("DELETE FROM dl_outbox")
        for number, (transaction_id, ict_ms) in enumerate(
            database.execute(
                "SELECT transaction_id, min(ict_ms) FROM dl_table_versions GROUP BY 1 ORDER BY min(ict_ms), 1"
            ).fetchall(),
            1,
        ):
            tables = dict(
                database.execute(
                    "SELECT table_id, version FROM dl_table_versions WHERE transaction_id = ?", (transaction_id,)
                ).fetchall()
            )
            database.execute(
                "INSERT INTO dl_outbox (warehouse, number, transaction_id, ict_ms, tables) VALUES ('main', ?, ?, ?, ?)",
                (number, transaction_id, ict_ms, orjson.dumps(tables).decode()),
            )
            database.execute("UPDATE dl_cuts SET numbered = ?", (number,))
    database.close()


LONG = os.environ.get("LAKEPACT_LONG") == "1"


@pytest.mark.timeout(1_800)
async def test_thousands_of_versions(sqlite_lake: Lake) -> None:
    lake, versions = sqlite_lake, 10_000 if LONG else 300
    lake.watch.mirrors = lake.mirrors()
    await lake.create("a", IDS)
    [file] = await lake.files("a", ids(1))
    for number in range(1, versions + 1):
        if number == versions // 3:
            lake.watch.mirrors = None  # falls behind,
        if number == 2 * versions // 3:
            await lake.mirrors("other").turn()  # catches up
            lake.watch.mirrors = lake.mirrors("third")
        actions = [*await lake.remove_all("a"), file] if number % 2 else [*await lake.remove_all("a")]
        await lake.commit(a=actions)
    names = await lake.log("a")
    assert [name for name in names if name.endswith(".json")] == [name_of(version) for version in range(versions + 1)]
    place = await lake.place("a")
    assert [seen(place, version) for version in (0, versions - 1, versions)] == [[], [1], []]
    assert orjson.loads((place / "_delta_log" / "_last_checkpoint").read_bytes())["version"] == versions
    assert lake.manifest()["tables"] == {await lake.location("a"): versions}
    assert lake.manifest()["sequence"] == versions + 1
