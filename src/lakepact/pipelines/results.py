"""What came of the checks, the stages and the run: plain values, for people, for programs and for receipts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

_MOST_CHECKS: Final = 500
"""In a commit. They are kept in the transaction's record, which is a document and not a log."""


class Status(StrEnum):
    """Of one check."""

    PASSED = "passed"
    WARNED = "warned"
    DROPPED = "dropped"
    """Rows that did not meet it were left out, no more than was tolerated."""

    FAILED = "failed"


class State(StrEnum):
    """Of a run."""

    COMMITTED = "committed"
    ALREADY_COMMITTED = "already-committed"
    """An earlier attempt under the same run id did it; this one has changed nothing."""

    DRY_RUN = "dry-run"


@dataclass(frozen=True, slots=True)
class CheckResult:
    table: str
    name: str
    kind: str
    status: Status
    severity: str
    rows: int
    """How many rows were looked at."""

    violations: int
    tolerated: float | None
    message: str
    sample: tuple[str, ...] = field(default=(), repr=False)
    """Some of the rows that do not meet it, as JSON. They stay with whoever ran it: receipts hold figures only."""

    @property
    def holds(self) -> bool:
        return self.status is not Status.FAILED

    def to_json(self) -> dict[str, Any]:
        """For receipts."""
        return {
            "table": self.table,
            "name": self.name,
            "kind": self.kind,
            "status": self.status.value,
            "severity": self.severity,
            "rows": self.rows,
            "violations": self.violations,
            **({} if self.tolerated is None else {"tolerated": self.tolerated}),
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """What a stage has added to its table, by the table's own snapshots."""

    rows: int = 0
    files: int = 0
    bytes: int = 0
    removed_rows: int = 0


@dataclass(frozen=True, slots=True)
class StageResult:
    name: str
    target: str | None
    """None: a view, which is computed where it is used."""

    mode: str
    seconds: float
    figures: Figures
    checks: tuple[CheckResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """A table that the run has read, at the snapshot it saw."""

    table: str
    uuid: str | None
    snapshot_id: int | None
    used_by: tuple[str, ...]
    """The stages that name it; none if it was found only in what the transaction has loaded."""

    since_snapshot_id: int | None = None
    """Where the last run had stopped, if only what was added since was read."""

    version: int | None = None
    """Of a Delta table, which has versions and no snapshots."""

    staged: bool = False
    """Whether this version was made by the same run."""

    def to_json(self) -> dict[str, Any]:
        # Ids of snapshots have 64 bits, which not every reader of JSON has.
        known = {
            "table-uuid": self.uuid,
            "snapshot-id": _text(self.snapshot_id),
            "since-snapshot-id": _text(self.since_snapshot_id),
            "version": self.version,
        }
        return {
            "table": self.table,
            "used-by": list(self.used_by),
            **({"staged": True} if self.staged else {}),
            **{name: value for name, value in known.items() if value is not None},
        }


@dataclass(frozen=True, slots=True)
class RunResult:
    pipeline: str
    run_id: str
    state: State
    transaction_id: str | None
    seconds: float
    attempts: int
    stages: tuple[StageResult, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    """All of them, those between tables too."""

    inputs: tuple[Input, ...] = ()

    @property
    def quality(self) -> str:
        return quality(self.checks)


def quality(checks: Iterable[CheckResult]) -> str:
    """One word for a set of checks: `not-checked`, `passed`, `warned` or `failed`.

    `warned`: rows violate an expectation that does not fail the run, or were left out by one.
    """
    found = {check.status for check in checks}
    if not found:
        return "not-checked"
    if Status.FAILED in found:
        return "failed"
    return "passed" if found == {Status.PASSED} else "warned"


def source_of(
    pipeline: str,
    run_id: str,
    checks: tuple[CheckResult, ...],
    inputs: tuple[Input, ...] | None,
    stages: tuple[str, ...],
    views: Mapping[str, Collection[str]] | None = None,
) -> Mapping[str, Any]:
    """Who commits, for the receipts. The server gives each table the inputs and checks that are its own.

    `inputs`: None if what was read was not observed. `views`: the tables that are made of each view of the run; checks
    of a view are theirs.
    """
    used_by = {view: sorted(tables) for view, tables in (views or {}).items()}
    return {
        "kind": "pipeline",
        "pipeline": pipeline,
        "run-id": run_id,
        "stages": list(stages),
        "quality": quality(checks),
        "checks": [
            {**check.to_json(), **({"used-by": used_by[check.table]} if check.table in used_by else {})}
            for check in _bounded(checks)
        ],
        **({} if inputs is None else {"inputs": [one.to_json() for one in inputs]}),
    }


def _bounded(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """At most so many as a commit takes. The worst check of each table stays: the table's quality follows from it."""
    if len(checks) <= _MOST_CHECKS:
        return list(checks)
    order = (Status.FAILED, Status.DROPPED, Status.WARNED, Status.PASSED)
    by_status = sorted(checks, key=lambda check: order.index(check.status))
    worst = {check.table: check for check in reversed(by_status)}
    others = [check for check in by_status if worst[check.table] is not check]
    return [*worst.values(), *others][:_MOST_CHECKS]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
