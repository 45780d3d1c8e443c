"""Declared pipelines: tables with their queries and expectations, run as one transaction.

    from lakepact import pipelines as dp

    @dp.materialized_view(name="sales.daily")
    @dp.expect_or_fail("no negative day", "amount >= 0")
    def daily(orders): ...

api.py          table, materialized_view, temporary_view, append_flow: as in `pyspark.pipelines`
expecting.py    expectations as decorators; expectations.py: as values; checks.py: on the staged data
context.py      read, read_new, param: what a stage may ask for while it runs
declared.py     datasets and flows; inputs.py, sqltables.py: what they read; graph.py: what follows from it
definition.py   a pipeline; loading.py, placeholder.py: from a file; drawing.py: for people
runner.py       a run: one transaction; stage.py: one step of it; writing.py, binding.py, activity.py: parts of that
positions.py    how far a pipeline has come; lineage.py: what it has really read; history.py: a table's versions
streams.py      sink: many tables exactly once from foreachBatch
results.py      what came of it; errors.py: or why not

Declarations and the graph need no Spark; a run does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakepact.extras import require
from lakepact.pipelines.api import (
    append_flow,
    create_streaming_table,
    materialized_view,
    pipeline,
    table,
    temporary_view,
)
from lakepact.pipelines.context import declared_in, param, read, read_new
from lakepact.pipelines.definition import Pipeline
from lakepact.pipelines.errors import (
    CheckFailed,
    InvalidPipeline,
    PositionLost,
    RunFailed,
    StageFailed,
    StaleRead,
    UndeclaredInput,
)
from lakepact.pipelines.expecting import (
    check,
    expect,
    expect_all,
    expect_all_or_drop,
    expect_all_or_fail,
    expect_not_null,
    expect_or_drop,
    expect_or_fail,
    expect_references,
    expect_rows,
    expect_unique,
)
from lakepact.pipelines.loading import load
from lakepact.pipelines.results import CheckResult, Input, RunResult, StageResult

if TYPE_CHECKING:
    from lakepact.pipelines.runner import run
    from lakepact.pipelines.streams import sink

__all__ = [
    "CheckFailed",
    "CheckResult",
    "Input",
    "InvalidPipeline",
    "Pipeline",
    "PositionLost",
    "RunFailed",
    "RunResult",
    "StageFailed",
    "StageResult",
    "StaleRead",
    "UndeclaredInput",
    "append_flow",
    "check",
    "create_streaming_table",
    "declared_in",
    "expect",
    "expect_all",
    "expect_all_or_drop",
    "expect_all_or_fail",
    "expect_not_null",
    "expect_or_drop",
    "expect_or_fail",
    "expect_references",
    "expect_rows",
    "expect_unique",
    "load",
    "materialized_view",
    "param",
    "pipeline",
    "read",
    "read_new",
    "run",
    "sink",
    "table",
    "temporary_view",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    # What needs Spark is loaded at first use: a graph can be drawn without it.
    if name in ("run", "sink"):
        require("pyspark", "spark", f"lakepact.pipelines.{name}")
    if name == "run":
        from lakepact.pipelines.runner import run

        return run
    if name == "sink":
        from lakepact.pipelines.streams import sink

        return sink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
