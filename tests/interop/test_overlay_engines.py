"""Unmodified engines inside an open transaction: what they write is seen there, and by nobody else until the commit.

Spark with the stock runtime, PyIceberg and DuckDB, each pointed at `warehouse=main@<id>` and told nothing more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.types import StringType

from tests.support.duckdb_iceberg import connect
from tests.support.live_tables import catalog_at, scan_live_tables
from tests.support.spark import Answer, Lake, path_of, refused

# The first of them starts Spark, and the first of all fetches the runtime.

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction, and a catalog of Spark's inside it."""

    lake: Lake
    id: str
    catalog: str

    @classmethod
    def begun(cls, lake: Lake, **body: Any) -> Transaction:
        answer = lake.rest("POST", "transactions", body)
        assert answer.status == 200, answer.body
        # A name is bound to its transaction for the session's life, so it is a fresh one.
        catalog = f"tx{next(_NUMBERS)}"
        lake.attach(catalog, uri=lake.server.url, warehouse=answer.body["warehouse"], cache_enabled="false")
        return cls(lake, answer.body["transaction-id"], catalog)

    @property
    def warehouse(self) -> str:
        return f"main@{self.id}"

    def do(self, step: str) -> Answer:
        return self.lake.rest("POST", f"transactions/{self.id}/{step}", {})

    def commit(self) -> None:
        answer = self.do("commit")
        assert answer.status == 200, answer.body

    def pyiceberg(self) -> Catalog:
        return catalog_at(self.lake.server.url, self.warehouse)


def ids(table: Any) -> list[int]:
    """The column `id` as PyIceberg reads it."""
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def rows(*numbers: int) -> pa.Table:
    return pa.table(
        {"id": pa.array(numbers, pa.int64()), "name": pa.array([f"n{number}" for number in numbers], pa.string())}
    )


# --- Spark ---


def test_statements_of_spark_are_seen_inside_and_outside_when_they_are_committed(lake: Lake, db: str) -> None:
    for table in ("merged", "deleted", "updated", "altered", "replaced", "dropped"):
        lake.fill(f"{db}.{table}", 1, 2)
    outside = {table: lake.metadata(f"{db}.{table}") for table in lake.tables(db)}
    tx = Transaction.begun(lake)
    inside = f"{tx.catalog}.{db}"
    statements = [
        f"INSERT INTO {inside}.merged VALUES (3, 'n3')",
        f"MERGE INTO {inside}.merged t USING (SELECT * FROM VALUES (2, 'two'), (4, 'n4') AS s(id, name)) s "
        f"ON t.id = s.id WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *",
        f"DELETE FROM {inside}.deleted WHERE id = 1",
        f"UPDATE {inside}.updated SET name = upper(name) WHERE id = 2",
        f"CREATE TABLE {inside}.made (id BIGINT, name STRING)",
        f"INSERT INTO {inside}.made SELECT * FROM {inside}.merged WHERE id > 2",
        f"CREATE TABLE {inside}.by_query AS SELECT id, name FROM {inside}.made",
        f"CREATE OR REPLACE TABLE {inside}.replaced AS SELECT id + 10 AS id FROM {inside}.by_query",
        f"ALTER TABLE {inside}.altered ADD COLUMN more INT",
        f"ALTER TABLE {inside}.altered SET TBLPROPERTIES ('a' = 'b')",
        f"ALTER TABLE {inside}.altered CREATE BRANCH work",
        f"INSERT INTO {inside}.altered.branch_work VALUES (5, 'n5', 7)",
        f"ALTER TABLE {inside}.made RENAME TO {db}.renamed",
        f"DROP TABLE {inside}.dropped",
    ]
    for statement in statements:
        lake.sql(statement)

    expected = [(1, "n1"), (2, "two"), (3, "n3"), (4, "n4")]
    assert lake.sql(f"SELECT * FROM {inside}.merged ORDER BY id") == expected
    assert lake.ids(f"{inside}.deleted") == [2]
    assert lake.ids(f"{inside}.renamed") == lake.ids(f"{inside}.by_query") == [3, 4]
    assert lake.ids(f"{inside}.replaced") == [13, 14]
    assert lake.ids(f"{inside}.altered VERSION AS OF 'work'") == [1, 2, 5]
    # The files of staged versions are read by the tables about tables.
    assert len(lake.sql(f"SELECT * FROM {inside}.merged.snapshots")) == 4
    assert len(lake.sql(f"SELECT * FROM {inside}.merged.history")) == 4
    assert len(lake.sql(f"SELECT * FROM {inside}.merged.metadata_log_entries")) == 5
    names = {"merged", "deleted", "updated", "altered", "replaced", "renamed", "by_query"}
    assert {row[1] for row in lake.sql(f"SHOW TABLES IN {inside}")} == names
    # Overlay and main in one query, of one session.
    joined = f"SELECT t.id FROM {inside}.merged t LEFT ANTI JOIN other.{db}.merged o ON t.id = o.id ORDER BY 1"
    assert lake.sql(joined) == [(3,), (4,)]

    assert {table: lake.metadata(f"{db}.{table}") for table in lake.tables(db)} == outside
    assert lake.ids(f"other.{db}.merged") == [1, 2]
    tx.commit()

    assert set(lake.tables(db)) == names
    assert lake.sql(f"SELECT * FROM other.{db}.merged ORDER BY id") == expected
    assert lake.ids(f"other.{db}.deleted") == [2]
    assert lake.sql(f"SELECT name FROM other.{db}.updated ORDER BY id") == [("n1",), ("N2",)]
    assert lake.ids(f"other.{db}.replaced") == [13, 14]
    assert lake.ids(f"other.{db}.altered VERSION AS OF 'work'") == [1, 2, 5]
    assert lake.metadata(f"{db}.altered")["properties"]["a"] == "b"
    assert lake.ids(f"other.{db}.renamed") == [3, 4]
    changed = [lake.metadata(f"{db}.{table}") for table in names]
    assert len({metadata["last-updated-ms"] for metadata in changed}) == 1
    assert all("gc.enabled" not in metadata["properties"] for metadata in changed)
    # And Spark goes on from there.
    lake.sql(f"INSERT INTO other.{db}.merged VALUES (9, 'n9')")
    assert lake.ids(f"other.{db}.merged") == [1, 2, 3, 4, 9]


def test_time_travel_never_shows_half_of_a_transaction(lake: Lake, db: str) -> None:
    for table in ("a", "b"):
        lake.fill(f"{db}.{table}", 1)
    tx = Transaction.begun(lake)
    for table in ("a", "b"):
        lake.sql(f"INSERT INTO {tx.catalog}.{db}.{table} VALUES (2, 'n2')")
    staged = tx.pyiceberg().load_table((db, "a")).current_snapshot()
    assert staged is not None
    tx.commit()
    published = lake.metadata(f"{db}.a")["last-updated-ms"]
    for asked_ms in (staged.timestamp_ms, published - 1, published):
        seen = [lake.ids(f"other.{db}.{table} TIMESTAMP AS OF timestamp_millis({asked_ms})") for table in ("a", "b")]
        assert seen[0] == seen[1], asked_ms


def test_nothing_inside_deletes_a_live_file(lake: Lake, db: str) -> None:
    lake.fill(f"{db}.t", 1, 2)
    files = [row[0] for row in lake.sql(f"SELECT file_path FROM other.{db}.t.all_files")]
    tx = Transaction.begun(lake)
    with pytest.raises(Py4JJavaError, match="GC is disabled"):
        lake.sql(f"DROP TABLE {tx.catalog}.{db}.t PURGE")
    with pytest.raises(Py4JJavaError, match="GC is disabled"):
        lake.sql(
            f"CALL {tx.catalog}.system.expire_snapshots(table => '{db}.t', retain_last => 1, "
            f"older_than => TIMESTAMP '2100-01-01 00:00:00')"
        )
    with pytest.raises(Py4JJavaError, match="GC is disabled"):
        lake.sql(f"CALL {tx.catalog}.system.remove_orphan_files(table => '{db}.t')")
    assert all(path_of(file).is_file() for file in files)
    assert lake.ids(f"{tx.catalog}.{db}.t") == [1, 2]
    tx.do("abort")
    assert lake.ids(f"other.{db}.t") == [1, 2]


def test_snapshots_that_a_transaction_looks_at_are_not_expired_outside(lake: Lake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    tx = Transaction.begun(lake)
    assert lake.ids(f"{tx.catalog}.{db}.t") == [1]
    lake.sql(f"INSERT OVERWRITE other.{db}.t VALUES (2, 'n2')")
    expire = (
        f"CALL other.system.expire_snapshots(table => '{db}.t', retain_last => 1, "
        f"older_than => TIMESTAMP '2100-01-01 00:00:00')"
    )
    with refused("CommitFailedException", "in use by open transaction"):
        lake.sql(expire)
    assert lake.ids(f"{tx.catalog}.{db}.t") == [1], "its files are there, and it sees the table as it was"
    tx.do("abort")
    lake.sql(expire)
    assert len(lake.metadata(f"{db}.t")["snapshots"]) == 1


def test_a_conflict_and_an_ended_transaction_are_told_to_spark_in_words(lake: Lake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    tx = Transaction.begun(lake)
    lake.sql(f"INSERT INTO {tx.catalog}.{db}.t VALUES (2, 'n2')")
    lake.sql(f"INSERT INTO other.{db}.t VALUES (3, 'n3')")
    answer = tx.do("commit")
    assert (answer.status, answer.body["error"]["type"]) == (409, "CommitFailedException")
    assert answer.body["error"]["conflicts"][0]["identifier"] == {"namespace": [db], "name": "t"}
    assert lake.ids(f"other.{db}.t") == [1, 3]
    with refused("BadRequestException", "failed at its commit"):
        lake.sql(f"INSERT INTO {tx.catalog}.{db}.t VALUES (4, 'n4')")
    done = Transaction.begun(lake)
    lake.sql(f"INSERT INTO {done.catalog}.{db}.t VALUES (5, 'n5')")
    lazy = lake.spark.table(f"{done.catalog}.{db}.t")
    done.commit()
    assert sorted(row[0] for row in lazy.collect()) == [1, 3, 5], "what was planned before the commit still runs"
    with refused("BadRequestException", "is committed"):
        lake.sql(f"INSERT INTO {done.catalog}.{db}.t VALUES (6, 'n6')")
    assert lake.ids(f"other.{db}.t") == [1, 3, 5]


# --- others, and together ---


def test_pyiceberg_works_inside(lake: Lake, db: str) -> None:
    main = catalog_at(lake.server.url)
    main.create_table((db, "t"), rows().schema).append(rows(1))
    tx = Transaction.begun(lake)
    inside = tx.pyiceberg()
    table = inside.load_table((db, "t"))
    table.append(rows(2, 3))
    table.delete("id = 1")
    inside.create_table((db, "made"), rows().schema).append(rows(7))
    with inside.load_table((db, "t")).update_schema() as update:
        update.add_column("more", StringType())
    assert ids(inside.load_table((db, "t"))) == [2, 3]
    assert sorted(inside.list_tables(db)) == [(db, "made"), (db, "t")]
    assert main.list_tables(db) == [(db, "t")]
    assert ids(main.load_table((db, "t"))) == [1]
    tx.commit()
    assert ids(main.load_table((db, "t"))) == [2, 3]
    assert "more" in main.load_table((db, "t")).schema().column_names
    assert ids(main.load_table((db, "made"))) == [7]
    with pytest.raises(BadRequestError, match="is committed"):
        table.append(rows(9))


def test_duckdb_works_inside(lake: Lake, db: str) -> None:
    main = catalog_at(lake.server.url)
    main.create_table((db, "t"), rows().schema).append(rows(1))
    tx = Transaction.begun(lake)
    duck = connect(lake.server.url, tx.warehouse, "tx")
    try:
        duck.execute(f"INSERT INTO tx.{db}.t VALUES (2, 'n2')")
        duck.execute("BEGIN")
        duck.execute(f"INSERT INTO tx.{db}.t VALUES (3, 'n3')")
        duck.execute(f"INSERT INTO tx.{db}.t VALUES (4, 'n4')")
        duck.execute("COMMIT")
        duck.execute(f"CREATE TABLE tx.{db}.made AS SELECT id FROM tx.{db}.t WHERE id > 2")
        assert duck.execute(f"SELECT id FROM tx.{db}.t ORDER BY id").fetchall() == [(1,), (2,), (3,), (4,)]
        assert duck.execute(f"SELECT id FROM tx.{db}.made ORDER BY id").fetchall() == [(3,), (4,)]
        assert ids(main.load_table((db, "t"))) == [1]
        assert main.list_tables(db) == [(db, "t")]
        tx.commit()
    finally:
        duck.close()
    assert ids(main.load_table((db, "t"))) == [1, 2, 3, 4]
    assert ids(main.load_table((db, "made"))) == [3, 4]


def test_three_engines_share_one_transaction(
    lake: Lake, db: str, record_property: Callable[[str, object], None]
) -> None:
    lake.fill(f"{db}.t", 1)
    tx = Transaction.begun(lake)
    inside = tx.pyiceberg()
    duck = connect(lake.server.url, tx.warehouse, "tx")
    try:
        lake.sql(f"INSERT INTO {tx.catalog}.{db}.t VALUES (2, 'n2')")
        assert ids(inside.load_table((db, "t"))) == [1, 2]
        inside.load_table((db, "t")).append(rows(3))
        assert duck.execute(f"SELECT id FROM tx.{db}.t ORDER BY id").fetchall() == [(1,), (2,), (3,)]
        duck.execute(f"INSERT INTO tx.{db}.t VALUES (4, 'n4')")
        lake.sql(f"CREATE TABLE {tx.catalog}.{db}.summary AS SELECT count(*) AS id FROM {tx.catalog}.{db}.t")
        assert duck.execute(f"SELECT id FROM tx.{db}.summary").fetchall() == [(4,)]
        lake.sql(f"DELETE FROM {tx.catalog}.{db}.t WHERE id = 3")
        assert lake.ids(f"other.{db}.t") == [1]
        tx.commit()
    finally:
        duck.close()
    assert lake.ids(f"other.{db}.t") == [1, 2, 4]
    assert lake.ids(f"other.{db}.summary") == [4]
    scanned = scan_live_tables(lake.server.url)
    record_property(
        "figure",
        f"Spark, PyIceberg and DuckDB in one transaction; afterwards {scanned.tables} tables, {scanned.snapshots} "
        f"snapshots, {scanned.rows} rows read in full",
    )
