"""The process in which a project runs: `python -m lakepact.pipelines.projects.driver`, told what to do on its input.

A Spark of its own, because a project needs Spark Connect, which a process with another Spark cannot start; and because
in a Spark whose only lake is inside the transaction nothing can miss it. Spark's own code loads the project, works out
its graph and runs its flows. When the input ends, whoever has started this is gone, and so is this.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.projects.checkpoints import CHECKPOINTS
from lakepact.spark.errors import CLIENT_OUTAGES

_PLUGIN: Final = "org.apache.spark.sql.connect.SparkConnectPlugin"
_SERVICE: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"
_CONFLICTS: Final = ("CommitFailedException", "keeps no older state", "no longer holds what transaction")
"""What an error says when somebody else was faster. Of an exception on the other side of Spark Connect only its text is
left."""
_OUTAGES: Final = (
    # Iceberg's client raises this for every failure of a connection; the cause is not part of the text.
    "RESTException: Error occurred while processing",
    "Connection refused",
    "Connection reset",
    "SocketException",
    "SocketTimeoutException",
    *CLIENT_OUTAGES,
)
"""Parts of the text of an error that mean that the server did not answer."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done."""

    file: str
    catalog: str
    database: str
    conf: dict[str, str]
    begins_at: str
    """Where the checkpoints are that the streams go on from."""

    storage: str
    """Where those of this run are to be."""

    report: str
    """The file in which the outcome is told."""

    keep: bool = True
    """Whether anybody will need the checkpoints of this run."""

    forgotten: list[str] = field(default_factory=list)
    """Checkpoints that nobody needs any more."""

    refresh: list[str] = field(default_factory=list)
    full_refresh: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outcome:
    error: str | None = None
    conflict: bool = False
    outage: bool = False
    """The server did not answer."""

    invalid: bool = False
    """The project cannot be run here at all."""

    streams: bool = False
    """Whether there are checkpoints now."""


def main() -> None:
    order = Order(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_the_input, daemon=True).start()
    outcome = _performed(order)
    Path(order.report).write_text(json.dumps(asdict(outcome)), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is told. At the end of a process the Connect client takes leave of its server, again and again for
    # minutes, and the server is gone.
    os._exit(0)


def _end_with_the_input() -> None:
    sys.stdin.read()
    os._exit(1)


def _performed(order: Order) -> Outcome:
    try:
        spark = _started(order.conf)
    except Exception as error:
        return Outcome(_told(error))
    folders = Folders(spark)
    try:
        for folder in order.forgotten:
            folders.remove(folder)
        folders.copy(f"{order.begins_at}/{CHECKPOINTS}", f"{order.storage}/{CHECKPOINTS}")
        _run(order, _connected(spark))
        streams = folders.exists(f"{order.storage}/{CHECKPOINTS}")
        if not order.keep:
            folders.remove(order.storage)
        return Outcome(streams=streams)
    except Exception as error:
        folders.remove(order.storage)
        text = _told(error)
        return failed(text, invalid=isinstance(error, InvalidPipeline))
    finally:
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
        spark.stop()


def failed(text: str, *, invalid: bool = False) -> Outcome:
    """The outcome for the text of an error."""
    conflict = any(word in text for word in _CONFLICTS)
    outage = not conflict and any(word in text for word in _OUTAGES)
    return Outcome(text, conflict=conflict and not invalid, outage=outage and not invalid, invalid=invalid)


def _started(conf: dict[str, str]) -> SparkSession:
    # Nobody else on this machine talks to it.
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = secrets.token_hex(32)
    os.environ["no_grpc_proxy"] = "localhost"  # noqa: SIM112 - as gRPC spells it
    plugins = ",".join(filter(None, (conf.get("spark.plugins"), _PLUGIN)))
    own = {
        "spark.plugins": plugins,
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        "spark.sql.connect.serverStacktrace.enabled": "false",
    }
    builder = SparkSession.builder
    for key, value in {**conf, **own}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connected(spark: SparkSession) -> Any:
    """A session by way of Spark Connect. From now on it is what `SparkSession.active()` gives in this process."""
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    jvm: Any = spark._jvm
    port = getattr(getattr(jvm, _SERVICE), "MODULE$").localPort()
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    return ConnectSession.builder.remote(f"sc://localhost:{port}").getOrCreate()


def _run(order: Order, spark: Any) -> None:
    """As `spark-pipelines run` does it, but for the catalog and the place of the checkpoints."""
    from pyspark.pipelines import cli
    from pyspark.pipelines.output import Output, Sink
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph, handle_pipeline_events, start_run

    class Inside(SparkConnectGraphElementRegistry):
        def register_output(self, output: Output) -> None:
            if isinstance(output, Sink):
                raise InvalidPipeline(
                    f"sink {output.name} is outside of the lake, so what is written there is in no transaction, and "
                    f"stays when the run fails. Write it in a pipeline of its own, from the tables of this one"
                )
            _check_name(output.name, order.catalog)
            super().register_output(output)

    file = Path(order.file)
    spec = cli.load_pipeline_spec(file)
    graph = create_dataflow_graph(
        spark, default_catalog=order.catalog, default_database=order.database, sql_conf=spec.configuration
    )
    cli.register_definitions(file, Inside(spark, graph), spec, spark, graph)
    events = start_run(
        spark,
        graph,
        full_refresh=order.full_refresh,
        full_refresh_all=False,
        refresh=order.refresh,
        dry=False,
        storage=order.storage,
    )
    handle_pipeline_events(events)


def _check_name(name: str, catalog: str) -> None:
    parts = name.replace("`", "").split(".")
    if len(parts) > 2 and parts[0] != catalog:
        raise InvalidPipeline(
            f"table {name} is in catalog {parts[0]}, and the run is a transaction of catalog {catalog}: call it "
            f"{'.'.join(parts[1:])}"
        )


class Folders:
    """Folders wherever Hadoop reaches them: a disk, a bucket."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def exists(self, folder: str) -> bool:
        path = self._path(folder)
        return bool(path.getFileSystem(self._conf).exists(path))

    def copy(self, source: str, target: str) -> None:
        """Nothing, if there is nothing to copy."""
        if not self.exists(source):
            return
        one, other = self._path(source), self._path(target)
        there = other.getFileSystem(self._conf)
        there.mkdirs(other.getParent())
        util = self._jvm.org.apache.hadoop.fs.FileUtil
        if not util.copy(one.getFileSystem(self._conf), one, there, other, False, self._conf):
            raise OSError(f"{source} could not be copied to {target}")

    def remove(self, folder: str) -> None:
        """As well as it goes: what is left over is in nobody's way."""
        path = self._path(folder)
        try:
            path.getFileSystem(self._conf).delete(path, True)
        except Exception as error:
            print(f"{folder} was not removed: {error}", file=sys.stderr)

    def _path(self, text: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(text)


def _told(error: BaseException) -> str:
    if isinstance(error, InvalidPipeline):
        return str(error)
    return f"{type(error).__name__}: " + "\n".join(str(error).strip().splitlines()[:12])


if __name__ == "__main__":
    main()
