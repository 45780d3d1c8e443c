"""Checkpoints: the whole state of a table in one Parquet file, so that no reader has to fold every version.

We write classic ones, one row an action. Of others we read classic ones in one or many parts, and those of
`v2Checkpoint`, whose files lie in sidecars.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import orjson

from lakepact.delta import codec
from lakepact.delta.actions import Action, Add, DeletionVector, Metadata, Remove
from lakepact.delta.errors import BadLog
from lakepact.delta.state import Replay, TableState

if TYPE_CHECKING:
    import pyarrow as pa

INTERVAL: Final = 10
"""A checkpoint every so many versions."""
_INTERVAL_CHARACTERS: Final = 200
"""More than any interval takes. A client chooses the text, and the search in it is not linear."""

_WEEK_MS: Final = 7 * 24 * 3600 * 1000
_UNITS_MS: Final = {
    "microsecond": 0.001,
    "millisecond": 1.0,
    "second": 1000.0,
    "minute": 60_000.0,
    "hour": 3_600_000.0,
    "day": 86_400_000.0,
    "week": 604_800_000.0,
}
_ROWS_A_GROUP: Final = 50_000


@dataclass(frozen=True, slots=True)
class ReadCheckpoint:
    state: TableState
    dropped: tuple[str, ...]
    """What the checkpoint has and the state has not: each once."""


# --- writing ---


def newest_due(after: int, until: int) -> int | None:
    """The newest version beyond `after` that wants a checkpoint. A log that catches up gets no older ones."""
    version = until - until % INTERVAL
    return version if version > max(after, 0) else None


def checkpoint_file(state: TableState, *, tombstones_after_ms: int) -> bytes:
    """The Parquet file. Removes from before that time are left out: nobody reads a version that still had the files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = _arrow_columns()
    tables = []
    for name, column in _columns(state, tombstones_after_ms, types).items():
        if len(column):
            nothing = {other: pa.nulls(len(column), types[other]) for other in types}
            tables.append(pa.table(nothing | {name: column}))
    sink = io.BytesIO()
    # Statistics of a list of actions serve nobody.
    pq.write_table(
        pa.concat_tables(tables), sink, compression="snappy", row_group_size=_ROWS_A_GROUP, write_statistics=False
    )
    return sink.getvalue()


def last_checkpoint_file(state: TableState, checkpoint: bytes, *, tombstones_after_ms: int) -> bytes:
    """`_last_checkpoint`, which tells readers where to begin."""
    tombstones = sum(1 for remove in state.tombstones.values() if remove.deletion_timestamp > tombstones_after_ms)
    size = 2 + len(state.transactions) + len(state.domains) + tombstones + len(state.files)
    return orjson.dumps(
        {
            "version": state.version,
            "size": size,
            "sizeInBytes": len(checkpoint),
            "numOfAddFiles": len(state.files),
        }
    )


def retention_ms(metadata: Metadata) -> int:
    """How long removed files are remembered: `delta.deletedFileRetentionDuration`, a week if nothing is said."""
    text = metadata.configuration.get("delta.deletedFileRetentionDuration", "")[:_INTERVAL_CHARACTERS]
    text = text.lower().removeprefix("interval").strip()
    parts = re.findall(r"(\d+)\s+([a-z]+?)s?\b", text)
    if not parts or any(unit not in _UNITS_MS for _, unit in parts):
        return _WEEK_MS
    return int(sum(int(number) * _UNITS_MS[unit] for number, unit in parts))


def _columns(state: TableState, tombstones_after_ms: int, types: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """The actions of each kind, in the order of a commit file. Files are many, so theirs are made field by field."""
    import pyarrow as pa

    kept = [one for _, one in sorted(state.tombstones.items()) if one.deletion_timestamp > tombstones_after_ms]
    files = [one for _, one in sorted(state.files.items())]
    rows: dict[str, list[dict[str, Any]]] = {"protocol": [], "metaData": [], "txn": [], "domainMetadata": []}
    for action in state.actions():
        if isinstance(action, Add | Remove):
            break
        [(name, body)] = codec.action_json(action).items()
        if isinstance(action, Metadata):
            body["configuration"] = list(body["configuration"].items())
            body["format"]["options"] = list(body["format"]["options"].items())
        rows[name].append(body)
    return {
        **{name: pa.array(listed, types[name]) for name, listed in rows.items()},
        "remove": _struct(
            types["remove"],
            {
                "path": [one.path for one in kept],
                "deletionTimestamp": [one.deletion_timestamp for one in kept],
                # It changes nothing to be told once more.
                "dataChange": [False] * len(kept),
                "extendedFileMetadata": [one.partition_values is not None and one.size is not None for one in kept],
                "partitionValues": [one.partition_values for one in kept],
                "size": [one.size for one in kept],
                "deletionVector": [_vector(one.deletion_vector) for one in kept],
            },
        ),
        "add": _struct(
            types["add"],
            {
                "path": [one.path for one in files],
                "partitionValues": [one.partition_values for one in files],
                "size": [one.size for one in files],
                "modificationTime": [one.modification_time for one in files],
                "dataChange": [False] * len(files),
                "stats": [one.stats for one in files],
                "tags": [one.tags for one in files],
                "deletionVector": [_vector(one.deletion_vector) for one in files],
                "baseRowId": [one.base_row_id for one in files],
                "defaultRowCommitVersion": [one.default_row_commit_version for one in files],
            },
        ),
    }


def _struct(type_: pa.StructType, fields: Mapping[str, list[Any]]) -> pa.Array:
    import pyarrow as pa

    arrays = []
    for number in range(type_.num_fields):
        field = type_.field(number)
        values = fields[field.name]
        arrays.append(_maps(values, field.type) if pa.types.is_map(field.type) else pa.array(values, field.type))
    return pa.StructArray.from_arrays(arrays, fields=[type_.field(number) for number in range(type_.num_fields)])


def _maps(values: list[Mapping[str, str | None] | None], type_: pa.DataType) -> pa.Array:
    import pyarrow as pa

    offsets: list[int | None] = []
    keys: list[str] = []
    items: list[str | None] = []
    for value in values:
        offsets.append(None if value is None else len(keys))
        for key in sorted(value or ()):
            keys.append(key)
            items.append((value or {})[key])
    offsets.append(len(keys))
    return pa.MapArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(keys, pa.string()), pa.array(items, pa.string())
    ).cast(type_)


def _vector(vector: DeletionVector | None) -> dict[str, Any] | None:
    if vector is None:
        return None
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


def _arrow_columns() -> dict[str, pa.DataType]:
    import pyarrow as pa

    text, long, flag = pa.string(), pa.int64(), pa.bool_()
    texts = pa.list_(pa.field("element", text))
    map_ = pa.map_(text, text)
    vector = pa.struct(
        [
            ("storageType", text),
            ("pathOrInlineDv", text),
            ("offset", pa.int32()),
            ("sizeInBytes", pa.int32()),
            ("cardinality", long),
        ]
    )
    return {
        "protocol": pa.struct(
            [
                ("minReaderVersion", pa.int32()),
                ("minWriterVersion", pa.int32()),
                ("readerFeatures", texts),
                ("writerFeatures", texts),
            ]
        ),
        "metaData": pa.struct(
            [
                ("id", text),
                ("name", text),
                ("description", text),
                ("format", pa.struct([("provider", text), ("options", map_)])),
                ("schemaString", text),
                ("partitionColumns", texts),
                ("configuration", map_),
                ("createdTime", long),
            ]
        ),
        "txn": pa.struct([("appId", text), ("version", long), ("lastUpdated", long)]),
        "domainMetadata": pa.struct([("domain", text), ("configuration", text), ("removed", flag)]),
        "remove": pa.struct(
            [
                ("path", text),
                ("deletionTimestamp", long),
                ("dataChange", flag),
                ("extendedFileMetadata", flag),
                ("partitionValues", map_),
                ("size", long),
                ("deletionVector", vector),
            ]
        ),
        "add": pa.struct(
            [
                ("path", text),
                ("partitionValues", map_),
                ("size", long),
                ("modificationTime", long),
                ("dataChange", flag),
                ("stats", text),
                ("tags", map_),
                ("deletionVector", vector),
                ("baseRowId", long),
                ("defaultRowCommitVersion", long),
            ]
        ),
    }


# --- reading ---


def read_checkpoint(
    version: int, parts: Sequence[tuple[str, bytes]], sidecar: Callable[[str], bytes] | None = None
) -> ReadCheckpoint:
    """The state in a checkpoint: all its parts, each with its name. `sidecar` gets a file of `_sidecars` by its
    name."""
    dropped: dict[str, None] = {}
    replay = Replay()
    for name, file in parts:
        for number, row in enumerate(_documents(name, file)):
            for kind, body in row.items():
                if body is None or kind == "checkpointMetadata":
                    continue
                if kind == "sidecar":
                    replay.take(_sidecar_actions(body, name, sidecar, dropped))
                else:
                    replay.take(_action(kind, body, f"{name}, row {number}", dropped))
    replay.version = version
    return ReadCheckpoint(replay.state(), tuple(sorted(dropped)))


def _sidecar_actions(
    body: dict[str, Any], name: str, fetch: Callable[[str], bytes] | None, dropped: dict[str, None]
) -> Iterator[Action]:
    path = unquote(str(body.get("path", "")))
    if fetch is None or not path or "/" in path.replace("_delta_log/_sidecars/", ""):
        raise BadLog(f"{name}: its files are in a sidecar {path[:200]!r} that cannot be read from here")
    file_name = path.rsplit("/", 1)[-1]
    for number, row in enumerate(_documents(file_name, fetch(file_name))):
        for kind, found in row.items():
            if found is not None:
                yield from _action(kind, found, f"{file_name}, row {number}", dropped)


def _action(kind: str, body: dict[str, Any], where: str, dropped: dict[str, None]) -> Iterable[Action]:
    # Copies of `stats` and `partitionValues` with types: what they say is said already, unless the text was left out.
    if kind == "add":
        if body.get("stats_parsed") is not None and body.get("stats") is None:
            dropped["add.stats_parsed"] = None
        body = {name: value for name, value in body.items() if name not in ("stats_parsed", "partitionValues_parsed")}
    if kind in ("add", "remove"):
        body.setdefault("dataChange", False)
    action = codec.foreign_action(kind, body, where, dropped)
    return () if action is None else (action,)


def _documents(name: str, file: bytes) -> Iterator[dict[str, Any]]:
    """The rows, with maps as objects."""
    if name.endswith(".json"):
        for line in file.split(b"\n"):
            if line.strip():
                yield orjson.loads(line)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(io.BytesIO(file))
        for batch in parquet.iter_batches(batch_size=10_000):
            yield from batch.to_pylist(maps_as_pydicts="strict")
    except (pa.ArrowException, OSError) as error:
        raise BadLog(f"{name}: not a Parquet file that can be read: {error}") from error
