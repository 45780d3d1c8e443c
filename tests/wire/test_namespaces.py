"""Namespaces: properties, nesting, pages, and drops that never leave an orphan."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.wire.world import Wire, creation, new_key, segment, table_path


async def test_a_namespace_is_created_with_its_properties_and_found_again(anywhere: Wire) -> None:
    wire = anywhere
    created = await wire.post("/namespaces", {"namespace": ["db"], "properties": {"owner": "ada"}})
    assert created.status == 200
    assert created.json() == {"namespace": ["db"], "properties": {"owner": "ada"}}
    assert (await wire.get("/namespaces/db")).json() == created.json()
    assert (await wire.head("/namespaces/db")).status == 204
    assert (await wire.get("/namespaces")).json() == {"namespaces": [["db"]], "next-page-token": None}


async def test_a_namespace_is_created_once(anywhere: Wire) -> None:
    await anywhere.namespace()
    again = await anywhere.post("/namespaces", {"namespace": ["db"]})
    assert again.refusal == (409, "AlreadyExistsException")
    assert again.error["message"] == "Namespace already exists: db"


async def test_what_does_not_exist_is_404(wire: Wire) -> None:
    message = "Namespace does not exist: nope"
    for answer in (
        await wire.get("/namespaces/nope"),
        await wire.delete("/namespaces/nope"),
        await wire.post("/namespaces/nope/properties", {"updates": {"a": "b"}}),
        await wire.get("/namespaces/nope/tables"),
        await wire.get("/namespaces/nope/views"),
        await wire.get("/namespaces?parent=nope"),
        await wire.create("t", "nope"),
        await wire.post("/namespaces", {"namespace": ["nope", "child"]}),
    ):
        assert answer.refusal == (404, "NoSuchNamespaceException")
        assert answer.error["message"] == message
    missing = await wire.head("/namespaces/nope")
    assert (missing.status, missing.body) == (404, b"")


async def test_properties_are_set_removed_and_reported(anywhere: Wire) -> None:
    await anywhere.namespace("db", owner="ada", old="x")
    answer = await anywhere.post(
        "/namespaces/db/properties", {"removals": ["old", "never"], "updates": {"owner": "bob", "new": "y"}}
    )
    assert answer.json() == {"updated": ["new", "owner"], "removed": ["old"], "missing": ["never"]}
    assert (await anywhere.get("/namespaces/db")).json()["properties"] == {"owner": "bob", "new": "y"}


async def test_a_property_that_is_both_set_and_removed_is_422(wire: Wire) -> None:
    await wire.namespace("db", a="1")
    answer = await wire.post("/namespaces/db/properties", {"removals": ["a"], "updates": {"a": "2"}})
    assert answer.refusal == (422, "UnprocessableEntityException")
    assert (await wire.get("/namespaces/db")).json()["properties"] == {"a": "1"}


async def test_namespaces_nest_and_each_level_lists_its_own_children(anywhere: Wire) -> None:
    for levels in (("a",), ("a", "b"), ("a", "b", "c"), ("a", "d"), ("e",)):
        await anywhere.namespace(*levels)

    async def below(*parent: str) -> list[list[str]]:
        listed: list[list[str]] = (await anywhere.get(f"/namespaces?parent={segment(*parent)}")).json()["namespaces"]
        return sorted(listed)

    assert sorted((await anywhere.get("/namespaces")).json()["namespaces"]) == [["a"], ["e"]]
    assert await below("a") == [["a", "b"], ["a", "d"]]
    assert await below("a", "b") == [["a", "b", "c"]]
    assert await below("e") == []
    assert (await anywhere.get("/namespaces/a%1Fb%1Fc")).json()["namespace"] == ["a", "b", "c"]


async def test_pages_show_everything_once(anywhere: Wire) -> None:
    names = [f"n{number:02d}" for number in range(25)]
    for name in names:
        await anywhere.namespace(name)
    found: list[str] = []
    token: str | None = ""
    pages = 0
    while token is not None:
        page = (await anywhere.get(f"/namespaces?pageSize=4&pageToken={segment(token)}")).json()
        assert len(page["namespaces"]) <= 4
        found += [levels[0] for levels in page["namespaces"]]
        token, pages = page["next-page-token"], pages + 1
    assert sorted(found) == names
    assert pages >= 7


async def test_without_a_token_the_answer_is_whole_whatever_the_size(wire: Wire) -> None:
    for number in range(5):
        await wire.namespace(f"n{number}")
    for query in ("", "?pageSize=2", "?pageToken="):
        answer = (await wire.get(f"/namespaces{query}")).json()
        assert len(answer["namespaces"]) == 5
        assert answer["next-page-token"] is None


@pytest.mark.parametrize("query", ["pageSize=0", "pageSize=-1", "pageSize=x", "pageSize=1e3", "pageSize=²"])
async def test_a_page_size_that_is_none_is_400(wire: Wire, query: str) -> None:
    query = query.replace("²", "%C2%B2")
    assert (await wire.get(f"/namespaces?pageToken=&{query}")).refusal == (400, "BadRequestException")


async def test_a_page_token_from_nowhere_is_refused_and_shows_nothing_foreign(anywhere: Wire) -> None:
    await anywhere.namespace("db")
    await anywhere.namespace("other")
    await anywhere.table("hidden", "other")
    for token in ("nonsense", "%00", "%FF", "a%2Fb", "%F0%9F%90%98", "..", "x" * 3_000, "main/names", "main%2Fnames"):
        for path in ("/namespaces", "/namespaces/db/tables"):
            answer = await anywhere.get(f"{path}?pageSize=10&pageToken={token}")
            assert answer.status == 400, (token, answer.body)
            assert b"hidden" not in answer.body
    assert b"pageToken" in (await anywhere.get("/dropped?pageToken=nonsense")).body


async def test_a_control_character_is_refused_by_the_name_it_is_in(wire: Wire) -> None:
    answer = await wire.post("/namespaces", {"namespace": ["x\x01"]})
    assert answer.status == 400 and b"control character" in answer.body
    assert b"main/" not in answer.body, "how it is stored is nobody's business"


async def test_only_an_empty_namespace_is_dropped(anywhere: Wire) -> None:
    await anywhere.namespace("db")
    await anywhere.namespace("db", "child")
    refused = await anywhere.delete("/namespaces/db")
    assert refused.refusal == (409, "NamespaceNotEmptyException")
    assert "is not empty" in refused.error["message"]
    assert (await anywhere.delete("/namespaces/db%1Fchild")).status == 204
    await anywhere.table()
    assert (await anywhere.delete("/namespaces/db")).refusal == (409, "NamespaceNotEmptyException")
    assert (await anywhere.delete(table_path())).status == 204
    await anywhere.view()
    assert (await anywhere.delete("/namespaces/db")).refusal == (409, "NamespaceNotEmptyException")
    assert (await anywhere.delete("/namespaces/db/views/v")).status == 204
    assert (await anywhere.delete("/namespaces/db")).status == 204
    assert (await anywhere.head("/namespaces/db")).status == 404


async def test_a_dropped_namespace_comes_back_without_its_past(wire: Wire) -> None:
    await wire.namespace("db", owner="ada")
    assert (await wire.delete("/namespaces/db")).status == 204
    await wire.namespace("db")
    assert (await wire.get("/namespaces/db")).json()["properties"] == {}


async def test_a_refused_drop_leaves_the_namespace_as_it_was(wire: Wire) -> None:
    await wire.namespace("db", owner="ada")
    await wire.table()
    assert (await wire.delete("/namespaces/db")).status == 409
    assert (await wire.get("/namespaces/db")).json() == {"namespace": ["db"], "properties": {"owner": "ada"}}
    await wire.table("u")


async def test_a_drop_that_races_a_creation_never_leaves_an_orphan(anywhere: Wire) -> None:
    """Whichever wins, a table that was created is in a namespace that is there."""
    won = {"created": 0, "dropped": 0}
    for number in range(40):
        name = f"race{number}"
        await anywhere.namespace(name)
        what: Any = {
            0: lambda name=name: anywhere.create("t", name),
            1: lambda name=name: anywhere.post("/namespaces", {"namespace": [name, "child"]}),
            2: lambda name=name: anywhere.commit_all({**creation(), "identifier": _identifier(name, "t")}),
        }[number % 3]
        steps = [anywhere.delete(f"/namespaces/{name}"), what(), anywhere.delete(f"/namespaces/{name}")]
        dropped, created, again = await asyncio.gather(*(steps if number % 2 else reversed(steps)))
        if not number % 2:
            dropped, again = again, dropped
        there = (await anywhere.head(f"/namespaces/{name}")).status == 204
        was_dropped = 204 in (dropped.status, again.status)
        assert created.status in (200, 204, 404), created.body
        assert there == (created.status != 404), (created.body, dropped.body, again.body)
        assert was_dropped != there
        for answer in (dropped, again):
            assert answer.status in (204, 404, 409, 503), answer.body
        won["created" if there else "dropped"] += 1
    assert sum(won.values()) == 40


async def test_many_creations_in_a_namespace_that_is_being_dropped_all_land_or_none(wire: Wire) -> None:
    for number in range(10):
        name = f"n{number}"
        await wire.namespace(name)
        answers = await asyncio.gather(
            *(wire.create(f"t{table}", name) for table in range(4)),
            wire.delete(f"/namespaces/{name}"),
            *(wire.create(f"u{table}", name) for table in range(4)),
        )
        created = [answer for position, answer in enumerate(answers) if position != 4 and answer.status == 200]
        there = (await wire.head(f"/namespaces/{name}")).status == 204
        assert there == bool(created)
        if there:
            assert len(await wire.tables(name)) == len(created)


async def test_a_keyed_drop_is_replayed(wire: Wire) -> None:
    await wire.namespace()
    key = new_key()
    for _ in range(3):
        assert (await wire.delete("/namespaces/db", headers={"Idempotency-Key": key})).status == 204
    await wire.namespace()
    assert (await wire.delete("/namespaces/db", headers={"Idempotency-Key": key})).status == 204
    assert (await wire.head("/namespaces/db")).status == 204


def _identifier(namespace: str, name: str) -> dict[str, object]:
    return {"namespace": [namespace], "name": name}
