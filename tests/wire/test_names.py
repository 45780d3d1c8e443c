"""Names are text: whatever they hold, they come back as they were, by every spelling a client may choose."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from lakepact.iceberg.requests import Identifier
from lakepact.server.http import Request
from lakepact.server.rest.door import Door
from tests.wire.world import Wire, segment, set_properties, table_path, view_path

ODD = [
    "with/slash",
    "with.dot",
    "with space",
    "with+plus",
    "with%percent",
    "with%2Fescape",
    "grüße-東京-🐘",
    "UPPER and lower",
    "tables",
    "namespaces",
    "~tilde~1",
    "'quote\"",
    "back\\slash",
    "?query#fragment&x=y",
    "..",
    ".",
]


async def test_an_odd_name_works_for_namespaces_tables_and_views(anywhere: Wire) -> None:
    for name in ODD:
        await _use_everywhere(anywhere, name)


async def _use_everywhere(anywhere: Wire, name: str) -> None:
    await anywhere.namespace(name)
    await anywhere.namespace(name, name)
    made = await anywhere.table(name, name, name)
    assert await anywhere.load(name, name, name) == made
    path = f"/namespaces/{segment(name, name)}"
    listed = (await anywhere.get(f"{path}/tables")).json()["identifiers"]
    assert listed == [{"namespace": [name, name], "name": name}]
    assert (await anywhere.get(f"/namespaces?parent={segment(name)}")).json()["namespaces"] == [[name, name]]
    committed = await anywhere.post(
        f"{path}/tables/{segment(name)}", {"requirements": [], "updates": [set_properties(a="b")]}
    )
    assert committed.status == 200
    assert (await anywhere.head(table_path(name, name, name))).status == 204
    rename = {
        "source": {"namespace": [name, name], "name": name},
        "destination": {"namespace": [name], "name": name + name},
    }
    assert (await anywhere.post("/tables/rename", rename)).status == 204
    assert (await anywhere.load(name + name, name))["metadata"]["properties"]["a"] == "b"
    assert (await anywhere.delete(table_path(name + name, name))).status == 204
    assert (await anywhere.delete(path)).status == 204


async def test_names_that_look_alike_are_different_names(anywhere: Wire) -> None:
    names = ["a.b", "a", "A", "a/b", "a%2Fb", "a b", "a+b", "a~1b", "é", "e\u0301"]
    for name in names:
        await anywhere.namespace(name)
        await anywhere.table(name, name)
    await anywhere.namespace("a", "b")
    await anywhere.table("t", "a", "b")
    for name in names:
        assert await anywhere.tables(name) == [name]
    assert await anywhere.tables("a", "b") == ["t"]


async def test_a_plus_in_a_path_is_a_space_as_java_writes_it(wire: Wire) -> None:
    await wire.namespace("my db")
    made = await wire.table("my table", "my db")
    assert (await wire.get("/namespaces/my+db/tables/my+table")).json() == made
    assert (await wire.get("/namespaces/my%20db/tables/my%20table")).json() == made
    assert (await wire.get("/namespaces/my+db")).json()["namespace"] == ["my db"]


async def test_the_separator_is_taken_in_either_case(wire: Wire) -> None:
    await wire.namespace("a")
    await wire.namespace("a", "b")
    for spelled in ("a%1Fb", "a%1fb"):
        assert (await wire.get(f"/namespaces/{spelled}")).json()["namespace"] == ["a", "b"]
        assert (await wire.get(f"/namespaces?parent={spelled}")).status == 200


async def test_a_parent_that_was_encoded_twice_is_found_all_the_same(wire: Wire) -> None:
    """As PyIceberg sends it. One whose name really looks like that goes first."""
    await wire.namespace("my db")
    await wire.namespace("my db", "a")
    assert (await wire.get("/namespaces?parent=my%2520db")).json()["namespaces"] == [["my db", "a"]]
    assert (await wire.get("/namespaces?parent=my%2520other")).refusal == (404, "NoSuchNamespaceException")
    await wire.namespace("my%20db")
    await wire.namespace("my%20db", "b")
    assert (await wire.get("/namespaces?parent=my%2520db")).json()["namespaces"] == [["my%20db", "b"]]


@pytest.mark.parametrize("separator", [".", "%2E", "%1F", "::"])
def test_an_advertised_separator_is_taken_beside_the_one_everybody_knows(separator: str) -> None:
    door = Door({}, "main", separator=separator)
    for joined in ("a%1Fb%20c", f"a{separator}b+c"):
        assert door.identifier(_request(joined), "table") == Identifier(("a", "b c"), "t")
    assert door.parent(_request("x", f"parent=a{separator}b")) == ("a", "b")


def test_with_the_usual_separator_a_dot_is_part_of_a_name() -> None:
    assert Door({}, "main").namespace(_request("a.b%1Fc")) == ("a.b", "c")


async def test_a_path_that_spells_its_fixed_words_in_percents_is_the_same_path(wire: Wire) -> None:
    await wire.namespace("a")
    await wire.namespace("a", "b")
    await wire.table("t", "a", "b")
    for path in ("/v1/main/%6Eamespaces/a%1Fb/t%61bles/t", "/v1/%6E%61mespaces/a%1Fb/tables/%74"):
        assert (await wire.client.send("GET", path)).status == 200


async def test_a_namespace_of_the_same_name_as_a_fixed_word_is_found(wire: Wire) -> None:
    for name in ("namespaces", "tables", "main", "v1", "properties"):
        await wire.namespace(name)
        await wire.table("namespaces", name)
        assert await wire.tables(name) == ["namespaces"]


async def test_unicode_that_was_not_escaped_is_read_as_utf_8(wire: Wire) -> None:
    await wire.namespace("grüße")
    await wire.table("日本", "grüße")
    raw = "/v1/main/namespaces/grüße/tables/日本".encode().decode("latin-1")
    assert (await wire.client.send("GET", raw)).status == 200


@pytest.mark.parametrize("path", ["/namespaces/%FF", "/namespaces/%", "/namespaces/db/tables/%C3", "/namespaces/a%2"])
async def test_a_path_that_is_no_text_is_400(wire: Wire, path: str) -> None:
    assert (await wire.get(path)).refusal == (400, "BadRequestException")


async def test_a_name_that_cannot_be_kept_or_found_again_is_refused(anywhere: Wire) -> None:
    await anywhere.namespace()
    for name in ("a\x1fb", "\x00", "a\nb", "\x7f", "x" * 2_000, "é" * 400):
        assert (await anywhere.post("/namespaces", {"namespace": [name]})).refusal == (400, "BadRequestException")
        assert (await anywhere.create(name)).refusal == (400, "BadRequestException")
        for answer in (
            await anywhere.get(f"/namespaces/{quote(name, safe='')}"),
            await anywhere.get(table_path(name)),
            await anywhere.get(view_path(name)),
            await anywhere.delete(table_path(name)),
        ):
            assert answer.status in (400, 404)


@pytest.mark.parametrize("levels", [[], [""], ["a", ""], ["", "a"]])
async def test_a_namespace_without_a_name_is_refused(wire: Wire, levels: list[str]) -> None:
    assert (await wire.post("/namespaces", {"namespace": levels})).refusal == (400, "BadRequestException")


async def test_an_empty_level_in_a_path_is_no_server_error(wire: Wire) -> None:
    for path in ("/namespaces/%1F", "/namespaces/a%1F", "/namespaces/%1Fa/tables", "/namespaces/%1F/tables/t"):
        assert (await wire.get(path)).status in (400, 404)
    assert (await wire.get("/namespaces/")).status == 404
    assert (await wire.get("/namespaces/db/tables/")).status == 404


def _request(namespace: str, query: str = "") -> Request:
    segments = ("v1", "main", "namespaces", namespace, "tables", "t")
    return Request("GET", "/".join(("", *segments)), {"prefix": "main", "table": "t"}, segments, query, {}, b"", "1")
