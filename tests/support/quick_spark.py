"""A Spark that does little and ends soon, beside others: nothing is compiled that runs once, and nothing is shared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def quick_settings(folder: Path, *java: str) -> dict[str, str]:
    """Everything it writes is below this folder, and every port is the system's choice. `java`: more for its JVM."""
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", *java]
    return {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }


def as_options(settings: Mapping[str, str]) -> list[str]:
    """The same for a command line."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def without_spark() -> dict[str, str]:
    """This process's environment without anybody's Spark in it, and on loopback."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**ours, "SPARK_LOCAL_IP": "127.0.0.1"}
