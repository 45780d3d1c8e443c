"""The web page: everything in the catalog can be found and looked at, whatever it is named and however it is."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from lakepact.server.ui.receipts import Documents
from lakepact.settings import Settings
from tests.support.showcase import HOSTILE
from tests.wire.uis import guarded, look, many_tables, table_with_a_past
from tests.wire.world import Wire, append, change, new_key, segment, set_properties, table_path


async def filled(wire: Wire) -> None:
    await wire.namespace("db", owner="ada")
    await wire.namespace("db", "inner")
    await wire.table("t", properties={"color": "blue"})
    await wire.table("u")
    await wire.view()
    assert (await wire.commit(append(11))).status == 200
    assert (
        await wire.commit_all(change("t", [set_properties(a="1")]), change("u", [set_properties(a="2")]))
    ).status == 204


PAGES = [
    "/ui",
    "/ui/server",
    "/ui/search?q=t",
    "/ui/search",
    "/ui/catalog/main",
    "/ui/transactions/main",
    "/ui/transactions/main?state=failed",
    "/ui/pipelines/main",
    "/ui/mirrors/main",
    "/ui/audit/main",
    "/ui/audit/main?principal=eve&outcome=denied",
]
ABOUT_TABLES = [
    "/ui/catalog/main/db",
    "/ui/catalog/main/db%1Finner",
    "/ui/catalog/main/db/t",
    "/ui/catalog/main/db/t/timeline",
    "/ui/catalog/main/db/t/snapshots",
    "/ui/catalog/main/db/t/lineage",
    "/ui/catalog/main/db/v",
]


async def test_every_page_can_be_shown_on_every_store(anywhere: Wire) -> None:
    await filled(anywhere)
    for path in [*PAGES, *ABOUT_TABLES]:
        await look(anywhere, path)


async def test_a_server_without_anything_says_so(anywhere: Wire) -> None:
    for path in PAGES:
        await look(anywhere, path)
    assert "No namespaces yet" in (await look(anywhere, "/ui/catalog/main")).text
    assert "Nothing is under way" in (await look(anywhere, "/ui/transactions/main")).text
    assert "No runs in the last 30 days" in (await look(anywhere, "/ui/pipelines/main")).text
    assert "No mirrors" in (await look(anywhere, "/ui/mirrors/main")).text
    assert "Nothing yet" in (await look(anywhere, "/ui/audit/main")).text
    await anywhere.namespace("db")
    assert "Nothing in here yet" in (await look(anywhere, "/ui/catalog/main/db")).text
    await anywhere.table()
    assert "No snapshots yet" in (await look(anywhere, "/ui/catalog/main/db/t/snapshots")).text
    assert "No lineage known" in (await look(anywhere, "/ui/catalog/main/db/t/lineage")).text


async def test_the_way_down_the_tree_leads_to_every_table(wire: Wire) -> None:
    await filled(wire)
    page = await look(wire, "/ui")
    page = await look(wire, page.link("main"))
    page = await look(wire, page.link("db"))
    assert {"inner", "t", "u", "v"} <= {text for _, text in page.links}
    assert "owner" in page.text and "ada" in page.text
    page = await look(wire, page.link("t"))
    for word in (
        "Iceberg table",
        "Schema",
        "timestamptz",
        "Not partitioned",
        "Not sorted",
        "color",
        "blue",
        "main",
    ):
        assert word in page.text, word
    assert "SELECT 1 AS id" in (await look(wire, "/ui/catalog/main/db/v")).text


async def test_t_ui_2_no_page_needs_a_script_or_anything_from_elsewhere(wire: Wire) -> None:
    """`look` takes every page apart; here the files that pages name are looked at, and what they name in turn."""
    await filled(wire)
    answer = await wire.client.send("GET", "/ui")
    assert b"<script" not in answer.body and b"javascript:" not in answer.body
    style, icon = re.findall(rb'<link[^>]* href="([^"]+)"', answer.body)
    for path in (style, icon):
        found = await wire.client.send("GET", path.decode())
        assert found.status == 200 and "immutable" in (found.header("cache-control") or "")
        assert not re.findall(rb"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", found.body)
    assert (await wire.client.send("GET", "/ui/static/..%2Fsite.py")).status == 404


@pytest.mark.parametrize("name", HOSTILE)
async def test_t_ui_1_a_name_is_shown_as_the_text_it_is(name: str, wire: Wire) -> None:
    await wire.namespace(name)
    await wire.namespace(name, name)
    await wire.table(name, name, properties={name: name})
    assert (
        await wire.post(table_path(name, name), {"requirements": [], "updates": [set_properties(**{name: name})]})
    ).status == 200
    one = segment(name)
    for path in (
        "/ui",
        "/ui/catalog/main",
        f"/ui/catalog/main/{one}",
        f"/ui/catalog/main/{one}%1F{one}",
        f"/ui/catalog/main/{one}/{one}",
        f"/ui/catalog/main/{one}/{one}/timeline",
        f"/ui/catalog/main/{one}/{one}/lineage",
        f"/ui/search?q={one}",
        "/ui/transactions/main",
    ):
        page = await look(wire, path)
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", page.text), path
    page = await look(wire, f"/ui/catalog/main/{one}")
    shown = re.sub("[\u202e\u2066\u2069]", lambda found: f"\\u{ord(found[0]):04x}", name)
    link = page.link(shown)
    assert shown in (await look(wire, link)).text


async def test_what_is_not_there_is_a_page_that_says_so(wire: Wire) -> None:
    await filled(wire)
    for path, status in {
        "/ui/catalog/other": 404,
        "/ui/catalog/main/nowhere": 404,
        "/ui/catalog/main/db/nothing": 404,
        "/ui/catalog/main/db/v/snapshots": 400,
        "/ui/catalog/main/%1F": 404,
        "/ui/transactions/main/not-an-id": 400,
        "/ui/transactions/main/019b76da-a800-7000-8000-0123456789ab": 404,
        "/ui/transactions/main?before=x": 400,
        "/ui/pipelines/main/019b76da-a800-7000-8000-0123456789ab": 404,
        "/ui/pipelines/main?before=x": 400,
        "/ui/search?q=a&warehouse=other": 404,
        "/ui/static/nothing.css": 404,
        "/ui/mirrors/other": 404,
        "/ui/audit/other": 404,
        "/ui/audit/main?outcome=good": 400,
        "/ui/audit/main?before=x": 400,
    }.items():
        page = await look(wire, path, status)
        assert str(status) in page.text, path
    assert (await wire.client.send("GET", "/ui/catalog/main/db/t/elsewhere")).status == 404


async def test_a_browser_is_told_by_a_page_where_a_program_is_told_by_json(tmp_path: Path) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for base in ("", "/catalog"):
        async with Wire.opened(tmp_path, base_path=base) as wire:
            client = wire.client
            for path in ("/", ""):
                led = await client.send("GET", f"{base}{path}" or "/", headers=browser)
                assert (led.status, led.header("location")) == (303, f"{base}/ui"), path
                program = await client.send("GET", f"{base}{path}" or "/")
                assert program.status == 404 and program.json()["error"]["code"] == 404
            for path in ("/ui/", "/ui//", "/ui/catalog/main/"):
                led = await client.send("GET", base + path, headers=browser)
                assert (led.status, led.header("location")) == (303, (base + path).rstrip("/")), path
            page = await look(wire, f"{base}/ui/nope", 404)
            assert "404" in page.text and (f"{base}/ui/catalog/main", "Catalog") in page.links
            answer = await client.send("DELETE", f"{base}/ui/server")
            assert answer.status == 405 and answer.header("allow") == "GET" and "405" in guarded(answer).text
            assert (await look(wire, f"{base}/ui/catalog/%zz", 400)).title.startswith("That cannot be")
            other = await client.send("GET", f"{base}/nope", headers=browser)
            assert other.status == 404 and other.json()["error"]["code"] == 404


@pytest.mark.parametrize("damage", ["gone", "not JSON", "not a table"])
async def test_t_ui_9_a_table_whose_metadata_is_broken_still_has_a_page(damage: str, tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        wire.damaged.add("db.t")
    async with Wire.opened(tmp_path) as wire:
        file = wire.path_of(made["metadata-location"])
        if damage == "gone":
            file.unlink()
        else:
            file.write_text("[" if damage == "not JSON" else '{"format-version": 2}')
        wire.damaged.add("db.t")
        for tab in ("", "/timeline", "/snapshots"):
            page = await look(wire, f"/ui/catalog/main/db/t{tab}")
            assert "cannot be read" in page.text and made["metadata-location"] in page.text
        assert "No lineage known" in (await look(wire, "/ui/catalog/main/db/t/lineage")).text
        assert "t" in {text for _, text in (await look(wire, "/ui/catalog/main/db")).links}


async def test_t_ui_9_figures_that_writers_made_up_do_not_break_a_page(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    odd = {"operation": "append", "total-records": "many", "total-files-size": "-1", "added-records": ""}
    assert (await wire.commit(append(5, summary=odd))).status == 200
    for tab in ("", "/timeline", "/snapshots"):
        await look(wire, f"/ui/catalog/main/db/t{tab}")


async def test_a_list_and_the_timeline_count_versions_alike(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    for number in range(3):
        assert (await wire.commit([set_properties(a=str(number))])).status == 200
    assert "v3 current" in (await look(wire, "/ui/catalog/main/db/t/timeline")).text
    for path in ("/ui/catalog/main/db", "/ui/search?q=db.t"):
        assert "Iceberg table 3 " in (await look(wire, path)).text, path


async def test_the_id_of_a_transaction_or_run_leads_straight_to_its_page(wire: Wire) -> None:
    await filled(wire)
    key, run_id = new_key(), new_key()
    assert (await wire.commit([set_properties(a="7")], key=key)).status == 200
    begun = (await wire.post("/transactions", {"properties": {"pipeline": "shop", "run-id": run_id}})).json()
    identity = begun["transaction-id"]
    assert (await wire.post(f"/transactions/{identity}/commit", {})).status == 200
    report = {"pipeline": "shop", "run-id": run_id, "state": "committed", "stages": []}
    put = await wire.client.send("PUT", f"/v1/main/transactions/{identity}/report", json=report)
    assert put.status == 204
    for asked, place in (
        (key, f"/ui/transactions/main/{key}"),
        (f" {key.upper()} ", f"/ui/transactions/main/{key}"),
        (identity, f"/ui/pipelines/main/{identity}"),
        (run_id, f"/ui/pipelines/main/{identity}"),
    ):
        answer = await wire.client.send("GET", f"/ui/search?q={segment(asked)}")
        assert (answer.status, answer.header("location")) == (303, place), asked
    assert "Nothing found" in (await look(wire, f"/ui/search?q={new_key()}")).text


async def test_ten_thousand_tables_are_shown_in_pages_and_found(tmp_path: Path) -> None:
    settings = Settings.load(data=str(tmp_path / "data"), log_level="error")
    (tmp_path / "data").mkdir()
    await many_tables(settings, "db", 10_000)
    async with Wire.opened(tmp_path) as wire:
        seen: set[str] = set()
        path, pages = "/ui/catalog/main/db", 0
        while path:
            answer = await wire.client.send("GET", path)
            assert len(answer.body) < 200_000
            page = guarded(answer) if pages % 20 == 0 else None
            seen |= set(re.findall(r"<bdi>(t\d{5})</bdi></a></td>", answer.body.decode()))
            following = re.search(r'<a href="([^"]+)" rel="next"', answer.body.decode())
            path, pages = (following[1].replace("&amp;", "&") if following else ""), pages + 1
            assert page is None or page.title.startswith("db")
        assert seen == {f"t{number:05}" for number in range(10_000)}
        assert pages == 100
        found = await look(wire, "/ui/search?q=T07777")
        assert "db.t07777" in {text for _, text in found.links}
        many = await look(wire, "/ui/search?q=db.t0")
        assert sum(text.startswith("db.t0") for _, text in many.links) >= 100
        assert any(text == "Next page →" for _, text in many.links)


async def test_the_timeline_of_five_thousand_versions_has_every_one_once(wire: Wire) -> None:
    await wire.namespace()
    await table_with_a_past(wire, 5_000, receipts=range(4_941, 5_001))
    seen: list[int] = []
    path = "/ui/catalog/main/db/old/timeline"
    while path:
        answer = await wire.client.send("GET", path)
        assert answer.status == 200
        seen += [int(one) for one in re.findall(r'class="version">v(\d+)<', answer.body.decode())]
        following = re.search(r'<a href="([^"]+)" rel="next"', answer.body.decode())
        path = following[1].replace("&amp;", "&") if following else ""
    assert seen == list(range(5_000, 0, -1))
    first = await look(wire, "/ui/catalog/main/db/old/timeline")
    assert first.text.count("Spark 4.1.1") == 50
    overview = await look(wire, "/ui/catalog/main/db/old")
    for word in ("60,000,000", "5,000", "Size over time", "ordered_at_day", "bucket[16]", "end-of-year", "audit"):
        assert word in overview.text, word


async def test_the_timeline_goes_on_in_older_metadata_where_the_log_ends(wire: Wire) -> None:
    await wire.namespace()
    await table_with_a_past(wire, 250, kept=50)
    seen: list[int] = []
    path = "/ui/catalog/main/db/old/timeline"
    while path:
        page = await look(wire, path)
        seen += [int(one) for one in re.findall(r"\bv(\d+)\b", page.text.split("Lineage", 1)[1])]
        path = next((href for href, text in page.links if text == "Next page →"), "")
    assert seen == list(range(250, 0, -1))


async def test_a_timeline_does_not_begin_in_another_table(wire: Wire) -> None:
    await filled(wire)
    other = (await wire.load("u"))["metadata-location"]
    for start in (other, "file:///etc/passwd", "s3://elsewhere/x", "x", "../../x"):
        for query in (f"from={segment(start)}", f"in={segment(start)}&from={segment(start)}"):
            page = await look(wire, f"/ui/catalog/main/db/t/timeline?{query}")
            assert "These versions are gone by now" in page.text


async def test_a_version_says_who_made_it_of_what_and_whether_it_was_checked(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await filled(wire)
        begun = (await wire.post("/transactions", {"properties": {"pipeline": "shop", "run-id": "r1"}})).json()
        wire.base = f"/v1/{begun['prefix']}"
        assert (await wire.commit(append(12, sequence=2, parent=11))).status == 200
        wire.base = "/v1/main"
        source = {
            "kind": "pipeline",
            "pipeline": "shop",
            "run-id": "r1",
            "quality": "passed",
            "checks": [{"table": "db.t", "name": "c", "status": "passed"}],
            "inputs": [{"table": "db.u", "snapshot-id": "7", "used-by": ["db.t"]}],
        }
        identity = begun["transaction-id"]
        assert (await wire.post(f"/transactions/{identity}/commit", {"source": source})).status == 200
    # Receipts are written after the answer: once the server has ended, they are there.
    async with Wire.opened(tmp_path) as again:
        page = await look(again, "/ui/catalog/main/db/t/timeline")
        newest, oldest = page.text.split("v3", 1)[1].split("v2", 1)[0], page.text.split("v0", 1)[1]
        told = ("current", "Pipeline", "shop", "run r1", "db.u", "@ 7", "declared, not verified", "Passed", "1 check")
        for word in (*told, identity):
            assert word in newest, word
        assert "External" in oldest and "Unknown (external write)" in oldest and "Not checked" in oldest
        assert "together with 1 other" in page.text
        assert page.link("run r1") == f"/ui/pipelines/main/{identity}"
        # An input that was only declared is no edge.
        assert "No lineage known" in (await look(again, "/ui/catalog/main/db/t/lineage")).text


async def test_a_writers_own_words_are_shown_where_its_versions_and_its_transaction_are(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        begun = (await wire.post("/transactions", {})).json()
        wire.base = f"/v1/{begun['prefix']}"
        assert (await wire.commit(append(12))).status == 200
        wire.base = "/v1/main"
        identity = begun["transaction-id"]
        source = {"pipeline": "nightly", "run": "r-1"}
        assert (await wire.post(f"/transactions/{identity}/commit", {"source": source})).status == 200
    async with Wire.opened(tmp_path) as again:
        for path in ("/ui/catalog/main/db/t/timeline", f"/ui/transactions/main/{identity}"):
            assert "In its words pipeline=nightly, run=r-1" in (await look(again, path)).text, path


async def test_a_version_that_touched_no_row_says_what_it_changed_instead(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        rows = {"operation": "overwrite", "added-records": "26", "deleted-records": "65", "total-records": "26"}
        assert (await wire.commit(append(11, summary=rows))).status == 200
        tag = {"action": "set-snapshot-ref", "ref-name": "eoy", "type": "tag", "snapshot-id": 11}
        assert (await wire.commit([tag])).status == 200
        assert (await wire.commit([set_properties(color="blue")])).status == 200
    async with Wire.opened(tmp_path) as again:
        page = (await look(again, "/ui/catalog/main/db/t/timeline")).text.split("Timeline", 2)[-1]
        properties, tagged, written = (
            page.split(f"v{number}", 1)[1].split(f"v{number - 1}", 1)[0] for number in (3, 2, 1)
        )
        assert "properties" in properties and "property color set" in properties
        assert "tag eoy set to snapshot 11" in tagged
        assert "overwrite" in written and "26 added, 65 removed, 26 in all" in written
        for other in (properties, tagged):
            assert "added" not in other and "overwrite" not in other and "26 in all" in other


async def test_the_page_is_below_the_base_path_and_can_be_switched_off(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, base_path="/catalog") as wire:
        page = await look(wire, "/catalog/ui")
        assert all(href.startswith(("/catalog/", "#")) for href, _ in page.links)
        assert (await wire.client.send("GET", "/ui")).status == 404
    async with Wire.opened(tmp_path, ui=False) as wire:
        assert (await wire.client.send("GET", "/ui")).status == 404


async def test_two_warehouses_are_two_catalogs(tmp_path: Path) -> None:
    other = {"other": {"url": f"file://{tmp_path}/other"}}
    async with Wire.opened(tmp_path, warehouses=other) as wire:
        await wire.namespace()
        await wire.table()
        page = await look(wire, "/ui/catalog/main")
        assert page.link("other") == "/ui/catalog/other"
        assert "No namespaces yet" in (await look(wire, "/ui/catalog/other")).text
        assert "db" not in (await look(wire, "/ui/transactions/other")).text


async def test_what_pages_have_read_takes_a_bounded_amount_of_memory(wire: Wire) -> None:
    catalog = wire.service.catalogs["main"] if wire.service is not None else None
    assert catalog is not None
    text = orjson.dumps({"text": "x" * 1_000})
    names = [f"_catalog/test/{number}.json" for number in range(40)]
    for name in names:
        assert await catalog.parts.blobs.put(name, text)
    documents = Documents(most_bytes=10 * 5 * len(text))
    # More at once than are kept, and some that are not there: each page gets all there is.
    for _ in range(2):
        found = await documents.read(catalog, [*names, "_catalog/test/none.json", names[0]])
        assert list(found) == names
        assert len(documents._known) == 10 and documents._held_bytes == 10 * 5 * len(text)
    # What was asked for last stays.
    await documents.read(catalog, names[-10:-9])
    await documents.read(catalog, names[:9])
    assert ("main", names[-10]) in documents._known
