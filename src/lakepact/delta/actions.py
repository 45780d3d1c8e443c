"""The actions of a Delta log, as frozen values: what one version of a table says.

JSON inside them (statistics, partition values, configuration) is kept as it is written, so that a log made from these
values is the same byte for byte whoever makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeletionVector:
    storage_type: str
    path_or_inline_dv: str
    offset: int | None
    size_in_bytes: int
    cardinality: int

    @property
    def id(self) -> str:
        """What tells it apart from other deletion vectors of the same file."""
        at = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{at}"


@dataclass(frozen=True, slots=True)
class Add:
    """A file that belongs to the table from this version on. `path` is a URI, percent-encoded."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_time: int
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None

    @property
    def key(self) -> FileKey:
        return self.path, self.deletion_vector.id if self.deletion_vector is not None else ""


@dataclass(frozen=True, slots=True)
class Remove:
    """A file that no longer belongs to the table."""

    path: str
    deletion_timestamp: int
    data_change: bool = True
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    deletion_vector: DeletionVector | None = None

    @property
    def key(self) -> FileKey:
        return self.path, self.deletion_vector.id if self.deletion_vector is not None else ""


FileKey: TypeAlias = tuple[str, str]
"""Path and id of the deletion vector ("" if there is none): the newest action for it wins."""


@dataclass(frozen=True, slots=True)
class Metadata:
    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    created_time: int | None = None
    format_provider: str = "parquet"


@dataclass(frozen=True, slots=True)
class Protocol:
    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Txn:
    """How far an application has come, so that it writes nothing twice."""

    app_id: str
    version: int
    last_updated: int | None = None


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    domain: str
    configuration: str
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Cdc:
    """A file of the change data feed. Never part of a table's state."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int


Action: TypeAlias = Add | Remove | Metadata | Protocol | Txn | DomainMetadata | Cdc


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Who made a version, and how. Free JSON but for the in-commit timestamp."""

    timestamp_ms: int
    operation: str
    operation_parameters: JsonObject = field(default_factory=dict)
    more: JsonObject = field(default_factory=dict)
