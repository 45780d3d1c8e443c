"""A run: one transaction. All outputs become visible at one instant, or none does.

    begun ── every stage staged ── every check holds ── lineage and positions written ── committed
      ╰──────────────╰──────────────────╰────────────────────────╰── aborted: nothing was ever visible

Stages run side by side as soon as what they read is staged. When somebody else was faster the whole run is done again
in a fresh transaction, as often as the pipeline says. When the server does not answer, the run waits for it for up to a
minute: a stage that has not begun to write is called again, otherwise the whole run is done again. Whether a run id was
committed before is read and written inside the transaction, so it is committed once, whoever repeats it and when.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakepact.client import Conflict, Unavailable, Unknown
from lakepact.client.machine import Retry, ThisMachine, new_id
from lakepact.errors import LakepactError
from lakepact.pipelines.activity import by_thread
from lakepact.pipelines.definition import Pipeline
from lakepact.pipelines.errors import CheckFailed, InvalidPipeline, RunFailed, UndeclaredInput
from lakepact.pipelines.graph import Graph
from lakepact.pipelines.lineage import inputs_of
from lakepact.pipelines.loading import load
from lakepact.pipelines.positions import Progress, runs_document
from lakepact.pipelines.reports import EventKind, Report
from lakepact.pipelines.results import CheckResult, RunResult, StageResult, State, source_of
from lakepact.pipelines.sqltables import quoted
from lakepact.pipelines.stage import Work, cross_checks, perform
from lakepact.spark import SparkLake, connect
from lakepact.spark.errors import is_outage, root_message
from lakepact.spark.settings import PREFIX

Event: TypeAlias = Callable[[str, EventKind, StageResult | None], None]
"""Called for every stage, and for the run as a whole: that it is done again, that it is now committed. A stage `waits`
if it was found to read a table of the run that is not complete; it begins again."""

_log = logging.getLogger(__name__)

_RUN_ID: Final = re.compile(r"[\x21-\x7e]{1,100}")


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a run."""

    run_id: str
    params: Mapping[str, str] = field(default_factory=dict)
    from_scratch: Sequence[str] = ()
    dry_run: bool = False


def run(
    pipeline: Pipeline | str | Path,
    lake: SparkLake | SparkSession,
    *,
    run_id: str | None = None,
    params: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
    from_scratch: Sequence[str] = (),
    dry_run: bool = False,
    on_event: Event | None = None,
) -> RunResult:
    """Run a pipeline, or the part that makes `only` these.

    The same `run_id` is committed once: a second run under it changes nothing and says so. Stages named in
    `from_scratch` forget what they have read so far, and replace the rows of their tables in this commit. A `dry_run`
    does everything, the checks too, and aborts instead of committing.

    Raises `InvalidPipeline` before anything runs; `CheckFailed`, `StageFailed`, `PositionLost`; `Conflict` after the
    last attempt; `Unavailable`; and `Unknown`, upon which the same run id settles what happened.
    """
    given = dict(params or {})
    found = pipeline if isinstance(pipeline, Pipeline) else load(pipeline, given)
    graph = found.graph()
    if only:
        graph = graph.only(only, found.namespace)
    there = lake if isinstance(lake, SparkLake) else connect(lake)
    forgetful = tuple(_named(name, graph, found.namespace) for name in from_scratch)
    wish = Wish(_checked(run_id) or new_id(ThisMachine()), given, forgetful, dry_run)
    return Runner(found, graph, there, wish, on_event or (lambda stage, what, result: None)).run()


class Runner:
    """One run, in as many attempts as it takes."""

    def __init__(self, pipeline: Pipeline, graph: Graph, lake: SparkLake, wish: Wish, on_event: Event) -> None:
        self._pipeline = pipeline
        self._graph = graph
        self._lake = lake
        self._wish = wish
        self._on_event = on_event
        self._document = runs_document(pipeline.name)
        self._left_out = pipeline.graph().left_out_of(graph)
        self._outages = lake.plain.outages()

    def run(self) -> RunResult:
        began, pipeline = time.perf_counter(), self._pipeline
        self._graph = _with_session_views(self._graph, self._lake, pipeline.namespace)
        retry = Retry(pipeline.attempts, first_pause_s=0.1)
        attempt = 1
        while True:
            try:
                # The cheap way to find out. What makes it certain is the same question inside the transaction.
                known = self._lake.plain.state.get(self._document)
                if known is not None and (earlier := Progress.from_json(known.value).transaction_of(self._wish.run_id)):
                    return self._already(earlier, began, attempt)
                with by_thread():
                    result = self._reported(began, attempt)
                return replace(result, seconds=time.perf_counter() - began, attempts=attempt)
            except Conflict:
                if attempt >= pipeline.attempts:
                    raise
            except Exception as error:
                # Nothing of it is committed, or it is under this run id, which the next attempt finds.
                if not self._is_over(error):
                    if isinstance(error, LakepactError):
                        raise
                    raise RunFailed(
                        f"the run failed, and nothing of it was published: {root_message(error)}"
                    ) from error
            self._on_event(pipeline.name, "again", None)
            time.sleep(retry.pause_s(attempt, random.random()))
            attempt += 1

    def _is_over(self, error: BaseException) -> bool:
        """Whether this is an outage of the server, and it answers again within a minute."""
        return is_outage(error) and self._outages.wait()

    def _reported(self, began: float, attempt: int) -> RunResult:
        """One attempt, and what it tells the server of itself, however it ends."""
        pipeline = self._pipeline
        report = Report(pipeline.name, self._wish.run_id, self._graph, attempt, samples=pipeline.samples)
        begun: list[str] = []
        try:
            result = self._attempt(began, report, begun)
        except Exception as error:
            if begun:
                report.gave_up(self._lake, begun[0], error)
            raise
        if begun and result.state is not State.ALREADY_COMMITTED:
            report.succeeded(self._lake, begun[0], result)
        return result

    def _attempt(self, began: float, report: Report, begun: list[str]) -> RunResult:
        wish, pipeline = self._wish, self._pipeline
        told = {"pipeline": pipeline.name, "run-id": wish.run_id}
        transaction = self._lake.transaction(
            isolation=pipeline.isolation,
            properties=told,
            summary={f"lakepact.{name}": value for name, value in told.items()},
            conf=self._conf(),
        )
        with transaction as tx:
            begun.append(tx.id)
            document = tx.state.get(self._document)
            progress = Progress.from_json(document.value)
            earlier = progress.transaction_of(wish.run_id)
            if earlier is not None:
                tx.abort()
                return self._already(earlier, began, 1)
            work = Work(
                tx,
                self._lake.spark,
                self._graph,
                pipeline.namespace,
                wish.params,
                progress.without(self._forgotten(progress)),
                wish.from_scratch,
                self._left_out,
            )
            self._create_namespace(work)
            stages = self._stages(work, report)
            checks = (*(check for stage in stages for check in stage.checks), *self._cross_checks(work))
            work.check_reads()
            inputs = inputs_of(self._lake, tx, work.reads, work.staged())
            result = RunResult(pipeline.name, wish.run_id, State.DRY_RUN, None, 0.0, 1, stages, checks, inputs)
            if wish.dry_run:
                tx.abort()
                return result
            after = work.progress.after(wish.run_id, tx.id, work.positions)
            tx.state.put(self._document, after.to_json(), revision=document.revision)
            self._on_event(pipeline.name, "committing", None)
            graph = work.graph
            views = {name: graph.made_of(name) for name, step in graph.steps.items() if step.dataset.is_view}
            tx.commit(source_of(pipeline.name, wish.run_id, checks, inputs, tuple(graph.steps), views))
        return replace(result, state=State.COMMITTED, transaction_id=tx.id)

    def _forgotten(self, progress: Progress) -> set[str]:
        """The stages whose positions a run from scratch forgets: those named, and the views that they read.

        Raises `InvalidPipeline` if such a view reads what is new for other tables as well: they would get all of its
        rows a second time.
        """
        named = set(self._wish.from_scratch)
        views: set[str] = set()
        waiting = list(named)
        while waiting:
            step = self._graph.steps[waiting.pop()]
            if step.dataset.is_view:
                views.add(step.name)
            waiting += [
                one
                for one in step.reads
                if one in self._graph.steps and one not in views and self._graph.steps[one].dataset.is_view
            ]
        for view in sorted(views & progress.positions.keys()):
            others = sorted(self._graph.made_of(view) - named)
            if others:
                raise InvalidPipeline(
                    f"{', '.join(sorted(named))} cannot begin from scratch alone: view {view} reads what is new, also "
                    f"for {', '.join(others)}, which would get all rows of it a second time. Name all of them: "
                    f"{' '.join(f'--from-scratch {one}' for one in sorted({*named, *others} - views))}"
                )
        return named | views

    def _already(self, transaction_id: str, began: float, attempt: int) -> RunResult:
        seconds = time.perf_counter() - began
        return RunResult(
            self._pipeline.name, self._wish.run_id, State.ALREADY_COMMITTED, transaction_id, seconds, attempt
        )

    def _conf(self) -> dict[str, str]:
        """Settings of the sessions inside: names without a namespace are the pipeline's.

        As after `USE`, which would be a statement and a request of its own.
        """
        namespace = self._pipeline.namespace
        return {} if namespace is None else {f"{PREFIX}{self._lake.catalog}.default-namespace": namespace}

    def _create_namespace(self, work: Work) -> None:
        """Create the pipeline's own namespace, if no output is in it. Those of outputs are created by their stages."""
        own = self._pipeline.namespace
        if own is not None and own not in {name.rpartition(".")[0] for name in self._graph.tables}:
            work.create_namespace(own)

    # --- side by side ---

    def _stages(self, work: Work, report: Report) -> tuple[StageResult, ...]:
        done: dict[str, StageResult] = {}
        under_way: dict[Future[StageResult], str] = {}
        tag = f"lakepact-{work.tx.id}"
        with ThreadPoolExecutor(self._pipeline.parallel, thread_name_prefix="lakepact-stage") as threads:
            try:
                while len(done) < len(work.graph.steps):
                    for name in work.graph.ready(done, {*done, *under_way.values()}):
                        under_way[threads.submit(self._stage, work, name, tag, report)] = name
                    finished, _ = wait(under_way, return_when=FIRST_COMPLETED)
                    for future in finished:
                        name = under_way.pop(future)
                        try:
                            done[name] = future.result()
                        except UndeclaredInput as found:
                            # Nothing of it is written yet: it is called again once that input is complete.
                            work.graph = report.graph = work.graph.with_input(found.stage, found.name)
                            _log.warning("%s. It is called again once %s is complete", found, found.name)
                        except (Unavailable, Unknown) as error:
                            # What has not begun to write is called again in the same transaction, all else in another.
                            if name in work.writing or not self._is_over(error):
                                raise
                            _log.warning("stage %s is called again after an outage: %s", name, error)
            except BaseException:
                # Whoever is still at it works for nothing. Waiting for the threads is left to the block's end.
                for future in under_way:
                    future.cancel()
                self._lake.spark.sparkContext.cancelJobsWithTag(tag)
                raise
        return tuple(done[name] for name in work.graph.steps)

    def _stage(self, work: Work, name: str, tag: str, report: Report) -> StageResult:
        self._lake.spark.sparkContext.addJobTag(tag)
        self._tell(report, name, "begun")
        try:
            result = perform(work, work.graph.steps[name])
        except (UndeclaredInput, Unavailable, Unknown):
            self._tell(report, name, "waits")
            raise
        except BaseException:
            self._tell(report, name, "failed")
            raise
        self._tell(report, name, "done", result)
        return result

    def _tell(self, report: Report, stage: str, what: EventKind, result: StageResult | None = None) -> None:
        """Pass an event of a stage to everybody who listens: the report, and the caller of the run."""
        for listener in (report.on_event, self._on_event):
            listener(stage, what, result)

    def _cross_checks(self, work: Work) -> tuple[CheckResult, ...]:
        steps = [step for step in self._graph.steps.values() if step.cross_checks]
        with ThreadPoolExecutor(self._pipeline.parallel, thread_name_prefix="lakepact-check") as threads:
            found = list(threads.map(lambda step: cross_checks(work, step), steps))
        results = [result for one in found for result in one]
        failed = [result for result in results if not result.holds]
        if failed:
            raise CheckFailed(failed)
        return tuple(results)


def _with_session_views(graph: Graph, lake: SparkLake, namespace: str | None) -> Graph:
    """The graph, reading temporary views of the session where an input without a namespace is no table.

    Raises `InvalidPipeline` if an input is neither in the lake nor in the session, nor in another catalog of it.
    """
    missing = [
        name
        for name in graph.externals
        if not _other_catalog(name, lake) and ("." not in name or not _exists(name, lake)) and not _is_view(name, lake)
    ]
    prefix = f"{namespace}."
    views = {
        name: bare
        for name in missing
        if name.startswith(prefix) and _is_temporary_view(bare := name.removeprefix(prefix), lake)
    }
    unknown = [name for name in missing if name not in views]
    if unknown:
        readers = {one: [step.name for step in graph.steps.values() if one in step.reads] for one in unknown}
        listed = "; ".join(f"{one} (read by {', '.join(names) or 'a check'})" for one, names in readers.items())
        raise InvalidPipeline(
            f"unknown inputs: {listed}. They are neither declared here nor in {lake.plain.warehouse}, nor temporary "
            f"views of the session"
        )
    return graph.renamed(views) if views else graph


def _is_view(name: str, lake: SparkLake) -> bool:
    """Whether it is a view of the lake. Only Spark can read one, and only its analysis tells."""
    try:
        return bool(lake.spark.table(f"{quoted(lake.catalog)}.{quoted(name)}").schema)
    except AnalysisException:
        return False


def _is_temporary_view(name: str, lake: SparkLake) -> bool:
    if "." in name:
        return False
    try:
        return bool(lake.spark.catalog.getTable(name).isTemporary)
    except AnalysisException:
        return False


def _exists(name: str, lake: SparkLake) -> bool:
    """Whether there is a table of this name in the lake. Stages find out of which format it is without asking again."""
    identifier = tuple(name.split("."))
    is_delta = identifier in lake.delta_names and lake.plain.delta.exists(name)
    if not is_delta and lake.plain.tables.exists(name):
        lake.delta_names.discard(identifier)
        return True
    if is_delta or lake.plain.delta.exists(name):
        lake.delta_names.add(identifier)
        return True
    return False


def _other_catalog(name: str, lake: SparkLake) -> bool:
    first, _, rest = name.partition(".")
    if not rest:
        return lake.spark.catalog.tableExists(name)
    if first == lake.catalog and "." in rest:
        raise InvalidPipeline(f"{name}: leave the catalog out, {rest!r} is the table of the run")
    return first == "spark_catalog" or lake.spark.conf.get(f"spark.sql.catalog.{first}", None) is not None


def _named(name: str, graph: Graph, namespace: str | None) -> str:
    for found in (name, f"{namespace}.{name}"):
        if found in graph.steps:
            return found
    raise InvalidPipeline(f"there is no stage {name} in this run. It has {', '.join(graph.steps)}")


def _checked(run_id: str | None) -> str | None:
    if run_id is not None and _RUN_ID.fullmatch(run_id) is None:
        raise InvalidPipeline(f"{run_id!r} is no run id: 1 to 100 letters, digits and signs, without spaces")
    return run_id
