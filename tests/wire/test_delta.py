"""Delta tables over HTTP: made, changed, read, and moved together with Iceberg tables."""

from __future__ import annotations

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.asgi_client import Answer
from tests.support.collecting import collected
from tests.wire.world import Json, Wire, append, change, new_key

SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "label", "type": "string", "nullable": True, "metadata": {}},
    ],
}
WIDER: Json = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"name": "more", "type": "double", "nullable": True, "metadata": {}}],
}
TABLES = "/namespaces/db/delta-tables"


def add(path: str, **more: Any) -> Json:
    return {
        "add": {
            "path": path,
            "partitionValues": {},
            "size": 100,
            "modificationTime": 1_767_225_600_000,
            "dataChange": True,
            "stats": '{"numRecords":1}',
            **more,
        }
    }


def remove(path: str) -> Json:
    return {"remove": {"path": path, "deletionTimestamp": 1_767_225_600_000, "dataChange": True}}


async def create(wire: Wire, name: str = "labels", **more: Any) -> Json:
    answer = await wire.post(TABLES, {"name": name, "schema": SCHEMA, **more})
    assert answer.status == 200, answer.body
    made: Json = answer.json()
    return made


async def load(wire: Wire, name: str = "labels", **query: str) -> Json:
    asked = "&".join(f"{key.replace('_', '-')}={value}" for key, value in {"files": "true", **query}.items())
    answer = await wire.get(f"{TABLES}/{name}?{asked}")
    assert answer.status == 200, answer.body
    found: Json = answer.json()
    return found


async def commit(
    wire: Wire,
    *actions: Json,
    name: str = "labels",
    key: str | None = None,
    expected: int | None = None,
    read: int | None = None,
) -> Answer:
    body: Json = {"actions": list(actions)}
    if expected is not None:
        body["expected-version"] = expected
    if read is not None:
        body["read-version"] = read
    return await wire.post(f"{TABLES}/{name}", body, key=key)


def paths(table: Json) -> list[str]:
    return sorted(one["add"]["path"] for one in table["files"])


@pytest.fixture
def wire(on_sql: AbstractAsyncContextManager[Wire]) -> AbstractAsyncContextManager[Wire]:
    return on_sql


# --- one table ---


async def test_a_table_begins_at_version_0_and_every_commit_is_one_more(wire: Wire) -> None:
    await wire.namespace("db")
    made = await create(wire, description="what is to be learned")
    assert (made["version"], made["identifier"]) == (0, {"namespace": ["db"], "name": "labels"})
    first = await commit(wire, add("a.parquet"), expected=0)
    assert first.status == 200, first.body
    assert first.json()["version"] == 1
    second = await commit(wire, add("b.parquet"), remove("a.parquet"), expected=1)
    assert second.status == 200, second.body
    now = await load(wire)
    assert (now["version"], paths(now)) == (2, ["b.parquet"])
    assert now["timestamp-ms"] == second.json()["timestamp-ms"] > first.json()["timestamp-ms"] > made["timestamp-ms"]
    assert paths(await load(wire, version="1")) == ["a.parquet"]
    assert paths(await load(wire, timestamp_ms=str(first.json()["timestamp-ms"]))) == ["a.parquet"]
    assert (await load(wire, version="0"))["files"] == []
    history = (await wire.get(f"{TABLES}/labels/history")).json()["versions"]
    assert [(one["version"], one["operation"], one["added-files"], one["removed-files"]) for one in history] == [
        (2, "WRITE", 1, 1),
        (1, "WRITE", 1, 0),
        (0, "CREATE TABLE", 0, 0),
    ]
    for wrong in ("version=7", "timestamp-ms=1"):
        assert (await wire.get(f"{TABLES}/labels?{wrong}")).status == 404


async def test_a_version_that_is_not_there_is_a_conflict_that_says_so(wire: Wire) -> None:
    await wire.namespace("db")
    made = await create(wire)
    await commit(wire, add("a.parquet"))
    refused = await commit(wire, add("b.parquet"), expected=0)
    assert refused.status == 409
    error = refused.json()["error"]
    assert error["type"] == "CommitFailedException"
    assert error["version-conflicts"] == [
        {"identifier": {"namespace": ["db"], "name": "labels"}, "table-id": made["table-id"]}
        | {"expected": 0, "actual": 1}
    ]
    assert paths(await load(wire)) == ["a.parquet"]


async def test_appends_go_past_each_other_and_deletes_do_not(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    assert (await commit(wire, add("a.parquet"))).status == 200
    assert (await commit(wire, add("b.parquet"), read=1)).json()["version"] == 2
    assert (await commit(wire, add("c.parquet"), read=1)).json()["version"] == 3
    refused = await commit(wire, remove("a.parquet"), read=1)
    assert refused.status == 409
    assert "b.parquet" in refused.json()["error"]["message"]
    assert (await commit(wire, remove("a.parquet"), read=3)).status == 200
    assert (await commit(wire, add("d.parquet"), read=3, expected=3)).status == 400
    assert paths(await load(wire)) == ["b.parquet", "c.parquet"]


async def test_many_writers_at_once_lose_nothing(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    answers = await asyncio.gather(*(commit(wire, add(f"{number}.parquet")) for number in range(20)))
    assert sorted(answer.json()["version"] for answer in answers) == list(range(1, 21))
    assert len(paths(await load(wire))) == 20


async def test_columns_are_added_and_what_is_unsound_is_refused(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    before = (await load(wire))["metadata"]
    wider = {"metaData": {**before, "schemaString": json.dumps(WIDER)}}
    assert (await commit(wire, wider, expected=0)).status == 200
    assert json.loads((await load(wire))["metadata"]["schemaString"]) == WIDER
    narrower = {"metaData": {**before, "schemaString": json.dumps({**SCHEMA, "fields": SCHEMA["fields"][:1]})}}
    assert (await commit(wire, narrower)).status == 400
    assert (await commit(wire, {"metaData": {**before, "id": "another"}})).status == 400
    assert (await commit(wire, add("a.parquet", partitionValues={"day": "1"}))).status == 400
    assert (await commit(wire, {"nonsense": {}})).status == 400
    assert (await commit(wire, remove("never.parquet"))).status == 400
    assert (await load(wire))["version"] == 1


async def test_the_same_key_happens_once(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    key = new_key()
    first, again = [await commit(wire, add("a.parquet"), key=key) for _ in range(2)]
    assert (first.status, first.json()) == (again.status, again.json())
    assert (await load(wire))["version"] == 1
    other = await commit(wire, add("b.parquet"), key=key)
    assert other.status == 409


# --- one name, one table ---


async def test_one_name_is_one_table_and_iceberg_does_not_see_it(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await wire.create("orders")
    assert [one["name"] for one in (await wire.get("/namespaces/db/tables")).json()["identifiers"]] == ["orders"]
    assert [one["name"] for one in (await wire.get(TABLES)).json()["identifiers"]] == ["labels"]
    assert (await wire.get("/namespaces/db/tables/labels")).status == 404
    assert (await wire.head("/namespaces/db/tables/labels")).status == 404
    assert (await wire.delete("/namespaces/db/tables/labels")).status == 404
    assert (await wire.head(f"{TABLES}/labels")).status == 204
    assert (await wire.get(f"{TABLES}/orders")).status == 404
    taken = await wire.post(TABLES, {"name": "orders", "schema": SCHEMA})
    assert (taken.status, taken.json()["error"]["type"]) == (409, "AlreadyExistsException")
    taken = await wire.post("/namespaces/db/tables", {"name": "labels", "schema": {"type": "struct", "fields": []}})
    assert (taken.status, taken.json()["error"]["type"]) == (409, "AlreadyExistsException")
    onto = {
        "source": {"namespace": ["db"], "name": "orders"},
        "destination": {"namespace": ["db"], "name": "labels"},
    }
    assert (await wire.post("/tables/rename", onto)).status == 409
    assert (await wire.delete("/namespaces/db")).status == 409


async def test_it_is_renamed_and_dropped_like_any_table(wire: Wire) -> None:
    await wire.namespace("db")
    await wire.namespace("archive")
    await create(wire)
    await commit(wire, add("a.parquet"))
    onto = {
        "source": {"namespace": ["db"], "name": "labels"},
        "destination": {"namespace": ["archive"], "name": "old"},
    }
    assert (await wire.post("/delta-tables/rename", onto)).status == 204
    assert (await wire.get(f"{TABLES}/labels")).status == 404
    moved = (await wire.get("/namespaces/archive/delta-tables/old?files=true")).json()
    assert (moved["version"], paths(moved)) == (1, ["a.parquet"])
    assert (await wire.delete("/namespaces/archive/delta-tables/old")).status == 204
    assert (await wire.get("/namespaces/archive/delta-tables/old")).status == 404
    assert (await wire.delete("/namespaces/archive")).status == 204
    # The name is free again.
    assert (await create(wire))["version"] == 0


# --- together with Iceberg ---


async def test_both_formats_move_in_one_commit_or_not_at_all(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await wire.create("orders")
    delta = {"identifier": {"namespace": ["db"], "name": "labels"}, "actions": [add("a.parquet")]}
    body = {"table-changes": [change("orders", append(1))], "delta-changes": [{**delta, "expected-version": 0}]}
    done = await wire.post("/transactions/commit", body, headers={"Prefer": "return=representation"})
    assert done.status == 200, done.body
    assert [one.get("version") for one in done.json()["results"]] == [None, 1]
    again = {
        "table-changes": [change("orders", append(2, 2, 1))],
        "delta-changes": [{**delta, "expected-version": 0}],
    }
    refused = await wire.post("/transactions/commit", again)
    assert refused.status == 409
    orders = (await wire.get("/namespaces/db/tables/orders")).json()["metadata"]
    assert orders["current-snapshot-id"] == 1
    assert (await load(wire))["version"] == 1


async def test_delta_tables_alone_are_committed_together(wire: Wire) -> None:
    await wire.namespace("db")
    for name in ("features", "labels"):
        await create(wire, name)
    changes = [
        {"identifier": {"namespace": ["db"], "name": name}, "actions": [add(f"{name}.parquet")]}
        for name in ("features", "labels")
    ]
    assert (await wire.post("/transactions/commit", {"delta-changes": changes})).status == 204
    both = [await load(wire, name) for name in ("features", "labels")]
    assert [one["version"] for one in both] == [1, 1]
    assert both[0]["timestamp-ms"] == both[1]["timestamp-ms"]
    twice = await wire.post("/transactions/commit", {"delta-changes": [changes[0], changes[0]]})
    assert twice.status == 400
    late = [{**one, "expected-version": 0} for one in changes]
    refused = await wire.post("/transactions/commit", {"delta-changes": late})
    assert refused.status == 409
    named = refused.json()["error"]["version-conflicts"]
    assert [one["identifier"]["name"] for one in named] == ["features", "labels"]


async def test_an_engine_that_is_not_known_is_refused_by_name(wire: Wire) -> None:
    await wire.namespace("db")
    refused = await wire.post(TABLES, {"name": "labels", "schema": SCHEMA, "mirrors": ["spark"]})
    assert refused.status == 400
    assert "delta_log" in refused.json()["error"]["message"]


# --- inside a transaction ---


async def begin(wire: Wire, **more: Any) -> str:
    answer = await wire.post("/transactions", more)
    assert answer.status == 200, answer.body
    began: str = answer.json()["transaction-id"]
    return began


def inside(wire: Wire, transaction: str) -> Wire:
    return Wire(wire.client, wire.settings, f"/v1/main@{transaction}")


async def test_statements_of_a_transaction_become_one_version(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await commit(wire, add("old.parquet"))
    await wire.create("orders")
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    assert (await commit(tx, add("a.parquet"), expected=1)).status == 200
    assert (await commit(tx, add("b.parquet"), remove("a.parquet"), remove("old.parquet"))).status == 200
    await create(tx, "features")
    assert (await commit(tx, add("f.parquet"), name="features")).status == 200
    assert (await tx.post("/namespaces/db/tables/orders", change("orders", append(1)))).status == 200
    # Its own statements are seen inside, and nothing of them outside.
    assert paths(await load(tx)) == ["b.parquet"]
    assert paths(await load(tx, "features")) == ["f.parquet"]
    assert (await commit(tx, remove("a.parquet"))).status == 400
    assert paths(await load(wire)) == ["old.parquet"]
    assert (await wire.get(f"{TABLES}/features")).status == 404
    done = await wire.post(f"/transactions/{transaction}/commit", {})
    assert done.status == 200, done.body
    labels, features = await load(wire), await load(wire, "features")
    assert (labels["version"], paths(labels)) == (2, ["b.parquet"])
    assert (features["version"], paths(features)) == (0, ["f.parquet"])
    assert labels["timestamp-ms"] == features["timestamp-ms"]
    orders = (await wire.get("/namespaces/db/tables/orders")).json()["metadata"]
    assert orders["current-snapshot-id"] == 1
    assert orders["last-updated-ms"] == labels["timestamp-ms"]


async def test_an_aborted_transaction_leaves_nothing(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    await commit(tx, add("a.parquet"))
    await create(tx, "features")
    assert (await wire.post(f"/transactions/{transaction}/abort", {})).status == 200
    assert ((await load(wire))["version"], (await load(wire))["files"]) == (0, [])
    assert (await wire.get(f"{TABLES}/features")).status == 404
    assert (await create(wire, "features"))["version"] == 0


async def test_a_file_that_somebody_else_has_removed_is_a_conflict(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await commit(wire, add("a.parquet"))
    transaction = await begin(wire)
    await commit(inside(wire, transaction), remove("a.parquet"), add("b.parquet"))
    await commit(wire, remove("a.parquet"))
    refused = await wire.post(f"/transactions/{transaction}/commit", {})
    assert (refused.status, refused.json()["error"]["type"]) == (409, "CommitFailedException")
    assert "labels" in refused.json()["error"]["message"]


async def test_what_is_prepared_is_committed_as_it_was(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    await commit(tx, add("a.parquet"))
    await commit(tx, add("b.parquet"))
    assert (await wire.post(f"/transactions/{transaction}/prepare", {})).status == 200
    assert (await load(wire))["version"] == 0
    assert (await wire.post(f"/transactions/{transaction}/commit", {})).status == 200
    table = await load(wire)
    assert (table["version"], paths(table)) == (1, ["a.parquet", "b.parquet"])


async def test_a_file_that_is_told_anew_and_then_removed_is_gone(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await commit(wire, add("a.parquet"))
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    await commit(tx, add("a.parquet", dataChange=False, stats='{"numRecords":2}'))
    await commit(tx, remove("a.parquet"), add("b.parquet"))
    assert paths(await load(tx)) == ["b.parquet"]
    assert (await wire.post(f"/transactions/{transaction}/commit", {})).status == 200
    assert paths(await load(wire)) == ["b.parquet"]


async def test_statements_side_by_side_are_told_apart_by_their_number(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    tx = inside(wire, await begin(wire))
    before = await load(tx)
    body = {"actions": [add("a.parquet")], "expected-version": before["version"], "statements": before["statements"]}
    first = await tx.post(f"{TABLES}/labels", body)
    assert first.status == 200, first.body
    now = await load(tx)
    assert (now["version"], now["statements"]) == (1, 1)
    late = {"actions": [add("b.parquet")], "expected-version": 1, "statements": 0}
    assert (await tx.post(f"{TABLES}/labels", late)).status == 409
    assert (await tx.post(f"{TABLES}/labels", {**late, "statements": 1})).status == 200


async def test_a_prepared_transaction_still_shows_its_files(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    await commit(tx, add("a.parquet"))
    await create(tx, "features")
    await commit(tx, add("f.parquet"), name="features")
    assert (await wire.post(f"/transactions/{transaction}/prepare", {})).status == 200
    assert paths(await load(tx)) == ["a.parquet"]
    assert paths(await load(tx, "features")) == ["f.parquet"]
    assert (await wire.post(f"/transactions/{transaction}/commit", {})).status == 200
    assert paths(await load(wire, "features")) == ["f.parquet"]


async def test_a_table_may_come_to_be_where_another_was(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await commit(wire, add("a.parquet"))
    location = (await load(wire))["location"]
    assert (await wire.delete(f"{TABLES}/labels")).status == 204
    taken = await wire.post(TABLES, {"name": "labels", "schema": SCHEMA, "location": location})
    assert (taken.status, "which was dropped" in taken.error["message"]) == (400, True)
    await collected(wire.settings, drop_retention_s=0)
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    await create(tx, location=location)
    done = await wire.post(f"/transactions/{transaction}/commit", {})
    assert done.status == 200, done.body
    made = await load(wire)
    assert (made["version"], made["location"], made["files"]) == (0, location, [])


async def test_a_transaction_does_not_see_versions_of_its_future(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await commit(wire, add("a.parquet"))
    tx = inside(wire, await begin(wire))
    await load(tx)
    later = await commit(wire, add("b.parquet"))
    assert paths(await load(tx)) == ["a.parquet"]
    assert paths(await load(tx, timestamp_ms=str(later.json()["timestamp-ms"] + 1))) == ["a.parquet"]
    history = (await tx.get(f"{TABLES}/labels/history")).json()["versions"]
    assert [one["version"] for one in history] == [1, 0]
    assert (await tx.get(f"{TABLES}/labels?version=2")).status == 404


async def test_rows_computed_from_a_table_that_moved_are_a_conflict(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await wire.create("orders")
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    await tx.get("/namespaces/db/tables/orders")
    await commit(tx, add("computed.parquet"))
    seen = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"processed": "yes"}}]}
    assert (await tx.post("/namespaces/db/tables/orders", seen)).status == 200
    assert (await wire.post("/namespaces/db/tables/orders", change("orders", append(1)))).status == 200
    assert (await wire.post(f"/transactions/{transaction}/commit", {})).status == 409
    assert (await load(wire))["version"] == 0


async def test_characters_that_end_lines_elsewhere_do_no_harm(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    transaction = await begin(wire)
    tx = inside(wire, transaction)
    stats = json.dumps({"numRecords": 1, "minValues": {"label": "a\u2028b\x85c"}}, ensure_ascii=False)
    assert (await commit(tx, add("a.parquet", stats=stats))).status == 200
    assert (await commit(tx, add("b.parquet"))).status == 200
    assert (await wire.post(f"/transactions/{transaction}/commit", {})).status == 200
    assert [one["add"]["stats"] for one in (await load(wire))["files"] if "a.parq" in one["add"]["path"]] == [stats]


async def test_no_path_leads_out_of_the_table(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    for path in (
        "/etc/secret",
        "file%3A%2F%2F%2Fetc%2Fsecret",
        "s3%3a%2f%2fother%2fk",
        "a%2F..%2F..%2Fother",
        "a/../b",
        "%2e%2e/b",
        "%5fdelta_log/0.json",
        "_delta_log%2F0.json",
        "a%5C..%5Cb",
    ):
        refused = await commit(wire, add(path))
        assert (refused.status, (await load(wire))["version"]) == (400, 0), path


async def test_a_commit_of_both_formats_that_is_sent_again_is_never_called_refused(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire)
    await wire.create("orders")
    delta = {"identifier": {"namespace": ["db"], "name": "labels"}, "actions": [add("a.parquet")]}
    body = {"table-changes": [change("orders", append(1))], "delta-changes": [{**delta, "expected-version": 0}]}
    assert (await wire.post("/transactions/commit", body)).status == 204
    assert (await wire.post("/transactions/commit", body)).status == 504
    assert paths(await load(wire)) == ["a.parquet"]


# --- where there is no SQL ---


async def test_a_store_of_documents_says_which_stores_can(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, store=f"file://{tmp_path / 'cells'}") as wire:
        await wire.namespace("db")
        refused = await wire.post(TABLES, {"name": "labels", "schema": SCHEMA})
        assert refused.status == 406
        assert "SQLite" in refused.json()["error"]["message"]
        assert "PostgreSQL" in refused.json()["error"]["message"]
