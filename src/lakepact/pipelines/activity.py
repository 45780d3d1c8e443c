"""Spark sessions while a run is going on: inside the function of a stage, all of them are the stage's.

PySpark keeps one active session a process, and `createDataFrame` moves it. Stages run side by side, each in a session
of its own inside the transaction. So while a run lasts, `SparkSession.getActiveSession` answers by thread.

A stage may also call a helper of another module that keeps the user's session. Read through that session, a table would
be read outside of the transaction, at the version from before the run. So while a run lasts, `table`, `sql` and `read`
of any session use the stage's session inside the function of a stage, and report what they read to its `Reader`.

Afterwards everything is as it was: no session of an ended transaction is left behind as the active one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from lakepact.pipelines.context import Reader, current_reader
from lakepact.pipelines.sqltables import tables_in
from lakepact.spark.clones import is_inside, moved_to

_PATCHED: Final = ("getActiveSession", "table", "sql", "read")
_UNKNOWN_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"

_inside: ContextVar[SparkSession | None] = ContextVar("lakepact_session", default=None)
_lock = threading.Lock()
_runs: list[tuple[dict[str, Any], Any]] = []
"""The original members of `SparkSession` and its active session, once for each run; only the first one's counts."""


def activate(spark: SparkSession) -> None:
    """From now on this is the active session of this thread, which belongs to the run."""
    _inside.set(spark)
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


@contextmanager
def by_thread() -> Iterator[None]:
    """In this block threads have active sessions of their own, and stages read through theirs."""
    sessions: Any = SparkSession
    with _lock:
        originals = {name: sessions.__dict__[name] for name in _PATCHED}
        _runs.append((originals, sessions._activeSession))
        if len(_runs) == 1:
            sessions.getActiveSession = _active_by_thread(originals["getActiveSession"])
            sessions.table = _observed_table(originals["table"])
            sessions.sql = _observed_sql(originals["sql"])
            sessions.read = _observed_read(originals["read"])
    try:
        yield
    finally:
        with _lock:
            originals, active = _runs[0]
            _runs.pop()
            if not _runs:
                for name, original in originals.items():
                    setattr(sessions, name, original)
                sessions._activeSession = active


def _active_by_thread(original: Any) -> Any:
    def get_active_session(cls: type[SparkSession]) -> SparkSession | None:
        found = _inside.get()
        if found is not None:
            return found
        outside: SparkSession | None = original.__get__(None, cls)()
        return outside

    return classmethod(get_active_session)


def _observed_table(original: Callable[..., DataFrame]) -> Any:
    def table(self: SparkSession, tableName: str) -> DataFrame:
        reader = current_reader()
        if reader is None:
            return original(self, tableName)
        return _observed(reader, (tableName,), lambda: original(_session(self, reader), tableName))

    return table


def _observed_sql(original: Callable[..., DataFrame]) -> Any:
    def sql(self: SparkSession, sqlQuery: str, args: Any = None, **values: Any) -> DataFrame:
        reader = current_reader()
        if reader is None:
            return original(self, sqlQuery, args, **values)
        session = _session(self, reader)
        if session is not self:
            # The query finds frames by name in the session that runs it.
            values = {
                name: moved_to(session, value) if isinstance(value, DataFrame) else value
                for name, value in values.items()
            }
        return _observed(reader, tables_in(sqlQuery), lambda: original(session, sqlQuery, args, **values))

    return sql


def _observed_read(original: Any) -> Any:
    def read(self: SparkSession) -> DataFrameReader:
        reader = current_reader()
        if reader is None:
            outside: DataFrameReader = original.__get__(self, type(self))
            return outside
        return _StageDataFrameReader(_session(self, reader), reader)

    return property(read)


class _StageDataFrameReader(DataFrameReader):
    """`spark.read` inside the function of a stage."""

    def __init__(self, spark: SparkSession, reader: Reader) -> None:
        super().__init__(spark)
        self._reader = reader

    def table(self, tableName: str) -> DataFrame:
        return _observed(self._reader, (tableName,), lambda: super(_StageDataFrameReader, self).table(tableName))

    def load(self, path: Any = None, format: str | None = None, schema: Any = None, **options: Any) -> DataFrame:
        names = (path,) if isinstance(path, str) and "/" not in path else ()
        return _observed(
            self._reader, names, lambda: super(_StageDataFrameReader, self).load(path, format, schema, **options)
        )


def _observed(reader: Reader, names: tuple[str, ...], read: Callable[[], DataFrame]) -> DataFrame:
    reader.require(names, tables=False)
    try:
        frame = read()
    except AnalysisException as error:
        if _UNKNOWN_TABLE in str(error):
            # A table that an unfinished stage of this run creates is not there yet.
            reader.require(names, tables=True)
        raise
    return reader.observe(frame)


def _session(spark: SparkSession, reader: Reader) -> SparkSession:
    """The session to read through: one inside a transaction stays, any other is the stage's."""
    return spark if is_inside(spark) else reader.session
