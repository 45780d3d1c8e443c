"""The store's changes as PL/pgSQL: one call, one round trip, one database transaction, whatever the number of cells.
A long module, for they are installed together, under one fingerprint, and call one another.

Each function is called on its own, outside a transaction block, so that its call *is* the transaction: an error undoes
all of it, and the server's statement limit bounds it. Every statement inside a function has a snapshot of its own
(READ COMMITTED), so what is read after a lock was waited for is what is true then.

Functions judge as little as possible. A row of this id that is not in the expected state is answered with 'met', and
`sql_decide` says what that means. A transaction that is not open, or has no instant yet, is no error either: `stage`
answers with false, and functions that answer with cells give one row without a key. An error would be a line in the
database's log each time. Errors of our own have codes of class LP:

    LP001  (inside only) not all cells are free and at their planned revisions
    LP003  the transaction would exceed the limit named in the detail
    LP004  the past of an open transaction is no longer there
    LP005  stored state contradicts itself
    LP006  the cell named in the detail is no longer staged as it was shown
    LP007  the transaction cannot have been shown the cell named in the detail at that revision
    LP008, LP009  of Delta rows, see `postgres_delta_functions`

Rows are locked in key order: new cells first, all in one statement, then those that exist. Whoever waits while
inserting holds no row that others can see yet, so the two steps cannot wait for each other in a circle.

An overwritten value goes to the history only while some transaction is open (or was, and is prepared now). A commit
takes a shared advisory lock and looks for open transactions after that. A transaction that begins makes its row visible
first, then waits until every commit that held the lock at that time has ended, and takes its snapshot last. So a commit
that saw no open transaction has ended before the snapshot of any, and is in its past; nobody who commits ever waits for
a beginning.

What stands beside the cells of a commit is carried out last, by a function of `postgres_delta_functions`, in the same
call.
"""

from __future__ import annotations

import hashlib
from typing import Final

from lakepact.stores.postgres_delta_functions import DELTA_FUNCTIONS

LOCK_CLASS: Final = 0x4C616B65
"""The first half of our advisory lock keys ("Lake"); the second half stands for the schema's name."""

_CELLS: Final = r"""
-- The cell as it was in a snapshot. Revision -1: it was there, and the history no longer has it.
CREATE FUNCTION {schema}.as_of_{version}(p_snapshot pg_snapshot, p_key text)
RETURNS TABLE (revision bigint, value text, writer text) LANGUAGE sql STABLE AS $body$
    SELECT coalesce(v.revision, CASE
               WHEN EXISTS (SELECT FROM {schema}.cells c WHERE c.key = p_key AND c.revision > 1)
                AND NOT EXISTS (SELECT FROM {schema}.history h WHERE h.key = p_key AND h.revision = 1)
               THEN -1 ELSE 0 END), v.value, v.writer
    FROM (SELECT) one LEFT JOIN LATERAL (
        SELECT c.revision, c.value, c.writer FROM {schema}.cells c
        WHERE c.key = p_key AND c.revision > 0 AND pg_visible_in_snapshot(c.xid, p_snapshot)
        UNION ALL
        (SELECT h.revision, h.value, h.writer FROM {schema}.history h
         WHERE h.key = p_key AND pg_visible_in_snapshot(h.xid, p_snapshot)
           AND NOT pg_visible_in_snapshot(h.replaced, p_snapshot) LIMIT 1)
        LIMIT 1
    ) v ON true
$body$;


-- Whether somebody may still ask for what is about to be overwritten.
CREATE FUNCTION {schema}.remembering_{version}() RETURNS boolean LANGUAGE plpgsql AS $body$
BEGIN
    -- A prepared transaction that was never open has no instant, and is not sealed.
    RETURN EXISTS (
        SELECT FROM {schema}.transactions
        WHERE decided_ms IS NULL AND state IN ('open', 'prepared') AND (state = 'open' OR sealed));
END
$body$;


-- Commit a new transaction (p_from is null), or one that is retryable or sealed. The arrays are sorted by key.
-- Answers {committed}, {met}, {busy, holder} or {conflict, moved cells}. p_retry_until is null if a conflict is final.
CREATE FUNCTION {schema}.commit_{version}(
    p_id text, p_hash text, p_now bigint, p_from text, p_plan text, p_answer text,
    p_new_keys text[], p_new_values text[],
    p_keys text[], p_revisions bigint[], p_values text[],
    p_read_keys text[], p_read_revisions bigint[], p_retry_until bigint, p_beside text
) RETURNS text[] LANGUAGE plpgsql AS $body$
DECLARE
    v_xid xid8 := pg_current_xact_id();
    v_done boolean := false;
    v_made text[] := '{}';
    v_found bigint[];
    v_holder text;
    v_locked text;
    v_moved text;
    v_all_locked boolean := true;
    v_count bigint;
    v_cell record;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({lock_class}, {lock_object});
    IF p_from IS NULL THEN
        INSERT INTO {schema}.transactions (id, state, request_hash, created_ms, plan, answer, decided_ms)
        VALUES (p_id, 'committed', p_hash, p_now, p_plan, p_answer, p_now) ON CONFLICT (id) DO NOTHING;
    ELSE
        PERFORM FROM {schema}.transactions
        WHERE id = p_id AND state = p_from AND request_hash = p_hash AND (sealed OR p_from <> 'open')
          AND coalesce(expires_ms > p_now, true) AND coalesce(retry_until_ms > p_now, true) FOR NO KEY UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN '{met}';
    END IF;

    IF p_from IS NULL AND p_read_keys = '{}' THEN
        -- Nearly every commit ends here: all its cells are free and at their planned revisions. If not, this is undone,
        -- and what follows finds out why. (An error that left the function would also end up in the server's log.)
        BEGIN
            IF p_new_keys <> '{}' THEN
                INSERT INTO {schema}.cells (key, revision, value, writer, xid)
                SELECT n.key, 1, n.value, p_id, v_xid FROM unnest(p_new_keys, p_new_values) AS n (key, value)
                ON CONFLICT (key) DO NOTHING;
                GET DIAGNOSTICS v_count = ROW_COUNT;
                IF v_count <> cardinality(p_new_keys) THEN
                    RAISE EXCEPTION 'not all new' USING ERRCODE = 'LP001';
                END IF;
            END IF;
            IF p_keys <> '{}' THEN
                IF {schema}.remembering_{version}() THEN
                    -- Of several who planned on the same revision only one may keep it: whoever has the rows.
                    PERFORM FROM {schema}.cells WHERE key = ANY (p_keys) ORDER BY key FOR NO KEY UPDATE;
                    -- A revision names one value for ever: what is kept here is what is replaced below, or nothing is.
                    INSERT INTO {schema}.history (key, revision, value, writer, xid, replaced)
                    SELECT c.key, c.revision, c.value, c.writer, c.xid, v_xid
                    FROM unnest(p_keys, p_revisions) AS n (key, revision)
                    JOIN {schema}.cells c ON c.key = n.key AND c.revision = n.revision;
                END IF;
                UPDATE {schema}.cells c SET revision = c.revision + 1, value = n.value, writer = p_id, xid = v_xid
                FROM unnest(p_keys, p_revisions, p_values) AS n (key, revision, value)
                WHERE c.key = n.key AND c.revision = n.revision AND c.locked_by IS NULL;
                GET DIAGNOSTICS v_count = ROW_COUNT;
                IF v_count <> cardinality(p_keys) THEN
                    RAISE EXCEPTION 'not all free' USING ERRCODE = 'LP001';
                END IF;
            END IF;
            v_done := true;
        EXCEPTION WHEN SQLSTATE 'LP001' THEN
        END;
        IF v_done THEN
            IF p_beside IS NOT NULL THEN
                PERFORM {schema}.beside_{version}(p_id, p_hash, p_beside);
            END IF;
            RETURN '{committed}';
        END IF;
    END IF;

    IF p_new_keys <> '{}' OR 0 = ANY (p_read_revisions) THEN
        WITH made AS (
            INSERT INTO {schema}.cells (key, revision, value, writer, xid)
            SELECT n.key, n.revision, n.value, n.writer, v_xid FROM (
                SELECT u.key, 1 AS revision, u.value, p_id AS writer
                FROM unnest(p_new_keys, p_new_values) AS u (key, value)
                UNION ALL
                SELECT r.key, 0, NULL, NULL FROM unnest(p_read_keys, p_read_revisions) AS r (key, revision)
                WHERE r.revision = 0
            ) n ORDER BY n.key COLLATE "C"
            ON CONFLICT (key) DO NOTHING RETURNING key, revision
        )
        SELECT coalesce(array_agg(key) FILTER (WHERE revision = 1), '{}') INTO v_made FROM made;
        IF cardinality(v_made) < cardinality(p_new_keys) THEN
            -- Some have a row already. At revision 0 it may still be written, so they are judged with the others.
            SELECT array_agg(n.key ORDER BY n.key COLLATE "C"), array_agg(n.revision ORDER BY n.key COLLATE "C"),
                   array_agg(n.value ORDER BY n.key COLLATE "C")
            INTO p_keys, p_revisions, p_values
            FROM (
                SELECT u.key, u.revision, u.value FROM unnest(p_keys, p_revisions, p_values) AS u (key, revision, value)
                UNION ALL
                SELECT u.key, 0, u.value FROM unnest(p_new_keys, p_new_values) AS u (key, value)
                WHERE u.key <> ALL (v_made)
            ) n;
        END IF;
    END IF;

    IF p_read_keys = '{}' THEN
        IF p_keys <> '{}' THEN
            SELECT array_agg(c.revision), min(c.locked_by) INTO v_found, v_holder FROM (
                SELECT revision, locked_by FROM {schema}.cells WHERE key = ANY (p_keys)
                ORDER BY key FOR NO KEY UPDATE
            ) c;
            v_all_locked := v_found IS NOT DISTINCT FROM p_revisions;
        END IF;
    ELSE
        -- Cells only read are locked too, but shared: that nobody writes them before we are done is enough.
        FOR v_cell IN
            SELECT n.key, n.written FROM (
                SELECT u.key, true AS written FROM unnest(p_keys) AS u (key)
                UNION ALL
                SELECT u.key, false FROM unnest(p_read_keys) AS u (key)
            ) n ORDER BY n.key COLLATE "C"
        LOOP
            IF v_cell.written THEN
                SELECT locked_by INTO v_locked FROM {schema}.cells WHERE key = v_cell.key FOR NO KEY UPDATE;
                v_holder := coalesce(v_holder, v_locked);
            ELSE
                PERFORM FROM {schema}.cells WHERE key = v_cell.key FOR SHARE;
            END IF;
            v_all_locked := v_all_locked AND FOUND;
        END LOOP;
    END IF;

    IF p_read_keys <> '{}' OR NOT v_all_locked THEN
        SELECT json_agg(json_build_array(n.key, n.revision, coalesce(c.revision, 0)) ORDER BY n.key COLLATE "C")::text
        INTO v_moved
        FROM (
            SELECT u.key, u.revision FROM unnest(p_keys, p_revisions) AS u (key, revision)
            UNION ALL
            SELECT u.key, u.revision FROM unnest(p_read_keys, p_read_revisions) AS u (key, revision)
        ) n LEFT JOIN {schema}.cells c ON c.key = n.key
        WHERE coalesce(c.revision, 0) <> n.revision;
    END IF;

    IF v_moved IS NOT NULL THEN
        IF v_made <> '{}' THEN
            DELETE FROM {schema}.cells WHERE key = ANY (v_made);
        END IF;
        PERFORM {schema}.refuse_{version}(p_id, p_now, p_plan, v_moved, p_retry_until);
        RETURN ARRAY['conflict', v_moved];
    END IF;
    IF NOT v_all_locked THEN
        -- A cell that had no row to lock was created, as planned upon, before we compared. Nothing guards it: again.
        RAISE EXCEPTION 'a cell appeared' USING ERRCODE = 'serialization_failure';
    END IF;
    IF v_holder IS NOT NULL THEN
        -- Leave no trace: the same id may try again.
        DELETE FROM {schema}.cells WHERE key = ANY (v_made);
        DELETE FROM {schema}.transactions WHERE p_from IS NULL AND id = p_id;
        RETURN ARRAY['busy', v_holder];
    END IF;

    IF p_keys <> '{}' THEN
        IF {schema}.remembering_{version}() THEN
            INSERT INTO {schema}.history (key, revision, value, writer, xid, replaced)
            SELECT key, revision, value, writer, xid, v_xid FROM {schema}.cells
            WHERE key = ANY (p_keys) AND revision > 0;
        END IF;
        UPDATE {schema}.cells c SET revision = c.revision + 1, value = n.value, writer = p_id, xid = v_xid
        FROM unnest(p_keys, p_values) AS n (key, value) WHERE c.key = n.key;
    END IF;
    IF p_from IS NOT NULL THEN
        UPDATE {schema}.transactions
        SET state = 'committed', plan = p_plan, answer = p_answer, moved = NULL, retry_until_ms = NULL,
            decided_ms = p_now WHERE id = p_id;
        PERFORM {schema}.drop_staging_{version}(ARRAY[p_id]);
    END IF;
    IF p_beside IS NOT NULL THEN
        PERFORM {schema}.beside_{version}(p_id, p_hash, p_beside);
    END IF;
    RETURN '{committed}';
END
$body$;


-- Hold all these cells, written and read, until the transaction expires.
-- Answers {prepared, expires_ms}, {met}, {busy, holder} or {conflict, moved cells}.
CREATE FUNCTION {schema}.prepare_{version}(
    p_id text, p_hash text, p_now bigint, p_from text, p_plan text,
    p_keys text[], p_revisions bigint[], p_written boolean[], p_values text[],
    p_expires bigint, p_latest bigint, p_retry_until bigint
) RETURNS text[] LANGUAGE plpgsql AS $body$
DECLARE
    v_found bigint[];
    v_holder text;
    v_moved text;
    v_expires bigint := p_expires;
BEGIN
    IF p_from IS NULL THEN
        INSERT INTO {schema}.transactions (id, state, request_hash, created_ms, plan, expires_ms)
        VALUES (p_id, 'prepared', p_hash, p_now, p_plan, p_expires) ON CONFLICT (id) DO NOTHING;
    ELSE
        SELECT least(coalesce(expires_ms, p_expires), p_latest) INTO v_expires FROM {schema}.transactions
        WHERE id = p_id AND state = p_from AND request_hash = p_hash AND (sealed OR p_from <> 'open')
          AND coalesce(expires_ms > p_now, true) AND coalesce(retry_until_ms > p_now, true) FOR NO KEY UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN '{met}';
    END IF;

    INSERT INTO {schema}.cells (key, revision, xid)
    SELECT u.key, 0, pg_current_xact_id() FROM unnest(p_keys, p_revisions) AS u (key, revision)
    WHERE u.revision = 0 ORDER BY u.key COLLATE "C" ON CONFLICT (key) DO NOTHING;
    SELECT array_agg(c.revision), min(c.locked_by) INTO v_found, v_holder FROM (
        SELECT revision, locked_by FROM {schema}.cells WHERE key = ANY (p_keys) ORDER BY key FOR NO KEY UPDATE
    ) c;
    IF coalesce(v_found, '{}') <> p_revisions THEN
        SELECT json_agg(json_build_array(n.key, n.revision, coalesce(c.revision, 0)) ORDER BY n.key COLLATE "C")::text
        INTO v_moved
        FROM unnest(p_keys, p_revisions) AS n (key, revision) LEFT JOIN {schema}.cells c ON c.key = n.key
        WHERE coalesce(c.revision, 0) <> n.revision;
        IF v_moved IS NULL THEN
            RAISE EXCEPTION 'a cell appeared' USING ERRCODE = 'serialization_failure';
        END IF;
        PERFORM {schema}.refuse_{version}(p_id, p_now, p_plan, v_moved, p_retry_until);
        RETURN ARRAY['conflict', v_moved];
    END IF;
    IF v_holder IS NOT NULL THEN
        DELETE FROM {schema}.transactions WHERE p_from IS NULL AND id = p_id;
        RETURN ARRAY['busy', v_holder];
    END IF;

    UPDATE {schema}.transactions
    SET state = 'prepared', plan = p_plan, moved = NULL, retry_until_ms = NULL, expires_ms = v_expires WHERE id = p_id;
    UPDATE {schema}.cells SET locked_by = p_id WHERE key = ANY (p_keys);
    PERFORM {schema}.drop_staging_{version}(ARRAY[p_id]);
    INSERT INTO {schema}.staged (transaction_id, key, base, written, value)
    SELECT p_id, u.key, u.revision, u.written, u.value
    FROM unnest(p_keys, p_revisions, p_written, p_values) AS u (key, revision, written, value);
    RETURN ARRAY['prepared', v_expires::text];
END
$body$;


-- Commit a prepared transaction as it was prepared. Answers {committed} or {met}.
CREATE FUNCTION {schema}.commit_prepared_{version}(p_id text, p_hash text, p_now bigint, p_answer text, p_beside text)
RETURNS text[] LANGUAGE plpgsql AS $body$
DECLARE
    v_xid xid8 := pg_current_xact_id();
BEGIN
    PERFORM pg_advisory_xact_lock_shared({lock_class}, {lock_object});
    UPDATE {schema}.transactions SET state = 'committed', answer = p_answer, decided_ms = p_now
    WHERE id = p_id AND state = 'prepared' AND request_hash = p_hash AND expires_ms > p_now;
    IF NOT FOUND THEN
        RETURN '{met}';
    END IF;
    PERFORM FROM {schema}.cells WHERE locked_by = p_id ORDER BY key FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM {schema}.staged s LEFT JOIN {schema}.cells c ON c.key = s.key
        WHERE s.transaction_id = p_id
          AND (c.locked_by IS DISTINCT FROM p_id OR c.revision IS DISTINCT FROM s.base)
    ) THEN
        RAISE EXCEPTION 'the cells of prepared transaction % have moved', p_id USING ERRCODE = 'LP005';
    END IF;
    IF {schema}.remembering_{version}() THEN
        INSERT INTO {schema}.history (key, revision, value, writer, xid, replaced)
        SELECT c.key, c.revision, c.value, c.writer, c.xid, v_xid
        FROM {schema}.staged s JOIN {schema}.cells c ON c.key = s.key
        WHERE s.transaction_id = p_id AND s.written AND c.revision > 0;
    END IF;
    UPDATE {schema}.cells c SET revision = c.revision + 1, value = s.value, writer = p_id, xid = v_xid, locked_by = NULL
    FROM {schema}.staged s WHERE s.transaction_id = p_id AND s.written AND c.key = s.key;
    UPDATE {schema}.cells SET locked_by = NULL WHERE locked_by = p_id;
    PERFORM {schema}.drop_staging_{version}(ARRAY[p_id]);
    IF p_beside IS NOT NULL THEN
        PERFORM {schema}.beside_{version}(p_id, p_hash, p_beside);
    END IF;
    RETURN '{committed}';
END
$body$;


-- Record a conflict: final, or to be tried again until p_retry_until.
CREATE FUNCTION {schema}.refuse_{version}(
    p_id text, p_now bigint, p_plan text, p_moved text, p_retry_until bigint
) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    UPDATE {schema}.transactions
    SET state = CASE WHEN p_retry_until IS NULL THEN 'failed' ELSE 'retryable' END,
        decided_ms = CASE WHEN p_retry_until IS NULL THEN p_now END,
        plan = p_plan, answer = NULL, moved = p_moved, retry_until_ms = p_retry_until,
        -- One that was never open has no life of its own to expire.
        expires_ms = CASE WHEN isolation IS NOT NULL THEN expires_ms END
    WHERE id = p_id;
    PERFORM {schema}.drop_staging_{version}(ARRAY[p_id]);
END
$body$;


CREATE FUNCTION {schema}.drop_staging_{version}(p_ids text[]) RETURNS void LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM {schema}.staged WHERE transaction_id = ANY (p_ids);
    DELETE FROM {schema}.operations WHERE transaction_id = ANY (p_ids);
END
$body$;


-- End transactions that are in one of these states and free all they hold. p_over: whether their time must be over
-- (true), must not be over (false), or does not matter (null). Answers how many were ended.
CREATE FUNCTION {schema}.finish_{version}(
    p_ids text[], p_from text[], p_to text, p_now bigint, p_over boolean, p_answer text
) RETURNS bigint LANGUAGE plpgsql AS $body$
DECLARE
    v_ids text[];
BEGIN
    SELECT coalesce(array_agg(t.id), '{}') INTO v_ids FROM (
        SELECT id FROM {schema}.transactions
        WHERE id = ANY (p_ids) AND state = ANY (p_from)
          AND coalesce(p_over = (coalesce(expires_ms <= p_now, false)
                                 OR (state = 'retryable' AND coalesce(retry_until_ms <= p_now, false))), true)
        ORDER BY id FOR UPDATE
    ) t;
    IF v_ids = '{}' THEN
        RETURN 0;
    END IF;
    PERFORM FROM {schema}.cells WHERE locked_by = ANY (v_ids) ORDER BY key FOR NO KEY UPDATE;
    UPDATE {schema}.cells SET locked_by = NULL WHERE locked_by = ANY (v_ids);
    PERFORM {schema}.drop_staging_{version}(v_ids);
    UPDATE {schema}.transactions
    SET state = p_to, decided_ms = p_now, answer = p_answer, moved = NULL WHERE id = ANY (v_ids);
    RETURN cardinality(v_ids);
END
$body$;


-- Give an open transaction its instant, after every commit that may not have seen it has ended. Answers whether it has
-- one now: false if those commits did not end within p_patience milliseconds.
CREATE FUNCTION {schema}.anchor_{version}(p_id text, p_patience double precision)
RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_commits text[] := ARRAY(
        SELECT virtualtransaction FROM pg_locks
        WHERE locktype = 'advisory' AND classid::bigint = {lock_class}
          AND objid::bigint = {lock_object}::bigint & 4294967295
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND granted);
    v_until timestamptz := clock_timestamp() + p_patience * interval '1 millisecond';
BEGIN
    WHILE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND virtualtransaction = ANY (v_commits)) LOOP
        IF clock_timestamp() > v_until THEN
            RETURN false;
        END IF;
        PERFORM pg_sleep(0.001);
    END LOOP;
    UPDATE {schema}.transactions SET snapshot = pg_current_snapshot() WHERE id = p_id AND snapshot IS NULL;
    RETURN true;
END
$body$;


-- The cells as seen from inside: what is staged, over everything else as of the transaction's instant. The same
-- statement looks at the transaction, so that what is staged cannot be gone when it is read. No rows: it has no inside.
CREATE FUNCTION {schema}.inside_{version}(p_id text, p_now bigint, p_keys text[])
RETURNS TABLE (key text, revision bigint, value text, writer text) LANGUAGE sql STABLE AS $body$
    SELECT k.key,
           CASE WHEN s.written THEN s.base + 1 ELSE a.revision END,
           CASE WHEN s.written THEN s.value ELSE a.value END,
           CASE WHEN s.written THEN p_id ELSE a.writer END
    FROM {schema}.transactions t
    CROSS JOIN unnest(p_keys) AS k (key)
    CROSS JOIN LATERAL {schema}.as_of_{version}(t.snapshot, k.key) a
    LEFT JOIN {schema}.staged s ON s.transaction_id = p_id AND s.key = k.key
    WHERE t.id = p_id AND (t.state = 'open' OR (t.state = 'prepared' AND t.sealed))
      AND t.expires_ms > p_now AND t.snapshot IS NOT NULL
$body$;


CREATE FUNCTION {schema}.is_open_{version}(p_id text, p_now bigint) RETURNS boolean LANGUAGE sql AS $body$
    SELECT EXISTS (
        SELECT FROM {schema}.transactions
        WHERE id = p_id AND (state = 'open' OR (state = 'prepared' AND sealed))
          AND expires_ms > p_now AND snapshot IS NOT NULL
    )
$body$;


-- Read inside a transaction without a trace.
CREATE FUNCTION {schema}.look_{version}(p_id text, p_now bigint, p_keys text[])
RETURNS TABLE (key text, revision bigint, value text, writer text) LANGUAGE plpgsql AS $body$
BEGIN
    RETURN QUERY SELECT * FROM {schema}.inside_{version}(p_id, p_now, p_keys);
    IF NOT FOUND AND NOT {schema}.is_open_{version}(p_id, p_now) THEN
        RETURN QUERY SELECT NULL::text, NULL::bigint, NULL::text, NULL::text;
    END IF;
END
$body$;


-- The next keys of a range that have a row or are staged, as seen from inside. The caller leaves out what is not there.
CREATE FUNCTION {schema}.scan_in_{version}(p_id text, p_now bigint, p_first text, p_last text, p_limit bigint)
RETURNS TABLE (key text, revision bigint, value text, writer text) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT * FROM {schema}.inside_{version}(p_id, p_now, ARRAY(
        SELECT n.key FROM (
            (SELECT c.key FROM {schema}.cells c WHERE c.key > p_first AND c.key < p_last ORDER BY c.key LIMIT p_limit)
            UNION
            (SELECT s.key FROM {schema}.staged s
             WHERE s.transaction_id = p_id AND s.written AND s.key > p_first AND s.key < p_last
             ORDER BY s.key LIMIT p_limit)
        ) n ORDER BY n.key LIMIT p_limit
    ));
    IF NOT FOUND AND NOT {schema}.is_open_{version}(p_id, p_now) THEN
        RETURN QUERY SELECT NULL::text, NULL::bigint, NULL::text, NULL::text;
    END IF;
END
$body$;


-- Read inside an open transaction; under serializable isolation remember what was read.
CREATE FUNCTION {schema}.read_in_{version}(p_id text, p_now bigint, p_keys text[], p_max_cells bigint)
RETURNS TABLE (key text, revision bigint, value text, writer text) LANGUAGE plpgsql AS $body$
#variable_conflict use_column
DECLARE
    v_snapshot pg_snapshot;
    v_isolation text;
    v_count bigint;
BEGIN
    SELECT t.snapshot, t.isolation INTO v_snapshot, v_isolation FROM {schema}.transactions t
    WHERE t.id = p_id AND t.state = 'open' AND NOT t.sealed AND t.expires_ms > p_now AND t.snapshot IS NOT NULL;
    IF NOT FOUND THEN
        RETURN QUERY SELECT NULL::text, NULL::bigint, NULL::text, NULL::text;
        RETURN;
    END IF;
    IF v_isolation = 'serializable' AND EXISTS (
        SELECT FROM unnest(p_keys) AS k (key)
        WHERE NOT EXISTS (SELECT FROM {schema}.staged s WHERE s.transaction_id = p_id AND s.key = k.key)
    ) THEN
        PERFORM FROM {schema}.transactions t
        WHERE t.id = p_id AND t.state = 'open' AND NOT t.sealed AND t.expires_ms > p_now FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            RETURN QUERY SELECT NULL::text, NULL::bigint, NULL::text, NULL::text;
            RETURN;
        END IF;
        WITH new AS (
            INSERT INTO {schema}.staged (transaction_id, key, base, written)
            SELECT p_id, k.key, a.revision, false
            FROM unnest(p_keys) AS k (key), LATERAL {schema}.as_of_{version}(v_snapshot, k.key) a
            ON CONFLICT (transaction_id, key) DO NOTHING RETURNING 1
        )
        UPDATE {schema}.transactions t SET cell_count = t.cell_count + (SELECT count(*) FROM new)
        WHERE t.id = p_id RETURNING t.cell_count INTO v_count;
        IF EXISTS (
            SELECT FROM {schema}.staged s WHERE s.transaction_id = p_id AND s.key = ANY (p_keys) AND s.base < 0
        ) THEN
            RAISE EXCEPTION 'too old' USING ERRCODE = 'LP004';
        END IF;
        IF v_count > p_max_cells THEN
            RAISE EXCEPTION 'too many' USING ERRCODE = 'LP003', DETAIL = format('cells %s', v_count);
        END IF;
    END IF;
    RETURN QUERY SELECT * FROM {schema}.inside_{version}(p_id, p_now, p_keys);
    IF NOT FOUND AND NOT {schema}.is_open_{version}(p_id, p_now) THEN
        RETURN QUERY SELECT NULL::text, NULL::bigint, NULL::text, NULL::text;
    END IF;
END
$body$;


-- Stage these values, once for this operation id, if what they were planned on is still staged, or not, as shown.
CREATE FUNCTION {schema}.stage_{version}(
    p_id text, p_now bigint, p_operation text, p_keys text[], p_values text[], p_bytes bigint,
    p_max_cells bigint, p_max_bytes bigint,
    p_seen_keys text[], p_seen_revisions bigint[], p_seen_staged boolean[], p_seen_values text[]
) RETURNS boolean LANGUAGE plpgsql AS $body$
DECLARE
    v_snapshot pg_snapshot;
    v_isolation text;
    v_key text;
    v_revision bigint;
    v_noted bigint := 0;
    v_known bigint;
    v_replaced bigint;
    v_count bigint;
    v_bytes bigint;
BEGIN
    SELECT snapshot, isolation INTO v_snapshot, v_isolation FROM {schema}.transactions
    WHERE id = p_id AND state = 'open' AND NOT sealed AND expires_ms > p_now AND snapshot IS NOT NULL
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        -- Staged before, it is in the plan even if that has been sealed since.
        RETURN EXISTS (
            SELECT FROM {schema}.operations WHERE transaction_id = p_id AND operation_id = p_operation
        );
    END IF;
    INSERT INTO {schema}.operations (transaction_id, operation_id) VALUES (p_id, p_operation) ON CONFLICT DO NOTHING;
    IF NOT FOUND OR (p_keys = '{}' AND p_seen_keys = '{}') THEN
        RETURN true;
    END IF;
    IF p_seen_keys <> '{}' THEN
        SELECT n.key INTO v_key
        FROM unnest(p_seen_keys, p_seen_staged, p_seen_values) AS n (key, staged, value)
        LEFT JOIN {schema}.staged s ON s.transaction_id = p_id AND s.key = n.key
        WHERE coalesce(s.written, false) <> n.staged OR (n.staged AND s.value IS DISTINCT FROM n.value) LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'staged meanwhile' USING ERRCODE = 'LP006', DETAIL = v_key;
        END IF;
        SELECT n.key, coalesce(s.base, a.revision) INTO v_key, v_revision
        FROM unnest(p_seen_keys, p_seen_revisions, p_seen_staged) AS n (key, revision, staged)
        CROSS JOIN LATERAL {schema}.as_of_{version}(v_snapshot, n.key) a
        LEFT JOIN {schema}.staged s ON s.transaction_id = p_id AND s.key = n.key
        WHERE NOT n.staged AND coalesce(s.base, a.revision) <> n.revision LIMIT 1;
        IF FOUND THEN
            IF v_revision < 0 THEN
                RAISE EXCEPTION 'too old' USING ERRCODE = 'LP004';
            END IF;
            RAISE EXCEPTION 'never shown' USING ERRCODE = 'LP007', DETAIL = v_key;
        END IF;
        IF v_isolation = 'serializable' THEN
            INSERT INTO {schema}.staged (transaction_id, key, base, written)
            SELECT p_id, n.key, n.revision, false
            FROM unnest(p_seen_keys, p_seen_revisions, p_seen_staged) AS n (key, revision, staged)
            WHERE NOT n.staged ON CONFLICT (transaction_id, key) DO NOTHING;
            GET DIAGNOSTICS v_noted = ROW_COUNT;
        END IF;
    END IF;
    SELECT count(*), coalesce(sum(octet_length(value)), 0) INTO v_known, v_replaced
    FROM {schema}.staged WHERE transaction_id = p_id AND key = ANY (p_keys);
    INSERT INTO {schema}.staged (transaction_id, key, base, written, value)
    SELECT p_id, n.key, a.revision, true, n.value
    FROM unnest(p_keys, p_values) AS n (key, value), LATERAL {schema}.as_of_{version}(v_snapshot, n.key) a
    ON CONFLICT (transaction_id, key) DO UPDATE SET written = true, value = excluded.value;
    IF EXISTS (
        SELECT FROM {schema}.staged WHERE transaction_id = p_id AND key = ANY (p_keys) AND base < 0
    ) THEN
        RAISE EXCEPTION 'too old' USING ERRCODE = 'LP004';
    END IF;
    UPDATE {schema}.transactions
    SET cell_count = cell_count + v_noted + cardinality(p_keys) - v_known,
        value_bytes = value_bytes + p_bytes - v_replaced
    WHERE id = p_id RETURNING cell_count, value_bytes INTO v_count, v_bytes;
    IF v_count > p_max_cells THEN
        RAISE EXCEPTION 'too many' USING ERRCODE = 'LP003', DETAIL = format('cells %s', v_count);
    END IF;
    IF v_bytes > p_max_bytes THEN
        RAISE EXCEPTION 'too large' USING ERRCODE = 'LP003', DETAIL = format('bytes %s', v_bytes);
    END IF;
    RETURN true;
END
$body$;


-- Forget overwritten values that lie in the past of no open transaction. Answers how many.
CREATE FUNCTION {schema}.prune_{version}(p_limit bigint) RETURNS bigint LANGUAGE plpgsql AS $body$
DECLARE
    v_pruned bigint;
BEGIN
    -- One statement, so one snapshot: a transaction that begins after it sees everything that is deleted as replaced.
    DELETE FROM {schema}.history WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM {schema}.history WHERE replaced < (
            -- A transaction that has no instant yet may still get any: then nothing is deleted.
            SELECT coalesce(pg_snapshot_xmin(snapshot), '0') FROM {schema}.transactions
            WHERE decided_ms IS NULL AND state IN ('open', 'prepared') AND (state = 'open' OR sealed)
            UNION ALL
            SELECT pg_snapshot_xmin(pg_current_snapshot())
            ORDER BY 1 LIMIT 1
        ) LIMIT p_limit
    ));
    GET DIAGNOSTICS v_pruned = ROW_COUNT;
    RETURN v_pruned;
END
$body$;
"""


FUNCTIONS: Final = _CELLS + DELTA_FUNCTIONS


def digest() -> str:
    """Eight letters that stand for exactly these functions."""
    return hashlib.sha256(FUNCTIONS.encode()).hexdigest()[:8]


def script(schema: str, quoted_schema: str) -> str:
    """The functions for one schema."""
    lock_object = f"hashtext('{schema}')"
    text = FUNCTIONS.replace("{schema}", quoted_schema).replace("{version}", digest())
    return text.replace("{lock_class}", str(LOCK_CLASS)).replace("{lock_object}", lock_object)
