"""Streams: every batch is one transaction over many tables, exactly once.

    def write(tx, batch):
        tx.write(batch, "sales.orders")
        tx.write(batch.groupBy("day").count(), "sales.counts", mode="merge", keys="day")

    stream.writeStream.foreachBatch(dp.sink(lake, "orders", write)).option("checkpointLocation", …).start()

Spark gives a batch again after a crash, under the same number. Which batch came last is a document that is compared and
written in the same transaction as the tables, so a batch that is in is not put in again, however much later it comes.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from lakepact.client.transactions import Isolation
from lakepact.pipelines.errors import InvalidPipeline, RunFailed
from lakepact.pipelines.positions import FORMAT, stream_document
from lakepact.spark import SparkLake, SparkTransaction, connect

Write: TypeAlias = Callable[[SparkTransaction, DataFrame], None]

_QUERY_ID: Final = "sql.streaming.queryId"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DEFAULT_ATTEMPTS: Final = 5
_log = logging.getLogger(__name__)


def sink(
    lake: SparkLake,
    name: str,
    write: Write,
    *,
    isolation: Isolation = "snapshot",
    attempts: int = _DEFAULT_ATTEMPTS,
) -> Callable[[DataFrame, int], None]:
    """What `foreachBatch` takes. `name` is that of the stream's position: one a stream, the same after every restart.

    `write` is called with a transaction and the batch, and again in a fresh transaction while others are faster. A
    stream that begins with a new checkpoint counts its batches anew, and what it gives is taken as new.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidPipeline(f"{name!r} is no name for a stream: letters, digits, '.', '_' and '-', at most 100")
    document = stream_document(name)
    lakes = _Lakes(lake)

    def each(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        own = lakes.of(spark)
        query_id = spark.sparkContext.getLocalProperty(_QUERY_ID) or name
        told = {"stream": name, "query-id": query_id, "batch-id": str(batch_id)}

        def work(tx: SparkTransaction) -> None:
            last = tx.state.get(document)
            if _is_in(last.value, query_id, batch_id):
                _log.info("batch %s of stream %s is in already", batch_id, name)
                tx.abort()
                return
            write(tx, batch)
            value = {"format": FORMAT, "query-id": query_id, "batch-id": batch_id}
            tx.state.put(document, value, revision=last.revision)
            tx.commit({"kind": "pipeline", **told})

        own.run(
            work,
            attempts=attempts,
            isolation=isolation,
            properties=told,
            summary={f"lakepact.{key}": value for key, value in told.items()},
        )

    return each


class _Lakes:
    """The lake of a stream's session. A stream has one of its own, the same for all its batches, and a frame is written
    by the session it belongs to."""

    def __init__(self, outside: SparkLake) -> None:
        self._outside = outside
        self._session: int | None = None
        self._lake: SparkLake | None = None

    def of(self, spark: SparkSession) -> SparkLake:
        jvm: Any = spark._jvm
        session = int(jvm.java.lang.System.identityHashCode(spark._jsparkSession))
        if self._lake is None or session != self._session:
            plain = self._outside.plain
            self._lake = connect(
                spark, plain.uri, plain.warehouse, plain.place.token, credential=plain.place.credential
            )
            self._session = session
        return self._lake


def _is_in(last: Any, query_id: str, batch_id: int) -> bool:
    if last is None:
        return False
    if last.get("format") != FORMAT:
        raise RunFailed(f"the stream's document has format {last.get('format')!r}, and this release knows {FORMAT}")
    return bool(last["query-id"] == query_id and batch_id <= last["batch-id"])
