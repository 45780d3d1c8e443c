"""The audit trail on the web page: for those who manage the warehouse, by its form, in pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from lakepact.catalog.trail import Entry, Outcome
from lakepact.iceberg.requests import Identifier
from tests.support.pages import Html
from tests.wire.people import House, Person, house, on_table
from tests.wire.uis import guarded, look
from tests.wire.world import Wire, new_key, set_properties, table_path

AUDIT = "/ui/audit/main"


@pytest.fixture
def people(tmp_path: Path) -> AbstractAsyncContextManager[House]:
    return _furnished(tmp_path)


@asynccontextmanager
async def _furnished(folder: Path) -> AsyncIterator[House]:
    async with house(folder) as people:
        await people.root.namespace()
        await people.root.table()
        await people.root.grant("user:eve", "read", **on_table())
        yield people


async def see(person: Person, path: str = AUDIT, status: int = 200, **asked: Any) -> Html:
    query = f"?{urlencode(asked)}" if asked else ""
    answer = await person.client.send("GET", path + query, headers={"X-Test-User": person.name})
    assert answer.status == status, (path, answer.status, answer.body[-2_000:])
    return guarded(answer)


async def test_a_line_leads_to_its_table_and_its_transaction(people: House) -> None:
    root, eve = people.root, people.eve
    await root.commit([set_properties(a="b")], key=(key := new_key()))
    await eve.delete(table_path(), headers={"Idempotency-Key": (denied := new_key())})
    page = await see(root)
    assert ("/ui/catalog/main/db/t", "db.t") in page.links
    assert any(href == f"/ui/transactions/main/{key}" for href, _ in page.links)
    assert page.text.index("dropTable") < page.text.index("updateTable") < page.text.index("createNamespace")
    assert "needs the role manage" in page.text
    # What never happened has no page.
    assert not any(denied in href for href, _ in page.links)
    await root.delete(table_path())
    assert ("/ui/catalog/main/db/t", "db.t") not in (await see(root)).links


async def test_the_form_asks_for_lines_and_keeps_what_it_was_asked(people: House) -> None:
    root, eve = people.root, people.eve
    await eve.delete(table_path())
    asked: dict[str, Any] = {"principal": "eve", "operation": "dropTable", "table": "db.t", "before": "2100-01-01"}
    page = await see(root, **asked, outcome="denied")
    assert "dropTable" in page.text and "createTable" not in page.text
    form = next(one for one in page.forms if one.action == AUDIT)
    assert (form.method, form.fields) == ("get", asked)
    assert page.link("All of them") == AUDIT
    assert "None like that" in (await see(root, principal="nobody")).text
    assert "None like that" in (await see(root, before="2020-01-01")).text
    # An empty form asks for everything.
    everything: dict[str, Any] = dict.fromkeys((*asked, "outcome"), "")
    assert "createTable" in (await see(root, **everything)).text


async def test_pages_go_back_in_time_and_keep_the_filters(people: House) -> None:
    root = people.root
    assert root.service is not None
    now_ms = root.service.catalogs["main"].now_ms()
    for number in range(150):
        entry = Entry(now_ms - number, "default", "eve", f"op{number:03}", Outcome.REFUSED, (Identifier(("db",), "t"),))
        root.service.trail.note("main", entry)
    first = await see(root, principal="eve")
    assert "op099" in first.text and "op100" not in first.text
    second = await see(root, first.link("Next page →"))
    assert "op100" in second.text and "op149" in second.text and "op099" not in second.text
    assert "createTable" not in second.text
    assert second.link("← First page") == f"{AUDIT}?principal=eve"
    assert not any(shown == "Next page →" for _, shown in second.links)
    assert next(one for one in second.forms if one.action == AUDIT).fields["before"] == ""


async def test_what_cannot_be_read_is_counted(people: House) -> None:
    root = people.root
    await see(root)
    # Entries of another minute or another day are in another file.
    file = next(root.path_of(f"{root.root}/_catalog/audit").rglob("*.jsonl"))
    file.write_text(file.read_text() + "{\n{\n")
    assert "nobody can read them: 2 lines" in (await see(root)).text


async def test_t_ui_7_the_trail_is_for_those_who_manage_the_warehouse_and_others_have_no_way_to_it(
    people: House,
) -> None:
    root, eve = people.root, people.eve
    for role in (None, "read", "create"):
        if role is not None:
            await root.grant("user:eve", role)
        refused = await see(eve, status=403)
        assert "createTable" not in refused.text
        assert AUDIT not in [href for href, _ in (await see(eve, "/ui/catalog/main")).links]
    await root.grant("user:eve", "manage")
    assert "createTable" in (await see(eve)).text
    assert (AUDIT, "Audit") in (await see(eve, "/ui/catalog/main")).links
    await see(people.bob, status=403)
    await see(people.mallory, status=404)


async def test_it_is_reached_only_in_warehouses_that_one_manages(tmp_path: Path) -> None:
    async with house(tmp_path, warehouses={"annex": {"url": f"file://{tmp_path}/annex"}}) as people:
        await people.root.grant("user:bob", "manage")
        await people.root.at("annex").grant("user:bob", "read")
        page = await see(people.bob)
        assert ("/ui/catalog/annex", "annex") in page.links
        assert "/ui/audit/annex" not in [href for href, _ in page.links]
        assert "/ui/audit/annex" not in [href for href, _ in (await see(people.bob, "/ui/catalog/annex")).links]
        assert ("/ui/audit/annex", "annex") in (await see(people.root)).links


async def test_a_line_is_text_whatever_is_in_it(people: House) -> None:
    root = people.root
    assert root.service is not None
    now_ms = root.service.catalogs["main"].now_ms()
    odd = "<script>alert(1)</script>\u202e" * 30
    for tables in ((), (Identifier((odd,), odd),), (Identifier((), "x"),), (Identifier(("a", ""), "b/c"),) * 90):
        entry = Entry(now_ms, "default", odd, odd, Outcome.UNKNOWN, tables, (), odd, odd, odd, {odd: odd})
        root.service.trail.note("main", entry)
    page = await see(root)
    assert "<script>" in page.text


async def test_a_server_that_asks_nobody_has_the_page_and_no_way_to_it(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        assert "Nothing yet" in (await look(wire, AUDIT)).text
        assert AUDIT not in [href for href, _ in (await look(wire, "/ui/catalog/main")).links]
