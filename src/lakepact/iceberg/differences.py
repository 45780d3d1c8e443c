"""What one version of a table has that the version before it had not, in a few fields: for receipts, and so for people.

Rows are not told of here: the snapshots that a version has added say what became of those. What is compared is small
however long a table's past is, and of what has many names, no more than a few are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Final

from lakepact.iceberg import metadata as documents
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.names import MAIN

_NUMBERED: Final = {
    "format-version": "format-version",
    "schema": "current-schema-id",
    "partition-spec": "default-spec-id",
    "sort-order": "default-sort-order-id",
    "location": "location",
}
"""What a version has one of at a time, and the field that says which."""

_STATISTICS: Final = ("statistics", "partition-statistics")
_MOST_NAMES: Final = 20


def differences(metadata: JsonObject, base: JsonObject) -> JsonObject:
    """`base`: the version before. Empty if nothing but rows has changed."""
    found: JsonObject = {}
    for what, field in _NUMBERED.items():
        before, after = base.get(field), metadata.get(field)
        if before != after:
            found[what] = {"from": before, "to": after}
    if refs := _refs(metadata, base):
        found["refs"] = refs
    if properties := _properties(metadata.get("properties") or {}, base.get("properties") or {}):
        found["properties"] = properties
    known = _snapshot_ids(base)
    gone = len(known - _snapshot_ids(metadata))
    if gone:
        found["snapshots-removed"] = gone
    if any((metadata.get(field) or []) != (base.get(field) or []) for field in _STATISTICS):
        found["statistics"] = True
    return found


def _refs(metadata: JsonObject, base: JsonObject) -> JsonObject:
    """Branches and tags. That main goes on to a snapshot that came with this version is what every write does."""
    before, after = documents.refs(base), documents.refs(metadata)
    if before == after:
        return {}
    known = _snapshot_ids(base)
    moved = {
        name: ref
        for name, ref in sorted(after.items())
        if before.get(name) != ref and not (name == MAIN and ref.get("snapshot-id") not in known)
    }
    gone = sorted(before.keys() - after.keys())
    told: JsonObject = {}
    if moved:
        told["set"] = {
            name: {"type": ref.get("type"), "snapshot-id": ref.get("snapshot-id")}
            for name, ref in list(moved.items())[:_MOST_NAMES]
        }
    if gone:
        told["removed"] = gone[:_MOST_NAMES]
    return told


def _properties(after: Mapping[str, Any], before: Mapping[str, Any]) -> JsonObject:
    """Their names alone: a value may be long, and is in the metadata."""
    if after == before:
        return {}
    changed = sorted(name for name, value in after.items() if before.get(name) != value)
    gone = sorted(before.keys() - after.keys())
    told = {"set": changed[:_MOST_NAMES], "removed": gone[:_MOST_NAMES]}
    return {word: names for word, names in told.items() if names}


def _snapshot_ids(metadata: JsonObject) -> Set[int]:
    return {snapshot["snapshot-id"] for snapshot in metadata.get("snapshots") or ()}
