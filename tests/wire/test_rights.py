"""What one may do: roles, what they are held on, and what follows from them, as clients see it.

One file, in which every kind of thing that a role is held on is met by every kind of request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lakepact.catalog.errors import NoSuchTable
from lakepact.catalog.sight import seen_by
from lakepact.catalog.trail import Trail
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import Transaction, Write
from tests.support.asgi_client import Answer
from tests.support.postgres import LazyPostgres
from tests.wire.conftest import fresh_database
from tests.wire.people import PEOPLE, House, Person, admit, house, on_namespace, on_table
from tests.wire.world import (
    SCHEMA,
    VIEW_VERSION,
    Json,
    Wire,
    append,
    change,
    creation,
    new_key,
    segment,
    set_properties,
    table_path,
    view_path,
)

FORBIDDEN = (403, "ForbiddenException")
NO_TABLE = (404, "NoSuchTableException")
NO_NAMESPACE = (404, "NoSuchNamespaceException")


@pytest.fixture
def people(tmp_path: Path) -> AbstractAsyncContextManager[House]:
    return _furnished(tmp_path)


@asynccontextmanager
async def _furnished(folder: Path, **given: Any) -> AsyncIterator[House]:
    async with house(folder, **given) as people:
        await people.root.namespace()
        await people.root.namespace("hidden")
        await people.root.table("t")
        await people.root.table("u")
        await people.root.table("secret", "hidden")
        await people.root.view("v")
        yield people


async def test_without_grants_there_is_nothing(people: House) -> None:
    eve = people.eve
    assert (await eve.get("/namespaces")).json()["namespaces"] == []
    assert (await eve.get("/namespaces/db")).refusal == NO_NAMESPACE
    assert (await eve.head("/namespaces/db")).status == 404
    assert (await eve.get("/namespaces/db/tables")).refusal == NO_NAMESPACE
    assert (await eve.get(table_path())).refusal == NO_TABLE
    assert (await eve.head(table_path())).status == 404
    assert (await eve.get(view_path())).refusal == (404, "NoSuchViewException")
    assert (await eve.create("new")).refusal == NO_NAMESPACE
    assert (await eve.commit([set_properties(a="b")])).refusal == NO_TABLE
    assert (await eve.delete(table_path())).refusal == NO_TABLE
    assert (await eve.post("/transactions")).refusal == FORBIDDEN
    assert (await eve.post("/namespaces", {"namespace": ["mine"]})).refusal == FORBIDDEN


async def test_what_may_not_be_seen_is_answered_as_what_is_not_there(people: House) -> None:
    eve = people.eve
    await people.root.grant("user:eve", "read", **on_table("t"))
    for there, not_there in ((table_path("secret", "hidden"), table_path("nothing", "hidden")), ("", "")):
        if there:
            one, other = await eve.get(there), await eve.get(not_there)
            assert one.refusal == other.refusal == NO_TABLE
            assert one.error["message"].replace("secret", "nothing") == other.error["message"]
    for body in (on_table("secret", "hidden"), on_table("nothing", "hidden")):
        asked = await eve.post("/grants/check", body)
        assert asked.refusal == NO_TABLE


async def test_a_role_on_a_table_opens_the_table_and_nothing_beside_it(people: House) -> None:
    eve = people.eve
    assert (await people.root.grant("user:eve", "read", **on_table("t"))).status == 200
    assert (await eve.load())["metadata"]
    assert await eve.tables() == ["t"]
    assert (await eve.get("/namespaces")).json()["namespaces"] == [["db"]]
    assert (await eve.get("/namespaces/db")).status == 200
    assert (await eve.get("/namespaces/db/views")).json()["identifiers"] == []
    assert (await eve.get(table_path("u"))).refusal == NO_TABLE
    assert (await eve.commit([set_properties(a="b")])).refusal == FORBIDDEN
    assert (await eve.create("new")).refusal == FORBIDDEN
    assert (await eve.create("u")).refusal == FORBIDDEN  # that it is there is not said
    assert (await eve.delete(table_path())).refusal == FORBIDDEN


async def test_each_role_includes_the_earlier_ones(people: House) -> None:
    eve, root = people.eve, people.root
    steps: dict[str, Callable[[], Awaitable[Answer]]] = {
        "load": lambda: eve.get(table_path()),
        "commit": lambda: eve.commit([set_properties(a=new_key())]),
        "create": lambda: eve.create(f"new{new_key()}"),
        "properties": lambda: eve.post("/namespaces/db/properties", {"updates": {"a": new_key()}}),
        "drop": lambda: eve.delete(table_path("u")),
    }
    works = {
        "read": ["load"],
        "write": ["load", "commit"],
        "create": ["load", "commit", "create"],
        "manage": ["load", "commit", "create", "properties", "drop"],
    }
    for role, allowed in works.items():
        await root.grant("user:eve", role, **on_namespace())
        for step, ask in steps.items():
            answer = await ask()
            assert (answer.status < 300) == (step in allowed), (role, step, answer.body)
            assert answer.status < 300 or answer.refusal == FORBIDDEN, (role, step)


async def test_a_role_on_a_namespace_is_held_on_all_below_it(people: House) -> None:
    root, eve = people.root, people.eve
    await root.namespace("db", "eu")
    await root.table("deep", "db", "eu")
    await root.grant("user:eve", "read", **on_namespace("db"))
    assert (await eve.get(table_path("deep", "db", "eu"))).status == 200
    assert (await eve.get("/namespaces?parent=db")).json()["namespaces"] == [["db", "eu"]]
    await root.revoke("user:eve", **on_namespace("db"))
    await root.grant("user:eve", "write", **on_namespace("db", "eu"))
    assert (await eve.get("/namespaces")).json()["namespaces"] == [["db"]]
    assert (await eve.get("/namespaces?parent=db")).json()["namespaces"] == [["db", "eu"]]
    assert (await eve.get(table_path())).refusal == NO_TABLE
    assert (await eve.get(table_path("deep", "db", "eu"))).status == 200


async def test_groups_and_everyone_hold_roles(people: House) -> None:
    await people.root.grant("group:analysts", "read", **on_table("t"))
    await people.root.grant("group:builders", "write", **on_table("t"))
    assert (await people.ann.load())["metadata"]
    assert (await people.ann.commit([set_properties(a="b")])).refusal == FORBIDDEN
    assert (await people.bob.commit([set_properties(a="b")])).status == 200
    assert (await people.eve.get(table_path())).refusal == NO_TABLE
    await people.root.grant("everyone", "read", on="account")
    assert (await people.eve.get(table_path())).status == 200
    assert (await people.mallory.at("main").get(table_path())).status == 404


async def test_a_grant_that_is_taken_away_is_gone_at_once(people: House) -> None:
    await people.root.grant("user:eve", "manage")
    assert (await people.eve.commit([set_properties(a="b")])).status == 200
    await people.root.revoke("user:eve")
    assert (await people.eve.get(table_path())).refusal == NO_TABLE


async def test_one_table_too_many_is_403_and_nothing_happens(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "write", **on_table("t"))
    await root.grant("user:eve", "read", **on_table("u"))
    before = [await root.load(name) for name in ("t", "u")]
    both = [change("t", [set_properties(a="b")]), change("u", [set_properties(a="b")])]
    assert (await eve.commit_all(*both)).refusal == FORBIDDEN
    hidden = [both[0], change("secret", [set_properties(a="b")], namespace="hidden")]
    assert (await eve.commit_all(*hidden)).refusal == NO_TABLE
    new = [both[0], {**creation(), "identifier": {"namespace": ["db"], "name": "new"}}]
    assert (await eve.commit_all(*new)).refusal == FORBIDDEN
    assert [await root.load(name) for name in ("t", "u")] == before
    assert (await eve.commit_all(both[0])).status == 204
    asked = {"identifiers": [{"namespace": ["db"], "name": name} for name in ("t", "u")]}
    assert (await eve.post("/tables/batch-load", asked)).status == 200
    asked["identifiers"].append({"namespace": ["hidden"], "name": "secret"})
    assert (await eve.post("/tables/batch-load", asked)).refusal == NO_TABLE


async def test_a_rename_needs_both_ends(people: House) -> None:
    root, eve = people.root, people.eve

    def body(namespace: str, name: str) -> dict[str, Any]:
        return {
            "source": {"namespace": ["db"], "name": "t"},
            "destination": {"namespace": [namespace], "name": name},
        }

    await root.grant("user:eve", "write", **on_table("t"))
    assert (await eve.post("/tables/rename", body("db", "x"))).refusal == FORBIDDEN
    await root.grant("user:eve", "manage", **on_table("t"))
    assert (await eve.post("/tables/rename", body("db", "x"))).refusal == FORBIDDEN
    assert (await eve.post("/tables/rename", body("hidden", "x"))).refusal == NO_NAMESPACE
    await root.grant("user:eve", "create", **on_namespace("hidden"))
    assert (await eve.post("/tables/rename", body("hidden", "x"))).status == 204
    # What is granted on a table goes with it, and another one of its name gets nothing.
    await root.table("t")
    assert (await eve.get(table_path("t"))).refusal == NO_TABLE
    assert (await eve.delete(table_path("x", "hidden"))).status == 204


async def test_an_answer_is_given_again_only_to_who_may_still_ask(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "write", **on_table("t"))
    key, body = new_key(), {"requirements": [], "updates": [set_properties(a="b")]}
    assert (await eve.post(table_path(), body, key)).status == 200
    assert (await eve.post(table_path(), body, key)).status == 200
    await root.grant("user:eve", "read", **on_table("t"))
    assert (await eve.post(table_path(), body, key)).refusal == FORBIDDEN
    await root.revoke("user:eve", **on_table("t"))
    assert (await eve.post(table_path(), body, key)).refusal == NO_TABLE
    await root.grant("user:eve", "write", **on_table("t"))
    assert (await eve.post(table_path(), body, key)).status == 200
    # A refusal that was kept is told to nobody else either.
    refused = {"requirements": [{"type": "assert-table-uuid", "uuid": new_key()}], "updates": []}
    key = new_key()
    assert (await eve.post(table_path(), refused, key)).status == 409
    await root.revoke("user:eve", **on_table("t"))
    assert (await eve.post(table_path(), refused, key)).refusal == NO_TABLE


async def test_a_403_is_not_kept_under_its_key(people: House) -> None:
    await people.root.grant("user:eve", "read", **on_table("t"))
    key, body = new_key(), {"requirements": [], "updates": [set_properties(a="b")]}
    assert (await people.eve.post(table_path(), body, key)).refusal == FORBIDDEN
    await people.root.grant("user:eve", "write", **on_table("t"))
    assert (await people.eve.post(table_path(), body, key)).status == 200


async def test_whoever_dropped_or_renamed_by_a_grant_on_the_table_hears_it_again(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_table("t"))
    await root.grant("user:eve", "manage", **on_table("u"))
    await root.grant("user:eve", "create", **on_namespace("hidden"))
    key = new_key()
    for _ in range(2):
        assert (await eve.delete(table_path(), headers={"Idempotency-Key": key})).status == 204
    key, body = (
        new_key(),
        {
            "source": {"namespace": ["db"], "name": "u"},
            "destination": {"namespace": ["hidden"], "name": "u"},
        },
    )
    for _ in range(2):
        assert (await eve.post("/tables/rename", body, key)).status == 204


async def test_a_transaction_belongs_to_who_began_it(people: House) -> None:
    ann, eve, root = people.ann, people.eve, people.root
    await root.grant("everyone", "create", **on_namespace())
    begun = (await ann.post("/transactions")).json()
    assert begun["principal"] == "ann"
    tx = begun["transaction-id"]
    inside = f"main@{tx}"
    assert (await ann.at(inside).commit([set_properties(a="b")])).status == 200
    for other in (eve, people.bob):
        assert (await other.get(f"/transactions/{tx}")).refusal == FORBIDDEN
        assert (await other.at(inside).get(table_path())).refusal == FORBIDDEN
        assert (await other.at(inside).get("/namespaces")).refusal == FORBIDDEN
        assert (await other.at(inside).commit([set_properties(a="c")])).refusal == FORBIDDEN
        assert (await other.get(table_path(), headers={"X-Lakepact-Transaction": tx})).refusal == FORBIDDEN
        for step in ("prepare", "commit", "abort", "renew"):
            assert (await other.post(f"/transactions/{tx}/{step}")).refusal == FORBIDDEN, step
        assert (
            await other.client.send("GET", f"/v1/config?warehouse={inside}", headers={"X-Test-User": other.name})
        ).status == 403
        assert (await other.get("/transactions")).json()["transactions"] == []
    assert [one["transaction-id"] for one in (await ann.get("/transactions?state=open")).json()["transactions"]] == [tx]
    await root.grant("user:bob", "manage")
    assert (await people.bob.post(f"/transactions/{tx}/renew")).status == 200
    assert (await people.bob.at(inside).get(table_path())).status == 200
    assert (await ann.post(f"/transactions/{tx}/commit")).status == 200
    assert (await ann.load())["metadata"]["properties"]["a"] == "b"


async def test_the_outcome_of_a_request_is_for_who_sent_it(people: House) -> None:
    await people.root.grant("everyone", "write", **on_namespace())
    key = new_key()
    assert (await people.ann.commit([set_properties(a="b")], key=key)).status == 200
    assert (await people.ann.get(f"/transactions/{key}")).json()["state"] == "committed"
    assert (await people.eve.get(f"/transactions/{key}")).refusal == FORBIDDEN
    wrong = [{"type": "assert-table-uuid", "uuid": new_key()}]
    key = new_key()
    assert (await people.ann.commit([], wrong, key=key)).status == 409
    assert (await people.ann.get(f"/transactions/{key}")).json()["state"] == "failed"
    assert (await people.eve.get(f"/transactions/{key}")).refusal == FORBIDDEN


async def test_rights_are_looked_at_again_when_a_transaction_is_published(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())

    async def staged() -> Person:
        begun = (await eve.post("/transactions")).json()
        return eve.at(begun["prefix"])

    ways: dict[str, Callable[[Person], Awaitable[Answer]]] = {
        "write": lambda inside: inside.commit([set_properties(a=new_key())]),
        "create": lambda inside: inside.create("new"),
        "manage": lambda inside: inside.delete(table_path("u")),
    }
    lower = {"write": "read", "create": "write", "manage": "create"}
    for role, stage in ways.items():
        inside = await staged()
        assert (await stage(inside)).status < 300
        await root.grant("user:eve", lower[role], **on_namespace())
        tx = inside.base.rpartition("@")[2]
        assert (await eve.post(f"/transactions/{tx}/prepare")).refusal == FORBIDDEN, role
        assert (await eve.post(f"/transactions/{tx}/commit")).refusal == FORBIDDEN, role
        assert (await stage(inside)).status in (403, 404), role
        await root.grant("user:eve", "manage", **on_namespace())
        assert (await eve.post(f"/transactions/{tx}/commit")).status == 200, role


async def test_warehouses_of_other_accounts_do_not_exist(people: House) -> None:
    mallory = people.mallory
    config = await mallory.client.send("GET", "/v1/config", headers={"X-Test-User": "mallory"})
    assert config.json()["overrides"]["prefix"] == "other"
    assert (await mallory.post("/namespaces", {"namespace": ["mine"]})).status == 200
    for name in ("main", people.settings.warehouse):
        asked = await mallory.client.send("GET", f"/v1/config?warehouse={name}", headers={"X-Test-User": "mallory"})
        assert asked.refusal == (404, "NoSuchWarehouseException")
        assert "main" not in asked.error["message"].replace(f"{name!r}", "")
    there, nowhere = await mallory.at("main").get(table_path()), await mallory.at("nowhere").get(table_path())
    assert there.error["message"].replace("main", "nowhere") == nowhere.error["message"]
    key = new_key()
    assert (await people.root.commit([set_properties(a="b")], key=key)).status == 200
    assert (await mallory.get(f"/transactions/{key}")).status == 404
    reused = await mallory.post("/namespaces", {"namespace": ["x"]}, key)
    assert reused.refusal == (409, "KeyReusedException")
    assert "main" not in reused.error["message"]
    assert (await mallory.get("/transactions")).json()["transactions"]
    begun = (await people.root.post("/transactions")).json()["transaction-id"]
    assert (await mallory.at(f"other@{begun}").get("/namespaces")).status == 400
    assert (await mallory.post(f"/transactions/{begun}/abort")).status == 400
    assert (await people.root.at("other").get("/namespaces")).status == 404


def _append_at(manifest_list: str) -> list[Json]:
    [added, ref] = append(1)
    return [{**added, "snapshot": {**added["snapshot"], "manifest-list": manifest_list}}, ref]


async def test_a_place_of_ones_own_choice_is_for_who_manages_the_warehouse(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())
    location = f"{root.root}/hidden"
    inside = (await root.load("secret", "hidden"))["metadata"]["location"]
    for place in (location, inside, f"{inside}/data"):
        assert (await eve.create("new", location=place)).refusal == FORBIDDEN, place
        assert (await eve.create("new", location=place, **{"stage-create": True})).refusal == FORBIDDEN
        assert (await eve.create("new", properties={"write.data.path": place})).refusal == FORBIDDEN
        assert (await eve.commit([{"action": "set-location", "location": place}])).refusal == FORBIDDEN
        assert (await eve.commit([set_properties(**{"write.metadata.path": place})])).refusal == FORBIDDEN
        moved = creation(updates=[{"action": "set-location", "location": place}])
        assert (await eve.post(table_path("new"), moved)).refusal == FORBIDDEN
        assert (await eve.commit(_append_at(f"{place}/snap.avro"))).refusal == FORBIDDEN
        updated = await eve.post("/namespaces/db/properties", {"updates": {"location": place}})
        assert updated.refusal == FORBIDDEN
    registered = {"name": "new", "metadata-location": (await root.load("secret", "hidden"))["metadata-location"]}
    assert (await eve.post("/namespaces/db/register", registered)).refusal == FORBIDDEN
    own = (await eve.load())["metadata"]["location"]
    assert (await eve.commit(_append_at(f"{own}/metadata/snap.avro"))).status == 200
    assert (await eve.commit([set_properties(**{"write.data.path": f"{own}/elsewhere"})])).status == 200
    staged = (await eve.create("new", **{"stage-create": True})).json()["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": staged["table-uuid"]},
        {"action": "set-location", "location": staged["location"]},
    ]
    assert (await eve.post(table_path("new"), creation(updates=updates))).status == 200
    assert (await root.create("chosen", location=f"{root.root}/chosen")).status == 200


async def test_documents_are_their_owners(people: House) -> None:
    root, ann, eve = people.root, people.ann, people.eve
    await root.grant("everyone", "write", **on_table("t"))
    begun = (await ann.post("/transactions")).json()["transaction-id"]
    assert (await ann.put(f"/transactions/{begun}/state/position", {"value": {"n": 1}})).status == 200
    assert (await ann.post(f"/transactions/{begun}/commit")).status == 200
    assert (await ann.get("/state/position")).json()["value"] == {"n": 1}
    assert (await eve.get("/state/position")).status == 404
    begun = (await eve.post("/transactions")).json()["transaction-id"]
    assert (await eve.put(f"/transactions/{begun}/state/position", {"value": {"n": 2}})).refusal == FORBIDDEN
    assert (await eve.put(f"/transactions/{begun}/state/mine", {"value": {"n": 2}})).status == 200
    assert (await root.get("/state/position")).status == 200


async def test_a_namespace_that_comes_again_begins_without_grants(people: House) -> None:
    root, eve = people.root, people.eve
    await root.namespace("mine")
    await root.grant("user:eve", "manage", **on_namespace("mine"))
    assert (await eve.delete("/namespaces/mine")).status == 204
    await root.namespace("mine")
    assert (await eve.get("/namespaces/mine")).refusal == NO_NAMESPACE
    await root.grant("user:eve", "manage", **on_namespace("mine"))
    begun = (await eve.post("/transactions")).json()["prefix"]
    assert (await eve.at(begun).delete("/namespaces/mine")).status == 400


async def test_grants_are_given_by_who_manages_what_they_are_on(people: House) -> None:
    root, eve, ann = people.root, people.eve, people.ann
    await root.grant("user:eve", "create", **on_namespace())
    for on in (on_table(), on_namespace(), {"on": "warehouse"}, {"on": "account"}):
        assert (await eve.grant("user:ann", "read", **on)).refusal == FORBIDDEN, on
    assert (await eve.grant("user:ann", "read", **on_table("secret", "hidden"))).refusal == NO_TABLE
    assert (await eve.grant("user:ann", "read", **on_namespace("hidden"))).refusal == NO_NAMESPACE
    await root.grant("user:eve", "manage", **on_namespace())
    assert (await eve.grant("user:ann", "write", **on_table())).json()["changed"] is True
    assert (await eve.grant("user:ann", "write", **on_table())).json()["changed"] is False
    assert (await ann.commit([set_properties(a="b")])).status == 200
    assert (await eve.grant("user:eve", "read", on="warehouse")).refusal == FORBIDDEN
    await root.grant("user:eve", "manage")
    assert (await eve.grant("user:ann", "read", on="warehouse")).status == 200
    assert (await eve.grant("user:ann", "read", on="account")).refusal == FORBIDDEN
    found = (await root.get("/grants?holder=user:ann")).json()["grants"]
    assert [(one["on"], one.get("name"), one["role"], one["by"]) for one in found] == [
        ("table", "t", "write", "eve"),
        ("warehouse", None, "read", "eve"),
    ]
    mine = (await ann.get("/grants")).json()["grants"]
    assert {one["holder"] for one in mine} == {"user:ann"}
    assert (await ann.post("/grants/check", {**on_table(), "role": "write"})).json()["allowed"] is True
    assert (await ann.post("/grants/check", {**on_table(), "role": "manage"})).json()["allowed"] is False
    assert (await ann.post("/grants/check", {**on_table(), "holder": "user:eve"})).refusal == FORBIDDEN
    checked = await root.post("/grants/check", {**on_table(), "holder": "user:eve"})
    assert checked.json() == {**on_table(), "holder": "user:eve", "role": "manage", "allowed": True}


async def test_a_grant_is_made_once_under_its_key(people: House) -> None:
    body, key = {"holder": "user:eve", "role": "read", **on_table()}, new_key()
    first = await people.root.post("/grants", body, key)
    await people.root.revoke("user:eve", **on_table())
    again = await people.root.post("/grants", body, key)
    assert (first.status, first.json()) == (again.status, again.json())
    assert (await people.eve.get(table_path())).refusal == NO_TABLE
    key = new_key()
    on_account = {"holder": "user:eve", "role": "read", "on": "account"}
    assert (await people.root.post("/grants", on_account, key)).status == 200
    assert (await people.root.get(f"/transactions/{key}")).json()["state"] == "committed"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"holder": "eve", "role": "read", "on": "warehouse"},
        {"holder": "user:", "role": "read", "on": "warehouse"},
        {"holder": "user:eve", "role": "own", "on": "warehouse"},
        {"holder": "user:eve", "role": "read", "on": "planet"},
        {"holder": "user:eve", "role": "read", "on": "namespace"},
        {"holder": "user:eve", "role": "read", "on": "namespace", "namespace": []},
        {"holder": "user:eve", "role": "read", "on": "table", "namespace": ["db"]},
        {"holder": 7, "role": "read", "on": "warehouse"},
    ],
)
async def test_a_grant_that_makes_no_sense_is_400(people: House, body: dict[str, Any]) -> None:
    assert (await people.root.post("/grants", body)).status == 400


async def test_views_and_registered_names_follow_the_same_rules(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "read", **on_table("v"))
    assert (await eve.get(view_path())).status == 200
    assert (await eve.get("/namespaces/db/views")).json()["identifiers"] == [{"namespace": ["db"], "name": "v"}]
    assert (await eve.post(view_path(), {"requirements": [], "updates": [set_properties(a="b")]})).refusal == FORBIDDEN
    assert (await eve.delete(view_path())).refusal == FORBIDDEN
    new = {"name": "w", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
    assert (await eve.post("/namespaces/db/views", new)).refusal == FORBIDDEN
    await root.grant("user:eve", "create", **on_namespace())
    assert (await eve.post("/namespaces/db/views", new)).status == 200


async def test_lists_and_pages_leave_out_what_is_not_to_be_seen(people: House) -> None:
    root, eve = people.root, people.eve
    for number in range(12):
        await root.table(f"n{number:02}")
    for number in (1, 5, 11):
        await root.grant("user:eve", "read", **on_table(f"n{number:02}"))
    assert await eve.tables() == ["n01", "n05", "n11"]
    token: str | None = ""
    found: list[str] = []
    while token is not None:
        page = (await eve.get(f"/namespaces/{segment('db')}/tables?pageToken={token}&pageSize=2")).json()
        found += [one["name"] for one in page["identifiers"]]
        token = page["next-page-token"]
    assert found == ["n01", "n05", "n11"]


async def test_whoever_makes_a_table_manages_it(people: House) -> None:
    root, eve, bob = people.root, people.eve, people.bob
    for name in ("user:eve", "user:bob"):
        await root.grant(name, "create", **on_namespace())
    await eve.table("mine")
    assert (await bob.delete(table_path("mine"))).refusal == FORBIDDEN
    assert (await eve.grant("user:bob", "manage", **on_table("mine"))).status == 200
    begun = (await eve.post("/transactions")).json()
    inside = eve.at(begun["prefix"])
    await inside.table("staged")
    assert (await eve.post(f"/transactions/{begun['transaction-id']}/commit")).status == 200
    assert (await bob.delete(table_path("staged"))).refusal == FORBIDDEN
    for name in ("mine", "staged"):
        assert (await eve.delete(table_path(name))).status == 204


async def test_grants_on_what_is_gone_for_good_are_forgotten(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, admit=admit) as wire:
        root = Person(wire.client, wire.settings)
        await root.namespace()
        for name in ("t", "u"):
            await root.table(name)
            await root.grant("user:eve", "read", **on_table(name))
        assert wire.service is not None
        catalog = wire.service.catalogs["main"]
        assert await catalog.sweep_grants() is False
        assert len((await root.get("/grants")).json()["grants"]) == 2
        await root.delete(table_path("u"))
        assert await catalog.sweep_grants() is False
        assert len((await root.get("/grants")).json()["grants"]) == 2  # it may come back
        gone = next(one["id"] for one in (await root.get("/grants")).json()["grants"] if "name" not in one)
        note = catalog.parts.keys.dropped(gone)
        cell = (await catalog.parts.store.read([note]))[note]
        await catalog.parts.store.commit(Transaction(catalog.new_id(), "", (Write(note, cell.revision, None),)))
        assert await catalog.sweep_grants() is False
        assert [one["name"] for one in (await root.get("/grants")).json()["grants"]] == ["t"]


async def test_two_servers_on_one_store_agree_at_once(tmp_path: Path) -> None:
    async with _furnished(tmp_path) as one, house(tmp_path) as other:
        for role in ("read", "write"):
            await one.root.grant("user:eve", role, **on_table())
            assert (await other.eve.get(table_path())).status == 200
            wanted = 200 if role == "write" else 403
            assert (await other.eve.commit([set_properties(a=role)])).status == wanted
        await other.root.revoke("user:eve", **on_table())
        assert (await one.eve.get(table_path())).refusal == NO_TABLE
        await one.root.grant("everyone", "manage", on="account")
        assert (await other.eve.commit([set_properties(a="last")])).status == 200


@pytest.mark.parametrize("way", ["load", "batch", "commit", "both", "exists"])
async def test_rights_are_never_older_than_what_they_show(way: str, tmp_path: Path) -> None:
    """Between two looks of one request the right on a namespace goes, and another table comes into it."""
    async with _furnished(tmp_path) as one, house(tmp_path) as other:
        root, eve = other.root, one.eve
        await root.grant("user:eve", "write", **on_namespace())
        assert (await eve.get(table_path())).status == 200

        async def rename(source: tuple[str, str], target: tuple[str, str]) -> None:
            names = [{"namespace": [namespace], "name": name} for namespace, name in (source, target)]
            moved = await root.post("/tables/rename", dict(zip(("source", "destination"), names, strict=True)))
            assert moved.status == 204

        # Eve's server remembers what the name stood for.
        await rename(("db", "t"), ("db", "old"))
        assert eve.service is not None
        store, looks = eve.service.catalogs["main"].parts.store, 0
        plain = store.read

        async def read(keys: Any) -> Any:
            nonlocal looks
            found, looks = await plain(keys), looks + 1
            if looks == 1:
                assert (await root.revoke("user:eve", **on_namespace())).json()["changed"]
                await rename(("hidden", "secret"), ("db", "t"))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "read", read)
            match way:
                case "load":
                    answer = await eve.get(table_path())
                case "exists":
                    answer = await eve.head(table_path())
                case "batch":
                    answer = await eve.post("/tables/batch-load", {"identifiers": [{"namespace": ["db"], "name": "t"}]})
                case "commit":
                    answer = await eve.commit([set_properties(owned="by eve")])
                case _:
                    answer = await eve.commit_all(change("t", [set_properties(owned="by eve")]), change("u", []))
        assert looks > 1 and answer.status == 404, answer
        assert "owned" not in (await root.load())["metadata"].get("properties", {})


@pytest.mark.parametrize("store", ["memory", "file", "postgres"])
async def test_every_store_keeps_grants(store: str, tmp_path: Path, postgres: LazyPostgres) -> None:
    given = {"memory": {"store": "memory://", "warehouse": "memory://"}, "file": {"store": f"file://{tmp_path}/cells"}}
    async with AsyncExitStack() as stack:
        if store == "postgres":
            given["postgres"] = {"store": await stack.enter_async_context(fresh_database(postgres.url()))}
        people = await stack.enter_async_context(_furnished(tmp_path, **given[store]))
        root, eve = people.root, people.eve
        await root.grant("user:eve", "create", **on_namespace())
        await eve.table("mine")
        assert (await eve.commit_all(change("mine", [set_properties(a="b")]), change("t", []))).status == 204
        begun = (await eve.post("/transactions")).json()
        assert (await eve.at(begun["prefix"]).commit([set_properties(a="b")])).status == 200
        assert (await eve.post(f"/transactions/{begun['transaction-id']}/commit")).status == 200
        assert (await eve.delete(table_path())).refusal == FORBIDDEN
        assert (await eve.delete(table_path("mine"))).status == 204
        await root.revoke("user:eve", **on_namespace())
        assert (await eve.get(table_path())).refusal == NO_TABLE
        assert await root.tables() == ["t", "u"]


async def test_what_was_dropped_comes_back_for_who_managed_it(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_table("t"))
    await root.grant("user:eve", "read", **on_table("u"))
    for name in ("t", "u"):
        await root.delete(table_path(name))
    await root.delete(table_path("secret", "hidden"))
    assert [one["identifier"]["name"] for one in (await eve.get("/dropped")).json()["dropped"]] == ["t"]
    there = {"identifier": {"namespace": ["hidden"], "name": "secret"}}
    nothing = {"identifier": {"namespace": ["hidden"], "name": "nothing"}}
    one, other = await eve.post("/tables/undrop", there), await eve.post("/tables/undrop", nothing)
    assert one.refusal == other.refusal == NO_TABLE
    assert one.error["message"].replace("secret", "nothing") == other.error["message"]
    body = {"identifier": {"namespace": ["db"], "name": "u"}}
    assert (await eve.post("/tables/undrop", body)).refusal == FORBIDDEN
    body = {"identifier": {"namespace": ["db"], "name": "t"}}
    assert (await eve.post("/tables/undrop", body)).refusal == NO_NAMESPACE  # nothing in it is in sight any more
    await root.grant("user:eve", "create", **on_namespace())
    key = new_key()
    for _ in range(2):
        assert (await eve.post("/tables/undrop", body, key)).status == 200
    assert (await eve.delete(table_path())).status == 204
    for path in ("/reachable", f"/reachable/{new_key()}"):
        assert (await eve.get(path)).refusal == FORBIDDEN


async def test_who_only_reads_gets_credentials_that_only_read(people: House) -> None:
    await people.root.grant("group:analysts", "read", **on_table())
    await people.root.grant("group:builders", "write", **on_table())
    assert people.root.service is not None
    catalog = people.root.service.catalogs["main"]
    identifier = Identifier(("db",), "t")
    for name, writes in (("ann", False), ("bob", True), ("root", True), ("eve", None)):
        seen = seen_by(catalog, PEOPLE[name], Trail())
        if writes is None:
            with pytest.raises(NoSuchTable):
                await seen.table(identifier)
            continue
        assert await seen.may_write(identifier, (await seen.table(identifier)).id) is writes
    # A table that is being made has no grants of its own yet.
    await people.root.grant("user:eve", "create", **on_namespace())
    assert await seen_by(catalog, PEOPLE["eve"], Trail()).may_write(Identifier(("db",), "new"), new_key())


async def test_a_run_is_reported_by_whose_transaction_it_was(people: House) -> None:
    await people.root.grant("everyone", "write", **on_namespace())
    tx = (await people.ann.post("/transactions")).json()["transaction-id"]
    report = {"pipeline": "shop", "run-id": "r", "state": "committed", "seconds": 1.0, "stages": []}
    assert (await people.eve.put(f"/transactions/{tx}/report", report)).refusal == FORBIDDEN
    assert (await people.ann.put(f"/transactions/{tx}/report", report)).status == 204


async def test_missing_parents_need_the_right_to_create_each_of_them(people: House) -> None:
    ann, bob, root = people.ann, people.bob, people.root
    await root.grant("user:ann", "create", **on_namespace())
    await root.grant("user:bob", "create")
    assert (await ann.post("/namespaces", {"namespace": ["db", "x", "y"]})).status == 200
    assert (await ann.post("/namespaces", {"namespace": ["new", "x"]})).status in (403, 404)
    assert (await root.head("/namespaces/new")).status == 404
    assert (await bob.post("/namespaces", {"namespace": ["new", "x"]})).status == 200
    assert (await root.head("/namespaces/new")).status == 204
