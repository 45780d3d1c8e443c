"""Delta tables through the Python client, on a real server: alone, in transactions, and together with Iceberg."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import deltalake
import pytest

import lakepact
from lakepact.client import Conflict, DeltaChange, Lake, NotFound, TableChange, TransactionClosed, Unavailable, Unknown
from lakepact.delta import (
    MultiTableTransaction,
    MultiTableWriter,
    StagedTable,
    TransactionConfig,
    VersionConflict,
)
from lakepact.delta.actions import Add, Remove
from lakepact.delta.errors import LimitExceeded
from tests.support.server import Server, running_server
from tests.support.waiting import wait_until

SCHEMA = {
    "type": "struct",
    "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
}
ICEBERG_SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}


def add(path: str) -> Add:
    return Add(path, {}, 100, 1_767_225_600_000, stats='{"numRecords":1}')


def remove(path: str) -> Remove:
    return Remove(path, 1_767_225_600_000)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder: Path = tmp_path_factory.mktemp("server")
    with running_server(folder) as server, lakepact.connect(server.url) as lake:
        yield lake


@pytest.fixture
def ml(lake: Lake, request: pytest.FixtureRequest) -> str:
    """A namespace of its own."""
    name = f"ml_{abs(hash(request.node.name)):x}"
    lake.namespaces.create(name)
    return name


def paths(lake: Lake, name: str) -> list[str]:
    return sorted(one.path for one in lake.delta.load(name).files)


def test_a_table_lives_through_its_versions(lake: Lake, ml: str) -> None:
    table = lake.delta.create(f"{ml}.labels", SCHEMA, description="what is to be learned")
    assert (table.version, table.name, table.partition_columns) == (0, f"{ml}.labels", ())
    assert lake.delta.commit(DeltaChange(table.name, [add("a.parquet")], expected_version=0)) == 1
    assert lake.delta.commit(DeltaChange(table.name, [add("b.parquet"), remove("a.parquet")], read_version=1)) == 2
    assert paths(lake, table.name) == ["b.parquet"]
    assert [one.path for one in lake.delta.load(table.name, version=1).files] == ["a.parquet"]
    assert [one.version for one in lake.delta.history(table.name)] == [2, 1, 0]
    assert [one.version for one in lake.delta.history(table.name, before=2, limit=1)] == [1]
    lake.delta.rename(table.name, f"{ml}.old")
    assert not lake.delta.exists(table.name)
    assert lake.delta.list(ml) == ((ml, "old"),)
    lake.delta.drop(f"{ml}.old")
    with pytest.raises(NotFound):
        lake.delta.load(f"{ml}.old")


def test_both_formats_are_published_by_one_block(lake: Lake, ml: str) -> None:
    """Features in Iceberg, labels in Delta: nobody sees one without the other."""
    lake.tables.create(f"{ml}.features", ICEBERG_SCHEMA)
    lake.delta.create(f"{ml}.labels", SCHEMA)
    with lake.transaction() as tx:
        tx.tables.create(f"{ml}.more", ICEBERG_SCHEMA)
        tx.delta.commit(DeltaChange(f"{ml}.labels", [add("a.parquet")]))
        tx.delta.commit(DeltaChange(f"{ml}.labels", [add("b.parquet")]))
        assert len(tx.delta.load(f"{ml}.labels").files) == 2
        assert lake.delta.load(f"{ml}.labels").files == ()
        assert not lake.tables.exists(f"{ml}.more")
    assert lake.delta.load(f"{ml}.labels").version == 1
    assert lake.tables.exists(f"{ml}.more")
    with pytest.raises(ValueError, match="a reason"), lake.transaction() as tx:
        tx.delta.commit(DeltaChange(f"{ml}.labels", [remove("a.parquet")]))
        raise ValueError("a reason")
    assert paths(lake, f"{ml}.labels") == ["a.parquet", "b.parquet"]


def test_blocks_that_only_add_do_not_stand_in_each_others_way(lake: Lake, ml: str) -> None:
    name = f"{ml}.labels"
    lake.delta.create(name, SCHEMA)
    with lake.transaction() as slow:
        assert slow.delta.load(name, files=False).version == 0
        slow.delta.commit(DeltaChange(name, [add("slow")]))
        with lake.transaction() as fast:
            fast.delta.commit(DeltaChange(name, [add("fast")]))
    assert (lake.delta.load(name).version, paths(lake, name)) == (2, ["fast", "slow"])
    # What was computed from the rows that were there is another matter.
    with pytest.raises(Conflict) as caught, lake.transaction() as slow:
        slow.delta.commit(DeltaChange(name, [add(f"number-{len(slow.delta.load(name).files)}")]))
        lake.delta.commit(DeltaChange(name, [add("fast-2")]))
    [named] = caught.value.details["version-conflicts"]
    assert (named["expected"], named["actual"]) == (2, 3)
    assert paths(lake, name) == ["fast", "fast-2", "slow"]


def test_both_formats_are_changed_by_one_commit(lake: Lake, ml: str) -> None:
    lake.tables.create(f"{ml}.features", ICEBERG_SCHEMA)
    lake.delta.create(f"{ml}.labels", SCHEMA)
    comment = TableChange(f"{ml}.features", [], [{"action": "set-properties", "updates": {"comment": "new"}}])
    done = lake.commit([comment, DeltaChange(f"{ml}.labels", [add("a.parquet")], expected_version=0)])
    assert len(done.results) == 2
    again = TableChange(f"{ml}.features", [], [{"action": "set-properties", "updates": {"comment": "newer"}}])
    with pytest.raises(Conflict) as refused:
        lake.commit([again, DeltaChange(f"{ml}.labels", [add("b.parquet")], expected_version=0)])
    assert refused.value.tables == ((ml, "labels"),)
    assert lake.tables.load(f"{ml}.features").metadata["properties"]["comment"] == "new"
    assert paths(lake, f"{ml}.labels") == ["a.parquet"]


def test_the_writer_of_many_tables(lake: Lake, ml: str, caplog: pytest.LogCaptureFixture) -> None:
    ids = [lake.delta.create(f"{ml}.{name}", SCHEMA).table_id for name in ("raw", "transformed", "features")]
    writer = lake.delta.writer()
    tx = MultiTableTransaction(TransactionConfig(max_tables=3, max_files_per_table=2))
    for table_id in ids:
        tx.stage_table(table_id, StagedTable(table_id, [add("a.parquet")], expected_version=0))
    assert tx.table_count() == 3
    with caplog.at_level(logging.DEBUG, "lakepact.delta"):
        result = writer.commit(tx)
    assert result.versions == dict.fromkeys(ids, 1)
    # The same transaction again: it has happened once.
    assert writer.commit(tx).versions == result.versions
    assert lake.delta.load(f"{ml}.raw").version == 1
    said = [(record.levelname, record.message) for record in caplog.records if record.name == "lakepact.delta"]
    first = MultiTableWriter.lock_order(ids)[0]
    assert ("INFO", f"Beginning multi-table transaction {tx.transaction_id} with 3 tables") in said
    assert ("DEBUG", f"Locking table {first}") in said
    assert ("DEBUG", f"Table {first} locked at version 0") in said
    assert ("DEBUG", f"Inserting 1 actions for table {first}") in said
    assert ("DEBUG", "Updated versions for 3 tables") in said
    assert ("INFO", f"Multi-table transaction {tx.transaction_id} committed successfully with 3 tables") in said


def test_commit_gives_up_on_a_held_table_in_the_time_that_was_asked_for(tmp_path: Path) -> None:
    """The server would wait for the table for ten minutes, and the test is over long before."""
    with running_server(tmp_path, env={"LAKEPACT_HELD_WAIT_S": "600"}) as server, lakepact.connect(server.url) as lake:
        lake.namespaces.create("ml")
        table = lake.delta.create("ml.held", SCHEMA)
        with pytest.raises(TransactionClosed), lake.transaction() as holder:
            holder.delta.commit(DeltaChange("ml.held", [add("a.parquet")], expected_version=0))
            lake.transactions.prepare(holder.id)
            tx = MultiTableTransaction(TransactionConfig(timeout_secs=3))
            tx.stage_table(table.table_id, StagedTable(table.table_id, [add("b.parquet")], expected_version=0))
            # Unknown if the machine is so busy that the answer comes too late.
            with pytest.raises((Unavailable, Unknown)):
                lake.delta.writer().commit(tx)
            wait_until(lambda: given_up(server), "the server never gave the commit up")
            lake.transactions.abort(holder.id)
        # The table is free, and the server does not commit what its client has given up.
        assert lake.delta.load("ml.held").version == 0
        # The same transaction again settles it: it takes effect once.
        again = MultiTableTransaction(TransactionConfig(timeout_secs=60), transaction_id=tx.transaction_id)
        again.stage_table(table.table_id, tx.tables[table.table_id])
        assert lake.delta.writer().commit(again).versions == {table.table_id: 1}
        assert paths(lake, "ml.held") == ["b.parquet"]


def given_up(server: Server) -> bool:
    """Return whether the server has answered a commit of several tables with 503."""
    commits = [line for line in server.lines() if line.get("operation") == "commitTransaction"]
    return any(line["status"] == 503 for line in commits)


def test_mirrors_follow_by_themselves_and_can_be_waited_for(lake: Lake, ml: str) -> None:
    table = lake.delta.create(f"{ml}.labels", SCHEMA)
    tx = MultiTableTransaction()
    tx.stage_table(table.table_id, StagedTable(table.table_id, [add("a.parquet")], expected_version=0))
    writer = lake.delta.writer()
    mirrored = writer.mirror_all_tables_after_commit(writer.commit(tx))
    assert mirrored == {table.table_id: [("delta_log", True, None)]}
    found = deltalake.DeltaTable(table.location)
    assert (found.version(), found.file_uris()) == (1, [f"{table.location.removeprefix('file://')}/a.parquet"])


def test_a_version_conflict_names_the_table_and_changes_none(lake: Lake, ml: str) -> None:
    ids = [lake.delta.create(f"{ml}.{name}", SCHEMA).table_id for name in ("dimension", "facts")]
    lake.delta.commit(DeltaChange(f"{ml}.facts", [add("a.parquet")]))
    tx = MultiTableTransaction(TransactionConfig(max_files_per_table=1))
    for table_id in ids:
        tx.stage_table(table_id, StagedTable(table_id, [add("b.parquet")], expected_version=0))
    with pytest.raises(VersionConflict) as refused:
        lake.delta.writer().commit(tx)
    assert (refused.value.table_id, refused.value.expected, refused.value.actual) == (ids[1], 0, 1)
    assert lake.delta.load(f"{ml}.dimension").version == 0
    with pytest.raises(LimitExceeded, match="max_files_per_table"):
        MultiTableTransaction(tx.config).stage_table(
            ids[0], StagedTable(ids[0], [add("c.parquet"), add("d.parquet")], expected_version=0)
        )


def test_the_examples_in_the_docs_run(lake: Lake, root: Path) -> None:
    import pyarrow as pa

    lake.namespaces.create("ml")
    features = pa.table({"id": [1]})
    lake.pyiceberg().create_table("ml.features", features.schema)
    blocks = (root / "docs" / "delta.md").read_text().split("## Mirrors")[0].split("```python\n")[1:]
    example = "\n".join(block.split("```", 1)[0] for block in blocks)
    assert "http://127.0.0.1:8181" in example
    exec(compile(example.replace("http://127.0.0.1:8181", lake.uri), "delta.md", "exec"), {"features": features})
    assert lake.delta.load("ml.labels").version == 3
    assert lake.pyiceberg().load_table("ml.features").scan().to_arrow().num_rows == 1
