"""Expectations on the staged data, through the transaction. All checks of a table that count rows are one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.expectations import (
    SAMPLE_ROWS,
    Check,
    Condition,
    Function,
    Over,
    References,
    Rows,
    Unique,
    verdict,
)
from lakepact.pipelines.results import CheckResult
from lakepact.pipelines.sqltables import quoted

_MOST_LETTERS: Final = 500
"""Of a row that is shown."""

Counted: TypeAlias = Condition | Unique | Rows
"""Checks that an aggregation over the table decides."""

FrameOf: TypeAlias = Callable[[Over], DataFrame]
"""The staged table, or what the run has added to it."""

Read: TypeAlias = Callable[[str], DataFrame]
Bind: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def evaluate(
    checks: Sequence[Check], table: str, frame_of: FrameOf, read: Read, bind: Bind = lambda function: function
) -> tuple[CheckResult, ...]:
    """The results in the order of the checks. Rows that are left out are counted where that is done: see `dropped`."""
    found: dict[int, CheckResult] = {}
    counted = [
        check
        for check in checks
        if isinstance(check, Unique | Rows) or (isinstance(check, Condition) and check.severity != "drop")
    ]
    for same, frame in _passes(counted, frame_of):
        results = _in_one_pass(same, table, frame)
        found |= {id(check): result for check, result in zip(same, results, strict=True)}
    for check in checks:
        match check:
            case References():
                found[id(check)] = _references(check, table, frame_of(check.over), read(check.table))
            case Function():
                found[id(check)] = _function(check, table, frame_of(check.over), read, bind)
            case Condition() | Unique() | Rows():
                pass
    return tuple(found[id(check)] for check in checks if id(check) in found)


def _passes(checks: Sequence[Counted], frame_of: FrameOf) -> list[tuple[list[Counted], DataFrame]]:
    """The checks, with the frame they look at: one pass where what was added is all of the table."""
    overs: tuple[Over, ...] = ("added", "table")
    by_over = {over: [check for check in checks if check.over == over] for over in overs}
    frames = {over: frame_of(over) for over, same in by_over.items() if same}
    if len(frames) == len(overs) and frames["added"].sameSemantics(frames["table"]):
        return [(list(checks), frames["table"])]
    return [(by_over[over], frame) for over, frame in frames.items()]


def dropped(checks: Iterable[Check], table: str, frame: DataFrame) -> tuple[DataFrame, tuple[CheckResult, ...]]:
    """The rows that meet every condition that says to leave out the others, and what was left out.

    One more pass over the query: the rows that are left out are in no table to be counted later.
    """
    dropping = [check for check in checks if isinstance(check, Condition) and check.severity == "drop"]
    if not dropping:
        return frame, ()
    results = _in_one_pass(dropping, table, frame)
    return frame.where(" AND ".join(f"NOT ({check.violated})" for check in dropping)), results


def _in_one_pass(checks: Sequence[Counted], table: str, frame: DataFrame) -> tuple[CheckResult, ...]:
    """The results of these checks by one aggregation. Rows are looked for only where something is wrong."""
    figures = [_violations(check).alias(f"c{number}") for number, check in enumerate(checks)]
    [row] = frame.agg(F.count(F.lit(1)).alias("rows"), *figures).collect()
    results = []
    for number, check in enumerate(checks):
        violations = check.off_by(row["rows"]) if isinstance(check, Rows) else row[f"c{number}"]
        sample = _violating(check, frame) if violations else ()
        results.append(verdict(check, table, rows=row["rows"], violations=violations, sample=sample))
    return tuple(results)


def _violations(check: Counted) -> Column:
    """How many rows violate it, as an aggregate."""
    match check:
        case Condition():
            return F.expr(check.counted)
        case Unique():
            columns = ", ".join(map(quoted, check.columns))
            key = columns if len(check.columns) == 1 else f"struct({columns})"
            # All rows with values but the first of each.
            return F.expr(f"count_if({check.has_values}) - count(DISTINCT CASE WHEN {check.has_values} THEN {key} END)")
        case Rows():
            return F.lit(None)


def _violating(check: Counted, frame: DataFrame) -> tuple[str, ...]:
    """Some of the rows that violate it."""
    match check:
        case Condition():
            return _sample(frame.where(check.violated))
        case Unique():
            # Under names of our own: a column may be called `times`.
            keys = [F.expr(quoted(column)).alias(f"k{number}") for number, column in enumerate(check.columns)]
            groups = frame.where(check.has_values).groupBy(*keys).agg(F.count(F.lit(1)).alias("times"))
            named = (F.col(f"k{number}").alias(column) for number, column in enumerate(check.columns))
            return _sample(groups.where("times > 1").select(*named, F.col("times")))
        case Rows():
            return ()


def _references(check: References, table: str, frame: DataFrame, other: DataFrame) -> CheckResult:
    referring = frame.where(check.has_values).alias("own")
    missing = referring.join(other.alias("other"), F.expr(check.joined("own", "other")), "left_anti")
    violations = missing.count()
    sample = _sample(missing) if violations else ()
    return verdict(check, table, rows=frame.count(), violations=violations, sample=sample)


def _function(check: Function, table: str, frame: DataFrame, read: Read, bind: Bind) -> CheckResult:
    given = dict.fromkeys(check.own, frame)
    given |= {parameter: read(name) for parameter, name in check.others}
    told = bind(check.function)(**given)
    match told:
        case bool():
            reason = "" if told else f"{check.name} is not so"
            return verdict(check, table, rows=0, violations=0 if told else 1, reason=reason or "it is so")
        case str():
            return verdict(check, table, rows=0, violations=1 if told else 0, reason=told or "it is so")
        case DataFrame():
            violations = told.count()
            sample = _sample(told) if violations else ()
            return verdict(check, table, rows=frame.count(), violations=violations, sample=sample)
        case _:
            raise InvalidPipeline(
                f"check {check.name} of {table} returned {type(told).__name__}: return true or false, a text that says "
                f"what is wrong, or the rows that are"
            )


def _sample(frame: DataFrame) -> tuple[str, ...]:
    rows = frame.limit(SAMPLE_ROWS).select(F.to_json(F.struct("*")).alias("row")).collect()
    return tuple(row["row"][:_MOST_LETTERS] for row in rows)
