"""Imported tables: a log that somebody else has written is not ours to write, until the table is taken over."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from lakepact.catalog.delta_import import DeltaImport, ImportDelta
from lakepact.delta.actions import Action, Add
from lakepact.delta.ports import MirrorState
from lakepact.iceberg.requests import Identifier
from lakepact.mirrors.duckdb_engine import FILE
from tests.conformance.mirrors.lake import Lake

IDS = pa.schema([("id", pa.int64())])


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers)}, IDS)


def tree(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "_delta_log").iterdir())}


@pytest.mark.parametrize("versions", [3, 25])
async def test_a_log_becomes_ours_from_the_take_over_on(lake: Lake, versions: int) -> None:
    mirrors = lake.mirrors()
    folder = lake.folder / "theirs"
    for number in range(versions):
        write_deltalake(str(folder), ids(number), mode="append")
    if versions > 20:
        table = DeltaTable(str(folder))
        table.create_checkpoint()
        for number in range(10):
            (folder / "_delta_log" / f"{number:020}.json").unlink()
    theirs = tree(folder)
    request = ImportDelta(Identifier(("db",), "t"), f"file://{folder}")
    await DeltaImport(lake.catalog.parts).run(lake.call("importDeltaTable"), request)
    await mirrors.turn()
    assert tree(folder) == theirs, "nothing is written while it is theirs"
    status = await lake.status("t")
    assert (status.state, status.mirrored_version) == (MirrorState.ACTIVE, versions - 1)

    taken = ImportDelta(Identifier(("db",), "t"), f"file://{folder}", take_over=True)
    await DeltaImport(lake.catalog.parts).run(lake.call("importDeltaTable"), taken)
    await lake.append(t=ids(100))
    # A process that has seen none of this.
    await lake.mirrors("another").turn()
    assert not lake.failures
    now = tree(folder)
    assert {name: now[name] for name in theirs if name != "_last_checkpoint"} == {
        name: data for name, data in theirs.items() if name != "_last_checkpoint"
    }
    table = DeltaTable(str(folder))
    assert table.version() == versions + 1
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [*range(versions), 100]
    assert lake.manifest()["tables"] == {f"file://{folder}": versions + 1}
    with pytest.raises(Exception, match=r"(?i)feature|writer"):
        write_deltalake(str(folder), ids(-1), mode="append")


@pytest.mark.parametrize("parts", [1, 300])
async def test_timestamps_that_spark_wrote_as_int96_are_the_same_instant(tmp_path: Path, parts: int) -> None:
    """Old files have them, new ones have not, and whoever reads is in a zone of their own."""
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("p", pa.string())])
    noon = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
    async with Lake.opened(tmp_path, None, ("delta_log", "duckdb")) as lake:
        folder = lake.folder / "theirs"
        write_deltalake(str(folder), pa.table({"id": [0], "at": [noon], "p": ["0"]}, schema), partition_by=["p"])
        request = ImportDelta(Identifier(("db",), "t"), f"file://{folder}", take_over=True)
        await DeltaImport(lake.catalog.parts).run(lake.call("importDeltaTable"), request)
        actions: list[Action] = []
        for number in range(1, parts + 1):
            path = folder / f"old-{number}.parquet"
            rows = pa.table({"id": [number], "at": [noon]}, schema.remove(2))
            pq.write_table(rows, path, use_deprecated_int96_timestamps=True)
            actions.append(Add(path.name, {"p": str(number)}, path.stat().st_size, 1))
        await lake.commit(t=actions)
        await lake.mirrors().turn()
        with duckdb.connect(str(lake.folder / FILE), read_only=True) as connection:
            connection.execute("SET TimeZone = 'America/New_York'")
            found = connection.execute('SELECT id, epoch_ms("at"), typeof("at"), p FROM db.t ORDER BY id').fetchall()
        at = int(noon.timestamp() * 1000)
        assert found == [(number, at, "TIMESTAMP WITH TIME ZONE", str(number)) for number in range(parts + 1)]
