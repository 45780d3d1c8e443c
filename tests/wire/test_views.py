"""Views: everything tables do that makes sense for them, and never a name that is both."""

from __future__ import annotations

import orjson

from tests.wire.world import SCHEMA, VIEW_VERSION, WIDER, Json, Wire, new_key, set_properties, table_path, view_path


def version(sql: str, dialect: str = "spark") -> Json:
    representations = [{"type": "sql", "sql": sql, "dialect": dialect}]
    return {**VIEW_VERSION, "version-id": 2, "representations": representations}


def replace(sql: str, dialect: str = "spark") -> list[Json]:
    return [
        {"action": "add-schema", "schema": SCHEMA},
        {"action": "add-view-version", "view-version": version(sql, dialect)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


async def test_a_view_is_created_loaded_listed_and_dropped(anywhere: Wire) -> None:
    await anywhere.namespace()
    made = await anywhere.view("v", properties={"comment": "one"})
    metadata = made["metadata"]
    assert metadata["format-version"] == 1
    assert metadata["properties"] == {"comment": "one"}
    assert metadata["versions"][0]["representations"] == VIEW_VERSION["representations"]
    assert (await anywhere.get(view_path())).json() == made
    assert (await anywhere.head(view_path())).status == 204
    listed = (await anywhere.get("/namespaces/db/views")).json()
    assert listed == {"identifiers": [{"namespace": ["db"], "name": "v"}], "next-page-token": None}
    assert await anywhere.tables() == []
    assert (await anywhere.delete(view_path())).status == 204
    assert (await anywhere.head(view_path())).status == 404
    assert (await anywhere.delete(view_path())).refusal == (404, "NoSuchViewException")


async def test_a_view_is_replaced_and_keeps_its_history(anywhere: Wire) -> None:
    await anywhere.namespace()
    made = await anywhere.view()
    uuid = {"type": "assert-view-uuid", "uuid": made["metadata"]["view-uuid"]}
    answer = await anywhere.post(view_path(), {"requirements": [uuid], "updates": replace("SELECT 2 AS id")})
    assert answer.status == 200
    metadata = answer.json()["metadata"]
    assert metadata["current-version-id"] == 2
    assert [entry["version-id"] for entry in metadata["version-log"]] == [1, 2]
    assert "/00001-" in answer.json()["metadata-location"]
    assert (await anywhere.get(view_path())).json() == answer.json()


async def test_a_commit_that_changes_nothing_makes_no_version(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.view("v", properties={"a": "b"})
    for updates in ([], [set_properties(a="b")]):
        assert (await wire.post(view_path(), {"updates": updates})).json() == made


async def test_a_view_of_another_uuid_is_409(wire: Wire) -> None:
    await wire.namespace()
    before = await wire.view()
    wrong = {"type": "assert-view-uuid", "uuid": "550e8400-e29b-41d4-a716-446655440000"}
    answer = await wire.post(view_path(), {"requirements": [wrong], "updates": [set_properties(a="b")]})
    assert answer.refusal == (409, "CommitFailedException")
    assert answer.error["failed-requirements"][0]["requirement"] == wrong
    assert (await wire.get(view_path())).json() == before


async def test_updates_that_views_do_not_have_are_400_with_their_names(wire: Wire) -> None:
    await wire.namespace()
    await wire.view()
    updates = [{"action": "add-snapshot"}, {"action": "fly"}]
    answer = await wire.post(view_path(), {"updates": updates})
    assert answer.refusal == (400, "BadRequestException")
    assert "add-snapshot" in answer.error["message"] and "fly" in answer.error["message"]


async def test_two_queries_for_one_dialect_are_refused(wire: Wire) -> None:
    await wire.namespace()
    twice = {
        **VIEW_VERSION,
        "representations": [
            {"type": "sql", "sql": "SELECT 1", "dialect": "trino"},
            {"type": "sql", "sql": "SELECT 2", "dialect": "TRINO"},
        ],
    }
    body = {"name": "w", "schema": SCHEMA, "view-version": twice, "properties": {}}
    answer = await wire.post("/namespaces/db/views", body)
    assert answer.status == 400
    assert "Cannot add multiple queries for dialect trino" in answer.error["message"]


async def test_a_name_is_a_table_or_a_view_and_never_both(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table("t")
    await anywhere.view("v")
    body = {"name": "t", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
    over_table = await anywhere.post("/namespaces/db/views", body)
    assert over_table.refusal == (409, "AlreadyExistsException")
    assert over_table.error["message"] == "Table with same name already exists: db.t"
    over_view = await anywhere.create("v")
    assert over_view.error["message"] == "View with same name already exists: db.v"
    again = await anywhere.post("/namespaces/db/views", {**body, "name": "v"})
    assert again.error["message"] == "View already exists: db.v"

    assert (await anywhere.get(table_path("v"))).refusal == (404, "NoSuchTableException")
    assert (await anywhere.get(view_path("t"))).refusal == (404, "NoSuchViewException")
    assert (await anywhere.delete(table_path("v"))).status == 404
    assert (await anywhere.delete(view_path("t"))).status == 404
    assert (await anywhere.post(view_path("t"), {"updates": []})).refusal == (404, "NoSuchViewException")


async def test_a_view_is_renamed_across_namespaces(anywhere: Wire) -> None:
    await anywhere.namespace("db")
    await anywhere.namespace("other")
    await anywhere.table("t")
    made = await anywhere.view()

    def rename(source: str, namespace: str, target: str) -> Json:
        return {
            "source": {"namespace": ["db"], "name": source},
            "destination": {"namespace": [namespace], "name": target},
        }

    taken = await anywhere.post("/views/rename", rename("v", "db", "t"))
    assert taken.error["message"] == "Cannot rename db.v to db.t. Table already exists"
    assert (await anywhere.post("/views/rename", rename("t", "db", "x"))).refusal == (404, "NoSuchViewException")
    nowhere = await anywhere.post("/views/rename", rename("v", "nope", "x"))
    assert nowhere.refusal == (404, "NoSuchNamespaceException")
    assert (await anywhere.post("/views/rename", rename("v", "other", "w"))).status == 204
    assert (await anywhere.get(view_path("w", "other"))).json() == made
    assert (await anywhere.head(view_path())).status == 404


async def test_a_view_is_registered_from_its_file(anywhere: Wire) -> None:
    await anywhere.namespace()
    made = await anywhere.view()
    body = {"name": "again", "metadata-location": made["metadata-location"]}
    assert (await anywhere.post("/namespaces/db/register-view", body)).refusal == (409, "AlreadyExistsException")
    assert (await anywhere.delete(view_path())).status == 204
    registered = await anywhere.post("/namespaces/db/register-view", body)
    assert registered.status == 200
    assert registered.json() == made
    assert (await anywhere.post("/namespaces/db/register-view", body)).refusal == (409, "AlreadyExistsException")
    await anywhere.table("t")
    over_table = await anywhere.post("/namespaces/db/register-view", {**body, "name": "t"})
    assert over_table.error["message"] == "Table with same name already exists: db.t"


async def test_a_file_of_a_table_is_not_registered_as_a_view_nor_the_other_way_round(wire: Wire) -> None:
    await wire.namespace()
    table, view = await wire.table(), await wire.view()
    await wire.delete(table_path())
    await wire.delete(view_path())
    for kind, made in (("register-view", table), ("register", view)):
        body = {"name": "x", "metadata-location": made["metadata-location"]}
        assert (await wire.post(f"/namespaces/db/{kind}", body)).refusal == (400, "BadRequestException")


async def test_view_metadata_with_one_part_exchanged_never_breaks_the_server(wire: Wire) -> None:
    await wire.namespace()
    good = (await wire.view())["metadata"]
    await wire.delete(view_path())
    junk: list[object] = [None, 3, "text", [3], {"a": 3}, [{"a": []}], -1, True, [], {}]
    for number, (name, bad) in enumerate((name, bad) for name in good for bad in junk):
        location = f"{good['location']}/metadata/x{number}.metadata.json"
        wire.path_of(location).write_bytes(orjson.dumps({**good, name: bad}))
        body = {"name": "u", "metadata-location": location}
        answer = await wire.post("/namespaces/db/register-view", body)
        assert answer.status in (200, 400), (name, bad, answer.body)
        if answer.status == 200:
            assert (await wire.get(view_path("u"))).status == 200, (name, bad)
            replaced = await wire.post(view_path("u"), {"updates": replace("SELECT 3")})
            assert replaced.status in (200, 400), (name, bad, replaced.body)
            assert (await wire.delete(view_path("u"))).status == 204


async def test_a_missing_file_of_a_view_is_404_in_the_words_that_clients_expect(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.view()
    wire.path_of(made["metadata-location"]).unlink()
    answer = await wire.get(view_path())
    assert answer.refusal == (404, "NotFoundException")
    assert f"Failed to open input stream for file: {made['metadata-location']}" in answer.error["message"]


async def test_a_change_of_a_view_whose_file_is_missing_is_500_and_is_done_once_the_file_is_back(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.view()
    path, key = wire.path_of(made["metadata-location"]), new_key()
    path.rename(path.with_suffix(".away"))
    body = {"updates": replace("SELECT 3")}
    assert (await wire.post(view_path(), body, key)).refusal == (500, "InternalServerError")
    path.with_suffix(".away").rename(path)
    assert (await wire.post(view_path(), body, key)).status == 200


async def test_a_views_schema_evolves(wire: Wire) -> None:
    await wire.namespace()
    await wire.view()
    updates = [
        {"action": "add-schema", "schema": WIDER},
        {"action": "add-view-version", "view-version": {**version("SELECT 4"), "schema-id": -1}},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    metadata = (await wire.post(view_path(), {"updates": updates})).json()["metadata"]
    assert [schema["schema-id"] for schema in metadata["schemas"]] == [0, 1]
    assert metadata["versions"][-1]["schema-id"] == 1
