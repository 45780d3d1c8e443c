"""Delta tables written and read by Spark inside a transaction, beside Iceberg tables."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame

import lakepact.spark as lp
from lakepact.client import Conflict
from lakepact.delta.errors import BadSchema
from lakepact.errors import InvalidRequest
from lakepact.spark.errors import UnsupportedFormat
from tests.support.spark import Lake


@pytest.fixture
def pact(lake: Lake) -> lp.SparkLake:
    return lp.connect(lake.spark)


def people(lake: Lake, *rows: tuple[int, str]) -> DataFrame:
    return lake.spark.createDataFrame(list(rows), "id BIGINT, name STRING")


def rows(reader: lp.SparkTransaction | lp.SparkLake, table: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in reader.table(table).collect())


def test_every_way_to_write_is_read_inside_at_once_and_outside_after_the_commit(
    lake: Lake, pact: lp.SparkLake, db: str
) -> None:
    with pact.transaction() as tx:
        for name in ("appended", "overwritten", "merged", "deleted"):
            tx.write(people(lake, (1, "a"), (2, "b")), f"{db}.{name}", "create", format="delta")
        tx.write(people(lake, (1, "a"), (2, "b")), f"{db}.parts", "create", format="delta", partitioned_by="name")
        tx.write(people(lake, (1, "a")), f"{db}.iceberg", "create")
    assert rows(pact, f"{db}.parts") == [(1, "a"), (2, "b")]

    with pact.transaction() as tx:
        tx.write(people(lake, (3, "c")), f"{db}.appended")
        tx.write(people(lake, (3, "c")), f"{db}.overwritten", "overwrite")
        tx.write(people(lake, (3, "b"), (4, "it's: =%")), f"{db}.parts", "overwrite_partitions")
        tx.write(people(lake, (2, "changed"), (3, "new")), f"{db}.merged", "merge", keys="id")
        tx.delete(f"{db}.deleted", "id = 1")
        tx.delete(f"{db}.iceberg", "id = 1")
        inside = {
            "appended": [(1, "a"), (2, "b"), (3, "c")],
            "overwritten": [(3, "c")],
            "parts": [(1, "a"), (3, "b"), (4, "it's: =%")],
            "merged": [(1, "a"), (2, "changed"), (3, "new")],
            "deleted": [(2, "b")],
            "iceberg": [],
        }
        assert {name: rows(tx, f"{db}.{name}") for name in inside} == inside
        assert rows(pact, f"{db}.merged") == [(1, "a"), (2, "b")]
    assert {name: rows(pact, f"{db}.{name}") for name in inside} == inside
    loaded = {name: pact.plain.delta.load(f"{db}.{name}") for name in inside if name != "iceberg"}
    assert {one.version for one in loaded.values()} == {1}
    assert len({one.timestamp_ms for one in loaded.values()}) == 1
    assert all('"numRecords"' in (file.stats or "") for one in loaded.values() for file in one.files)


def test_columns_are_added_if_that_is_asked_for(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    with pact.transaction() as tx:
        tx.write(people(lake, (1, "a")), f"{db}.t", "create", format="delta")
    wider = lake.spark.createDataFrame([(2, "b", 0.5)], "id BIGINT, name STRING, score DOUBLE")
    with pytest.raises(BadSchema, match="score"), pact.transaction() as tx:
        tx.write(wider, f"{db}.t")
    with pytest.raises(InvalidRequest, match="overwriteSchema"), pact.transaction() as tx:
        tx.write(wider, f"{db}.t", options={"overwriteSchema": True})
    with pact.transaction() as tx:
        tx.write(wider, f"{db}.t", options={"mergeSchema": True})
        assert rows(tx, f"{db}.t") == [(1, "a", None), (2, "b", 0.5)]
        tx.write(people(lake, (3, "c")), f"{db}.t")
    assert rows(pact, f"{db}.t") == [(1, "a", None), (2, "b", 0.5), (3, "c", None)]


def test_somebody_faster_is_a_conflict_and_the_whole_is_run_again(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    with pact.transaction() as tx:
        tx.write(people(lake, (1, "a")), f"{db}.t", "create", format="delta")
    with pytest.raises(Conflict), pact.transaction() as slow:
        slow.write(people(lake, (1, "slow")), f"{db}.t", "merge", keys="id")
        with pact.transaction() as fast:
            fast.write(people(lake, (1, "fast")), f"{db}.t", "merge", keys="id")
    assert rows(pact, f"{db}.t") == [(1, "fast")]
    pact.run(lambda tx: tx.write(people(lake, (2, "more")), f"{db}.t"))
    assert rows(pact, f"{db}.t") == [(1, "fast"), (2, "more")]


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_appends_side_by_side_all_come_through_unless_they_have_looked(
    lake: Lake, pact: lp.SparkLake, db: str, isolation: Any
) -> None:
    with pact.transaction() as tx:
        tx.write(people(lake, (1, "a")), f"{db}.t", "create", format="delta")
    with pact.transaction(isolation=isolation) as slow:
        slow.write(people(lake, (2, "slow")), f"{db}.t")
        with pact.transaction() as fast:
            fast.write(people(lake, (3, "fast")), f"{db}.t")
    assert rows(pact, f"{db}.t") == [(1, "a"), (2, "slow"), (3, "fast")]
    assert pact.plain.delta.load(f"{db}.t").version == 2

    # What was computed from the table itself holds only while the table is so, if that is asked for.
    def counting() -> None:
        with pact.transaction(isolation=isolation) as slow:
            slow.write(people(lake, (slow.table(f"{db}.t").count(), "counted")), f"{db}.t")
            with pact.transaction() as fast:
                fast.write(people(lake, (4, "fast")), f"{db}.t")

    if isolation == "serializable":
        with pytest.raises(Conflict):
            counting()
    else:
        counting()
    assert ((3, "counted") in rows(pact, f"{db}.t")) == (isolation == "snapshot")
    with pytest.raises(Conflict), pact.transaction(isolation=isolation) as slow:
        slow.write(people(lake, (5, "exact")), f"{db}.t", exact=True)
        with pact.transaction() as fast:
            fast.write(people(lake, (6, "fast")), f"{db}.t")


def test_what_does_not_fit_is_refused(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.iceberg", 1)
    with pact.transaction() as tx:
        tx.write(people(lake, (1, "a")), f"{db}.t", "create", format="delta")
    with pytest.raises(UnsupportedFormat, match="no Delta table"), pact.transaction() as tx:
        tx.write(people(lake, (1, "a")), f"{db}.iceberg", format="delta")
    with pytest.raises(UnsupportedFormat, match="is a Delta table"), pact.transaction() as tx:
        tx.write(people(lake, (1, "a")), f"{db}.t", format="iceberg")
    with pytest.raises(InvalidRequest, match="same id"), pact.transaction() as tx:
        tx.write(people(lake, (1, "a"), (1, "b")), f"{db}.t", "merge", keys="id")
    assert rows(pact, f"{db}.t") == [(1, "a")]
