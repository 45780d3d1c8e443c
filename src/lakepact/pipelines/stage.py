"""One step of a run: a dataset is computed, written into the transaction, and checked there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from threading import Lock
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakepact.client import Unavailable
from lakepact.errors import LakepactError
from lakepact.pipelines.activity import activate
from lakepact.pipelines.binding import bound
from lakepact.pipelines.checks import dropped, evaluate
from lakepact.pipelines.context import running
from lakepact.pipelines.declared import Flow
from lakepact.pipelines.errors import CheckFailed, InvalidPipeline, StageFailed, StaleRead, UndeclaredInput
from lakepact.pipelines.expectations import Over
from lakepact.pipelines.graph import Graph, Step, made_of_itself
from lakepact.pipelines.inputs import parameters_of
from lakepact.pipelines.lineage import TableRead, below, files_in, files_of, reads_in
from lakepact.pipelines.positions import Position, Progress, range_of
from lakepact.pipelines.results import CheckResult, Figures, StageResult
from lakepact.pipelines.sqltables import parts_of, replaced, tables_in
from lakepact.pipelines.tables import DeltaState, TableState, added_since, between, figures_since, table_state
from lakepact.pipelines.writing import write
from lakepact.spark import SparkTransaction
from lakepact.spark.delta_files import read_files
from lakepact.spark.errors import conflict_in, is_outage, root_message
from lakepact.spark.statements import Statements

_PARAMETER_MARK: Final = ":"
_UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"
_DELTA: Final = "delta"


@dataclass(slots=True)
class Work:
    """What the stages of one run share."""

    tx: SparkTransaction
    outside: SparkSession
    graph: Graph
    """Grows by the edges that are found while stages run."""

    namespace: str | None
    params: Mapping[str, str]
    progress: Progress
    from_scratch: Collection[str] = ()
    """Tables whose rows are replaced: they are made as if there had been none."""

    left_out: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Tables that are made of a view and not part of this run, by view."""

    positions: dict[tuple[str, str], Position] = field(default_factory=dict)
    """Where incremental reads have stopped, by stage and table."""

    complete: dict[str, TableState | None] = field(default_factory=dict)
    """Datasets whose stage is done, as they are staged. None: a view."""

    reads: dict[str, set[TableRead]] = field(default_factory=dict)
    """The tables that each stage has read."""

    files: dict[str, set[frozenset[str]]] = field(default_factory=dict)
    """The files that each stage has read by their location: those of Delta tables, and others."""

    writing: set[str] = field(default_factory=set)
    """Stages that have begun to write: they cannot be called again in this transaction."""

    views: Iterator[int] = field(default_factory=lambda: count(1))
    """Numbers for the names of what a query reads by name and Spark does not know."""

    states: dict[str, TableState | None] = field(default_factory=dict)
    """Tables as they were loaded in this transaction. A staged write of a table removes its entry, before and after."""

    under_write: set[str] = field(default_factory=set)
    """Tables that their stages are writing at this moment. Their states are not stored in `states`."""

    generations: dict[str, int] = field(default_factory=dict)
    """How often the entry of a table was removed from `states`. A load that began before the last removal may have
    returned the state from before a write, so it is not stored."""

    namespaces: set[str] = field(default_factory=set)
    """Namespaces that are known to exist in this transaction."""

    lock: Lock = field(default_factory=Lock)

    def begin(self, stage: str) -> None:
        """Forget what an earlier call of this stage has read."""
        with self.lock:
            self.reads[stage], self.files[stage] = set(), set()
            self._forget(stage)

    @contextmanager
    def writes(self, stage: str) -> Iterator[None]:
        """In this block a stage writes its table. A state that any thread loads before its end is not used after it."""
        with self.lock:
            self.writing.add(stage)
            self.under_write.add(stage)
            self._forget(stage)
        try:
            yield
        finally:
            with self.lock:
                self.under_write.discard(stage)
                self._forget(stage)

    def _forget(self, table: str) -> None:
        """Remove the stored state of a table. The caller holds the lock."""
        self.states.pop(table, None)
        self.generations[table] = self.generations.get(table, 0) + 1

    def create_namespace(self, name: str) -> None:
        """Create the namespace of a table that is not there, unless it exists."""
        with self.lock:
            if name not in self.namespaces:
                self.tx.plain.namespaces.create(name, exist_ok=True)
                self.namespaces.add(name)

    def record(self, stage: str, *reads: TableRead) -> None:
        with self.lock:
            self.reads.setdefault(stage, set()).update(reads)

    def delta_state(self, stage: str, name: str, *, ask: bool = False) -> DeltaState | None:
        """A Delta table of this name, as the transaction sees it; None if it is none.

        The server is asked for tables that were Delta tables when they were last used, and with `ask` for all others.
        Raises `UndeclaredInput` if another stage of this run writes the table and is not complete: its state is not
        final. An Iceberg table is not refused here: a query may name an older snapshot, and `StageReader.observe` reads
        that from the plan.
        """
        if "." not in name:
            return None
        # In this order: a table that becomes complete in between is refused, and the stage is called again.
        incomplete = name != stage and name in self.graph.steps and name not in self.complete
        state = self.complete.get(name) or self.states.get(name)
        load = state is None and name not in self.complete and (ask or self.tx.is_delta(name))
        if incomplete and (load or isinstance(state, DeltaState)):
            raise UndeclaredInput(stage, name)
        if load:
            state = self.table(name)
        return state if isinstance(state, DeltaState) else None

    def delta(self, stage: str, statements: Statements, name: str, *, ask: bool = False) -> DataFrame | None:
        """The rows of a Delta table of this name; None if it is none. The read is recorded.

        Raises `UndeclaredInput` as `delta_state` does.
        """
        state = self.delta_state(stage, name, ask=ask)
        if state is None:
            return None
        self.record(stage, _read_of(name, state))
        return read_files(statements.spark, state.table)

    def full(self, name: str) -> str:
        """The name of an input as the graph knows it."""
        if "." in name or name in self.graph.steps or name in self.graph.externals or self.namespace is None:
            return name
        return f"{self.namespace}.{name}"

    def table(self, name: str) -> TableState | None:
        """A table as the transaction sees it, with what was staged.

        It is loaded once between two staged writes, and at every call during a write.
        """
        with self.lock:
            if name in self.states:
                return self.states[name]
            generation = self.generations.get(name, 0)
        step = self.graph.steps.get(name)
        declared = step is not None and (step.dataset.format or "").lower() == _DELTA
        state = table_state(self.tx.plain, name, delta_first=declared or self.tx.is_delta(name))
        with self.lock:
            if name not in self.under_write and self.generations.get(name, 0) == generation:
                self.states[name] = state
        return state

    def staged(self) -> dict[str, TableRead]:
        """The run's own tables as they are staged."""
        with self.lock:
            return {name: _read_of(name, state) for name, state in self.complete.items() if state is not None}

    def check_reads(self) -> None:
        """Raise `StaleRead` if any stage has read another version of a table of this run than the one it stages.

        Stages are checked while they run, as far as the run knows its tables then. This is the last check, before the
        commit, when it knows all of them.
        """
        for stage in self.graph.steps:
            for read in self.reads.get(stage, ()):
                self.check_read(stage, read)
            for files in self.files.get(stage, ()):
                self.check_files(stage, files)

    def check_read(self, stage: str, read: TableRead) -> None:
        own = self.own_table(read)
        staged = None if own is None else self.complete.get(own)
        if own in (None, stage) or staged is None or read.explicit:
            return
        expected = _read_of(own or read.table, staged)
        if (read.uuid, read.at) != (expected.uuid, expected.at):
            raise StaleRead(stage, expected.table, str(read), str(expected))

    def check_files(self, stage: str, files: frozenset[str]) -> None:
        for name, state in tuple(self.complete.items()):
            if not isinstance(state, DeltaState) or name == stage:
                continue
            read = below(files, state.table)
            if read and read != files_of(state.table):
                raise StaleRead(stage, name, "other files", f"version {state.table.version}")

    def own_table(self, read: TableRead) -> str | None:
        """The table of this run that was read, by its id or by its name in the lake's catalog; None if it is none."""
        for name, state in tuple(self.complete.items()):
            if state is not None and state.uuid == read.uuid:
                return name
        in_lake = read.catalog is None or read.catalog in self.tx.catalogs
        return read.table if in_lake and read.table in self.graph.tables else None


class StageReader:
    """What the function of a stage reads through.

    A read of a table of the same run must be of the staged version. If that table is not complete yet, which happens
    when no edge of the graph orders the two stages, `UndeclaredInput` is raised: the runner adds the edge and calls the
    stage again. If it is complete and another version was read, that is `StaleRead`, and the run fails.
    """

    def __init__(self, work: Work, statements: Statements, step: Step, *, check: str | None = None) -> None:
        """`check`: the name of the check that reads, if it is no query. It cannot be called again."""
        self._work = work
        self._statements = statements
        self._step = step
        self._check = check
        self._complete = frozenset(work.complete)
        """What was complete when the stage began."""

    @property
    def session(self) -> SparkSession:
        return self._statements.spark

    def read(self, name: str) -> DataFrame:
        full, statements = self._known(name), self._statements
        if full == self._step.name and self._work.table(full) is None:
            return self._nothing_yet()
        if (delta := self._work.delta(self._step.name, statements, full)) is not None:
            return delta
        try:
            frame = statements.spark.table(full) if "." not in full else statements.spark_table(full)
        except AnalysisException as error:
            delta = self._work.delta(self._step.name, statements, full, ask=True) if is_unknown_table(error) else None
            if delta is None:
                raise
            return delta
        return self.observe(frame)

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
            work.positions[self._step.name, full] = new.position
        if new.is_empty:
            # No plan shows this read, so it is recorded here.
            work.record(self._step.name, replace(_read_of(full, table), since=new.since))
            return self._statements.spark.createDataFrame([], self._statements.table(full).schema)
        if new.since is None:
            return self.observe(self._statements.table(full))
        return self.observe(between(self._statements, full, new.since, new.position.snapshot_id))

    def require(self, names: Iterable[str], *, tables: bool) -> None:
        work = self._work
        for name in names:
            parts = parts_of(name)
            full = work.full(".".join(parts[1:] if len(parts) > 2 and parts[0] in work.tx.catalogs else parts))
            step = work.graph.steps.get(full)
            if step is None or full == self._step.name:
                continue
            if step.dataset.is_view:
                self._check_complete(full)
            elif tables:
                # It may have become complete after it was looked for.
                self._read_before_it_was_complete(full)

    def observe(self, frame: DataFrame) -> DataFrame:
        work, stage = self._work, self._step.name
        reads, files = reads_in(frame), files_in(frame)
        work.record(stage, *reads)
        if files:
            with work.lock:
                work.files.setdefault(stage, set()).add(files)
        for read in reads:
            own = work.own_table(read)
            if own is None or read.explicit:
                continue
            if own == stage:
                self._check_reads_itself()
                continue
            self._check_complete(own)
            try:
                work.check_read(stage, read)
            except StaleRead:
                self._read_before_it_was_complete(own)
                raise
        work.check_files(stage, files)
        return frame

    def _check_complete(self, name: str) -> None:
        """Raise `UndeclaredInput` if another dataset of this run is not complete."""
        if name in self._work.complete:
            return
        if self._check is not None:
            raise InvalidPipeline(
                f"check {self._check} of {self._step.name} reads {name}, which this run writes and has not completed "
                f"yet. Take it as a parameter, which makes it a check between tables: "
                f"def {self._check.replace(' ', '_')}({self._step.name.rpartition('.')[2]}, {name.rpartition('.')[2]})"
            )
        raise UndeclaredInput(self._step.name, name)

    def _read_before_it_was_complete(self, name: str) -> None:
        if name not in self._complete and self._check is None:
            raise UndeclaredInput(self._step.name, name)

    def _check_reads_itself(self) -> None:
        step = self._step
        if self._check is None and not step.can_read_itself:
            raise InvalidPipeline(made_of_itself(step))

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
        if full in self._work.graph.steps and full != self._step.name:
            self._check_complete(full)
        return full


def perform(work: Work, step: Step) -> StageResult:
    """Compute, write and check one dataset.

    Raises `UndeclaredInput`, in which case nothing was written; `StageFailed`, `CheckFailed`, `Conflict`, other errors
    of ours.
    """
    began = time.perf_counter()
    work.begin(step.name)
    try:
        return _view(work, step, began) if step.dataset.is_view else _table(work, step, began)
    except LakepactError:
        raise
    except Exception as error:
        conflict = conflict_in(error)
        if conflict is not None:
            raise conflict from error
        if is_outage(error):
            raise Unavailable(f"stage {step.name}: the server did not answer: {root_message(error)}") from error
        raise StageFailed(step.name, root_message(error) + _hint(work, step, error)) from error


def _view(work: Work, step: Step, began: float) -> StageResult:
    """Views are made in the transaction's own session: stages are cloned from it and find them there."""
    statements = work.tx
    activate(statements.spark)
    [flow] = step.flows
    frame, left_out = dropped(step.dataset.checks, step.name, _frame(work, statements, step, flow))
    frame.createOrReplaceTempView(step.name)
    checked = _local_checks(work, statements, step, lambda over: frame)
    return _result(work, step, began, None, Figures(), (*left_out, *checked))


def _table(work: Work, step: Step, began: float) -> StageResult:
    conf = {key: value for flow in step.flows for key, value in flow.spark_conf.items()}
    statements = work.tx.stage({"lakepact.stage": step.name}, conf)
    activate(statements.spark)
    before = work.table(step.name)
    if before is None:
        work.create_namespace(step.name.rpartition(".")[0])
    if step.name in work.from_scratch and before is not None and step.reads_itself:
        # It reads itself as a table without rows. `write` replaces the rows of all others.
        with work.writes(step.name):
            statements.delete(step.name, "true")
    # All queries before the first write: a query may find that it has to wait for another table of this run.
    frames = [_frame(work, statements, step, flow) for flow in step.flows]
    left_out: list[CheckResult] = []
    columns = set() if before is None else before.columns
    for number, frame in enumerate(frames):
        kept, results = dropped(step.dataset.checks, step.name, frame)
        _raise_failed(results)
        left_out += results
        with work.writes(step.name):
            columns = write(
                statements,
                step,
                kept,
                before,
                columns,
                first=number == 0,
                replace_rows=number == 0 and step.name in work.from_scratch,
            )
    after = work.table(step.name)
    assert after is not None
    checked = _local_checks(work, statements, step, staged(statements, step, before, after))
    figures = figures_since(before, after, statements.copied_rows)
    return _result(work, step, began, after, figures, (*left_out, *checked))


def _local_checks(
    work: Work, statements: Statements, step: Step, frame_of: Callable[[Over], DataFrame]
) -> tuple[CheckResult, ...]:
    return evaluate(
        step.local_checks,
        step.name,
        frame_of,
        StageReader(work, statements, step).read,
        lambda function: _bound_check(work, statements, step, function),
    )


def _result(
    work: Work,
    step: Step,
    began: float,
    state: TableState | None,
    figures: Figures,
    checks: tuple[CheckResult, ...],
) -> StageResult:
    _raise_failed(checks)
    with work.lock:
        work.complete[step.name] = state
    target = None if step.dataset.is_view else step.name
    mode = step.dataset.kind.value if target is None else step.dataset.mode
    return StageResult(step.name, target, mode, time.perf_counter() - began, figures, checks)


def cross_checks(work: Work, step: Step) -> tuple[CheckResult, ...]:
    """The checks between tables, once everything is staged."""
    statements = work.tx
    activate(statements.spark)

    def read(name: str) -> DataFrame:
        delta = work.delta_state(step.name, name)
        if delta is not None:
            return read_files(statements.spark, delta.table)
        return statements.spark.table(name) if "." not in name else statements.table(name)

    def whole(over: Over) -> DataFrame:
        return read(step.name)

    return evaluate(
        step.cross_checks, step.name, whole, read, lambda function: _bound_check(work, statements, step, function)
    )


def staged(
    statements: Statements, step: Step, before: TableState | None, after: TableState
) -> Callable[[Over], DataFrame]:
    """The table as it will be, or what the run adds to it, which for anything but an append is all of it."""

    def frame_of(over: Over) -> DataFrame:
        if over == "table" or step.dataset.mode != "append" or before is None:
            if isinstance(after, DeltaState):
                return read_files(statements.spark, after.table)
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
            made = _queried(work, statements, step, made, args)
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
    return reader.observe(made if schema is None else made.to(schema))


def _queried(work: Work, statements: Statements, step: Step, query: str, args: dict[str, Any] | None) -> DataFrame:
    """The frame of a query. Spark says which tables it does not know, and only then the server is asked for them."""
    try:
        return statements.query(_with_delta_views(work, statements, step, query), args)
    except AnalysisException as error:
        if not is_unknown_table(error):
            raise
        with_all = _with_delta_views(work, statements, step, query, ask=True)
        if with_all == query:
            raise
        return statements.query(with_all, args)


def is_unknown_table(error: AnalysisException) -> bool:
    return _UNKNOWN_TABLE in str(error)


def _with_delta_views(work: Work, statements: Statements, step: Step, query: str, *, ask: bool = False) -> str:
    """The query, with a temporary view in place of every Delta table: the catalog of the session has none of them."""
    views: dict[str, str] = {}
    for name in tables_in(query):
        full = work.full(name)
        if full in work.graph.steps and work.graph.steps[full].dataset.is_view:
            continue
        frame = work.delta(step.name, statements, full, ask=ask)
        if frame is not None:
            views[name] = f"lakepact_delta_{next(work.views)}"
            frame.createOrReplaceTempView(views[name])
    return replaced(query, views) if views else query


def _reserved(function: Callable[..., Any], spark: SparkSession, params: Mapping[str, str]) -> dict[str, Any]:
    names = function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]
    taken = set(parameters_of(function))
    values = {"spark": spark, "params": dict(params)}
    return {name: values[name] for name in names if name in values and name not in taken}


def _bound_check(work: Work, statements: Statements, step: Step, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a check, in the session of the stage, reading through it."""
    inside = bound(function, work.outside, statements.spark)
    reader = StageReader(work, statements, step, check=getattr(function, "__name__", "function").replace("_", " "))

    def call(**given: Any) -> Any:
        with running(reader, work.params):
            return inside(**given)

    return call


def _read_of(name: str, state: TableState) -> TableRead:
    """A table as it is now, as a read of all of it."""
    if isinstance(state, DeltaState):
        return TableRead(name, state.uuid, None, state.table.version)
    return TableRead(name, state.uuid, state.table.snapshot_id)


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
