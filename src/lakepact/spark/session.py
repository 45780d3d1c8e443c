"""A Spark session that knows Lakepact: made here, or made by others with these settings, or there already."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

from lakepact.errors import InvalidSetting
from lakepact.java import provide_java
from lakepact.spark.clones import iceberg_jar, java_class
from lakepact.spark.runtimes import DELTA_CATALOG, check_loaded
from lakepact.spark.settings import DEFAULT_CATALOG, SESSION_CATALOG, conf, merged


def session(
    master: str | None = None,
    *,
    uri: str,
    warehouse: str = "main",
    catalog: str = DEFAULT_CATALOG,
    token: str | None = None,
    credential: str | None = None,
    jars: str | Path | None = None,
    app_name: str = "lakepact",
    **settings: str,
) -> SparkSession:
    """A session with the right runtimes, and with the server as its default catalog.

    `settings` are Spark's own: `session("local[2]", uri=…, **{"spark.driver.memory": "4g"})`. If this process has a
    session already, that one is returned, with the settings that can still be changed; it must have the runtime.
    Python workers of a local master run this Python (`sys.executable`), unless `PYSPARK_PYTHON` is set.
    Raises `InvalidSetting` for a setting that is not one of Spark's, which Spark would ignore.
    """
    unknown = sorted(name for name in settings if not name.startswith("spark."))
    if unknown:
        raise InvalidSetting(
            f"session() has no argument {unknown[0]!r}, and Spark's settings begin with 'spark.': pass them as "
            f"session(…, **{{'spark.driver.memory': '4g'}})"
        )
    provide_java()
    own = conf(uri, warehouse=warehouse, catalog=catalog, token=token, credential=credential, jars=jars)
    running = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if running is not None:
        # Before anything is set: a session that cannot be used is left as it is.
        check_session(running)
        own = _fitting(own, running)
    if master is None or master.startswith("local"):
        # Python workers of this machine are this Python, with what is installed in it, and not the first one of PATH.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = _configured(builder, own).getOrCreate()
    check_session(spark)
    return spark


def configure(
    builder: SparkSession.Builder,
    *,
    uri: str,
    warehouse: str = "main",
    catalog: str = DEFAULT_CATALOG,
    token: str | None = None,
    credential: str | None = None,
    jars: str | Path | None = None,
) -> SparkSession.Builder:
    """A builder with everything it had, and what Lakepact needs. What it says already stays; lists are joined."""
    provide_java()
    own = conf(uri, warehouse=warehouse, catalog=catalog, token=token, credential=credential, jars=jars)
    return _configured(builder, own)


def check_session(spark: SparkSession) -> None:
    """Raises `InvalidSetting` if the session cannot work with Lakepact, and says what to do."""
    check_loaded(iceberg_jar(spark), spark.version)


def _configured(builder: SparkSession.Builder, own: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in merged(own, getattr(builder, "_options", {}), pyspark.__version__).items():
        builder = builder.config(key, value)
    return builder


def _fitting(own: dict[str, str], running: SparkSession) -> dict[str, str]:
    """Without the session catalog of Delta, if the session has one of its own, or has no Delta: every name without a
    catalog that Spark looks up there would be an error."""
    free = running.conf.get(SESSION_CATALOG, None) is None and java_class(running, DELTA_CATALOG) is not None
    return own if free else {key: value for key, value in own.items() if key != SESSION_CATALOG}
