"""The active session, while a run is going on: in a stage it is the stage's own, everywhere else what it was.

PySpark keeps one active session a process, and `createDataFrame` moves it. Stages run side by side, each in a session
of its own inside the transaction; so while they do, a thread is asked first. Afterwards everything is as it was: no
session of an ended transaction is left behind as the active one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from pyspark.sql import SparkSession

_GETTER: Final = "getActiveSession"
_inside: ContextVar[SparkSession | None] = ContextVar("lakepact_session", default=None)
_lock = threading.Lock()
_runs: list[Any] = []
"""What to restore, once for each run that is going on; only the first one's counts."""


def activate(spark: SparkSession) -> None:
    """From now on this is the active session of this thread, which belongs to the run."""
    _inside.set(spark)
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


@contextmanager
def by_thread() -> Iterator[None]:
    """In this block threads have active sessions of their own."""
    sessions: Any = SparkSession
    with _lock:
        original = sessions.__dict__[_GETTER]
        _runs.append((original, sessions._activeSession))
        if len(_runs) == 1:
            setattr(sessions, _GETTER, _asking_the_thread_first(original))
    try:
        yield
    finally:
        with _lock:
            first = _runs[0]
            _runs.pop()
            if not _runs:
                setattr(sessions, _GETTER, first[0])
                sessions._activeSession = first[1]


def _asking_the_thread_first(original: Any) -> Any:
    def get_active_session(cls: type[SparkSession]) -> SparkSession | None:
        found = _inside.get()
        if found is not None:
            return found
        outside: SparkSession | None = original.__get__(None, cls)()
        return outside

    return classmethod(get_active_session)
