"""What a run tells of itself once it has ended: a document that the server keeps for people to read.

Stages with their durations and figures, checks with some of the rows that do not meet them, what was read, and why it
failed if it did. Telling is a courtesy: it is tried once, and a run never fails, waits or is repeated for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final, Literal, TypeAlias

import orjson

from lakepact.client import Conflict, Unknown
from lakepact.errors import LakepactError
from lakepact.pipelines.errors import CheckFailed
from lakepact.pipelines.graph import Graph
from lakepact.pipelines.results import CheckResult, Input, RunResult, StageResult
from lakepact.spark import SparkLake

EventKind: TypeAlias = Literal["begun", "waits", "done", "failed", "again", "committing"]

_MOST_BYTES: Final = 1_000_000
"""The server takes a little more. A report that is larger goes without its rows."""

_MOST_CHECKS: Final = 1_000
NOT_RUN: Final = "not-run"
"""The status of a check that the run did not come to."""

_MOST_MESSAGE: Final = 8_000

_log = logging.getLogger(__name__)


class Report:
    """One attempt at a run, written down as it happens."""

    def __init__(self, pipeline: str, run_id: str, graph: Graph, attempt: int, *, samples: bool) -> None:
        self._pipeline = pipeline
        self._run_id = run_id
        self.graph = graph
        self._attempt = attempt
        self._samples = samples
        self._began_s = time.monotonic()
        self._lock = Lock()
        self._begun: dict[str, float] = {}
        self._done: dict[str, StageResult] = {}
        self._failed: dict[str, float] = {}

    def on_event(self, stage: str, what: EventKind, result: StageResult | None) -> None:
        """Record an event of a stage. A stage that `waits` begins again once what it reads is complete."""
        with self._lock:
            match what:
                case "begun":
                    self._begun[stage] = time.monotonic()
                case "waits":
                    self._begun.pop(stage, None)
                case "done" if result is not None:
                    self._done[stage] = result
                case "failed":
                    self._failed[stage] = time.monotonic() - self._begun.get(stage, self._began_s)
                case _:
                    pass

    def succeeded(self, lake: SparkLake, transaction_id: str, result: RunResult) -> None:
        self._tell(lake, transaction_id, result.state.value, result.checks, result.inputs, None)

    def gave_up(self, lake: SparkLake, transaction_id: str, error: BaseException) -> None:
        checks = [check for stage in self._done.values() for check in stage.checks]
        if isinstance(error, CheckFailed):
            checks += [one for one in error.results if one not in checks]
        # What was read is known at the end of a run: this one has none, and claims nothing.
        self._tell(lake, transaction_id, _state(error), checks, None, error)

    def _tell(
        self,
        lake: SparkLake,
        transaction_id: str,
        state: str,
        checks: Sequence[CheckResult],
        inputs: Sequence[Input] | None,
        error: BaseException | None,
    ) -> None:
        document = self.document(state, checks, inputs, error, samples=self._samples)
        if len(orjson.dumps(document)) > _MOST_BYTES:
            document = self.document(state, checks, inputs, error, samples=False)
        try:
            lake.plain.transactions.report(transaction_id, document)
        except LakepactError as failure:
            _log.info("the report of run %s could not be left: %s", self._run_id, failure)

    def document(
        self,
        state: str,
        checks: Sequence[CheckResult],
        inputs: Sequence[Input] | None,
        error: BaseException | None,
        *,
        samples: bool,
    ) -> dict[str, Any]:
        """What it would tell now. `inputs`: what was read, or None if the run ended before that was known."""
        return {
            "pipeline": self._pipeline,
            "run-id": self._run_id,
            "state": state,
            "attempt": self._attempt,
            "seconds": round(time.monotonic() - self._began_s, 3),
            "stages": [self._stage(name) for name in self.graph.steps],
            "checks": [*(_check(check, samples=samples) for check in checks), *self._not_run(checks)][:_MOST_CHECKS],
            **({} if inputs is None else {"inputs": [one.to_json() for one in inputs]}),
            "error": None
            if error is None
            else {"type": type(error).__name__, "message": _message(error, samples=samples)},
        }

    def _not_run(self, checks: Sequence[CheckResult]) -> list[dict[str, Any]]:
        """Those that it did not come to."""
        came = {(check.table, check.name) for check in checks}
        declared = ((name, check) for name, step in self.graph.steps.items() for check in step.dataset.checks)
        return [
            {"table": name, "name": check.name, "kind": check.kind, "status": NOT_RUN, "severity": check.severity}
            for name, check in declared
            if (name, check.name) not in came
        ]

    def _stage(self, name: str) -> Mapping[str, Any]:
        step = self.graph.steps[name]
        told: dict[str, Any] = {
            "name": name,
            "target": None if step.dataset.is_view else name,
            "kind": step.dataset.kind.value,
            "mode": None if step.dataset.is_view else step.dataset.mode,
            "reads": list(step.reads),
        }
        result = self._done.get(name)
        if result is not None:
            figures = result.figures
            done = {**told, "state": "done", "seconds": round(result.seconds, 3)}
            if step.dataset.is_view:
                # It is computed where it is used, and leaves no rows of its own.
                return done
            return {
                **done,
                "rows": figures.rows,
                "files": figures.files,
                "bytes": figures.bytes,
                "removed-rows": figures.removed_rows,
            }
        if name in self._failed:
            return {**told, "state": "failed", "seconds": round(self._failed[name], 3)}
        return {**told, "state": "begun" if name in self._begun else "waiting"}


def _check(check: CheckResult, *, samples: bool) -> dict[str, Any]:
    told = {**check.to_json(), "message": check.message[:_MOST_MESSAGE]}
    return {**told, "sample": list(check.sample)} if samples and check.sample else told


def _message(error: BaseException, *, samples: bool) -> str:
    """A failed check's message ends with rows: without samples it is cut before them."""
    if isinstance(error, CheckFailed) and not samples:
        return "; ".join(f"{one.table}: {one.name}: {one.message}" for one in error.results)[:_MOST_MESSAGE]
    return str(error)[:_MOST_MESSAGE]


def _state(error: BaseException) -> str:
    if isinstance(error, Conflict):
        return "conflict"
    return "unknown" if isinstance(error, Unknown) else "failed"
