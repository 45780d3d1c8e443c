"""What a run tells of itself: what it knows, and nothing about what it did not come to."""

from __future__ import annotations

from typing import Any

from lakepact import pipelines as dp
from lakepact.pipelines.reports import Report
from lakepact.pipelines.results import CheckResult, Figures, StageResult, Status


def shop() -> Report:
    with dp.Pipeline("shop", namespace="shop") as pipeline:

        @dp.temporary_view
        def new_orders() -> Any:
            return dp.read("raw.orders")

        @dp.table
        @dp.expect("positive", "amount > 0")
        def facts(new_orders: Any) -> Any: ...

        @dp.table
        @dp.expect("adds up", "total > 0")
        def sums(facts: Any) -> Any: ...

    return Report("shop", "r-1", pipeline.graph(), 1, samples=True)


def test_a_run_that_failed_names_the_checks_it_did_not_come_to_and_claims_nothing_about_what_it_read() -> None:
    report = shop()
    report.on_event("new_orders", "done", StageResult("new_orders", None, "view", 0.1, Figures()))
    report.on_event("shop.facts", "begun", None)
    report.on_event("shop.facts", "failed", None)
    unmet = CheckResult("shop.facts", "positive", "condition", Status.FAILED, "fail", 5, 2, 0.0, "2 rows")
    told = report.document("failed", [unmet], None, ValueError("no"), samples=True)
    assert "inputs" not in told
    assert [(one["table"], one["name"], one["status"]) for one in told["checks"]] == [
        ("shop.facts", "positive", "failed"),
        ("shop.sums", "adds up", "not-run"),
    ]
    view, facts, sums = told["stages"]
    assert (view["state"], facts["state"], sums["state"]) == ("done", "failed", "waiting")
    assert "rows" not in view, "a view has none, which is not the same as none at all"


def test_a_run_that_did_all_of_its_work_says_what_it_read() -> None:
    told = shop().document("committed", [], [], None, samples=True)
    assert told["inputs"] == []
