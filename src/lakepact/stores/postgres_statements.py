"""Every statement the PostgreSQL store sends, for one schema and this release's functions."""

from __future__ import annotations

from lakepact.stores.postgres_functions import digest
from lakepact.stores.postgres_schema import quoted
from lakepact.stores.sql_codec import RECORD_COLUMNS


class Statements:
    def __init__(self, schema: str) -> None:
        name, version = quoted(schema), digest()

        def function(function_name: str, arguments: int, columns: str = "") -> str:
            call = f"{name}.{function_name}_{version}({', '.join(f'${number + 1}' for number in range(arguments))})"
            return f"SELECT {columns} FROM {call}" if columns else f"SELECT {call}"

        self.commit = function("commit", 15)
        self.commit_prepared = function("commit_prepared", 5)
        self.prepare = function("prepare", 12)
        self.finish = function("finish", 6)
        self.anchor = function("anchor", 2)
        self.read_in = function("read_in", 4, "key, revision, value, writer")
        self.look = function("look", 3, "key, revision, value, writer")
        self.scan_in = function("scan_in", 5, "key, revision, value, writer")
        self.stage = function("stage", 12)
        self.prune = function("prune", 1)

        self.read = f"SELECT key, revision, value, writer FROM {name}.cells WHERE key = ANY ($1::text[])"
        self.scan = (
            f"SELECT key, revision, value, writer FROM {name}.cells "
            f"WHERE key > $1 AND key < $2 AND value IS NOT NULL ORDER BY key LIMIT $3"
        )
        self.load = f"SELECT {RECORD_COLUMNS} FROM {name}.transactions WHERE id = $1"
        self.list = (
            f"SELECT {RECORD_COLUMNS} FROM {name}.transactions WHERE id > $1 AND state = ANY ($2::text[]) "
            f"AND created_ms < $3 ORDER BY id LIMIT $4"
        )
        # Only undecided transactions: they are few among many, and have an index of their own.
        self.list_undecided = self.list.replace("WHERE", "WHERE decided_ms IS NULL AND")
        self.begin = (
            f"INSERT INTO {name}.transactions "
            f"(id, state, request_hash, created_ms, expires_ms, isolation, properties, sealed) "
            f"VALUES ($1, 'open', $2, $3, $4, $5, $6, false) ON CONFLICT (id) DO NOTHING"
        )
        self.fail_new = (
            f"INSERT INTO {name}.transactions (id, state, request_hash, created_ms, answer, decided_ms) "
            f"VALUES ($1, 'failed', $2, $3, $4, $3) ON CONFLICT (id) DO NOTHING RETURNING true"
        )
        self.seal = f"UPDATE {name}.transactions SET sealed = true WHERE id = $1 AND state = 'open' AND expires_ms > $2"
        self.staged = f"SELECT key, base, written, value FROM {name}.staged WHERE transaction_id = $1 ORDER BY key"
        # One statement, so that what is staged and whether it is still open are of one instant.
        self.contents = (
            f"SELECT {RECORD_COLUMNS}, key, base, written, value FROM {name}.transactions "
            f"LEFT JOIN {name}.staged ON transaction_id = id AND state = 'open' WHERE id = $1 ORDER BY key"
        )
        self.renew = (
            f"UPDATE {name}.transactions "
            f"SET expires_ms = greatest(expires_ms, CASE state WHEN 'prepared' THEN $4::bigint ELSE $3::bigint END) "
            f"WHERE id = $1 AND state IN ('open', 'prepared') AND expires_ms > $2 RETURNING {RECORD_COLUMNS}"
        )
        self.expired = (
            f"SELECT id FROM {name}.transactions WHERE decided_ms IS NULL "
            f"AND (expires_ms <= $1 OR (state = 'retryable' AND retry_until_ms <= $1)) LIMIT $2"
        )
        self.trim = (
            f"WITH trimmed AS (UPDATE {name}.transactions SET plan = NULL, properties = NULL WHERE id = ANY (ARRAY("
            f"SELECT id FROM {name}.transactions WHERE plan IS NOT NULL AND decided_ms < $1 "
            f"ORDER BY decided_ms LIMIT $2)) AND plan IS NOT NULL RETURNING 1) SELECT count(*) FROM trimmed"
        )
        self.delete = (
            f"WITH deleted AS (DELETE FROM {name}.transactions WHERE id = ANY (ARRAY("
            f"SELECT id FROM {name}.transactions WHERE id < $1 AND decided_ms < $2 ORDER BY id LIMIT $3)) "
            f"RETURNING 1) SELECT count(*) FROM deleted"
        )
