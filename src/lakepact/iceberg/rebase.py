"""Decide whether updates that were staged on older table metadata may be applied to newer metadata.

The requirements of a commit do not protect everything that the commit changes: a client that sets a property sends no
more than the table's UUID. Therefore the metadata that the updates were staged on is compared with the newer metadata,
along exactly the parts that the updates change. A part that differs was changed by another commit, and applying
the updates would overwrite that change.

Updates of snapshots, branches and tags are never rebased (`intent.is_metadata_only`) and are not handled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from lakepact.iceberg import names
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.parse import Update

Part: TypeAlias = tuple[str, Any]
"""A field of the metadata, and the entry of it: a property's name, a snapshot's id. None: the whole field."""

_SCHEMAS: Final = ("schemas", "current-schema-id", "last-column-id")
_SPECS: Final = ("partition-specs", "default-spec-id", "last-partition-id")
_ORDERS: Final = ("sort-orders", "default-sort-order-id")

_WHOLE_FIELDS: Final = {
    names.ASSIGN_UUID: ("table-uuid",),
    names.UPGRADE_FORMAT_VERSION: ("format-version",),
    names.SET_LOCATION: ("location",),
    names.ADD_SCHEMA: _SCHEMAS,
    names.SET_CURRENT_SCHEMA: _SCHEMAS,
    names.REMOVE_SCHEMAS: _SCHEMAS,
    names.ADD_SPEC: _SPECS,
    names.SET_DEFAULT_SPEC: _SPECS,
    names.REMOVE_PARTITION_SPECS: _SPECS,
    names.ADD_SORT_ORDER: _ORDERS,
    names.SET_DEFAULT_SORT_ORDER: _ORDERS,
}
_LISTED_BY: Final = {"statistics": "snapshot-id", "partition-statistics": "snapshot-id", "encryption-keys": "key-id"}
"""Fields that are lists, and which member tells their entries apart."""


def changed_parts(base: JsonObject, newer: JsonObject, updates: Iterable[Update]) -> list[str]:
    """Name the parts of the table that these updates change and that differ between the two versions of its metadata.

    An empty list means that no other commit has changed what the updates change. An action that is not known here
    counts as a change of the whole table.
    """
    differing = (part for part in _parts_of(updates) if _value(base, part) != _value(newer, part))
    return list(dict.fromkeys(_described(part) for part in differing))


def _parts_of(updates: Iterable[Update]) -> Iterator[Part]:
    for update in updates:
        body = update.body
        match update.action:
            case names.SET_PROPERTIES:
                yield from (("properties", name) for name in body["updates"])
            case names.REMOVE_PROPERTIES:
                yield from (("properties", name) for name in body["removals"])
            case names.SET_STATISTICS:
                yield "statistics", body["statistics"]["snapshot-id"]
            case names.REMOVE_STATISTICS:
                yield "statistics", body["snapshot-id"]
            case names.SET_PARTITION_STATISTICS:
                yield "partition-statistics", body["partition-statistics"]["snapshot-id"]
            case names.REMOVE_PARTITION_STATISTICS:
                yield "partition-statistics", body["snapshot-id"]
            case names.ADD_ENCRYPTION_KEY:
                yield "encryption-keys", body["encryption-key"]["key-id"]
            case names.REMOVE_ENCRYPTION_KEY:
                yield "encryption-keys", body["key-id"]
            case action if action in _WHOLE_FIELDS:
                yield from ((field, None) for field in _WHOLE_FIELDS[action])
            case _:
                yield "metadata", None


def _value(metadata: JsonObject, part: Part) -> Any:
    field, entry = part
    if field == "metadata":
        return metadata
    if field == "properties":
        return (metadata.get(field) or {}).get(entry)
    if field in _LISTED_BY:
        return [one for one in metadata.get(field) or () if one.get(_LISTED_BY[field]) == entry]
    return metadata.get(field)


def _described(part: Part) -> str:
    field, entry = part
    match field:
        case "properties":
            return f"property {entry!r}"
        case "statistics" | "partition-statistics":
            return f"{field} of snapshot {entry}"
        case "encryption-keys":
            return f"encryption key {entry!r}"
        case _:
            return field
