"""What no client may do: leave the warehouse, share a place, touch what is Lakepact's own."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest

from tests.support.asgi_client import Answer
from tests.support.collecting import collected
from tests.wire.world import SCHEMA, VIEW_VERSION, Json, Wire, append, creation, set_properties, table_path

RESERVED = ["lakepact.x", "LAKEPACT.x", "LakePact.Policy", "lakepact."]


def outside(root: str) -> Iterator[str]:
    """Places that are not below the root, or are spelled so that somebody may think otherwise."""
    parent = root.rpartition("/")[0]
    yield from (
        "file:///etc/x",
        "/etc/x",
        parent,
        f"{parent}/other",
        root,
        f"{root}/",
        f"{root}-other/x",
        f"{root}/..",
        f"{root}/../x",
        f"{root}/a/../../x",
        f"{root}/a/../b",
        f"{root}/./a",
        f"{root}//a",
        f"{root}/%2e%2e/x",
        f"{root}/%2E%2E%2Fx",
        f"{root}/a/%2e%2e/%2e%2e/x",
        f"{root}/..%2fx",
        f"{root}/a\\..\\..\\x",
        f"{root}/a%5C..%5Cx",
        f"{root}/a\x00b",
        f"{root}/a\nb",
        f"{root}/_catalog/events",
        f"{root}/_catalog",
        root.replace("file://", "file://host"),
        root.replace("file://", "s3://bucket"),
        root.replace("file://", "s3a://bucket"),
        root.replace("file://", "hdfs://"),
        root.replace("file://", "http://host"),
        "relative/path",
        "x",
        "memory://a",
    )


async def _each_place(wire: Wire, location: str) -> list[tuple[str, Answer]]:
    """Every way in which a client can name a location."""
    properties = {"write.data.path": location}
    view = {"name": "w", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}, "location": location}
    answers = [
        ("create", await wire.create("new", location=location)),
        ("stage", await wire.create("new", location=location, **{"stage-create": True})),
        ("create with a data path", await wire.create("new", properties=properties)),
        ("set-location", await wire.commit([{"action": "set-location", "location": location}])),
        (
            "creation",
            await wire.post(table_path("new"), creation(updates=[{"action": "set-location", "location": location}])),
        ),
        ("view", await wire.post("/namespaces/db/views", view)),
        ("view's set-location", await wire.post("/namespaces/db/views/v", _view_update(location))),
        ("namespace", await wire.post("/namespaces", {"namespace": ["n"], "properties": {"location": location}})),
        ("namespace's properties", await wire.post("/namespaces/db/properties", {"updates": {"location": location}})),
    ]
    for name in ("write.data.path", "write.metadata.path", "write.object-storage.path"):
        answers.append((name, await wire.commit([set_properties(**{name: location})])))
    for kind in ("register", "register-view"):
        body = {"name": "new", "metadata-location": f"{location}/x.metadata.json"}
        answers.append((kind, await wire.post(f"/namespaces/db/{kind}", body)))
    return answers


async def test_nothing_is_put_outside_the_warehouse_however_it_is_spelled(wire: Wire) -> None:
    await wire.namespace()
    before = await wire.table()
    await wire.view()
    for location in outside(wire.root):
        # Its root is no place for a table, but files lie below it.
        below_is_fine = location.rstrip("/") == wire.root
        for what, answer in await _each_place(wire, location):
            if below_is_fine and what.startswith("register"):
                assert answer.status in (400, 404), (what, location)
            else:
                assert answer.refusal == (400, "BadRequestException"), (what, location, answer.body)
    assert await wire.load() == before
    assert await wire.tables() == ["t"]
    assert (await wire.get("/namespaces")).json()["namespaces"] == [["db"]]


async def test_every_plain_spelling_of_a_place_inside_is_taken(wire: Wire) -> None:
    await wire.namespace()
    path = wire.root.removeprefix("file://")
    for number, root in enumerate((wire.root, f"file:{path}", path, f"FILE://{path}")):
        made = await wire.create(f"t{number}", location=f"{root}/mine{number}")
        assert made.status == 200, made.body
        assert (await wire.load(f"t{number}"))["metadata"]["location"] == f"{root}/mine{number}"


async def test_a_place_that_no_disk_can_hold_is_400(wire: Wire) -> None:
    await wire.namespace()
    for location in (f"{wire.root}/{'x' * 300}", f"{wire.root}/" + "/".join(["y" * 200] * 30)):
        for stage in (False, True):
            answer = await wire.create("t", location=location, **{"stage-create": stage})
            assert answer.refusal == (400, "BadRequestException"), answer.body


async def test_a_trailing_slash_is_not_kept(wire: Wire) -> None:
    await wire.namespace()
    assert (await wire.table("t", location=f"{wire.root}/mine///"))["metadata"]["location"] == f"{wire.root}/mine"


async def test_two_tables_never_share_a_location(wire: Wire) -> None:
    await wire.namespace()
    location = f"{wire.root}/mine"
    await wire.table("t", location=location)
    await wire.table("u")
    path = location.removeprefix("file://")
    for spelled in (location, f"{location}/", f"file:{path}", path):
        assert (await wire.create("new", location=spelled)).status in (400, 409), spelled
        moved = await wire.commit([{"action": "set-location", "location": spelled}], name="u")
        assert moved.status in (400, 409), spelled
        move = [{"action": "set-location", "location": spelled}]
        assert (await wire.post(table_path("new"), creation(updates=move))).status in (400, 409), spelled
    assert await wire.tables() == ["t", "u"]


async def test_a_location_is_free_again_once_its_table_has_moved_or_gone(wire: Wire) -> None:
    await wire.namespace()
    await wire.table("t", location=f"{wire.root}/one")
    assert (await wire.commit([{"action": "set-location", "location": f"{wire.root}/two"}])).status == 200
    await wire.table("u", location=f"{wire.root}/one")
    assert (await wire.create("x", location=f"{wire.root}/two")).status in (400, 409)
    assert (await wire.delete(table_path())).status == 204
    # It may come back, for a while.
    assert (await wire.create("x", location=f"{wire.root}/two")).status == 400
    await collected(wire.settings, drop_retention_s=0)
    await wire.table("x", location=f"{wire.root}/two")


async def test_a_moved_table_writes_its_next_metadata_at_the_new_place(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    await wire.commit([{"action": "set-location", "location": f"{wire.root}/two"}])
    after = (await wire.commit([set_properties(a="b")])).json()
    assert after["metadata-location"].startswith(f"{wire.root}/two/metadata/")
    elsewhere = (await wire.commit([set_properties(**{"write.metadata.path": f"{wire.root}/meta"})])).json()
    assert elsewhere["metadata-location"].startswith(f"{wire.root}/meta/")
    assert (await wire.load())["metadata-location"] == elsewhere["metadata-location"]


async def test_a_namespace_says_where_its_tables_go(wire: Wire) -> None:
    await wire.namespace("db", location=f"{wire.root}/place")
    made = await wire.table()
    assert made["metadata"]["location"].startswith(f"{wire.root}/place/t-")


@pytest.mark.parametrize("name", RESERVED)
async def test_properties_of_lakepact_are_reserved_in_any_case(wire: Wire, name: str) -> None:
    await wire.namespace()
    before = await wire.table()
    await wire.view()
    properties = {name: "x"}
    view = {"name": "w", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": properties}
    remove = {"action": "remove-properties", "removals": [name]}
    for answer in (
        await wire.create("new", properties=properties),
        await wire.create("new", properties=properties, **{"stage-create": True}),
        await wire.commit([set_properties(**properties)]),
        await wire.commit([remove]),
        await wire.post(table_path("new"), creation(updates=[set_properties(**properties)])),
        await wire.commit_all(
            {"identifier": {"namespace": ["db"], "name": "t"}, "requirements": [], "updates": [remove]}
        ),
        await wire.post("/namespaces", {"namespace": ["n"], "properties": properties}),
        await wire.post("/namespaces/db/properties", {"updates": properties}),
        await wire.post("/namespaces/db/properties", {"removals": [name]}),
        await wire.post("/namespaces/db/views", view),
        await wire.post("/namespaces/db/views/v", {"updates": [set_properties(**properties)]}),
    ):
        assert answer.refusal == (400, "BadRequestException")
        assert "reserved" in answer.error["message"]
    assert await wire.load() == before


async def test_a_property_that_only_looks_like_one_of_lakepacts_is_fine(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    assert (await wire.commit([set_properties(**{"lakepactish": "x", "my.lakepact.y": "z"})])).status == 200


async def test_a_registered_file_is_held_to_the_same_rules(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    await wire.commit(append(1))
    good = (await wire.post(f"{table_path()}/unregister")).json()["metadata"]
    await wire.table("other", location=f"{wire.root}/taken")
    changed: list[Json] = [
        {"location": "file:///etc"},
        {"location": f"{wire.root}/../x"},
        {"location": f"{wire.root}/taken"},
        {"properties": {"write.data.path": "/etc"}},
        {"properties": {"Lakepact.x": "y"}},
    ]
    for number, bad in enumerate(changed):
        location = f"{good['location']}/metadata/x{number}.metadata.json"
        wire.path_of(location).write_bytes(orjson.dumps({**good, **bad}))
        answer = await wire.post("/namespaces/db/register", {"name": "t", "metadata-location": location})
        assert answer.status in (400, 409), (bad, answer.body)
    assert await wire.tables() == ["other"]


def _view_update(location: str) -> Json:
    return {"updates": [{"action": "set-location", "location": location}]}
