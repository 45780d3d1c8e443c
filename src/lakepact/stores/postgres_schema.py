"""The PostgreSQL schema: its tables, and how a program makes it ready for use.

    cells         the present value of every cell, the database transaction that wrote it, and the prepared
                  transaction that holds it, if any. A row at revision 0 stands for a cell that never was: something
                  to put a row lock on.
    history       values overwritten while a transaction was open, until no open one can ask for them
    transactions  one row a transaction: the record
    staged        what open transactions have read and written, and the plans of prepared ones
    operations    the staging calls that were acknowledged, so that each counts once
    meta          the format, and the cluster this database lives in
    dl_*          the rows of Delta tables, which move with the cells (`postgres_delta_schema`)

An open transaction reads as of its beginning: it keeps the database snapshot it began with, every row of a cell
carries the id of the database transaction that wrote it, and PostgreSQL itself tells which ids lie in the past of a
snapshot.

Keys and ids are compared byte by byte (COLLATE "C"), as everywhere in Lakepact.
"""

from __future__ import annotations

import re
from typing import Any, Final

from lakepact.errors import InvalidSetting
from lakepact.stores.postgres_delta_schema import DELTA_TABLES, PENDING_BY_REQUEST
from lakepact.stores.postgres_functions import LOCK_CLASS, digest, script
from lakepact.stores.sql_format import upgrades

STEPS: Final = {
    1: """
    CREATE TABLE {schema}.cells (
        key       text COLLATE "C" NOT NULL PRIMARY KEY,
        revision  bigint NOT NULL,
        value     text,
        writer    text COLLATE "C",
        xid       xid8 NOT NULL,
        locked_by text COLLATE "C"
    ) WITH (fillfactor = 80);
    CREATE INDEX cells_locked ON {schema}.cells (locked_by) WHERE locked_by IS NOT NULL;

    CREATE TABLE {schema}.history (
        key       text COLLATE "C" NOT NULL,
        revision  bigint NOT NULL,
        value     text,
        writer    text COLLATE "C",
        xid       xid8 NOT NULL,
        replaced  xid8 NOT NULL,
        PRIMARY KEY (key, revision)
    );

    CREATE TABLE {schema}.transactions (
        id             text COLLATE "C" NOT NULL PRIMARY KEY,
        state          text COLLATE "C" NOT NULL,
        request_hash   text COLLATE "C" NOT NULL,
        created_ms     bigint NOT NULL,
        plan           text,
        answer         text,
        moved          text,
        expires_ms     bigint,
        retry_until_ms bigint,
        decided_ms     bigint,
        isolation      text COLLATE "C",
        properties     text,
        sealed         boolean,
        snapshot       pg_snapshot,
        cell_count     bigint NOT NULL DEFAULT 0,
        value_bytes    bigint NOT NULL DEFAULT 0
    );
    CREATE INDEX transactions_undecided ON {schema}.transactions (state, id) WHERE decided_ms IS NULL;
    CREATE INDEX transactions_untrimmed ON {schema}.transactions (decided_ms) WHERE plan IS NOT NULL;

    CREATE TABLE {schema}.staged (
        transaction_id text COLLATE "C" NOT NULL,
        key            text COLLATE "C" NOT NULL,
        base           bigint NOT NULL,
        written        boolean NOT NULL,
        value          text,
        PRIMARY KEY (transaction_id, key)
    );

    CREATE TABLE {schema}.operations (
        transaction_id text COLLATE "C" NOT NULL,
        operation_id   text COLLATE "C" NOT NULL,
        PRIMARY KEY (transaction_id, operation_id)
    );
    """,
    2: DELTA_TABLES,
    3: PENDING_BY_REQUEST,
}

_legal_schema = re.compile(r"[a-z_][a-z0-9_]{0,47}").fullmatch


def quoted(schema: str) -> str:
    if not _legal_schema(schema):
        raise InvalidSetting(f"schema {schema!r}: use lower-case letters, digits and '_', at most 48 of them")
    return f'"{schema}"'


async def prepare_schema(connection: Any, schema: str) -> None:
    """Create or upgrade the schema, and install this release's functions. One process at a time does it."""
    name = quoted(schema)
    async with connection.transaction(isolation="read_committed"):
        await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", LOCK_CLASS, f"setting up {schema}")
        found = await _format(connection, schema)
        for reached, steps in upgrades(found, STEPS, f"schema {schema}"):
            if reached == 1:
                if await connection.fetchval("SELECT to_regnamespace($1)", name) is None:
                    await connection.execute(f"CREATE SCHEMA {name}")
                await connection.execute(f"CREATE TABLE {name}.meta (format integer NOT NULL, cluster text NOT NULL)")
                await connection.execute(f"INSERT INTO {name}.meta VALUES (0, ({_CLUSTER}))")
            await connection.execute(steps.format(schema=name))
            await connection.execute(f"UPDATE {name}.meta SET format = $1", reached)
        await _settle_in(connection, name)
        await _install_functions(connection, schema)


async def _format(connection: Any, schema: str) -> int:
    """The format of the schema; 0 if there is none yet."""
    if await connection.fetchval("SELECT to_regclass($1)", f"{quoted(schema)}.meta") is None:
        return 0
    return int(await connection.fetchval(f"SELECT format FROM {quoted(schema)}.meta"))


_CLUSTER: Final = "SELECT system_identifier::text FROM pg_control_system()"


async def _settle_in(connection: Any, schema: str) -> None:
    """After a dump was restored into another cluster the ids of database transactions mean nothing any more.

    Every value there is was committed in the past of whoever begins from now on; transactions that were open then
    cannot be shown their past, so they end here.
    """
    here = await connection.fetchval(_CLUSTER)
    if await connection.fetchval(f"SELECT cluster FROM {schema}.meta") == here:
        return
    await connection.execute(f"DELETE FROM {schema}.history")
    await connection.execute(f"UPDATE {schema}.cells SET xid = '3' WHERE xid <> '3'")
    ended = await connection.fetch(
        f"UPDATE {schema}.transactions SET state = 'aborted', decided_ms = expires_ms "
        f"WHERE state = 'open' AND decided_ms IS NULL RETURNING id"
    )
    for table in ("staged", "operations"):
        await connection.execute(
            f"DELETE FROM {schema}.{table} WHERE transaction_id = ANY ($1::text[])", [row[0] for row in ended]
        )
    # One that is prepared holds its cells, and sees the others as they are from now on.
    await connection.execute(f"UPDATE {schema}.transactions SET snapshot = NULL WHERE decided_ms IS NULL")
    await connection.execute(f"UPDATE {schema}.meta SET cluster = $1", here)


async def _install_functions(connection: Any, schema: str) -> None:
    """Functions carry a digest of their source in their names: releases side by side never change each other's."""
    version = digest()
    present = await connection.fetchval(
        "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = $1 AND p.proname LIKE '%\\_' || $2",
        schema,
        version,
    )
    if present == 0:
        await connection.execute(script(schema, quoted(schema)))
