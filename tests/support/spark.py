"""A Spark session with the stock Iceberg runtime, and the server that its catalogs are at.

    lake     the catalog as Spark's users have it: every setting at its default
    other    the same server once more, as somebody else sees it: nothing is cached

Everything Spark writes is in a temporary folder, and every port is the system's choice: two runs do not meet. A JVM
belongs to its Python process, so there is one session a process, and all tests share it; each has a namespace of its
own. Speed matters more than throughput here: see `quick_spark`.
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import orjson
import pyspark
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from tests.support import jars
from tests.support.quick_spark import quick_settings, without_spark
from tests.support.server import Server, lines_in, running_server
from tests.support.waiting import PATIENCE_S

WAREHOUSE: Final = "main"
_EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c: %m%n%ex
"""
# No proxy between a test and its own machine, whatever the environment says.
_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any
    """The JSON; None if there is none."""


@dataclass(frozen=True, slots=True)
class Lake:
    spark: SparkSession
    server: Server
    folder: Path
    """Where a test may put files of its own; the warehouse is not below it."""

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def one(self, text: str) -> Any:
        """The only column of the only row."""
        [[value]] = self.sql(text)
        return value

    def ids(self, source: str) -> list[int]:
        """The column `id` of a table, a view or whatever may stand after FROM, in order."""
        return [row[0] for row in self.sql(f"SELECT id FROM {source} ORDER BY id")]

    def fill(self, table: str, *numbers: int, options: str = "") -> None:
        """Create a table with these ids, one commit each."""
        self.sql(f"CREATE TABLE {table} (id BIGINT, name STRING) {options}")
        for number in numbers:
            self.sql(f"INSERT INTO {table} VALUES ({number}, 'n{number}')")

    def rest(self, method: str, path: str, body: object = None) -> Answer:
        """Ask the server itself, below the warehouse's prefix."""
        request = urllib.request.Request(
            f"{self.server.url}/v1/{WAREHOUSE}/{path}",
            method=method,
            data=None if body is None else orjson.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        try:
            with _OPENER.open(request, timeout=PATIENCE_S) as response:
                text = response.read()
                return Answer(response.status, dict(response.headers), orjson.loads(text) if text else None)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            return Answer(error.code, dict(error.headers), orjson.loads(text) if text else None)

    def loaded(self, table: str) -> dict[str, Any]:
        """What the server says of a table, `namespace.name`: metadata-location and metadata."""
        namespace, name = table.split(".")
        answer = self.rest("GET", f"namespaces/{namespace}/tables/{name}")
        assert answer.status == 200, answer
        return dict(answer.body)

    def metadata(self, table: str) -> dict[str, Any]:
        return dict(self.loaded(table)["metadata"])

    def tables(self, namespace: str) -> list[str]:
        return [one["name"] for one in self.rest("GET", f"namespaces/{namespace}/tables").body["identifiers"]]

    def views(self, namespace: str) -> list[str]:
        return [one["name"] for one in self.rest("GET", f"namespaces/{namespace}/views").body["identifiers"]]

    def attach(self, name: str, **options: str) -> None:
        """One more catalog of this session."""
        for key, value in catalog_settings(name, **options).items():
            self.spark.conf.set(key, value)

    def requests(self, since: int = 0) -> list[dict[str, Any]]:
        """The server's log lines about requests, from this position of its log on."""
        end = self.server.log_end()
        return [line for line in lines_in(self.server.log.read_bytes()[since:end]) if "status" in line]

    def log_position(self) -> int:
        return self.server.log_end()

    def troubles(self, since: int) -> list[dict[str, Any]]:
        """Answers upon which a client may have deleted files, or may have been left in doubt."""

        def is_trouble(line: dict[str, Any]) -> bool:
            # A namespace that exists already is no conflict: no file depends on it.
            status, operation = int(line["status"]), line["operation"]
            return status >= 500 or (status == 409 and operation != "createNamespace")

        return [line for line in self.requests(since) if is_trouble(line)]

    def scan_everything(self) -> dict[str, int]:
        """Read every live table in full, and look for every file of every snapshot. How many rows each table has.

        A client that deletes a live file after an answer it took wrongly shows up here and nowhere else.
        """
        found = {}
        for [namespace] in self.rest("GET", "namespaces").body["namespaces"]:
            for name in self.tables(namespace):
                table = f"other.{namespace}.`{name}`"
                found[f"{namespace}.{name}"] = len(self.sql(f"SELECT * FROM {table}"))
                files = self.sql(
                    f"SELECT manifest_list FROM {table}.snapshots UNION SELECT path FROM {table}.all_manifests "
                    f"UNION SELECT file_path FROM {table}.all_files"
                )
                missing = [file for (file,) in files if not path_of(file).is_file()]
                assert not missing, f"{table} has lost {missing}"
        return found


@contextmanager
def refused(error: str, why: str | None = None) -> Iterator[None]:
    """This ends in an exception of Iceberg's, which says why."""
    with pytest.raises(Py4JJavaError, match=why) as caught:
        yield
    assert caught.value.java_exception.getClass().getSimpleName() == error, str(caught.value)


@contextmanager
def running_lake(
    folder: Path, *, more_jars: Iterable[Path] = (), env: Mapping[str, str] | None = None
) -> Iterator[Lake]:
    """Start a server and Spark. Both end with the block; the JVM itself ends with this process.

    `more_jars` are on Spark's class path, and `env` is the server's.
    """
    own = folder / "spark"
    own.mkdir(parents=True)
    (own / "log4j2.properties").write_text(_LOGGING)
    with running_server(folder / "server", env=env) as server:
        settings = {
            **_session_settings(own, more_jars),
            **catalog_settings("lake", uri=server.url),
            **catalog_settings("other", uri=server.url, cache_enabled="false"),
        }
        # Only pyspark's own Spark and nobody's settings: SPARK_HOME may name another one on this machine.
        environment = {
            **without_spark(),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            # Executors need what is installed here.
            "PYSPARK_PYTHON": sys.executable,
        }
        with mock.patch.dict(os.environ, environment, clear=True):
            builder = SparkSession.builder.master("local[2]").appName("lakepact tests")
            for name, value in settings.items():
                builder = builder.config(name, value)
            spark = builder.getOrCreate()
        try:
            (folder / "files").mkdir()
            yield Lake(spark, server, folder / "files")
        finally:
            spark.stop()


def catalog_settings(name: str, **options: str) -> dict[str, str]:
    """The settings of a catalog at a Lakepact server; options in Iceberg's words, with `_` for `-`."""
    prefix = f"spark.sql.catalog.{name}"
    settings = {prefix: _CATALOG, f"{prefix}.type": "rest", f"{prefix}.warehouse": WAREHOUSE}
    return settings | {f"{prefix}.{option.replace('_', '-')}": value for option, value in options.items()}


def path_of(location: str) -> Path:
    """The file at a location, `file:/x` or `file:///x`. What looks like an encoding in it is its name."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def _session_settings(folder: Path, more_jars: Iterable[Path]) -> dict[str, str]:
    return {
        **quick_settings(
            folder,
            f"-Djava.io.tmpdir={folder}",
            f"-Dderby.system.home={folder}",
            f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}",
        ),
        "spark.jars": ",".join(map(str, (*jars.resolve(jars.SPARK_ICEBERG), *more_jars))),
        "spark.sql.extensions": _EXTENSIONS,
        "spark.sql.defaultCatalog": "lake",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
    }
