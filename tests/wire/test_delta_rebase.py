"""What an open transaction only adds to a Delta table goes on past what others have done meanwhile, by Delta's rules.

And what must hold whoever is at the same transaction, or uses the same key, at the same instant.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.wire.overlays import Overlaid, begin, rename
from tests.wire.test_delta import TABLES, WIDER, add, commit, create, load, paths, remove
from tests.wire.world import Json, Wire, append, change, new_key


@pytest.fixture
def wire(on_sql: AbstractAsyncContextManager[Wire]) -> AbstractAsyncContextManager[Wire]:
    return on_sql


async def furnished(wire: Wire, *files: str) -> Json:
    await wire.namespace("db")
    made = await create(wire)
    for file in files:
        assert (await commit(wire, add(file))).status == 200
    return made


async def appending(wire: Wire, *files: str, **begun: Any) -> Overlaid:
    """A transaction that has added these."""
    tx = await begin(wire, **begun)
    for file in files:
        answer = await commit(tx, add(file))
        assert answer.status == 200, answer.body
    return tx


async def refused(tx: Overlaid) -> Json:
    answer = await tx.do("commit")
    assert answer.status == 409, answer.body
    error: Json = answer.json()["error"]
    assert error["type"] == "CommitFailedException"
    return error


# --- what goes on ---


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_appends_go_on_past_appends_and_deletes(wire: Wire, isolation: str) -> None:
    await furnished(wire, "old")
    tx = await appending(wire, "a", "b", isolation=isolation)
    others = [(await commit(wire, add("c"))).json(), (await commit(wire, remove("old"), add("d"))).json()]
    done = await tx.publish()
    table = await load(wire)
    assert (table["version"], paths(table)) == (4, ["a", "b", "c", "d"])
    assert table["timestamp-ms"] > others[-1]["timestamp-ms"]
    [result] = done["results"]
    assert result["metadata-location"].endswith("_delta_log/00000000000000000004.json")
    assert paths(await load(wire, version="3")) == ["c", "d"]
    newest = (await wire.get(f"{TABLES}/labels/history")).json()["versions"][0]
    assert (newest["transaction-id"], newest["added-files"]) == (tx.id, 2)
    assert (await tx.do("commit")).json() == done


async def test_it_goes_on_together_with_iceberg_tables_at_one_time(wire: Wire) -> None:
    await furnished(wire)
    await wire.table("orders")
    tx = await appending(wire, "a")
    assert (await tx.post("/namespaces/db/tables/orders", change("orders", append(1)))).status == 200
    await commit(wire, add("b"))
    await tx.publish()
    table, orders = await load(wire), (await wire.load("orders"))["metadata"]
    assert (table["version"], paths(table), orders["current-snapshot-id"]) == (2, ["a", "b"], 1)
    assert orders["last-updated-ms"] == table["timestamp-ms"]


async def test_what_was_prepared_after_others_is_committed_there(wire: Wire) -> None:
    await furnished(wire)
    tx = await appending(wire, "a")
    await commit(wire, add("b"))
    assert (await tx.do("prepare")).status == 200
    assert paths(await load(tx)) == ["a", "b"]
    await tx.publish()
    table = await load(wire)
    assert (table["version"], paths(table)) == (2, ["a", "b"])


async def test_many_transactions_that_append_side_by_side_all_come_through(wire: Wire) -> None:
    await furnished(wire)
    await create(wire, "features")
    open_ones = [await begin(wire) for _ in range(12)]
    for number, tx in enumerate(open_ones):
        for name in ("labels", "features"):
            assert (await commit(tx, add(f"{name}-{number}"), name=name)).status == 200
    answers = await asyncio.gather(*(tx.do("commit") for tx in open_ones))
    assert [answer.status for answer in answers] == [200] * 12
    for name in ("labels", "features"):
        table = await load(wire, name)
        assert table["version"] == 12
        assert paths(table) == sorted(f"{name}-{number}" for number in range(12))
        history = (await wire.get(f"{TABLES}/{name}/history")).json()["versions"]
        assert {one["transaction-id"] for one in history[:-1]} == {tx.id for tx in open_ones}
        times = [one["timestamp-ms"] for one in history]
        assert times == sorted(set(times), reverse=True)


async def test_looking_at_the_columns_is_not_reading_rows(wire: Wire) -> None:
    await furnished(wire)
    tx = await begin(wire)
    before = await load(tx, files="false")
    await commit(tx, add("a"), read=before["version"])
    await commit(wire, add("b"))
    await tx.publish()
    assert paths(await load(wire)) == ["a", "b"]


# --- what does not ---


def progress(version: int) -> Json:
    return {"txn": {"appId": "stream", "version": version}}


async def test_a_serializable_append_conflicts_with_a_change_of_what_its_load_showed(wire: Wire) -> None:
    """A load without files shows the progress of applications: what is appended may be computed from it."""
    await furnished(wire)
    loaded, blind = await begin(wire), await begin(wire)
    assert (await load(loaded, files="false"))["transactions"] == {}
    assert (await commit(loaded, add("a"))).status == 200
    assert (await commit(blind, add("b"))).status == 200
    assert (await commit(wire, progress(1))).status == 200
    assert "labels" in (await refused(loaded))["message"]
    await blind.publish()
    assert paths(await load(wire)) == ["b"]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_of_two_transactions_that_advance_one_application_one_is_refused(wire: Wire, isolation: str) -> None:
    await furnished(wire)
    pair = [await begin(wire, isolation=isolation) for _ in range(2)]
    for tx in pair:
        before = (await load(tx, files="false"))["transactions"].get("stream", 0)
        assert (await commit(tx, progress(before + 1))).status == 200
    await pair[0].publish()
    assert "labels" in (await refused(pair[1]))["message"]
    assert (await load(wire))["transactions"] == {"stream": 1}


@pytest.mark.parametrize("when", ["before", "after", "history"])
async def test_who_has_read_the_rows_does_not_go_on_if_serializable(wire: Wire, when: str) -> None:
    made = await furnished(wire)
    tx = await begin(wire)
    if when == "before":
        await load(tx)
    assert (await commit(tx, add("a"))).status == 200
    if when == "after":
        await load(tx)
    if when == "history":
        assert (await tx.get(f"{TABLES}/labels/history")).status == 200
    await commit(wire, add("b"))
    error = await refused(tx)
    assert error["version-conflicts"] == [
        {
            "identifier": {"namespace": ["db"], "name": "labels"},
            "table-id": made["table-id"],
            "expected": 0,
            "actual": 1,
        }
    ]
    assert "labels" in error["message"]
    assert paths(await load(wire)) == ["b"]
    # What it depends on shows; how that is known does not.
    assert not any("rows-read" in one["cell"] for one in (await tx.shown())["changes"])


async def test_under_snapshot_isolation_reading_does_not_matter(wire: Wire) -> None:
    await furnished(wire)
    tx = await begin(wire, isolation="snapshot")
    await load(tx)
    await commit(tx, add("a"))
    await commit(wire, add("b"))
    await tx.publish()
    assert paths(await load(wire)) == ["a", "b"]


async def test_another_table_that_was_read_still_counts(wire: Wire) -> None:
    await furnished(wire)
    await create(wire, "features")
    tx = await begin(wire)
    await load(tx, "features")
    await commit(tx, add("a"))
    await commit(wire, add("b"))
    await commit(wire, add("f"), name="features")
    await refused(tx)
    assert paths(await load(wire)) == ["b"]


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ([remove("old"), add("a")], [add("b")], "changed"),
        ([add("a")], [add("a")], "has the file 'a' already"),
        ([add("old", dataChange=False)], [remove("old")], "has the file 'old' already"),
        ([add("a"), {"txn": {"appId": "app", "version": 1}}], [{"txn": {"appId": "app", "version": 2}}], "'app'"),
        ([add("a")], ["metadata"], "changed the schema"),
        ([add("a"), "metadata"], [add("b")], "it changes the schema"),
    ],
)
async def test_what_contradicts_is_a_conflict_that_says_why(
    wire: Wire, ours: list[Any], theirs: list[Any], why: str
) -> None:
    made = await furnished(wire, "old")
    metadata = (await load(wire))["metadata"]
    wider: Json = {"metaData": {**metadata, "schemaString": json.dumps(WIDER)}}
    # The level that lets more through.
    tx = await begin(wire, isolation="snapshot")
    staged = await commit(tx, *(wider if one == "metadata" else one for one in ours))
    assert staged.status == 200, staged.body
    assert (await commit(wire, *(wider if one == "metadata" else one for one in theirs))).status == 200
    before = await load(wire)
    error = await refused(tx)
    assert why in error["message"]
    assert [(one["table-id"], one["expected"], one["actual"]) for one in error["version-conflicts"]] == [
        (made["table-id"], 1, 2)
    ]
    assert await load(wire) == before


@pytest.mark.parametrize("given", [{"expected-version": 0}, {"statements": 0}])
async def test_whoever_says_what_it_was_computed_on_means_it(wire: Wire, given: Json) -> None:
    await furnished(wire)
    tx = await begin(wire, isolation="snapshot")
    assert (await tx.post(f"{TABLES}/labels", {"actions": [add("a")], **given})).status == 200
    assert (await commit(tx, add("a2"))).status == 200
    await commit(wire, add("b"))
    await refused(tx)
    assert paths(await load(wire)) == ["b"]


@pytest.mark.parametrize("what", ["rename", "drop", "drop and create"])
async def test_a_table_that_was_renamed_or_dropped_is_not_added_to(wire: Wire, what: str) -> None:
    await furnished(wire)
    tx = await appending(wire, "a", isolation="snapshot")
    if what == "rename":
        assert (await wire.post("/delta-tables/rename", rename("labels", "other"))).status == 204
    else:
        assert (await wire.delete(f"{TABLES}/labels")).status == 204
    if what == "drop and create":
        await create(wire)
    error = await refused(tx)
    assert "labels" in error["message"]


async def test_a_table_that_the_transaction_has_renamed_does_not_go_on(wire: Wire) -> None:
    await furnished(wire)
    tx = await appending(wire, "a", isolation="snapshot")
    assert (await tx.post("/delta-tables/rename", rename("labels", "other"))).status == 204
    assert (await commit(tx, add("b"), name="other")).status == 200
    await commit(wire, add("c"))
    await refused(tx)
    assert paths(await load(wire)) == ["c"]


# --- at the same instant ---


async def test_two_bodies_under_one_key_never_publish_each_others_rows(wire: Wire) -> None:
    await furnished(wire)
    for number in range(12):
        key, names = new_key(), [f"{number}-{which}" for which in "ab"]
        answers = await asyncio.gather(*(commit(wire, add(name), key=key) for name in names))
        applied = [name for name, answer in zip(names, answers, strict=True) if answer.status == 200]
        assert len(applied) == 1, [(answer.status, answer.body) for answer in answers]
        version = str(number + 1)
        before = paths(await load(wire, version=str(number)))
        assert set(paths(await load(wire, version=version))) - set(before) == set(applied)


async def test_two_bodies_under_one_key_inside_a_transaction_either(wire: Wire) -> None:
    await furnished(wire)
    tx = await begin(wire)
    kept = []
    for number in range(8):
        key, names = new_key(), [f"{number}-{which}" for which in "ab"]
        answers = await asyncio.gather(*(commit(tx, add(name), key=key) for name in names))
        applied = [name for name, answer in zip(names, answers, strict=True) if answer.status == 200]
        assert len(applied) == 1, [(answer.status, answer.body) for answer in answers]
        kept += applied
    await tx.publish()
    assert paths(await load(wire)) == sorted(kept)


async def test_prepare_and_commit_side_by_side_agree_on_the_time(wire: Wire) -> None:
    await furnished(wire)
    await wire.table("orders")
    for number in range(1, 9):
        tx = await appending(wire, f"file-{number}")
        updates = [{"action": "set-properties", "updates": {"n": str(number)}}]
        assert (await tx.post("/namespaces/db/tables/orders", change("orders", updates))).status == 200
        answers = await asyncio.gather(*(tx.do(step) for step in ("prepare", "commit", "prepare", "commit")))
        assert all(answer.status in (200, 503) for answer in answers), [answer.body for answer in answers]
        done = await tx.publish()
        table, orders = await load(wire), await wire.load("orders")
        history = (await wire.get(f"{TABLES}/labels/history")).json()["versions"][0]
        assert (table["version"], history["transaction-id"]) == (number, tx.id)
        assert table["timestamp-ms"] == history["timestamp-ms"] == orders["metadata"]["last-updated-ms"]
        assert {one["metadata-location"] for one in done["results"]} == {
            f"{table['location']}/_delta_log/{number:020}.json",
            orders["metadata-location"],
        }
