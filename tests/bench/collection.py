"""Collection: the search for orphans over many files, and how fast purged tables go.

Half of the files are in the manifests of the tables, half are nobody's. `LAKEPACT_BENCH_FILES` is how many there are.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pyarrow as pa
import structlog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record
from pyspark.sql import SparkSession

import lakepact.client
from lakepact.client import Lake
from lakepact.settings import Settings
from lakepact.spark.jobs.orphans import Wish, search
from lakepact.spark.jobs.sessions import plain_session
from tests.bench.report import say, table
from tests.support.collecting import collected
from tests.support.server import running_server

FILES = int(os.environ.get("LAKEPACT_BENCH_FILES", "200000"))
TABLES = 20
PURGED_TABLES = 50
FILES_A_PURGED_TABLE = 40
SCHEMA = pa.schema([("id", pa.int64())])


async def run() -> None:
    await asyncio.to_thread(_run)


def _run() -> None:
    # Every deletion is a line of the log; here nobody reads them.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    say(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="lakepact-bench-") as name:
        folder = Path(name)
        with running_server(folder) as server, lakepact.client.connect(server.url) as lake, _spark(folder) as spark:
            lake.namespaces.create("bench")
            _search(lake, spark)
            _purge(lake, folder)


def _search(lake: Lake, spark: SparkSession) -> None:
    each = FILES // TABLES
    began_s = time.perf_counter()
    for number in range(TABLES):
        _fill(lake, f"t{number}", live=each // 2, lost=each - each // 2)
    say(f"made {TABLES * each} files of {TABLES} tables in {time.perf_counter() - began_s:.0f} s")
    rows = []
    for dry_run in (True, False):
        began_s = time.perf_counter()
        found = search(spark, lake, Wish(0.0, dry_run=dry_run, unsafe_any_age=True))
        took_s = time.perf_counter() - began_s
        assert found.files == TABLES * (each - each // 2) and not found.failed, found
        what = "search alone (dry run)" if dry_run else "search and delete"
        rows.append((what, f"{found.listed}", f"{found.files}", f"{took_s:.1f}", f"{found.listed / took_s:.0f}"))
    again_s = time.perf_counter()
    assert search(spark, lake, Wish(0.0, unsafe_any_age=True)).files == 0
    rows.append(("nothing left", f"{found.listed - found.files}", "0", f"{time.perf_counter() - again_s:.1f}", ""))
    table(
        f"orphans in {TABLES} tables, local[2], local files",
        ("", "files listed", "orphans", "s", "files listed a second"),
        rows,
    )


def _purge(lake: Lake, folder: Path) -> None:
    for number in range(PURGED_TABLES):
        _fill(lake, f"p{number}", live=FILES_A_PURGED_TABLE, lost=0)
        lake.tables.drop(f"bench.p{number}", purge=True)
    settings = Settings.load(data=str(folder / "data"))
    began_s = time.perf_counter()
    report = asyncio.run(collected(settings, drop_retention_s=0.0))
    took_s = time.perf_counter() - began_s
    files = sum(report.counts.values())
    table(
        "purge of dropped tables, SQLite, local files; the manifests of all other tables are read too",
        ("tables", "files", "s", "files a second"),
        [(str(PURGED_TABLES), str(files), f"{took_s:.1f}", f"{files / took_s:.0f}")],
    )


def _fill(lake: Lake, name: str, *, live: int, lost: int) -> None:
    """A table whose manifest names `live` files, with `lost` more beside them. None holds anything."""
    made = lake.pyiceberg().create_table(("bench", name), SCHEMA)
    folder = Path(made.location().removeprefix("file://")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(live + lost):
        (folder / f"{number:08}.parquet").touch()
    with made.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for number in range(live):
            append.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=f"{made.location()}/data/{number:08}.parquet",
                    file_format=FileFormat.PARQUET,
                    partition=Record(),
                    record_count=1,
                    file_size_in_bytes=1,
                    column_sizes={1: 8},
                    value_counts={1: 1},
                    null_value_counts={1: 0},
                    nan_value_counts={},
                    lower_bounds={1: b"\\0" * 8},
                    upper_bounds={1: b"\\0" * 8},
                    sort_order_id=None,
                    spec_id=0,
                    equality_ids=None,
                    key_metadata=None,
                    split_offsets=None,
                )
            )


@contextmanager
def _spark(folder: Path) -> Iterator[SparkSession]:
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.ui.enabled": "false",
    }
    with mock.patch.dict(os.environ), plain_session("local[2]", "lakepact bench", settings) as spark:
        yield spark
