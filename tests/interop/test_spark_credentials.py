"""Spark with the stock Iceberg runtime on tables in S3: with vended credentials alone, and with signed requests. And
the jobs of upkeep there, which read the warehouse with keys of their own."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

import lakepact.client
from lakepact import spark as lp
from lakepact.catalog.receipts import commit_key
from lakepact.spark.jobs.orphans import Wish, search
from lakepact.spark.jobs.projections import project
from tests.interop.credentials import server_env, without_keys
from tests.support import jars, s3_guarded
from tests.support.receipts import DAY_MS, History, Shelf, day_of
from tests.support.s3_guarded import REGION, ROOT_KEY, ROOT_SECRET, Guard
from tests.support.spark import Lake, running_lake
from tests.support.waiting import PATIENCE_S

# The first of them starts Spark, and the first of all fetches the runtime and the SDK.


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with s3_guarded.running() as running:
        yield running


@pytest.fixture(scope="module")
def lake(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    env = server_env(guard, remote_signing=True)
    more = [*jars.resolve(jars.ICEBERG_AWS), *jars.resolve(jars.HADOOP_S3A)]
    with (
        mock.patch.dict(os.environ, without_keys(), clear=True),
        running_lake(tmp_path_factory.mktemp("lake"), more_jars=more, env=env) as running,
    ):
        s3 = "org.apache.iceberg.aws.s3.S3FileIO"
        asks = "header.X-Iceberg-Access-Delegation"
        url = running.server.url
        running.attach("vended", uri=url, io_impl=s3, cache_enabled="false", **{asks: "vended-credentials"})
        running.attach("signed", uri=url, io_impl=s3, cache_enabled="false", **{asks: "remote-signing"})
        running.rest("POST", "namespaces", {"namespace": ["db"]})
        yield running


def test_spark_reads_and_writes_with_vended_credentials_alone(lake: Lake, guard: Guard) -> None:
    began = len(guard.seen)
    lake.sql("CREATE TABLE vended.db.t (id BIGINT, name STRING)")
    lake.sql("INSERT INTO vended.db.t VALUES (1, 'a'), (2, 'b')")
    lake.sql("CREATE TABLE vended.db.made AS SELECT * FROM vended.db.t")
    lake.sql("DELETE FROM vended.db.t WHERE id = 1")
    assert lake.ids("vended.db.t") == [2]
    assert lake.ids("vended.db.made") == [1, 2]
    theirs = [one for one in guard.seen[began:] if one[0] != ROOT_KEY]
    assert {method for _, method, _, _ in theirs} >= {"GET", "PUT"}
    assert not [one for one in theirs if one[3] == 403], theirs


def test_spark_fails_on_a_neighbours_table(lake: Lake) -> None:
    lake.sql("CREATE TABLE vended.db.mine (id BIGINT)")
    lake.sql("CREATE TABLE vended.db.other (id BIGINT)")
    lake.sql("INSERT INTO vended.db.other VALUES (1)")
    file = lake.one("SELECT file_path FROM vended.db.other.files")
    jvm = lake.spark._jvm
    assert jvm is not None

    def first_byte(table: str) -> int:
        io = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(lake.spark._jsparkSession, table).io()
        read: int = io.newInputFile(file).newStream().read()
        return read

    assert first_byte("vended.db.other") == ord("P")
    with pytest.raises(Py4JJavaError, match=r"403|Access Denied|denied"):
        first_byte("vended.db.mine")


def test_spark_fetches_the_next_credentials_when_the_first_are_about_to_expire(lake: Lake, guard: Guard) -> None:
    since = lake.log_position()
    # Too short a life for the server to give the same ones twice, and for Spark to be at ease with.
    guard.lifetime_s = 120
    try:
        lake.sql("CREATE TABLE vended.db.short (id BIGINT)")
        lake.sql("INSERT INTO vended.db.short VALUES (1)")
        assert lake.ids("vended.db.short") == [1]
    finally:
        guard.lifetime_s = None
    asked = [line["status"] for line in lake.requests(since) if line["operation"] == "loadCredentials"]
    assert asked and set(asked) == {200}


def test_spark_reads_and_writes_with_signed_requests(lake: Lake, guard: Guard) -> None:
    lake.sql("CREATE TABLE signed.db.s (id BIGINT, name STRING)")
    began, at = len(guard.seen), lake.log_position()
    lake.sql("INSERT INTO signed.db.s VALUES (1, 'a'), (2, 'b')")
    assert lake.ids("signed.db.s") == [1, 2]
    lake.sql("DELETE FROM signed.db.s WHERE id = 1")
    assert lake.ids("signed.db.s") == [2]
    asked = [line["status"] for line in lake.requests(at) if line["operation"] == "signRequest"]
    assert asked and set(asked) == {200}
    assert not [one for one in guard.seen[began:] if one[3] == 403]


# --- jobs of upkeep ---


@pytest.fixture(scope="module")
def bucket(guard: Guard) -> Any:
    """The warehouse, as whoever operates it sees it."""
    return boto3.resource(
        "s3",
        endpoint_url=guard.url,
        aws_access_key_id=ROOT_KEY,
        aws_secret_access_key=ROOT_SECRET,
        region_name=REGION,
    ).Bucket(guard.bucket)


def test_the_search_for_orphans_takes_objects_that_nothing_leads_to(lake: Lake, guard: Guard, bucket: Any) -> None:
    lake.sql("CREATE TABLE vended.db.searched (id BIGINT)")
    lake.sql("INSERT INTO vended.db.searched VALUES (1), (2)")
    location = lake.metadata("db.searched")["location"].removeprefix(f"s3://{guard.bucket}/")

    def keys() -> set[str]:
        return {one.key for one in bucket.objects.filter(Prefix=f"{location}/")}

    before = keys()
    stray = f"{location}/data/deep/er/lost.parquet"
    bucket.put_object(Key=stray, Body=b"nothing")
    options = {
        "s3.endpoint": guard.url,
        "s3.access-key-id": ROOT_KEY,
        "s3.secret-access-key": ROOT_SECRET,
        "s3.region": REGION,
    }
    wish = Wish(0.0, unsafe_any_age=True, parts=2, options=options)
    with lakepact.client.connect(lake.server.url) as client:
        told = search(lake.spark, client, replace(wish, dry_run=True))
        assert stray in {path.removeprefix(f"s3://{guard.bucket}/") for path in told.examples}
        assert keys() == before | {stray}
        done = search(lake.spark, client, wish)
    assert (done.failed, done.files) == (0, told.files)
    # Arrow leaves an empty object for a folder in which nothing is left.
    assert {key for key in keys() if not key.endswith("/")} == before
    assert lake.ids("vended.db.searched") == [1, 2]
    # What went is written down, in the warehouse.
    report = done.report.removeprefix(f"s3://{guard.bucket}/")
    lines = b"".join(one.get()["Body"].read() for one in bucket.objects.filter(Prefix=report))
    assert stray.encode() in lines


def test_receipts_in_s3_are_projected_loose_and_packed(lake: Lake, guard: Guard, bucket: Any) -> None:
    """Spark's own files by Hadoop's client, with keys of its own; the tables as any others, with vended credentials."""
    hadoop = lake.spark._jsc.hadoopConfiguration()
    for name, value in {
        "endpoint": guard.url,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "access.key": ROOT_KEY,
        "secret.key": ROOT_SECRET,
    }.items():
        hadoop.set(f"fs.s3a.{name}", value)
    lake.sql("CREATE TABLE vended.db.told (id BIGINT)")
    for number in range(2):
        lake.sql(f"INSERT INTO vended.db.told VALUES ({number})")
    own = "warehouse/_catalog"
    settled(lake, bucket, f"{own}/events/")
    # A history of some days ago, of which one is packed, with a segment that is broken.
    with tempfile.TemporaryDirectory() as folder:
        shelf, history = Shelf(Path(folder)), History(Path(folder), tables=2, with_metadata=False)
        days = [time.time_ns() // 1_000_000 - back * DAY_MS for back in (5, 4)]
        past = [receipt for at_ms in days for receipt in history.transaction(at_ms, 2)]
        shelf.put(past)
        shelf.pack(day_of(days[0]), at_once=1)
        bad = shelf.segments(day_of(days[0]))[1]
        bad.write_bytes(bad.read_bytes()[:-5])
        for path in shelf.own.rglob("*"):
            if path.is_file() and not (path.match("events/*/*/*/*") and day_of(days[0]) in path.parts):
                bucket.upload_file(str(path), f"{own}/{path.relative_to(shelf.own)}")
    current = lake.spark.catalog.currentCatalog()
    lake.spark.catalog.setCurrentCatalog("vended")
    try:
        pact = lp.connect(lake.spark)
        done = project(pact)
        assert [Path(one).name for one in done.broken] == [bad.name] and done.damaged == 0
        # Of the transaction of the packed day one receipt is lost, and the other waits for it.
        assert done.waiting == 1
        told = pact.table("lakepact.files").where("table_name = 'db.told'").orderBy("committed_at").collect()
        assert [row["records"] for row in told] == [1, 2]
        commits = {row["commit_key"] for row in pact.table("lakepact.commits").collect()}
        assert {one["commit-key"] for one in past[2:]} <= commits and len(commits) == done.receipts
        assert pact.table("lakepact.columns").where("table_name = 'db.told'").count() == 1
        assert project(pact).transaction_id is None
    finally:
        lake.spark.catalog.setCurrentCatalog(current)


def settled(lake: Lake, bucket: Any, prefix: str) -> None:
    """Until the newest version of every table has its receipt: they are written in order, in the background."""
    wanted = {commit_key(lake.loaded(f"db.{name}")["metadata-location"]) for name in lake.tables("db")}
    deadline = time.monotonic() + PATIENCE_S
    while not wanted <= {Path(one.key).stem for one in bucket.objects.filter(Prefix=prefix)}:
        assert time.monotonic() < deadline, "receipts do not come"
        time.sleep(0.1)
