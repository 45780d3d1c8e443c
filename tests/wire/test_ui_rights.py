"""Pages show whole warehouses: to those who may read all of one, and of their own account only."""

from __future__ import annotations

from pathlib import Path

from tests.support.asgi_client import Answer
from tests.wire.overlays import begin
from tests.wire.people import Person, house, on_table

PAGES = ("/ui/catalog/main", "/ui/catalog/main/hidden/secret", "/ui/transactions/main", "/ui/pipelines/main", "/ui")


async def look(person: Person, path: str) -> Answer:
    return await person.client.send("GET", path, headers={"X-Test-User": person.name})


async def test_who_may_read_some_tables_only_has_no_pages(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace()
        await people.root.namespace("hidden")
        await people.root.table("t")
        await people.root.table("secret", "hidden")
        assert (await people.root.grant("user:ann", "read", **on_table("t"))).status == 200
        assert (await people.root.grant("user:bob", "read")).status == 200
        for page in (*PAGES, "/ui/search?q=secret"):
            assert (await look(people.root, page)).status == 200
            assert (await look(people.bob, page)).status == 200, page
            for nobody in (people.ann, people.eve):
                refused = await look(nobody, page)
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
        for person, offered in ((people.ann, True), (people.bob, False), (people.root, True)):
            assert (b"/abort" in (await look(person, page)).body) is offered, person.name
