"""Transactions on the web page: what each waits for, what moved together, and who may end one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakepact.kernel.identity import uuid7
from lakepact.kernel.model import Committed, State, Transaction, Write
from tests.wire.uis import guarded, look, submit
from tests.wire.world import Wire, append, change, new_key, set_properties


async def begun(wire: Wire, **properties: str) -> str:
    answer = await wire.post("/transactions", {"properties": properties})
    assert answer.status == 200, answer.body
    return str(answer.json()["transaction-id"])


async def staged(wire: Wire, transaction_id: str, table: str, snapshot_id: int) -> None:
    wire.base = f"/v1/main@{transaction_id}"
    assert (await wire.commit(append(snapshot_id), name=table)).status == 200
    wire.base = "/v1/main"


async def tables(wire: Wire, *names: str) -> None:
    await wire.namespace()
    for name in names:
        await wire.table(name)


def at(transaction_id: str, step: str = "") -> str:
    return f"/ui/transactions/main/{transaction_id}" + (f"/{step}" if step else "")


async def test_the_list_says_what_each_one_waits_for(anywhere: Wire) -> None:
    wire = anywhere
    await tables(wire, "a", "b")
    idle, prepared = await begun(wire), await begun(wire)
    await staged(wire, prepared, "a", 1)
    assert (await wire.post(f"/transactions/{prepared}/prepare")).status == 200
    stale = await begun(wire)
    await staged(wire, stale, "b", 2)
    assert (await wire.commit(append(3), name="b")).status == 200
    page = await look(wire, "/ui/transactions/main")
    rows = page.text.split("Ended", 1)[0]
    assert rows.count("It holds nothing") == 2 and "none yet" in rows
    assert "Until then it holds its tables" in rows
    assert "will conflict" in rows and "db.b has moved since" in rows
    shown = await look(wire, at(stale))
    assert "Its commit would be refused" in shown.text and "moved" in shown.text
    assert "Its commit would be refused" not in (await look(wire, at(idle))).text
    assert (await wire.post(f"/transactions/{prepared}/abort")).status == 200


async def test_who_wants_what_another_one_holds_is_told_whom_it_waits_for(wire: Wire) -> None:
    await tables(wire, "a")
    holder, other = await begun(wire), await begun(wire)
    for one, number in ((holder, 1), (other, 2)):
        await staged(wire, one, "a", number)
    assert (await wire.post(f"/transactions/{holder}/prepare")).status == 200
    page = await look(wire, "/ui/transactions/main")
    assert "held by" in page.text
    held_by = [href for href, _ in page.links if href == at(holder)]
    assert len(held_by) >= 2


async def test_a_commit_is_shown_as_the_set_of_tables_that_moved_together(anywhere: Wire) -> None:
    wire = anywhere
    await tables(wire, "a", "b", "c")
    key = new_key()
    changes = [change(name, [set_properties(x="1")]) for name in ("a", "b", "c")]
    assert (await wire.commit_all(*changes, key=key)).status == 204
    page = await look(wire, at(key))
    together = page.text.split("Moved together", 1)[1].split("About it", 1)[0]
    assert all(f"db.{name}" in together for name in ("a", "b", "c"))
    assert "3 changes, at one instant" in page.text and not any(form.method == "post" for form in page.forms)
    listed = await look(wire, "/ui/transactions/main?state=committed")
    assert at(key) in {href for href, _ in listed.links}


async def test_a_state_that_there_is_not_is_refused_in_words(wire: Wire) -> None:
    page = await look(wire, "/ui/transactions/main?state=zzz", 400)
    assert "zzz" in page.text and "aborted, committed, failed" in page.text
    assert "there is no page at /ui/transactions" in (await look(wire, "/ui/transactions", 404)).text


async def test_a_refused_commit_says_what_it_expected_and_what_it_found(anywhere: Wire) -> None:
    wire = anywhere
    await tables(wire, "a", "b")
    key = new_key()
    late = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 4711}]
    answer = await wire.commit_all(change("a", [set_properties(x="1")], late), change("b", []), key=key)
    assert answer.status == 409
    page = await look(wire, at(key))
    for word in ("refused", "nothing of it was applied", "db.a", "assert-ref-snapshot-id of main", "4711", "409"):
        assert word in page.text, word
    assert at(key) in {href for href, _ in (await look(wire, "/ui/transactions/main?state=failed")).links}


async def test_a_refused_transaction_leads_to_the_commit_that_was_faster(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await tables(wire, "a", "b")
        late, faster, after, keyed = await begun(wire), new_key(), new_key(), new_key()
        await staged(wire, late, "a", 1)
        assert (await wire.commit(append(2), name="a", key=faster)).status == 200
        assert (await wire.post(f"/transactions/{late}/commit", {})).status == 409
        required = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
        changes = [change("a", [set_properties(x="1")], required), change("b", [set_properties(x="1")])]
        assert (await wire.commit_all(*changes, key=keyed)).status == 409
        assert (await wire.commit([set_properties(x="2")], name="a", key=after)).status == 200
    async with Wire.opened(tmp_path) as again:
        for refused in (late, keyed):
            page = await look(again, at(refused))
            assert "db.a" in page.text.split("What did not hold", 1)[1].split("The answer", 1)[0]
            assert [href for href, _ in page.links if href in (at(faster), at(after))] == [at(faster)]


async def test_the_ended_ones_are_shown_in_pages_the_newest_first(anywhere: Wire) -> None:
    wire = anywhere
    await tables(wire, "a")
    made = []
    for number in range(60):
        made.append(new_key())
        assert (await wire.commit([set_properties(x=str(number))], name="a", key=made[-1])).status == 200
    seen: list[str] = []
    path = "/ui/transactions/main?state=committed"
    while path:
        page = await look(wire, path)
        seen += [href.rpartition("/")[2] for href, _ in page.links if href.startswith("/ui/transactions/main/")]
        path = next((href for href, text in page.links if text == "Next page →"), "")
    assert seen[:60] == sorted(made, reverse=True)
    assert len(seen) == 62


async def test_what_nobody_has_asked_for_is_in_no_list(wire: Wire) -> None:
    await tables(wire, "a")
    assert wire.service is not None
    store, new_id = wire.service.catalogs["main"].parts.store, wire.service.catalogs["main"].new_id
    # What a backup reads in, and what an open transaction makes the catalog remember.
    await store.begin(new_id(), ttl_s=60, properties={"purpose": "backup"})
    backup = (await store.transactions([State.OPEN])).transactions[0].id
    await store.abort(backup)
    transaction_id = await begun(wire)
    wire.base = f"/v1/main@{transaction_id}"
    await wire.table("made")
    wire.base = "/v1/main"
    assert (await wire.post(f"/transactions/{transaction_id}/commit", {})).status == 200
    for path in ("/ui/transactions/main", "/ui"):
        page = await look(wire, path)
        assert "noteLocation" not in page.text and backup not in {href.rpartition("/")[2] for href, _ in page.links}
    assert "db.made" in page.text


# --- forms; those of a session are in test_ui_login.py ---


async def test_a_transaction_is_renewed_and_aborted_by_form(anywhere: Wire) -> None:
    wire = anywhere
    transaction_id = await begun(wire)
    page = await look(wire, at(transaction_id))
    assert [one.action for one in page.forms if one.method == "post"] == [at(transaction_id, "renew")]
    # Abort asks first, on a page of its own.
    assert at(transaction_id, "abort") in [one.action for one in page.forms if one.method == "get"]
    question = await look(wire, at(transaction_id, "abort"))
    assert "cannot be undone" in question.text and question.link("Keep it") == at(transaction_id)
    assert [one.action for one in question.forms if one.method == "post"] == [at(transaction_id, "abort")]
    assert (await wire.get(f"/transactions/{transaction_id}")).json()["state"] == "open"
    before = (await wire.get(f"/transactions/{transaction_id}")).json()["expires-at"]
    answer = await submit(wire, at(transaction_id, "renew"), {"seconds": "21600"})
    assert (answer.status, answer.header("location")) == (303, at(transaction_id))
    assert (await wire.get(f"/transactions/{transaction_id}")).json()["expires-at"] > before
    assert (await submit(wire, at(transaction_id, "abort"), {})).status == 303
    page = await look(wire, at(transaction_id))
    assert "aborted" in page.text and not any(one.method == "post" for one in page.forms)
    assert "cannot be aborted any more" in (await look(wire, at(transaction_id, "abort"))).text
    again = await submit(wire, at(transaction_id, "renew"), {"seconds": "600"})
    assert again.status == 400, again.body
    guarded(again)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://elsewhere.example", "host": "lake.example"},
        {"origin": "null", "host": "lake.example"},
    ],
)
async def test_t_ui_3_a_form_of_another_site_changes_nothing(headers: dict[str, str], wire: Wire) -> None:
    transaction_id = await begun(wire)
    answer = await submit(wire, at(transaction_id, "abort"), {}, **headers)
    assert answer.status == 403, answer.body
    assert (await wire.get(f"/transactions/{transaction_id}")).json()["state"] == "open"


@pytest.mark.parametrize("seconds", ["", "-1", "0", "1e3", "99999999999", "٣"])
async def test_a_renewal_says_for_how_long(seconds: str, wire: Wire) -> None:
    transaction_id = await begun(wire)
    answer = await submit(wire, at(transaction_id, "renew"), {"seconds": seconds})
    assert answer.status == 400, answer.body


async def test_newest_are_shown_after_a_burst_and_a_quiet_time(wire: Wire) -> None:
    """A store lists the oldest first, and more commits than a page reads must not hide the newest."""
    await tables(wire, "a")
    assert wire.service is not None
    catalog = wire.service.catalogs["main"]
    store, now_ms = catalog.parts.store, catalog.parts.clock.now_ms()
    key = catalog.parts.keys.state("burst")
    begin_ms, count = now_ms - 1_500_000, 2_300
    ids = [uuid7(begin_ms + number * 400, number) for number in range(count)]
    for number, one in enumerate(ids):
        answer = {"operation": "burst", "warehouse": "main", "result": {}, "source": {"kind": "rest"}}
        writes = (Write(key, number, {"value": {"n": number}}),)
        assert isinstance(await store.commit(Transaction(one, "", writes, answer=answer)), Committed)
    seen: list[str] = []
    path = "/ui/transactions/main?state=committed"
    for _ in range(3):
        page = await look(wire, path)
        seen += [href.rpartition("/")[2] for href, _ in page.links if href.startswith("/ui/transactions/main/")]
        path = page.link("Next page →")
    burst = [one for one in seen if one in set(ids)]
    assert burst == sorted(ids, reverse=True)[: len(burst)] and len(burst) >= 140
    assert ids[-1] in {href.rpartition("/")[2] for href, _ in (await look(wire, "/ui")).links}
