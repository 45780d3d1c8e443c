"""Inside an open transaction every endpoint works; outside nobody sees anything of it before its commit, and all after.

How it is committed, and what becomes of it afterwards, is in `test_overlay_commit`.

Long because every endpoint is here once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest

from tests.support.asgi_client import Answer
from tests.wire.overlays import Overlaid, batch, begin, furnish, head, keeps_history, properties, rename
from tests.wire.world import (
    SCHEMA,
    VIEW_VERSION,
    WIDER,
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

# --- the doors ---


async def test_a_transaction_begins_with_all_that_a_client_needs(anywhere: Wire) -> None:
    answer = await anywhere.post("/transactions", {"ttl-seconds": 60, "properties": {"job": "nightly"}})
    begun = answer.json()
    assert begun["state"] == "open"
    assert begun["isolation"] == "serializable"
    assert begun["read-only"] is False
    assert begun["warehouse"] == begun["prefix"] == f"main@{begun['transaction-id']}"
    assert begun["expires-at"] > begun["created-at"]
    assert begun["properties"] == {"job": "nightly"}
    told = (await anywhere.get(f"/transactions/{begun['transaction-id']}")).json()
    assert told["age-seconds"] >= 0
    assert {name: told[name] for name in begun if name != "age-seconds"} == {
        name: value for name, value in begun.items() if name != "age-seconds"
    }


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"isolation": "casual"}, "isolation is"),
        ({"ttl": 600}, "no field 'ttl'; there is ttl-seconds"),
        ({"ttl-seconds": "long"}, "number of seconds"),
        ({"ttl-seconds": 0}, "more than 0"),
        ({"ttl-seconds": 10_000_000}, "at most"),
        ({"read-only": "yes"}, "read-only"),
        ({"properties": {"lakepact.warehouse": "other"}}, "reserved"),
        ({"properties": ["a"]}, "properties"),
    ],
)
async def test_a_wrong_beginning_is_400_and_says_why(wire: Wire, body: Json, why: str) -> None:
    answer = await wire.post("/transactions", body)
    assert answer.refusal == (400, "BadRequestException")
    assert why in answer.error["message"]


async def test_the_key_of_a_beginning_becomes_its_id_and_is_good_once(anywhere: Wire) -> None:
    key = new_key()
    first = await anywhere.post("/transactions", {"isolation": "snapshot"}, key)
    again = await anywhere.post("/transactions", {"isolation": "snapshot"}, key)
    assert first.json()["transaction-id"] == again.json()["transaction-id"] == key
    assert first.json()["expires-at"] == again.json()["expires-at"]
    other = await anywhere.post("/transactions", {"isolation": "serializable"}, key)
    assert other.refusal == (409, "KeyReusedException")


async def test_warehouse_prefix_and_header_lead_into_the_same_transaction(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    assert (await tx.commit([set_properties(inside="yes")])).status == 200
    config = await anywhere.client.send("GET", f"/v1/config?warehouse={quote(tx.begun['warehouse'], safe='')}")
    prefix = config.json()["overrides"]["prefix"]
    assert prefix == tx.begun["prefix"]
    by_header = {"X-Lakepact-Transaction": tx.id}
    config = await anywhere.client.send("GET", "/v1/config?warehouse=main", headers=by_header)
    assert config.json()["overrides"]["prefix"] == prefix
    for path, headers in (
        (f"/v1/{prefix}{table_path()}", {}),
        (f"/v1/{quote(prefix, safe='')}{table_path()}", {}),
        (f"/v1/main%40{tx.id.upper()}{table_path()}", {}),
        (f"/v1/main{table_path()}", by_header),
        (f"/v1{table_path()}", {"x-lakepact-transaction": tx.id.upper()}),
        (f"/v1/{prefix}{table_path()}", by_header),
    ):
        answer = await anywhere.client.send("GET", path, headers=headers)
        assert answer.status == 200, (path, answer.body)
        assert properties(answer.json())["inside"] == "yes", (path, headers)
    assert "inside" not in properties(await anywhere.load())


async def test_doors_that_disagree_are_400(wire: Wire) -> None:
    await furnish(wire, "t")
    one, other = await begin(wire), await begin(wire)
    header = {"X-Lakepact-Transaction": other.id}
    for answer in (
        await one.get(table_path(), headers=header),
        await one.post(table_path(), {"updates": [set_properties(a="b")], "requirements": []}, headers=header),
        await wire.client.send("GET", f"/v1/config?warehouse=main@{one.id}", headers=header),
        await wire.get(f"/transactions/{one.id}", headers=header),
        await wire.post(f"/transactions/{one.id}/commit", headers=header),
        await one.post(f"/transactions/{other.id}/commit"),
    ):
        assert answer.refusal == (400, "BadRequestException"), answer.body
        assert one.id in answer.error["message"] or other.id in answer.error["message"]
    assert (await wire.get("/transactions?state=open")).json()["transactions"]


@pytest.mark.parametrize("id", ["", "nonsense", "01890a5d-ac96-774b-bcce-b302099a8057"])
async def test_what_is_no_transaction_is_400_and_never_404(wire: Wire, id: str) -> None:
    await furnish(wire, "t")
    inside = Wire(wire.client, wire.settings, base=f"/v1/main@{id}")
    for answer in (
        await inside.get(table_path()),
        await inside.get("/namespaces"),
        await inside.commit([set_properties(a="b")]),
        await inside.delete(table_path()),
        await inside.create("new"),
        await inside.create("staged", **{"stage-create": True}),
        await wire.client.send("GET", f"/v1/config?warehouse=main@{id}"),
    ):
        assert answer.refusal == (400, "BadRequestException"), answer.body


async def test_a_transaction_is_of_one_warehouse_alone(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, warehouses={"other": {"url": f"file://{tmp_path}/other"}}) as wire:
        await wire.namespace()
        beside = Wire(wire.client, wire.settings, base="/v1/other")
        await beside.namespace()
        await beside.table("theirs")
        tx = await begin(wire)
        wrong = Wire(wire.client, wire.settings, base=f"/v1/other@{tx.id}")
        for answer in (
            await wire.client.send("GET", f"/v1/config?warehouse=other@{tx.id}"),
            await wrong.get(table_path("theirs")),
            await wrong.get("/namespaces/db/tables"),
            await wrong.create("new"),
            await wrong.create("staged", **{"stage-create": True}),
            await wrong.commit([set_properties(a="b")], name="theirs"),
            await wrong.delete(table_path("theirs")),
            await beside.post(f"/transactions/{tx.id}/commit", body=b""),
            await beside.post(f"/transactions/{tx.id}/abort", body=b""),
            await beside.get(f"/transactions/{tx.id}/state/x"),
        ):
            assert answer.refusal == (400, "BadRequestException"), answer.body
            assert tx.id in answer.error["message"]
        assert (await beside.get(f"/transactions/{tx.id}")).status == 404
        listed = (await beside.get("/transactions")).json()["transactions"]
        assert tx.id not in [one["transaction-id"] for one in listed]
        assert (await tx.create("mine")).status == 200
        await tx.publish()
        assert await beside.tables() == ["theirs"]


# --- every endpoint ---


async def test_statements_are_seen_inside_and_by_nobody_else_until_the_commit(anywhere: Wire) -> None:
    await furnish(anywhere, "changed", "dropped", "renamed", "gone")
    for name in ("plain", "empty"):
        await anywhere.namespace(name)
    view = await anywhere.view("old_view")
    before = await _everything(anywhere)
    tx = await begin(anywhere)

    assert (await tx.commit(append(1), name="changed")).status == 200
    assert (await tx.commit(append(2, 2, 1), name="changed")).status == 200
    assert (await tx.create("made")).status == 200
    staged = (await tx.create("by_query", **{"stage-create": True})).json()["metadata"]
    assign = {"action": "assign-uuid", "uuid": staged["table-uuid"]}
    assert (await tx.post(table_path("by_query"), creation(updates=[assign, *append(3)]))).status == 200
    assert (await tx.delete(table_path("dropped"))).status == 204
    assert (await tx.post("/tables/rename", rename("renamed", "elsewhere"))).status == 204
    foreign = (await tx.post(f"{table_path('gone')}/unregister")).json()["metadata-location"]
    assert (await tx.post("/namespaces/db/register", {"name": "back", "metadata-location": foreign})).status == 200
    several = await tx.commit_all(
        change("changed", [set_properties(many="yes")]),
        {**creation(), "identifier": {"namespace": ["db"], "name": "together"}},
    )
    assert (several.status, several.body) == (204, b"")
    await tx.view("new_view")
    assert (await tx.post(view_path("old_view"), {"updates": [set_properties(a="b")]})).status == 200
    assert (await tx.post("/views/rename", rename("old_view", "moved_view"))).status == 204
    await tx.namespace("fresh", owner="ada")
    await tx.namespace("fresh", "below")
    await tx.table("t", "fresh")
    assert (await tx.post("/namespaces/plain/properties", {"updates": {"owner": "bob"}})).status == 200
    assert (await tx.delete("/namespaces/empty")).status == 204

    inside = await _everything(tx)
    assert inside["tables"] == ["back", "by_query", "changed", "elsewhere", "made", "together"]
    assert inside["views"] == ["moved_view", "new_view"]
    assert inside["namespaces"] == [["db"], ["fresh"], ["plain"]]
    assert head(await tx.load("changed")) == 2
    assert properties(await tx.load("changed"))["many"] == "yes"
    assert head(await tx.load("by_query")) == 3
    assert (await tx.head(table_path("made"))).status == 204
    assert (await tx.head(table_path("dropped"))).status == 404
    assert (await tx.get(table_path("renamed"))).refusal == (404, "NoSuchTableException")
    assert (await tx.head("/namespaces/empty")).status == 404
    assert (await tx.head("/namespaces/fresh%1Fbelow")).status == 204
    assert (await tx.get("/namespaces/fresh?")).json()["properties"]["owner"] == "ada"
    assert (await tx.get("/namespaces/plain")).json()["properties"]["owner"] == "bob"
    assert (await tx.get(view_path("moved_view"))).json()["metadata"]["view-uuid"] == view["metadata"]["view-uuid"]
    assert (await tx.head(view_path("old_view"))).status == 404
    names = ("changed", "made", "elsewhere")
    assert [one["metadata-location"] for one in await batch(tx, *names)] == [
        (await tx.load(name))["metadata-location"] for name in names
    ]
    assert await _everything(anywhere) == before, "nobody else sees any of it"

    await tx.publish()
    assert await _everything(anywhere) == inside | {"heads": (await _everything(anywhere))["heads"]}
    assert head(await anywhere.load("changed")) == 2
    assert properties(await anywhere.load("changed"))["many"] == "yes"
    assert await anywhere.tables("fresh") == ["t"]
    assert (await anywhere.get("/namespaces/plain")).json()["properties"]["owner"] == "bob"
    assert (await anywhere.head("/namespaces/empty")).status == 404
    for name in inside["tables"]:
        assert "gc.enabled" not in properties(await anywhere.load(name))


async def _everything(wire: Wire) -> Json:
    tables = sorted(await wire.tables())
    views = [one["name"] for one in (await wire.get("/namespaces/db/views")).json()["identifiers"]]
    return {
        "tables": tables,
        "heads": {name: (await wire.load(name))["metadata-location"] for name in tables},
        "views": sorted(views),
        "namespaces": sorted((await wire.get("/namespaces")).json()["namespaces"]),
    }


async def test_an_abort_leaves_nothing(anywhere: Wire) -> None:
    await furnish(anywhere, "t", "u")
    before = await _everything(anywhere)
    tx = await begin(anywhere)
    await tx.commit(append(1))
    await tx.create("new")
    await tx.delete(table_path("u"))
    await tx.namespace("more")
    for _ in range(2):
        assert (await tx.do("abort")).json()["state"] == "aborted"
    assert await _everything(anywhere) == before
    assert (await tx.do("commit")).refusal == (400, "BadRequestException")
    assert (await tx.shown())["state"] == "aborted"


async def test_a_namespace_with_tables_is_not_dropped_inside_either(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere)
    assert (await tx.delete("/namespaces/db")).refusal == (409, "NamespaceNotEmptyException")
    assert (await tx.delete(table_path())).status == 204
    assert (await tx.delete("/namespaces/db")).status == 204
    assert (await tx.create("new")).refusal == (404, "NoSuchNamespaceException")
    assert (await anywhere.head(table_path())).status == 204
    await tx.publish()
    assert (await anywhere.get("/namespaces")).json()["namespaces"] == []


async def test_what_is_wrong_outside_is_wrong_inside_and_ends_nothing(anywhere: Wire) -> None:
    await furnish(anywhere, "t", "u")
    tx = await begin(anywhere)
    await tx.commit(append(1))
    for answer, refusal in (
        (await tx.create("t"), (409, "AlreadyExistsException")),
        (await tx.get(table_path("none")), (404, "NoSuchTableException")),
        (await tx.commit([{"action": "fly"}]), (400, "BadRequestException")),
        (await tx.post("/tables/rename", rename("t", "u")), (409, "AlreadyExistsException")),
        (await tx.create("t", "nowhere"), (404, "NoSuchNamespaceException")),
        (
            await tx.commit(append(2, 2), [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]),
            (409, "CommitFailedException"),
        ),
    ):
        assert answer.refusal == refusal
    await tx.publish()
    assert head(await anywhere.load()) == 1


async def test_what_came_and_went_inside_leaves_nothing(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        tx = await begin(wire)
        await tx.table("t")
        await tx.view("v")
        await tx.namespace("n")
        for path in (table_path(), view_path(), "/namespaces/n"):
            assert (await tx.delete(path)).status == 204
        assert (await tx.publish())["results"] == []
        assert (await wire.tables(), (await wire.get("/namespaces")).json()["namespaces"]) == ([], [["db"]])
        changes = (await tx.shown())["changes"]
        assert [one["cell"] for one in changes if one["access"] == "write"] == []


async def test_listings_go_on_page_by_page_inside(anywhere: Wire) -> None:
    await anywhere.namespace()
    tx = await begin(anywhere)
    for number in range(7):
        await tx.table(f"t{number}")
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = (await tx.get(f"/namespaces/db/tables?pageSize=2&pageToken={quote(token, safe='')}")).json()
        found += [one["name"] for one in page["identifiers"]]
        token = page["next-page-token"]
    assert sorted(found) == [f"t{number}" for number in range(7)]


# --- files ---


async def test_every_staged_version_is_a_file_of_its_own_that_says_what_was_answered(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await furnish(wire, "t")
        tx = await begin(wire)
        answers = [
            (await tx.create("new")).json(),
            (await tx.commit(append(1))).json(),
            (await tx.commit(append(2, 2, 1))).json(),
            (await tx.commit([set_properties(a="b")])).json(),
            (await tx.post("/namespaces/db/tables/made", creation())).json(),
            await tx.load("t"),
            *await batch(tx, "new"),
        ]
        locations = [answer["metadata-location"] for answer in answers]
        assert len(set(locations)) == 5, "each statement has its own; the loads show the last"
        for answer in answers:
            stored = orjson.loads(wire.path_of(answer["metadata-location"]).read_bytes())
            assert properties(answer).get("gc.enabled") == "false"
            shown = {**answer["metadata"], "properties": dict(properties(answer))}
            del shown["properties"]["gc.enabled"]
            assert shown == stored
        await tx.publish()
        assert (await wire.load())["metadata-location"] not in locations


async def test_engines_are_told_to_delete_nothing_but_it_is_never_stored(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table("t", properties={"gc.enabled": "true"})
    tx = await begin(anywhere)
    staged = (await tx.create("u", **{"stage-create": True})).json()
    assert "gc.enabled" not in properties(staged), "clients send back what they were told"
    assert properties(await tx.load())["gc.enabled"] == "false"
    assert properties((await tx.get(f"{table_path()}?snapshots=refs")).json())["gc.enabled"] == "false"
    answer = await tx.commit(append(1))
    assert properties(answer.json())["gc.enabled"] == "false"
    assert (await tx.commit([set_properties(a="b")])).status == 200
    await tx.publish()
    assert properties(await anywhere.load())["gc.enabled"] == "true"


async def test_removing_snapshots_is_no_part_of_a_transaction(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    await anywhere.commit(append(1))
    await anywhere.commit(append(2, 2, 1))
    tx = await begin(anywhere)
    remove = {"action": "remove-snapshots", "snapshot-ids": [1]}
    for answer in (await tx.commit([remove]), await tx.commit_all(change("t", [remove]))):
        assert answer.refusal == (400, "BadRequestException")
        assert "outside" in answer.error["message"].lower()
    assert len((await tx.load())["metadata"]["snapshots"]) == 2


async def test_a_snapshot_that_an_open_transaction_looks_at_cannot_be_removed_outside(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    await anywhere.commit(append(1))
    tx = await begin(anywhere)
    await tx.load()
    if not keeps_history(anywhere):
        # A store without history cannot show the table any more once it has moved, so there nothing has to stay.
        update = [*append(2, 2, 1), {"action": "set-snapshot-ref", "ref-name": "old", "type": "tag", "snapshot-id": 1}]
        assert (await tx.commit(update)).status == 200
        back = [{"action": "remove-snapshots", "snapshot-ids": [1]}]
        assert (await anywhere.commit(back)).refusal == (409, "CommitFailedException")
    else:
        assert (await anywhere.commit(append(2, 2, 1))).status == 200
        remove = [{"action": "remove-snapshots", "snapshot-ids": [1]}]
        for answer in (await anywhere.commit(remove), await anywhere.commit_all(change("t", remove))):
            assert answer.refusal == (409, "CommitFailedException")
            assert tx.id in answer.error["message"]
        assert head(await tx.load()) == 1
    await tx.do("abort")
    if keeps_history(anywhere):
        assert (await anywhere.commit(remove)).status == 200
        assert [one["snapshot-id"] for one in (await anywhere.load())["metadata"]["snapshots"]] == [2]


# --- one instant ---


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_reads_are_of_one_instant(anywhere: Wire, isolation: str) -> None:
    await furnish(anywhere, "a", "b")
    tx = await begin(anywhere, isolation=isolation)
    assert head(await tx.load("a")) is None
    both = [change(name, append(1)) for name in ("a", "b")]
    assert (await anywhere.commit_all(*both)).status == 204
    if keeps_history(anywhere):
        assert head(await tx.load("b")) is None, "as of the beginning, also for what is read late"
        assert [head(one) for one in await batch(tx, "a", "b")] == [None, None]
        assert head(await tx.load("a")) is None
    else:
        for answer in (
            await tx.get(table_path("b")),
            await tx.get(table_path("a")),
            await tx.post(
                "/tables/batch-load", {"identifiers": [{"namespace": ["db"], "name": name} for name in ("a", "b")]}
            ),
        ):
            assert answer.refusal == (409, "SnapshotTooOldException")
            assert "run it again" in answer.error["message"]


async def test_what_is_created_dropped_and_renamed_outside_does_not_show_inside(anywhere: Wire) -> None:
    if not keeps_history(anywhere):
        pytest.skip("listings are as of now where the store keeps no history")
    await furnish(anywhere, "stays", "goes", "moves")
    tx = await begin(anywhere)
    await anywhere.table("new")
    await anywhere.delete(table_path("goes"))
    await anywhere.post("/tables/rename", rename("moves", "moved"))
    await anywhere.namespace("other")
    assert sorted(await tx.tables()) == ["goes", "moves", "stays"]
    assert (await tx.get("/namespaces")).json()["namespaces"] == [["db"]]
    assert (await tx.head(table_path("new"))).status == 404
    assert (await tx.head(table_path("moved"))).status == 404
    for name in ("goes", "moves"):
        assert (await tx.get(table_path(name))).status == 200


async def test_a_batch_load_is_one_cut_outside_too_and_refuses_what_is_missing(anywhere: Wire) -> None:
    await furnish(anywhere, "a", "b")
    found = await batch(anywhere, "b", "a")
    assert [one["identifier"]["name"] for one in found] == ["b", "a"]
    assert found[1]["metadata-location"] == (await anywhere.load("a"))["metadata-location"]
    assert found[1]["config"] == {}
    asked = {"identifiers": [{"namespace": ["db"], "name": name} for name in ("a", "none")]}
    answer = await anywhere.post("/tables/batch-load", asked)
    assert answer.refusal == (404, "NoSuchTableException")
    assert "db.none" in answer.error["message"]
    assert (await batch(anywhere)) == []
    twice = {"identifiers": [{"namespace": ["db"], "name": "a"}] * 2}
    assert (await anywhere.post("/tables/batch-load", twice)).refusal == (400, "BadRequestException")
    many = {"identifiers": [{"namespace": ["db"], "name": f"t{number}"} for number in range(401)]}
    assert (await anywhere.post("/tables/batch-load", many)).refusal == (400, "BadRequestException")


async def test_a_transaction_that_only_reads_takes_no_changes(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx = await begin(anywhere, read_only=True)
    assert tx.begun["read-only"] is True
    for answer in (
        await tx.commit([set_properties(a="b")]),
        await tx.create("new"),
        await tx.create("staged", **{"stage-create": True}),
        await tx.delete(table_path()),
        await tx.post("/namespaces", {"namespace": ["n"]}),
        await tx.put("position", {"at": 1}),
    ):
        assert answer.refusal == (400, "BadRequestException")
        assert "read-only" in answer.error["message"]
    assert (await tx.load())["metadata-location"] == (await anywhere.load())["metadata-location"]
    await tx.publish()


# --- keys ---

MUTATIONS: dict[str, Callable[[Wire, str], Awaitable[Answer]]] = {
    "createNamespace": lambda wire, key: wire.post("/namespaces", {"namespace": ["new"]}, key),
    "updateProperties": lambda wire, key: wire.post("/namespaces/db/properties", {"updates": {"a": "b"}}, key),
    "createTable": lambda wire, key: wire.post("/namespaces/db/tables", {"name": "new", "schema": SCHEMA}, key),
    "updateTable": lambda wire, key: wire.commit([{"action": "add-schema", "schema": WIDER}], key=key),
    "commitTransaction": lambda wire, key: wire.commit_all(
        change("t", [set_properties(a="b")]), {**creation(), "identifier": {"namespace": ["db"], "name": "n"}}, key=key
    ),
    "createView": lambda wire, key: wire.post(
        "/namespaces/db/views", {"name": "made", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}, key
    ),
    "renameTable": lambda wire, key: wire.post("/tables/rename", rename("u", "w"), key),
    "dropTable": lambda wire, key: wire.delete(table_path("x"), headers={"Idempotency-Key": key}),
    "dropNamespace": lambda wire, key: wire.delete("/namespaces/empty", headers={"Idempotency-Key": key}),
}


async def test_a_keyed_statement_is_staged_once_whatever_it_is(anywhere: Wire) -> None:
    await furnish(anywhere, "t", "u", "x")
    await anywhere.namespace("empty")
    tx = await begin(anywhere)
    for operation, send in MUTATIONS.items():
        key = new_key()
        first = await send(tx, key)
        assert first.status in (200, 204), (operation, first.body)
        again = await send(tx, key)
        assert (again.status, again.body) == (first.status, first.body), operation
    assert len((await tx.load())["metadata"]["schemas"]) == 2
    await tx.publish()
    assert sorted(await anywhere.tables()) == ["n", "new", "t", "w"]


async def test_a_key_means_another_request_in_another_transaction(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    key, one, other = new_key(), await begin(anywhere), await begin(anywhere)
    assert (await one.commit([set_properties(a="1")], key=key)).status == 200
    assert (await other.commit([set_properties(a="2")], key=key)).status == 200
    assert (await one.commit([set_properties(a="2")], key=key)).refusal == (409, "KeyReusedException")
    assert properties(await one.load())["a"] == "1"
    assert properties(await other.load())["a"] == "2"


async def test_a_key_that_was_used_outside_is_refused_inside(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    key, tx = new_key(), await begin(anywhere)
    assert (await anywhere.commit([set_properties(a="1")], key=key)).status == 200
    assert (await tx.commit([set_properties(a="1")], key=key)).refusal == (409, "KeyReusedException")
    assert (await tx.commit([set_properties(a="2")], key=tx.id)).refusal == (409, "KeyReusedException")


async def test_a_refusal_under_a_key_is_kept_inside(anywhere: Wire) -> None:
    await furnish(anywhere)
    tx, key = await begin(anywhere), new_key()
    refused = await tx.commit([set_properties(a="b")], key=key)
    assert refused.refusal == (404, "NoSuchTableException")
    await tx.table()
    assert (await tx.commit([set_properties(a="b")], key=key)).json() == refused.json()
    assert (await tx.commit([set_properties(a="b")], key=new_key())).status == 200


async def test_an_append_sent_twice_without_a_key_is_recognised_inside(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    tx, sent = await begin(anywhere), append(1)
    first, again = await tx.commit(sent), await tx.commit(sent)
    assert again.json() == first.json()
    assert (await tx.commit_all(change("t", sent))).status == 204
    assert (await tx.load())["metadata-location"] == first.json()["metadata-location"]


async def test_two_clients_in_one_transaction_lose_nothing(contended: Wire) -> None:
    await furnish(contended, "a", "b")
    tx = await begin(contended)

    async def work(client: int) -> None:
        for number in range(8):
            name = f"p{client}_{number}"
            key = new_key() if number % 2 else None
            assert (await tx.commit([set_properties(**{name: "1"})], name="a", key=key)).status == 200
            assert (await tx.commit_all(*(change(one, [set_properties(**{name: "1"})]) for one in "ab"))).status == 204

    await asyncio.gather(*(work(client) for client in range(2)))
    expected = {f"p{client}_{number}": "1" for client in range(2) for number in range(8)}
    assert expected.items() <= properties(await tx.load("b")).items()
    await tx.publish()
    for name in "ab":
        assert expected.items() <= properties(await contended.load(name)).items()


# --- documents ---


async def test_documents_of_users_are_committed_with_the_tables(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    assert (await anywhere.get("/state/position")).refusal == (404, "NoSuchStateException")
    tx = await begin(anywhere)
    assert await tx.state("position") == {"name": "position", "revision": 0, "value": None}
    assert (await tx.put("position", {"offset": 5}, 0)).json() == {"name": "position", "revision": 1}
    assert await tx.state("position") == {"name": "position", "revision": 1, "value": {"offset": 5}}
    assert (await tx.put("position", {"offset": 7}, 1)).json()["revision"] == 1
    assert (await tx.put("position", {"offset": 9}, 0)).refusal == (409, "CommitFailedException")
    await tx.commit(append(1))
    assert (await anywhere.get("/state/position")).status == 404
    await tx.publish()
    assert (await anywhere.get("/state/position")).json() == {
        "name": "position",
        "revision": 1,
        "value": {"offset": 7},
    }
    gone = await begin(anywhere)
    assert (await gone.put("position", None, 1)).status == 200
    await gone.publish()
    assert (await anywhere.get("/state/position")).status == 404


async def test_two_transactions_that_move_one_document_do_not_both_get_through(anywhere: Wire) -> None:
    await furnish(anywhere, "t")
    one, other = await begin(anywhere), await begin(anywhere, isolation="snapshot")
    for number, tx in enumerate((one, other), 1):
        assert (await tx.put("position", {"offset": number})).status == 200
    await one.publish()
    answer = await other.do("commit")
    assert answer.refusal == (409, "CommitFailedException")
    assert "position" in answer.error["message"]
    assert (await anywhere.get("/state/position")).json()["value"] == {"offset": 1}


# --- many ---


async def test_a_hundred_tables_are_one_commit(wire: Wire) -> None:
    await wire.namespace()
    tx = await begin(wire)
    for number in range(100):
        await tx.table(f"t{number}")
        assert (await tx.commit(append(number + 1), name=f"t{number}")).status == 200
    assert await wire.tables() == []
    done = await tx.publish()
    assert len(done["results"]) == 100
    assert sorted(await wire.tables()) == sorted(f"t{number}" for number in range(100))
    found = await batch(wire, *(f"t{number}" for number in range(100)))
    assert [head(one) for one in found] == list(range(1, 101))
    assert len({one["metadata"]["last-updated-ms"] for one in found}) == 1
    again = await begin(wire)
    changes = [change(f"t{number}", [set_properties(a="b")]) for number in range(100)]
    assert (await again.commit_all(*changes)).status == 204
    assert len((await again.publish())["results"]) == 100


async def test_a_thousand_statements_are_one_version(wire: Wire) -> None:
    await furnish(wire, "t")
    tx: Overlaid = await begin(wire, ttl_seconds=86_400)
    for number in range(1_000):
        assert (await tx.commit([set_properties(**{f"p{number % 50}": str(number)})])).status == 200
    await tx.publish()
    loaded = await wire.load()
    assert {f"p{number % 50}": str(number) for number in range(950, 1_000)}.items() <= properties(loaded).items()
    assert len(loaded["metadata"]["metadata-log"]) == 1
