"""The objects inside updates, checked field by field: snapshots, references, statistics, keys, view versions.

Each function takes what a client sent and returns what may be stored: known fields are of their type, nulls that
readers refuse are gone, fields this release does not know are kept.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import (
    JsonObject,
    filled_text,
    int32,
    int32_list,
    int64,
    json_list,
    json_object,
    optional_int32,
    optional_int64,
    optional_text,
    text,
    text_list,
    text_map,
    without_nulls,
)
from lakepact.iceberg.names import BRANCH, NO_SNAPSHOT, TAG
from lakepact.limits import check_namespace

REF_FIELDS: Final = ("snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms")
_RETENTION: Final = REF_FIELDS[2:]
_OPTIONAL_IN_SNAPSHOT: Final = (
    "parent-snapshot-id",
    "sequence-number",
    "manifest-list",
    "manifests",
    "summary",
    "schema-id",
    "first-row-id",
    "added-rows",
    "key-id",
)


def check_snapshot(value: object, where: str) -> JsonObject:
    snapshot = without_nulls(json_object(value, where), *_OPTIONAL_IN_SNAPSHOT)
    snapshot_id = int64(snapshot, "snapshot-id", where)
    where = f"{where} {snapshot_id}"
    if snapshot_id == NO_SNAPSHOT:
        raise Malformed(f"{where}: 'snapshot-id' -1 means that there is no snapshot; choose another id")
    int64(snapshot, "timestamp-ms", where)
    optional_int64(snapshot, "parent-snapshot-id", where)
    optional_int64(snapshot, "sequence-number", where)
    optional_int32(snapshot, "schema-id", where)
    optional_text(snapshot, "key-id", where)
    for name in ("first-row-id", "added-rows"):
        if (optional_int64(snapshot, name, where) or 0) < 0:
            raise Malformed(f"{where}: {name!r} must not be negative")
    if "first-row-id" in snapshot and "added-rows" not in snapshot:
        raise Malformed(f"{where}: 'first-row-id' needs 'added-rows' beside it")
    if "summary" in snapshot:
        text_map(snapshot, "summary", where)
    if "manifest-list" in snapshot:
        filled_text(snapshot, "manifest-list", where)
    elif "manifests" in snapshot:
        # Before manifest lists, format 1 named the manifests in the snapshot itself.
        text_list(snapshot, "manifests", where)
    else:
        raise Malformed(f"{where}: 'manifest-list' is missing")
    return snapshot


def check_ref(value: JsonObject, where: str) -> JsonObject:
    """A reference as it is stored in `refs`. Only branches have a retention of their snapshots."""
    int64(value, "snapshot-id", where)
    kind = text(value, "type", where).lower()
    if kind not in (BRANCH, TAG):
        raise Malformed(f"{where}: 'type' is branch or tag, not {kind[:40]!r}")
    optional_int32(value, "min-snapshots-to-keep", where)
    for name in _RETENTION:
        number = optional_int64(value, name, where)
        if number is None:
            continue
        if number <= 0:
            raise Malformed(f"{where}: {name!r} must be greater than 0")
        if kind == TAG and name != "max-ref-age-ms":
            raise Malformed(f"{where}: {name!r} is for branches; a tag has none")
    return without_nulls({**value, "type": kind}, *_RETENTION)


def same_ref(one: JsonObject, other: JsonObject) -> bool:
    return all(one.get(name) == other.get(name) for name in REF_FIELDS)


def check_statistics(value: object, where: str) -> JsonObject:
    statistics = json_object(value, where)
    int64(statistics, "snapshot-id", where)
    filled_text(statistics, "statistics-path", where)
    int64(statistics, "file-size-in-bytes", where)
    int64(statistics, "file-footer-size-in-bytes", where)
    blobs = json_list(statistics.get("blob-metadata"), f"{where}: 'blob-metadata'")
    return {**statistics, "blob-metadata": [_check_blob(blob, f"{where}: a blob") for blob in blobs]}


def _check_blob(value: object, where: str) -> JsonObject:
    blob = without_nulls(json_object(value, where), "properties")
    text(blob, "type", where)
    int64(blob, "snapshot-id", where)
    int64(blob, "sequence-number", where)
    int32_list(blob, "fields", where)
    if "properties" in blob:
        text_map(blob, "properties", where)
    return blob


def check_partition_statistics(value: object, where: str) -> JsonObject:
    statistics = json_object(value, where)
    int64(statistics, "snapshot-id", where)
    filled_text(statistics, "statistics-path", where)
    int64(statistics, "file-size-in-bytes", where)
    return statistics


def check_encryption_key(value: object, where: str) -> JsonObject:
    key = without_nulls(json_object(value, where), "encrypted-by-id", "properties")
    filled_text(key, "key-id", where)
    optional_text(key, "encrypted-by-id", where)
    if "properties" in key:
        text_map(key, "properties", where)
    try:
        base64.b64decode(text(key, "encrypted-key-metadata", where), validate=True)
    except (binascii.Error, ValueError):
        raise Malformed(f"{where}: 'encrypted-key-metadata' is not base64") from None
    return key


def check_view_version(value: object, where: str) -> JsonObject:
    version = without_nulls(json_object(value, where), "default-catalog")
    int32(version, "version-id", where)
    int64(version, "timestamp-ms", where)
    int32(version, "schema-id", where)
    text_map(version, "summary", where)
    optional_text(version, "default-catalog", where)
    check_namespace(text_list(version, "default-namespace", where), f"{where}: 'default-namespace'")
    for value_ in json_list(version.get("representations"), f"{where}: 'representations'"):
        representation = json_object(value_, f"{where}: a representation")
        if filled_text(representation, "type", f"{where}: a representation").lower() == "sql":
            text(representation, "sql", f"{where}: a representation")
            filled_text(representation, "dialect", f"{where}: a representation")
    return version
