"""What a Spark session needs to know of Lakepact, as plain settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from lakepact.spark.runtimes import DELTA_EXTENSIONS, ICEBERG_EXTENSIONS, jars_in, runtime_for

SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
DEFAULT_CATALOG: Final = "lake"


def catalog_conf(name: str, uri: str, warehouse: str, token: str | None = None) -> dict[str, str]:
    """The settings of one catalog. Nothing is cached in it: a publish changes tables behind Spark's back."""
    prefix = f"spark.sql.catalog.{name}"
    settings = {
        prefix: SPARK_CATALOG,
        f"{prefix}.type": "rest",
        f"{prefix}.uri": uri,
        f"{prefix}.warehouse": warehouse,
        f"{prefix}.cache-enabled": "false",
        f"{prefix}.rest-metrics-reporting-enabled": "false",
    }
    if token is not None:
        settings[f"{prefix}.token"] = token
    return settings


def conf(
    uri: str,
    *,
    warehouse: str = "main",
    catalog: str = DEFAULT_CATALOG,
    token: str | None = None,
    jars: str | Path | None = None,
    spark_version: str | None = None,
) -> dict[str, str]:
    """Every setting for a session that uses Lakepact as catalog `lake`, the default one.

    `jars` is a folder with the runtimes, for networks without a registry; otherwise Spark fetches them by their Maven
    coordinates, once, and keeps them. `spark_version` is that of the installed PySpark unless given.
    """
    if spark_version is None:
        import pyspark

        spark_version = pyspark.__version__
    runtime = runtime_for(spark_version)
    settings = {
        "spark.sql.extensions": f"{ICEBERG_EXTENSIONS},{DELTA_EXTENSIONS}",
        "spark.sql.defaultCatalog": catalog,
        **catalog_conf(catalog, uri, warehouse, token),
    }
    if jars is not None:
        settings["spark.jars"] = jars_in(jars)
    else:
        settings["spark.jars.packages"] = runtime.packages
    return settings
