"""Mirrors of warehouses in object stores: the same files, and engines that read them there."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakepact.delta.actions import Add
from lakepact.delta.ports import MirrorState
from lakepact.mirrors.cuts import LATEST
from lakepact.mirrors.duckdb_engine import FILE
from lakepact.mirrors.duckdb_file import load_extension
from tests.conformance.mirrors.lake import Lake
from tests.support.stores import Place, place_for

IDS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture(params=["s3-moto", "s3-strict", "gcs-strict", "azurite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_for(request.param, tmp_path) as place:
        yield place


@pytest.fixture
def lake(place: Place, tmp_path: Path) -> AbstractAsyncContextManager[Lake]:
    return _opened(place, tmp_path)


@asynccontextmanager
async def _opened(place: Place, folder: Path) -> AsyncIterator[Lake]:
    engines = ("delta_log",) if place.kind == "azurite" else ("delta_log", "duckdb")
    async with Lake.opened(folder, None, engines, url=place.url, options=place.options) as lake:
        yield lake


async def fill(lake: Lake, versions: int) -> str:
    await lake.create("a", IDS)
    location = await lake.location("a")
    for number in range(1, versions + 1):
        sink = io.BytesIO()
        pq.write_table(pa.table({"id": [number], "v": [f"v{number}"]}, IDS), sink)
        name = f"{location.removeprefix(lake.url)[1:]}/{number}.parquet"
        assert await lake.blobs.put(name, sink.getvalue())
        await lake.commit(a=[Add(f"{number}.parquet", {}, len(sink.getvalue()), number)])
    return location


async def test_logs_cuts_and_checkpoints_are_there(lake: Lake) -> None:
    lake.watch.mirrors = lake.mirrors()
    location = await fill(lake, 11)
    names = [entry.name.rpartition("/")[2] for entry in await lake.blobs.list(location.removeprefix(lake.url)[1:])]
    assert [name for name in names if name.endswith(".json")] == [f"{version:020}.json" for version in range(12)]
    assert f"{10:020}.checkpoint.parquet" in names and "_last_checkpoint" in names
    latest = await lake.blobs.get(LATEST)
    assert latest is not None
    assert orjson.loads(latest)["tables"] == {location: 11}
    assert not lake.failures


@pytest.mark.parametrize("place", ["s3-moto"], indirect=True)
async def test_a_log_is_read_where_it_is(lake: Lake, place: Place) -> None:
    location = await fill(lake, 11)
    await lake.mirrors().turn()
    options: dict[str, Any] = {
        "AWS_ENDPOINT_URL": place.options["endpoint"],
        "AWS_ACCESS_KEY_ID": "stub",
        "AWS_SECRET_ACCESS_KEY": "stub",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    table = DeltaTable(location, storage_options=options)
    assert (table.version(), sorted(table.to_pyarrow_table()["id"].to_pylist())) == (11, list(range(1, 12)))


@pytest.mark.parametrize("place", ["s3-moto"], indirect=True)
async def test_a_view_is_read_where_it_is(lake: Lake, place: Place, tmp_path: Path) -> None:
    lake.watch.mirrors = lake.mirrors()
    await fill(lake, 3)
    data = await lake.blobs.get(FILE)
    assert data is not None
    (tmp_path / "copy.duckdb").write_bytes(data)
    with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as connection:
        load_extension(connection, "httpfs")
        endpoint = place.options["endpoint"].partition("://")[2]
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID 'stub', SECRET 'stub', REGION 'us-east-1', ENDPOINT '{endpoint}', "
            f"URL_STYLE 'path', USE_SSL false)"
        )
        assert connection.execute("SELECT id FROM db.a ORDER BY id").fetchall() == [(1,), (2,), (3,)]


@pytest.mark.parametrize("place", ["azurite"], indirect=True)
async def test_what_duckdb_needs_and_has_not_is_said(lake: Lake) -> None:
    """Its extension for Azure comes in no wheel: here it is not installed."""
    await lake.create("a", IDS, mirrors=("delta_log", "duckdb"))
    await lake.mirrors().turn()
    status = await lake.status("a", "duckdb")
    assert status.state is MirrorState.RETRYING
    assert status.last_error is not None and "INSTALL azure" in status.last_error
    assert (await lake.status("a", "delta_log")).mirrored_version == 0
