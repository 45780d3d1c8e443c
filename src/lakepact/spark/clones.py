"""A clone of the user's session, in which the catalogs of one lake are at another warehouse: inside a transaction.

Spark binds the name of a catalog to one place for a session's life, and what is current in a session is current for all
its threads. So a transaction works in a session of its own, which Spark makes for its streams in the same way: same
context, same executors, same settings, temporary views and functions, but its own catalogs and its own `USE`. The
user's session is never touched. Qualified names stay inside, too: `lake.sales.orders` is the transaction's.

All that this package asks of Spark's Java side beyond PySpark's public interface is asked here.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from lakepact.client import Identifier
from lakepact.errors import InvalidSetting, LakepactError
from lakepact.spark.settings import PREFIX, CatalogSettings
from lakepact.spark.views import TemporaryViews

_making = threading.Lock()
_outside: list[SparkSession | None] = [None]
"""The session that was active in the process when one of ours last took its place."""

_log = logging.getLogger(__name__)

_SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"


class Clone:
    """`catalogs` are where they should be, the first of them current. `conf` holds for this clone alone.

    The clone of a clone uses the catalogs of its parent, unless `conf` has settings of catalogs.
    """

    def __init__(
        self,
        parent: SparkSession | Clone,
        catalogs: Sequence[CatalogSettings],
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self._parent = parent if isinstance(parent, Clone) else None
        source: SparkSession = parent.spark if isinstance(parent, Clone) else parent
        self._java: Any = java_session(source).cloneSession()
        self.spark: SparkSession = _wrapped(source, self._java)
        self.catalog = catalogs[0].name
        self._views = TemporaryViews(source._jvm, java_session(source), self._java)
        self._lock = threading.Lock()
        settings = {key: value for catalog in catalogs for key, value in catalog.to_conf().items()}
        for key, value in {**settings, **(conf or {}), "spark.sql.defaultCatalog": self.catalog}.items():
            self.spark.conf.set(key, value)
        changed = any(key.startswith(PREFIX) for key in conf or ())
        if self._parent is None or changed:
            self._catalogs = self._attached(catalogs)
        else:
            # The parent's catalogs are inside the same transaction, and the parent closes them.
            self._catalogs = []
            manager = java_session(source).sessionState().catalogManager()
            _share_catalogs(manager, self._java.sessionState().catalogManager(), [one.name for one in catalogs])

    def sql(self, text: str, args: dict[str, Any] | list[Any] | None = None, **values: Any) -> DataFrame:
        own = {key: self.own(value) if isinstance(value, DataFrame) else value for key, value in values.items()}
        self.catch_up()
        return self.spark.sql(text, args, **own)

    def own(self, frame: DataFrame) -> DataFrame:
        """The same rows as a frame of this session: a frame is written by the session it belongs to."""
        return moved_to(self.spark, frame)

    def catch_up(self) -> None:
        """Take over the temporary views that have come or changed in the user's session."""
        if self._parent is not None:
            self._parent.catch_up()
        with self._lock:
            self._views.catch_up()

    def close(self) -> None:
        """Close the catalogs' connections. Frames of this session cannot be read any more."""
        for catalog in self._catalogs:
            try:
                catalog.close()
            except Exception as error:
                # Spark itself may have been stopped, and with it everything there was to close.
                _log.info("catalog %s was not closed: %s", self.catalog, error)

    def _attached(self, catalogs: Sequence[CatalogSettings]) -> list[Any]:
        """The catalogs, made now and looked at. Spark makes a catalog by the settings of the session that is active in
        the thread: made later by somebody else's, it would be outside and nobody would notice."""
        manager = self._java.sessionState().catalogManager()
        found = []
        with _active(self.spark, self._java):
            for settings in catalogs:
                catalog = manager.catalog(settings.name).icebergCatalog()
                if catalog.properties().get("warehouse") != settings.warehouse:
                    raise LakepactError(
                        f"catalog {settings.name} is not at {settings.warehouse}: nothing is done in it"
                    )
                found.append(catalog)
        return found


class _Session(SparkSession):
    """A session inside a transaction. It never becomes the active one, neither of a thread nor of the process.

    PySpark lets `createDataFrame` make it so, and it would stay so when the transaction has ended.
    """

    def createDataFrame(self, *args: Any, **named: Any) -> DataFrame:
        with _active(self, self._jsparkSession), _active_in_python_again():
            return super().createDataFrame(*args, **named)


def is_inside(spark: SparkSession) -> bool:
    """Whether this is the session of a `Clone`, not the user's own."""
    return isinstance(spark, _Session)


def moved_to(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The same query as a frame of another session."""
    if frame.sparkSession is spark:
        return frame
    dataset: Any = spark._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]
    return DataFrame(dataset.ofRows(java_session(spark), frame._jdf.logicalPlan()), spark)


def java_session(spark: SparkSession) -> Any:
    java = getattr(spark, "_jsparkSession", None)
    if java is None:
        raise InvalidSetting(
            "this session is a Spark Connect client, and transactions need the driver itself: run the program with "
            "spark-submit, or start a session with lakepact.spark.session(...)"
        )
    return java


def iceberg_jar(spark: SparkSession) -> str | None:
    """The jar that a session's Iceberg comes from. None: it has none."""
    found = java_class(spark, _SPARK_CATALOG)
    if found is None:
        return None
    source = found.getProtectionDomain().getCodeSource()
    return "" if source is None else str(source.getLocation()).rpartition("/")[2]


def java_class(spark: SparkSession, name: str) -> Any | None:
    """A class that the session can load. None: it cannot."""
    java_session(spark)
    jvm: Any = spark._jvm
    try:
        # Jars that were added to a session are not on the path that `Class.forName` knows by itself.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return jvm.java.lang.Class.forName(name, False, loader)
    except Exception:
        return None


def has_cached_frames(spark: SparkSession) -> bool:
    return not java_session(spark).sharedState().cacheManager().isEmpty()


def loaded_catalogs(spark: SparkSession) -> list[str]:
    """The names of the catalogs that the session has used."""
    java, jvm = java_session(spark), spark._jvm
    names = java.sessionState().catalogManager().listCatalogs(jvm.scala.Option.empty())  # type: ignore[union-attr]
    return str(names.mkString("\n")).split("\n")


def invalidate_table(spark: SparkSession, catalog: str, identifier: Identifier) -> None:
    """Let a catalog that the session has used forget a table. No request is sent."""
    java, jvm, gateway = java_session(spark), spark._jvm, spark.sparkContext._gateway
    assert jvm is not None and gateway is not None
    *levels, name = identifier
    namespace = gateway.new_array(jvm.java.lang.String, len(levels))
    for index, level in enumerate(levels):
        namespace[index] = level
    table = jvm.org.apache.spark.sql.connector.catalog.Identifier.of(namespace, name)
    java.sessionState().catalogManager().catalog(catalog).invalidateTable(table)


def _share_catalogs(source: Any, target: Any, names: Sequence[str]) -> None:
    """Let one Java session use the catalog objects of another one.

    A catalog of its own would cost every stage a request, and connections that nobody else uses. Spark has no public
    way to do this.
    """
    field = target.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    catalogs = field.get(target)
    for name in names:
        catalogs.put(name, source.catalog(name))


def _wrapped(source: SparkSession, java: Any) -> SparkSession:
    # Making a session takes `rdd.toDF()` over for it, in the whole process. It stays with the session that had it.
    with _making:
        before = RDD.toDF
        try:
            return _Session(source.sparkContext, java)
        finally:
            RDD.toDF = before  # type: ignore[method-assign]


@contextmanager
def _active(spark: SparkSession, java: Any) -> Iterator[None]:
    sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
    before = sessions.getActiveSession()
    sessions.setActiveSession(java)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def _active_in_python_again() -> Iterator[None]:
    """After this block the process has the active session it had, whoever else is in such a block meanwhile."""
    sessions: Any = SparkSession
    with _making:
        if not isinstance(sessions._activeSession, _Session):
            _outside[0] = sessions._activeSession
    try:
        yield
    finally:
        with _making:
            if isinstance(sessions._activeSession, _Session):
                sessions._activeSession = _outside[0]
