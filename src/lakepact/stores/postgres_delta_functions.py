"""Delta rows as PL/pgSQL: what moves beside the cells of a commit, and what prepares it outside all locks.

`beside` is called by the functions that commit, as their last step. It inserts the versions, ends removed files, moves
`current_version` and posts to the outbox: work in the number of tables and of removed files. Cells are locked and
compared by then, so nobody else is at the same tables, and what does not fit is damage. Two more codes:

    LP008  the rows that were put are not there, are not as many as announced, or are those of another request
    LP009  a file that is to be removed is not live in the version before

A planned version has a row in `dl_pending` from its `put` until it is published or discarded. Whoever works on the
rows takes that row first, so a sweep, a second attempt under the same id and the commit itself never work on them at
the same time; and since publishing deletes it, nothing published is ever found through it.

The outbox is numbered after the commits, not by them. A number taken inside a commit would either be given out in
another order than commits end, or cost every commit a lock that is held until the disk has answered. So a commit takes
a value of a plain sequence, which is larger than those of all commits that had ended when it began; and whoever
publishes numbers what it sees, in the order of these values. One statement has one snapshot: what it sees contains
everything that anything in it could have built on. So every prefix of the numbers is a consistent cut, and numbers
have no gaps.

Subqueries with OFFSET 0 are not taken apart by the planner: the loop over the few runs outside, and the many are found
by index, whatever the statistics say. Files are found by their path: `table_id || ''` keeps the other index out of it.
"""

from __future__ import annotations

from typing import Final

from lakepact.delta.rows import COLUMNS

_PUBLISHED: Final = (
    "EXISTS (SELECT FROM {schema}.dl_table_versions pv WHERE pv.table_id = a.table_id AND pv.version = a.version "
    "AND pv.transaction_id = a.transaction_id OFFSET 0)"
)

_BODIES: Final = r"""
-- Carry out the document of `delta.beside` for a transaction that is being committed.
CREATE FUNCTION {schema}.beside_{version}(p_id text, p_hash text, p_beside text)
RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_delta json := p_beside::json -> 'delta';
    v_count bigint;
    v_replaces bigint;
    v_one record;
BEGIN
    -- First what goes: a table may come to be where another was.
    IF json_array_length(v_delta -> 'drop') > 0 THEN
        UPDATE {schema}.dl_tables SET state = 'dropped'
        WHERE state = 'live' AND table_id = ANY (ARRAY(SELECT json_array_elements_text(v_delta -> 'drop')));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count <> json_array_length(v_delta -> 'drop') THEN
            RAISE EXCEPTION 'a Delta table to be dropped is not there' USING ERRCODE = 'LP005';
        END IF;
    END IF;
    IF json_array_length(v_delta -> 'create') > 0 THEN
        INSERT INTO {schema}.dl_tables (table_id, warehouse, namespace, name, location, current_version)
        SELECT n.table_id, v_delta ->> 'warehouse', n.namespace, n.name, n.location, n.base_version
        FROM json_to_recordset(v_delta -> 'create')
            AS n (table_id text, namespace text, name text, location text, base_version bigint)
        ORDER BY n.table_id COLLATE "C" ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count <> json_array_length(v_delta -> 'create') THEN
            RAISE EXCEPTION 'a Delta table to be created, or its location, is there already' USING ERRCODE = 'LP005';
        END IF;
    END IF;
    -- A document of an older release has no such list.
    IF coalesce(json_array_length(v_delta -> 'undrop'), 0) > 0 THEN
        UPDATE {schema}.dl_tables t SET state = 'live', namespace = n.namespace, name = n.name
        FROM json_to_recordset(v_delta -> 'undrop') AS n (table_id text, namespace text, name text)
        WHERE t.table_id = n.table_id AND t.state = 'dropped';
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count <> json_array_length(v_delta -> 'undrop') THEN
            RAISE EXCEPTION 'a Delta table to be restored is not there' USING ERRCODE = 'LP005';
        END IF;
    END IF;
    IF json_array_length(v_delta -> 'rename') > 0 THEN
        UPDATE {schema}.dl_tables t SET namespace = n.namespace, name = n.name
        FROM json_to_recordset(v_delta -> 'rename') AS n (table_id text, namespace text, name text)
        WHERE t.table_id = n.table_id AND t.state = 'live';
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count <> json_array_length(v_delta -> 'rename') THEN
            RAISE EXCEPTION 'a Delta table to be renamed is not there' USING ERRCODE = 'LP005';
        END IF;
    END IF;

    FOR v_one IN
        SELECT * FROM json_to_recordset(v_delta -> 'versions') AS n (
            table_id text, version bigint, ict_ms bigint, operation text, operation_params text, commit_info text,
            adds bigint, removes bigint, digest text, tombstones boolean)
        ORDER BY n.table_id COLLATE "C", n.version
    LOOP
        DELETE FROM {schema}.dl_pending
        WHERE transaction_id = p_id AND table_id = v_one.table_id AND version = v_one.version
          AND adds = v_one.adds AND removes = v_one.removes AND request_hash = p_hash
        RETURNING replaces INTO v_replaces;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'rows gone' USING ERRCODE = 'LP008', DETAIL = v_one.version || ' ' || v_one.table_id;
        END IF;
        UPDATE {schema}.dl_tables t SET current_version = v_one.version, last_ict_ms = v_one.ict_ms,
            metadata_version = coalesce((
                SELECT m.version FROM {schema}.dl_metadata_updates m WHERE m.table_id = v_one.table_id
                  AND m.version = v_one.version AND m.transaction_id = p_id), t.metadata_version),
            protocol_version = coalesce((
                SELECT m.version FROM {schema}.dl_protocol_updates m WHERE m.table_id = v_one.table_id
                  AND m.version = v_one.version AND m.transaction_id = p_id), t.protocol_version)
        WHERE t.table_id = v_one.table_id AND t.state = 'live' AND t.current_version = v_one.version - 1
          AND coalesce(t.last_ict_ms < v_one.ict_ms, true);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'Delta table % cannot go on to version % at %', v_one.table_id, v_one.version, v_one.ict_ms
            USING ERRCODE = 'LP005';
        END IF;
        INSERT INTO {schema}.dl_table_versions (table_id, version, transaction_id, ict_ms, operation, operation_params,
            commit_info, adds, removes, digest)
        VALUES (v_one.table_id, v_one.version, p_id, v_one.ict_ms, v_one.operation, v_one.operation_params,
            v_one.commit_info, v_one.adds, v_one.removes, v_one.digest) ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'version % of Delta table % is there already', v_one.version, v_one.table_id
            USING ERRCODE = 'LP005';
        END IF;
        IF v_one.removes > 0 THEN
            UPDATE {schema}.dl_add_files SET removed_version = v_one.version WHERE ctid = ANY (ARRAY(
                SELECT f.place FROM {schema}.dl_remove_files n CROSS JOIN LATERAL (
                    SELECT a.ctid AS place FROM {schema}.dl_add_files a
                    WHERE a.path = n.path AND a.dv_id = n.dv_id AND a.table_id || '' = v_one.table_id
                      AND a.version < v_one.version AND a.removed_version IS NULL AND {published} OFFSET 0
                ) f WHERE n.table_id = v_one.table_id AND n.version = v_one.version AND n.transaction_id = p_id));
            GET DIAGNOSTICS v_count = ROW_COUNT;
            IF v_count <> v_one.removes AND NOT v_one.tombstones THEN
                RAISE EXCEPTION 'version % of Delta table % removes files that are not live',
                    v_one.version, v_one.table_id USING ERRCODE = 'LP005';
            END IF;
        END IF;
        IF v_replaces > 0 THEN
            UPDATE {schema}.dl_add_files SET removed_version = v_one.version WHERE ctid = ANY (ARRAY(
                SELECT f.place FROM {schema}.dl_add_files n CROSS JOIN LATERAL (
                    SELECT a.ctid AS place FROM {schema}.dl_add_files a
                    WHERE a.path = n.path AND a.dv_id = n.dv_id AND a.table_id || '' = v_one.table_id
                      AND a.version < v_one.version AND a.removed_version IS NULL AND {published} OFFSET 0
                ) f WHERE n.table_id = v_one.table_id AND n.version = v_one.version AND n.transaction_id = p_id
                      AND n.replaces));
        END IF;
    END LOOP;

    IF json_array_length(v_delta -> 'mirrors') > 0 THEN
        INSERT INTO {schema}.dl_mirrors (table_id, mirror_engine)
        SELECT n.table_id, e.engine FROM json_to_recordset(v_delta -> 'mirrors') AS n (table_id text, engines json),
            LATERAL json_array_elements_text(n.engines) AS e (engine)
        ORDER BY n.table_id COLLATE "C", e.engine COLLATE "C" ON CONFLICT DO NOTHING;
    END IF;
    DELETE FROM {schema}.dl_staged_changes WHERE transaction_id = p_id;
    IF v_delta ->> 'outbox' IS NOT NULL THEN
        INSERT INTO {schema}.dl_outbox (warehouse, transaction_id, ict_ms, tables)
        VALUES (v_delta ->> 'warehouse', p_id, (v_delta #>> '{outbox,ict_ms}')::bigint, v_delta #>> '{outbox,tables}');
    END IF;
END
$body$;


CREATE FUNCTION {schema}.delete_rows_{version}(p_id text, p_table text, p_version bigint)
RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
{delete_rows}
END
$body$;


-- Begin to put: take the planned versions, and make room for their rows. Answers whether each is to be written; not
-- those that this transaction has published.
CREATE FUNCTION {schema}.put_{version}(
    p_id text, p_hash text, p_now bigint, p_tables text[], p_versions bigint[], p_adds bigint[], p_removes bigint[]
) RETURNS boolean[] LANGUAGE plpgsql AS $body$
DECLARE
    v_wanted boolean[] := '{}';
    v_again boolean;
BEGIN
    -- The commit that publishes the rows comes later in the same log, and waits for the disk.
    PERFORM set_config('synchronous_commit', 'off', true);
    FOR i IN 1 .. cardinality(p_tables) LOOP
        INSERT INTO {schema}.dl_pending (transaction_id, table_id, version, adds, removes, put_ms, request_hash)
        VALUES (p_id, p_tables[i], p_versions[i], p_adds[i], p_removes[i], p_now, p_hash)
        ON CONFLICT (transaction_id, table_id, version)
        DO UPDATE SET adds = excluded.adds, removes = excluded.removes, replaces = 0, put_ms = excluded.put_ms,
            request_hash = excluded.request_hash
        RETURNING xmax <> 0 INTO v_again;
        -- Only now: whoever was publishing these rows has ended, and a new statement sees what it did.
        IF EXISTS (
            SELECT FROM {schema}.dl_table_versions
            WHERE table_id = p_tables[i] AND version = p_versions[i] AND transaction_id = p_id
        ) THEN
            DELETE FROM {schema}.dl_pending
            WHERE transaction_id = p_id AND table_id = p_tables[i] AND version = p_versions[i];
            v_wanted := v_wanted || false;
            CONTINUE;
        END IF;
        IF v_again THEN
            PERFORM {schema}.delete_rows_{version}(p_id, p_tables[i], p_versions[i]);
        END IF;
        v_wanted := v_wanted || true;
    END LOOP;
    RETURN v_wanted;
END
$body$;


-- After the rows are written: removed files must be live in the version before; added ones may stand for files that
-- are, and then end them. Several versions of one transaction build on each other, so its own rows count there.
CREATE FUNCTION {schema}.verify_{version}(p_id text, p_tables text[], p_versions bigint[], p_tombstones boolean)
RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_path text;
    v_count bigint;
BEGIN
    FOR i IN 1 .. cardinality(p_tables) LOOP
        SELECT n.path INTO v_path FROM {schema}.dl_remove_files n
        WHERE n.table_id = p_tables[i] AND n.version = p_versions[i] AND n.transaction_id = p_id AND NOT EXISTS (
            SELECT FROM {schema}.dl_add_files a
            WHERE a.path = n.path AND a.dv_id = n.dv_id AND a.table_id || '' = p_tables[i] AND a.version < p_versions[i]
              AND a.removed_version IS NULL AND (a.transaction_id = p_id OR {published}) OFFSET 0) LIMIT 1;
        IF FOUND AND NOT p_tombstones THEN
            RAISE EXCEPTION 'not live' USING ERRCODE = 'LP009', DETAIL = p_versions[i] || ' ' || p_tables[i],
                HINT = v_path;
        END IF;
        UPDATE {schema}.dl_add_files n SET replaces = NOT n.replaces
        WHERE n.table_id = p_tables[i] AND n.version = p_versions[i] AND n.transaction_id = p_id
          AND n.replaces <> EXISTS (
            SELECT FROM {schema}.dl_add_files a
            WHERE a.path = n.path AND a.dv_id = n.dv_id AND a.table_id || '' = p_tables[i] AND a.version < p_versions[i]
              AND a.removed_version IS NULL AND (a.transaction_id = p_id OR {published}) OFFSET 0);
        IF FOUND THEN
            SELECT count(*) INTO v_count FROM {schema}.dl_add_files n
            WHERE n.table_id = p_tables[i] AND n.version = p_versions[i] AND n.transaction_id = p_id AND n.replaces;
            UPDATE {schema}.dl_pending SET replaces = v_count
            WHERE transaction_id = p_id AND table_id = p_tables[i] AND version = p_versions[i];
        END IF;
    END LOOP;
END
$body$;


-- Plan rows that were put for another version.
CREATE FUNCTION {schema}.move_{version}(p_id text, p_hash text, p_table text, p_version bigint, p_to bigint)
RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_hash text;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM {schema}.dl_pending
    WHERE transaction_id = p_id AND table_id = p_table AND version IN (p_version, p_to) ORDER BY version FOR UPDATE;
    -- Only now: another attempt under this id may have been publishing there, and has ended.
    IF EXISTS (
        SELECT FROM {schema}.dl_table_versions WHERE table_id = p_table AND version = p_to AND transaction_id = p_id
    ) THEN
        RETURN;
    END IF;
    SELECT request_hash INTO v_hash FROM {schema}.dl_pending
    WHERE transaction_id = p_id AND table_id = p_table AND version IN (p_version, p_to)
    ORDER BY version = p_version DESC LIMIT 1;
    IF v_hash IS DISTINCT FROM p_hash THEN
        RAISE EXCEPTION 'rows gone' USING ERRCODE = 'LP008', DETAIL = p_version || ' ' || p_table;
    END IF;
    IF p_version <> p_to AND EXISTS (
        SELECT FROM {schema}.dl_pending WHERE transaction_id = p_id AND table_id = p_table AND version = p_version
    ) THEN
        -- What an earlier attempt has left there gives way. (If only that is there, this has been done before.)
        DELETE FROM {schema}.dl_pending WHERE transaction_id = p_id AND table_id = p_table AND version = p_to;
        IF FOUND THEN
            PERFORM {schema}.delete_rows_{version}(p_id, p_table, p_to);
        END IF;
        UPDATE {schema}.dl_pending SET version = p_to
        WHERE transaction_id = p_id AND table_id = p_table AND version = p_version;
{move_rows}
    END IF;
    PERFORM {schema}.verify_{version}(p_id, ARRAY[p_table], ARRAY[p_to], false);
END
$body$;


-- Delete what these transactions have put and not published, and what they have staged.
CREATE FUNCTION {schema}.discard_{version}(p_ids text[]) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_one record;
BEGIN
    FOR v_one IN
        DELETE FROM {schema}.dl_pending WHERE transaction_id = ANY (p_ids) RETURNING transaction_id, table_id, version
    LOOP
        PERFORM {schema}.delete_rows_{version}(v_one.transaction_id, v_one.table_id, v_one.version);
    END LOOP;
    DELETE FROM {schema}.dl_staged_changes WHERE transaction_id = ANY (p_ids);
END
$body$;


-- Delete some rows of a dropped table, and the table once there are none. Answers whether there are more.
CREATE FUNCTION {schema}.purge_{version}(p_table text, p_limit bigint) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_left bigint := p_limit;
    v_count bigint;
BEGIN
    PERFORM FROM {schema}.dl_tables WHERE table_id = p_table AND state = 'dropped' FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
{purge_rows}
    DELETE FROM {schema}.dl_pending WHERE table_id = p_table;
    DELETE FROM {schema}.dl_mirrors WHERE table_id = p_table;
    DELETE FROM {schema}.dl_table_versions WHERE table_id = p_table;
    DELETE FROM {schema}.dl_tables WHERE table_id = p_table;
    RETURN false;
END
$body$;


-- Give numbers to the commits that have none, in order.
CREATE FUNCTION {schema}.number_{version}(p_warehouse text) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
    v_numbered bigint;
    v_count bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.dl_outbox WHERE warehouse = p_warehouse AND number IS NULL) THEN
        RETURN;
    END IF;
    INSERT INTO {schema}.dl_cuts (warehouse) VALUES (p_warehouse) ON CONFLICT DO NOTHING;
    SELECT numbered INTO v_numbered FROM {schema}.dl_cuts WHERE warehouse = p_warehouse FOR UPDATE;
    UPDATE {schema}.dl_outbox o SET number = v_numbered + n.place
    FROM (
        SELECT sequence, row_number() OVER (ORDER BY sequence) AS place FROM {schema}.dl_outbox
        WHERE warehouse = p_warehouse AND number IS NULL
    ) n WHERE o.sequence = n.sequence;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    UPDATE {schema}.dl_cuts SET numbered = v_numbered + v_count WHERE warehouse = p_warehouse;
END
$body$;


-- Let exactly these engines follow a table.
CREATE FUNCTION {schema}.set_mirrors_{version}(p_table text, p_engines text[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {schema}.dl_mirrors (table_id, mirror_engine)
    SELECT p_table, e.engine FROM unnest(p_engines) AS e (engine) ORDER BY 2 ON CONFLICT DO NOTHING;
    UPDATE {schema}.dl_mirrors SET state = 'off' WHERE table_id = p_table AND mirror_engine <> ALL (p_engines);
    UPDATE {schema}.dl_mirrors SET state = 'active', next_attempt_ms = 0
    WHERE table_id = p_table AND state = 'off' AND mirror_engine = ANY (p_engines);
END
$body$;


-- Add to the log of errors, and keep only the newest.
CREATE FUNCTION {schema}.log_errors_{version}(
    p_transactions text[], p_tables text[], p_expected bigint[], p_actual bigint[], p_types text[], p_messages text[],
    p_times bigint[], p_keep bigint
) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO {schema}.transaction_error_log
        (txn_id, table_id, expected_version, actual_version, error_type, error_message, timestamp)
    SELECT n.a, n.b, n.c, n.d, n.e, n.f, to_timestamp(n.g / 1000.0)
    FROM unnest(p_transactions, p_tables, p_expected, p_actual, p_types, p_messages, p_times)
        AS n (a, b, c, d, e, f, g);
    DELETE FROM {schema}.transaction_error_log
    WHERE sequence <= (SELECT max(sequence) FROM {schema}.transaction_error_log) - p_keep;
END
$body$;
"""


def _each(statement: str) -> str:
    return "\n".join(statement.replace("{table}", table) for table in COLUMNS)


DELTA_FUNCTIONS: Final = (
    _BODIES.replace("{published}", _PUBLISHED)
    .replace(
        "{delete_rows}",
        _each(
            "    DELETE FROM {schema}.{table}\n"
            "    WHERE table_id = p_table AND version = p_version AND transaction_id = p_id;"
        ),
    )
    .replace(
        "{move_rows}",
        _each(
            "        UPDATE {schema}.{table} SET version = p_to\n"
            "        WHERE table_id = p_table AND version = p_version AND transaction_id = p_id;"
        ),
    )
    .replace(
        "{purge_rows}",
        _each(
            "    DELETE FROM {schema}.{table} WHERE ctid = ANY (ARRAY(\n"
            "        SELECT ctid FROM {schema}.{table} WHERE table_id = p_table LIMIT v_left));\n"
            "    GET DIAGNOSTICS v_count = ROW_COUNT;\n"
            "    v_left := v_left - v_count;\n"
            "    IF v_left <= 0 THEN\n"
            "        RETURN true;\n"
            "    END IF;"
        ),
    )
)
