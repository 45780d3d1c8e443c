"""A Spark that does little and ends soon, beside others: nothing is compiled that runs once, and nothing is shared.

Half of what such a Spark does is to load its classes. Java can leave them in a file as they are once they are loaded
(class data sharing), and begin with that: `python -m tests.support.quick_spark FILE` makes one, and the first test that
wants a Spark does so. It is good for one Java and one class path; where it does not fit, Java goes on without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.support import jars
from tests.support.waiting import PATIENCE_S

ROOT: Final = Path(__file__).parents[2]
_CACHE: Final = ROOT / ".cache" / "classes"
_MAKING_TAKES_AT_MOST_S: Final = 1_000


def quick_settings(folder: Path, *java: str) -> dict[str, str]:
    """Everything it writes is below this folder, and every port is the system's choice. `java`: more for its JVM."""
    archive = _archive()
    return _settings(folder, *(() if archive is None else (f'"-XX:SharedArchiveFile={archive}"',)), *java)


def as_options(settings: Mapping[str, str]) -> list[str]:
    """The same for a command line."""
    return [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]


def without_spark() -> dict[str, str]:
    """This process's environment without anybody's Spark in it, and on loopback."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return {**ours, "SPARK_LOCAL_IP": "127.0.0.1"}


def _settings(folder: Path, *java: str) -> dict[str, str]:
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


@cache
def _archive() -> Path | None:
    """The classes of Spark as this Java has loaded them. One process at a time makes them; the others wait for it."""
    of = jars.pyspark_home() / "jars"
    shown = subprocess.run([jars.java(), "-version"], capture_output=True, text=True, timeout=PATIENCE_S).stderr
    what = f"{shown} {of} {of.stat().st_mtime_ns}"
    archive = _CACHE / f"{hashlib.sha256(what.encode()).hexdigest()[:16]}.jsa"
    if not archive.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with (_CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                _make(archive)
    return archive if archive.exists() else None


def _make(archive: Path) -> None:
    """Beside it first: a file of this name is whole."""
    new = archive.with_suffix(".new")
    command = [sys.executable, "-m", "tests.support.quick_spark", str(new)]
    env = {**without_spark(), "SPARK_HOME": str(jars.pyspark_home()), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=_MAKING_TAKES_AT_MOST_S)
    if done.returncode == 0 and new.exists():
        new.rename(archive)
    else:
        warnings.warn(f"every Spark begins slowly, for there is no {archive}: {done.stderr[-2000:]}", stacklevel=2)


def main(archive: str) -> None:
    """Let a Spark do some of everything, and leave its classes."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="lakepact-classes-") as name:
        folder = Path(name)
        builder = SparkSession.builder.master("local[2]")
        for setting, value in _settings(folder, f'"-XX:ArchiveClassesAtExit={archive}"').items():
            builder = builder.config(setting, value)
        spark = builder.getOrCreate()
        java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        rows = spark.createDataFrame([(1, "a"), (2, "b")], "id long, name string")
        rows.write.parquet(str(folder / "rows"))
        spark.read.parquet(str(folder / "rows")).createOrReplaceTempView("rows")
        spark.sql(
            "SELECT name, count(*), max(id) FROM rows JOIN (SELECT id FROM rows) USING (id) GROUP BY 1 ORDER BY 1"
        ).collect()
        spark.stop()
        # It ends when nobody can tell it anything any more, and writes the file then.
        java.stdin.close()
        java.wait()


if __name__ == "__main__":
    main(sys.argv[1])
