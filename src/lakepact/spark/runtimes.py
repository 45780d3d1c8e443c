"""Which Iceberg and Delta runtimes go with the installed PySpark.

A Spark connector is built for one line of Spark and one version of Scala. With the wrong one Spark fails in the middle
of a job with a missing class; here it fails at once, with the name of the right one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakepact.errors import InvalidSetting

ICEBERG_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
DELTA_EXTENSIONS: Final = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG: Final = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The connectors for one line of Spark, as Maven coordinates."""

    spark: str
    scala: str
    iceberg: str
    delta: str

    @property
    def packages(self) -> tuple[str, ...]:
        return (self.iceberg, self.delta)


RUNTIMES: Final[Mapping[str, Runtime]] = {
    "4.1": Runtime(
        "4.1",
        "2.13",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "io.delta:delta-spark_4.1_2.13:4.4.0",
    ),
}
"""By line of Spark. A line is here once both runtimes are released for it and the tests have run on it."""

EXCLUDES: Final = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "org.slf4j:slf4j-api",
)
"""What the runtimes ask for and every Spark has: not to be fetched a second time, nor to log a second time."""

_JAR: Final = re.compile(r"(iceberg-spark-runtime-|delta-spark_)(\d+\.\d+)_(\d+\.\d+)[-:]")


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


def check_fits(names: Iterable[str], runtime: Runtime) -> None:
    """Whether jars or Maven coordinates, by their names, are for this line of Spark."""
    for name in names:
        found = _JAR.search(name)
        if found is not None and (found[2], found[3]) != (runtime.spark, runtime.scala):
            right = runtime.iceberg if found[1].startswith("iceberg") else runtime.delta
            raise InvalidSetting(
                f"{name} is for Spark {found[2]} with Scala {found[3]}, and this is Spark {runtime.spark} with Scala "
                f"{runtime.scala}. Use {right}"
            )


def jars_in(folder: str | Path, runtime: Runtime) -> tuple[Path, ...]:
    """All jars of a folder, for networks that reach no registry. The runtime of Iceberg must be one of them."""
    jars = tuple(sorted(Path(folder).expanduser().resolve().glob("*.jar")))
    check_fits((jar.name for jar in jars), runtime)
    artifact = runtime.iceberg.split(":")[1]
    if not any(jar.name.startswith(artifact) for jar in jars):
        raise InvalidSetting(
            f"there is no {artifact}-*.jar in {folder}. Put {runtime.iceberg} there, and {runtime.delta} with what it "
            f"needs for Delta tables"
        )
    return jars


def check_loaded(iceberg_jar: str | None, spark_version: str) -> None:
    """Whether a running session has the right runtime, by the jar it comes from. None can be added to one that has
    begun."""
    runtime = runtime_for(spark_version)
    if iceberg_jar is None:
        raise InvalidSetting(
            f"this Spark session has no Iceberg runtime, and none can be added to one that has begun. Stop it and "
            f"start it with lakepact.spark.session(...), or with the settings of lakepact.spark.conf(...), such as "
            f"spark.jars.packages={runtime.iceberg}"
        )
    check_fits([iceberg_jar], runtime)
