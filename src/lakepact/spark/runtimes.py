"""Which Iceberg and Delta runtimes go with the installed PySpark.

A Spark connector is built for one line of Spark and one version of Scala. With the wrong one Spark fails in the middle
of a job with a missing class; here it fails at once, with the name of the right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakepact.errors import InvalidSetting

ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
DELTA_EXTENSIONS: Final = "io.delta.sql.DeltaSparkSessionExtension"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The connectors for one line of Spark, as Maven coordinates."""

    spark: str
    iceberg: str
    delta: str

    @property
    def packages(self) -> str:
        return f"{self.iceberg},{self.delta}"


_ICEBERG: Final = "1.12.0"

RUNTIMES: Final[Mapping[str, Runtime]] = {
    "4.1": Runtime(
        "4.1",
        f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:{_ICEBERG}",
        "io.delta:delta-spark_4.1_2.13:4.4.0",
    ),
    "4.0": Runtime(
        "4.0",
        f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{_ICEBERG}",
        "io.delta:delta-spark_4.0_2.13:4.4.0",
    ),
}
"""By line of Spark. A line is here once both runtimes are released for it."""


def runtime_for(spark_version: str) -> Runtime:
    """The runtime for this version of Spark, such as `4.1.1`."""
    line = ".".join(spark_version.split(".")[:2])
    found = RUNTIMES.get(line)
    if found is None:
        raise InvalidSetting(
            f"Spark {spark_version} is not supported: Lakepact knows the Iceberg and Delta runtimes of Spark "
            f"{' and '.join(sorted(RUNTIMES))}. Install one of them, such as pyspark=={max(RUNTIMES)}.*"
        )
    return found


def jars_in(folder: str | Path) -> str:
    """All jars of a folder as Spark's `spark.jars` takes them, for networks that reach no registry."""
    jars = sorted(Path(folder).expanduser().resolve().glob("*.jar"))
    if not jars:
        raise InvalidSetting(
            f"there is no jar in {folder}. Put the Iceberg and Delta runtimes there: "
            f"{', '.join(sorted(runtime.iceberg for runtime in RUNTIMES.values()))}"
        )
    return ",".join(str(jar) for jar in jars)


def check_loaded(class_loader_finds: bool, spark_version: str) -> None:
    """Whether a running session has the runtime. It cannot be added to one that has begun."""
    if not class_loader_finds:
        raise InvalidSetting(
            f"this Spark session has no Iceberg runtime. Start it with lakepact.spark.session(...), or with the "
            f"settings of lakepact.spark.conf(...): spark.jars.packages={runtime_for(spark_version).iceberg}"
        )
