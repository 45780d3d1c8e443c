"""What a version of a table has changed beside its rows, in words: of the field `changed` of its receipt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

METADATA: Final = "metadata"
"""What a change is called of which nothing more is known, or that is of several kinds."""

_KINDS: Final = {
    "format-version": "format version",
    "schema": "schema",
    "partition-spec": "partitioning",
    "sort-order": "sort order",
    "location": "location",
    "refs": "branches and tags",
    "properties": "properties",
    "snapshots-removed": "expiry",
    "statistics": "statistics",
}


def kind_of(changed: Mapping[str, Any]) -> str:
    """One word for it all."""
    kinds = [word for field, word in _KINDS.items() if changed.get(field)]
    return kinds[0] if len(kinds) == 1 else METADATA


def in_words(changed: Mapping[str, Any]) -> list[str]:
    """One short sentence for each kind of change. What is not understood is left out: a later release may say more."""
    found: list[str] = []
    for field in ("format-version", "schema", "partition-spec", "sort-order", "location"):
        step = changed.get(field)
        if isinstance(step, dict):
            found.append(f"{_KINDS[field]} {step.get('from')} → {step.get('to')}")
    found += _refs(_object(changed.get("refs")))
    properties = _object(changed.get("properties"))
    if names := _texts(properties.get("set")):
        found.append(f"{'property' if len(names) == 1 else 'properties'} {', '.join(names)} set")
    if names := _texts(properties.get("removed")):
        found.append(f"{'property' if len(names) == 1 else 'properties'} {', '.join(names)} removed")
    gone = changed.get("snapshots-removed")
    if isinstance(gone, int) and gone:
        found.append(f"{gone:,} {'snapshot' if gone == 1 else 'snapshots'} removed")
    if changed.get("statistics"):
        found.append("statistics")
    return found


def _refs(refs: Mapping[str, Any]) -> list[str]:
    found = []
    for name, ref in _object(refs.get("set")).items():
        told = _object(ref)
        found.append(f"{told.get('type') or 'ref'} {name} set to snapshot {told.get('snapshot-id')}")
    if names := _texts(refs.get("removed")):
        found.append(f"{', '.join(names)} removed")
    return found


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> Sequence[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
