"""One test for each line of the threat model in SECURITY.md that is about rights, places and traces; and the list.

Those about who is asking, storage credentials and the web page stand beside what they are about, named in the same way.
The module is as long as the list it keeps to, in the order of that document.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lakepact.access import Principal
from lakepact.catalog.sight import seen_by
from lakepact.catalog.trail import Trail
from lakepact.catalog.work import Call
from lakepact.iceberg.requests import Identifier, parse_commit_table
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Transaction, Write
from lakepact.server.rest.tables import at_path
from tests.support.asgi_client import Answer
from tests.support.collecting import collected
from tests.wire import test_delta as delta
from tests.wire.people import PEOPLE, House, Person, admit, house, on_namespace, on_table
from tests.wire.test_guardrails import outside
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

ROOT = Path(__file__).parents[2]
FORBIDDEN = (403, "ForbiddenException")
NO_TABLE = (404, "NoSuchTableException")
Ask = Callable[[], Awaitable[Answer]]


@pytest.fixture
def people(tmp_path: Path) -> AbstractAsyncContextManager[House]:
    return _furnished(tmp_path)


@asynccontextmanager
async def _furnished(folder: Path, **given: Any) -> AsyncIterator[House]:
    async with house(folder, **given) as people:
        root = people.root
        await root.namespace()
        await root.namespace("hidden")
        for name in ("t", "u"):
            await root.table(name)
        await root.table("secret", "hidden")
        await root.view("v")
        await delta.create(root)
        yield people


def _config(person: Person, warehouse: str = "") -> Awaitable[Answer]:
    path = "/v1/config" + (f"?warehouse={warehouse}" if warehouse else "")
    return person.client.send("GET", path, headers={"X-Test-User": person.name})


# --- tenants ----------------------------------------------------------------------------------------------------------


async def test_t_tenant_1_a_warehouse_of_another_account_does_not_exist(people: House) -> None:
    mallory, url = people.mallory, people.settings.warehouse
    for asked in ("main", url):
        answer = await _config(mallory, asked)
        assert answer.refusal == (404, "NoSuchWarehouseException")
        assert "main" not in answer.error["message"].replace(repr(asked), "")
    assert (await _config(mallory)).json()["overrides"]["prefix"] == "other"
    there, nowhere = await mallory.at("main").get(table_path()), await mallory.at("none").get(table_path())
    assert there.error["message"].replace("main", "none") == nowhere.error["message"]
    # Without a prefix everybody is at home.
    bare = await mallory.client.send("GET", "/v1/namespaces", headers={"X-Test-User": "mallory"})
    assert bare.json()["namespaces"] == []


async def test_t_tenant_2_a_key_of_another_account_is_used_and_says_nothing(people: House) -> None:
    key, body = new_key(), {"namespace": ["fresh"], "properties": {"note": "for-us-alone"}}
    assert (await people.root.post("/namespaces", body, key)).status == 200
    for asked in (body, {"namespace": ["other"]}):
        answer = await people.mallory.post("/namespaces", asked, key)
        assert answer.refusal == (409, "KeyReusedException")
        assert "for-us-alone" not in answer.body.decode() and "main" not in answer.body.decode()
    assert (await people.mallory.get("/namespaces")).json()["namespaces"] == []


async def test_t_tenant_3_a_transaction_of_another_account_does_not_exist(people: House) -> None:
    mallory = people.mallory
    tx = (await people.root.post("/transactions")).json()["transaction-id"]
    inside = people.root.at(f"main@{tx}")
    assert (await inside.commit([set_properties(a="b")])).status == 200
    nothing = new_key()
    for path in (f"/transactions/{tx}", f"/transactions/{tx}/state/x"):
        there, none = await mallory.get(path), await mallory.get(path.replace(tx, nothing))
        assert there.status == none.status and there.status in (400, 404)
        assert there.body.decode().replace(tx, nothing) == none.body.decode()
    for step in ("prepare", "commit", "abort", "renew"):
        assert (await mallory.post(f"/transactions/{tx}/{step}")).status in (400, 404)
    assert (await mallory.at(f"other@{tx}").get("/namespaces")).status == 400
    assert (await _config(mallory, f"other@{tx}")).status == 400
    assert (await mallory.get("/transactions")).json()["transactions"] == []
    assert (await people.root.post(f"/transactions/{tx}/commit")).status == 200


async def test_t_tenant_4_administrators_and_everyone_end_at_their_account(people: House) -> None:
    assert (await people.mallory.grant("everyone", "manage", on="account")).status == 200
    assert (await people.eve.get(table_path())).refusal == NO_TABLE
    assert (await people.mallory.at("main").grant("user:mallory", "manage")).status == 404
    assert (await people.root.at("other").get("/grants")).status == 404


# --- rights -----------------------------------------------------------------------------------------------------------


def _changes(person: Person) -> dict[str, Ask]:
    """Every way to change something that is there and in sight."""
    view = {"name": "w", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
    rename = {"source": {"namespace": ["db"], "name": "t"}, "destination": {"namespace": ["db"], "name": "x"}}
    where = "/namespaces/db"
    tables = f"{where}/delta-tables"
    return {
        "createNamespace": lambda: person.post("/namespaces", {"namespace": ["db", "new"]}),
        "updateProperties": lambda: person.post(f"{where}/properties", {"updates": {"a": "b"}}),
        "dropNamespace": lambda: person.delete(where),
        "createTable": lambda: person.create("new"),
        "stage": lambda: person.create("new", **{"stage-create": True}),
        "creation": lambda: person.post(table_path("new"), creation()),
        "updateTable": lambda: person.commit([set_properties(a="b")]),
        "dropTable": lambda: person.delete(table_path()),
        "purge": lambda: person.delete(f"{table_path()}?purgeRequested=true"),
        "unregisterTable": lambda: person.post(f"{table_path()}/unregister"),
        "registerTable": lambda: person.post(f"{where}/register", {"name": "r", "metadata-location": "file:///x"}),
        "renameTable": lambda: person.post("/tables/rename", rename),
        "createView": lambda: person.post(f"{where}/views", view),
        "replaceView": lambda: person.post(view_path(), {"requirements": [], "updates": [set_properties(a="b")]}),
        "dropView": lambda: person.delete(view_path()),
        "registerView": lambda: person.post(f"{where}/register-view", {"name": "r", "metadata-location": "file:///x"}),
        "renameView": lambda: person.post("/views/rename", _renamed(rename, "v")),
        "createDeltaTable": lambda: person.post(tables, {"name": "new", "schema": delta.SCHEMA}),
        "commitDeltaTable": lambda: delta.commit(person, delta.add("a.parquet")),
        "dropDeltaTable": lambda: person.delete(f"{tables}/labels"),
        "renameDeltaTable": lambda: person.post("/delta-tables/rename", _renamed(rename, "labels")),
        "importDeltaTable": lambda: person.post(f"{tables}/new/import", {"location": f"{person.root}/x"}),
        "commitTransaction": lambda: person.commit_all(change("t", [set_properties(a="b")])),
        "addGrant": lambda: person.grant(f"user:{person.name}", "manage", **on_table()),
        "removeGrant": lambda: person.revoke("user:ann", **on_table()),
        "putGovernance": lambda: person.put(f"{table_path()}/governance", {"owner": person.name}),
    }


def _renamed(body: Json, name: str) -> Json:
    return {**body, "source": {**body["source"], "name": name}}


async def test_t_right_1_without_the_right_nothing_changes(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "read", **on_namespace())
    before = await _everything(root)
    for what, ask in _changes(eve).items():
        answer = await ask()
        assert answer.refusal == FORBIDDEN, (what, answer.body)
        assert set(answer.error) == {"message", "type", "code"}
    for what, ask in _changes(eve.at((await eve.post("/transactions")).json()["prefix"])).items():
        if what not in ("importDeltaTable", "addGrant", "removeGrant"):
            assert (await ask()).refusal == FORBIDDEN, what
    assert await _everything(root) == before


async def _everything(root: Person) -> list[Any]:
    paths = ("/namespaces/db", "/namespaces/db/tables", table_path(), view_path(), "/namespaces/db/delta-tables/labels")
    return [(await root.get(path)).json() for path in (*paths, f"{table_path()}/governance", "/grants")]


async def test_t_right_2_what_is_hidden_is_answered_as_what_is_not_there(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_table("u"))
    await root.grant("user:eve", "manage", **on_namespace("hidden"))
    await root.revoke("user:eve", **on_namespace("hidden"))
    for namespace, name in (("hidden", "secret"), ("db", "t")):
        assert (await root.commit_all(change(name, append(7), namespace=namespace))).status == 204
    # It has these snapshots in use from now on.
    assert (await root.post("/transactions")).status == 200

    def asks(namespace: str, name: str) -> dict[str, Ask]:
        at, identifier = table_path(name, namespace), {"namespace": [namespace], "name": name}
        away = {"source": identifier, "destination": {"namespace": [namespace], "name": "x"}}
        view, of_delta = f"/namespaces/{namespace}/views/{name}", f"/namespaces/{namespace}/delta-tables/{name}"
        updates, removal = [set_properties(a="b")], [{"action": "remove-snapshots", "snapshot-ids": [7]}]
        return {
            "load": lambda: eve.get(at),
            "exists": lambda: eve.head(at),
            "commit": lambda: eve.post(at, {"requirements": [], "updates": updates}),
            "keyed": lambda: eve.post(at, {"requirements": [], "updates": updates}, new_key()),
            "drop": lambda: eve.delete(at),
            "unregister": lambda: eve.post(f"{at}/unregister"),
            "rename": lambda: eve.post("/tables/rename", away),
            "batch": lambda: eve.post("/tables/batch-load", {"identifiers": [identifier]}),
            "many": lambda: eve.commit_all(change(name, updates, namespace=namespace)),
            "expire": lambda: eve.post(at, {"requirements": [], "updates": removal}),
            "expire many": lambda: eve.commit_all(change(name, removal, namespace=namespace)),
            "view": lambda: eve.get(view),
            "delta": lambda: eve.get(of_delta),
            "delta commit": lambda: eve.post(of_delta, {"actions": [delta.add("a")]}),
            "history": lambda: eve.get(f"{of_delta}/history"),
            "governance": lambda: eve.get(f"{at}/governance"),
            "govern": lambda: eve.put(f"{at}/governance", {"owner": "eve"}),
            "grant": lambda: eve.grant("user:eve", "read", **on_table(name, namespace)),
            "check": lambda: eve.post("/grants/check", on_table(name, namespace)),
        }

    for namespace, name in (("hidden", "secret"), ("db", "t"), ("db", "v"), ("db", "labels")):
        there, none = asks(namespace, name), asks(namespace, "nothing")
        for what in there:
            one, other = await there[what](), await none[what]()
            said = one.body.decode().replace(f"{namespace}.{name}", f"{namespace}.nothing")
            assert (one.status, said) == (other.status, other.body.decode()), what
            assert one.status == 404, what
    for path in ("", "/tables", "/views", "/delta-tables"):
        one, other = await eve.get(f"/namespaces/hidden{path}"), await eve.get(f"/namespaces/none{path}")
        assert (one.status, one.body.decode().replace("hidden", "none")) == (404, other.body.decode())
    assert (await eve.get("/namespaces")).json()["namespaces"] == [["db"]]
    assert await eve.tables() == ["u"]


async def test_t_right_3_one_table_too_many_stops_them_all(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "write", **on_table("t"))
    mine = change("t", [set_properties(a="b")])
    hidden = change("secret", [set_properties(a="b")], namespace="hidden")
    for others, expected in (([change("u", [])], 404), ([hidden], 404)):
        assert (await eve.commit_all(mine, *others)).status == expected
    await root.grant("user:eve", "read", **on_table("u"))
    assert (await eve.commit_all(mine, change("u", [set_properties(a="b")]))).refusal == FORBIDDEN
    # A table that is only required to be as it is must be in sight, and may not be changed all the same.
    assert (await eve.commit_all(mine, change("u", [], [{"type": "assert-table-uuid", "uuid": "x"}]))).status == 403
    both = {"table-changes": [mine], "delta-changes": [{"identifier": _labels(), "actions": [delta.add("a")]}]}
    assert (await eve.post("/transactions/commit", both)).refusal == NO_TABLE
    asked = {"identifiers": [{"namespace": ["db"], "name": "t"}, {"namespace": ["hidden"], "name": "secret"}]}
    assert (await eve.post("/tables/batch-load", asked)).refusal == NO_TABLE
    assert "a" not in (await root.load())["metadata"]["properties"]


def _labels() -> Json:
    return {"namespace": ["db"], "name": "labels"}


async def test_t_right_4_what_was_staged_is_looked_at_again(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())
    stages: dict[str, Callable[[Person], Awaitable[Answer]]] = {
        "commit": lambda inside: inside.commit([set_properties(a="b")]),
        "create": lambda inside: inside.create("new"),
        "drop": lambda inside: inside.delete(table_path("u")),
        "rename": lambda inside: inside.post(
            "/tables/rename",
            {"source": {"namespace": ["db"], "name": "u"}, "destination": {"namespace": ["db"], "name": "x"}},
        ),
        "namespace": lambda inside: inside.post("/namespaces", {"namespace": ["db", "deep"]}),
        "properties": lambda inside: inside.post("/namespaces/db/properties", {"updates": {"a": "b"}}),
        "delta": lambda inside: delta.commit(inside, delta.add("a.parquet")),
        "govern": lambda inside: inside.put(f"{table_path()}/governance", {"owner": "eve"}),
    }
    for what, stage in stages.items():
        tx = (await eve.post("/transactions")).json()["transaction-id"]
        assert (await stage(eve.at(f"main@{tx}"))).status < 300, what
        await root.grant("user:eve", "read", **on_namespace())
        for step in ("prepare", "commit"):
            assert (await eve.post(f"/transactions/{tx}/{step}")).refusal == FORBIDDEN, what
        assert (await eve.post(f"/transactions/{tx}/abort")).status == 200
        await root.grant("user:eve", "manage", **on_namespace())


async def test_t_right_5_a_transaction_is_its_owners(people: House) -> None:
    root, ann, eve = people.root, people.ann, people.eve
    await root.grant("everyone", "create", **on_namespace())
    tx = (await ann.post("/transactions")).json()["transaction-id"]
    inside = eve.at(f"main@{tx}")
    for ask in (
        inside.get(table_path()),
        inside.get("/namespaces"),
        inside.commit([set_properties(a="b")]),
        inside.create("new"),
        inside.get("/namespaces/db/delta-tables/labels"),
        eve.get(table_path(), headers={"X-Lakepact-Transaction": tx}),
        eve.put(f"/transactions/{tx}/state/x", {"value": {}}),
        eve.get(f"/transactions/{tx}/state/x"),
        eve.get(f"/transactions/{tx}"),
        *(eve.post(f"/transactions/{tx}/{step}") for step in ("prepare", "commit", "abort", "renew")),
        _config(eve, f"main@{tx}"),
    ):
        assert (await ask).refusal == FORBIDDEN
    assert (await eve.get("/transactions")).json()["transactions"] == []
    await root.grant("user:eve", "manage")
    assert (await eve.post(f"/transactions/{tx}/abort")).status == 200


async def test_t_right_6_an_answer_is_given_again_only_to_who_may_still_ask(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())
    keyed: dict[str, Callable[[str], Awaitable[Answer]]] = {
        "commit": lambda key: eve.commit([set_properties(a="b")], key=key),
        "create": lambda key: eve.post("/namespaces/db/tables", {"name": "new", "schema": SCHEMA}, key),
        "drop": lambda key: eve.delete(table_path("u"), headers={"Idempotency-Key": key}),
        "grant": lambda key: eve.post("/grants", {"holder": "user:ann", "role": "read", **on_table()}, key),
        "refused": lambda key: eve.post("/namespaces/db/tables", {"name": "t", "schema": SCHEMA}, key),
    }
    for what, ask in keyed.items():
        key = new_key()
        first = await ask(key)
        assert first.status == (409 if what == "refused" else first.status)
        assert (await ask(key)).body == first.body, what
        await root.revoke("user:eve", **on_namespace())
        assert (await ask(key)).status in (403, 404), what
        await root.grant("user:eve", "manage", **on_namespace())
        assert (await ask(key)).status == first.status, what


async def test_t_right_7_a_name_that_comes_again_comes_without_rights(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_table())
    await root.delete(table_path())
    await root.table()
    assert (await eve.get(table_path())).refusal == NO_TABLE
    await root.namespace("again")
    await root.grant("user:eve", "manage", **on_namespace("again"))
    await root.delete("/namespaces/again")
    await root.namespace("again")
    assert (await eve.get("/namespaces/again")).status == 404


async def test_t_right_7_a_namespace_that_comes_again_has_nothing_of_what_was_dropped_from_the_old_one(
    people: House,
) -> None:
    root, ann, eve = people.root, people.ann, people.eve
    inner = {"namespace": ["outer", "inner"], "properties": {}}
    await root.namespace("outer")
    await root.grant("user:ann", "manage", **on_namespace("outer"))
    for holder in ("user:bob", "user:eve"):
        assert (await root.post("/namespaces", inner)).status == 200
        await root.grant(holder, "manage", **on_namespace("outer", "inner"))
        await root.table(f"of-{holder[5:]}", "outer", "inner")
        assert (await root.delete(table_path(f"of-{holder[5:]}", "outer", "inner"))).status == 204
        if holder == "user:bob":
            assert await _may_undrop(people.bob) == ["of-bob"]
            assert (await root.delete("/namespaces/outer%1Finner")).status == 204
    assert await _may_undrop(people.bob) == []
    assert await _may_undrop(eve) == ["of-eve"]
    assert await _may_undrop(ann) == ["of-bob", "of-eve"], "the namespace around them is the one it was"
    identifier = {"namespace": ["outer", "inner"], "name": "of-bob"}
    assert (await eve.post("/tables/undrop", {"identifier": identifier})).refusal == NO_TABLE
    # It is still told of which namespace it was when its retention is over.
    await collected(people.settings, drop_retention_s=0)
    assert await _may_undrop(eve) == ["of-eve"]
    assert (await eve.post("/tables/undrop", {"identifier": {**identifier, "name": "of-eve"}})).status == 200
    assert (await ann.post("/tables/undrop", {"identifier": identifier})).status == 200


async def _may_undrop(person: Person) -> list[str]:
    return sorted(one["identifier"]["name"] for one in (await person.get("/dropped")).json()["dropped"])


async def test_what_was_dropped_before_notes_told_the_namespace_is_for_who_manages_the_warehouse(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())
    uuid = (await root.load())["metadata"]["table-uuid"]
    await root.delete(table_path())
    assert await _may_undrop(eve) == ["t"]
    assert root.service is not None
    parts = root.service.catalogs["main"].parts
    note = (await parts.store.read([parts.keys.dropped(uuid)]))[parts.keys.dropped(uuid)]
    assert note.value is not None
    older = {name: value for name, value in note.value.items() if name != "namespace-ids"}
    await parts.store.commit(Transaction(parts.new_id(), "", (Write(note.key, note.revision, older),), answer={}))
    assert await _may_undrop(eve) == []
    await root.grant("user:eve", "manage")
    assert await _may_undrop(eve) == ["t"]


async def test_t_right_8_replicas_do_not_decide_by_what_they_remember(tmp_path: Path) -> None:
    async with _furnished(tmp_path) as one, house(tmp_path) as other:
        for _ in range(2):
            await one.root.grant("user:eve", "write", **on_table())
            assert (await other.eve.commit([set_properties(a="b")])).status == 200
            await one.root.revoke("user:eve", **on_table())
            assert (await other.eve.get(table_path())).refusal == NO_TABLE


async def test_t_right_10_nobody_gives_more_than_they_may(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_table())
    for on in (on_namespace(), {"on": "warehouse"}, {"on": "account"}):
        for holder in ("user:eve", "everyone", "group:analysts"):
            assert (await eve.grant(holder, "read", **on)).refusal == FORBIDDEN
            assert (await eve.revoke(holder, **on)).refusal == FORBIDDEN
    await root.grant("user:eve", "manage", on="warehouse")
    assert (await eve.grant("user:eve", "manage", on="account")).refusal == FORBIDDEN
    await root.grant("user:eve", "create", on="warehouse")
    await root.revoke("user:eve", **on_table())
    assert (await eve.grant("user:eve", "manage", **on_table())).refusal == FORBIDDEN


async def test_t_right_11_a_table_that_takes_a_name_meanwhile_is_another_decision(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, admit=admit) as wire:
        root = Person(wire.client, wire.settings)
        await root.namespace()
        await root.table()
        await root.grant("user:eve", "write", **on_table())
        assert wire.service is not None
        catalog = wire.service.catalogs["main"]
        commits, seen = catalog.parts.store.commit, 0

        async def swapped(*given: Any, **more: Any) -> Any:
            """Just before the first commit, somebody replaces the table."""
            nonlocal seen
            seen += 1
            if seen == 1:
                assert (await root.delete(table_path())).status == 204
                await root.table()
            return await commits(*given, **more)

        catalog.parts.store.commit = swapped  # type: ignore[method-assign]
        guarded = seen_by(catalog, PEOPLE["eve"], Trail())
        body = {"requirements": [], "updates": [set_properties(a="b")]}
        commit = at_path(parse_commit_table(body), Identifier(("db",), "t"))
        with pytest.raises(Exception, match="does not exist"):
            await guarded.commit_table(Call(catalog.new_id(), "updateTable"), commit)
        assert seen > 1
        assert "a" not in (await root.load())["metadata"]["properties"]


@pytest.mark.parametrize("what", ["", "/history", "/verify", "governance"])
async def test_t_right_11_what_is_shown_is_what_was_seen_and_not_what_takes_its_name_meanwhile(
    people: House, what: str
) -> None:
    root, eve = people.root, people.eve
    mine = (await delta.load(root))["table-id"]
    theirs = (await delta.create(root, "theirs", description="who earns what"))["table-id"]
    assert (await delta.commit(root, delta.add("salaries.parquet"), name="theirs")).status == 200
    assert (await root.put(f"{table_path('theirs')}/governance", {"owner": theirs})).status == 200
    await root.grant("user:eve", "read", **on_table("labels"))
    assert root.service is not None
    store = root.service.catalogs["main"].parts.store
    plain, swapped = store.read, False

    async def read(keys: Iterable[Key]) -> Mapping[Key, Cell]:
        """Right after the table was looked at, another one gets its name."""
        nonlocal swapped
        keys = list(keys)
        found = await plain(keys)
        if f"main/delta/{mine}" in keys and not swapped:
            swapped = True
            for name, to in (("labels", "before"), ("theirs", "labels")):
                source, target = ({"namespace": ["db"], "name": one} for one in (name, to))
                moved = {"source": source, "destination": target}
                assert (await root.post("/delta-tables/rename", moved)).status == 204
        return found

    store.read = read  # type: ignore[method-assign]
    path = f"{table_path('labels')}/governance" if what == "governance" else f"{delta.TABLES}/labels{what}"
    answer = await eve.get(path)
    assert swapped
    assert answer.status == 200, answer.body
    assert theirs.encode() not in answer.body
    assert b"salaries" not in answer.body
    if what == "/history":
        assert [one["version"] for one in answer.json()["versions"]] == [0]


async def test_t_right_12_somebody_without_a_name_may_do_nothing(people: House) -> None:
    PEOPLE["nobody"] = Principal(None)
    try:
        nobody = Person(people.root.client, people.settings, name="nobody")
        await people.root.grant("everyone", "manage", on="account")
        assert (await nobody.get(table_path())).refusal == NO_TABLE
        assert (await nobody.create("new")).status == 404
        assert (await nobody.get("/namespaces")).json()["namespaces"] == []
        assert (await nobody.post("/transactions")).refusal == FORBIDDEN
    finally:
        del PEOPLE["nobody"]


# --- places -----------------------------------------------------------------------------------------------------------


async def test_t_path_1_no_spelling_leads_out_of_the_warehouse(people: House) -> None:
    root = people.root
    for location in outside(root.root):
        assert (await root.create("new", location=location)).status == 400, location
        assert (await root.commit([{"action": "set-location", "location": location}])).status == 400, location
        assert (
            await root.post("/namespaces", {"namespace": ["n"], "properties": {"location": location}})
        ).status == 400


async def test_t_path_2_links_out_of_the_warehouse_lead_nowhere(people: House, tmp_path: Path) -> None:
    root = people.root
    warehouse, private = root.path_of(f"{root.root}/x").parent, tmp_path / "private"
    private.mkdir()
    loaded = await root.load()
    (private / "stolen.metadata.json").write_text(json.dumps({**loaded["metadata"], "table-uuid": new_key()}))
    (warehouse / "link").symlink_to(private)
    (warehouse / "file.metadata.json").symlink_to(private / "stolen.metadata.json")
    for name in ("link/stolen.metadata.json", "file.metadata.json"):
        body = {"name": "stolen", "metadata-location": f"{root.root}/{name}"}
        answer = await root.post("/namespaces/db/register", body)
        assert answer.status == 400 and "symbolic link" in answer.error["message"], answer.body
    before = sorted(private.iterdir())
    for stage in (True, False):
        made = await root.create("new", location=f"{root.root}/link/new", **{"stage-create": stage})
        assert made.status == 400, made.body
    assert sorted(private.iterdir()) == before
    assert people.root.service is not None
    blobs = people.root.service.catalogs["main"].parts.blobs
    assert not [one for one in await blobs.list("") if one.name.startswith(("link", "file"))]


async def test_t_path_3_only_who_manages_the_warehouse_chooses_a_place(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())
    folder = (await root.load("secret", "hidden"))["metadata"]["location"]
    for place in (folder, f"{folder}/data", folder.rpartition("/")[0], f"{root.root}/free"):
        move = {"action": "set-location", "location": place}
        for answer in (
            await eve.create("new", location=place),
            await eve.create("new", location=place, **{"stage-create": True}),
            await eve.create("new", properties={"write.data.path": place}),
            await eve.commit([move]),
            await eve.post(table_path("new"), creation(updates=[move])),
            await eve.commit([set_properties(**{"write.object-storage.path": place})]),
            await eve.post("/namespaces/db/properties", {"updates": {"location": place}}),
            await eve.post("/namespaces", {"namespace": ["db", "n"], "properties": {"location": place}}),
            await eve.post(delta.TABLES, {"name": "d", "schema": delta.SCHEMA, "location": place}),
        ):
            assert answer.refusal == FORBIDDEN, (place, answer.body)
    assert (await root.create("new", location=f"{root.root}/free")).status == 200


async def test_t_path_4_only_who_manages_the_warehouse_registers_files(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())
    location = (await root.load("secret", "hidden"))["metadata-location"]
    await root.delete(table_path("secret", "hidden"))
    for path in ("register", "register-view"):
        body = {"name": "mine", "metadata-location": location}
        assert (await eve.post(f"/namespaces/db/{path}", body)).refusal == FORBIDDEN
    body = {"location": location.partition("/metadata/")[0]}
    assert (await eve.post(f"{delta.TABLES}/mine/import", body)).refusal == FORBIDDEN


async def test_t_path_6_a_table_refers_to_its_own_files(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage", **on_namespace())
    elsewhere = (await root.load("secret", "hidden"))["metadata"]["location"]
    own = (await root.load())["metadata"]["location"]

    def appended(manifest_list: str) -> list[Json]:
        [added, ref] = append(1)
        return [{**added, "snapshot": {**added["snapshot"], "manifest-list": manifest_list}}, ref]

    statistics = {"snapshot-id": 1, "statistics-path": f"{elsewhere}/x.puffin", "file-size-in-bytes": 1}
    about = {**statistics, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    assert (await eve.commit(appended(f"{elsewhere}/metadata/snap.avro"))).refusal == FORBIDDEN
    assert (await eve.commit(appended(f"{own}/../snap.avro"))).status == 400
    assert (await eve.commit(appended("s3://other/snap.avro"))).status == 400
    assert (await eve.commit(appended(f"{own}/metadata/snap.avro"))).status == 200
    assert (await eve.commit([{"action": "set-statistics", "statistics": about}])).refusal == FORBIDDEN
    for path in (f"{elsewhere}/a.parquet", "../other/a.parquet", "a/%2e%2e/%2e%2e/b.parquet", "/etc/passwd"):
        assert (await delta.commit(eve, delta.add(path))).status in (400, 403), path
    assert (await delta.commit(eve, delta.add("a.parquet"))).status == 200


# --- forgery and traces -----------------------------------------------------------------------------------------------


async def test_t_forge_1_who_it_was_is_said_by_the_server(people: House) -> None:
    eve, root = people.eve, people.root
    await root.grant("user:eve", "create", **on_namespace())
    forged = {"properties": {"lakepact.principal": "root"}}
    assert (await eve.post("/transactions", forged)).status == 400
    tx = (await eve.post("/transactions")).json()["transaction-id"]
    assert (await eve.at(f"main@{tx}").commit([set_properties(a="b")])).status == 200
    source = {"source": {"principal": "root", "kind": "pipeline"}}
    assert (await eve.post(f"/transactions/{tx}/commit", source)).status == 200
    assert root.service is not None
    record = await root.service.catalogs["main"].parts.store.lookup(tx)
    assert record is not None and record.answer is not None
    assert record.answer["source"]["principal"] == "eve"


async def test_t_forge_2_properties_of_lakepact_are_its_own(people: House) -> None:
    for name in ("lakepact.owner", "LAKEPACT.x"):
        assert (await people.root.commit([set_properties(**{name: "x"})])).status == 400
        assert (await people.root.post("/namespaces/db/properties", {"updates": {name: "x"}})).status == 400


async def test_t_audit_1_what_was_denied_is_in_the_trail(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "read", **on_table())
    await eve.commit([set_properties(a="b")])
    await eve.delete(table_path("secret", "hidden"))
    await root.commit([set_properties(a="b")])
    assert root.service is not None
    await root.service.trail.flush()
    folder = root.path_of(f"{root.root}/_catalog/audit")
    entries = [json.loads(line) for file in sorted(folder.rglob("*.jsonl")) for line in file.read_text().splitlines()]
    told = [(one["principal"], one["operation"], one["outcome"], one["tables"]) for one in entries]
    assert ("eve", "updateTable", "denied", ["db.t"]) in told
    assert ("eve", "dropTable", "denied", ["hidden.secret"]) in told
    assert ("root", "updateTable", "applied", ["db.t"]) in told
    assert ("root", "addGrant", "applied", ["db.t"]) in told
    assert all(one["transaction-id"] and one["account"] == "default" for one in entries)


async def test_t_audit_2_the_trail_is_no_place_for_tables(people: House) -> None:
    for folder in ("audit", "events"):
        place = f"{people.root.root}/_catalog/{folder}/x"
        assert (await people.root.create("new", location=place)).status == 400
        registered = {"name": "new", "metadata-location": f"{place}/1.metadata.json"}
        assert (await people.root.post("/namespaces/db/register", registered)).status == 400
        assert (await people.root.commit([set_properties(**{"write.data.path": place})])).status == 400


# --- accidents and excess ---------------------------------------------------------------------------------------------


async def test_t_drop_1_a_protected_table_stays(people: House) -> None:
    root = people.root
    drops: list[tuple[str, Callable[[Person], Awaitable[Answer]]]] = [
        ("t", lambda person: person.delete(table_path())),
        ("t", lambda person: person.delete(f"{table_path()}?purgeRequested=true")),
        ("t", lambda person: person.post(f"{table_path()}/unregister")),
        ("v", lambda person: person.delete(view_path())),
        ("labels", lambda person: person.delete(f"{delta.TABLES}/labels")),
    ]
    for name, drop in drops:
        assert (await root.put(f"{table_path(name)}/governance", {"protected": True})).status == 200
        prefix = (await root.post("/transactions")).json()["prefix"]
        for person in (root, root.at(prefix)):
            answer = await drop(person)
            assert answer.refusal == (409, "ProtectedException"), (name, answer.body)
            assert "--unprotect" in answer.error["message"]
    # Protection that comes while a drop is staged counts too.
    begun = (await root.post("/transactions")).json()
    assert (await root.at(begun["prefix"]).delete(table_path("u"))).status == 204
    assert (await root.put(f"{table_path('u')}/governance", {"protected": True})).status == 200
    assert (await root.post(f"/transactions/{begun['transaction-id']}/commit")).status == 409
    assert (await root.put(f"{table_path('u')}/governance", {"protected": False})).status == 200
    assert (await root.delete(table_path("u"))).status == 204


async def test_t_limit_1_what_people_write_is_bounded(people: House, monkeypatch: pytest.MonkeyPatch) -> None:
    root = people.root
    for body in (
        {"description": "x" * 20_001},
        {"owner": "x" * 301},
        {"tags": {str(number): "x" for number in range(101)}},
        {"tags": {"x": "y" * 600}},
        {"more": "x"},
    ):
        assert (await root.put(f"{table_path()}/governance", body)).status == 400
    assert (await root.grant("user:" + "x" * 400, "read", **on_table())).status == 400
    monkeypatch.setattr("lakepact.catalog.grants._MOST_IN_A_CELL", 2)
    statuses = [(await root.grant(f"user:{number}", "read", **on_table())).status for number in range(3)]
    assert statuses == [200, 200, 400]


# --- the web page -----------------------------------------------------------------------------------------------------


async def test_t_ui_7_pages_show_nobody_more_than_the_api_does(people: House) -> None:
    await people.root.grant("user:ann", "read", **on_table())
    begun = (await people.root.post("/transactions")).json()["transaction-id"]
    pages = (
        "/ui",
        "/ui/catalog/main",
        "/ui/catalog/main/hidden",
        "/ui/catalog/main/hidden/secret",
        "/ui/catalog/main/hidden/secret/timeline",
        "/ui/catalog/main/hidden/secret/lineage",
        "/ui/search?q=secret",
        "/ui/transactions/main",
        f"/ui/transactions/main/{begun}",
        "/ui/pipelines/main",
        "/ui/mirrors/main",
    )
    for person in (people.ann, people.eve, people.mallory):
        for page in pages:
            answer = await person.client.send("GET", page, headers={"X-Test-User": person.name})
            assert answer.status in (200, 403, 404), page
            shown = answer.body.decode()
            # What they have written into the address themselves may stand there.
            for word in ("secret", "main/hidden", begun):
                assert word in page or word not in shown, (person.name, page)
            if "hidden" in page or begun in page:
                assert answer.status in (403, 404), (person.name, page)
    form = {"X-Test-User": "ann", "Content-Type": "application/x-www-form-urlencoded"}
    for step in ("abort", "renew"):
        path = f"/ui/transactions/main/{begun}/{step}"
        assert (await people.ann.client.send("POST", path, headers=form)).status in (403, 404)
    assert (await people.root.get(f"/transactions/{begun}")).json()["state"] == "open"


# --- the list itself --------------------------------------------------------------------------------------------------


def test_every_line_of_the_threat_model_has_a_test_and_every_such_test_a_line() -> None:
    _, _, text = (ROOT / "SECURITY.md").read_text().partition("\n## What is defended")
    defended, _, _ = text.partition("\n## What is not defended")
    lines = re.findall(r"^- \*\*T-([A-Z]+)-(\d+)\*\*", defended, re.MULTILINE)
    # No threat without a number, and none that is left out or there twice.
    assert len(lines) == len(re.findall(r"^[-*] ", defended, re.MULTILINE)) > 50
    areas = {area for area, _ in lines}
    assert areas >= {"TENANT", "RIGHT", "AUTH", "VEND", "UI", "PATH", "FORGE", "AUDIT", "LIMIT"}
    for area in areas:
        numbers = [int(number) for found, number in lines if found == area]
        assert numbers == list(range(1, len(numbers) + 1)), area
    tested = {
        (area.upper(), number)
        for file in (ROOT / "tests").rglob("test_*.py")
        for area, number in re.findall(r"^(?:async )?def test_t_([a-z]+)_(\d+)_\w+\(", file.read_text(), re.MULTILINE)
    }
    assert set(lines) == tested
