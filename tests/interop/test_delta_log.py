"""Logs and checkpoints of ours, read by delta-rs and DuckDB, which cannot write them; logs of delta-rs, read by us."""

from __future__ import annotations

import datetime as dt
import importlib.util
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from deltalake.exceptions import CommitFailedError

from lakepact.delta import schema as schemas
from lakepact.delta.actions import Add, Metadata
from lakepact.delta.errors import UnsupportedFeature
from lakepact.delta.log_reader import Base, Version, read_log, read_state
from lakepact.delta.partitions import typed
from lakepact.delta.protocol import MANAGED_CONFIGURATION, managed_protocol, take_over
from lakepact.delta.schema import Field, Primitive, Struct
from lakepact.delta.state import Replay, TableState
from tests.interop.delta_log_tables import (
    LATER_MS,
    START_MS,
    OurTable,
    a_delta_rs_table,
    listed,
    on_disk,
    our_table,
    plain_rows,
    taken_over,
)


def a_duckdb() -> duckdb.DuckDBPyConnection:
    spec = importlib.util.find_spec("duckdb_extension_delta")
    assert spec is not None and spec.origin is not None
    extension = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def duckdb_rows(folder: Path, where: str = "true", version: int | None = None) -> list[dict[str, Any]]:
    option = "" if version is None else f", version => {version}"
    table = a_duckdb().execute(f"SELECT * FROM delta_scan('{folder}'{option}) WHERE {where}").to_arrow_table()
    return plain_rows(table.to_pylist())


def delta_rs_rows(folder: Path, where: str = "true") -> list[dict[str, Any]]:
    query = QueryBuilder().register("t", DeltaTable(folder))
    return plain_rows(pa.table(query.execute(f"SELECT * FROM t WHERE {where}").read_all()).to_pylist())


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> OurTable:
    return our_table(tmp_path_factory.mktemp("ours") / "table")


def test_delta_rs_reads_our_log(ours: OurTable) -> None:
    table = DeltaTable(ours.folder)
    assert table.version() == 12
    assert plain_rows(table.to_pyarrow_table().to_pylist()) == plain_rows(ours.live_rows())
    assert delta_rs_rows(ours.folder) == plain_rows(ours.live_rows())
    assert table.transaction_version("loader") == 12
    assert [(one["version"], one["inCommitTimestamp"]) for one in table.history(2)] == [
        (12, START_MS + 12),
        (11, START_MS + 11),
    ]


def test_duckdb_reads_our_log(ours: OurTable) -> None:
    assert duckdb_rows(ours.folder) == plain_rows(ours.live_rows())


def test_every_row_is_found_by_every_value_it_has(ours: OurTable) -> None:
    """Statistics that promise too much would hide a file here."""
    connection = a_duckdb()
    for row in ours.live_rows():
        for name in ("id", "small", "text", "amount", "flag", "raw", "day", "at", "p", "q", "later"):
            asked = f'"{name}" IS NULL' if row[name] is None else f'"{name}" = ?'
            found = connection.execute(
                f"SELECT id FROM delta_scan('{ours.folder}') WHERE {asked}", [] if row[name] is None else [row[name]]
            ).fetchall()
            assert (row["id"],) in found, (name, row)
    nan = [row["id"] for row in ours.live_rows() if row["id"] % 4 == 3]
    assert [row["id"] for row in duckdb_rows(ours.folder, "ratio > 1000")] == nan
    assert [row["id"] for row in delta_rs_rows(ours.folder, "ratio > 1000")] == nan
    for row in ours.live_rows():
        at = row["at"].isoformat()
        assert [one["id"] for one in delta_rs_rows(ours.folder, f"\"at\" = TIMESTAMP '{at}'")] == [row["id"]]
        if row["text"] is not None:
            assert [one["id"] for one in delta_rs_rows(ours.folder, f"text = '{row['text']}'")] == [row["id"]]


def test_a_checkpoint_of_ours_is_enough(tmp_path: Path) -> None:
    table = our_table(tmp_path / "table")
    for version in range(10):
        (table.log / f"{version:020d}.json").unlink()
    assert plain_rows(DeltaTable(table.folder).to_pyarrow_table().to_pylist()) == plain_rows(table.live_rows())
    assert duckdb_rows(table.folder) == plain_rows(table.live_rows())
    assert DeltaTable(table.folder).transaction_version("loader") == 12
    steps = list(read_log(listed(table.log), lambda name: (table.log / name).read_bytes()))
    assert isinstance(steps[0], Base) and steps[0].dropped == ()
    assert steps[0].timestamp_ms == START_MS + 10


def test_foreign_writers_are_refused(ours: OurTable) -> None:
    table = DeltaTable(ours.folder)
    row = table.to_pyarrow_table().slice(0, 1)
    before = sorted(path.name for path in ours.log.iterdir())
    with pytest.raises(CommitFailedError, match="x-lakepact-managed"):
        write_deltalake(ours.folder, row, mode="append")
    with pytest.raises(CommitFailedError, match="x-lakepact-managed"):
        table.delete("id = 2")
    connection = a_duckdb()
    connection.execute(f"ATTACH '{ours.folder}' AS t (TYPE delta)")
    with pytest.raises(duckdb.Error, match="x-lakepact-managed"):
        connection.execute("INSERT INTO t SELECT * FROM t LIMIT 1")
    assert sorted(path.name for path in ours.log.iterdir()) == before


def test_our_log_is_read_by_ourselves_version_by_version(ours: OurTable) -> None:
    steps = list(read_log(listed(ours.log), lambda name: (ours.log / name).read_bytes()))
    assert [step.timestamp_ms for step in steps] == [START_MS + version for version in range(13)]
    replayed = Replay()
    for step in steps:
        assert isinstance(step, Version)
        replayed.apply(step.number, step.actions)
    assert replayed.state() == ours.replay.state()


def test_a_table_with_times_without_a_zone_is_read(tmp_path: Path) -> None:
    schema = Struct((Field("id", Primitive("long")), Field("n", Primitive("timestamp_ntz"))))
    table = OurTable(tmp_path / "ntz")
    metadata = Metadata("m", schemas.dump(schema), (), dict(MANAGED_CONFIGURATION))
    table.commit(managed_protocol(schema), metadata)
    moment = dt.datetime(2026, 1, 31, 12, 0, 0, 1500)  # noqa: DTZ001 - that is the point
    table.commit(table.file(1, schema, [{"id": 1, "n": moment}], {}))
    assert DeltaTable(table.folder).to_pyarrow_table().to_pylist() == [{"id": 1, "n": moment}]
    found = a_duckdb().execute(f"SELECT * FROM delta_scan('{table.folder}') WHERE n = ?", [moment]).fetchall()
    assert found == [(1, moment)]


# --- logs of delta-rs ---


def replayed(log: Path) -> list[TableState]:
    """The state at every version that can be made."""
    states: list[TableState] = []
    folded = Replay()
    for step in read_log(listed(log), lambda name: (log / name).read_bytes()):
        if isinstance(step, Base):
            folded = Replay(step.state)
        else:
            folded.apply(step.number, step.actions)
        states.append(folded.state())
    return states


def test_a_log_of_delta_rs_is_read_as_delta_rs_reads_it(tmp_path: Path) -> None:
    folder = a_delta_rs_table(tmp_path / "table")
    for state in replayed(folder / "_delta_log"):
        table = DeltaTable(folder, version=state.version)
        same_files(state, table, folder)
        assert state.metadata.id == str(table.metadata().id)
        assert schemas.parse(state.metadata.schema_string) == schemas.parse(table.schema().to_json())
        assert list(state.metadata.partition_columns) == table.metadata().partition_columns
        assert state.protocol.min_reader_version == table.protocol().min_reader_version


def same_files(state: TableState, table: DeltaTable, folder: Path) -> None:
    said = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    assert sorted(unquote(one["path"]) for one in said) == sorted(unquote(path) for path, _ in state.files)
    by_path = {unquote(path): add for (path, _), add in state.files.items()}
    schema = schemas.parse(state.metadata.schema_string)
    for one in said:
        add = by_path[unquote(one["path"])]
        assert add.size == one["size_bytes"] == on_disk(folder, add.path).stat().st_size
        assert orjson.loads(add.stats or "{}")["numRecords"] == one["num_records"]
        for name, value in one["partition"].items():
            column = schema.find(name)
            assert column is not None and typed(add.partition_values[name], column.type) == value
        assert pq.read_metadata(on_disk(folder, add.path)).num_rows == one["num_records"]


def test_a_log_of_delta_rs_whose_beginning_is_gone(tmp_path: Path) -> None:
    folder = a_delta_rs_table(tmp_path / "table")
    log = folder / "_delta_log"
    whole = read_state(listed(log), lambda name: (log / name).read_bytes())
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    states = replayed(log)
    assert states[0].version == 3
    assert states[-1].files == whole.files and states[-1].metadata == whole.metadata
    same_files(states[-1], DeltaTable(folder), folder)


def test_a_table_of_delta_rs_that_is_taken_over_is_read_by_all_and_written_by_none_but_us(tmp_path: Path) -> None:
    folder = a_delta_rs_table(tmp_path / "table")
    log = folder / "_delta_log"
    before = plain_rows(DeltaTable(folder).to_pyarrow_table().to_pylist())
    taken_over(folder)
    assert plain_rows(DeltaTable(folder).to_pyarrow_table().to_pylist()) == before
    assert duckdb_rows(folder) == before
    with pytest.raises(CommitFailedError, match="x-lakepact-managed"):
        DeltaTable(folder).delete("id = 2")
    last = list(read_log(listed(log), lambda name: (log / name).read_bytes()))[-1]
    assert last.timestamp_ms == LATER_MS


def test_what_delta_rs_can_and_we_cannot_is_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "mapped"
    write_deltalake(folder, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
    log = folder / "_delta_log"
    state = read_state(listed(log), lambda name: (log / name).read_bytes())
    assert [type(one) for one in state.files.values()] == [Add]
    with pytest.raises(UnsupportedFeature, match="'changeDataFeed' is used"):
        take_over(state.protocol, state.metadata, version=1, timestamp_ms=1)
