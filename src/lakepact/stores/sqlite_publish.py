"""What SQLite does beside the cells of a commit: Delta versions begin to be, in the job that writes the cells.

The rows are there already. This is work in the number of tables and of removed files, whatever was added. The cells
have been compared, so nobody else is at the same tables: what does not fit here is damage, or rows that were discarded.
`postgres_delta_functions` has the same for PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from lakepact.stores.sql_delta import contradiction, rows_gone
from lakepact.stores.sqlite_writer import Work

PUBLISHED: Final = (
    "EXISTS (SELECT 1 FROM dl_table_versions pv WHERE pv.table_id = a.table_id AND pv.version = a.version "
    "AND pv.transaction_id = a.transaction_id)"
)
"""Whether file `a` belongs to a version that exists."""

_END_REMOVED: Final = f"""
    UPDATE dl_add_files SET removed_version = ?2 WHERE rowid IN (
        SELECT a.rowid FROM dl_remove_files r CROSS JOIN dl_add_files a
        ON a.table_id = r.table_id AND a.path = r.path AND a.dv_id = r.dv_id
        WHERE r.table_id = ?1 AND r.version = ?2 AND r.transaction_id = ?3
          AND a.version < ?2 AND a.removed_version IS NULL AND {PUBLISHED})"""
_END_REPLACED: Final = f"""
    UPDATE dl_add_files SET removed_version = ?2 WHERE rowid IN (
        SELECT a.rowid FROM dl_add_files n CROSS JOIN dl_add_files a
        ON a.table_id = n.table_id AND a.path = n.path AND a.dv_id = n.dv_id
        WHERE n.table_id = ?1 AND n.version = ?2 AND n.transaction_id = ?3 AND n.replaces
          AND a.version < ?2 AND a.removed_version IS NULL AND {PUBLISHED})"""


def publish(work: Work, transaction_id: str, request_hash: str, beside: str | None) -> None:
    """Carry out the document of `delta.beside`. Raises `RowsGone` or `Damaged`, and then the job undoes itself."""
    if beside is None:
        return
    delta = orjson.loads(beside)["delta"]
    # First what goes: a table may come to be where another was.
    for table_id in delta["drop"]:
        dropped = work.execute(
            "UPDATE dl_tables SET state = 'dropped' WHERE table_id = ? AND state = 'live'", (table_id,)
        )
        _check(dropped.rowcount, f"table {table_id} is not there to be dropped")
    for one in delta["create"]:
        made = work.execute(
            "INSERT INTO dl_tables (table_id, warehouse, namespace, name, location, current_version) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (
                one["table_id"],
                delta["warehouse"],
                one["namespace"],
                one["name"],
                one["location"],
                one["base_version"],
            ),
        )
        _check(made.rowcount, f"table {one['table_id']} at {one['location']} is there already")
    for one in delta.get("undrop", ()):
        restored = work.execute(
            "UPDATE dl_tables SET state = 'live', namespace = ?, name = ? WHERE table_id = ? AND state = 'dropped'",
            (one["namespace"], one["name"], one["table_id"]),
        )
        _check(restored.rowcount, f"table {one['table_id']} is not there to be restored")
    for one in delta["rename"]:
        renamed = work.execute(
            "UPDATE dl_tables SET namespace = ?, name = ? WHERE table_id = ? AND state = 'live'",
            (one["namespace"], one["name"], one["table_id"]),
        )
        _check(renamed.rowcount, f"table {one['table_id']} is not there to be renamed")
    versions = sorted(delta["versions"], key=lambda one: (one["table_id"], one["version"]))
    for one in versions:
        _publish_version(work, transaction_id, request_hash, one)
    register_mirrors(work, [(one["table_id"], engine) for one in delta["mirrors"] for engine in one["engines"]])
    if delta["outbox"] is not None:
        _post(work, transaction_id, delta["warehouse"], delta["outbox"])
    work.execute("DELETE FROM dl_staged_changes WHERE transaction_id = ?", (transaction_id,))


def _publish_version(work: Work, transaction_id: str, request_hash: str, one: Mapping[str, Any]) -> None:
    table_id, version = one["table_id"], one["version"]
    place = (table_id, version, transaction_id)
    pending = work.execute(
        "DELETE FROM dl_pending WHERE table_id = ? AND version = ? AND transaction_id = ? AND adds = ? AND removes = ? "
        "AND request_hash = ? RETURNING replaces",
        (*place, one["adds"], one["removes"], request_hash),
    ).fetchone()
    if pending is None:
        raise rows_gone(transaction_id, table_id, version)
    moved = work.execute(
        "UPDATE dl_tables SET current_version = ?2, last_ict_ms = ?4, "
        "metadata_version = coalesce((SELECT version FROM dl_metadata_updates "
        "WHERE table_id = ?1 AND version = ?2 AND transaction_id = ?3), metadata_version), "
        "protocol_version = coalesce((SELECT version FROM dl_protocol_updates "
        "WHERE table_id = ?1 AND version = ?2 AND transaction_id = ?3), protocol_version) "
        "WHERE table_id = ?1 AND state = 'live' AND current_version = ?2 - 1 AND coalesce(last_ict_ms < ?4, 1)",
        (*place, one["ict_ms"]),
    )
    _check(moved.rowcount, f"table {table_id} cannot go on to version {version} at {one['ict_ms']}")
    work.execute(
        "INSERT INTO dl_table_versions (table_id, version, transaction_id, ict_ms, operation, operation_params, "
        "commit_info, adds, removes, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *place,
            one["ict_ms"],
            one["operation"],
            one["operation_params"],
            one["commit_info"],
            one["adds"],
            one["removes"],
            one["digest"],
        ),
    )
    if one["removes"]:
        ended = work.execute(_END_REMOVED, place).rowcount
        if not one["tombstones"]:
            _check(ended, f"version {version} of table {table_id} removes files that are not live", one["removes"])
    if pending[0]:
        work.execute(_END_REPLACED, place)


def register_mirrors(work: Work, follow: Sequence[tuple[str, str]]) -> None:
    work.executemany(
        "INSERT INTO dl_mirrors (table_id, mirror_engine) VALUES (?, ?) ON CONFLICT DO NOTHING", list(follow)
    )


def _post(work: Work, transaction_id: str, warehouse: str, outgoing: Mapping[str, Any]) -> None:
    """One writer at a time, so the order of commits is at hand: each gets its number at once."""
    number = work.execute(
        "INSERT INTO dl_cuts (warehouse, numbered) VALUES (?, 1) "
        "ON CONFLICT (warehouse) DO UPDATE SET numbered = numbered + 1 RETURNING numbered",
        (warehouse,),
    ).fetchone()[0]
    work.execute(
        "INSERT INTO dl_outbox (warehouse, number, transaction_id, ict_ms, tables) VALUES (?, ?, ?, ?, ?)",
        (warehouse, number, transaction_id, outgoing["ict_ms"], outgoing["tables"]),
    )


def _check(found: int, reason: str, expected: int = 1) -> None:
    if found != expected:
        raise contradiction(reason)
