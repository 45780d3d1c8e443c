"""Runs of pipelines: what they report is kept once, and shown; and the lineage that follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakepact.server.ui.told import edges_of
from tests.wire.uis import look
from tests.wire.world import Json, Wire

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
    transaction_id = (await wire.post("/transactions", {"properties": properties})).json()["transaction-id"]
    if end:
        assert (await wire.post(f"/transactions/{transaction_id}/{end}", {})).status == 200
    answer = await put(wire, transaction_id, report)
    assert answer.status == 204, answer.body
    return str(transaction_id)


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
