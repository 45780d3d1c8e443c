"""Requirements and updates as a client sends them, checked once and turned into frozen values.

Names this release does not know are refused before anything else is looked at, all of them in one answer. After this
the fold may rely on every field: what can still go wrong is that an update does not fit the table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from lakepact.iceberg import names
from lakepact.iceberg.bodies import (
    check_encryption_key,
    check_partition_statistics,
    check_ref,
    check_snapshot,
    check_statistics,
    check_view_version,
)
from lakepact.iceberg.errors import Malformed, UnknownNames
from lakepact.iceberg.fields import (
    JsonObject,
    filled_text,
    int32,
    int32_list,
    int64,
    int64_list,
    json_list,
    json_object,
    optional_int64,
    text,
    text_list,
    text_map,
)
from lakepact.iceberg.orders import check_order
from lakepact.iceberg.schemas import check_schema
from lakepact.iceberg.specs import check_spec
from lakepact.limits import TABLE_PROPERTIES, check_name

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Update:
    """One checked update. `action` is the specification's name, `body` holds checked fields only the fold reads."""

    action: str
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Requirement:
    """One checked requirement. `body` is the object as it was sent, for the answer to name it."""

    type: str
    body: JsonObject


def parse_table_updates(values: object) -> tuple[Update, ...]:
    return _parse_updates(values, names.TABLE_ACTIONS)


def parse_view_updates(values: object) -> tuple[Update, ...]:
    return _parse_updates(values, names.VIEW_ACTIONS)


def parse_table_requirements(values: object) -> tuple[Requirement, ...]:
    return _parse_requirements(values, names.TABLE_REQUIREMENTS)


def parse_view_requirements(values: object) -> tuple[Requirement, ...]:
    return _parse_requirements(values, names.VIEW_REQUIREMENTS)


def unknown_table_names(requirements: object, updates: object) -> list[str]:
    """Every requirement and action of a table commit that is not known, so that one answer can name them all."""
    return [
        *_unknown(requirements, "requirements", "type", names.TABLE_REQUIREMENTS),
        *_unknown(updates, "updates", "action", names.TABLE_ACTIONS),
    ]


def _unknown(values: object, what: str, discriminator: str, known: Collection[str]) -> list[str]:
    return [
        name
        for number, value in enumerate(json_list(values, what))
        if (name := _name(value, discriminator, f"{what}[{number}]")) not in known
    ]


def _name(value: object, discriminator: str, where: str) -> str:
    name = text(json_object(value, where), discriminator, where).lower()
    return names.ACTION_ALIASES.get(name, name)


# --- updates ---


def _parse_updates(values: object, known: Collection[str]) -> tuple[Update, ...]:
    if unknown := _unknown(values, "updates", "action", known):
        raise UnknownNames(unknown, known)
    return tuple(_parse_update(value, number) for number, value in enumerate(json_list(values, "updates")))


def _parse_update(value: JsonObject, number: int) -> Update:
    action = _name(value, "action", f"updates[{number}]")
    return Update(action, _BODIES[action](value, f"updates[{number}] ({action})"))


def _integer_body(name: str) -> Callable[[JsonObject, str], JsonObject]:
    return lambda value, where: {name: int32(value, name, where)}


def _snapshot_id_body(value: JsonObject, where: str) -> JsonObject:
    return {"snapshot-id": int64(value, "snapshot-id", where)}


def _object_body(name: str, check: Callable[[object, str], JsonObject]) -> Callable[[JsonObject, str], JsonObject]:
    return lambda value, where: {name: check(value.get(name), f"{where}: {name}")}


def _uuid_body(value: JsonObject, where: str) -> JsonObject:
    uuid = text(value, "uuid", where)
    if not _UUID.fullmatch(uuid):
        raise Malformed(f"{where}: {uuid[:60]!r} is not a UUID")
    return {"uuid": uuid}


def _ref_body(value: JsonObject, where: str) -> JsonObject:
    name = filled_text(value, "ref-name", where)
    check_name(name, f"{where}: 'ref-name'")
    ref = {key: field for key, field in value.items() if key not in ("action", "ref-name")}
    return {"ref-name": name, "ref": check_ref(ref, f"{where}: {name}")}


def _set_properties_body(value: JsonObject, where: str) -> JsonObject:
    # Old clients say "updated" and "removed".
    name = "updated" if "updates" not in value and "updated" in value else "updates"
    updates = text_map(value, name, where)
    TABLE_PROPERTIES.check(len(updates), where)
    return {"updates": updates}


def _remove_properties_body(value: JsonObject, where: str) -> JsonObject:
    name = "removed" if "removals" not in value and "removed" in value else "removals"
    return {"removals": text_list(value, name, where)}


_BODIES: Final[Mapping[str, Callable[[JsonObject, str], JsonObject]]] = {
    names.ASSIGN_UUID: _uuid_body,
    names.UPGRADE_FORMAT_VERSION: _integer_body("format-version"),
    names.ADD_SCHEMA: _object_body("schema", check_schema),
    names.SET_CURRENT_SCHEMA: _integer_body("schema-id"),
    names.REMOVE_SCHEMAS: lambda value, where: {"schema-ids": int32_list(value, "schema-ids", where)},
    names.ADD_SPEC: _object_body("spec", check_spec),
    names.SET_DEFAULT_SPEC: _integer_body("spec-id"),
    names.REMOVE_PARTITION_SPECS: lambda value, where: {"spec-ids": int32_list(value, "spec-ids", where)},
    names.ADD_SORT_ORDER: _object_body("sort-order", check_order),
    names.SET_DEFAULT_SORT_ORDER: _integer_body("sort-order-id"),
    names.ADD_SNAPSHOT: _object_body("snapshot", check_snapshot),
    names.REMOVE_SNAPSHOTS: lambda value, where: {"snapshot-ids": int64_list(value, "snapshot-ids", where)},
    names.SET_SNAPSHOT_REF: _ref_body,
    names.REMOVE_SNAPSHOT_REF: lambda value, where: {"ref-name": filled_text(value, "ref-name", where)},
    names.SET_LOCATION: lambda value, where: {"location": filled_text(value, "location", where)},
    names.SET_PROPERTIES: _set_properties_body,
    names.REMOVE_PROPERTIES: _remove_properties_body,
    names.SET_STATISTICS: _object_body("statistics", check_statistics),
    names.REMOVE_STATISTICS: _snapshot_id_body,
    names.SET_PARTITION_STATISTICS: _object_body("partition-statistics", check_partition_statistics),
    names.REMOVE_PARTITION_STATISTICS: _snapshot_id_body,
    names.ADD_ENCRYPTION_KEY: _object_body("encryption-key", check_encryption_key),
    names.REMOVE_ENCRYPTION_KEY: lambda value, where: {"key-id": filled_text(value, "key-id", where)},
    names.ADD_VIEW_VERSION: _object_body("view-version", check_view_version),
    names.SET_CURRENT_VIEW_VERSION: _integer_body("view-version-id"),
}


# --- requirements ---


def _parse_requirements(values: object, known: Collection[str]) -> tuple[Requirement, ...]:
    if unknown := _unknown(values, "requirements", "type", known):
        raise UnknownNames(unknown, known)
    return tuple(_parse_requirement(value, number) for number, value in enumerate(json_list(values, "requirements")))


def _parse_requirement(value: JsonObject, number: int) -> Requirement:
    kind = _name(value, "type", f"requirements[{number}]")
    where = f"requirements[{number}] ({kind})"
    match kind:
        case names.ASSERT_CREATE:
            pass
        case names.ASSERT_TABLE_UUID | names.ASSERT_VIEW_UUID:
            text(value, "uuid", where)
        case names.ASSERT_REF_SNAPSHOT_ID:
            text(value, "ref", where)
            optional_int64(value, "snapshot-id", where)
        case _:
            int32(value, kind.removeprefix("assert-"), where)
    return Requirement(kind, value)
