"""Rights on every way to a table but the straight one: by its id, in a transaction, between the lines of an answer.

One file, so that a new way can be held against all that are known.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from lakepact.server.asgi import OPEN_BODY_BYTES
from lakepact.v1 import transactions_pb2 as pb
from tests.wire import test_delta as delta
from tests.wire.people import House, Person, house, on_namespace, on_table
from tests.wire.test_grpc import change as grpc_change
from tests.wire.test_grpc import successor
from tests.wire.test_grpc_rights import DENIED, Room, _by_id, _opened
from tests.wire.world import (
    SCHEMA,
    Json,
    append,
    change,
    creation,
    new_key,
    set_properties,
    table_path,
    view_path,
)


async def _secret(people: House) -> Json:
    """A table that Eve may not see, as it is, and a namespace of hers."""
    root = people.root
    await root.namespace("hidden")
    await root.namespace("mine")
    await root.table("secret", "hidden")
    await root.grant("user:eve", "create", **on_namespace("mine"))
    return await root.load("secret", "hidden")


async def _begun(person: Person) -> tuple[str, Person]:
    begun = (await person.post("/transactions")).json()["transaction-id"]
    return begun, person.at(f"main@{begun}")


def _added(to: Json, snapshot_id: int = 77) -> list[Json]:
    updates = append(snapshot_id)
    updates[0]["snapshot"]["manifest-list"] = f"{to['metadata']['location']}/metadata/snap-{snapshot_id}.avro"
    return updates


# --- by an id ---


@pytest.mark.parametrize("dropped", [False, True])
async def test_t_right_14_a_commit_that_another_table_shows_is_answered_only_to_who_may_write_that_one(
    tmp_path: Path, dropped: bool
) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        secret = await _secret(people)
        updates = _added(secret)
        await root.post(table_path("secret", "hidden"), {"requirements": [], "updates": updates})
        await eve.post("/namespaces/mine/tables", {"name": "e1", "schema": SCHEMA})
        if dropped:
            await root.delete(table_path("secret", "hidden"))
        uuid = secret["metadata"]["table-uuid"]
        requires = [{"type": "assert-table-uuid", "uuid": uuid}]
        by_uuid = {"requirements": requires, "updates": updates}
        named = {"identifier": {"namespace": ["mine"], "name": "e1"}, **by_uuid}
        staged = creation(updates=[{"action": "assign-uuid", "uuid": uuid}, updates[0]])
        for answer in (
            await eve.post(table_path("e1", "mine"), by_uuid),
            await eve.post("/transactions/commit", {"table-changes": [named]}),
            await eve.post(table_path("e2", "mine"), staged),
        ):
            assert answer.status == 504, "it did happen, so it is not refused"
            assert b"hidden" not in answer.body
        assert (await root.post(table_path("e1", "mine"), by_uuid)).status == 200, (
            "whoever may write it hears where it is"
        )


async def test_t_right_14_nobody_takes_the_uuid_of_another_table_or_of_a_dropped_one(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        uuid = (await _secret(people))["metadata"]["table-uuid"]
        squat = creation(updates=[{"action": "assign-uuid", "uuid": uuid}])
        taken = await eve.post(table_path("zz", "mine"), squat)
        assert taken.status == 409
        assert b"hidden" not in taken.body
        await root.delete(table_path("secret", "hidden"))
        assert (await eve.post(table_path("zz", "mine"), squat)).status == 400
        back = await root.post("/tables/undrop", {"identifier": {"namespace": ["hidden"], "name": "secret"}})
        assert back.status == 200, back.body


async def _other_kind(people: House, kind: str) -> tuple[str, str]:
    """A view or Delta table `db.payroll` that Eve may not see, protected: where it is, and its id."""
    await people.root.namespace()
    if kind == "view":
        path, uuid = view_path("payroll"), (await people.root.view("payroll"))["metadata"]["view-uuid"]
    else:
        path, uuid = f"{delta.TABLES}/payroll", (await delta.create(people.root, "payroll"))["table-id"]
    await _said(people, protected=True, owner="finance")
    return path, uuid


async def _said(people: House, **fields: Any) -> Json:
    answer = await people.root.put("/namespaces/db/tables/payroll/governance", fields)
    assert answer.status == 200, answer.body
    said: Json = answer.json()
    return said


@pytest.mark.parametrize("kind", ["view", "delta"])
async def test_t_right_14_nobody_takes_the_uuid_of_a_view_or_delta_table_nor_what_is_kept_under_it(
    kind: str, tmp_path: Path
) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await _secret(people)
        path, uuid = await _other_kind(people, kind)
        squat = creation(updates=[{"action": "assign-uuid", "uuid": uuid}])
        begun, inside = await _begun(eve)
        for person in (eve, inside):
            taken = await person.post(table_path("zz", "mine"), squat)
            assert taken.status == 409
            assert taken.error["message"].startswith("Table with the same uuid already exists: ")
            assert b"payroll" not in taken.body
        await _said(people, protected=False)
        assert (await root.delete(path)).status == 204
        assert (await eve.post(table_path("zz", "mine"), squat)).status == 400
        assert (await eve.post(f"/transactions/{begun}/abort")).status < 300
        back = await root.post("/tables/undrop", {"identifier": {"namespace": ["db"], "name": "payroll"}})
        assert back.status == 200, back.body
        assert (await _said(people))["owner"] == "finance"


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_t_right_14_a_uuid_that_others_got_after_a_transaction_began_is_not_published_under(
    isolation: str, dropped: bool, tmp_path: Path
) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await root.namespace("mine")
        await root.grant("user:eve", "create", **on_namespace("mine"))
        begun = (await eve.post("/transactions", {"isolation": isolation})).json()["transaction-id"]
        inside = eve.at(f"main@{begun}")
        assert (await inside.get("/namespaces/mine")).status == 200
        path, uuid = await _other_kind(people, "view")
        if dropped:
            await _said(people, protected=False)
            assert (await root.delete(path)).status == 204
        squat = creation(updates=[{"action": "assign-uuid", "uuid": uuid}])
        await inside.post(table_path("zz", "mine"), squat)
        await inside.post("/namespaces/mine/tables", {"name": "fair", "schema": SCHEMA})
        ended = await eve.post(f"/transactions/{begun}/commit")
        assert ended.status == 409
        assert b"payroll" not in ended.body
        assert (await root.get(table_path("zz", "mine"))).status == 404


async def test_a_file_is_not_registered_under_the_uuid_of_another_kind(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root = people.root
        await _secret(people)
        path, uuid = await _other_kind(people, "view")
        other = await root.load("secret", "hidden")
        text = Path(other["metadata-location"].removeprefix("file://")).read_text()
        place = f"{other['metadata']['location']}/metadata/copied.metadata.json"
        copied = text.replace(other["metadata"]["table-uuid"], uuid)
        Path(place.removeprefix("file://")).write_text(copied)
        await root.delete(table_path("secret", "hidden"))
        register = {"name": "zz", "metadata-location": place}
        taken = await root.post("/namespaces/mine/register", register)
        assert taken.status == 409
        assert "View with the same uuid already exists: db.payroll" in taken.error["message"]
        await _said(people, protected=False)
        await root.delete(path)
        kept = await root.post("/namespaces/mine/register", register)
        assert kept.status == 400
        assert "view db.payroll, which was dropped" in kept.error["message"]


async def test_what_was_applied_is_not_refused_because_the_table_has_another_name_by_now(tmp_path: Path) -> None:
    """Whoever is told 404 deletes the files that they have written."""
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await root.namespace()
        await root.table("t")
        await root.grant("user:eve", "write", **on_table("t"))
        table = await root.load("t")
        requires = [{"type": "assert-table-uuid", "uuid": table["metadata"]["table-uuid"]}]
        applied, never = ({"requirements": requires, "updates": _added(table, number)} for number in (7, 8))
        assert (await eve.post(table_path("t"), applied)).status == 200
        source, target = ({"namespace": ["db"], "name": name} for name in ("t", "t2"))
        assert (await root.post("/tables/rename", {"source": source, "destination": target})).status == 204
        assert (await eve.post(table_path("t"), applied)).status == 504
        assert (await eve.post(table_path("t"), never)).status == 404
        await root.grant("user:eve", "read", **on_table("t2"))
        assert (await eve.post(table_path("t2"), applied)).status == 504
        assert (await eve.post(table_path("t2"), never)).status == 403


# --- inside a transaction ---


async def test_t_right_15_a_transaction_neither_depends_on_nor_tells_of_what_its_owner_may_not_see(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await _secret(people)
        written, _ = await _begun(root)
        await root.put(f"/transactions/{written}/state/theirs", {"value": {"x": 1}})
        assert (await root.post(f"/transactions/{written}/commit")).status == 200
        begun, inside = await _begun(eve)
        hidden = {"identifiers": [{"namespace": ["hidden"], "name": "secret"}]}
        assert (await inside.get(table_path("secret", "hidden"))).status == 404
        assert (await inside.get("/namespaces/hidden/tables")).status == 404
        assert (await inside.post("/tables/batch-load", hidden)).status == 404
        for document in ("theirs", "nobodys"):
            assert (await eve.get(f"/transactions/{begun}/state/{document}")).json()["revision"] == 0
        keyed = {"requirements": [], "updates": [set_properties(a="b")]}
        assert (await inside.post(table_path("secret", "hidden"), keyed, new_key())).status == 404
        assert (await eve.get(f"/transactions/{begun}")).json()["changes"] == []
        assert (await inside.post("/namespaces/mine/tables", {"name": "x", "schema": SCHEMA})).status == 200
        await root.post(table_path("secret", "hidden"), {"requirements": [], "updates": [set_properties(a="b")]})
        assert (await eve.post(f"/transactions/{begun}/commit")).status == 200


async def test_a_transaction_depends_on_a_document_that_was_not_there(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _secret(people)
        first, second = [(await _begun(people.eve))[0] for _ in range(2)]
        for begun in (first, second):
            assert (await people.eve.get(f"/transactions/{begun}/state/position")).json()["revision"] == 0
        for begun in (second, first):
            put = await people.eve.put(f"/transactions/{begun}/state/position", {"value": {"by": begun}})
            assert put.status == 200, put.body
            done = await people.eve.post(f"/transactions/{begun}/commit")
            assert done.status == (200 if begun == second else 409), done.body


async def test_a_committed_transaction_is_committed_wherever_its_tables_are_by_now(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await root.namespace()
        await root.grant("user:eve", "write", **on_namespace())
        place = f"{root.root}/a-place-of-its-own"
        await root.post("/namespaces/db/tables", {"name": "placed", "schema": SCHEMA, "location": place})
        await root.table("t")
        begun, inside = await _begun(eve)
        for name in ("placed", "t"):
            changed = {"requirements": [], "updates": [set_properties(a="b")]}
            assert (await inside.post(table_path(name), changed)).status == 200
        assert (await eve.post(f"/transactions/{begun}/commit")).status == 200
        assert (await root.delete(table_path("placed"))).status == 204
        assert (await eve.post(f"/transactions/{begun}/commit")).status == 200
        begun, inside = await _begun(eve)
        assert (await inside.post(table_path("t"), changed | {"updates": [set_properties(a="c")]})).status == 200
        assert (await root.delete(table_path("t"))).status == 204
        assert (await eve.post(f"/transactions/{begun}/commit")).status == 409


async def test_t_right_15_a_transaction_depends_on_what_its_owner_has_looked_at(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await _secret(people)
        await root.grant("user:eve", "read", **on_table("secret", "hidden"))
        for look in ("load", "batch"):
            begun, inside = await _begun(eve)
            if look == "load":
                assert (await inside.get(table_path("secret", "hidden"))).status == 200
            else:
                seen = {"identifiers": [{"namespace": ["hidden"], "name": "secret"}]}
                assert (await inside.post("/tables/batch-load", seen)).status == 200
            created = await inside.post("/namespaces/mine/tables", {"name": f"x-{look}", "schema": SCHEMA})
            assert created.status == 200
            await root.post(table_path("secret", "hidden"), {"requirements": [], "updates": [set_properties(a=look)]})
            assert (await eve.post(f"/transactions/{begun}/commit")).status == 409


async def test_t_right_15_what_was_moved_away_is_out_of_sight_inside_a_transaction_too(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        for name in ("open", "vault"):
            await root.namespace(name)
        for name in ("t", "stays"):
            await root.table(name, "open")
        await root.grant("user:eve", "write", **on_namespace("open"))
        begun, inside = await _begun(eve)
        source, target = ({"namespace": [one], "name": "t"} for one in ("open", "vault"))
        assert (await root.post("/tables/rename", {"source": source, "destination": target})).status == 204
        assert (await inside.get(table_path("t", "open"))).status == 404
        assert (await inside.post("/tables/batch-load", {"identifiers": [source]})).status == 404
        assert (await inside.get(table_path("stays", "open"))).status == 200
        assert (await root.at(f"main@{begun}").get(table_path("t", "open"))).status == 200


async def test_t_right_4_what_needs_manage_is_published_only_by_who_has_it_still(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, ann = people.root, people.ann
        for name in ("vault", "mine"):
            await root.namespace(name)
        await root.table("gone", "vault")
        gone = await root.load("gone", "vault")
        await root.delete(table_path("gone", "vault"))
        await root.grant("user:ann", "manage", **on_namespace("mine"))

        async def staged(method: str, path: str, body: Json) -> tuple[int, int]:
            """How its commit ends after manage was revoked; and, begun again, if it was not."""
            ended = []
            for revoked in (True, False):
                await root.grant("user:ann", "manage")
                begun, inside = await _begun(ann)
                done = await inside.client.send(method, inside.base + path, json=body, **inside._as({}))
                assert done.status < 300, done.body
                if revoked:
                    await root.revoke("user:ann")
                ended.append((await ann.post(f"/transactions/{begun}/commit")).status)
            return ended[0], ended[1]

        register = {"name": "loot", "metadata-location": gone["metadata-location"]}
        assert await staged("POST", "/namespaces/mine/register", register) == (403, 200)
        above = {"name": "above", "schema": SCHEMA, "location": f"{root.root}/elsewhere"}
        assert await staged("POST", "/namespaces/mine/tables", above) == (403, 200)
        moved = {"updates": {"location": f"{root.root}/other-place"}}
        assert await staged("POST", "/namespaces/mine/properties", moved) == (403, 200)
        await root.revoke("user:ann")
        begun, inside = await _begun(ann)
        made = await inside.post("/namespaces/mine/tables", {"name": "own", "schema": SCHEMA})
        assert made.status == 200
        renamed = {
            "source": {"namespace": ["mine"], "name": "own"},
            "destination": {"namespace": ["mine"], "name": "own2"},
        }
        assert (await inside.post("/tables/rename", renamed)).status == 204
        assert (await ann.post(f"/transactions/{begun}/commit")).status == 200, "where the catalog has put it"


# --- between the lines ---


STORES = {"sqlite": "", "memory": "memory://", "file": "file://{}/cells"}


@pytest.mark.parametrize("store", STORES)
async def test_t_right_16_a_page_token_names_nothing_that_may_not_be_seen(store: str, tmp_path: Path) -> None:
    async with house(tmp_path, store=STORES[store].format(tmp_path) or None) as people:
        root, eve = people.root, people.eve
        for name in ("db", "hidden", "mine"):
            await root.namespace(name)
        names = ["a-seen", "b-secret", "c-seen", "d-secret", "e-seen", "f-secret"]
        for name in names:
            await root.table(name)
            if name.endswith("seen"):
                await root.grant("user:eve", "read", **on_table(name))
        for size in (1, 2, 3, 4):
            listed: list[str] = []
            token: str | None = ""
            while token is not None:
                page = await eve.get(f"/namespaces/db/tables?pageToken={quote(token, safe='')}&pageSize={size}")
                assert b"secret" not in page.body
                found = [one["name"] for one in page.json()["identifiers"]]
                assert found, "a page that has nothing is no page"
                listed += found
                token = page.json()["next-page-token"]
            assert listed == ["a-seen", "c-seen", "e-seen"]
        spaces = await eve.get("/namespaces?pageToken=&pageSize=1")
        assert spaces.json() == {"namespaces": [["db"]], "next-page-token": None}


@pytest.mark.parametrize("store", STORES)
async def test_t_right_16_a_page_of_what_was_dropped_goes_on_from_what_may_be_seen(store: str, tmp_path: Path) -> None:
    async with house(tmp_path, store=STORES[store].format(tmp_path) or None) as people:
        root, eve = people.root, people.eve
        for name in ("hidden", "mine"):
            await root.namespace(name)
        await root.grant("user:eve", "manage", **on_namespace("mine"))
        secret = set()
        for number in range(4):
            for namespace in ("hidden", "mine"):
                name = f"{namespace}-{number}"
                await root.table(name, namespace)
                if namespace == "hidden":
                    secret.add((await root.load(name, namespace))["metadata"]["table-uuid"])
                await root.delete(table_path(name, namespace))
        listed: list[str] = []
        token: str | None = ""
        while token is not None:
            page = (await eve.get(f"/dropped?pageToken={quote(token, safe='')}&pageSize=2")).json()
            assert page["dropped"]
            listed += [one["identifier"]["name"] for one in page["dropped"]]
            token = page["next-page-token"]
            assert not any(one in (token or "") for one in secret)
        assert sorted(listed) == [f"mine-{number}" for number in range(4)]


async def test_a_batch_of_tables_has_no_views(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace()
        await people.root.view("v")
        assert (await people.root.get(view_path())).status == 200
        asked = {"identifiers": [{"namespace": ["db"], "name": "v"}]}
        assert (await people.root.post("/tables/batch-load", asked)).status == 404


async def test_t_right_16_a_batch_names_the_first_that_is_missing_or_out_of_sight(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await _secret(people)
        for name in ("secret", "ghost"):
            asked = [{"namespace": ["hidden"], "name": name}, {"namespace": ["mine"], "name": "nope"}]
            answer = await people.eve.post("/tables/batch-load", {"identifiers": asked})
            assert answer.status == 404
            assert answer.json()["error"]["message"] == f"Table does not exist: hidden.{name}"


async def test_t_right_6_a_replay_of_many_tables_needs_the_right_on_each(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await root.namespace()
        for name in ("x1", "x2"):
            await root.table(name)
            await root.grant("user:eve", "write", **on_table(name))
        body = {"table-changes": [change(name, [set_properties(a="1")]) for name in ("x1", "x2")]}
        key = new_key()
        assert (await eve.post("/transactions/commit", body, key)).status == 204
        assert (await eve.post("/transactions/commit", body, key)).status == 204
        await root.revoke("user:eve", **on_table("x2"))
        assert (await eve.post("/transactions/commit", body, key)).status == 404


# --- places ---


async def test_t_vend_4_no_property_and_no_view_puts_files_into_another_table(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await root.namespace()
        victim = (await _secret(people))["metadata"]["location"]
        await root.table("t")
        await root.view("v")
        for name in ("t", "v"):
            await root.grant("user:eve", "write", **on_table(name))
        folder = set_properties(**{"write.folder-storage.path": f"{victim}/data"})
        assert (await eve.post(table_path("t"), {"requirements": [], "updates": [folder]})).status == 403
        metadata = set_properties(**{"write.metadata.path": f"{victim}/metadata"})
        assert (await eve.post(view_path(), {"requirements": [], "updates": [metadata]})).status == 403


async def test_t_path_6_a_prepare_is_held_to_the_places_of_its_tables(tmp_path: Path) -> None:
    async with _opened(tmp_path) as room:
        root = room.root
        victim = (await root.load("secret", "hidden"))["metadata"]["location"]
        a, b = await root.load("a"), await root.load("b")
        for name in ("a", "b"):
            await root.grant("user:eve", "write", **on_table(name))
        elsewhere = set_properties(**{"write.data.path": f"{victim}/data"})
        snapshot = append(5)
        snapshot[0]["snapshot"]["manifest-list"] = f"{victim}/metadata/snap.avro"
        uuid = a["metadata"]["table-uuid"]
        statistics = {
            "snapshot-id": 1,
            "statistics-path": f"{victim}/x.puffin",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
        documents: list[Any] = [
            successor(b, properties={"write.metadata.path": f"{victim}/metadata"}),
            successor(b, statistics=[statistics]),
        ]
        for changes in (
            grpc_change("a", elsewhere),
            grpc_change("a", *snapshot),
            _by_id(uuid, elsewhere),
            _by_id(uuid, *snapshot),
            *(grpc_change("b", metadata_document=json.dumps(one).encode()) for one in documents),
        ):
            assert await _prepared(room, changes) is DENIED
        inside = set_properties(**{"write.data.path": f"{a['metadata']['location']}/data"})
        for changes in (grpc_change("a", inside), _by_id(uuid, inside)):
            assert (await _prepared(room, changes)).transaction.state == pb.TS_PREPARED


async def _prepared(room: Room, *changes: pb.TxChange) -> Any:
    begun = await room.begin("eve")
    answer = await room.prepare("eve", begun, *changes)
    await room.call("eve", "AbortTransaction", pb.AbortTransactionRequest(transaction_id=begun))
    return answer


# --- strangers ---


async def test_t_auth_13_of_a_stranger_little_is_read(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        packed = gzip.compress(b"token=" + b"%41" * 5_000_000)
        assert len(packed) < OPEN_BODY_BYTES
        for path in ("/v1/oauth/tokens", "/ui/login"):
            for body, more in ((packed, {"Content-Encoding": "gzip"}), (b"x" * (OPEN_BODY_BYTES + 1), {})):
                answer = await people.root.client.send("POST", path, body=body, headers={**form, **more})
                assert answer.status == 413, (path, answer.body[:200])
