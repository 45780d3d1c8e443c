"""What a transaction may do is judged by the rights, and the places of things, at the time it does it: statement by
statement, and all of it once more when it is published."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.asgi_client import Answer
from tests.wire.people import House, Person, house, on_namespace, on_table
from tests.wire.world import change, set_properties, table_path

ONE_PROPERTY = {"requirements": [], "updates": [set_properties(a="1")]}


async def _begun(person: Person, **asked: Any) -> tuple[str, Person]:
    begun = (await person.post("/transactions", asked)).json()["transaction-id"]
    return begun, person.at(f"main@{begun}")


async def _published(person: Person, transaction: str) -> Answer:
    return await person.post(f"/transactions/{transaction}/commit")


async def _renamed(people: House, source: tuple[str, str], target: tuple[str, str]) -> None:
    names = {
        "source": {"namespace": [source[0]], "name": source[1]},
        "destination": {"namespace": [target[0]], "name": target[1]},
    }
    assert (await people.root.post("/tables/rename", names)).status == 204


async def _two_namespaces(people: House, **properties: str) -> None:
    await people.root.namespace("pub")
    await people.root.namespace("secret")
    await people.root.table("t", "pub", properties=properties)


async def _role(person: Person, **on: Any) -> Any:
    return (await person.post("/grants/check", on)).json()["role"]


def _told(answer: Answer) -> str:
    return answer.body.decode()


# --- statement by statement ---


async def test_t_right_15_a_change_inside_a_transaction_is_judged_by_where_its_table_is_now(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people, classified="yes")
        await people.root.namespace("own")
        await people.root.grant("user:bob", "read", **on_namespace("own"))
        _, inside = await _begun(people.bob)
        await _renamed(people, ("pub", "t"), ("secret", "payroll"))
        # From now on: of what is in it now.
        await people.root.grant("user:bob", "manage", **on_namespace("pub"))

        path = table_path("t", "pub")
        answers: Mapping[str, Answer] = {
            "load": await inside.get(path),
            "an empty commit": await inside.post(path, {"requirements": [], "updates": []}),
            "commit": await inside.post(path, ONE_PROPERTY),
            "many": await inside.commit_all(change("t", [set_properties(b="2")], namespace="pub")),
            "governance": await inside.put("/namespaces/pub/tables/t/governance", {"owner": "bob"}),
            "drop": await inside.delete(path),
        }
        assert {what: answer.status for what, answer in answers.items()} == dict.fromkeys(answers, 404)
        assert not any("classified" in _told(answer) for answer in answers.values())
        assert (await inside.get("/namespaces/pub/tables")).json()["identifiers"] == []


async def test_t_right_15_a_table_that_came_into_sight_is_listed_where_the_transaction_has_it(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people)
        await people.root.grant("user:bob", "read", **on_table("t", "pub"))
        _, inside = await _begun(people.bob)
        await people.root.table("later", "pub")
        assert (await inside.get("/namespaces/pub/tables")).json()["identifiers"] == [
            {"namespace": ["pub"], "name": "t"}
        ]


async def test_what_is_made_inside_a_transaction_is_listed_inside(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("pub")
        await people.root.grant("user:bob", "create", **on_namespace("pub"))
        _, inside = await _begun(people.bob)
        assert (await inside.create("mine", "pub")).status == 200
        assert [one["name"] for one in (await inside.get("/namespaces/pub/tables")).json()["identifiers"]] == ["mine"]


# --- what is published ---


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("place", ["data path", "location"])
async def test_t_right_4_a_place_is_published_only_by_who_may_still_choose_it(
    tmp_path: Path, place: str, moved: bool
) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people)
        at = (await people.root.load("t", "pub"))["metadata"]["location"]
        chosen = (
            set_properties(**{"write.data.path": f"{people.root.root}/secret/data"})
            if place == "data path"
            else {"action": "set-location", "location": f"{people.root.root}/secret"}
        )
        await people.root.grant("user:bob", "manage")
        transaction, inside = await _begun(people.bob, isolation="snapshot")
        staged = {"requirements": [], "updates": [chosen]}
        assert (await inside.post(table_path("t", "pub"), staged)).status == 200
        await people.root.revoke("user:bob")
        await people.root.grant("user:bob", "write", **on_namespace("pub"))
        if moved:
            # Changes of metadata are rebased on the newer version.
            assert (await people.root.post(table_path("t", "pub"), ONE_PROPERTY)).status == 200

        assert (await _published(people.bob, transaction)).refusal == (403, "ForbiddenException")
        metadata = (await people.root.load("t", "pub"))["metadata"]
        assert metadata["location"] == at
        assert "write.data.path" not in metadata["properties"]
        # Nothing is lost: whoever may can still publish it.
        assert (await _published(people.root, transaction)).status == 200


async def test_t_right_4_what_is_prepared_is_published_only_by_who_may_still_choose_its_places(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people)
        await people.root.grant("user:bob", "manage")
        transaction, inside = await _begun(people.bob)
        chosen = set_properties(**{"write.data.path": f"{people.root.root}/secret/data"})
        await inside.post(table_path("t", "pub"), {"requirements": [], "updates": [chosen]})
        assert (await people.bob.post(f"/transactions/{transaction}/prepare")).status == 200
        await people.root.revoke("user:bob")
        await people.root.grant("user:bob", "write", **on_namespace("pub"))
        assert (await _published(people.bob, transaction)).refusal == (403, "ForbiddenException")


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
@pytest.mark.parametrize("kind", ["table", "view"])
async def test_t_drop_1_protection_that_came_after_a_drop_was_staged_counts(
    tmp_path: Path, kind: str, isolation: str
) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("db")
        await (people.root.table("t") if kind == "table" else people.root.view("t"))
        transaction, inside = await _begun(people.root, isolation=isolation)
        path = f"/namespaces/db/{kind}s/t"
        assert (await inside.delete(path)).status == 204
        assert (await people.root.put("/namespaces/db/tables/t/governance", {"protected": True})).status == 200
        assert (await _published(people.root, transaction)).status == 409
        assert (await people.root.head(path)).status == 204


async def test_t_right_6_a_commit_that_is_asked_for_again_gives_nothing_back(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("pub")
        await people.root.grant("user:bob", "create", **on_namespace("pub"))
        transaction, inside = await _begun(people.bob)
        await inside.create("mine", "pub")
        assert (await _published(people.bob, transaction)).status == 200
        assert await _role(people.bob, **on_table("mine", "pub")) == "manage"
        await people.root.revoke("user:bob", **on_table("mine", "pub"))
        assert (await _published(people.bob, transaction)).status == 200
        assert await _role(people.bob, **on_table("mine", "pub")) == "create"


async def test_t_right_6_who_managed_all_when_they_made_it_is_given_nothing_later(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("pub")
        await people.root.grant("user:bob", "manage")
        transaction, inside = await _begun(people.bob)
        await inside.create("mine", "pub")
        assert (await _published(people.bob, transaction)).status == 200
        await people.root.revoke("user:bob")
        await people.root.grant("user:bob", "create", **on_namespace("pub"))
        assert (await _published(people.bob, transaction)).status == 200
        assert await _role(people.bob, **on_table("mine", "pub")) == "create"


async def test_t_right_7_a_grant_on_a_namespace_does_not_outlive_its_drop_in_a_transaction(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("a")
        transaction, inside = await _begun(people.root)
        assert (await inside.delete("/namespaces/a")).status == 204
        await people.root.grant("user:bob", "manage", **on_namespace("a"))
        refused = await _published(people.root, transaction)
        assert refused.status == 400
        assert "grants on namespace a" in refused.error["message"]
        assert (await people.root.head("/namespaces/a")).status == 204


async def test_grants_elsewhere_do_not_get_in_the_way_of_a_drop(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("a")
        await people.root.namespace("b")
        transaction, inside = await _begun(people.root, isolation="snapshot")
        assert (await inside.delete("/namespaces/a")).status == 204
        await people.root.grant("user:bob", "manage", **on_namespace("b"))
        assert (await _published(people.root, transaction)).status == 200


# --- what a refusal tells ---


async def test_t_right_15_a_refusal_names_tables_as_the_transaction_does(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people)
        await people.root.grant("user:bob", "write", **on_namespace("pub"))
        transaction, inside = await _begun(people.bob)
        assert (await inside.post(table_path("t", "pub"), ONE_PROPERTY)).status == 200
        await _renamed(people, ("pub", "t"), ("secret", "layoffs"))
        for step in ("prepare", "commit"):
            refused = await people.bob.post(f"/transactions/{transaction}/{step}")
            assert refused.refusal == (403, "ForbiddenException")
            assert "pub.t" in _told(refused)
            assert "layoffs" not in _told(refused)


async def test_t_right_15_a_conflict_does_not_tell_where_a_table_has_gone(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people)
        await people.root.table("u", "pub")
        await people.root.grant("user:bob", "write", **on_namespace("pub"))
        transaction, inside = await _begun(people.bob)
        assert (await inside.head(table_path("t", "pub"))).status == 204
        assert (await inside.post(table_path("u", "pub"), ONE_PROPERTY)).status == 200
        await _renamed(people, ("pub", "t"), ("secret", "layoffs"))
        refused = await _published(people.bob, transaction)
        assert refused.refusal == (409, "CommitFailedException")
        shown = await people.bob.get(f"/transactions/{transaction}")
        assert "layoffs" not in _told(refused) + _told(shown)


async def test_a_conflict_names_a_table_that_may_be_seen_where_it_is_now(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people)
        await people.root.table("u", "pub")
        await people.root.grant("user:bob", "write", **on_namespace("pub"))
        transaction, inside = await _begun(people.bob)
        await inside.head(table_path("t", "pub"))
        await inside.post(table_path("u", "pub"), ONE_PROPERTY)
        await people.root.post(table_path("t", "pub"), ONE_PROPERTY)
        assert "pub.t changed" in (await _published(people.bob, transaction)).error["message"]


async def test_a_table_that_was_renamed_meanwhile_is_a_conflict_for_who_may_write_it(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _two_namespaces(people)
        await people.root.grant("user:bob", "write", **on_namespace("pub"))
        transaction, inside = await _begun(people.bob)
        await inside.post(table_path("t", "pub"), ONE_PROPERTY)
        await _renamed(people, ("pub", "t"), ("pub", "renamed"))
        assert (await _published(people.bob, transaction)).refusal == (409, "CommitFailedException")


# --- where it belongs ---


async def test_t_tenant_3_what_is_done_after_a_commit_is_shown_to_nobody_elsewhere(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("pub")
        transaction, inside = await _begun(people.root)
        assert (await inside.create("mine", "pub")).status == 200
        assert (await _published(people.root, transaction)).status == 200
        listed = (await people.mallory.get("/transactions?state=committed")).json()
        assert listed["transactions"] == []


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
async def test_two_hundred_tables_come_to_be_in_one_transaction(tmp_path: Path, isolation: str) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("pub")
        transaction, inside = await _begun(people.root, isolation=isolation)
        for number in range(200):
            assert (await inside.create(f"t{number}", "pub")).status == 200
        assert (await _published(people.root, transaction)).status == 200


async def test_a_transaction_that_names_too_much_is_ended_by_its_commit(tmp_path: Path) -> None:
    async with house(tmp_path, max_cells=20) as people:
        await people.root.namespace("pub")
        transaction, inside = await _begun(people.root, isolation="snapshot")
        for number in range(5):
            assert (await inside.create(f"t{number}", "pub")).status == 200
        for _ in range(2):
            refused = await _published(people.root, transaction)
            assert refused.status == 400
            assert "max_cells" in refused.error["message"]
        shown = (await people.root.get(f"/transactions/{transaction}")).json()
        assert shown["state"] == "failed"
