"""Expectations are SQL where they can be, and figures have one meaning."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact import pipelines as dp
from lakepact.pipelines.expectations import Condition, References, Rows, Unique, not_null, verdict
from lakepact.pipelines.results import Status, quality, source_of


def test_null_is_not_true() -> None:
    check = Condition("positive", "amount > 0")
    assert check.violated == "NOT coalesce((amount > 0), false)"
    assert check.counted == "count_if(NOT coalesce((amount > 0), false))"
    assert not_null(["id", "address.city"]) == "`id` IS NOT NULL AND `address`.`city` IS NOT NULL"


def test_references_are_joined_by_every_pair_of_columns() -> None:
    check = References("r", ("a", "b"), "t", ("x", "y"))
    assert check.joined("own", "other") == "own.`a` = other.`x` AND own.`b` = other.`y`"


@pytest.mark.parametrize(
    ("severity", "tolerate", "violations", "status"),
    [
        ("fail", 0.0, 0, Status.PASSED),
        ("fail", 0.0, 1, Status.FAILED),
        ("fail", 0.01, 1, Status.PASSED),
        ("fail", 0.01, 2, Status.FAILED),
        ("warn", 0.0, 1, Status.WARNED),
        ("warn", 0.01, 1, Status.PASSED),
        ("drop", None, 100, Status.DROPPED),
        ("drop", 0.01, 1, Status.DROPPED),
        ("drop", 0.01, 2, Status.FAILED),
        ("drop", None, 0, Status.PASSED),
    ],
)
def test_severity_and_tolerance_decide(severity: Any, tolerate: float | None, violations: int, status: Status) -> None:
    check = Condition("c", "x > 0", severity, tolerate)
    result = verdict(check, "a.t", rows=100, violations=violations, sample=['{"x":-1}'])
    assert result.status is status
    assert result.holds is (status is not Status.FAILED)
    assert bool(result.sample) is bool(violations)


def test_messages_say_how_many_and_what() -> None:
    told = verdict(Condition("c", "x > 0", "fail", 0.01), "a.t", rows=100, violations=2).message
    assert told == "2 of 100 rows (2.00%) do not meet x > 0, and 1.00% is tolerated"
    assert "repeat the values of another in id" in verdict(Unique("u", ("id",)), "t", rows=9, violations=1).message
    referring = References("r", ("a",), "b.t", ("a",))
    assert "refer to nothing in b.t" in verdict(referring, "t", rows=9, violations=1).message


@pytest.mark.parametrize(
    ("rows", "off", "told"), [(0, 1, "0 rows, and 1 to 10 were expected"), (5, 0, ""), (12, 2, "12 rows")]
)
def test_a_number_of_rows_has_bounds(rows: int, off: int, told: str) -> None:
    check = Rows("n", 1, 10)
    assert check.off_by(rows) == off
    result = verdict(check, "t", rows=rows, violations=check.off_by(rows))
    assert result.holds is (off == 0)
    assert told in result.message


def test_decorators_work_above_and_below_and_keep_their_order() -> None:
    with dp.Pipeline("order", namespace="a") as pipeline:

        @dp.expect("first", "1 = 1")
        @dp.table
        @dp.expect_or_drop("second", "1 = 1")
        @dp.expect_unique("id", name="third")
        def orders() -> Any: ...

        @dp.check("orders", name="last")
        def right(orders: Any) -> bool:
            return True

    step = pipeline.graph().steps["a.orders"]
    assert [check.name for check in step.dataset.checks] == ["first", "second", "third", "last"]
    assert orders.__name__ == "orders"


def test_a_table_of_sql_takes_its_expectations_as_a_list() -> None:
    with dp.Pipeline("sql") as pipeline:
        dp.table(
            name="a.t",
            sql="SELECT 1 AS id",
            expectations=[dp.expect_all_or_fail({"a": "id > 0", "b": "id < 9"}), dp.expect_rows(between=(1, 1))],
        )
    assert [check.name for check in pipeline.graph().steps["a.t"].dataset.checks] == ["a", "b", "number of rows"]


def test_checks_between_tables_wait_and_their_tables_are_part_of_the_graph() -> None:
    with dp.Pipeline("cross", namespace="a") as pipeline:

        @dp.table
        @dp.expect_not_null("id")
        @dp.expect_references("customer", "customers", "id")
        @dp.expect_references("shop", "raw.shops")
        def orders() -> Any: ...

        @dp.table
        def customers() -> Any: ...

        @dp.check("orders")
        def as_many(orders: Any, customers: Any) -> bool:
            return True

    graph = pipeline.graph()
    step = graph.steps["a.orders"]
    assert [check.name for check in step.local_checks] == ["id not null"]
    assert [check.name for check in step.cross_checks] == ["customer in customers", "shop in raw.shops", "as many"]
    assert [check.table for check in step.cross_checks if isinstance(check, References)] == ["a.customers", "raw.shops"]
    assert graph.externals == ("raw.shops",)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: dp.expect("x", " "), "no condition"),
        (lambda: dp.expect_or_fail("x", "1 = 1", tolerate=2), "from 0 to 1"),
        (lambda: dp.expect_unique(), "name of a column"),
        (lambda: dp.expect_unique("id", severity="drop"), "expect_or_drop"),
        (lambda: dp.expect_rows(), "needs a bound"),
        (lambda: dp.expect_references(["a", "b"], "t", "c"), "2 columns cannot refer to 1"),
    ],
)
def test_an_expectation_that_makes_no_sense_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(dp.InvalidPipeline, match=why):
        wrong()


def test_a_receipt_has_figures_and_no_rows() -> None:
    failed = verdict(Condition("c", "x > 0", "fail"), "a.t", rows=2, violations=1, sample=['{"secret":1}'])
    passed = verdict(Condition("c", "x > 0", "fail"), "a.t", rows=2, violations=0)
    assert quality(()) == "not-checked"
    assert quality((passed,)) == "passed"
    assert quality((passed, failed)) == "failed"
    source = source_of("p", "r", (failed,), (), ("a.t",))
    assert "secret" not in str(source)
    assert source["kind"] == "pipeline"


def test_a_failure_shows_rows() -> None:
    failed = verdict(Condition("c", "x > 0", "fail"), "a.t", rows=2, violations=1, sample=['{"x":-1}'])
    told = str(dp.CheckFailed([failed]))
    assert told.splitlines() == [
        "an expectation does not hold, and nothing of the run was published:",
        "  a.t: c: 1 of 2 rows (50.00%) do not meet x > 0",
        '    {"x":-1}',
    ]
