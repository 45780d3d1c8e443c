"""The rows of Delta tables in SQLite. `docs/format.md` says what the columns mean, for both databases.

    dl_tables            one row a table, with the version it is at
    dl_table_versions    one row a version: it exists if it has one
    dl_add_files and the other six tables of actions
                         an action counts if it carries the id of the transaction that made its version
    dl_pending           what transactions have put and not published: one row a planned version
    dl_staged_changes    what open transactions have staged, statement by statement
    dl_mirrors           how far engines have followed tables; the view dl_mirror_status shows it beside the version
    dl_outbox, dl_cuts   commits that mirrors have yet to publish as cuts, and how far they have come
    transaction_error_log

Files are found in two ways: by version, to read a table, and by path, to remove them. The index by version is narrow
and grows at its end; the key begins with the path.
"""

from __future__ import annotations

from typing import Final

DELTA_TABLES: Final = """
    CREATE TABLE dl_tables (
        table_id         TEXT NOT NULL PRIMARY KEY,
        warehouse        TEXT NOT NULL,
        namespace        TEXT NOT NULL,
        name             TEXT NOT NULL,
        location         TEXT NOT NULL,
        current_version  INTEGER NOT NULL DEFAULT -1,
        last_ict_ms      INTEGER,
        metadata_version INTEGER,
        protocol_version INTEGER,
        state            TEXT NOT NULL DEFAULT 'live'
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX dl_tables_location ON dl_tables (location) WHERE state = 'live';
    CREATE INDEX dl_tables_warehouse ON dl_tables (warehouse, state, table_id);

    CREATE TABLE dl_table_versions (
        table_id         TEXT NOT NULL,
        version          INTEGER NOT NULL,
        transaction_id   TEXT NOT NULL,
        ict_ms           INTEGER NOT NULL,
        operation        TEXT NOT NULL,
        operation_params TEXT NOT NULL,
        commit_info      TEXT NOT NULL,
        adds             INTEGER NOT NULL,
        removes          INTEGER NOT NULL,
        digest           TEXT NOT NULL,
        PRIMARY KEY (table_id, version)
    ) WITHOUT ROWID;

    CREATE TABLE dl_add_files (
        table_id                   TEXT NOT NULL,
        version                    INTEGER NOT NULL,
        transaction_id             TEXT NOT NULL,
        path                       TEXT NOT NULL,
        dv_id                      TEXT NOT NULL,
        size_bytes                 INTEGER NOT NULL,
        modification_time          INTEGER NOT NULL,
        data_change                INTEGER NOT NULL,
        partition_values           TEXT NOT NULL,
        stats                      TEXT,
        tags                       TEXT,
        deletion_vector            TEXT,
        base_row_id                INTEGER,
        default_row_commit_version INTEGER,
        removed_version            INTEGER,
        replaces                   INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (path, dv_id, table_id, version, transaction_id)
    );
    CREATE INDEX dl_add_files_version ON dl_add_files (table_id, version, transaction_id);

    CREATE TABLE dl_remove_files (
        table_id           TEXT NOT NULL,
        version            INTEGER NOT NULL,
        transaction_id     TEXT NOT NULL,
        path               TEXT NOT NULL,
        dv_id              TEXT NOT NULL,
        deletion_timestamp INTEGER NOT NULL,
        data_change        INTEGER NOT NULL,
        size_bytes         INTEGER,
        partition_values   TEXT,
        deletion_vector    TEXT,
        PRIMARY KEY (table_id, version, transaction_id, path, dv_id)
    );

    CREATE TABLE dl_metadata_updates (
        table_id          TEXT NOT NULL,
        version           INTEGER NOT NULL,
        transaction_id    TEXT NOT NULL,
        meta_id           TEXT NOT NULL,
        name              TEXT,
        description       TEXT,
        schema_string     TEXT NOT NULL,
        partition_columns TEXT NOT NULL,
        configuration     TEXT NOT NULL,
        created_time      INTEGER,
        format_provider   TEXT NOT NULL,
        PRIMARY KEY (table_id, version, transaction_id)
    );

    CREATE TABLE dl_protocol_updates (
        table_id           TEXT NOT NULL,
        version            INTEGER NOT NULL,
        transaction_id     TEXT NOT NULL,
        min_reader_version INTEGER NOT NULL,
        min_writer_version INTEGER NOT NULL,
        reader_features    TEXT,
        writer_features    TEXT,
        PRIMARY KEY (table_id, version, transaction_id)
    );

    CREATE TABLE dl_txn_actions (
        table_id       TEXT NOT NULL,
        version        INTEGER NOT NULL,
        transaction_id TEXT NOT NULL,
        app_id         TEXT NOT NULL,
        app_version    INTEGER NOT NULL,
        last_updated   INTEGER,
        PRIMARY KEY (table_id, version, transaction_id, app_id)
    );

    CREATE TABLE dl_domain_metadata (
        table_id       TEXT NOT NULL,
        version        INTEGER NOT NULL,
        transaction_id TEXT NOT NULL,
        domain         TEXT NOT NULL,
        configuration  TEXT NOT NULL,
        removed        INTEGER NOT NULL,
        PRIMARY KEY (table_id, version, transaction_id, domain)
    );

    CREATE TABLE dl_cdc_files (
        table_id         TEXT NOT NULL,
        version          INTEGER NOT NULL,
        transaction_id   TEXT NOT NULL,
        path             TEXT NOT NULL,
        partition_values TEXT NOT NULL,
        size_bytes       INTEGER NOT NULL,
        PRIMARY KEY (table_id, version, transaction_id, path)
    );

    CREATE TABLE dl_pending (
        transaction_id TEXT NOT NULL,
        table_id       TEXT NOT NULL,
        version        INTEGER NOT NULL,
        adds           INTEGER NOT NULL,
        removes        INTEGER NOT NULL,
        replaces       INTEGER NOT NULL DEFAULT 0,
        put_ms         INTEGER NOT NULL,
        PRIMARY KEY (transaction_id, table_id, version)
    ) WITHOUT ROWID;

    CREATE TABLE dl_staged_changes (
        sequence       INTEGER PRIMARY KEY AUTOINCREMENT,
        transaction_id TEXT NOT NULL,
        table_id       TEXT NOT NULL,
        statement_id   TEXT NOT NULL,
        actions        TEXT NOT NULL,
        staged_ms      INTEGER NOT NULL,
        UNIQUE (transaction_id, table_id, statement_id)
    );

    CREATE TABLE dl_mirrors (
        table_id         TEXT NOT NULL,
        mirror_engine    TEXT NOT NULL,
        mirrored_version INTEGER NOT NULL DEFAULT -1,
        state            TEXT NOT NULL DEFAULT 'active',
        attempts         INTEGER NOT NULL DEFAULT 0,
        next_attempt_ms  INTEGER NOT NULL DEFAULT 0,
        last_error       TEXT,
        last_sync_ms     INTEGER,
        lease_owner      TEXT,
        lease_until_ms   INTEGER,
        PRIMARY KEY (table_id, mirror_engine)
    ) WITHOUT ROWID;
    CREATE VIEW dl_mirror_status AS
        SELECT m.table_id, m.mirror_engine, m.mirrored_version, t.current_version, m.state, m.attempts,
               datetime(m.next_attempt_ms / 1000, 'unixepoch') AS next_attempt, m.last_error,
               datetime(m.last_sync_ms / 1000, 'unixepoch') AS last_sync_time, m.lease_owner,
               datetime(m.lease_until_ms / 1000, 'unixepoch') AS lease_until
        FROM dl_mirrors m JOIN dl_tables t ON t.table_id = m.table_id WHERE t.state = 'live';

    CREATE TABLE dl_outbox (
        sequence       INTEGER PRIMARY KEY AUTOINCREMENT,
        warehouse      TEXT NOT NULL,
        number         INTEGER,
        transaction_id TEXT NOT NULL,
        ict_ms         INTEGER,
        tables         TEXT NOT NULL
    );
    CREATE INDEX dl_outbox_number ON dl_outbox (warehouse, number);

    CREATE TABLE dl_cuts (
        warehouse TEXT NOT NULL PRIMARY KEY,
        numbered  INTEGER NOT NULL DEFAULT 0,
        published INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;

    CREATE TABLE transaction_error_log (
        sequence         INTEGER PRIMARY KEY AUTOINCREMENT,
        txn_id           TEXT NOT NULL,
        table_id         TEXT NOT NULL,
        expected_version INTEGER,
        actual_version   INTEGER,
        error_type       TEXT NOT NULL,
        error_message    TEXT NOT NULL,
        timestamp        INTEGER NOT NULL
    );
    CREATE INDEX transaction_error_log_table ON transaction_error_log (table_id, sequence);
"""

PENDING_BY_REQUEST: Final = """
    ALTER TABLE dl_pending ADD COLUMN request_hash TEXT NOT NULL DEFAULT '';
"""
"""Rows are those of one request: two that use the same key never publish each other's."""
