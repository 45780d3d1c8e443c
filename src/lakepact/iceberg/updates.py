"""The fold over a table's updates: metadata and updates in, metadata out. Java's `TableMetadata.Builder`, in meaning.

Four things are decided differently. A commit whose updates change no value is no change, even if it sets a property
to what it is. The last sequence number never goes back. Partition fields sent without ids get ids that no other field
has. A default spec or order that does not exist is refused at once, even if a later update would set another one. Each
is the same wherever Java's own clients are concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from lakepact.iceberg import names, update_layout, update_snapshots, update_table
from lakepact.iceberg.draft import Context, Draft
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.finish import Applied, finish
from lakepact.iceberg.metadata import empty_metadata
from lakepact.iceberg.parse import Update

_ACTIONS: Final[Mapping[str, Callable[[Draft, JsonObject], None]]] = {
    names.ASSIGN_UUID: update_table.assign_uuid,
    names.UPGRADE_FORMAT_VERSION: update_table.upgrade_format_version,
    names.ADD_SCHEMA: update_layout.add_schema,
    names.SET_CURRENT_SCHEMA: update_layout.set_current_schema,
    names.REMOVE_SCHEMAS: update_layout.remove_schemas,
    names.ADD_SPEC: update_layout.add_spec,
    names.SET_DEFAULT_SPEC: update_layout.set_default_spec,
    names.REMOVE_PARTITION_SPECS: update_layout.remove_partition_specs,
    names.ADD_SORT_ORDER: update_layout.add_sort_order,
    names.SET_DEFAULT_SORT_ORDER: update_layout.set_default_sort_order,
    names.ADD_SNAPSHOT: update_snapshots.add_snapshot,
    names.REMOVE_SNAPSHOTS: update_snapshots.remove_snapshots,
    names.SET_SNAPSHOT_REF: update_snapshots.set_snapshot_ref,
    names.REMOVE_SNAPSHOT_REF: update_snapshots.remove_snapshot_ref,
    names.SET_LOCATION: update_table.set_location,
    names.SET_PROPERTIES: update_table.set_properties,
    names.REMOVE_PROPERTIES: update_table.remove_properties,
    names.SET_STATISTICS: update_table.set_statistics,
    names.REMOVE_STATISTICS: update_table.remove_statistics,
    names.SET_PARTITION_STATISTICS: update_table.set_partition_statistics,
    names.REMOVE_PARTITION_STATISTICS: update_table.remove_partition_statistics,
    names.ADD_ENCRYPTION_KEY: update_table.add_encryption_key,
    names.REMOVE_ENCRYPTION_KEY: update_table.remove_encryption_key,
}


def apply(metadata: JsonObject | None, updates: Iterable[Update], context: Context) -> Applied:
    """The metadata after these updates, in their order. None as metadata: the updates create the table.

    Raises `InvalidUpdate` if one does not fit (the request is wrong) and `StaleUpdate` if one was computed on an
    older table (the client should refresh and try again). The input is never changed; the result shares what it
    did not touch.
    """
    updates = tuple(updates)
    empty = empty_metadata(_first_format(updates), context.now_ms) if metadata is None else None
    draft = Draft(metadata, context, empty)
    for update in updates:
        _ACTIONS[update.action](draft, update.body)
    return finish(draft)


def _first_format(updates: tuple[Update, ...]) -> int:
    """A table is created in the format its first upgrade asks for."""
    asked = (update.body["format-version"] for update in updates if update.action == names.UPGRADE_FORMAT_VERSION)
    version: int = next(asked, names.DEFAULT_FORMAT)
    if not 1 <= version <= names.NEWEST_FORMAT:
        raise InvalidUpdate(
            f"upgrade-format-version: format {version} is not supported; the newest is {names.NEWEST_FORMAT}"
        )
    return version
