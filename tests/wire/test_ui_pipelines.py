"""Runs of pipelines: what they report is kept once, and shown; and the lineage that follows from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakepact.server.ui.told import edges_of
from tests.support.pages import Html
from tests.wire.overlays import Overlaid, begin
from tests.wire.people import House, house, on_namespace
from tests.wire.uis import guarded, look
from tests.wire.world import Json, Wire, set_properties, table_path

REPORT: Json = {
    "pipeline": "shop",
    "run-id": "monday",
    "state": "committed",
    "attempt": 2,
    "seconds": 61.5,
    "stages": [
        {"name": "clean", "target": None, "state": "done", "seconds": 0.2, "reads": ["db.raw"]},
        {
            "name": "db.facts",
            "target": "db.facts",
            "mode": "append",
            "state": "done",
            "seconds": 42.0,
            "rows": 1200,
            "files": 3,
            "bytes": 4096,
            "reads": ["clean"],
        },
        {"name": "db.sums", "target": "db.sums", "state": "done", "seconds": 7.0, "reads": ["db.facts"]},
    ],
    "checks": [
        {"table": "db.facts", "name": "positive", "status": "passed", "rows": 1200, "violations": 0},
        {
            "table": "db.facts",
            "name": "known",
            "status": "warned",
            "rows": 1200,
            "violations": 2,
            "message": "2 rows are of nobody",
            "sample": ['{"id": 1, "who": "<b>x</b>"}', '{"id": 2}'],
        },
    ],
    "inputs": [{"table": "db.raw", "snapshot-id": "99", "used-by": ["clean"]}],
    "error": None,
}


async def run(wire: Wire, report: Json, *, end: str = "commit") -> str:
    properties = {"pipeline": report["pipeline"], "run-id": report["run-id"]}
    tx = await begin(wire, properties=properties)
    transaction_id = tx.id
    if end == "commit":
        await execute(tx, report)
    if end:
        assert (await wire.post(f"/transactions/{transaction_id}/{end}", {})).status == 200
    answer = await put(wire, transaction_id, report)
    assert answer.status == 204, answer.body
    return str(transaction_id)


async def execute(tx: Overlaid, report: Json) -> None:
    """Read and write the tables that the report names, as far as they exist."""
    stages = [one for one in report.get("stages", ()) if isinstance(one, dict)]
    for name in {str(one) for stage in stages for one in stage.get("reads", ())}:
        await tx.get(table_path(name.rpartition(".")[2], name.rpartition(".")[0] or "db"))
    for name in (str(stage["target"]) for stage in stages if stage.get("target")):
        namespace, _, table = name.rpartition(".")
        body = {"requirements": [], "updates": [set_properties(run=tx.id)]}
        assert (await tx.post(table_path(table, namespace or "db"), body)).status in (200, 404)


async def put(wire: Wire, transaction_id: str, report: Any) -> Any:
    return await wire.client.send("PUT", f"/v1/main/transactions/{transaction_id}/report", json=report)


async def test_a_run_is_shown_with_its_stages_checks_and_graph(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    for name in ("raw", "facts", "sums"):
        await wire.table(name)
    transaction_id = await run(wire, REPORT)
    listed = await look(wire, "/ui/pipelines/main")
    assert "monday" in listed.text and "committed" in listed.text and "1 min 1 s" in listed.text
    page = await look(wire, listed.link("monday"))
    for word in (
        "shop",
        "monday",
        "1,200",
        "42.0 s",
        "passed",
        "positive",
        "2 rows are of nobody",
        '{"id": 1, "who": "<b>x</b>"}',
        "2 sample rows",
        "db.raw",
        "99",
        "Attempt 2",
    ):
        assert word in page.text, word
    graph = {href for href, _ in page.links}
    assert {"/ui/catalog/main/db/facts", "/ui/catalog/main/db/raw", f"/ui/transactions/main/{transaction_id}"} <= graph
    assert "monday" in (await look(wire, "/ui/pipelines/main?pipeline=shop")).text
    assert "No runs" in (await look(wire, "/ui/pipelines/main?pipeline=other")).text


async def test_lineage_can_be_walked_in_both_directions(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    for name in ("raw", "facts", "sums"):
        await wire.table(name)
    await run(wire, REPORT)
    page = await look(wire, "/ui/catalog/main/db/raw/lineage")
    assert "db.sums" in page.text
    page = await look(
        wire, next(href for href, text in page.links if text.startswith("db.facts") and "lineage" in href)
    )
    assert {"/ui/catalog/main/db/raw/lineage", "/ui/catalog/main/db/sums/lineage"} <= {href for href, _ in page.links}


async def test_a_run_that_failed_says_why_and_one_that_runs_is_running(wire: Wire) -> None:
    failed = {
        **REPORT,
        "run-id": "tuesday",
        "state": "failed",
        "error": {"type": "CheckFailed", "message": "it does not hold\n  <i>row</i>"},
        "stages": [{"name": "db.facts", "target": "db.facts", "state": "failed", "seconds": 3.0, "reads": []}],
        "checks": [
            {"table": "db.facts", "name": "positive", "status": "failed", "rows": 5, "violations": 5, "sample": ["{}"]}
        ],
    }
    await run(wire, failed, end="abort")
    running = (await wire.post("/transactions", {"properties": {"pipeline": "shop", "run-id": "now"}})).json()
    silent = (await wire.post("/transactions", {"properties": {"pipeline": "shop", "run-id": "gone"}})).json()
    assert (await wire.post(f"/transactions/{silent['transaction-id']}/abort")).status == 200
    listed = await look(wire, "/ui/pipelines/main")
    assert all(word in listed.text for word in ("failed", "running", "aborted"))
    page = await look(wire, listed.link("tuesday"))
    assert "published nothing" in page.text and "<i>row</i>" in page.text and "5 of 5 rows do not meet it" in page.text
    assert "It is running" in (await look(wire, listed.link("now"))).text
    assert running["transaction-id"] in listed.link("now")
    assert "without a report" in (await look(wire, listed.link("gone"))).text


async def test_a_run_that_left_no_report_is_told_by_its_commit(wire: Wire) -> None:
    begun = (await wire.post("/transactions", {"properties": {"pipeline": "shop", "run-id": "old"}})).json()
    source = {
        "kind": "pipeline",
        "pipeline": "shop",
        "run-id": "old",
        "stages": ["db.facts"],
        "checks": [],
        "inputs": [],
    }
    path = f"/transactions/{begun['transaction-id']}/commit"
    assert (await wire.post(path, {"source": source})).status == 200
    page = await look(wire, f"/ui/pipelines/main/{begun['transaction-id']}")
    assert "db.facts" in page.text and "committed" in page.text


async def test_a_report_is_written_once_and_only_of_a_transaction_that_is_here(anywhere: Wire) -> None:
    wire = anywhere
    transaction_id = await run(wire, REPORT)
    assert (await put(wire, transaction_id, REPORT)).status == 204
    assert (await put(wire, transaction_id, {**REPORT, "state": "failed"})).status == 409
    assert (await put(wire, "019b76da-a800-7000-8000-0123456789ab", REPORT)).status == 404
    wrong: list[Any] = [{}, [], {**REPORT, "pipeline": ""}, {**REPORT, "stages": {}}, {**REPORT, "state": "x" * 300}]
    for one in wrong:
        assert (await put(wire, transaction_id, one)).status == 400, one
    assert (await put(wire, transaction_id, {**REPORT, "more": "x" * (1 << 20)})).status == 400


async def test_a_report_full_of_nonsense_is_still_a_page(wire: Wire) -> None:
    nonsense: Json = {
        "pipeline": "<b>",
        "run-id": "\u202e",
        "state": "odd",
        "seconds": "long",
        "stages": [1, {"name": 3}, {"name": "a", "reads": ["a", "b", 7]}, {"name": "b", "reads": ["a"], "rows": "x"}],
        "checks": [None, {"status": [], "violations": "two", "sample": [1, "x"]}],
        "inputs": ["x", {"table": 7}, {"table": "a.b", "used-by": [{}]}],
        "error": "text",
    }
    transaction_id = await run(wire, nonsense)
    await look(wire, f"/ui/pipelines/main/{transaction_id}")
    await look(wire, "/ui/pipelines/main")


async def test_runs_of_many_days_are_found_the_newest_first_in_pages(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        made = [await run(wire, {**REPORT, "run-id": f"r{number}", "stages": []}) for number in range(60)]
        first = await look(wire, "/ui/pipelines/main")
        second = await look(wire, first.link("Next page →"))
        links = [one for page in (first, second) for one in page.links]
        runs = [href.rpartition("/")[2] for href, text in links if text[:1] == "r" and text[1:].isdecimal()]
        assert runs == sorted(made, reverse=True)


@pytest.mark.parametrize(
    ("stages", "edges"),
    [
        ([{"name": "t", "target": "t", "reads": ["a"]}], [("a", "t")]),
        (
            [{"name": "v", "target": None, "reads": ["a", "b"]}, {"name": "t", "target": "t", "reads": ["v"]}],
            [("a", "t"), ("b", "t")],
        ),
        ([{"name": "v", "target": None, "reads": ["w"]}, {"name": "w", "target": None, "reads": ["v"]}], []),
        ([{"name": "t", "target": "t", "reads": ["t"]}], []),
        ([], []),
    ],
)
def test_views_inside_of_a_run_are_seen_through(stages: list[Json], edges: list[tuple[str, str]]) -> None:
    assert edges_of({"stages": stages}) == edges


async def test_a_run_that_failed_does_not_claim_to_have_read_nothing(wire: Wire) -> None:
    await wire.namespace()
    stages: list[Json] = [
        {"name": "new_orders", "target": None, "state": "done", "seconds": 0.1, "reads": ["db.raw"]}
        | {"rows": 0, "files": 0, "bytes": 0},
        {"name": "db.facts", "target": "db.facts", "state": "failed", "seconds": 1.0, "reads": ["new_orders"]},
        {"name": "db.sums", "target": "db.sums", "state": "waiting", "reads": ["db.facts"]},
    ]
    unmet = {"table": "db.facts", "name": "positive", "status": "failed", "rows": 5, "violations": 2}
    left = {"table": "db.sums", "name": "adds up", "status": "not-run"}
    failed = {"pipeline": "shop", "run-id": "r", "state": "failed", "stages": stages, "checks": [left, unmet]}
    reports: list[Json] = [failed, {**failed, "inputs": []}]
    for told in reports:
        page = await look(wire, f"/ui/pipelines/main/{await run(wire, told, end='abort')}")
        read = page.text.split("What it has read", 1)[1]
        assert "Not recorded" in read and "Nothing but what it made itself" not in read
        checks = page.text.split("Checks", 1)[1]
        assert checks.index("positive") < checks.index("not run") < checks.index("adds up")
        view = page.text.split("Stages", 2)[2].split("new_orders", 1)[1].split("db.facts", 1)[0]
        assert "view" in view and "0 B" not in view and view.count("–") == 3


async def test_a_run_that_is_under_way_says_that_nothing_is_known_yet(wire: Wire) -> None:
    properties = {"pipeline": "shop", "run-id": "r"}
    identity = (await wire.post("/transactions", {"properties": properties})).json()["transaction-id"]
    page = await look(wire, f"/ui/pipelines/main/{identity}")
    assert page.text.count("Not known before it ends") == 2
    assert "has checked nothing" not in page.text and "it ended before" not in page.text


# --- what the transaction's record does not support ---


async def seen_by_root(people: House, path: str) -> Html:
    answer = await people.root.client.send("GET", path, headers={"X-Test-User": "root"})
    assert answer.status == 200, answer.body
    return guarded(answer)


async def test_report_of_an_aborted_transaction_is_not_shown_as_committed(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    for name in ("raw", "facts", "sums"):
        await wire.table(name)
    transaction_id = await run(wire, REPORT, end="abort")
    for path in ("/ui/pipelines/main", f"/ui/pipelines/main/{transaction_id}"):
        page = await look(wire, path)
        assert "aborted" in page.text and "committed" not in page.text, path
    for name in ("raw", "facts", "sums"):
        assert "No lineage known" in (await look(wire, f"/ui/catalog/main/db/{name}/lineage")).text


async def test_committed_run_has_only_the_tables_of_its_record(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    for name in ("raw", "facts", "sums", "other"):
        await wire.table(name)
    tx = await begin(wire, properties={"pipeline": "shop", "run-id": "monday"})
    await tx.load("raw")
    await tx.commit([set_properties(a="b")], name="facts")
    assert (await tx.do("commit")).status == 200
    claimed = {**REPORT, "stages": [*REPORT["stages"], {"name": "db.other", "target": "db.other", "reads": ["db.raw"]}]}
    assert (await put(wire, tx.id, claimed)).status == 204
    page = await look(wire, "/ui/catalog/main/db/raw/lineage")
    assert "db.facts" in page.text and "db.sums" not in page.text and "db.other" not in page.text
    assert "No lineage known" in (await look(wire, "/ui/catalog/main/db/other/lineage")).text
    graph = {href for href, _ in (await look(wire, f"/ui/pipelines/main/{tx.id}")).links}
    assert "/ui/catalog/main/db/facts" in graph and "/ui/catalog/main/db/other" not in graph


async def test_report_that_came_before_the_commit_follows_the_record(wire: Wire) -> None:
    await wire.namespace()
    for name in ("raw", "facts", "sums"):
        await wire.table(name)
    transaction_id = await run(wire, REPORT, end="")
    assert "running" in (await look(wire, f"/ui/pipelines/main/{transaction_id}")).text
    assert (await wire.post(f"/transactions/{transaction_id}/commit", {})).status == 200
    page = await look(wire, f"/ui/pipelines/main/{transaction_id}")
    assert "committed" in page.text and "/ui/catalog/main/db/facts" not in {href for href, _ in page.links}
    assert (await put(wire, transaction_id, REPORT)).status == 204, "the same report again"
    assert (await put(wire, transaction_id, {**REPORT, "run-id": "tuesday"})).status == 409


async def begun_beside_a_hidden_table(people: House) -> str:
    """Let bob, who sees `pub.t` but not `secret.t`, begin the transaction of a run. Return its id."""
    for namespace in ("pub", "secret"):
        await people.root.namespace(namespace)
        await people.root.table("t", namespace)
    await people.root.grant("user:bob", "write", **on_namespace("pub"))
    begun = await people.bob.post("/transactions", {"properties": {"pipeline": "p", "run-id": "r"}})
    id: str = begun.json()["transaction-id"]
    return id


@pytest.mark.parametrize("end", ["commit", "abort"])
async def test_report_shows_no_table_that_its_author_cannot_see(tmp_path: Path, end: str) -> None:
    async with house(tmp_path) as people:
        id = await begun_beside_a_hidden_table(people)
        inside = people.bob.at(f"main@{id}")
        assert (await inside.get(table_path("t", "secret"))).status in (403, 404)
        changed = {"requirements": [], "updates": [set_properties(a="b")]}
        assert (await inside.post(table_path("t", "pub"), changed)).status == 200
        inputs = [
            {"table": "secret.t", "table-uuid": (await people.root.load("t", "secret"))["metadata"]["table-uuid"]}
        ]
        source = {"source": {"kind": "pipeline", "pipeline": "p", "run-id": "r", "inputs": inputs}}
        assert (await people.bob.post(f"/transactions/{id}/{end}", source if end == "commit" else None)).status == 200
        claimed = {"pipeline": "p", "run-id": "r", "state": "committed", "inputs": inputs} | {
            "stages": [{"name": "pub.t", "target": "pub.t", "reads": ["secret.t"], "state": "done"}]
        }
        assert (await people.bob.put(f"/transactions/{id}/report", claimed)).status == 204
        page = await seen_by_root(people, f"/ui/pipelines/main/{id}")
        assert "pub.t" in page.text and "secret.t" not in page.text
        for namespace in ("pub", "secret"):
            assert "No lineage" in (await seen_by_root(people, f"/ui/catalog/main/{namespace}/t/lineage")).text


async def test_facts_in_a_report_are_the_servers_and_not_its_authors(wire: Wire) -> None:
    await wire.namespace()
    for name in ("raw", "facts", "sums"):
        await wire.table(name)
    forged = {"state": "committed", "decided-ms": 1, "written": ["db.facts"], "read": ["db.raw"], "visible": ["db.raw"]}
    transaction_id = await run(wire, {**REPORT, "format": 2, "transaction": forged}, end="abort")
    assert "committed" not in (await look(wire, f"/ui/pipelines/main/{transaction_id}")).text
    assert "No lineage known" in (await look(wire, "/ui/catalog/main/db/facts/lineage")).text


@pytest.mark.parametrize("end", ["commit", "abort", ""])
async def test_own_report_does_not_show_which_hidden_tables_exist(tmp_path: Path, end: str) -> None:
    pages: list[list[str]] = []
    for name in ("secret.t", "secret.missing"):
        async with house(tmp_path / name) as people:
            id = await begun_beside_a_hidden_table(people)
            changed = {"requirements": [], "updates": [set_properties(a="b")]}
            assert (await people.bob.at(f"main@{id}").post(table_path("t", "pub"), changed)).status == 200
            if end:
                assert (await people.bob.post(f"/transactions/{id}/{end}")).status == 200
            assert (await people.bob.put(f"/transactions/{id}/report", naming(name))).status == 204
            pages.append([])
            for path in (f"/ui/pipelines/main/{id}", "/ui/pipelines/main", "/ui/catalog/main/pub/t/lineage"):
                answer = await people.bob.client.send("GET", path, headers={"X-Test-User": "bob"})
                assert answer.status == 200, answer.body
                body = answer.body.decode()
                assert name not in body
                body = re.sub(r"<code>[^<]*</code>", "the short id", body.replace(id, "the run"))
                pages[-1].append(re.sub(r"\d+ \w+ ago|just now|\d[\d.:-]*", "…", body))
    assert pages[0] == pages[1]


def naming(name: str) -> Json:
    """A report that names this table wherever a report can name one."""
    return {
        "pipeline": "p",
        "run-id": "r",
        "state": "failed",
        "stages": [
            {"name": name, "target": None, "reads": [name], "state": "done"},
            {"name": "pub.t", "target": "pub.t", "reads": [name], "state": "done"},
            {"name": "direct", "target": name, "reads": ["pub.t"], "state": "failed"},
        ],
        "checks": [{"table": name, "name": "c", "status": "failed"}],
        "inputs": [{"table": name, "used-by": [name, "pub.t"]}],
    }
