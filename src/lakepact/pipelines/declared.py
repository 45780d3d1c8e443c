"""What a pipeline declares: datasets, and the flows that fill them. Frozen values, as they were written down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

from lakepact.pipelines.expectations import Check

Mode: TypeAlias = Literal["append", "overwrite", "overwrite_partitions", "merge", "create_or_replace"]
MODES: Final = ("append", "overwrite", "overwrite_partitions", "merge", "create_or_replace")

Isolation: TypeAlias = Literal["snapshot", "serializable"]


class Kind(StrEnum):
    TABLE = "table"
    MATERIALIZED_VIEW = "materialized view"
    TEMPORARY_VIEW = "temporary view"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table that a run leaves behind, or a view that lives as long as the run."""

    name: str
    kind: Kind
    where: str
    """The file and line it is declared at."""

    mode: Mode = "append"
    keys: tuple[str, ...] = ()
    partition_cols: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    format: str | None = None
    schema: Any = None
    """A DDL string or a StructType. None: as the query has it."""

    comment: str | None = None
    checks: tuple[Check, ...] = ()

    @property
    def is_view(self) -> bool:
        return self.kind is Kind.TEMPORARY_VIEW


@dataclass(frozen=True, slots=True)
class Flow:
    """A query that fills a dataset."""

    name: str
    target: str
    where: str
    function: Callable[..., Any] | None = None
    sql: str | None = None
    inputs: tuple[str, ...] = ()
    """As they were named, in whatever way; the graph finds out what they are."""

    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the function that take an input, with its name."""

    spark_conf: Mapping[str, str] = field(default_factory=dict)
