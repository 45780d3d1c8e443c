"""Every statement about Delta rows that the PostgreSQL store sends, for one schema and this release's functions."""

from __future__ import annotations

from typing import Final

from lakepact.delta.rows import COLUMNS, FILE_COLUMNS
from lakepact.stores.postgres_functions import digest
from lakepact.stores.postgres_schema import quoted
from lakepact.stores.sql_delta import ERROR_COLUMNS, MIRROR_COLUMNS, TABLE_COLUMNS, VERSION_COLUMNS

NEWEST: Final = ("dl_metadata_updates", "dl_protocol_updates")
NEWEST_EACH: Final = ("dl_txn_actions", "dl_domain_metadata")


class DeltaStatements:
    def __init__(self, schema: str) -> None:
        name, functions = quoted(schema), digest()
        joined = f"FROM {name}.dl_mirrors m JOIN {name}.dl_tables t ON t.table_id = m.table_id"
        published = (
            f"EXISTS (SELECT FROM {name}.dl_table_versions pv WHERE pv.table_id = a.table_id "
            f"AND pv.version = a.version AND pv.transaction_id = a.transaction_id OFFSET 0)"
        )

        def function(function_name: str, arguments: int) -> str:
            values = ", ".join(f"${number + 1}" for number in range(arguments))
            return f"SELECT {name}.{function_name}_{functions}({values})"

        self.put = function("put", 7)
        self.verify = function("verify", 4)
        self.move = function("move", 5)
        self.discard = function("discard", 1)
        self.purge = function("purge", 2)
        self.number = function("number", 1)
        self.set_mirrors = function("set_mirrors", 2)
        self.log_errors = function("log_errors", 8)

        self.unpublished = (
            f"SELECT n.transaction_id FROM ("
            f"SELECT transaction_id, max(put_ms) AS at_ms FROM {name}.dl_pending GROUP BY transaction_id UNION ALL "
            f"SELECT transaction_id, max(staged_ms) FROM {name}.dl_staged_changes GROUP BY transaction_id) n "
            f"LEFT JOIN {name}.transactions t ON t.id = n.transaction_id GROUP BY n.transaction_id "
            f"HAVING bool_or(t.decided_ms IS NOT NULL) OR (max(t.id) IS NULL AND max(n.at_ms) < $1) LIMIT $2"
        )
        self.stage = (
            f"INSERT INTO {name}.dl_staged_changes (transaction_id, table_id, statement_id, actions, staged_ms) "
            f"SELECT $1, $2, $3, $4, $5 WHERE NOT EXISTS ("
            f"SELECT FROM {name}.transactions WHERE id = $1 AND decided_ms IS NOT NULL) ON CONFLICT DO NOTHING"
        )
        self.staged = (
            f"SELECT table_id, statement_id, actions FROM {name}.dl_staged_changes WHERE transaction_id = $1 "
            f"ORDER BY sequence"
        )

        # The versions run outside, and each of them is one range of an index.
        self.files = (
            f"SELECT a.* FROM {name}.dl_table_versions v CROSS JOIN LATERAL ("
            f"SELECT {', '.join(FILE_COLUMNS)} FROM {name}.dl_add_files f WHERE f.table_id = $1 "
            f"AND f.version = v.version AND f.transaction_id = v.transaction_id "
            f"AND (f.removed_version IS NULL OR f.removed_version > $2) OFFSET 0) a "
            f"WHERE v.table_id = $1 AND v.version <= $2 AND v.adds > 0 "
            f"AND EXISTS (SELECT FROM {name}.dl_table_versions r WHERE r.table_id = $1 AND r.version = $2)"
        )
        # What others have written into their logs may be no JSON, and a cast would fail. Writers begin with the number.
        records = (
            "(substring(f.stats FROM '^\\s*\\{\\s*\"numRecords\"\\s*:\\s*(\\d{1,18})')::bigint "
            "- coalesce((f.deletion_vector::json ->> 'cardinality')::bigint, 0))"
        )
        counted = f"f.size_bytes, f.replaces, {records} AS records"
        sums = "count(a.size_bytes), coalesce(sum(a.size_bytes), 0)::bigint, sum(a.records)::bigint, count(a.records)"
        self.totals = (
            f"SELECT EXISTS (SELECT FROM {name}.dl_table_versions r WHERE r.table_id = $1 AND r.version = $2), {sums} "
            f"FROM {name}.dl_table_versions v CROSS JOIN LATERAL ("
            f"SELECT {counted} FROM {name}.dl_add_files f WHERE f.table_id = $1 "
            f"AND f.version = v.version AND f.transaction_id = v.transaction_id "
            f"AND (f.removed_version IS NULL OR f.removed_version > $2) OFFSET 0) a "
            f"WHERE v.table_id = $1 AND v.version <= $2 AND v.adds > 0"
        )
        self.growth = (
            f"SELECT coalesce(NOT bool_or(a.replaces), true) AND ("
            f"SELECT count(*) = $3::bigint - $2::bigint AND coalesce(sum(r.removes), 0) = 0 "
            f"FROM {name}.dl_table_versions r WHERE r.table_id = $1 AND r.version > $2 AND r.version <= $3), {sums} "
            f"FROM {name}.dl_table_versions v CROSS JOIN LATERAL ("
            f"SELECT {counted} FROM {name}.dl_add_files f WHERE f.table_id = $1 "
            f"AND f.version = v.version AND f.transaction_id = v.transaction_id OFFSET 0) a "
            f"WHERE v.table_id = $1 AND v.version > $2 AND v.version <= $3"
        )
        self.actions = {
            table: (
                f"SELECT v.version, a.* FROM {name}.dl_table_versions v CROSS JOIN LATERAL ("
                f"SELECT {', '.join(columns)} FROM {name}.{table} f WHERE f.table_id = $1 "
                f"AND f.version = v.version AND f.transaction_id = v.transaction_id OFFSET 0) a "
                f"WHERE v.table_id = $1 AND v.version > $2 AND v.version <= $3"
            )
            for table, columns in COLUMNS.items()
        }
        self.removed = f"{self.actions['dl_remove_files']} ORDER BY v.version"
        self.newest = {
            table: (
                f"SELECT {', '.join(COLUMNS[table])} FROM {name}.{table} a "
                f"WHERE a.table_id = $1 AND a.version <= $2 AND {published} ORDER BY a.version DESC LIMIT 1"
            )
            for table in NEWEST
        } | {
            table: (
                f"SELECT DISTINCT ON (a.{COLUMNS[table][0]}) {', '.join(COLUMNS[table])} FROM {name}.{table} a "
                f"WHERE a.table_id = $1 AND a.version <= $2 AND {published} "
                f"ORDER BY a.{COLUMNS[table][0]}, a.version DESC"
            )
            for table in NEWEST_EACH
        }
        self.since = (
            f"SELECT {VERSION_COLUMNS} FROM {name}.dl_table_versions "
            f"WHERE table_id = $1 AND version > $2 AND version <= $3 ORDER BY version"
        )
        self.versions = (
            f"SELECT {VERSION_COLUMNS} FROM {name}.dl_table_versions WHERE table_id = $1 AND version < $2 "
            f"ORDER BY version DESC LIMIT $3"
        )
        self.version_at = (
            f"SELECT version FROM {name}.dl_table_versions WHERE table_id = $1 AND ict_ms <= $2 "
            f"ORDER BY version DESC LIMIT 1"
        )
        self.table = f"SELECT {TABLE_COLUMNS} FROM {name}.dl_tables WHERE table_id = $1"
        self.tables = (
            f"SELECT {TABLE_COLUMNS} FROM {name}.dl_tables WHERE warehouse = $1 AND state = $2 AND table_id > $3 "
            f"ORDER BY table_id LIMIT $4"
        )
        self.errors = (
            f"SELECT {ERROR_COLUMNS}, (extract(epoch FROM timestamp) * 1000)::bigint "
            f"FROM {name}.transaction_error_log WHERE $1::text IS NULL OR table_id = $1 "
            f"ORDER BY sequence DESC LIMIT $2"
        )

        owned = "m.mirror_engine = $1 AND m.lease_owner = $2 AND m.lease_until_ms > $3"
        self.claim = (
            f"WITH found AS MATERIALIZED (SELECT m.table_id, t.current_version {joined} "
            f"WHERE m.mirror_engine = $1 AND m.state IN ('active', 'retrying') AND m.next_attempt_ms <= $3 "
            f"AND m.mirrored_version < t.current_version AND t.state = 'live' "
            f"AND (m.lease_owner IS NULL OR m.lease_owner = $2 OR m.lease_until_ms <= $3) "
            f"AND ($6::text[] IS NULL OR m.table_id = ANY ($6)) AND ($7::text IS NULL OR t.warehouse = $7) "
            f"ORDER BY m.table_id LIMIT $5 FOR UPDATE OF m SKIP LOCKED) "
            f"UPDATE {name}.dl_mirrors m SET lease_owner = $2, lease_until_ms = $4 FROM found t "
            f"WHERE m.table_id = t.table_id AND m.mirror_engine = $1 RETURNING {MIRROR_COLUMNS}"
        )
        self.hold = (
            f"WITH held AS (UPDATE {name}.dl_mirrors m SET lease_until_ms = $4 WHERE {owned} RETURNING 1) "
            f"SELECT count(*) FROM held"
        )
        self.mirrored = (
            f"UPDATE {name}.dl_mirrors m SET mirrored_version = greatest(m.mirrored_version, n.version), "
            f"state = 'active', attempts = 0, next_attempt_ms = 0, last_error = NULL, last_sync_ms = $3, "
            f"lease_owner = NULL, lease_until_ms = NULL FROM unnest($4::text[], $5::bigint[]) AS n (table_id, version) "
            f"WHERE m.table_id = n.table_id AND {owned} RETURNING m.table_id"
        )
        self.ended = (
            f"UPDATE {name}.dl_mirrors m SET state = $5, attempts = attempts + 1, next_attempt_ms = $6, "
            f"last_error = $7, lease_owner = NULL, lease_until_ms = NULL WHERE table_id = $4 AND {owned} RETURNING true"
        )
        self.retry = (
            f"WITH again AS (UPDATE {name}.dl_mirrors SET state = 'active', attempts = 0, next_attempt_ms = 0 "
            f"WHERE state IN ('retrying', 'conflict', 'dead') AND ($1::text IS NULL OR table_id = $1) "
            f"AND ($2::text IS NULL OR mirror_engine = $2) RETURNING 1) SELECT count(*) FROM again"
        )
        self.mirror_status = (
            f"SELECT {MIRROR_COLUMNS} {joined} WHERE t.state = 'live' AND ($1::text IS NULL OR m.table_id = $1) "
            f"ORDER BY m.table_id, m.mirror_engine LIMIT $2"
        )
        self.outgoing = (
            f"SELECT number, transaction_id, ict_ms, tables FROM {name}.dl_outbox "
            f"WHERE warehouse = $1 AND number IS NOT NULL ORDER BY number LIMIT $2"
        )
        self.sent = (
            f"WITH gone AS (DELETE FROM {name}.dl_outbox WHERE warehouse = $1 AND number <= $2) "
            f"UPDATE {name}.dl_cuts SET published = greatest(published, $2) WHERE warehouse = $1"
        )
