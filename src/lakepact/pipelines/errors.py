"""What a pipeline can fail with. Whatever it is, nothing of the run was published.

LakepactError
├── InvalidRequest
│   └── InvalidPipeline    the declarations contradict themselves, or name what is not there; nothing has run
│       └── UndeclaredInput    a stage reads a dataset of the same run that it does not declare as an input
└── RunFailed              the run was given up; nothing was published
    ├── CheckFailed        an expectation does not hold on the staged data
    ├── StageFailed        the function or SQL of a stage failed
    ├── StaleRead          a stage read the version from before the run of a table that the run writes
    └── PositionLost       what was added since the last run can no longer be told
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from lakepact.errors import InvalidRequest, LakepactError
from lakepact.pipelines.results import CheckResult

_SAMPLE_LINES: Final = 5


class InvalidPipeline(InvalidRequest):
    """The declarations contradict themselves, or name what is not there. Nothing has run."""

    type: ClassVar[str] = "invalid-pipeline"


class UndeclaredInput(InvalidPipeline):
    """A stage reads a dataset of the same run that is not complete yet, because no edge of the graph orders the two.

    The runner catches it: it adds the edge and calls the stage again once the input is complete.
    """

    type: ClassVar[str] = "undeclared-input"

    def __init__(self, stage: str, name: str) -> None:
        super().__init__(
            f"{stage} reads {name}, which this run writes, and does not declare it as an input. Declare it: "
            f"inputs=[{name!r}]"
        )
        self.stage = stage
        self.name = name


class RunFailed(LakepactError):
    """The run was given up, and nothing of it was published."""

    type: ClassVar[str] = "run-failed"


class StageFailed(RunFailed):
    """The function or SQL of a stage failed."""

    type: ClassVar[str] = "stage-failed"

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage} failed, and nothing of the run was published: {reason}")
        self.stage = stage


class StaleRead(RunFailed):
    """A stage read the version from before the run of a table that the run writes, so its outputs would disagree."""

    type: ClassVar[str] = "stale-read"

    def __init__(self, stage: str, table: str, read: str, staged: str) -> None:
        super().__init__(
            f"stage {stage} reads {table} at {read}, and this run has staged {table} at {staged}: its outputs would "
            f"disagree, so nothing of the run is published. The query comes from outside of the run's transaction, for "
            f"example a temporary view, a cached DataFrame or another session. Read the table inside the stage, with "
            f"dp.read({table!r}), and declare it: inputs=[{table!r}]"
        )
        self.stage = stage
        self.table = table


class PositionLost(RunFailed):
    """What was added to an input since the last run can no longer be told."""

    type: ClassVar[str] = "position-lost"


class CheckFailed(RunFailed):
    """An expectation does not hold on the staged data. `results` has the figures and some of the rows."""

    type: ClassVar[str] = "check-failed"

    def __init__(self, results: Sequence[CheckResult]) -> None:
        super().__init__("\n".join([_headline(results), *(line for result in results for line in _told(result))]))
        self.results = tuple(results)


def _headline(results: Sequence[CheckResult]) -> str:
    count = "an expectation does" if len(results) == 1 else f"{len(results)} expectations do"
    return f"{count} not hold, and nothing of the run was published:"


def _told(result: CheckResult) -> list[str]:
    lines = [f"  {result.table}: {result.name}: {result.message}"]
    return lines + [f"    {row}" for row in result.sample[:_SAMPLE_LINES]]
