"""One step of a run: a dataset is computed, written into the transaction, and checked there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakepact.errors import LakepactError
from lakepact.pipelines.activity import activate
from lakepact.pipelines.binding import bound
from lakepact.pipelines.checks import dropped, evaluate
from lakepact.pipelines.context import running
from lakepact.pipelines.declared import Flow
from lakepact.pipelines.errors import CheckFailed, InvalidPipeline, StageFailed
from lakepact.pipelines.expectations import Over
from lakepact.pipelines.graph import Graph, Step
from lakepact.pipelines.inputs import parameters_of
from lakepact.pipelines.lineage import Seen, seen_in
from lakepact.pipelines.positions import Position, Progress, range_of
from lakepact.pipelines.results import CheckResult, Figures, StageResult
from lakepact.pipelines.sqltables import quoted, replaced, tables_in
from lakepact.pipelines.tables import DeltaState, TableState, added_since, between, figures_since, table_state
from lakepact.pipelines.writing import write
from lakepact.spark import SparkTransaction
from lakepact.spark.delta_files import read_files
from lakepact.spark.errors import conflict_in
from lakepact.spark.settings import PREFIX
from lakepact.spark.statements import Statements

_PARAMETER_MARK: Final = ":"
_UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"


@dataclass(slots=True)
class Work:
    """What the stages of one run share."""

    tx: SparkTransaction
    outside: SparkSession
    graph: Graph
    namespace: str | None
    params: Mapping[str, str]
    progress: Progress
    left_out: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Tables that are made of a view and not part of this run, by view."""

    read: dict[tuple[str, str], Position] = field(default_factory=dict)
    """Where incremental reads have stopped."""

    before: dict[str, int | None] = field(default_factory=dict)
    """The snapshots of the run's own tables when it began, or the versions of Delta tables."""

    seen: dict[Seen, set[str]] = field(default_factory=dict)
    """Which stages have read which snapshots."""

    views: Iterator[int] = field(default_factory=lambda: count(1))
    """Numbers for the names of what a query reads by name and Spark does not know."""

    lock: Lock = field(default_factory=Lock)

    def witness(self, stage: str, frame: DataFrame) -> DataFrame:
        """Remember what this frame reads."""
        found = seen_in(frame)
        with self.lock:
            for one in found:
                self.seen.setdefault(one, set()).add(stage)
        return frame

    def delta(self, stage: str, statements: Statements, name: str) -> DataFrame | None:
        """A Delta table of this name, as the transaction sees it; None if it is none. Its reading is remembered."""
        if "." not in name or not self.tx.plain.delta.exists(name):
            return None
        state = self.table(name)
        if not isinstance(state, DeltaState):
            return None
        with self.lock:
            seen = Seen(name, state.table.table_id, None, state.table.version)
            self.seen.setdefault(seen, set()).add(stage)
        return read_files(statements.spark, state.table)

    def full(self, name: str) -> str:
        """The name of an input as the graph knows it."""
        if "." in name or name in self.graph.steps or self.namespace is None:
            return name
        return f"{self.namespace}.{name}"

    def table(self, name: str) -> TableState | None:
        """A table as the transaction sees it now."""
        return table_state(self.tx.plain, name)


class StageReader:
    """What the function of a stage reads through."""

    def __init__(self, work: Work, statements: Statements, step: Step) -> None:
        self._work = work
        self._statements = statements
        self._step = step

    def read(self, name: str) -> DataFrame:
        full, statements = self._known(name), self._statements
        if full == self._step.name and self._work.table(full) is None:
            return self._nothing_yet()
        if (delta := self._work.delta(self._step.name, statements, full)) is not None:
            return delta
        frame = statements.spark.table(full) if "." not in full else statements.table(full)
        return self._work.witness(self._step.name, frame)

    def read_new(self, name: str, *, skip_changes: bool) -> DataFrame:
        full, work = self._known(name), self._work
        table = work.table(full)
        if table is None:
            raise InvalidPipeline(f"dp.read_new({name!r}): there is no such table")
        if isinstance(table, DeltaState):
            raise InvalidPipeline(
                f"dp.read_new({name!r}): it is a Delta table, and what is new is told of Iceberg tables only. Read all "
                f"of it: dp.read({name!r})"
            )
        others = work.left_out.get(self._step.name)
        if others:
            raise InvalidPipeline(
                f"view {self._step.name} reads what is new in {full}, also for {', '.join(sorted(others))}, which is "
                f"not part of this run and would miss it. Run them together"
            )
        last = work.progress.positions.get(self._step.name, {}).get(full)
        new = range_of(full, table.table.metadata, last, skip_changes=skip_changes)
        with work.lock:
            work.read[self._step.name, full] = new.position
        whole = work.witness(self._step.name, self._statements.table(full))
        if new.is_empty:
            return whole.where("false")
        if new.since is None:
            return whole
        return between(self._statements, full, new.since, new.position.snapshot_id)

    def _nothing_yet(self) -> DataFrame:
        """What a table reads of itself when it is made for the first time."""
        schema = self._step.dataset.schema
        if schema is None:
            raise InvalidPipeline(
                f"{self._step.name} reads itself, and is not there yet. Declare its schema: schema='id BIGINT, …'"
            )
        return self._statements.spark.createDataFrame([], schema)

    def _known(self, name: str) -> str:
        full = self._work.full(name)
        graph, step = self._work.graph, self._step
        if full in graph.steps and full != step.name and full not in step.reads:
            raise InvalidPipeline(
                f"{step.name} reads {full}, which this run makes, and the graph does not know it: the two may run in "
                f"any order. Name it: inputs=[{full!r}]"
            )
        return full


def perform(work: Work, step: Step) -> StageResult:
    """Compute, write and check one dataset. Raises `StageFailed`, `CheckFailed`, `Conflict`, other errors of ours."""
    began = time.perf_counter()
    try:
        return _view(work, step, began) if step.dataset.is_view else _table(work, step, began)
    except LakepactError:
        raise
    except Exception as error:
        conflict = conflict_in(error)
        if conflict is not None:
            raise conflict from error
        raise StageFailed(step.name, _reason(error) + _hint(work, step, error)) from error


def _view(work: Work, step: Step, began: float) -> StageResult:
    """Views are made in the transaction's own session: stages are cloned from it and find them there."""
    statements = work.tx
    activate(statements.spark)
    [flow] = step.flows
    frame, left_out = dropped(step.dataset.checks, step.name, _frame(work, statements, step, flow))
    frame.createOrReplaceTempView(step.name)
    reader = StageReader(work, statements, step)
    checked = evaluate(step.local_checks, step.name, lambda over: frame, reader.read, _binder(work, statements))
    return _result(step, began, Figures(), (*left_out, *checked))


def _table(work: Work, step: Step, began: float) -> StageResult:
    conf = {key: value for flow in step.flows for key, value in flow.spark_conf.items()}
    # As after `USE`, which would be a statement of its own for every stage.
    current = {} if work.namespace is None else {f"{PREFIX}{work.tx.catalog}.default-namespace": work.namespace}
    statements = work.tx.stage({"lakepact.stage": step.name}, {**current, **conf})
    activate(statements.spark)
    before = work.table(step.name)
    with work.lock:
        work.before[step.name] = None if before is None else before.at
    left_out: list[CheckResult] = []
    for number, flow in enumerate(step.flows):
        frame = _frame(work, statements, step, flow)
        frame, results = dropped(step.dataset.checks, step.name, frame)
        _raise_failed(results)
        left_out += results
        write(statements, step, frame, before if number == 0 else work.table(step.name), first=number == 0)
    after = work.table(step.name)
    assert after is not None
    reader = StageReader(work, statements, step)
    checked = evaluate(
        step.local_checks, step.name, staged(statements, step, before, after), reader.read, _binder(work, statements)
    )
    return _result(step, began, figures_since(before, after), (*left_out, *checked))


def _result(step: Step, began: float, figures: Figures, checks: tuple[CheckResult, ...]) -> StageResult:
    _raise_failed(checks)
    target = None if step.dataset.is_view else step.name
    mode = step.dataset.kind.value if target is None else step.dataset.mode
    return StageResult(step.name, target, mode, time.perf_counter() - began, figures, checks)


def cross_checks(work: Work, step: Step) -> tuple[CheckResult, ...]:
    """The checks between tables, once everything is staged."""
    statements = work.tx
    activate(statements.spark)

    def read(name: str) -> DataFrame:
        return statements.spark.table(name) if "." not in name else statements.table(name)

    def whole(over: Over) -> DataFrame:
        return read(step.name)

    with running(StageReader(work, statements, step), work.params):
        return evaluate(step.cross_checks, step.name, whole, read, _binder(work, statements))


def staged(
    statements: Statements, step: Step, before: TableState | None, after: TableState
) -> Callable[[Over], DataFrame]:
    """The table as it will be, or what the run adds to it, which for anything but an append is all of it."""

    def frame_of(over: Over) -> DataFrame:
        if over == "table" or step.dataset.mode != "append" or before is None:
            return statements.table(step.name)
        return added_since(statements, step.name, before, after)

    return frame_of


def _frame(work: Work, statements: Statements, step: Step, flow: Flow) -> DataFrame:
    """What a flow's query gives."""
    reader = StageReader(work, statements, step)
    with running(reader, work.params):
        if flow.function is None:
            made: Any = flow.sql
        else:
            given = {parameter: reader.read(name) for parameter, name in flow.parameters.items()}
            given |= _reserved(flow.function, statements.spark, work.params)
            made = bound(flow.function, work.outside, statements.spark)(**given)
    if isinstance(made, str):
        args = dict(work.params) if _PARAMETER_MARK in made and work.params else None
        made = statements.sql(_with_delta_views(work, statements, step, made), args)
    if not isinstance(made, DataFrame):
        raise InvalidPipeline(
            f"{flow.where}: {flow.name} returned {type(made).__name__}; return a DataFrame, or the text of a query"
        )
    if made.isStreaming:
        raise InvalidPipeline(
            f"{flow.where}: {flow.name} returned a stream, which never ends, and a run does. Read what is new with "
            f"dp.read_new('…'), or write each batch of the stream with lakepact.pipelines.sink"
        )
    schema = step.dataset.schema
    if isinstance(schema, str):
        schema = StructType.fromDDL(schema)
    return work.witness(step.name, made if schema is None else made.to(schema))


def _with_delta_views(work: Work, statements: Statements, step: Step, query: str) -> str:
    """The query, with a temporary view in place of every Delta table: the catalog of the session has none of them."""
    views: dict[str, str] = {}
    for name in tables_in(query):
        full = work.full(name)
        if full in work.graph.steps and work.graph.steps[full].dataset.is_view:
            continue
        frame = work.delta(step.name, statements, full)
        if frame is not None:
            views[name] = f"lakepact_delta_{next(work.views)}"
            frame.createOrReplaceTempView(views[name])
    return replaced(query, views) if views else query


def _reserved(function: Callable[..., Any], spark: SparkSession, params: Mapping[str, str]) -> dict[str, Any]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    taken = set(parameters_of(function))
    values = {"spark": spark, "params": dict(params)}
    return {name: values[name] for name in names if name in values and name not in taken}


def use(statements: Statements, namespace: str | None) -> None:
    """Names without a namespace are the pipeline's."""
    if namespace is not None:
        statements.sql(f"USE {quoted(statements.catalog)}.{quoted(namespace)}")


def _binder(work: Work, statements: Statements) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda function: bound(function, work.outside, statements.spark)


def _raise_failed(results: tuple[CheckResult, ...]) -> None:
    failed = [result for result in results if not result.holds]
    if failed:
        raise CheckFailed(failed)


def _hint(work: Work, step: Step, error: Exception) -> str:
    """Spark does not know Delta tables of the lake, and does not say so."""
    if _UNKNOWN_TABLE not in str(error):
        return ""
    delta = [name for name in step.reads if "." in name and work.tx.plain.delta.exists(name)]
    if not delta:
        return ""
    return (
        f"\n{', '.join(delta)} is a Delta table, which spark.table and spark.sql do not know: read it with "
        f"dp.read({delta[0]!r}), as a parameter, or return the query as text"
    )


def _reason(error: Exception) -> str:
    text = str(error).strip()
    # Spark's errors go on with the plan and Java's stack; the first lines say what is wrong.
    return f"{type(error).__name__}: " + "\n".join(text.splitlines()[:6])
