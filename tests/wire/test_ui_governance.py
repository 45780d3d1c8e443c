"""Owner, description, tags and protection on the web page: everybody who may read a table sees them, and who manages it
changes them there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.showcase import HOSTILE
from tests.wire.people import Person, house, on_namespace
from tests.wire.uis import guarded, look, submit
from tests.wire.world import Json, Wire, table_path, view_path

PAGE = "/ui/catalog/main/db/t"
FORM = f"{PAGE}/govern"


async def said(wire: Wire, path: str = table_path()) -> Json:
    found: Json = (await wire.get(f"{path}/governance")).json()
    return found


async def say(wire: Wire | Person, body: Json) -> None:
    headers = {"X-Test-User": wire.name} if isinstance(wire, Person) else {}
    answer = await wire.client.send("PUT", f"{wire.base}{table_path()}/governance", json=body, headers=headers)
    assert answer.status == 200, answer.body


async def test_a_tables_page_says_what_people_say_about_it(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    await wire.table()
    assert "Nobody has said anything about it yet" in (await look(wire, PAGE)).text
    body = {"owner": "finance", "description": "One row\nan order", "tags": {"pii": "no"}, "protected": True}
    await say(wire, body)
    page = await look(wire, PAGE)
    for word in ("finance", "One row", "an order", "pii=no", "neither dropped nor replaced", "protected"):
        assert word in page.text, word
    assert page.link("Change") == FORM


async def test_it_is_changed_by_a_form_and_what_nobody_touched_stays(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    await wire.table()
    await wire.view()
    hidden = "turned\u202e\tround"
    await say(wire, {"owner": hidden})
    page = await look(wire, FORM)
    [form] = [one for one in page.forms if one.method == "post"]
    assert form.action == FORM
    sent = {
        **form.fields,
        "description": "One row\r\nan order",
        "tags": "pii=no\r\n\r\n team = a=b \r\n",
        "protected": "yes",
    }
    answer = await submit(wire, FORM, sent)
    assert answer.status == 303 and answer.header("location") == PAGE
    assert await said(wire) == {
        "owner": hidden,
        "description": "One row\nan order",
        "tags": {"pii": "no", "team": "a=b"},
        "protected": True,
    }
    assert (await wire.delete(table_path())).status == 409
    # And back to nothing.
    [form] = [one for one in (await look(wire, FORM)).forms if one.method == "post"]
    emptied = {**form.fields, "owner": "", "description": " ", "tags": ""}
    emptied.pop("protected", None)
    assert (await submit(wire, FORM, emptied)).status == 303
    assert await said(wire) == {"owner": None, "description": None, "tags": {}, "protected": False}
    [form] = [one for one in (await look(wire, "/ui/catalog/main/db/v/govern")).forms if one.method == "post"]
    assert (await submit(wire, form.action, {**form.fields, "owner": "ada"})).status == 303
    assert (await said(wire, table_path("v")))["owner"] == "ada", view_path()


async def test_a_form_that_was_made_before_somebody_elses_change_overwrites_nothing(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    [form] = [one for one in (await look(wire, FORM)).forms if one.method == "post"]
    await say(wire, {"owner": "ada"})
    answer = await submit(wire, FORM, {**form.fields, "owner": "bob"})
    assert answer.status == 409 and "since this form was made" in guarded(answer).text
    assert (await said(wire))["owner"] == "ada"


@pytest.mark.parametrize("tags", ["=value", "a=1\na=2", "x=" + "y" * 600])
async def test_tags_that_cannot_be_are_refused_and_nothing_changes(tags: str, wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    [form] = [one for one in (await look(wire, FORM)).forms if one.method == "post"]
    answer = await submit(wire, FORM, {**form.fields, "owner": "ada", "tags": tags})
    assert answer.status == 400 and "tag" in guarded(answer).text
    assert (await said(wire))["owner"] is None


@pytest.mark.parametrize("text", HOSTILE)
async def test_t_ui_1_what_people_say_is_shown_as_the_text_it_is(text: str, wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    body = {"owner": text, "description": f"{text}\n</textarea>{text}", "tags": {text: text}}
    await say(wire, body)
    await look(wire, PAGE)
    [form] = [one for one in (await look(wire, FORM)).forms if one.method == "post"]
    # Sent as it came, it changes nothing.
    assert (await submit(wire, FORM, form.fields)).status == 303
    assert await said(wire) == {**body, "protected": False}


async def test_who_may_only_read_sees_it_and_has_no_form(tmp_path: Path) -> None:
    async def page(person: Person, path: str) -> tuple[int, bytes]:
        answer = await person.client.send("GET", path, headers={"X-Test-User": person.name})
        return answer.status, answer.body

    async with house(tmp_path) as people:
        await people.root.namespace("db")
        await people.root.table("t", "db")
        for name, role in (("ann", "manage"), ("bob", "write")):
            granted = await people.root.grant(f"user:{name}", role, **on_namespace())
            assert granted.status == 200, granted.body
        await say(people.root, {"owner": "finance"})
        for person, sees, changes in ((people.bob, True, False), (people.eve, False, False), (people.ann, True, True)):
            status, body = await page(person, PAGE)
            assert (status == 200 and b"finance" in body) is sees, person.name
            assert (FORM.encode() in body) is changes, person.name
            status, body = await page(person, FORM)
            assert (status == 200) is changes and (b"finance" in body) is changes, person.name
            headers = {"X-Test-User": person.name, "content-type": "application/x-www-form-urlencoded"}
            form = urlencode({"seen": "1", "owner": person.name}).encode()
            answer = await person.client.send("POST", FORM, headers=headers, body=form)
            assert (answer.status == 303) is changes, person.name
        loaded: Json = (await people.root.get(f"{table_path()}/governance")).json()
        assert loaded["owner"] == "ann"
