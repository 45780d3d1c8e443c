"""The rows of Delta tables in PostgreSQL: as in `sqlite_delta_schema`, whose list of the tables holds here too.

Rows are written before anything is locked and become visible by the row of their version, so an action is keyed by its
transaction as well: two of them may plan the same version, and one of them will have it.

Plans are made once a connection, perhaps while a table is empty and all indexes look alike. So every table has one
index for each way its rows are found, and no two that begin with the same column of a condition.
"""

from __future__ import annotations

from typing import Final

DELTA_TABLES: Final = """
    CREATE TABLE {schema}.dl_tables (
        table_id         text COLLATE "C" NOT NULL PRIMARY KEY,
        warehouse        text COLLATE "C" NOT NULL,
        namespace        text COLLATE "C" NOT NULL,
        name             text COLLATE "C" NOT NULL,
        location         text COLLATE "C" NOT NULL,
        current_version  bigint NOT NULL DEFAULT -1,
        last_ict_ms      bigint,
        metadata_version bigint,
        protocol_version bigint,
        state            text COLLATE "C" NOT NULL DEFAULT 'live'
    );
    CREATE UNIQUE INDEX dl_tables_location ON {schema}.dl_tables (location) WHERE state = 'live';
    CREATE INDEX dl_tables_warehouse ON {schema}.dl_tables (warehouse, state, table_id);

    CREATE TABLE {schema}.dl_table_versions (
        table_id         text COLLATE "C" NOT NULL,
        version          bigint NOT NULL,
        transaction_id   text COLLATE "C" NOT NULL,
        ict_ms           bigint NOT NULL,
        operation        text COLLATE "C" NOT NULL,
        operation_params text NOT NULL,
        commit_info      text NOT NULL,
        adds             bigint NOT NULL,
        removes          bigint NOT NULL,
        digest           text COLLATE "C" NOT NULL,
        PRIMARY KEY (table_id, version)
    );

    CREATE TABLE {schema}.dl_add_files (
        table_id                   text COLLATE "C" NOT NULL,
        version                    bigint NOT NULL,
        transaction_id             text COLLATE "C" NOT NULL,
        path                       text COLLATE "C" NOT NULL,
        dv_id                      text COLLATE "C" NOT NULL,
        size_bytes                 bigint NOT NULL,
        modification_time          bigint NOT NULL,
        data_change                boolean NOT NULL,
        partition_values           text NOT NULL,
        stats                      text,
        tags                       text,
        deletion_vector            text,
        base_row_id                bigint,
        default_row_commit_version bigint,
        removed_version            bigint,
        replaces                   boolean NOT NULL DEFAULT false,
        PRIMARY KEY (path, dv_id, table_id, version, transaction_id)
    );
    CREATE INDEX dl_add_files_version ON {schema}.dl_add_files (table_id, version, transaction_id);

    CREATE TABLE {schema}.dl_remove_files (
        table_id           text COLLATE "C" NOT NULL,
        version            bigint NOT NULL,
        transaction_id     text COLLATE "C" NOT NULL,
        path               text COLLATE "C" NOT NULL,
        dv_id              text COLLATE "C" NOT NULL,
        deletion_timestamp bigint NOT NULL,
        data_change        boolean NOT NULL,
        size_bytes         bigint,
        partition_values   text,
        deletion_vector    text,
        PRIMARY KEY (table_id, version, transaction_id, path, dv_id)
    );

    CREATE TABLE {schema}.dl_metadata_updates (
        table_id          text COLLATE "C" NOT NULL,
        version           bigint NOT NULL,
        transaction_id    text COLLATE "C" NOT NULL,
        meta_id           text COLLATE "C" NOT NULL,
        name              text COLLATE "C",
        description       text,
        schema_string     text NOT NULL,
        partition_columns text NOT NULL,
        configuration     text NOT NULL,
        created_time      bigint,
        format_provider   text NOT NULL,
        PRIMARY KEY (table_id, version, transaction_id)
    );

    CREATE TABLE {schema}.dl_protocol_updates (
        table_id           text COLLATE "C" NOT NULL,
        version            bigint NOT NULL,
        transaction_id     text COLLATE "C" NOT NULL,
        min_reader_version bigint NOT NULL,
        min_writer_version bigint NOT NULL,
        reader_features    text,
        writer_features    text,
        PRIMARY KEY (table_id, version, transaction_id)
    );

    CREATE TABLE {schema}.dl_txn_actions (
        table_id       text COLLATE "C" NOT NULL,
        version        bigint NOT NULL,
        transaction_id text COLLATE "C" NOT NULL,
        app_id         text COLLATE "C" NOT NULL,
        app_version    bigint NOT NULL,
        last_updated   bigint,
        PRIMARY KEY (table_id, version, transaction_id, app_id)
    );

    CREATE TABLE {schema}.dl_domain_metadata (
        table_id       text COLLATE "C" NOT NULL,
        version        bigint NOT NULL,
        transaction_id text COLLATE "C" NOT NULL,
        domain         text COLLATE "C" NOT NULL,
        configuration  text NOT NULL,
        removed        boolean NOT NULL,
        PRIMARY KEY (table_id, version, transaction_id, domain)
    );

    CREATE TABLE {schema}.dl_cdc_files (
        table_id         text COLLATE "C" NOT NULL,
        version          bigint NOT NULL,
        transaction_id   text COLLATE "C" NOT NULL,
        path             text COLLATE "C" NOT NULL,
        partition_values text NOT NULL,
        size_bytes       bigint NOT NULL,
        PRIMARY KEY (table_id, version, transaction_id, path)
    );

    CREATE TABLE {schema}.dl_pending (
        transaction_id text COLLATE "C" NOT NULL,
        table_id       text COLLATE "C" NOT NULL,
        version        bigint NOT NULL,
        adds           bigint NOT NULL,
        removes        bigint NOT NULL,
        replaces       bigint NOT NULL DEFAULT 0,
        put_ms         bigint NOT NULL,
        PRIMARY KEY (transaction_id, table_id, version)
    );

    CREATE TABLE {schema}.dl_staged_changes (
        sequence       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        transaction_id text COLLATE "C" NOT NULL,
        table_id       text COLLATE "C" NOT NULL,
        statement_id   text COLLATE "C" NOT NULL,
        actions        text NOT NULL,
        staged_ms      bigint NOT NULL,
        UNIQUE (transaction_id, table_id, statement_id)
    );

    CREATE TABLE {schema}.dl_mirrors (
        table_id         text COLLATE "C" NOT NULL,
        mirror_engine    text COLLATE "C" NOT NULL,
        mirrored_version bigint NOT NULL DEFAULT -1,
        state            text COLLATE "C" NOT NULL DEFAULT 'active',
        attempts         bigint NOT NULL DEFAULT 0,
        next_attempt_ms  bigint NOT NULL DEFAULT 0,
        last_error       text,
        last_sync_ms     bigint,
        lease_owner      text COLLATE "C",
        lease_until_ms   bigint,
        PRIMARY KEY (table_id, mirror_engine)
    );
    CREATE VIEW {schema}.dl_mirror_status AS
        SELECT m.table_id, m.mirror_engine, m.mirrored_version, t.current_version, m.state, m.attempts,
               to_timestamp(m.next_attempt_ms / 1000.0) AS next_attempt, m.last_error,
               to_timestamp(m.last_sync_ms / 1000.0) AS last_sync_time, m.lease_owner,
               to_timestamp(m.lease_until_ms / 1000.0) AS lease_until
        FROM {schema}.dl_mirrors m JOIN {schema}.dl_tables t ON t.table_id = m.table_id WHERE t.state = 'live';

    CREATE TABLE {schema}.dl_outbox (
        sequence       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        warehouse      text COLLATE "C" NOT NULL,
        number         bigint,
        transaction_id text COLLATE "C" NOT NULL,
        ict_ms         bigint,
        tables         text NOT NULL
    );
    CREATE INDEX dl_outbox_number ON {schema}.dl_outbox (warehouse, number);
    CREATE INDEX dl_outbox_new ON {schema}.dl_outbox (warehouse, sequence) WHERE number IS NULL;

    CREATE TABLE {schema}.dl_cuts (
        warehouse text COLLATE "C" NOT NULL PRIMARY KEY,
        numbered  bigint NOT NULL DEFAULT 0,
        published bigint NOT NULL DEFAULT 0
    );

    CREATE TABLE {schema}.transaction_error_log (
        sequence         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        txn_id           text COLLATE "C" NOT NULL,
        table_id         text COLLATE "C" NOT NULL,
        expected_version bigint,
        actual_version   bigint,
        error_type       text NOT NULL,
        error_message    text NOT NULL,
        timestamp        timestamptz NOT NULL
    );
    CREATE INDEX transaction_error_log_table ON {schema}.transaction_error_log (table_id, sequence);
"""

PENDING_BY_REQUEST: Final = """
    ALTER TABLE {schema}.dl_pending ADD COLUMN request_hash text COLLATE "C" NOT NULL DEFAULT '';
"""
"""Rows are those of one request: two that use the same key never publish each other's."""
