"""Plain settings for a session, and what is read out of those that a session has."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from lakepact.errors import InvalidSetting
from lakepact.spark import conf, configure, session
from lakepact.spark.jobs.sessions import plain_session
from lakepact.spark.settings import CatalogSettings, catalog_settings, chosen_catalog, rest_catalogs

URI = "http://localhost:8181"


def test_settings_name_the_runtimes_and_the_catalog() -> None:
    settings = conf(URI, spark_version="4.1.1", token="secret")
    assert settings["spark.jars.packages"] == (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,io.delta:delta-spark_4.1_2.13:4.4.0"
    )
    assert settings["spark.sql.defaultCatalog"] == "lake"
    assert settings["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    assert settings["spark.sql.catalog.lake"] == "org.apache.iceberg.spark.SparkCatalog"
    assert settings["spark.sql.catalog.lake.uri"] == URI
    assert settings["spark.sql.catalog.lake.warehouse"] == "main"
    assert settings["spark.sql.catalog.lake.token"] == "secret"
    # A publish changes tables behind Spark's back.
    assert settings["spark.sql.catalog.lake.cache-enabled"] == "false"


def test_jars_of_a_folder_take_the_place_of_coordinates(tmp_path: Path) -> None:
    jar = tmp_path / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
    jar.touch()
    settings = conf(URI, jars=tmp_path)
    assert settings["spark.jars"] == str(jar)
    assert "spark.jars.packages" not in settings
    assert "io.delta" not in settings["spark.sql.extensions"] and "spark.sql.catalog.spark_catalog" not in settings
    (tmp_path / "delta-spark_4.1_2.13-4.4.0.jar").touch()
    assert "io.delta" in conf(URI, jars=tmp_path)["spark.sql.extensions"]


def test_a_builder_keeps_what_it_had() -> None:
    builder = SparkSession.Builder()
    builder.config("spark.jars.packages", "org.example:own:1").config("spark.sql.extensions", "org.example.Own")
    builder.config("spark.sql.defaultCatalog", "mine")
    options: dict[str, str] = configure(builder, uri=URI)._options
    packages = options["spark.jars.packages"].split(",")
    assert packages[0] == "org.example:own:1" and len(packages) == 3
    assert options["spark.sql.extensions"].startswith("org.example.Own,org.apache.iceberg")
    assert options["spark.sql.defaultCatalog"] == "mine"
    assert options["spark.sql.catalog.lake.uri"] == URI


def test_a_builder_with_a_runtime_for_another_spark_is_refused() -> None:
    builder = SparkSession.Builder()
    builder.config("spark.jars.packages", "org.apache.iceberg:iceberg-spark-runtime-3.5_2.13:1.10.2")
    with pytest.raises(InvalidSetting, match=r"Use org\.apache\.iceberg:iceberg-spark-runtime-4\.1_2\.13"):
        configure(builder, uri=URI)


def test_catalogs_are_read_back_from_settings() -> None:
    lake = catalog_settings("lake", URI, "main", "secret")
    others = {
        "spark.sql.catalog.files": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.files.type": "hadoop",
        "spark.sql.catalog.delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.late.uri": "a catalog without a class is none",
    }
    assert rest_catalogs({**others, **lake.to_conf()}) == (lake,)
    assert (lake.uri, lake.warehouse, lake.token, lake.cached) == (URI, "main", "secret", False)


def test_a_catalog_inside_a_transaction_differs_in_its_warehouse_and_caches_nothing() -> None:
    outside = CatalogSettings("lake", {"type": "rest", "uri": URI, "s3.endpoint": "http://x", "cache-enabled": "true"})
    inside = outside.at("main@0198")
    assert inside.options["warehouse"] == "main@0198" and not inside.cached
    assert inside.options["s3.endpoint"] == "http://x" and inside.uri == URI


def test_the_catalog_that_is_meant_is_the_current_one_or_the_only_one() -> None:
    one, two = catalog_settings("one", URI, "main"), catalog_settings("two", URI, "main")
    assert chosen_catalog([one, two], "two") is two
    assert chosen_catalog([one], "spark_catalog") is one
    with pytest.raises(InvalidSetting, match=r"one, two.*uri="):
        chosen_catalog([one, two], "spark_catalog")
    with pytest.raises(InvalidSetting, match="no catalog at a REST server"):
        chosen_catalog([], "spark_catalog")


def test_a_session_refuses_settings_that_spark_would_ignore() -> None:
    with pytest.raises(InvalidSetting, match="session\\(\\) has no argument 'wharehouse'"):
        session("local[1]", uri="http://x", wharehouse="main@1")


def test_a_token_and_a_credential_together_are_refused() -> None:
    with pytest.raises(InvalidSetting, match="both a token and a credential"):
        conf("http://x", token="t", credential="a:b", spark_version="4.1.1")


class NotStarted(Exception):
    """Raised where Spark would start its JVM."""


def workers_python(monkeypatch: pytest.MonkeyPatch, start: Callable[[], object], python: str | None) -> str | None:
    """The `PYSPARK_PYTHON` that Spark would start with, if it was `python` before."""

    def get_or_create(builder: Any) -> SparkSession:
        raise NotStarted

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", get_or_create)
    with mock.patch.dict(os.environ):
        os.environ.pop("PYSPARK_PYTHON", None)
        if python is not None:
            os.environ["PYSPARK_PYTHON"] = python
        with pytest.raises(NotStarted):
            start()
        return os.environ.get("PYSPARK_PYTHON")


def start_session(master: str) -> object:
    return session(master, uri=URI)


def start_plain_session(master: str) -> object:
    return plain_session(master, "test", {}).__enter__()


@pytest.mark.parametrize("start", [start_session, start_plain_session])
def test_python_workers_of_a_local_master_run_this_python_unless_another_is_set(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[str], object]
) -> None:
    assert workers_python(monkeypatch, lambda: start("local[1]"), None) == sys.executable
    assert workers_python(monkeypatch, lambda: start("local[1]"), "/opt/python") == "/opt/python"
    assert workers_python(monkeypatch, lambda: start("spark://elsewhere:7077"), None) is None
