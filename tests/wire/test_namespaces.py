"""Namespaces: properties, nesting, pages, and drops that never leave an orphan."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.wire.overlays import begin
from tests.wire.world import SCHEMA, Wire, creation, new_key, segment, table_path


async def test_a_namespace_is_created_with_its_properties_and_found_again(anywhere: Wire) -> None:
    wire = anywhere
    created = await wire.post("/namespaces", {"namespace": ["db"], "properties": {"owner": "ada"}})
    assert created.status == 200
    assert created.json() == {"namespace": ["db"], "properties": {"owner": "ada", "location": f"{wire.root}/db"}}
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
    assert (await anywhere.get("/namespaces/db")).json()["properties"] == {
        "owner": "bob",
        "new": "y",
        "location": f"{anywhere.root}/db",
    }


async def test_a_property_that_is_both_set_and_removed_is_422(wire: Wire) -> None:
    await wire.namespace("db", a="1")
    answer = await wire.post("/namespaces/db/properties", {"removals": ["a"], "updates": {"a": "2"}})
    assert answer.refusal == (422, "UnprocessableEntityException")
    assert (await wire.get("/namespaces/db")).json()["properties"] == {"a": "1", "location": f"{wire.root}/db"}


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


async def test_a_namespace_is_created_with_the_parents_that_are_missing(anywhere: Wire) -> None:
    await anywhere.namespace("a", owner="ada")
    made = await anywhere.post("/namespaces", {"namespace": ["a", "b", "c", "d"], "properties": {"x": "y"}})
    assert made.status == 200
    for levels, more in (
        (["a"], {"owner": "ada"}),
        (["a", "b"], {}),
        (["a", "b", "c"], {}),
        (["a", "b", "c", "d"], {"x": "y"}),
    ):
        loaded = (await anywhere.get(f"/namespaces/{segment(*levels)}")).json()
        assert loaded == {
            "namespace": levels,
            "properties": {**more, "location": f"{anywhere.root}/{'/'.join(levels)}"},
        }
    assert (await anywhere.delete("/namespaces/a%1Fb")).refusal == (409, "NamespaceNotEmptyException")
    for levels in (["a", "b", "c", "d"], ["a", "b", "c"], ["a", "b"]):
        assert (await anywhere.delete(f"/namespaces/{segment(*levels)}")).status == 204


async def test_namespaces_created_at_once_share_the_parents_that_were_missing(contended: Wire) -> None:
    answers = await asyncio.gather(
        *(contended.post("/namespaces", {"namespace": ["p", "q", f"n{number}"]}) for number in range(6))
    )
    assert [answer.status for answer in answers] == [200] * 6
    assert len((await contended.get("/namespaces?parent=p%1Fq")).json()["namespaces"]) == 6


async def test_missing_parents_are_staged_and_published_with_the_namespace(anywhere: Wire) -> None:
    tx = await begin(anywhere)
    assert (await tx.post("/namespaces", {"namespace": ["x", "y"]})).status == 200
    assert (await tx.head("/namespaces/x")).status == 204
    assert (await anywhere.head("/namespaces/x")).status == 404
    await tx.publish()
    assert (await anywhere.head("/namespaces/x")).status == (await anywhere.head("/namespaces/x%1Fy")).status == 204


async def test_new_tables_are_below_the_location_of_their_namespace(anywhere: Wire) -> None:
    for levels in (["plain"], ["a", "b"], ["odd name"], ["_catalog"], [f"x-{new_key()}"], ["ü"], ["l" * 90]):
        made = await anywhere.post("/namespaces", {"namespace": levels})
        location = made.json()["properties"]["location"]
        assert location.startswith(f"{anywhere.root}/")
        assert made.json()["properties"] == (await anywhere.get(f"/namespaces/{segment(*levels)}")).json()["properties"]
        table = (await anywhere.post(f"/namespaces/{segment(*levels)}/tables", {"name": "t", "schema": SCHEMA})).json()
        assert table["metadata"]["location"].startswith(f"{location}/t-"), levels
        chosen = {"name": "u", "schema": SCHEMA, "location": f"{location}/u"}
        assert (await anywhere.post(f"/namespaces/{segment(*levels)}/tables", chosen)).status == 200, levels


async def test_two_namespaces_never_share_a_location(wire: Wire) -> None:
    names = ("a b", "a_b", "a.b", "A_b", "l" * 70, "l" * 71, "ü", "ö", "a%1Fb")
    locations = set()
    for name in names:
        locations.add((await wire.post("/namespaces", {"namespace": [name]})).json()["properties"]["location"])
    locations.add((await wire.post("/namespaces", {"namespace": ["a", "b"]})).json()["properties"]["location"])
    assert len(locations) == len(names) + 1


async def test_a_location_is_set_and_removed_like_any_property(anywhere: Wire) -> None:
    await anywhere.namespace("db")
    path = "/namespaces/db/properties"
    assert (await anywhere.post(path, {"removals": ["location"]})).json()["missing"] == ["location"]
    elsewhere = f"{anywhere.root}/elsewhere"
    assert (await anywhere.post(path, {"updates": {"location": elsewhere}})).json()["updated"] == ["location"]
    assert (await anywhere.get("/namespaces/db")).json()["properties"] == {"location": elsewhere}
    assert (await anywhere.table())["metadata"]["location"].startswith(f"{elsewhere}/t-")
    assert (await anywhere.post(path, {"removals": ["location"]})).json()["removed"] == ["location"]
    assert (await anywhere.get("/namespaces/db")).json()["properties"] == {"location": f"{anywhere.root}/db"}
    assert (await anywhere.table("u"))["metadata"]["location"].startswith(f"{anywhere.root}/db/u-")
    outside = await anywhere.post(path, {"updates": {"location": "file:///elsewhere"}})
    assert outside.refusal == (400, "BadRequestException")


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


async def test_the_last_page_has_no_token_and_none_is_empty(anywhere: Wire) -> None:
    await anywhere.namespace()
    for number in range(6):
        await anywhere.namespace("db", f"n{number}")
        await anywhere.table(f"t{number}")
    await anywhere.view()
    for path, field, count in (
        ("/namespaces?parent=db&", "namespaces", 6),
        ("/namespaces/db/tables?", "identifiers", 6),
        ("/namespaces/db/views?", "identifiers", 1),
    ):
        for size in (1, 2, 3, 5, 6, 7):
            sizes = list[int]()
            token: str | None = ""
            while token is not None:
                page = (await anywhere.get(f"{path}pageSize={size}&pageToken={segment(token)}")).json()
                sizes.append(len(page[field]))
                token = page["next-page-token"]
            full, rest = divmod(count, size)
            assert sizes == [size] * full + [rest] * (rest > 0), (path, size)
    for number in range(4):
        assert (await anywhere.delete(table_path(f"t{number}"))).status == 204
    first = (await anywhere.get("/dropped?pageSize=2&pageToken=")).json()
    second = (await anywhere.get(f"/dropped?pageSize=2&pageToken={segment(first['next-page-token'])}")).json()
    assert len(first["dropped"]) == len(second["dropped"]) == 2 and second["next-page-token"] is None


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
    assert (await wire.get("/namespaces/db")).json()["properties"] == {"location": f"{wire.root}/db"}


async def test_a_refused_drop_leaves_the_namespace_as_it_was(wire: Wire) -> None:
    await wire.namespace("db", owner="ada")
    await wire.table()
    assert (await wire.delete("/namespaces/db")).status == 409
    assert (await wire.get("/namespaces/db")).json()["properties"]["owner"] == "ada"
    await wire.table("u")


async def test_a_drop_that_races_a_creation_never_leaves_an_orphan(contended: Wire) -> None:
    """Whichever wins, a table that was created is in a namespace that is there."""
    won = {"created": 0, "dropped": 0}
    for number in range(40):
        name = f"race{number}"
        await contended.namespace(name)
        what: Any = {
            0: lambda name=name: contended.create("t", name),
            1: lambda name=name: contended.post("/namespaces", {"namespace": [name, "child"]}),
            2: lambda name=name: contended.commit_all({**creation(), "identifier": _identifier(name, "t")}),
        }[number % 3]
        steps = [contended.delete(f"/namespaces/{name}"), what(), contended.delete(f"/namespaces/{name}")]
        dropped, created, again = await asyncio.gather(*(steps if number % 2 else reversed(steps)))
        if not number % 2:
            dropped, again = again, dropped
        there = (await contended.head(f"/namespaces/{name}")).status == 204
        was_dropped = 204 in (dropped.status, again.status)
        assert created.status in (200, 204, 404), created.body
        assert there == (created.status != 404), (created.body, dropped.body, again.body)
        # A child namespace that is created after the drop brings its parent back.
        assert was_dropped != there or number % 3 == 1
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
