"""The words of the Iceberg specification that this package compares: actions, requirements, properties.

A word is written once, here. What it means is said where it is used.
"""

from __future__ import annotations

from typing import Final

# --- updates ---

ASSIGN_UUID: Final = "assign-uuid"
UPGRADE_FORMAT_VERSION: Final = "upgrade-format-version"
ADD_SCHEMA: Final = "add-schema"
SET_CURRENT_SCHEMA: Final = "set-current-schema"
REMOVE_SCHEMAS: Final = "remove-schemas"
ADD_SPEC: Final = "add-spec"
SET_DEFAULT_SPEC: Final = "set-default-spec"
REMOVE_PARTITION_SPECS: Final = "remove-partition-specs"
ADD_SORT_ORDER: Final = "add-sort-order"
SET_DEFAULT_SORT_ORDER: Final = "set-default-sort-order"
ADD_SNAPSHOT: Final = "add-snapshot"
REMOVE_SNAPSHOTS: Final = "remove-snapshots"
SET_SNAPSHOT_REF: Final = "set-snapshot-ref"
REMOVE_SNAPSHOT_REF: Final = "remove-snapshot-ref"
SET_LOCATION: Final = "set-location"
SET_PROPERTIES: Final = "set-properties"
REMOVE_PROPERTIES: Final = "remove-properties"
SET_STATISTICS: Final = "set-statistics"
REMOVE_STATISTICS: Final = "remove-statistics"
SET_PARTITION_STATISTICS: Final = "set-partition-statistics"
REMOVE_PARTITION_STATISTICS: Final = "remove-partition-statistics"
ADD_ENCRYPTION_KEY: Final = "add-encryption-key"
REMOVE_ENCRYPTION_KEY: Final = "remove-encryption-key"
ADD_VIEW_VERSION: Final = "add-view-version"
SET_CURRENT_VIEW_VERSION: Final = "set-current-view-version"

TABLE_ACTIONS: Final = frozenset(
    {
        ASSIGN_UUID,
        UPGRADE_FORMAT_VERSION,
        ADD_SCHEMA,
        SET_CURRENT_SCHEMA,
        REMOVE_SCHEMAS,
        ADD_SPEC,
        SET_DEFAULT_SPEC,
        REMOVE_PARTITION_SPECS,
        ADD_SORT_ORDER,
        SET_DEFAULT_SORT_ORDER,
        ADD_SNAPSHOT,
        REMOVE_SNAPSHOTS,
        SET_SNAPSHOT_REF,
        REMOVE_SNAPSHOT_REF,
        SET_LOCATION,
        SET_PROPERTIES,
        REMOVE_PROPERTIES,
        SET_STATISTICS,
        REMOVE_STATISTICS,
        SET_PARTITION_STATISTICS,
        REMOVE_PARTITION_STATISTICS,
        ADD_ENCRYPTION_KEY,
        REMOVE_ENCRYPTION_KEY,
    }
)
VIEW_ACTIONS: Final = frozenset(
    {
        ASSIGN_UUID,
        UPGRADE_FORMAT_VERSION,
        ADD_SCHEMA,
        SET_LOCATION,
        SET_PROPERTIES,
        REMOVE_PROPERTIES,
        ADD_VIEW_VERSION,
        SET_CURRENT_VIEW_VERSION,
    }
)
ACTION_ALIASES: Final = {"add-partition-spec": ADD_SPEC}
"""What else an action may be called: some documentation says `add-partition-spec`, the specification `add-spec`."""

# --- requirements ---

ASSERT_CREATE: Final = "assert-create"
ASSERT_TABLE_UUID: Final = "assert-table-uuid"
ASSERT_REF_SNAPSHOT_ID: Final = "assert-ref-snapshot-id"
ASSERT_LAST_ASSIGNED_FIELD_ID: Final = "assert-last-assigned-field-id"
ASSERT_CURRENT_SCHEMA_ID: Final = "assert-current-schema-id"
ASSERT_LAST_ASSIGNED_PARTITION_ID: Final = "assert-last-assigned-partition-id"
ASSERT_DEFAULT_SPEC_ID: Final = "assert-default-spec-id"
ASSERT_DEFAULT_SORT_ORDER_ID: Final = "assert-default-sort-order-id"
ASSERT_VIEW_UUID: Final = "assert-view-uuid"

TABLE_REQUIREMENTS: Final = frozenset(
    {
        ASSERT_CREATE,
        ASSERT_TABLE_UUID,
        ASSERT_REF_SNAPSHOT_ID,
        ASSERT_LAST_ASSIGNED_FIELD_ID,
        ASSERT_CURRENT_SCHEMA_ID,
        ASSERT_LAST_ASSIGNED_PARTITION_ID,
        ASSERT_DEFAULT_SPEC_ID,
        ASSERT_DEFAULT_SORT_ORDER_ID,
    }
)
VIEW_REQUIREMENTS: Final = frozenset({ASSERT_VIEW_UUID})

# --- formats ---

DEFAULT_FORMAT: Final = 2
NEWEST_FORMAT: Final = 3

# --- references ---

MAIN: Final = "main"
BRANCH: Final = "branch"
TAG: Final = "tag"

LAST_ADDED: Final = -1
"""In an update: the schema, spec, order or version that this very request added last."""

NO_SNAPSHOT: Final = -1
"""How formats 1 and 2 write "no current snapshot". Format 3 writes null."""

# --- properties ---

FORMAT_VERSION_PROPERTY: Final = "format-version"
RESERVED_PROPERTIES: Final = frozenset(
    {
        FORMAT_VERSION_PROPERTY,
        "uuid",
        "snapshot-count",
        "current-snapshot-id",
        "current-snapshot-summary",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
"""Not properties at all, but ways to ask for something at creation. They are never stored."""

PREVIOUS_VERSIONS_MAX: Final = "write.metadata.previous-versions-max"
DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"
METADATA_COMPRESSION: Final = "write.metadata.compression-codec"
METADATA_PATH: Final = "write.metadata.path"
PARQUET_COMPRESSION: Final = "write.parquet.compression-codec"
METRICS_COLUMN_PREFIX: Final = "write.metadata.metrics.column."
COMMIT_PROPERTIES: Final = (
    "commit.retry.num-retries",
    "commit.retry.min-wait-ms",
    "commit.retry.max-wait-ms",
    "commit.retry.total-timeout-ms",
)
ENCRYPTION_PROPERTIES: Final = ("encryption.key-id", "encryption.data-key-length")
VERSION_HISTORY: Final = "version.history.num-entries"
DROP_DIALECT_ALLOWED: Final = "replace.drop-dialect.allowed"
