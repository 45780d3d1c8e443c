"""The same key is the same request: it takes effect once, and is answered the same way for as long as keys live."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lakepact.kernel.identity import uuid7
from tests.support.asgi_client import Answer
from tests.wire.world import (
    SCHEMA,
    VIEW_VERSION,
    Json,
    Wire,
    append,
    change,
    creation,
    new_key,
    set_properties,
    table_path,
    view_path,
)

LARGE = 9_007_199_254_740_993


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def rename(source: str, target: str) -> Json:
    return {
        "source": {"namespace": ["db"], "name": source},
        "destination": {"namespace": ["db"], "name": target},
    }


MUTATIONS: dict[str, Callable[[Wire, str], Awaitable[Answer]]] = {
    "createNamespace": lambda wire, key: wire.post("/namespaces", {"namespace": ["new"]}, key),
    "updateProperties": lambda wire, key: wire.post("/namespaces/db/properties", {"updates": {"a": "b"}}, key),
    "dropNamespace": lambda wire, key: wire.delete("/namespaces/empty", headers=keyed(key)),
    "createTable": lambda wire, key: wire.post("/namespaces/db/tables", {"name": "new", "schema": SCHEMA}, key),
    "updateTable": lambda wire, key: wire.commit([set_properties(a="b")], key=key),
    "commitCreation": lambda wire, key: wire.post(table_path("staged"), creation(), key),
    "renameTable": lambda wire, key: wire.post("/tables/rename", rename("t", "u"), key),
    "dropTable": lambda wire, key: wire.delete(table_path(), headers=keyed(key)),
    "unregisterTable": lambda wire, key: wire.post(f"{table_path()}/unregister", key=key, body=b""),
    "commitTransaction": lambda wire, key: wire.commit_all(
        change("t", [set_properties(a="b")]), {**creation(), "identifier": {"namespace": ["db"], "name": "n"}}, key=key
    ),
    "createView": lambda wire, key: wire.post(
        "/namespaces/db/views", {"name": "made", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}, key
    ),
    "replaceView": lambda wire, key: wire.post(view_path(), {"updates": [set_properties(a="b")]}, key),
    "renameView": lambda wire, key: wire.post("/views/rename", rename("v", "w"), key),
    "dropView": lambda wire, key: wire.delete(view_path(), headers=keyed(key)),
}


async def _furnish(wire: Wire) -> None:
    await wire.namespace()
    await wire.namespace("empty")
    await wire.table()
    await wire.view()


@pytest.mark.parametrize("operation", MUTATIONS)
async def test_a_success_is_replayed_and_has_no_second_effect(wire: Wire, operation: str) -> None:
    await _furnish(wire)
    key, send = new_key(), MUTATIONS[operation]
    first = await send(wire, key)
    assert first.status in (200, 204), first.body
    for _ in range(2):
        again = await send(wire, key)
        assert (again.status, again.body) == (first.status, first.body)
        assert again.header("X-Lakepact-Transaction") == first.header("X-Lakepact-Transaction") == key
    other = await send(wire, new_key())
    assert other.status in (200, 204, 404, 409)


async def test_every_kind_of_mutation_is_replayed_on_every_store(anywhere: Wire) -> None:
    await _furnish(anywhere)
    # Dropping and renaming come last: the others need what they take away.
    order = sorted(MUTATIONS, key=lambda name: ("unregister" in name, "drop" in name, "rename" in name))
    moved = {"unregisterTable", "dropTable", "dropView"}
    for operation in [name for name in order if name not in moved]:
        key = new_key()
        first = await MUTATIONS[operation](anywhere, key)
        again = await MUTATIONS[operation](anywhere, key)
        assert first.status in (200, 204), (operation, first.body)
        assert (again.status, again.body) == (first.status, first.body), operation


async def test_a_success_is_replayed_by_another_process(tmp_path: Path) -> None:
    key = new_key()
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        first = await wire.commit([set_properties(a="b")], key=key)
    async with Wire.opened(tmp_path) as wire:
        again = await wire.commit([set_properties(a="b")], key=key)
        assert (again.status, again.json()) == (first.status, first.json())


async def test_the_answer_is_the_one_of_that_time_though_the_table_has_gone_on(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    key = new_key()
    first = (await anywhere.commit([set_properties(a="1")], key=key)).json()
    await anywhere.commit([set_properties(a="2")])
    again = (await anywhere.commit([set_properties(a="1")], key=key)).json()
    assert again["metadata-location"] == first["metadata-location"]
    assert (await anywhere.load())["metadata"]["properties"]["a"] == "2"


async def test_a_refusal_is_replayed_even_when_it_would_not_be_refused_any_more(anywhere: Wire) -> None:
    await anywhere.namespace()
    missing, taken, failing = new_key(), new_key(), new_key()
    require = [{"type": "assert-current-schema-id", "current-schema-id": 1}]
    refused = await anywhere.commit([set_properties(a="b")], key=missing)
    await anywhere.table("t", properties={"a": "b"})
    conflict = await anywhere.post("/namespaces/db/tables", {"name": "t", "schema": SCHEMA}, taken)
    failed = await anywhere.commit([set_properties(c="d")], require, key=failing)
    assert (refused.status, conflict.status, failed.status) == (404, 409, 409)

    again = await anywhere.commit([set_properties(a="b")], key=missing)
    assert (again.status, again.json()) == (404, refused.json())
    assert (await anywhere.commit([set_properties(c="d")], require, key=failing)).json() == failed.json()
    await anywhere.delete(table_path())
    body = {"name": "t", "schema": SCHEMA}
    assert (await anywhere.post("/namespaces/db/tables", body, taken)).json() == conflict.json()
    assert await anywhere.tables() == []


async def test_a_key_that_comes_back_with_another_request_is_409(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table("t")
    await anywhere.table("u")
    key = new_key()
    assert (await anywhere.commit([set_properties(a="1")], key=key)).status == 200
    for answer in (
        await anywhere.commit([set_properties(a="2")], key=key),
        await anywhere.commit([set_properties(a="1")], name="u", key=key),
        await anywhere.commit_all(change("t", [set_properties(a="1")]), key=key),
        await anywhere.delete(table_path(), headers=keyed(key)),
    ):
        assert answer.refusal == (409, "KeyReusedException")
        assert key in answer.error["message"]
    assert (await anywhere.load())["metadata"]["properties"]["a"] == "1"
    assert sorted(await anywhere.tables()) == ["t", "u"]


async def test_the_query_is_part_of_the_request(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    key = new_key()
    assert (await wire.delete(f"{table_path()}?purgeRequested=true", headers=keyed(key))).status == 204
    assert (await wire.delete(table_path(), headers=keyed(key))).status == 409


async def test_a_key_from_another_warehouse_is_409_and_never_a_replay(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, warehouses={"other": {"url": f"file://{tmp_path}/other"}}) as wire:
        beside = Wire(wire.client, wire.settings, base="/v1/other")
        key = new_key()
        body = {"namespace": ["db"]}
        assert (await wire.post("/namespaces", body, key)).status == 200
        assert (await beside.post("/namespaces", body, key)).refusal == (409, "KeyReusedException")
        assert (await beside.get("/namespaces")).json()["namespaces"] == []


async def test_the_same_request_in_any_spelling_is_one_request(wire: Wire) -> None:
    await wire.namespace("my db")
    await wire.table("t", "my db")
    key = new_key()
    body = {"requirements": [], "updates": [set_properties(a="b", c="d")]}
    swapped = {"updates": [{"updates": {"c": "d", "a": "b"}, "action": "set-properties"}], "requirements": []}
    first = await wire.post("/namespaces/my%20db/tables/t", body, key)
    assert first.status == 200
    for path, sent in (
        ("/v1/main/namespaces/my+db/tables/t", body),
        ("/%761/main/namespaces/my%20db/tables/t", body),
        ("/v1/main/namespaces/my%20db/tables/%74", swapped),
    ):
        again = await wire.client.send("POST", path, json=sent, headers=keyed(key))
        assert (again.status, again.json()) == (200, first.json())
    upper = await wire.client.send(
        "POST", "/v1/main/namespaces/my%20db/tables/t", json=body, headers=keyed(key.upper())
    )
    assert upper.status == 200


async def test_the_order_of_tables_means_nothing(wire: Wire) -> None:
    await wire.namespace()
    for name in ("a", "b"):
        await wire.table(name)
    key = new_key()
    changes = [change(name, append(number)) for number, name in enumerate(("a", "b"), 1)]
    assert (await wire.commit_all(*changes, key=key)).status == 204
    assert (await wire.commit_all(*reversed(changes), key=key)).status == 204


async def test_ids_beyond_53_bits_are_told_apart(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    key = new_key()
    sent = [append(LARGE, **{"timestamp-ms": 1}), append(LARGE - 1, **{"timestamp-ms": 1})]
    assert (await wire.commit(sent[0], key=key)).status == 200
    assert (await wire.commit(sent[0], key=key)).status == 200
    assert (await wire.commit(sent[1], key=key)).refusal == (409, "KeyReusedException")


@pytest.mark.parametrize(
    "key",
    [
        "nonsense",
        "",
        "0" * 36,
        "550e8400-e29b-41d4-a716-446655440000",
        "{01890a5d-ac96-774b-bcce-b302099a8057}",
        "01890a5dac96774bbcceb302099a8057",
        "01890a5d-ac96-774b-7cce-b302099a8057",
        "x" * 5_000,
    ],
)
async def test_a_key_that_is_no_uuid_of_version_7_is_400(wire: Wire, key: str) -> None:
    await wire.namespace()
    before = await wire.table()
    for answer in (
        await wire.commit([set_properties(a="b")], key=key),
        await wire.delete(table_path(), headers=keyed(key)),
        await wire.commit_all(change("t", [set_properties(a="b")]), key=key),
    ):
        assert answer.refusal == (400, "BadRequestException")
    assert await wire.load() == before


async def test_a_key_of_long_ago_or_of_the_far_future_is_400(anywhere: Wire) -> None:
    await anywhere.namespace()
    before = await anywhere.table()
    for made_ms in (1_600_000_000_000, 4_000_000_000_000, 0):
        answer = await anywhere.commit([set_properties(a="b")], key=uuid7(made_ms, 7))
        assert answer.refusal == (400, "BadRequestException"), made_ms
    assert await anywhere.load() == before


async def test_unknown_actions_are_refused_before_the_key_is_looked_at(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    key = new_key()
    assert (await wire.commit([set_properties(a="b")], key=key)).status == 200
    for _ in range(2):
        unknown = await wire.commit([{"action": "fly"}, {"action": "swim"}], [{"type": "assert-magic"}], key=key)
        assert unknown.refusal == (400, "BadRequestException")
        assert all(word in unknown.error["message"] for word in ("fly", "swim", "assert-magic"))
    # And a key that was sent with nonsense first is still good.
    fresh = new_key()
    assert (await wire.commit([{"action": "fly"}], key=fresh)).status == 400
    assert (await wire.commit([set_properties(c="d")], key=fresh)).status == 200


async def test_of_many_requests_with_one_key_at_once_one_takes_effect(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    key = new_key()
    sent = append(1)

    async def send(_: int) -> Any:
        return await anywhere.commit(
            sent, [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}], key=key
        )

    answers = await asyncio.gather(*(send(number) for number in range(8)))
    done = [answer for answer in answers if answer.status == 200]
    assert done
    assert len({answer.body for answer in done}) == 1
    # Whoever was not answered yet is told to come back, and never that it did not happen.
    for answer in answers:
        assert answer.status in (200, 503), answer.body
        if answer.status == 503:
            assert answer.header("Retry-After") is not None
    assert (await send(0)).body == done[0].body
    metadata = (await anywhere.load())["metadata"]
    assert [one["snapshot-id"] for one in metadata["snapshots"]] == [1]
    assert len(metadata["metadata-log"]) == 1


@pytest.mark.parametrize("operation", ["createTable", "createNamespace", "dropNamespace", "dropTable", "renameTable"])
async def test_of_many_at_once_with_one_key_all_are_told_that_it_happened(anywhere: Wire, operation: str) -> None:
    await _furnish(anywhere)
    key = new_key()
    answers = await asyncio.gather(*(MUTATIONS[operation](anywhere, key) for _ in range(6)))
    assert {answer.status for answer in answers} <= {200, 204, 503}, [answer.body for answer in answers]
    settled = await MUTATIONS[operation](anywhere, key)
    assert settled.status in (200, 204)
    assert {answer.body for answer in answers if answer.status != 503} <= {settled.body}


# --- without a key ---


async def test_an_append_sent_twice_without_a_key_is_recognised(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    sent = append(1)
    require = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
    first = await anywhere.commit(sent, require)
    again = await anywhere.commit(sent, require)
    assert (first.status, again.status) == (200, 200)
    assert again.json() == first.json()
    at_one = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}]
    assert (await anywhere.commit(append(2, 2, 1), at_one)).status == 200
    later = await anywhere.commit(sent, require)
    assert later.status == 200
    assert later.json()["metadata"]["current-snapshot-id"] == 2


async def test_a_transaction_of_appends_sent_twice_without_a_key_is_recognised(anywhere: Wire) -> None:
    await anywhere.namespace()
    for name in ("a", "b"):
        await anywhere.table(name)
    require = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
    changes = [change(name, append(number), require) for number, name in enumerate(("a", "b"), 1)]
    for _ in range(3):
        assert (await anywhere.commit_all(*changes)).status == 204
    for name in ("a", "b"):
        assert len((await anywhere.load(name))["metadata"]["snapshots"]) == 1


async def test_an_append_is_recognised_after_the_table_was_renamed(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    sent = append(1)
    require = [{"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]}]
    assert (await wire.commit(sent, require)).status == 200
    assert (await wire.post("/tables/rename", rename("t", "u"))).status == 204
    assert (await wire.commit(sent, require)).status == 200


async def test_a_snapshot_of_the_same_id_with_other_files_is_not_taken_for_a_repetition(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    assert (await wire.commit(append(1))).status == 200
    elsewhere: Json = {"manifest-list": "file:///nowhere/other.avro"}
    assert (await wire.commit(append(1, **elsewhere))).status in (400, 409)


# --- which refusals are stored: the table of docs/rest.md ---

_DOCS = Path(__file__).parents[2] / "docs" / "rest.md"
_FAILS = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 4711}]
REFUSALS: dict[str, tuple[str, Json | bytes]] = {
    "a requirement that fails (409)": (table_path(), {"requirements": _FAILS, "updates": []}),
    "a name that is taken (409)": ("/namespaces/db/tables", {"name": "t", "schema": SCHEMA}),
    "a namespace, table or view that is missing (404)": (table_path("x"), {"requirements": [], "updates": []}),
    "an update that does not fit the table (400)": (
        table_path(),
        {"requirements": [], "updates": [{"action": "set-current-schema", "schema-id": 99}]},
    ),
    "a body that is not JSON, or lacks a field (400)": ("/namespaces/db/tables", b"{"),
    "an unknown type of update or requirement (400)": (
        table_path(),
        {"requirements": [], "updates": [{"action": "no-such-update"}]},
    ),
    "more tables than `max_tables` (400)": (
        "/transactions/commit",
        {"table-changes": [change(f"t{number}", [set_properties(a="b")]) for number in range(3)]},
    ),
    "several tables where `multi_table_transactions` is off (406)": (
        "/transactions/commit",
        {"table-changes": [change("t", [set_properties(a="b")]), change("u", [set_properties(a="b")])]},
    ),
}


def documented_refusals() -> dict[str, bool]:
    table = _DOCS.read_text().split("| refusal | stored under the key |", 1)[1].split("\n\n", 1)[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ") and "---" not in row]
    return {case: stored == "yes" for case, stored in rows}


@pytest.mark.parametrize("case", REFUSALS)
async def test_refusals_are_stored_as_documented(tmp_path: Path, case: str) -> None:
    path, body = REFUSALS[case]
    given: dict[str, Any] = {"max_tables": 2, "multi_table_transactions": "406" not in case}
    async with Wire.opened(tmp_path, **given) as wire:
        await wire.namespace()
        await wire.table()
        key = new_key()
        sent: Json = {"body": body} if isinstance(body, bytes) else {"json": body}
        headers = {**keyed(key), "Content-Type": "application/json"}
        answers = [await wire.client.send("POST", f"/v1/main{path}", headers=headers, **sent) for _ in range(2)]
        assert f"({answers[0].status})" in case, answers[0].body
        assert answers[0].status == answers[1].status and answers[0].error == answers[1].error
        record = await wire.get(f"/transactions/{key}")
        assert documented_refusals()[case] == (record.status == 200), record.body
        if record.status == 200:
            assert record.json()["state"] == "failed"


def test_every_documented_refusal_is_compared_or_is_about_the_requester() -> None:
    others = documented_refusals().keys() - REFUSALS.keys()
    assert all("token" in case or "too many requests" in case for case in others), others
