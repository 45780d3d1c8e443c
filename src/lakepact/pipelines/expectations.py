"""Expectations as values: what they ask, in SQL where it is SQL, and what the figures mean. Nothing here runs a query.

A condition is met where it is true; null is not true. A tolerated share is that of the rows looked at: 0.01 lets one
row in a hundred be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from lakepact.pipelines.results import CheckResult, Status
from lakepact.pipelines.sqltables import quoted

Severity: TypeAlias = Literal["warn", "drop", "fail"]
Over: TypeAlias = Literal["added", "table"]

SAMPLE_ROWS: Final = 5


@dataclass(frozen=True, slots=True)
class Condition:
    """Every row meets a SQL condition."""

    name: str
    condition: str
    severity: Severity = "warn"
    tolerate: float | None = 0.0
    over: Over = "added"
    kind: str = "condition"

    @property
    def violated(self) -> str:
        """True for the rows that do not meet it."""
        return f"NOT coalesce(({self.condition}), false)"

    @property
    def counted(self) -> str:
        return f"count_if({self.violated})"


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have the same values in these columns. As in SQL, nulls are no values."""

    name: str
    columns: tuple[str, ...]
    severity: Severity = "fail"
    tolerate: float | None = 0.0
    over: Over = "table"
    kind: str = "unique"

    @property
    def has_values(self) -> str:
        return " AND ".join(f"{quoted(column)} IS NOT NULL" for column in self.columns)


@dataclass(frozen=True, slots=True)
class References:
    """Every value of these columns is in columns of another table, as it will be after the commit."""

    name: str
    columns: tuple[str, ...]
    table: str
    to: tuple[str, ...]
    severity: Severity = "fail"
    tolerate: float | None = 0.0
    over: Over = "table"
    kind: str = "references"

    def joined(self, left: str, right: str) -> str:
        """The condition on which a row and the one it refers to belong together."""
        pairs = zip(self.columns, self.to, strict=True)
        return " AND ".join(f"{left}.{quoted(own)} = {right}.{quoted(other)}" for own, other in pairs)

    @property
    def has_values(self) -> str:
        return " AND ".join(f"{quoted(column)} IS NOT NULL" for column in self.columns)


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows there are."""

    name: str
    at_least: int | None
    at_most: int | None
    severity: Severity = "fail"
    over: Over = "table"
    kind: str = "rows"
    tolerate: float | None = None

    def off_by(self, rows: int) -> int:
        if self.at_least is not None and rows < self.at_least:
            return self.at_least - rows
        if self.at_most is not None and rows > self.at_most:
            return rows - self.at_most
        return 0


@dataclass(frozen=True, slots=True)
class Function:
    """A Python function finds it right.

    It is given the table and other inputs, by the names of its parameters, and returns true or false, a reason why it
    is wrong, or the rows that are wrong.
    """

    name: str
    function: Callable[..., Any]
    severity: Severity = "fail"
    tolerate: float | None = 0.0
    over: Over = "table"
    kind: str = "function"
    own: tuple[str, ...] = ()
    """Parameters that take the table itself. The graph binds parameters by their names."""

    others: tuple[tuple[str, str], ...] = ()
    """All other parameters, each with the input that it takes."""


Check: TypeAlias = Condition | Unique | References | Rows | Function


def not_null(columns: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(column)} IS NOT NULL" for column in columns)


def verdict(
    check: Check, table: str, *, rows: int, violations: int, sample: Sequence[str] = (), reason: str = ""
) -> CheckResult:
    """What these figures mean."""
    beyond = violations > 0 and (check.tolerate is None or violations > check.tolerate * rows)
    if check.severity == "drop":
        # Without a bound any number of rows may be left out.
        beyond = violations > 0 and check.tolerate is not None and violations > check.tolerate * rows
        status = Status.FAILED if beyond else Status.DROPPED if violations else Status.PASSED
    elif not beyond:
        status = Status.PASSED
    else:
        status = Status.FAILED if check.severity == "fail" else Status.WARNED
    return CheckResult(
        table=table,
        name=check.name,
        kind=check.kind,
        status=status,
        severity=check.severity,
        rows=rows,
        violations=violations,
        tolerated=check.tolerate,
        message=reason or _message(check, rows, violations),
        sample=tuple(sample) if violations else (),
    )


def _message(check: Check, rows: int, violations: int) -> str:
    if isinstance(check, Rows):
        return f"{rows} rows, and {_bounds(check)} were expected"
    if not violations:
        return f"all {rows} rows are right"
    share = f" ({violations / rows:.2%})" if rows else ""
    tolerated = f", and {check.tolerate:.2%} is tolerated" if check.tolerate else ""
    what = {
        "unique": "repeat the values of another in " + ", ".join(getattr(check, "columns", ())),
        "references": "refer to nothing in " + getattr(check, "table", ""),
    }.get(check.kind, "do not meet " + getattr(check, "condition", check.name))
    return f"{violations} of {rows} rows{share} {what}{tolerated}"


def _bounds(check: Rows) -> str:
    match check.at_least, check.at_most:
        case int(least), int(most):
            return f"{least} to {most}" if least != most else f"exactly {least}"
        case None, int(most):
            return f"at most {most}"
        case least, _:
            return f"at least {least}"
