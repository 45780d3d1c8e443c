"""A pipeline: what was declared, and how it wants to be run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from lakepact.pipelines.context import declaring
from lakepact.pipelines.declared import Dataset, Flow, Isolation
from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.expectations import Check
from lakepact.pipelines.graph import Graph, build

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEFAULT_PARALLEL: Final = 4
DEFAULT_ATTEMPTS: Final = 3


class Pipeline:
    """Declarations, collected in their order.

        with dp.Pipeline("shop", namespace="shop") as pipeline:
            @dp.table
            def orders(): ...

    A file that is run with `lakepact run` needs no such block: its pipeline is named after it.
    """

    def __init__(
        self,
        name: str,
        *,
        namespace: str | None = None,
        isolation: Isolation = "snapshot",
        parallel: int = DEFAULT_PARALLEL,
        attempts: int = DEFAULT_ATTEMPTS,
        samples: bool = True,
    ) -> None:
        self.name = ""
        self.namespace: str | None = None
        self.isolation: Isolation = "snapshot"
        self.parallel = DEFAULT_PARALLEL
        self.attempts = DEFAULT_ATTEMPTS
        self.samples = samples
        self.configure(name, namespace=namespace, isolation=isolation, parallel=parallel, attempts=attempts)
        self._datasets: list[Dataset] = []
        self._flows: list[Flow] = []
        self._checks: list[tuple[str, Check]] = []
        self._block: AbstractContextManager[None] | None = None

    def configure(
        self,
        name: str | None = None,
        *,
        namespace: str | None = None,
        isolation: Isolation | None = None,
        parallel: int | None = None,
        attempts: int | None = None,
        samples: bool | None = None,
    ) -> None:
        """Change what is given. `samples`: whether reports of runs hold some of the rows that a check found wanting,
        for others to see. The name is that of its positions: renamed, a pipeline begins anew."""
        if name is not None and _NAME.fullmatch(name) is None:
            raise InvalidPipeline(f"{name!r} is no name for a pipeline: letters, digits, '.', '_' and '-', at most 100")
        if isolation not in (None, "snapshot", "serializable"):
            raise InvalidPipeline(f"isolation is snapshot or serializable, not {isolation!r}")
        for what, number in (("parallel", parallel), ("attempts", attempts)):
            if number is not None and not 1 <= number <= 64:
                raise InvalidPipeline(f"{what} is 1 to 64, not {number}")
        self.name = name or self.name
        self.namespace = namespace or self.namespace
        self.isolation = isolation or self.isolation
        self.parallel = parallel or self.parallel
        self.attempts = attempts or self.attempts
        self.samples = self.samples if samples is None else samples

    def add(self, dataset: Dataset | None, flow: Flow | None) -> None:
        if dataset is not None:
            self._datasets.append(dataset)
        if flow is not None:
            self._flows.append(flow)

    def add_check(self, target: str, check: Check) -> None:
        self._checks.append((target, check))

    def prepend_checks(self, name: str, checks: tuple[Check, ...]) -> None:
        """Checks of a decorator above the one that has declared the dataset: they are written first."""
        for index, dataset in enumerate(self._datasets):
            if dataset.name == name:
                self._datasets[index] = replace(dataset, checks=(*checks, *dataset.checks))

    @property
    def is_empty(self) -> bool:
        return not self._datasets

    def graph(self) -> Graph:
        """Raises `InvalidPipeline`."""
        if self.is_empty:
            raise InvalidPipeline(f"pipeline {self.name} declares nothing: use @dp.table or @dp.materialized_view")
        return build(self._datasets, self._flows, self.namespace, self._checks)

    def __enter__(self) -> Self:
        self._block = declaring(self)
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r}, {len(self._datasets)} datasets)"


def described(pipeline: Pipeline) -> Mapping[str, str | None]:
    return {"name": pipeline.name, "namespace": pipeline.namespace, "isolation": pipeline.isolation}
