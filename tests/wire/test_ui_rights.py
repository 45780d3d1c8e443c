"""Pages for those who may read all of a warehouse, or nothing: of their own account only. Those who may read a part of
one are in test_ui_partial.py."""

from __future__ import annotations

from pathlib import Path

from tests.support.asgi_client import Answer
from tests.wire.overlays import begin
from tests.wire.people import Person, house
from tests.wire.uis import guarded
from tests.wire.world import new_key, set_properties

PAGES = ("/ui/catalog/main", "/ui/catalog/main/hidden/secret", "/ui/transactions/main", "/ui/pipelines/main", "/ui")


async def look(person: Person, path: str) -> Answer:
    return await person.client.send("GET", path, headers={"X-Test-User": person.name})


async def test_who_may_read_the_warehouse_sees_all_of_it_and_who_may_read_nothing_has_no_pages(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("hidden")
        await people.root.table("secret", "hidden")
        assert (await people.root.grant("user:bob", "read")).status == 200
        for page in (*PAGES, "/ui/search?q=secret", "/ui/server", "/ui/mirrors/main"):
            assert (await look(people.root, page)).status == 200
            assert (await look(people.bob, page)).status == 200, page
            refused = await look(people.eve, page)
            assert refused.status == 403 and b"secret" not in refused.body, page


async def test_warehouses_of_other_accounts_are_not_there(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        for page in PAGES[:-1]:
            assert (await look(people.mallory, page)).status == 404
        home = await look(people.mallory, "/ui")
        assert home.status == 200 and b"/ui/catalog/other" in home.body and b"/ui/catalog/main" not in home.body
        assert b"/ui/catalog/other" not in (await look(people.root, "/ui")).body


async def test_a_transaction_is_ended_by_its_owner_or_by_who_manages_the_warehouse(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        for name in ("ann", "bob"):
            assert (await people.root.grant(f"user:{name}", "write")).status == 200
        tx = await begin(people.ann)
        page = f"/ui/transactions/main/{tx.id}"
        for person, status in ((people.ann, 200), (people.bob, 403), (people.root, 200)):
            answer = await look(person, page)
            assert answer.status == status and (b"/abort" in answer.body) is (status == 200), person.name
        assert tx.id.encode() not in (await look(people.bob, "/ui/transactions/main")).body
        headers = {"X-Test-User": "bob", "content-type": "application/x-www-form-urlencoded"}
        assert (await people.bob.client.send("POST", f"{page}/abort", headers=headers)).status == 403
        headers["X-Test-User"] = "ann"
        assert (await people.ann.client.send("POST", f"{page}/abort", headers=headers)).status == 303
        assert "Aborted by ann" in guarded(await look(people.root, page)).text
        ended = await begin(people.ann)
        assert (await people.root.post(f"/transactions/{ended.id}/abort")).status == 200
        assert "Aborted by root" in guarded(await look(people.ann, f"/ui/transactions/main/{ended.id}")).text
        # What is committed is in the tables that everybody here may read.
        key = new_key()
        assert (await people.root.post("/namespaces", {"namespace": ["more"]}, key)).status == 200
        assert (await look(people.bob, f"/ui/transactions/main/{key}")).status == 200


async def test_the_way_to_another_warehouse_is_shown_to_those_who_may_see_something_there(tmp_path: Path) -> None:
    annex = {"annex": {"url": f"file://{tmp_path}/annex"}}
    async with house(tmp_path, warehouses=annex) as people:
        assert (await people.root.grant("user:bob", "read")).status == 200
        for page in ("/ui", "/ui/catalog/main", "/ui/account", "/ui/catalog/main/nothing"):
            assert b"/ui/catalog/annex" in (await look(people.root, page)).body, page
            assert b"annex" not in (await look(people.bob, page)).body, page
        assert (await people.root.at("annex").grant("user:bob", "read")).status == 200
        assert b"/ui/catalog/annex" in (await look(people.bob, "/ui")).body
        # Who may see something in the other one alone is led there from everywhere.
        assert (await people.root.at("annex").grant("user:eve", "read")).status == 200
        account = (await look(people.eve, "/ui/account")).body
        assert b"/ui/catalog/annex" in account and b"/ui/catalog/main" not in account


async def test_transactions_say_whose_they_are(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace("db")
        await people.root.table("t", "db")
        for name in ("ann", "bob"):
            assert (await people.root.grant(f"user:{name}", "write")).status == 200
        assert (await people.bob.commit([set_properties(a="b")])).status == 200
        tx = await begin(people.ann)
        under_way, ended = (await look(people.root, "/ui/transactions/main")).body.split(b">Ended<", 1)
        assert b">Who<" in under_way and b"<bdi>ann</bdi>" in under_way
        assert b">Who<" in ended and b"<bdi>bob</bdi>" in ended
        assert b"<bdi>ann</bdi>" in (await look(people.root, f"/ui/transactions/main/{tx.id}")).body


async def test_a_run_is_reported_by_whoever_ran_it(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        for name in ("ann", "bob"):
            assert (await people.root.grant(f"user:{name}", "create")).status == 200
        tx = await begin(people.ann)
        report = {"pipeline": "shop", "run-id": "r", "state": "failed", "stages": []}
        assert (await people.bob.put(f"/transactions/{tx.id}/report", report)).status == 403
        assert (await people.ann.put(f"/transactions/{tx.id}/report", report)).status == 204
        assert b"shop" in (await look(people.bob, "/ui/pipelines/main")).body
