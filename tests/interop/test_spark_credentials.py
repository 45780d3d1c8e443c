"""Spark with the stock Iceberg runtime on tables in S3: with vended credentials alone, and with signed requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest import mock

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tests.interop.credentials import server_env, without_keys
from tests.support import jars, s3_guarded
from tests.support.s3_guarded import ROOT_KEY, Guard
from tests.support.spark import Lake, running_lake

# The first of them starts Spark, and the first of all fetches the runtime and the SDK.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with s3_guarded.running() as running:
        yield running


@pytest.fixture(scope="module")
def lake(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    env = server_env(guard, remote_signing=True)
    with (
        mock.patch.dict(os.environ, without_keys(), clear=True),
        running_lake(tmp_path_factory.mktemp("lake"), more_jars=jars.resolve(jars.ICEBERG_AWS), env=env) as running,
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
