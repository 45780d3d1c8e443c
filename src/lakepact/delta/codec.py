"""Actions and the JSON of a commit file, both ways.

Writing is deterministic: the same version gives the same bytes whoever writes it, so a file that is already there can
be told from a fork by its digest. `commitInfo` comes first, then protocol, metaData, txn, domainMetadata, remove,
add, cdc; each kind is sorted by its key, the fields of an action have one order, and the keys of maps are sorted.

Reading has two manners. `parse_commit` takes the logs of others: what it does not know it leaves out and says so, in
`ParsedCommit.dropped`. `parse_action` takes what a client sends: a field it does not know is an error that names it.

Both ways are in one module, although it is long, so that a field is added in one place.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never
from urllib.parse import unquote

import orjson

from lakepact.delta import fields
from lakepact.delta.actions import (
    Action,
    Add,
    Cdc,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    JsonObject,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from lakepact.delta.errors import BadAction, BadLog, UnsupportedFeature
from lakepact.delta.fields import JsonDict
from lakepact.errors import json_kind

_INFO_FIELDS: Final = ("inCommitTimestamp", "timestamp", "operation", "operationParameters")
_DUMP: Final = orjson.OPT_SORT_KEYS


@dataclass(frozen=True, slots=True)
class ParsedCommit:
    """One commit file of somebody else's log."""

    info: CommitInfo | None
    """None if the file has no `commitInfo`."""
    in_commit_timestamp_ms: int | None
    actions: tuple[Action, ...]
    dropped: tuple[str, ...]
    """What was there and is not in `actions`, such as `add.clusteringProvider`: each once."""


def commit_file(actions: Iterable[Action], info: CommitInfo) -> bytes:
    """The file of one version. Refuses actions that may not stand together in one."""
    ordered = sorted_actions(actions)
    lines = [_info_line(info), *(action_line(action) for action in ordered)]
    return b"\n".join(lines) + b"\n"


def digest(file: bytes) -> str:
    return hashlib.sha256(file).hexdigest()


def sorted_actions(actions: Iterable[Action]) -> list[Action]:
    """In the order of a commit file, once it is sure that they may stand together in one version."""
    ordered = sorted(actions, key=_sort_key)
    for one, two in itertools.pairwise(ordered):
        if _sort_key(one) == _sort_key(two):
            raise BadAction(f"a version has at most one {_identity(one)}, found two")
    files: dict[tuple[str, str], str] = {}
    for action in ordered:
        if isinstance(action, Add | Remove):
            other = files.setdefault(action.key, type(action).__name__.lower())
            if other != type(action).__name__.lower():
                raise BadAction(f"a version cannot both add and remove the same file: {action.path!r}")
    return ordered


def action_line(action: Action) -> bytes:
    """One action as a line of a commit file, without the end of the line."""
    match action:
        case Add():
            return _line("add", _add_fields(action))
        case Remove():
            return _line("remove", _remove_fields(action))
        case Metadata():
            return _line("metaData", _metadata_fields(action))
        case Protocol():
            return _line("protocol", _protocol_fields(action))
        case Txn():
            fields_ = {"appId": action.app_id, "version": action.version, "lastUpdated": action.last_updated}
            return _line("txn", fields_)
        case DomainMetadata():
            domain = {"domain": action.domain, "configuration": action.configuration, "removed": action.removed}
            return _line("domainMetadata", domain)
        case Cdc():
            cdc = {"path": action.path, "partitionValues": action.partition_values, "size": action.size}
            return _line("cdc", {**cdc, "dataChange": False})
    assert_never(action)


def action_json(action: Action) -> JsonDict:
    """One action as `{kind: fields}`, as it travels in requests."""
    document: JsonDict = orjson.loads(action_line(action))
    return document


def parse_action(document: object, where: str = "action") -> Action:
    """An action that a client sent, `{kind: fields}`. Whatever is wrong with it is a `BadAction` that names the
    field."""
    envelope = fields.json_object(document, where)
    if len(envelope) != 1:
        raise BadAction(
            f"{where}: expected one of {', '.join(sorted(_PARSERS))} with its fields, found {len(envelope)} keys"
        )
    [(name, body)] = envelope.items()
    if name not in _PARSERS:
        raise BadAction(f"{where}: unknown action {name[:80]!r}; known are {', '.join(sorted(_PARSERS))}")
    here = f"{where}: {name}"
    known = fields.json_object(body, here)
    unknown = sorted(set(known) - _KNOWN[name])
    if unknown:
        raise BadAction(f"{here}: unknown field {unknown[0][:80]!r}; known are {', '.join(sorted(_KNOWN[name]))}")
    action = _PARSERS[name](known, here)
    if isinstance(action, Remove) and known.get("deletionTimestamp") is None:
        raise BadAction(f"{here}: 'deletionTimestamp' is missing")
    if isinstance(action, Add):
        _check_path(action.path, here)
        _check_stats(action.stats, here)
    elif isinstance(action, Remove | Cdc):
        _check_path(action.path, here)
    return action


def parse_actions(documents: object) -> tuple[Action, ...]:
    """The list of actions that a client sent."""
    if not isinstance(documents, list):
        raise BadAction(f"actions: expected an array, found {json_kind(documents)}")
    return tuple(parse_action(document, f"actions[{number}]") for number, document in enumerate(documents))


def parse_commit(file: bytes, name: str = "commit file") -> ParsedCommit:
    """A commit file of any writer."""
    info: CommitInfo | None = None
    timestamp: int | None = None
    actions: list[Action] = []
    dropped: dict[str, None] = {}
    for number, line in enumerate(file.split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"{name}, line {number}"
        for kind, body in _loaded(line, where).items():
            if kind == "commitInfo":
                raw = fields.json_object(body, f"{where}: commitInfo")
                info = commit_info(raw)
                found = raw.get("inCommitTimestamp")
                timestamp = found if isinstance(found, int) else None
            elif body is not None:
                action = foreign_action(kind, body, where, dropped)
                if action is not None:
                    actions.append(action)
    return ParsedCommit(info, timestamp, tuple(actions), tuple(sorted(dropped)))


def foreign_action(kind: str, body: object, where: str, dropped: dict[str, None]) -> Action | None:
    """An action of somebody else's log or checkpoint. What is left out of it is noted in `dropped`."""
    if kind not in _PARSERS:
        dropped[kind] = None
        return None
    document = fields.json_object(body, f"{where}: {kind}")
    for field in document.keys() - _KNOWN[kind]:
        if document[field] is not None:
            dropped[f"{kind}.{field}"] = None
    try:
        return _PARSERS[kind](document, f"{where}: {kind}")
    except BadAction as error:
        raise BadLog(f"{error}. This is not a Delta log that can be read; nothing was changed") from error


def commit_info(raw: Mapping[str, Any]) -> CommitInfo:
    """`commitInfo` of any writer: whatever has no place of its own is in `more`."""
    timestamp = raw.get("inCommitTimestamp")
    if not isinstance(timestamp, int):
        timestamp = raw.get("timestamp")
    operation = raw.get("operation")
    parameters = raw.get("operationParameters")
    return CommitInfo(
        timestamp_ms=timestamp if isinstance(timestamp, int) else 0,
        operation=operation if isinstance(operation, str) else "UNKNOWN",
        operation_parameters=parameters if isinstance(parameters, dict) else {},
        more={name: value for name, value in raw.items() if name not in _INFO_FIELDS},
    )


# --- writing ---


def _line(kind: str, document: Mapping[str, Any]) -> bytes:
    """Fields in the order given, those that are None left out; what is inside them sorted."""
    parts = [
        orjson.dumps(name) + b":" + orjson.dumps(_plain(value), option=_DUMP)
        for name, value in document.items()
        if value is not None
    ]
    return b'{"' + kind.encode() + b'":{' + b",".join(parts) + b"}}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _info_line(info: CommitInfo) -> bytes:
    taken = sorted(set(info.more) & set(_INFO_FIELDS))
    if taken:
        raise BadAction(f"commitInfo: {taken[0]!r} has a place of its own and cannot be given once more")
    first: JsonDict = {
        "inCommitTimestamp": info.timestamp_ms,
        "timestamp": info.timestamp_ms,
        "operation": info.operation,
    }
    try:
        first["operationParameters"] = {
            name: _parameter(value) for name, value in sorted(info.operation_parameters.items())
        }
        return _line("commitInfo", {**first, **{name: info.more[name] for name in sorted(info.more)}})
    except TypeError as error:
        raise BadAction(f"commitInfo: not JSON: {error}") from error


def _parameter(value: object) -> str | None:
    """A parameter of an operation as Delta's own writers spell it: a text, JSON for what is none.

    Spark reads a map of texts; with anything else in it, `DESCRIBE HISTORY` of the table fails.
    """
    return value if value is None or isinstance(value, str) else orjson.dumps(value, option=_DUMP).decode()


def _add_fields(add: Add) -> JsonDict:
    return {
        "path": add.path,
        "partitionValues": add.partition_values,
        "size": add.size,
        "modificationTime": add.modification_time,
        "dataChange": add.data_change,
        "stats": add.stats,
        "tags": add.tags,
        "deletionVector": _vector_json(add.deletion_vector),
        "baseRowId": add.base_row_id,
        "defaultRowCommitVersion": add.default_row_commit_version,
    }


def _remove_fields(remove: Remove) -> JsonDict:
    # True promises that both are there.
    extended = remove.partition_values is not None and remove.size is not None
    return {
        "path": remove.path,
        "deletionTimestamp": remove.deletion_timestamp,
        "dataChange": remove.data_change,
        "extendedFileMetadata": True if extended else None,
        "partitionValues": remove.partition_values,
        "size": remove.size,
        "deletionVector": _vector_json(remove.deletion_vector),
    }


def _metadata_fields(metadata: Metadata) -> JsonDict:
    return {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"options": {}, "provider": metadata.format_provider},
        "schemaString": metadata.schema_string,
        "partitionColumns": metadata.partition_columns,
        "configuration": metadata.configuration,
        "createdTime": metadata.created_time,
    }


def _protocol_fields(protocol: Protocol) -> JsonDict:
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }


def _vector_json(vector: DeletionVector | None) -> JsonDict | None:
    if vector is None:
        return None
    document = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    return {name: value for name, value in document.items() if value is not None}


_RANK: Final[dict[type, int]] = {
    kind: rank for rank, kind in enumerate((Protocol, Metadata, Txn, DomainMetadata, Remove, Add, Cdc))
}


def _sort_key(action: Action) -> tuple[int, str, str]:
    rank = _RANK[type(action)]
    match action:
        case Add() | Remove():
            return rank, *action.key
        case Cdc():
            return rank, action.path, ""
        case Txn():
            return rank, action.app_id, ""
        case DomainMetadata():
            return rank, action.domain, ""
        case Protocol() | Metadata():
            return rank, "", ""
    assert_never(action)


def _identity(action: Action) -> str:
    match action:
        case Add() | Remove() | Cdc():
            return f"{type(action).__name__.lower()} of the file {action.path!r}"
        case Txn():
            return f"txn of the application {action.app_id!r}"
        case DomainMetadata():
            return f"domainMetadata of the domain {action.domain!r}"
        case Protocol():
            return "protocol"
        case Metadata():
            return "metaData"
    assert_never(action)


# --- reading ---


def _loaded(line: bytes, where: str) -> JsonDict:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadLog(f"{where}: not JSON: {error}. The file was cut short or is not a commit of a Delta log") from error
    if not isinstance(document, dict):
        raise BadLog(f"{where}: expected an object, found {json_kind(document)}")
    return document


def _parse_add(body: JsonDict, where: str) -> Add:
    return Add(
        path=fields.filled_text(body, "path", where),
        partition_values=fields.nullable_text_map(body, "partitionValues", where),
        size=fields.integer(body, "size", where, 0),
        modification_time=fields.integer(body, "modificationTime", where),
        data_change=fields.boolean(body, "dataChange", where),
        stats=fields.optional_text(body, "stats", where),
        tags=fields.optional_nullable_text_map(body, "tags", where),
        deletion_vector=_parse_vector(body, where),
        base_row_id=fields.optional_integer(body, "baseRowId", where),
        default_row_commit_version=fields.optional_integer(body, "defaultRowCommitVersion", where),
    )


def _parse_remove(body: JsonDict, where: str) -> Remove:
    return Remove(
        path=fields.filled_text(body, "path", where),
        # Others may leave it out, and then mean "long ago".
        deletion_timestamp=fields.optional_integer(body, "deletionTimestamp", where) or 0,
        data_change=fields.boolean(body, "dataChange", where),
        partition_values=fields.optional_nullable_text_map(body, "partitionValues", where),
        size=fields.optional_integer(body, "size", where, 0),
        deletion_vector=_parse_vector(body, where),
    )


def _parse_metadata(body: JsonDict, where: str) -> Metadata:
    format_ = fields.json_object(body.get("format") or {"provider": "parquet"}, f"{where}: 'format'")
    provider = fields.text(format_, "provider", f"{where}: 'format'")
    if provider != "parquet":
        raise UnsupportedFeature([f"{where}: files of format {provider[:80]!r}; only parquet can be carried"])
    return Metadata(
        id=fields.filled_text(body, "id", where),
        schema_string=fields.filled_text(body, "schemaString", where),
        partition_columns=fields.text_list(body, "partitionColumns", where),
        configuration=fields.text_map({"configuration": {}, **_without_nulls(body)}, "configuration", where),
        name=fields.optional_text(body, "name", where),
        description=fields.optional_text(body, "description", where),
        created_time=fields.optional_integer(body, "createdTime", where),
    )


def _parse_protocol(body: JsonDict, where: str) -> Protocol:
    protocol = Protocol(
        min_reader_version=fields.integer(body, "minReaderVersion", where, 1, fields.INT32_MAX),
        min_writer_version=fields.integer(body, "minWriterVersion", where, 1, fields.INT32_MAX),
        reader_features=fields.optional_text_list(body, "readerFeatures", where),
        writer_features=fields.optional_text_list(body, "writerFeatures", where),
    )
    if protocol.reader_features is not None and protocol.min_reader_version < 3:
        raise BadAction(f"{where}: 'readerFeatures' only with minReaderVersion 3")
    if protocol.writer_features is not None and protocol.min_writer_version < 7:
        raise BadAction(f"{where}: 'writerFeatures' only with minWriterVersion 7")
    return protocol


def _parse_txn(body: JsonDict, where: str) -> Txn:
    return Txn(
        app_id=fields.text(body, "appId", where),
        version=fields.integer(body, "version", where),
        last_updated=fields.optional_integer(body, "lastUpdated", where),
    )


def _parse_domain(body: JsonDict, where: str) -> DomainMetadata:
    return DomainMetadata(
        domain=fields.filled_text(body, "domain", where),
        configuration=fields.text(body, "configuration", where),
        removed=fields.optional_boolean(body, "removed", where, default=False),
    )


def _parse_cdc(body: JsonDict, where: str) -> Cdc:
    return Cdc(
        path=fields.filled_text(body, "path", where),
        partition_values=fields.nullable_text_map(body, "partitionValues", where),
        size=fields.integer(body, "size", where, 0),
    )


def _parse_vector(body: JsonDict, where: str) -> DeletionVector | None:
    raw = body.get("deletionVector")
    if raw is None:
        return None
    here = f"{where}: 'deletionVector'"
    vector = fields.json_object(raw, here)
    return DeletionVector(
        storage_type=fields.filled_text(vector, "storageType", here),
        path_or_inline_dv=fields.filled_text(vector, "pathOrInlineDv", here),
        offset=fields.optional_integer(vector, "offset", here, 0, fields.INT32_MAX),
        size_in_bytes=fields.integer(vector, "sizeInBytes", here, 0),
        cardinality=fields.integer(vector, "cardinality", here, 0),
    )


def outside_of_table(path: str) -> str | None:
    """Why a path does not lie below its table, whoever decodes it. None: it does."""
    segments = unquote(path).split("/")
    if path.startswith("/") or ":" in segments[0]:
        return "must be relative to the table"
    if len(segments) != path.count("/") + 1 or "\\" in unquote(path):
        return "must not hide a slash in an encoding"
    if any(segment in ("", ".", "..") for segment in segments):
        return "must not have empty, '.' or '..' parts"
    if segments[0] == "_delta_log":
        return "must not lie in the log"
    return None


def _check_path(path: str, where: str) -> None:
    """A path of a client lies below its table: nothing outside can be added, or be removed and collected later."""
    problem = outside_of_table(path)
    if problem is not None:
        raise BadAction(f"{where}: 'path' {problem}, found {path[:200]!r}")
    if not path.isascii() or any(character in path for character in " \t\r\n\\"):
        raise BadAction(f"{where}: 'path' must be percent-encoded, found {path[:200]!r}")


def _check_stats(stats: str | None, where: str) -> None:
    if stats is None:
        return
    try:
        document = orjson.loads(stats)
    except orjson.JSONDecodeError as error:
        raise BadAction(f"{where}: 'stats' must be JSON in a string: {error}") from error
    if not isinstance(document, dict):
        raise BadAction(f"{where}: 'stats' must be a JSON object in a string, found {json_kind(document)}")
    fields.optional_integer(document, "numRecords", f"{where}: 'stats'", 0)
    for name in ("minValues", "maxValues", "nullCount"):
        fields.json_object(document.get(name) or {}, f"{where}: 'stats': {name!r}")


def _without_nulls(document: JsonObject) -> JsonDict:
    return {name: value for name, value in document.items() if value is not None}


_PARSERS: Final[Mapping[str, Callable[[JsonDict, str], Action]]] = {
    "add": _parse_add,
    "remove": _parse_remove,
    "metaData": _parse_metadata,
    "protocol": _parse_protocol,
    "txn": _parse_txn,
    "domainMetadata": _parse_domain,
    "cdc": _parse_cdc,
}


_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "add": frozenset(
        [
            "path",
            "partitionValues",
            "size",
            "modificationTime",
            "dataChange",
            "stats",
            "tags",
            "deletionVector",
            "baseRowId",
            "defaultRowCommitVersion",
        ]
    ),
    "remove": frozenset(
        ["path", "deletionTimestamp", "dataChange", "extendedFileMetadata", "partitionValues", "size", "deletionVector"]
    ),
    "metaData": frozenset(
        ["id", "name", "description", "format", "schemaString", "partitionColumns", "configuration", "createdTime"]
    ),
    "protocol": frozenset(["minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"]),
    "txn": frozenset(["appId", "version", "lastUpdated"]),
    "domainMetadata": frozenset(["domain", "configuration", "removed"]),
    "cdc": frozenset(["path", "partitionValues", "size", "dataChange"]),
}
"""The fields that are carried; a test holds it to what is written."""
