"""Many tables in one commit: all of them or none, and an answer that says everything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.wire.world import Json, Wire, append, change, creation, new_key, set_properties, snapshot, table_path

LARGE = 9_007_199_254_740_993


async def test_updates_and_creations_go_together(anywhere: Wire) -> None:
    await anywhere.namespace()
    made = await anywhere.table("old")
    uuid = {"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]}
    answer = await anywhere.commit_all(
        change("old", append(1), [uuid]),
        {**creation(updates=append(2)), "identifier": {"namespace": ["db"], "name": "new"}},
    )
    assert (answer.status, answer.body) == (204, b"")
    assert (await anywhere.load("old"))["metadata"]["current-snapshot-id"] == 1
    assert (await anywhere.load("new"))["metadata"]["current-snapshot-id"] == 2


async def test_it_is_answered_with_its_id_and_results_if_the_client_prefers_it(anywhere: Wire) -> None:
    await anywhere.namespace()
    for name in ("a", "b"):
        await anywhere.table(name)
    changes = [change(name, [set_properties(x="y")]) for name in ("b", "a")]
    answer = await anywhere.commit_all(*changes, Prefer="return=representation")
    assert answer.status == 200
    document = answer.json()
    assert document["commit-id"] == answer.header("X-Lakepact-Transaction")
    assert [one["identifier"]["name"] for one in document["results"]] == ["b", "a"]
    for one in document["results"]:
        assert (await anywhere.load(one["identifier"]["name"]))["metadata-location"] == one["metadata-location"]
    shown = (await anywhere.get(f"/transactions/{document['commit-id']}")).json()
    assert shown["state"] == "committed"
    assert shown["result"]["results"] == document["results"]


@pytest.mark.parametrize(
    ("prefer", "status"),
    [("return=minimal", 204), ('wait=1, return="representation"', 200), ("RETURN=Representation", 200)],
)
async def test_a_preference_is_read_as_http_writes_it(wire: Wire, prefer: str, status: int) -> None:
    await wire.namespace()
    await wire.table()
    assert (await wire.commit_all(change("t", [set_properties(a="b")]), Prefer=prefer)).status == status


async def test_nothing_happens_if_one_requirement_fails(anywhere: Wire) -> None:
    await anywhere.namespace()
    before = {name: await anywhere.table(name) for name in ("a", "b", "c")}
    wrong = {"type": "assert-current-schema-id", "current-schema-id": 3}
    answer = await anywhere.commit_all(
        change("a", append(1)),
        change("b", append(2), [wrong]),
        change("c", append(3)),
        {**creation(), "identifier": {"namespace": ["db"], "name": "new"}},
    )
    assert answer.refusal == (409, "CommitFailedException")
    assert answer.error["message"].startswith("Transaction failed: requirement not met for table db.b")
    assert {name: await anywhere.load(name) for name in before} == before
    assert sorted(await anywhere.tables()) == ["a", "b", "c"]


async def test_every_failure_of_every_table_is_told(wire: Wire) -> None:
    await wire.namespace()
    await wire.table("a")
    await wire.table("b")
    requirements: list[Json] = [
        {"type": "assert-current-schema-id", "current-schema-id": 1},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": LARGE},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
    ]
    answer = await wire.commit_all(
        change("a", [set_properties(a="b")], requirements),
        change("b", [set_properties(a="b")], [{"type": "assert-table-uuid", "uuid": "x"}, requirements[0]]),
    )
    failed = [(one["identifier"]["name"], one["requirement"]["type"]) for one in answer.error["failed-requirements"]]
    assert failed == [
        ("a", "assert-current-schema-id"),
        ("a", "assert-ref-snapshot-id"),
        ("b", "assert-table-uuid"),
        ("b", "assert-current-schema-id"),
    ]
    assert all({"identifier", "requirement", "actual"} <= set(one) for one in answer.error["failed-requirements"])
    assert answer.error["failed-requirements"][1]["requirement"]["snapshot-id"] == LARGE


async def test_a_table_that_is_missing_or_a_view_fails_the_whole(wire: Wire) -> None:
    await wire.namespace()
    before = await wire.table("a")
    await wire.view("v")
    for name in ("never", "v"):
        answer = await wire.commit_all(change("a", append(1)), change(name, append(2)))
        assert answer.refusal == (404, "NoSuchTableException")
    nowhere = {**creation(), "identifier": {"namespace": ["nope"], "name": "x"}}
    assert (await wire.commit_all(change("a", append(1)), nowhere)).refusal == (404, "NoSuchNamespaceException")
    bad = change("a", [{"action": "set-current-schema", "schema-id": 99}])
    assert (await wire.commit_all({**creation(), "identifier": {"namespace": ["db"], "name": "n"}}, bad)).status == 400
    assert await wire.load("a") == before
    assert await wire.tables() == ["a"]


async def test_a_creation_of_what_is_there_fails_the_whole(wire: Wire) -> None:
    await wire.namespace()
    before = await wire.table("a")
    there = {**creation(), "identifier": {"namespace": ["db"], "name": "a"}}
    answer = await wire.commit_all(there, {**creation(), "identifier": {"namespace": ["db"], "name": "b"}})
    assert answer.refusal == (409, "CommitFailedException")
    assert await wire.load("a") == before
    assert await wire.tables() == ["a"]


async def test_a_table_named_twice_is_400(wire: Wire) -> None:
    await wire.namespace()
    before = await wire.table()
    answer = await wire.commit_all(change("t", append(1)), change("t", [set_properties(a="b")]))
    assert answer.refusal == (400, "BadRequestException")
    assert "db.t is named twice" in answer.error["message"]
    assert await wire.load() == before


async def test_two_creations_under_one_uuid_are_refused(wire: Wire) -> None:
    """Whichever came last would take the table away from the other's name."""
    await wire.namespace()
    uuid = {"action": "assign-uuid", "uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}
    changes = [
        {**creation(updates=[uuid, {"action": "set-location", "location": f"{wire.root}/{name}"}]), **_named(name)}
        for name in ("a", "b")
    ]
    assert (await wire.commit_all(*changes)).status in (400, 409)
    assert await wire.tables() == []


async def test_two_creations_at_one_location_are_refused(wire: Wire) -> None:
    await wire.namespace()
    place = {"action": "set-location", "location": f"{wire.root}/shared"}
    changes = [{**creation(updates=[place]), **_named(name)} for name in ("a", "b")]
    assert (await wire.commit_all(*changes)).status in (400, 409)
    assert await wire.tables() == []


async def test_the_limits_are_said_before_anything_is_done(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, max_tables=3, max_updates=5) as wire:
        await wire.namespace()
        for name in "abcd":
            await wire.table(name)
        answer = await wire.commit_all(*(change(name, [set_properties(a="b")]) for name in "abcd"))
        assert answer.refusal == (400, "BadRequestException")
        assert "max_tables" in answer.error["message"]
        many = [set_properties(a=str(number)) for number in range(6)]
        for answer in (await wire.commit_all(change("a", many)), await wire.commit(many, name="a")):
            assert answer.refusal == (400, "BadRequestException")
            assert "max_updates" in answer.error["message"]
        assert (await wire.commit_all(*(change(name, many[:5]) for name in "abc"))).status == 204
        assert "a" not in (await wire.load("d"))["metadata"]["properties"]


async def test_a_hundred_tables_fit_and_one_more_does_not(anywhere: Wire) -> None:
    await anywhere.namespace()
    changes: list[Json] = [{**creation(), **_named(f"t{number}")} for number in range(101)]
    assert (await anywhere.commit_all(*changes)).refusal == (400, "BadRequestException")
    assert await anywhere.tables() == []
    assert (await anywhere.commit_all(*changes[:100])).status == 204
    assert len(await anywhere.tables()) == 100


async def test_switched_off_it_is_not_advertised_and_takes_one_table_only(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, multi_table_transactions=False) as wire:
        endpoints = (await wire.client.send("GET", "/v1/config")).json()["endpoints"]
        assert not [one for one in endpoints if one.endswith("/transactions/commit")]
        await wire.namespace()
        for name in ("a", "b"):
            await wire.table(name)
        both = [change(name, [set_properties(x="y")]) for name in ("a", "b")]
        assert (await wire.commit_all(*both)).refusal == (406, "UnsupportedOperationException")
        assert (await wire.commit_all(both[0])).status == 204
        assert "x" not in (await wire.load("b"))["metadata"]["properties"]


async def test_an_empty_transaction_changes_nothing(wire: Wire) -> None:
    assert (await wire.commit_all()).status == 204
    assert (await wire.commit_all(key=new_key())).status == 204


async def test_concurrent_transfers_between_two_tables_are_seen_whole(contended: Wire) -> None:
    """Each writes the same number to both tables. Whoever comes last, the two agree."""
    await contended.namespace()
    for name in ("a", "b"):
        await contended.table(name)

    async def write(number: int) -> Any:
        changes = [change(name, [set_properties(n=str(number))]) for name in ("a", "b")]
        return await contended.commit_all(*(changes if number % 2 else reversed(changes)))

    answers = await asyncio.gather(*(write(number) for number in range(12)))
    assert {answer.status for answer in answers} == {204}
    seen = [(await contended.load(name))["metadata"]["properties"]["n"] for name in ("a", "b")]
    assert seen[0] == seen[1]


async def test_a_transaction_can_be_asked_about(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    done = await anywhere.commit([set_properties(a="b")])
    transaction = done.header("X-Lakepact-Transaction")
    shown = (await anywhere.get(f"/transactions/{transaction}")).json()
    assert (shown["transaction-id"], shown["state"], shown["operation"]) == (transaction, "committed", "updateTable")
    [changed] = [one for one in shown["changes"] if "metadata-location" in one]
    assert changed["identifier"] == {"namespace": ["db"], "name": "t"}
    assert changed["metadata-location"] == done.json()["metadata-location"]


async def test_a_refused_transaction_can_be_asked_about(anywhere: Wire) -> None:
    await anywhere.namespace()
    key = new_key()
    refused = await anywhere.commit([set_properties(a="b")], key=key)
    shown = (await anywhere.get(f"/transactions/{key}")).json()
    assert shown["state"] == "failed"
    assert shown["error"] == refused.error


async def test_an_unknown_transaction_is_404_and_a_bad_id_400(wire: Wire) -> None:
    assert (await wire.get(f"/transactions/{new_key()}")).refusal == (404, "NoSuchTransactionException")
    assert (await wire.get("/transactions/nonsense")).refusal == (400, "BadRequestException")


async def test_a_transaction_of_another_warehouse_is_not_shown(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, warehouses={"other": {"url": f"file://{tmp_path}/other"}}) as wire:
        await wire.namespace()
        await wire.table()
        committed, failed = new_key(), new_key()
        assert (await wire.commit([set_properties(a="b")], key=committed)).status == 200
        assert (await wire.commit([set_properties(a="b")], name="never", key=failed)).status == 404
        beside = Wire(wire.client, wire.settings, base="/v1/other")
        for key in (committed, failed):
            assert (await wire.get(f"/transactions/{key}")).status == 200
            assert (await beside.get(f"/transactions/{key}")).status == 404, key


async def test_a_commit_through_the_table_and_one_through_a_transaction_see_each_other(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    assert (await wire.commit_all(change("t", append(1)))).status == 204
    at_one = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}
    assert (await wire.commit(append(2, 2, 1), [at_one])).status == 200
    refused = await wire.commit_all(change("t", append(3, 3, 1), [at_one]))
    assert refused.refusal == (409, "CommitFailedException")
    assert (await wire.get(table_path())).json()["metadata"]["current-snapshot-id"] == 2


def _named(name: str) -> Json:
    return {"identifier": {"namespace": ["db"], "name": name}}


async def test_the_documented_commit_of_two_tables_without_sequence_numbers_is_applied(wire: Wire) -> None:
    """An append to one table and an overwrite of another, as clients send them that leave numbering to the server."""
    await wire.namespace("analytics")
    tables = {
        "events": ("550e8400-e29b-41d4-a716-446655440000", 123456789),
        "event_counts": ("660e8400-e29b-41d4-a716-446655440001", 987654321),
    }
    for name, (uuid, first) in tables.items():
        parent = snapshot(first, **{"timestamp-ms": 1705398000000})
        body = creation(
            updates=[
                {"action": "assign-uuid", "uuid": uuid},
                {"action": "add-snapshot", "snapshot": parent},
                {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": first},
            ]
        )
        made = await wire.post(table_path(name, "analytics"), body)
        assert made.status == 200, made.body
    body = {
        "table-changes": [
            {
                "identifier": {"namespace": ["analytics"], "name": "events"},
                "requirements": [
                    {"type": "assert-table-uuid", "uuid": "550e8400-e29b-41d4-a716-446655440000"},
                    {"type": "assert-current-schema-id", "current-schema-id": 0},
                ],
                "updates": [
                    {
                        "action": "add-snapshot",
                        "snapshot": {
                            "snapshot-id": 123456790,
                            "parent-snapshot-id": 123456789,
                            "timestamp-ms": 1705398600000,
                            "summary": {"operation": "append", "added-data-files": "5", "added-records": "10000"},
                            "manifest-list": "s3://bucket/metadata/snap-123456790.avro",
                            "schema-id": 0,
                        },
                    },
                    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 123456790},
                ],
            },
            {
                "identifier": {"namespace": ["analytics"], "name": "event_counts"},
                "requirements": [{"type": "assert-table-uuid", "uuid": "660e8400-e29b-41d4-a716-446655440001"}],
                "updates": [
                    {
                        "action": "add-snapshot",
                        "snapshot": {
                            "snapshot-id": 987654322,
                            "parent-snapshot-id": 987654321,
                            "timestamp-ms": 1705398600000,
                            "summary": {"operation": "overwrite", "added-data-files": "1", "added-records": "100"},
                            "manifest-list": "s3://bucket/metadata/snap-987654322.avro",
                            "schema-id": 0,
                        },
                    },
                    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 987654322},
                ],
            },
        ]
    }
    answer = await wire.client.send("POST", "/v1/transactions/commit", json=body)
    assert answer.status == 204, answer.body
    for name, current in (("events", 123456790), ("event_counts", 987654322)):
        metadata = (await wire.load(name, "analytics"))["metadata"]
        assert metadata["current-snapshot-id"] == current
        assert metadata["last-sequence-number"] == metadata["snapshots"][-1]["sequence-number"] == 2
