"""Expectations as decorators. They stand above or below the decorator that declares the table, in any number.

@dp.table(name="sales.orders")
@dp.expect_unique("id")
@dp.expect_or_drop("has an amount", "amount IS NOT NULL")
def orders(raw): ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from lakepact.pipelines.context import current_pipeline
from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.expectations import (
    Check,
    Condition,
    Function,
    Over,
    References,
    Rows,
    Severity,
    Unique,
    not_null,
)

F = TypeVar("F", bound=Callable[..., Any])

CHECKS: Final = "__lakepact_checks__"
DECLARED: Final = "__lakepact_declared__"


class Expectation:
    """One or more checks, to stand above a function or in a list: `expectations=[...]`."""

    def __init__(self, *checks: Check) -> None:
        self.checks = checks

    def __call__(self, function: F) -> F:
        declared = getattr(function, DECLARED, None)
        if declared is not None:
            pipeline, name = declared
            pipeline.prepend_checks(name, self.checks)
        else:
            setattr(function, CHECKS, (*self.checks, *getattr(function, CHECKS, ())))
        return function


def expect(
    name: str, condition: str, *, tolerate: float = 0.0, severity: Severity = "warn", over: Over = "added"
) -> Expectation:
    """Rows meet a SQL condition. More wrong rows than the tolerated share are a warning, and the run goes on."""
    return Expectation(_condition(name, condition, severity, _share(tolerate), over))


def expect_or_drop(name: str, condition: str, *, tolerate: float | None = None) -> Expectation:
    """Rows that do not meet the condition are left out. With `tolerate`, more than that share fails the run."""
    return Expectation(_condition(name, condition, "drop", None if tolerate is None else _share(tolerate), "added"))


def expect_or_fail(name: str, condition: str, *, tolerate: float = 0.0, over: Over = "added") -> Expectation:
    """Rows meet the condition, or nothing of the run is published."""
    return Expectation(_condition(name, condition, "fail", _share(tolerate), over))


def expect_all(expectations: Mapping[str, str]) -> Expectation:
    return Expectation(*(_condition(name, one, "warn", 0.0, "added") for name, one in expectations.items()))


def expect_all_or_drop(expectations: Mapping[str, str]) -> Expectation:
    return Expectation(*(_condition(name, one, "drop", None, "added") for name, one in expectations.items()))


def expect_all_or_fail(expectations: Mapping[str, str]) -> Expectation:
    return Expectation(*(_condition(name, one, "fail", 0.0, "added") for name, one in expectations.items()))


def expect_not_null(
    *columns: str, name: str | None = None, tolerate: float = 0.0, severity: Severity = "fail", over: Over = "added"
) -> Expectation:
    """None of these columns is null."""
    condition = not_null(_columns(columns, "expect_not_null"))
    label = name or f"{', '.join(columns)} not null"
    return Expectation(Condition(label, condition, _severity(severity), _share(tolerate), over, "not-null"))


def expect_unique(
    *columns: str, name: str | None = None, tolerate: float = 0.0, severity: Severity = "fail", over: Over = "table"
) -> Expectation:
    """No two rows of the table have the same values in these columns."""
    label = name or f"{', '.join(_columns(columns, 'expect_unique'))} unique"
    return Expectation(Unique(label, columns, _no_drop(severity, label), _share(tolerate), over))


def expect_references(
    columns: str | Sequence[str],
    table: str,
    to: str | Sequence[str] | None = None,
    *,
    name: str | None = None,
    tolerate: float = 0.0,
    severity: Severity = "fail",
    over: Over = "table",
) -> Expectation:
    """What these columns say is in a table, as it will be after the commit: `expect_references("customer_id",
    "sales.customers", "id")`. Without `to` the columns have the same names there. Nulls refer to nothing."""
    own = (columns,) if isinstance(columns, str) else tuple(columns)
    other = own if to is None else (to,) if isinstance(to, str) else tuple(to)
    label = name or f"{', '.join(own)} in {table}"
    if len(own) != len(other) or not own:
        raise InvalidPipeline(f"{label}: {len(own)} columns cannot refer to {len(other)}")
    return Expectation(References(label, own, table, other, _no_drop(severity, label), _share(tolerate), over))


def expect_rows(
    between: tuple[int, int] | None = None,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    name: str | None = None,
    severity: Severity = "fail",
    over: Over = "table",
) -> Expectation:
    """The table has this many rows, or with `over="added"` the run adds this many."""
    least, most = between if between is not None else (at_least, at_most)
    label = name or "number of rows"
    if least is None and most is None:
        raise InvalidPipeline("expect_rows needs a bound: between=(1, 1000), at_least or at_most")
    return Expectation(Rows(label, least, most, _no_drop(severity, label), over))


def check(
    target: str, *, name: str | None = None, severity: Severity = "fail", tolerate: float = 0.0, over: Over = "table"
) -> Callable[[F], F]:
    """A Python function as a check of a table. Its parameters are bound by name, as those of stages are: the staged
    table by its own name, other inputs by theirs. It returns true or false, a text that says what is wrong (empty:
    nothing is), or wrong rows."""

    def declared(function: F) -> F:
        label = name or function.__name__.replace("_", " ")
        found = Function(label, function, _no_drop(severity, label), _share(tolerate), over)
        current_pipeline().add_check(target, found)
        return function

    return declared


def _condition(name: str, condition: str, severity: Severity, tolerate: float | None, over: Over) -> Condition:
    if not condition.strip():
        raise InvalidPipeline(f"expectation {name!r} has no condition")
    return Condition(name, condition, _severity(severity), tolerate, over)


def _columns(columns: tuple[str, ...], what: str) -> tuple[str, ...]:
    if not columns:
        raise InvalidPipeline(f"{what} needs the name of a column")
    return columns


def _share(tolerate: float) -> float:
    if not 0 <= tolerate <= 1:
        raise InvalidPipeline(f"tolerate is a share from 0 to 1, not {tolerate}")
    return float(tolerate)


def _severity(severity: Severity) -> Severity:
    if severity not in ("warn", "drop", "fail"):
        raise InvalidPipeline(f"severity is warn or fail, not {severity!r}")
    return severity


def _no_drop(severity: Severity, label: str) -> Severity:
    if _severity(severity) == "drop":
        raise InvalidPipeline(f"{label}: rows can be left out by a condition only; use expect_or_drop")
    return severity
