"""Spark with the stock Iceberg runtime: whatever its users write in SQL works, and the server knows it the same way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from urllib.parse import quote

import pytest
from pyspark.errors import AnalysisException

from tests.support.spark import Lake, path_of, refused

# The first of them starts Spark, and the first of all fetches the runtime.

V3 = "TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"


def snapshots(lake: Lake, table: str) -> list[int]:
    """Their ids, oldest first."""
    return [row[0] for row in lake.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at")]


# --- namespaces, tables, rows ---


def test_a_namespace_has_the_properties_it_was_given(lake: Lake) -> None:
    lake.sql("CREATE NAMESPACE shops WITH DBPROPERTIES ('team' = 'sales', 'tier' = 'gold')")
    lake.sql("ALTER NAMESPACE shops SET DBPROPERTIES ('team' = 'retail')")
    lake.sql("ALTER NAMESPACE shops UNSET DBPROPERTIES ('tier')")
    lake.sql("CREATE NAMESPACE shops.north")

    properties = lake.rest("GET", "namespaces/shops").body["properties"]
    assert properties["team"] == "retail" and "tier" not in properties
    assert ("Properties", "((team,retail))") in lake.sql("DESCRIBE NAMESPACE EXTENDED shops")
    assert lake.sql("SHOW NAMESPACES IN shops") == [("shops.north",)]

    with refused("NamespaceNotEmptyException", "shops is not empty"):
        lake.sql("DROP NAMESPACE shops")
    lake.sql("DROP NAMESPACE shops.north")
    lake.sql("DROP NAMESPACE shops")
    assert lake.rest("GET", "namespaces/shops").status == 404


def test_a_table_is_created_filled_and_overwritten(lake: Lake, db: str) -> None:
    table = f"{db}.sales"
    lake.sql(f"CREATE TABLE {table} (id BIGINT, region STRING) PARTITIONED BY (region) COMMENT 'what was sold'")
    lake.sql(f"INSERT INTO {table} VALUES (1, 'north'), (2, 'south')")
    lake.sql(f"INSERT OVERWRITE {table} VALUES (3, 'west')")

    assert lake.sql(f"SELECT * FROM {table}") == [(3, "west")]
    metadata = lake.metadata(table)
    assert metadata["properties"]["comment"] == "what was sold"
    assert [field["name"] for field in metadata["partition-specs"][0]["fields"]] == ["region"]
    assert [one["summary"]["operation"] for one in metadata["snapshots"]] == ["append", "overwrite"]
    assert metadata["snapshots"][-1]["summary"]["total-records"] == "1"


def test_a_table_made_from_a_query_appears_with_its_rows_and_replacing_it_keeps_its_history(
    lake: Lake, db: str
) -> None:
    table = f"{db}.made"
    lake.sql(f"CREATE TABLE {table} AS SELECT id, 'first' AS what FROM range(3)")
    made = lake.metadata(table)
    assert lake.one(f"SELECT count(*) FROM {table}") == 3
    assert len(made["snapshots"]) == 1

    lake.sql(
        f"CREATE OR REPLACE TABLE {table} PARTITIONED BY (kind) AS "
        f"SELECT id + 10 AS id, 'second' AS what, id % 2 AS kind FROM range(2)"
    )
    lake.sql(f"REPLACE TABLE {table} AS SELECT id + 20 AS id, 'third' AS what FROM range(1)")
    replaced = lake.metadata(table)
    assert lake.sql(f"SELECT * FROM {table}") == [(20, "third")]
    assert replaced["table-uuid"] == made["table-uuid"]
    assert len(replaced["snapshots"]) == 3
    assert lake.ids(f"{table} VERSION AS OF {made['current-snapshot-id']}") == [0, 1, 2]

    lake.sql(f"CREATE OR REPLACE TABLE {db}.fresh AS SELECT 1 AS id")
    assert lake.ids(f"{db}.fresh") == [1]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_ALREADY_EXISTS"):
        lake.sql(f"CREATE TABLE {db}.fresh AS SELECT 2 AS id")
    assert lake.ids(f"{db}.fresh") == [1]


def test_data_frames_replace_the_partitions_they_have_rows_for(lake: Lake, db: str) -> None:
    rows = "SELECT id, id % 2 AS half FROM range({}, {})"
    lake.spark.sql(rows.format(0, 4)).writeTo(f"{db}.t").partitionedBy("half").createOrReplace()
    lake.spark.sql(rows.format(10, 11)).writeTo(f"{db}.t").overwritePartitions()
    lake.spark.sql(rows.format(20, 21)).writeTo(f"{db}.t").append()
    assert lake.ids(f"other.{db}.t") == [1, 3, 10, 20]


def test_a_stream_carries_every_row_over_once(lake: Lake, db: str) -> None:
    lake.fill(f"{db}.source", 1, 2)
    lake.fill(f"{db}.sink")
    checkpoint = str(lake.folder / f"{db}.checkpoint")

    def run() -> None:
        stream = lake.spark.readStream.option("streaming-max-files-per-micro-batch", 1).table(f"{db}.source")
        writer = stream.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.toTable(f"{db}.sink").awaitTermination()

    run()
    lake.sql(f"INSERT INTO {db}.source VALUES (3, 'n3')")
    run()
    assert lake.ids(f"other.{db}.sink") == [1, 2, 3]
    assert len(lake.metadata(f"{db}.sink")["snapshots"]) == 3


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_merge_update_and_delete_change_the_rows_they_name(lake: Lake, db: str, mode: str) -> None:
    table = f"{db}.people"
    modes = ", ".join(f"'write.{verb}.mode' = '{mode}'" for verb in ("merge", "update", "delete"))
    lake.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) TBLPROPERTIES ({modes})")
    lake.sql(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'ann'), (2, 'bob'), (3, 'cid'), (4, 'd')"
    )
    lake.sql(
        f"MERGE INTO {table} t USING (SELECT * FROM VALUES (2, 'bea'), (5, 'eve') AS s(id, name)) s ON t.id = s.id "
        f"WHEN MATCHED THEN UPDATE SET name = s.name WHEN NOT MATCHED THEN INSERT *"
    )
    lake.sql(f"UPDATE {table} SET name = upper(name) WHERE id = 3")
    lake.sql(f"DELETE FROM {table} WHERE id = 1")

    assert lake.sql(f"SELECT * FROM other.{table} ORDER BY id") == [(2, "bea"), (3, "CID"), (4, "d"), (5, "eve")]
    summaries = [one["summary"] for one in lake.metadata(table)["snapshots"]]
    deletes = int(summaries[-1]["total-delete-files"])
    assert len(summaries) == 4 and (deletes > 0) == (mode == "merge-on-read")


def test_names_with_spaces_slashes_dots_and_letters_of_any_alphabet_are_names(lake: Lake, db: str) -> None:
    name = "größe: a/b c.d"
    lake.sql(f"CREATE TABLE {db}.`{name}` AS SELECT 1 AS `some id`")
    assert lake.sql(f"SELECT `some id` FROM other.{db}.`{name}`") == [(1,)]
    assert lake.rest("HEAD", f"namespaces/{db}/tables/{quote(name, safe='')}").status == 204
    lake.sql(f"DROP TABLE {db}.`{name}`")
    assert lake.tables(db) == []


# --- evolution ---


def test_columns_are_added_renamed_widened_moved_and_dropped_and_old_rows_stay_readable(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.sql(f"CREATE TABLE {table} (id INT, name STRING, point STRUCT<x: INT>)")
    lake.sql(f"INSERT INTO {table} VALUES (1, 'a', struct(7))")
    lake.sql(f"ALTER TABLE {table} ADD COLUMNS (age INT COMMENT 'in years', point.y INT)")
    lake.sql(f"ALTER TABLE {table} RENAME COLUMN name TO label")
    lake.sql(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    lake.sql(f"ALTER TABLE {table} ALTER COLUMN age COMMENT 'full years'")
    lake.sql(f"ALTER TABLE {table} ALTER COLUMN age FIRST")
    lake.sql(f"INSERT INTO {table} VALUES (30, 2, 'b', struct(8, 9))")
    assert lake.sql(f"SELECT age, id, label, point.x, point.y FROM {table} ORDER BY id") == [
        (None, 1, "a", 7, None),
        (30, 2, "b", 8, 9),
    ]
    lake.sql(f"ALTER TABLE {table} DROP COLUMN age")
    assert lake.sql(f"SELECT id, label FROM {table} ORDER BY id") == [(1, "a"), (2, "b")]

    metadata = lake.metadata(table)
    current = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    assert [(field["id"], field["name"]) for field in current["fields"]] == [(1, "id"), (2, "label"), (3, "point")]
    assert metadata["last-column-id"] == 6


def test_partition_fields_are_added_replaced_and_dropped_and_every_layout_stays_readable(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.sql(f"CREATE TABLE {table} (id BIGINT, at TIMESTAMP)")

    def insert(number: int) -> None:
        lake.sql(f"INSERT INTO {table} VALUES ({number}, TIMESTAMP '2026-01-0{number} 12:00:00')")

    insert(1)
    lake.sql(f"ALTER TABLE {table} ADD PARTITION FIELD days(at)")
    insert(2)
    lake.sql(f"ALTER TABLE {table} REPLACE PARTITION FIELD at_day WITH hours(at) AS hour")
    insert(3)
    lake.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(4, id)")
    lake.sql(f"ALTER TABLE {table} DROP PARTITION FIELD hour")
    lake.sql(f"ALTER TABLE {table} WRITE ORDERED BY id DESC")
    insert(4)

    assert lake.ids(f"{table} WHERE at > TIMESTAMP '2026-01-01 13:00:00'") == [2, 3, 4]
    assert lake.sql(f"SELECT DISTINCT spec_id FROM {table}.files ORDER BY 1") == [(0,), (1,), (2,), (4,)]
    metadata = lake.metadata(table)
    default = next(one for one in metadata["partition-specs"] if one["spec-id"] == metadata["default-spec-id"])
    assert [field["transform"] for field in default["fields"]] == ["bucket[4]"]
    assert metadata["last-partition-id"] == 1002
    order = next(one for one in metadata["sort-orders"] if one["order-id"] == metadata["default-sort-order-id"])
    assert order["fields"][0]["direction"] == "desc"


def test_properties_are_set_and_unset_and_reserved_ones_are_refused(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table)
    lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('a' = '1', 'b' = '2')")
    lake.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('a')")
    properties = lake.metadata(table)["properties"]
    assert properties["b"] == "2" and "a" not in properties
    with refused("BadRequestException", "reserved"):
        lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('Lakepact.x' = '1')")


# --- branches, audits, time ---


def test_a_branch_takes_writes_that_main_sees_when_it_is_fast_forwarded(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1)
    lake.sql(f"ALTER TABLE {table} CREATE BRANCH work RETAIN 7 DAYS")
    lake.sql(f"ALTER TABLE {table} CREATE TAG before RETAIN 10 DAYS")
    lake.sql(f"INSERT INTO {table}.branch_work VALUES (2, 'n2')")
    lake.sql(f"DELETE FROM {table}.branch_work WHERE id = 1")
    assert lake.ids(table) == [1]
    assert lake.ids(f"{table} VERSION AS OF 'work'") == [2]

    lake.sql(f"CALL lake.system.fast_forward('{table}', 'main', 'work')")
    assert lake.ids(table) == [2]
    assert lake.ids(f"{table} VERSION AS OF 'before'") == [1]
    refs = lake.metadata(table)["refs"]
    assert refs["main"]["snapshot-id"] == refs["work"]["snapshot-id"] != refs["before"]["snapshot-id"]
    assert refs["work"]["max-ref-age-ms"] == 7 * 86_400_000 and refs["before"]["type"] == "tag"

    lake.sql(f"ALTER TABLE {table} REPLACE TAG before AS OF VERSION {refs['main']['snapshot-id']}")
    assert lake.ids(f"{table}.tag_before") == [2]
    lake.sql(f"ALTER TABLE {table} DROP BRANCH work")
    lake.sql(f"ALTER TABLE {table} DROP TAG before")
    assert set(lake.metadata(table)["refs"]) == {"main"}


def test_staged_writes_are_seen_when_they_are_published(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1, options="TBLPROPERTIES ('write.wap.enabled' = 'true')")
    with configured(lake, "spark.wap.id", "audit-1"):
        lake.sql(f"INSERT INTO {table} VALUES (2, 'staged')")
    lake.sql(f"INSERT INTO {table} VALUES (3, 'meanwhile')")
    assert lake.ids(table) == [1, 3]
    staged = [one for one in lake.metadata(table)["snapshots"] if one["summary"].get("wap.id") == "audit-1"]
    assert len(staged) == 1

    lake.sql(f"CALL lake.system.publish_changes('{table}', 'audit-1')")
    assert lake.ids(f"other.{table}") == [1, 2, 3]
    assert lake.metadata(table)["snapshots"][-1]["summary"]["published-wap-id"] == "audit-1"


def test_writes_to_an_audit_branch_are_seen_by_its_auditor_alone_until_they_are_published(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1, options="TBLPROPERTIES ('write.wap.enabled' = 'true')")
    with configured(lake, "spark.wap.branch", "audit"):
        lake.sql(f"INSERT INTO {table} VALUES (2, 'audited')")
        assert lake.ids(table) == [1, 2]
    assert lake.ids(table) == [1]
    lake.sql(f"CALL lake.system.fast_forward('{table}', 'main', 'audit')")
    assert lake.ids(f"other.{table}") == [1, 2]


def test_a_table_is_read_as_it_was_by_snapshot_time_and_tag(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1, 2)
    first, second = lake.sql(f"SELECT snapshot_id, committed_at FROM {table}.snapshots ORDER BY committed_at")
    lake.sql(f"ALTER TABLE {table} CREATE TAG `end of month` AS OF VERSION {first[0]}")
    lake.sql(f"ALTER TABLE {table} ADD COLUMN late INT")
    lake.sql(f"DELETE FROM {table} WHERE id = 2")

    assert lake.ids(f"{table} VERSION AS OF {first[0]}") == [1]
    assert lake.ids(f"{table} VERSION AS OF 'end of month'") == [1]
    assert lake.ids(f"{table} TIMESTAMP AS OF '{first[1]}'") == [1]
    assert lake.ids(f"{table} TIMESTAMP AS OF '{second[1]}'") == [1, 2]
    # As it was means the columns too.
    assert lake.sql(f"SELECT * FROM {table} VERSION AS OF {first[0]}") == [(1, "n1")]


def test_the_current_snapshot_is_moved_back_and_forth(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1, 2, 3)
    first, second, third = snapshots(lake, table)
    lake.sql(f"CALL lake.system.rollback_to_snapshot('{table}', {first})")
    assert lake.ids(table) == [1]
    lake.sql(f"CALL lake.system.cherrypick_snapshot('{table}', {third})")
    assert lake.ids(table) == [1, 3]
    lake.sql(f"CALL lake.system.set_current_snapshot('{table}', {second})")
    assert lake.ids(table) == [1, 2]
    when = lake.one(f"SELECT committed_at FROM {table}.snapshots WHERE snapshot_id = {second}")
    lake.sql(f"CALL lake.system.rollback_to_timestamp('{table}', TIMESTAMP '{when}')")
    assert lake.metadata(table)["current-snapshot-id"] == first
    # Nothing is forgotten by moving.
    assert len(lake.metadata(table)["snapshots"]) == 4


# --- views ---


def test_views_are_created_replaced_renamed_and_dropped(lake: Lake, db: str) -> None:
    lake.fill(f"{db}.t", 1, 2)
    lake.sql(f"CREATE VIEW {db}.v COMMENT 'the big ones' AS SELECT id FROM {db}.t WHERE id > 1")
    assert lake.ids(f"{db}.v") == [2]
    lake.sql(f"CREATE OR REPLACE VIEW {db}.v (id COMMENT 'the id', label) AS SELECT id, name FROM {db}.t")
    assert lake.sql(f"SELECT * FROM {db}.v ORDER BY id") == [(1, "n1"), (2, "n2")]
    lake.sql(f"ALTER VIEW {db}.v SET TBLPROPERTIES ('a' = 'b')")

    body = lake.rest("GET", f"namespaces/{db}/views/v").body["metadata"]
    assert body["properties"]["a"] == "b" and len(body["versions"]) == 2
    assert lake.sql(f"SHOW VIEWS IN {db}") == [(db, "v", False)]
    # A view is not a table.
    assert lake.tables(db) == ["t"]
    assert lake.rest("GET", f"namespaces/{db}/tables/v").status == 404
    with pytest.raises(AnalysisException, match="VIEW_ALREADY_EXISTS"):
        lake.sql(f"CREATE VIEW {db}.t AS SELECT 1 AS id")

    lake.sql(f"ALTER VIEW {db}.v RENAME TO {db}.w")
    assert lake.views(db) == ["w"]
    lake.sql(f"DROP VIEW {db}.w")
    assert lake.views(db) == []


# --- renaming, dropping, registering ---


def test_a_renamed_table_is_the_same_table(lake: Lake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    lake.sql(f"CREATE NAMESPACE {db}_2")
    before = lake.loaded(f"{db}.t")
    lake.sql(f"ALTER TABLE {db}.t RENAME TO {db}_2.u")
    assert lake.loaded(f"{db}_2.u") == before
    assert lake.ids(f"{db}_2.u") == [1]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        lake.ids(f"{db}.t")

    # The name is free again, and what comes under it has nothing to do with the old one.
    lake.fill(f"{db}.t", 5)
    assert (lake.ids(f"{db}.t"), lake.ids(f"{db}_2.u")) == ([5], [1])
    with pytest.raises(AnalysisException, match="already exists"):
        lake.sql(f"ALTER TABLE {db}.t RENAME TO {db}_2.u")
    lake.sql(f"DROP TABLE {db}_2.u")
    lake.sql(f"DROP NAMESPACE {db}_2")


def test_a_dropped_table_leaves_its_files_and_can_be_registered_again_and_a_purged_one_cannot(
    lake: Lake, db: str
) -> None:
    lake.fill(f"{db}.t", 1, 2, options="TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')")
    kept = lake.loaded(f"{db}.t")
    assert kept["metadata-location"].endswith(".gz.metadata.json")
    with refused("AlreadyExistsException", "same uuid"):
        lake.sql(f"CALL lake.system.register_table('{db}.twin', '{kept['metadata-location']}')")
    lake.sql(f"DROP TABLE {db}.t")
    assert lake.tables(db) == []
    lake.sql(f"CALL lake.system.register_table('{db}.again', '{kept['metadata-location']}')")
    assert lake.ids(f"{db}.again") == [1, 2]
    assert lake.loaded(f"{db}.again") == kept

    lake.sql(f"DROP TABLE {db}.again PURGE")
    assert not path_of(kept["metadata-location"]).exists()
    assert not list(path_of(kept["metadata"]["location"]).rglob("*.parquet"))
    with refused("NotFoundException", "not in the warehouse"):
        lake.sql(f"CALL lake.system.register_table('{db}.again', '{kept['metadata-location']}')")


def test_files_that_are_there_already_become_part_of_a_table(lake: Lake, db: str) -> None:
    source = lake.folder / db
    lake.spark.range(3).selectExpr("id", "cast(id AS string) AS name").write.parquet(str(source))
    lake.fill(f"{db}.t", 7)
    lake.sql(f"CALL lake.system.add_files('{db}.t', '`parquet`.`{source}`')")
    assert lake.ids(f"other.{db}.t") == [0, 1, 2, 7]


def test_no_table_is_made_outside_the_warehouse_or_where_another_one_is(lake: Lake, db: str) -> None:
    with refused("BadRequestException", "not inside warehouse"):
        lake.sql(f"CREATE TABLE {db}.t (id INT) LOCATION '{(lake.folder / 'elsewhere').as_uri()}'")
    lake.fill(f"{db}.t", 1)
    with refused("BadRequestException", "overlaps file:"):
        lake.sql(f"CREATE TABLE {db}.u (id INT) LOCATION '{lake.metadata(f'{db}.t')['location']}'")
    assert lake.tables(db) == ["t"]


# --- maintenance ---


def test_maintenance_leaves_the_rows_and_takes_what_is_no_longer_needed(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1, 2, 3, options="TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id + 10, 'many' FROM range(4)")
    lake.sql(f"DELETE FROM {table} WHERE id = 11")
    rows = [1, 2, 3, 10, 12, 13]
    old = {path_of(file) for (file,) in lake.sql(f"SELECT file_path FROM {table}.all_data_files")}

    options = "map('min-input-files', '2', 'delete-file-threshold', '1')"
    [rewritten] = lake.sql(f"CALL lake.system.rewrite_data_files(table => '{table}', options => {options})")
    assert rewritten[:2] == (4, 1)
    lake.sql(f"CALL lake.system.rewrite_manifests('{table}')")
    lake.sql(f"CALL lake.system.compute_table_stats('{table}')")
    assert lake.ids(table) == rows
    assert all(file.exists() for file in old)
    assert len(lake.metadata(table)["statistics"]) == 1

    later = "TIMESTAMP '2100-01-01 00:00:00'"
    lake.sql(f"CALL lake.system.expire_snapshots(table => '{table}', older_than => {later}, retain_last => 1)")
    assert lake.ids(f"other.{table}") == rows
    assert len(lake.metadata(table)["snapshots"]) == 1
    assert not any(file.exists() for file in old)


def test_only_files_that_nobody_knows_are_taken_for_orphans(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1, 2)
    lake.sql(f"DELETE FROM {table} WHERE id = 1")
    folder = path_of(lake.metadata(table)["location"])
    stray = folder / "data" / "stray.parquet"
    stray.write_bytes(b"left by a writer that died")
    for file in folder.rglob("*"):
        # Spark spares what is younger than three days.
        os.utime(file, (0, 0))
    [[found]] = lake.sql(f"CALL lake.system.remove_orphan_files(table => '{table}', dry_run => true)")
    assert path_of(found) == stray
    lake.sql(f"CALL lake.system.remove_orphan_files('{table}')")
    assert not stray.exists()
    assert lake.scan_everything() == {table: 1}


def test_the_metadata_tables_say_what_the_server_says(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.sql(f"CREATE TABLE {table} (id BIGINT, day DATE) PARTITIONED BY (day)")
    lake.sql(f"INSERT INTO {table} VALUES (1, DATE '2026-01-01'), (2, DATE '2026-01-02')")
    lake.sql(f"DELETE FROM {table} WHERE day = DATE '2026-01-01'")
    lake.sql(f"ALTER TABLE {table} CREATE TAG done")
    loaded = lake.loaded(table)
    metadata = loaded["metadata"]

    known = [(one["snapshot-id"], one["summary"]["operation"]) for one in metadata["snapshots"]]
    assert lake.sql(f"SELECT snapshot_id, operation FROM {table}.snapshots ORDER BY committed_at") == known
    history = lake.sql(f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at")
    assert history == [(one["snapshot-id"],) for one in metadata["snapshot-log"]]
    assert set(lake.sql(f"SELECT name, type, snapshot_id FROM {table}.refs")) == {
        (name, ref["type"].upper(), ref["snapshot-id"]) for name, ref in metadata["refs"].items()
    }
    assert lake.sql(f"SELECT partition.day, record_count FROM {table}.partitions") == [(date(2026, 1, 2), 1)]
    [(file, count)] = lake.sql(f"SELECT file_path, record_count FROM {table}.files")
    assert path_of(file).is_file() and count == 1
    log = [file for (file,) in lake.sql(f"SELECT file FROM {table}.metadata_log_entries ORDER BY timestamp")]
    assert log == [*(one["metadata-file"] for one in metadata["metadata-log"]), loaded["metadata-location"]]
    assert all(path_of(file).is_file() for file in log)


# --- version 3 ---


def test_a_table_of_version_3_has_row_ids_deletion_vectors_and_variants(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.sql(f"CREATE TABLE {table} (id INT, v VARIANT) {V3}")
    values = ", ".join(f"""({number}, parse_json('{{"a": {number}}}'))""" for number in (1, 2, 3))
    lake.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    lake.sql(f"DELETE FROM {table} WHERE id = 2")
    lake.sql(f"INSERT INTO {table} SELECT 4, parse_json('[4]')")

    shown = lake.sql(f"SELECT id, _row_id, variant_get(v, '$.a', 'int') FROM {table} ORDER BY id")
    assert shown == [(1, 0, 1), (3, 2, 3), (4, 3, None)]
    assert lake.sql(f"SELECT file_format FROM {table}.delete_files") == [("PUFFIN",)]
    metadata = lake.metadata(table)
    assert metadata["format-version"] == 3 and metadata["next-row-id"] == 4
    assert [one["first-row-id"] for one in metadata["snapshots"]] == [0, 3, 3]


def test_a_table_is_upgraded_to_version_3_and_goes_on(lake: Lake, db: str) -> None:
    table = f"{db}.t"
    lake.fill(table, 1)
    assert lake.metadata(table)["format-version"] == 2
    lake.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '3')")
    lake.sql(f"INSERT INTO {table} VALUES (2, 'n2')")
    assert lake.ids(f"other.{table}") == [1, 2]
    assert lake.metadata(table)["format-version"] == 3


def test_an_unchanged_table_is_not_sent_twice(lake: Lake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    since = lake.log_position()
    lake.ids(f"other.{db}.t")
    lake.ids(f"other.{db}.t")
    assert 304 in [line["status"] for line in lake.requests(since) if line["operation"] == "loadTable"]


@contextmanager
def configured(lake: Lake, name: str, value: str) -> Iterator[None]:
    lake.spark.conf.set(name, value)
    try:
        yield
    finally:
        lake.spark.conf.unset(name)
