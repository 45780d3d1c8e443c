"""A run of a project: one transaction, held here, while the project runs in a process beside.

    begun ── the project has run in it ── checkpoints and run id written ── committed
      ╰────────────────╰───────────────────────────╰── aborted: nothing was ever visible

What holds for declared pipelines holds here: all tables or none, the same run id once, again when others were faster or
the server was away for up to a minute.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from lakepact.client import Conflict, Lake, LoadedTable, NotFound, Transaction, Unavailable, Unknown
from lakepact.client.machine import Retry
from lakepact.client.names import Identifier, shown
from lakepact.pipelines.errors import InvalidPipeline, StageFailed
from lakepact.pipelines.positions import Progress, runs_document
from lakepact.pipelines.projects.checkpoints import Generations, checkpoints_document, generation
from lakepact.pipelines.projects.driver import Order, Outcome
from lakepact.pipelines.projects.project import Project
from lakepact.pipelines.results import RunResult, StageResult, State, source_of
from lakepact.pipelines.tables import IcebergState
from lakepact.spark.settings import catalog_settings, conf, merged
from lakepact.spark.transaction import SUMMARY, TRANSACTION_ID

_log = logging.getLogger(__name__)

ATTEMPTS: Final = 3
_DRIVER: Final = "lakepact.pipelines.projects.driver"
_END_S: Final = 30.0
_STANDARD_ERROR: Final = 2
_FLOW_RETRIES: Final = "spark.sql.pipelines.maxFlowRetryAttempts"


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of a run."""

    run_id: str
    only: Sequence[str] = ()
    from_scratch: Sequence[str] = ()
    dry_run: bool = False
    master: str | None = None
    token: str | None = None
    jars: str | Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


def run_project(project: Project, lake: Lake, wish: Wish) -> RunResult:
    """Raises `InvalidPipeline`, `StageFailed`, `Conflict` after the last attempt, `Unavailable`; and `Unknown`, upon
    which the same run id settles what happened."""
    return ProjectRun(project, lake, wish).run()


class ProjectRun:
    def __init__(self, project: Project, lake: Lake, wish: Wish) -> None:
        self._project = project
        self._lake = lake
        self._wish = wish
        self._runs = runs_document(project.name)
        self._checkpoints = checkpoints_document(project.name)
        self._given_up: list[str] = []
        """Generations of attempts that were certainly not committed."""

    def run(self) -> RunResult:
        began = time.perf_counter()
        retry, outages = Retry(ATTEMPTS, first_pause_s=0.1), self._lake.outages()
        attempt = 1
        while True:
            try:
                known = self._lake.state.get(self._runs)
                if known is not None and (earlier := Progress.from_json(known.value).transaction_of(self._wish.run_id)):
                    return self._already(earlier, time.perf_counter() - began, attempt)
                result = self._attempt()
                return replace(result, seconds=time.perf_counter() - began, attempts=attempt)
            except Conflict:
                if attempt >= ATTEMPTS:
                    raise
            except (Unavailable, Unknown) as error:
                # Nothing of it is committed, or it is under this run id, which the next attempt finds.
                if not outages.wait():
                    raise
                _log.warning("the run of %s is repeated after an outage: %s", self._project.name, error)
            time.sleep(retry.pause_s(attempt, random.random()))
            attempt += 1

    def _attempt(self) -> RunResult:
        wish, project = self._wish, self._project
        told = {"pipeline": project.name, "run-id": wish.run_id}
        with self._lake.transaction(isolation="snapshot", properties=told) as tx:
            runs, checkpoints = tx.state.get(self._runs), tx.state.get(self._checkpoints)
            progress = Progress.from_json(runs.value)
            earlier = progress.transaction_of(wish.run_id)
            if earlier is not None:
                tx.abort()
                return self._already(earlier, 0.0, 1)
            tx.namespaces.create(project.database, exist_ok=True)
            generations = Generations.from_json(checkpoints.value)
            outcome = self._beside(self._order(tx, generations, told))
            own = generation(project.storage, tx.id)
            self._given_up.append(own)
            _raise_failed(outcome, project)
            stages = self._stages(tx)
            result = RunResult(project.name, wish.run_id, State.DRY_RUN, None, 0.0, 1, stages)
            if wish.dry_run:
                tx.abort()
                return result
            if outcome.streams:
                tx.state.put(self._checkpoints, generations.after(tx.id), revision=checkpoints.revision)
            tx.state.put(self._runs, progress.after(wish.run_id, tx.id, {}).to_json(), revision=runs.revision)
            # A commit without an answer may have been applied: then its checkpoints are needed.
            self._given_up.remove(own)
            try:
                tx.commit(source_of(project.name, wish.run_id, (), None, tuple(stage.name for stage in stages)))
            except (Conflict, Unavailable):
                self._given_up.append(own)
                raise
        return replace(result, state=State.COMMITTED, transaction_id=tx.id)

    def _already(self, transaction_id: str, seconds: float, attempt: int) -> RunResult:
        return RunResult(
            self._project.name, self._wish.run_id, State.ALREADY_COMMITTED, transaction_id, seconds, attempt
        )

    # --- the process beside ---

    def _order(self, tx: Transaction, generations: Generations, told: Mapping[str, str]) -> Order:
        wish, project = self._wish, self._project
        gone = [] if generations.previous is None else [generation(project.storage, generations.previous)]
        return Order(
            file=str(project.file),
            catalog=project.catalog,
            database=project.database,
            conf=self._conf(tx, told),
            begins_at=generations.begins_at(project.storage),
            storage=generation(project.storage, tx.id),
            report="",
            keep=not wish.dry_run,
            forgotten=[*gone, *self._given_up],
            refresh=list(wish.only),
            full_refresh=list(wish.from_scratch),
        )

    def _conf(self, tx: Transaction, told: Mapping[str, str]) -> dict[str, str]:
        import pyspark

        wish, project = self._wish, self._project
        own = conf(tx.uri, warehouse=tx.warehouse, catalog=project.catalog, token=wish.token, jars=wish.jars)
        others = {**project.configuration, **wish.settings}
        summary = {TRANSACTION_ID: tx.id, **{f"lakepact.{name}": value for name, value in told.items()}}
        inside = {
            **catalog_settings(project.catalog, tx.uri, tx.warehouse, wish.token).to_conf(),
            "spark.sql.defaultCatalog": project.catalog,
            f"spark.sql.catalog.{project.catalog}.default-namespace": project.database,
            # Spark would repeat a flow whose write may have been staged. The run as a whole can be repeated instead.
            _FLOW_RETRIES: "0",
            **{SUMMARY + name: value for name, value in summary.items()},
            **({} if wish.master is None else {"spark.master": wish.master}),
        }
        return {"spark.app.name": project.name, **merged(own, others, pyspark.__version__), **inside}

    def _beside(self, order: Order) -> Outcome:
        """Run the project. What it prints goes to this process's standard error."""
        with tempfile.TemporaryDirectory(prefix="lakepact-run-") as folder:
            report = Path(folder) / "outcome.json"
            process = subprocess.Popen(
                [sys.executable, "-m", _DRIVER],
                stdin=subprocess.PIPE,
                stdout=_STANDARD_ERROR,
                env=_environment(),
                text=True,
            )
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(asdict(replace(order, report=str(report)))) + "\n")
                process.stdin.flush()
                code = process.wait()
            finally:
                _end(process)
            if not report.exists():
                return Outcome(f"its process ended with {code} and did not say why")
            return Outcome(**json.loads(report.read_text(encoding="utf-8")))

    # --- what came of it ---

    def _stages(self, tx: Transaction) -> tuple[StageResult, ...]:
        """One for each table that was written, by what the server says."""
        changes = self._lake.transactions.get(tx.id).changes
        written = sorted({one.table for one in changes if one.access == "write" and one.table is not None})
        found = []
        for identifier in written:
            after = _loaded(tx, identifier)
            if after is not None:
                name, before = shown(identifier), _loaded(self._lake, identifier)
                figures = IcebergState(after).figures(None if before is None else IcebergState(before))
                found.append(StageResult(name, name, "project", 0.0, figures))
        return tuple(found)


def _raise_failed(outcome: Outcome, project: Project) -> None:
    if outcome.error is None:
        return
    if outcome.invalid:
        raise InvalidPipeline(f"{project.file}: {outcome.error}")
    if outcome.outage:
        raise Unavailable(f"the server did not answer while {project.name} ran: {outcome.error}")
    if outcome.conflict:
        raise Conflict(outcome.error, status=409, server_type="CommitFailedException")
    raise StageFailed(project.name, outcome.error)


def _loaded(place: Lake | Transaction, identifier: Identifier) -> LoadedTable | None:
    try:
        return place.tables.load(identifier)
    except NotFound:
        return None


def _environment() -> dict[str, str]:
    """Without what would make Spark a client of somebody else's."""
    foreign = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE", "PYSPARK_GATEWAY_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def _end(process: subprocess.Popen[str]) -> None:
    """It ends when its input does; if not, it is ended."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
