"""The tables that are made of receipts: their columns, and what they are for.

Every one of them is an ordinary Iceberg table of the lake. `waiting` is the only one that is not for questions: it
keeps what cannot be projected yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

NAMESPACE: Final = "lakepact"
FORMAT: Final = 1
"""Of these tables and of the position. Tables of another format are made anew by a full run."""

_PROPERTIES: Final[Mapping[str, str]] = {
    # A run every quarter of an hour makes many versions, and nobody reads the old metadata files.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.max-snapshot-age-ms": str(3 * 24 * 3600 * 1000),
}

_WHO: Final = """
    source_kind STRING, principal STRING, client STRING, pipeline STRING, run_id STRING,
    source MAP<STRING, STRING>, lineage STRING, quality STRING
"""


@dataclass(frozen=True, slots=True)
class Projection:
    name: str
    comment: str
    columns: str
    partitioned_by: str | None = None

    @property
    def full_name(self) -> str:
        return f"{NAMESPACE}.{self.name}"

    def creation(self, catalog: str) -> str:
        partitioned = f" PARTITIONED BY ({self.partitioned_by})" if self.partitioned_by else ""
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in _PROPERTIES.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {catalog}.{self.full_name} ({self.columns}) USING iceberg{partitioned} "
            f"COMMENT '{self.comment}' TBLPROPERTIES ({properties})"
        )


TABLES: Final = Projection(
    "tables",
    "Every table and view there is or was, as its newest receipt has it",
    """
    table_id STRING, table_name STRING, namespace STRING, name STRING, levels ARRAY<STRING>, kind STRING, format STRING,
    dropped BOOLEAN, owner STRING, description STRING, created_at TIMESTAMP, changed_at TIMESTAMP, change STRING,
    revision BIGINT, generation BIGINT, transaction_id STRING, commit_key STRING, location STRING,
    metadata_location STRING,
    schema_id INT, snapshot_id BIGINT, refs MAP<STRING, BIGINT>, properties MAP<STRING, STRING>, metadata_read BOOLEAN
    """,
)
COLUMNS: Final = Projection(
    "columns",
    "The columns that tables and views have now",
    """
    table_id STRING, table_name STRING, namespace STRING, position INT, name STRING, field_id INT, type STRING,
    required BOOLEAN, description STRING
    """,
)
# By day, so that a run looks only at those days' rows for what it has seen before.
COMMITS: Final = Projection(
    "commits",
    "Every committed change of a table, view or namespace",
    f"""
    commit_key STRING, event_id STRING, committed_at TIMESTAMP, kind STRING, format STRING, change STRING,
    table_id STRING, table_name STRING, namespace STRING, name STRING, revision BIGINT, transaction_id STRING,
    transaction_tables INT, operation STRING, snapshot_id BIGINT, snapshot_operation STRING, schema_id INT,
    metadata_location STRING, previous_metadata_location STRING, base_metadata_location STRING,
    added_records BIGINT, deleted_records BIGINT, {_WHO}
    """,
    "days(committed_at)",
)
TRANSACTIONS: Final = Projection(
    "transactions",
    "Every committed transaction, with what it has changed",
    f"""
    transaction_id STRING, committed_at TIMESTAMP, operation STRING, changes INT, table_names ARRAY<STRING>,
    tables ARRAY<STRUCT<table_name: STRING, table_id: STRING, kind: STRING, change: STRING, snapshot_id: BIGINT>>,
    {_WHO}
    """,
)
SNAPSHOTS: Final = Projection(
    "snapshots",
    "Every snapshot that a commit has added, on whatever branch",
    """
    table_id STRING, table_name STRING, snapshot_id BIGINT, parent_snapshot_id BIGINT, sequence_number BIGINT,
    snapshot_at TIMESTAMP, committed_at TIMESTAMP, operation STRING, schema_id INT, current BOOLEAN,
    transaction_id STRING, commit_key STRING, pipeline STRING, run_id STRING, task STRING,
    summary MAP<STRING, STRING>
    """,
)
LINEAGE: Final = Projection(
    "lineage",
    "Which table was made of which, in which run",
    """
    input_table STRING, input_table_id STRING, input_snapshot_id BIGINT, input_since_snapshot_id BIGINT,
    output_table STRING, output_table_id STRING, output_snapshot_id BIGINT, committed_at TIMESTAMP,
    transaction_id STRING, commit_key STRING, pipeline STRING, run_id STRING, task STRING, direct BOOLEAN,
    confidence STRING
    """,
)
CHECKS: Final = Projection(
    "checks",
    "How every check of every run went",
    """
    transaction_id STRING, position INT, table_name STRING, table_id STRING, snapshot_id BIGINT, name STRING,
    kind STRING, status STRING, severity STRING, rows BIGINT, violations BIGINT, tolerated DOUBLE,
    committed_at TIMESTAMP, pipeline STRING, run_id STRING
    """,
)
FILES: Final = Projection(
    "files",
    "How large every table was after each of its commits",
    """
    table_id STRING, table_name STRING, committed_at TIMESTAMP, commit_key STRING, transaction_id STRING,
    snapshot_id BIGINT, records BIGINT, data_files BIGINT, bytes BIGINT, delete_files BIGINT, position_deletes BIGINT,
    equality_deletes BIGINT, added_records BIGINT, deleted_records BIGINT, added_data_files BIGINT,
    deleted_data_files BIGINT, added_bytes BIGINT, removed_bytes BIGINT
    """,
)
WAITING: Final = Projection(
    "waiting",
    "Receipts of transactions whose other receipts have not been found yet",
    "commit_key STRING, transaction_id STRING, committed_at TIMESTAMP, receipt STRING",
)

ALL: Final = (TABLES, COLUMNS, COMMITS, TRANSACTIONS, SNAPSHOTS, LINEAGE, CHECKS, FILES, WAITING)
