"""Actions as rows of the `dl_*` tables, both ways, whatever the database.

Every action table begins with the same three columns: table, version, and the transaction the row belongs to. JSON is
text, written once and kept byte for byte. Files are made into values only when somebody looks at them: a table of a
hundred thousand files is opened by one statement, and most readers want no more of it than paths or a count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, TypeAlias, overload

import orjson

from lakepact.delta.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from lakepact.delta.errors import BadAction
from lakepact.errors import Unreadable

Row: TypeAlias = tuple[Any, ...]

FIRST_COLUMNS: Final = ("table_id", "version", "transaction_id")

FILE_COLUMNS: Final = (
    "path",
    "partition_values",
    "size_bytes",
    "modification_time",
    "data_change",
    "stats",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
)
"""What `Files.rows` has, in this order."""

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "dl_add_files": (*FILE_COLUMNS, "dv_id"),
    "dl_remove_files": (
        "path",
        "deletion_timestamp",
        "data_change",
        "partition_values",
        "size_bytes",
        "deletion_vector",
        "dv_id",
    ),
    "dl_metadata_updates": (
        "meta_id",
        "schema_string",
        "partition_columns",
        "configuration",
        "name",
        "description",
        "created_time",
        "format_provider",
    ),
    "dl_protocol_updates": ("min_reader_version", "min_writer_version", "reader_features", "writer_features"),
    "dl_txn_actions": ("app_id", "app_version", "last_updated"),
    "dl_domain_metadata": ("domain", "configuration", "removed"),
    "dl_cdc_files": ("path", "partition_values", "size_bytes"),
}
"""Every table of actions, and its columns after the first three."""


# --- values to rows ---


@dataclass(slots=True)
class EncodedChange:
    """The rows of one version of one table."""

    table_id: str
    version: int
    adds: int = 0
    removes: int = 0
    rows: dict[str, list[Row]] = field(default_factory=dict)
    """By table. The files are in the order of their paths, which is kind to an index."""


def encode_change(transaction_id: str, table_id: str, version: int, actions: Iterable[Action]) -> EncodedChange:
    """Refuses what cannot stand in one version, since no key of the database may be broken later."""
    if version < 0:
        raise BadAction(f"Delta table {table_id}: versions begin at 0, not {version}")
    change = EncodedChange(table_id, version)
    first: Row = (table_id, version, transaction_id)
    for action in actions:
        table, row = _row_of(action)
        change.rows.setdefault(table, []).append(first + row)
    change.adds = len(change.rows.get("dl_add_files", ()))
    change.removes = len(change.rows.get("dl_remove_files", ()))
    _check(change)
    return change


def _row_of(action: Action) -> tuple[str, Row]:
    match action:
        case Add():
            vector = action.deletion_vector
            return "dl_add_files", (
                action.path,
                _text(action.partition_values),
                action.size,
                action.modification_time,
                action.data_change,
                action.stats,
                _optional_text(action.tags),
                None if vector is None else _vector_text(vector),
                action.base_row_id,
                action.default_row_commit_version,
                "" if vector is None else _vector_key(vector),
            )
        case Remove():
            vector = action.deletion_vector
            return "dl_remove_files", (
                action.path,
                action.deletion_timestamp,
                action.data_change,
                _optional_text(action.partition_values),
                action.size,
                None if vector is None else _vector_text(vector),
                "" if vector is None else _vector_key(vector),
            )
        case Metadata():
            return "dl_metadata_updates", (
                action.id,
                action.schema_string,
                _list_text(action.partition_columns),
                _text(action.configuration),
                action.name,
                action.description,
                action.created_time,
                action.format_provider,
            )
        case Protocol():
            return "dl_protocol_updates", (
                action.min_reader_version,
                action.min_writer_version,
                None if action.reader_features is None else _list_text(action.reader_features),
                None if action.writer_features is None else _list_text(action.writer_features),
            )
        case Txn():
            return "dl_txn_actions", (action.app_id, action.version, action.last_updated)
        case DomainMetadata():
            return "dl_domain_metadata", (action.domain, action.configuration, action.removed)
        case Cdc():
            return "dl_cdc_files", (action.path, _text(action.partition_values), action.size)


LONGEST_NAME: Final = 2_000
"""Bytes of a path, an application id or a domain: they are keys, and a row of an index must fit a page."""

_LONGEST_PLAIN_ID: Final = 200
_ONE_EACH: Final = {"dl_metadata_updates": "metaData", "dl_protocol_updates": "protocol"}
_KEYS: Final = {"dl_txn_actions": "txn", "dl_domain_metadata": "domainMetadata", "dl_cdc_files": "cdc"}


def _check(change: EncodedChange) -> None:
    where = f"Delta table {change.table_id}, version {change.version}"
    for table, word in _ONE_EACH.items():
        if len(change.rows.get(table, ())) > 1:
            raise BadAction(f"{where}: a version has one {word} at most")
    for table, word in _KEYS.items():
        _sort(change.rows.get(table, []), lambda row: (row[3], ""), f"{where}: {word}")
    adds, removes = change.rows.get("dl_add_files", []), change.rows.get("dl_remove_files", [])
    _sort(adds, _file_key, f"{where}: add")
    _sort(removes, _file_key, f"{where}: remove")
    if removes and adds:
        both = {_file_key(row) for row in removes}.intersection(map(_file_key, adds))
        if both:
            raise BadAction(f"{where}: {min(both)[0]} is added and removed by one version; say what it shall be")


def _file_key(row: Row) -> tuple[str, str]:
    return row[3], row[-1]


def _sort(rows: list[Row], key: Any, where: str) -> None:
    rows.sort(key=key)
    keys = [key(row) for row in rows]
    for name, _ in keys:
        # Four bytes a character at most: nearly all names need no closer look.
        if len(name) * 4 > LONGEST_NAME and len(name.encode("utf-8", "replace")) > LONGEST_NAME:
            raise BadAction(f"{where} {name[:60]!r}...: a name has {LONGEST_NAME} bytes at most")
    if len(set(keys)) < len(keys):
        twice = next(one for one, other in pairwise(keys) if one == other)
        raise BadAction(f"{where} {twice[0]!r} is there twice; a version says it once")


def _text(values: Mapping[str, Any]) -> str:
    return orjson.dumps(values if type(values) is dict else dict(values)).decode() if values else "{}"


def _optional_text(values: Mapping[str, Any] | None) -> str | None:
    return None if values is None else _text(values)


def _list_text(values: Sequence[str]) -> str:
    return orjson.dumps(list(values)).decode()


def _vector_key(vector: DeletionVector) -> str:
    """What the vector is told apart by, short enough for an index: an inline one has all of itself in its id."""
    return vector.id if len(vector.id) <= _LONGEST_PLAIN_ID else hashlib.sha256(vector.id.encode()).hexdigest()


def _vector_text(vector: DeletionVector) -> str:
    values = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    return orjson.dumps(values).decode()


# --- rows to values ---


class Files(Sequence[Add]):
    """Live files, made into `Add`s one by one as they are looked at."""

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[Any]) -> None:
        self.rows = rows
        """As the driver gave them, in the order of `FILE_COLUMNS`; JSON is text."""

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Add: ...
    @overload
    def __getitem__(self, index: slice) -> Files: ...
    def __getitem__(self, index: int | slice) -> Add | Files:
        if isinstance(index, slice):
            return Files(self.rows[index])
        return add_of(self.rows[index])

    def __iter__(self) -> Iterator[Add]:
        return map(add_of, self.rows)


def add_of(row: Any) -> Add:
    path, values, size, modified, data_change, stats, tags, vector, base_row_id, row_commit_version = row
    return Add(
        path,
        {} if values == "{}" else _map(values),
        size,
        modified,
        bool(data_change),
        stats,
        None if tags is None else _map(tags),
        None if vector is None else _vector(vector),
        base_row_id,
        row_commit_version,
    )


def action_of(table: str, row: Sequence[Any]) -> Action:
    """An action from its row, which has `COLUMNS[table]` in that order."""
    match table:
        case "dl_add_files":
            return add_of(tuple(row)[:10])
        case "dl_remove_files":
            path, deleted, data_change, values, size, vector, _ = row
            return Remove(
                path,
                deleted,
                bool(data_change),
                None if values is None else _map(values),
                size,
                None if vector is None else _vector(vector),
            )
        case "dl_metadata_updates":
            meta_id, schema, columns, configuration, name, description, created, provider = row
            return Metadata(
                meta_id, schema, tuple(_loads(columns)), _map(configuration), name, description, created, provider
            )
        case "dl_protocol_updates":
            reader, writer, reader_features, writer_features = row
            return Protocol(reader, writer, _features(reader_features), _features(writer_features))
        case "dl_txn_actions":
            return Txn(*row)
        case "dl_domain_metadata":
            domain, configuration, removed = row
            return DomainMetadata(domain, configuration, bool(removed))
        case "dl_cdc_files":
            path, values, size = row
            return Cdc(path, _map(values), size)
        case _:
            raise ValueError(table)


def commit_info_of(ict_ms: int, operation: str, operation_params: str, commit_info: str) -> CommitInfo:
    return CommitInfo(ict_ms, operation, _loads(operation_params), _loads(commit_info))


def _features(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(_loads(text))


def _map(text: str) -> dict[str, Any]:
    return _loads(text) if text != "{}" else {}


@lru_cache(maxsize=4_096)
def _vector(text: str) -> DeletionVector:
    found = _loads(text)
    return DeletionVector(
        found["storageType"], found["pathOrInlineDv"], found["offset"], found["sizeInBytes"], found["cardinality"]
    )


def _loads(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"a row of a Delta table holds {text[:80]!r}, which is not JSON ({error})") from None
