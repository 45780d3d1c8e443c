"""Expectations on the staged data, through the transaction. All conditions of a table are one pass over it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
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

FrameOf: TypeAlias = Callable[[Over], DataFrame]
"""The staged table, or what the run has added to it."""

Read: TypeAlias = Callable[[str], DataFrame]
Bind: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def evaluate(
    checks: Sequence[Check], table: str, frame_of: FrameOf, read: Read, bind: Bind = lambda function: function
) -> tuple[CheckResult, ...]:
    """The results in the order of the checks. Rows that are left out are counted where that is done: see `dropped`."""
    found: dict[int, CheckResult] = {}
    conditions = [check for check in checks if isinstance(check, Condition) and check.severity != "drop"]
    for over in ("added", "table"):
        same = [check for check in conditions if check.over == over]
        if same:
            results = _conditions(same, table, frame_of(over))
            found |= {id(check): result for check, result in zip(same, results, strict=True)}
    for check in checks:
        match check:
            case Unique():
                found[id(check)] = _unique(check, table, frame_of(check.over))
            case References():
                found[id(check)] = _references(check, table, frame_of(check.over), read(check.table))
            case Rows():
                rows = frame_of(check.over).count()
                found[id(check)] = verdict(check, table, rows=rows, violations=check.off_by(rows))
            case Function():
                found[id(check)] = _function(check, table, frame_of(check.over), read, bind)
            case Condition():
                pass
    return tuple(found[id(check)] for check in checks if id(check) in found)


def dropped(checks: Iterable[Check], table: str, frame: DataFrame) -> tuple[DataFrame, tuple[CheckResult, ...]]:
    """The rows that meet every condition that says to leave out the others, and what was left out.

    One more pass over the query: the rows that are left out are in no table to be counted later.
    """
    dropping = [check for check in checks if isinstance(check, Condition) and check.severity == "drop"]
    if not dropping:
        return frame, ()
    results = _conditions(dropping, table, frame)
    return frame.where(" AND ".join(f"NOT ({check.violated})" for check in dropping)), results


def _conditions(checks: Sequence[Condition], table: str, frame: DataFrame) -> tuple[CheckResult, ...]:
    counted = [F.expr(check.counted).alias(f"c{number}") for number, check in enumerate(checks)]
    [row] = frame.agg(F.count(F.lit(1)).alias("rows"), *counted).collect()
    return tuple(
        verdict(
            check,
            table,
            rows=row["rows"],
            violations=row[f"c{number}"],
            sample=_sample(frame.where(check.violated)) if row[f"c{number}"] else (),
        )
        for number, check in enumerate(checks)
    )


def _unique(check: Unique, table: str, frame: DataFrame) -> CheckResult:
    keys = [F.expr(quoted(column)).alias(f"k{number}") for number, column in enumerate(check.columns)]
    # Nulls are no values, but rows all the same.
    counted = frame.select(*keys, F.expr(check.has_values).alias("has_values")).groupBy(
        *(f"k{number}" for number in range(len(keys))), "has_values"
    )
    groups = counted.agg(F.count(F.lit(1)).alias("times"))
    repeated = groups.where("has_values AND times > 1")
    [row] = groups.agg(
        F.coalesce(F.sum("times"), F.lit(0)).alias("rows"),
        F.coalesce(F.sum(F.expr("IF(has_values, times - 1, 0)")), F.lit(0)).alias("violations"),
    ).collect()
    shown = repeated.select(
        *(F.col(f"k{number}").alias(column) for number, column in enumerate(check.columns)), F.col("times")
    )
    sample = _sample(shown) if row["violations"] else ()
    return verdict(check, table, rows=row["rows"], violations=row["violations"], sample=sample)


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
