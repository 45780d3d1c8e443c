"""What a pipeline can fail with. Whatever it is, nothing of the run was published.

LakepactError
├── InvalidRequest
│   └── InvalidPipeline    the declarations contradict themselves, or name what is not there; nothing has run
└── RunFailed              the run was given up; nothing was published
    ├── CheckFailed        an expectation does not hold on the staged data
    ├── StageFailed        the function or SQL of a stage failed
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


class RunFailed(LakepactError):
    """The run was given up, and nothing of it was published."""

    type: ClassVar[str] = "run-failed"


class StageFailed(RunFailed):
    """The function or SQL of a stage failed."""

    type: ClassVar[str] = "stage-failed"

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(f"stage {stage} failed, and nothing of the run was published: {reason}")
        self.stage = stage


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
