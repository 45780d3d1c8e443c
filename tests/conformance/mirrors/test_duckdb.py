"""The DuckDB file: every table of both formats, right to the row, of one cut, replaced whole."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakepact.catalog.pointers import Kind
from lakepact.delta.actions import Add
from lakepact.delta.paths import encode_path
from lakepact.delta.ports import MirrorState
from lakepact.errors import StoreUnavailable
from lakepact.iceberg.requests import Identifier
from lakepact.mirrors.duckdb_engine import FILE
from tests.conformance.mirrors.lake import Lake

IDS = pa.schema([("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> AbstractAsyncContextManager[Lake]:
    return Lake.opened(tmp_path, None, ("delta_log", "duckdb"))


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers), "v": [f"v{number}" for number in numbers]}, IDS)


@contextmanager
def opened(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(lake.folder / FILE), read_only=True) as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        yield connection


def rows(lake: Lake, query: str) -> list[tuple[Any, ...]]:
    with opened(lake) as connection:
        return connection.execute(query).fetchall()


async def test_a_view_shows_its_table_and_follows_it(lake: Lake) -> None:
    lake.watch.mirrors = lake.mirrors()
    await lake.create("a", IDS)
    assert rows(lake, "SELECT * FROM db.a") == []
    await lake.append(a=ids(1, 2))
    assert rows(lake, "SELECT * FROM db.a ORDER BY id") == [(1, "v1"), (2, "v2")]
    await lake.commit(a=[*await lake.remove_all("a"), *await lake.files("a", ids(3))])
    assert rows(lake, "SELECT id FROM db.a") == [(3,)]
    assert rows(lake, "SELECT table_name, version, reason FROM _lakepact.tables") == [("a", 2, None)]
    status = await lake.status("a", "duckdb")
    assert (status.mirrored_version, status.state) == (2, MirrorState.ACTIVE)
    assert [engine for engine, _ in lake.lags].count("duckdb") == 3


async def test_every_type_comes_out_as_it_is(lake: Lake) -> None:
    schema = pa.schema(
        [
            ("b", pa.bool_()),
            ("tiny", pa.int8()),
            ("small", pa.int16()),
            ("i", pa.int32()),
            ("l", pa.int64()),
            ("f", pa.float32()),
            ("d", pa.float64()),
            ("n", pa.decimal128(12, 3)),
            ("s", pa.string()),
            ("raw", pa.binary()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("many", pa.list_(pa.int64())),
            ("by", pa.map_(pa.string(), pa.int64())),
            ("inside", pa.struct([("x", pa.int64()), ("y y", pa.string())])),
        ]
    )
    values = [
        True,
        -1,
        300,
        2**31 - 1,
        2**62,
        0.5,
        0.1,
        Decimal("123.456"),
        'o\'clock "é"',
        b"\x00\xff",
        dt.date(2026, 1, 31),
        dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC).replace(tzinfo=None),
        [1, 2],
        {"k": 7},
        {"x": 1, "y y": "z"},
    ]
    with pytest.raises(Exception, match="y y"):
        await lake.create("typed", schema)
    schema = schema.set(15, pa.field("inside", pa.struct([("x", pa.int64()), ("y", pa.string())])))
    values[15] = {"x": 1, "y": "z"}
    await lake.create("typed", schema)
    await lake.append(
        typed=pa.table(
            {
                name: pa.array([value], schema.field(name).type)
                for name, value in zip(schema.names, values, strict=True)
            },
            schema,
        )
    )
    await lake.append(typed=pa.table({name: pa.nulls(1, schema.field(name).type) for name in schema.names}, schema))
    await lake.mirrors().turn()
    [found] = rows(lake, "SELECT * FROM db.typed WHERE b")
    assert found[11].astimezone(dt.UTC) == values[11]
    assert [*found[:11], *found[12:]] == [*values[:11], *values[12:]]
    assert rows(lake, "SELECT * FROM db.typed WHERE b IS NULL") == [(None,) * 16]


async def test_old_files_of_an_evolved_table_have_nulls_of_the_right_type(lake: Lake) -> None:
    lake.watch.mirrors = lake.mirrors()
    await lake.create("a", IDS)
    await lake.append(a=ids(1))
    wider = IDS.append(pa.field("w", pa.decimal128(10, 2))).append(pa.field("in", pa.struct([("x", pa.int64())])))
    await lake.commit(a=await lake.evolve("a", wider))
    new = pa.table({"id": [2], "v": ["v2"], "w": [Decimal("1.25")], "in": [{"x": 5}]}, wider)
    await lake.append(a=new)
    assert rows(lake, "SELECT * FROM db.a ORDER BY id") == [
        (1, "v1", None, None),
        (2, "v2", Decimal("1.25"), {"x": 5}),
    ]
    assert rows(lake, "SELECT typeof(w), sum(w) OVER () FROM db.a LIMIT 1") == [("DECIMAL(10,2)", Decimal("1.25"))]
    deeper = wider.set(3, pa.field("in", pa.struct([("x", pa.int64()), ("y", pa.string())])))
    await lake.commit(a=await lake.evolve("a", deeper))
    await lake.append(a=pa.table({"id": [3], "v": ["v3"], "w": [None], "in": [{"x": 6, "y": "six"}]}, deeper))
    assert rows(lake, 'SELECT id, "in".x, "in".y FROM db.a ORDER BY id') == [
        (1, None, None),
        (2, 5, None),
        (3, 6, "six"),
    ]


PARTITIONED = pa.schema(
    [
        ("day", pa.date32()),
        ("id", pa.int64()),
        ("kind", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("n", pa.int32()),
        ("ok", pa.bool_()),
    ]
)


@pytest.mark.parametrize("partitions", [3, 300])
async def test_partition_columns_are_right_and_in_their_place(lake: Lake, partitions: int) -> None:
    await lake.create("p", PARTITIONED, ["day", "kind", "at", "n", "ok"])
    actions = []
    for number in range(partitions):
        values = {
            "day": "2026-01-31",
            "kind": f"a:b/'{number}'%",
            "at": "2026-01-31 12:00:00" if number else "2026-01-31T12:00:00.000000Z",
            "n": str(number),
            "ok": "true",
        }
        actions += await lake.files("p", pa.table({"id": pa.array([number], pa.int64())}), values)
    nothing = dict.fromkeys(("day", "kind", "at", "n", "ok"), None)
    actions += await lake.files("p", pa.table({"id": pa.array([-1], pa.int64())}), nothing)
    await lake.commit(p=actions)
    await lake.mirrors().turn()
    with opened(lake) as connection:
        assert [one[0] for one in connection.execute("DESCRIBE db.p").fetchall()] == PARTITIONED.names
    found = rows(lake, 'SELECT day, id, kind, epoch_ms("at"), n, ok FROM db.p ORDER BY id')
    at = int(dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC).timestamp() * 1000)
    assert found[0] == (None, -1, None, None, None, None)
    assert found[1:] == [
        (dt.date(2026, 1, 31), number, f"a:b/'{number}'%", at, number, True) for number in range(partitions)
    ]
    assert rows(lake, "SELECT id FROM db.p WHERE n = 2") == [(2,)]


async def test_odd_names_of_files_tables_and_columns(lake: Lake) -> None:
    odd = pa.schema(
        [("filename", pa.string()), ("file_row_number", pa.int64()), ("Select", pa.int64()), ("é'\"", pa.int64())]
    )
    await lake.create("we\"ird 't'", odd)
    path = await lake.place("we\"ird 't'") / "a [1]*?%20'x'.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table([["x"], [7], [1], [2]], schema=odd), path)
    await lake.commit(**{"we\"ird 't'": [Add(encode_path(path.name), {}, path.stat().st_size, 1)]})
    await lake.mirrors().turn()
    assert rows(lake, 'SELECT * FROM db."we""ird \'t\'"') == [("x", 7, 1, 2)]


async def test_renames_and_drops_are_followed(lake: Lake) -> None:
    mirrors = lake.mirrors()
    lake.watch.mirrors = mirrors
    for name in ("a", "b", "c"):
        await lake.create(name, IDS)
    await lake.append(a=ids(1))
    await lake.catalog.rename(lake.call("renameTable"), Identifier(("db",), "a"), Identifier(("db",), "z"), Kind.DELTA)
    await lake.catalog.drop(lake.call("dropTable"), Identifier(("db",), "b"), Kind.DELTA)
    await lake.tasks.drain()
    await mirrors.turn()
    with opened(lake) as connection:
        assert [
            one[0]
            for one in connection.execute(
                "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
            ).fetchall()
        ] == ["c", "z"]
    assert rows(lake, "SELECT id FROM db.z") == [(1,)]


async def test_names_that_duckdb_cannot_tell_apart_are_told(lake: Lake) -> None:
    await lake.create("Same", IDS)
    await lake.create("same", IDS)
    await lake.mirrors().turn()
    found = rows(lake, "SELECT table_name, reason IS NULL FROM _lakepact.tables ORDER BY 1")
    assert found == [("Same", True), ("same", False)]
    status = await lake.status("same", "duckdb")
    assert status.state is MirrorState.RETRYING and status.last_error is not None and "case" in status.last_error
    assert (await lake.status("Same", "duckdb")).mirrored_version == 0


async def test_tables_choose_their_mirrors(lake: Lake) -> None:
    mirrors = lake.mirrors()
    await lake.create("both", IDS)
    log = await lake.create("log", IDS, mirrors=("delta_log",))
    await lake.create("duck", IDS, mirrors=("duckdb",))
    await lake.create("none", IDS, mirrors=())
    await mirrors.turn()

    async def logs() -> list[str]:
        return [name for name in ("both", "log", "duck", "none") if (await lake.place(name) / "_delta_log").exists()]

    assert await logs() == ["both", "log"]
    assert rows(lake, "SELECT table_name FROM _lakepact.tables ORDER BY 1") == [("both",), ("duck",)]
    assert set(lake.manifest()["tables"]) == {await lake.location("both"), await lake.location("log")}
    await lake.rows.set_mirrors(log, ["duckdb"])
    await lake.append(log=ids(1))
    await mirrors.turn()
    assert rows(lake, "SELECT table_name FROM _lakepact.tables ORDER BY 1") == [("both",), ("duck",), ("log",)]
    assert await lake.log("log") == ["00000000000000000000.json"], "the log has stopped"


async def test_an_engine_that_fails_leaves_the_other_in_step(lake: Lake) -> None:
    mirrors = lake.mirrors()
    lake.watch.mirrors = mirrors
    await lake.create("a", IDS)
    lake.blobs.fail = lambda name: StoreUnavailable("full") if name == FILE else None
    await lake.append(a=ids(1))
    assert (await lake.status("a", "delta_log")).mirrored_version == 1
    duck = await lake.status("a", "duckdb")
    assert (duck.mirrored_version, duck.state, duck.last_error) == (0, MirrorState.RETRYING, "full")
    assert rows(lake, "SELECT * FROM db.a") == []
    lake.blobs.fail = lambda name: StoreUnavailable("full") if "_delta_log" in name else None
    lake.clock.advance(2)
    await lake.append(a=ids(2))
    assert (await lake.status("a", "duckdb")).mirrored_version == 2
    assert (await lake.status("a", "delta_log")).mirrored_version == 1
    lake.blobs.fail = lambda name: None
    lake.clock.advance(2)
    await mirrors.turn()
    assert (await lake.status("a", "delta_log")).mirrored_version == 2


async def test_a_table_whose_files_are_gone_is_left_out_and_told(lake: Lake) -> None:
    mirrors = lake.mirrors()
    await lake.create("a", IDS)
    await lake.create("b", IDS)
    await lake.commit(a=[Add("gone.parquet", {}, 10, 1)], b=await lake.files("b", ids(1)))
    await mirrors.turn()
    assert rows(lake, "SELECT id FROM db.b") == [(1,)]
    [(reason,)] = rows(lake, "SELECT reason FROM _lakepact.tables WHERE table_name = 'a'")
    assert "gone.parquet" in reason
    status = await lake.status("a", "duckdb")
    assert status.state is MirrorState.RETRYING and status.last_error == reason
    await lake.commit(a=[*await lake.remove_all("a"), *await lake.files("a", ids(5))])
    lake.clock.advance(2)
    await mirrors.turn()
    assert rows(lake, "SELECT id FROM db.a") == [(5,)]


async def test_a_file_that_is_not_ours_to_understand_is_made_anew(lake: Lake) -> None:
    await lake.create("a", IDS)
    await lake.mirrors().turn()
    (lake.folder / FILE).write_bytes(b"not a database")
    await lake.append(a=ids(1))
    await lake.mirrors("new").turn()
    assert rows(lake, "SELECT id FROM db.a") == [(1,)]


async def test_the_file_does_not_grow_with_the_commits(lake: Lake) -> None:
    lake.watch.mirrors = lake.mirrors()
    await lake.create("a", IDS)
    [file] = await lake.files("a", ids(1))
    for number in range(60):
        await lake.commit(a=[*await lake.remove_all("a"), *([file] if number % 2 else [])])
    assert (lake.folder / FILE).stat().st_size < 4 << 20
