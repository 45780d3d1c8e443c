"""A lake as a Spark program sees it: transactions from a session, and the plain client beside it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import lakepact.client
from lakepact.client import Lake, Name, NotFound, Unavailable
from lakepact.client.outages import causes
from lakepact.client.runs import run_in_transaction
from lakepact.client.transactions import Isolation
from lakepact.spark.caches import refresh
from lakepact.spark.clones import Clone
from lakepact.spark.delta_files import read_files
from lakepact.spark.errors import TransactionUnfit, conflict_in, is_outage, java_exceptions
from lakepact.spark.names import DeltaNames, full_name, plain_name
from lakepact.spark.session import check_session
from lakepact.spark.settings import (
    DEFAULT_CATALOG,
    PREFIX,
    CatalogSettings,
    catalog_settings,
    chosen_catalog,
    rest_catalogs,
)
from lakepact.spark.transaction import SparkTransaction

T = TypeVar("T")

_COMMITTED: Final = "committed"
# Frames of a committed transaction can be read for a while: the server answers them for ten minutes. But a program that
# makes one transaction after another must not keep a connection for each of them.
_KEPT: Final = 16
_KEPT_S: Final = 600.0
_REST_EXCEPTION: Final = "org.apache.iceberg.exceptions.RESTException"
_COMMIT_UNKNOWN: Final = "org.apache.iceberg.exceptions.CommitStateUnknownException"
_REST_ERRORS: Final = (
    _REST_EXCEPTION,
    _COMMIT_UNKNOWN,
    "org.apache.iceberg.exceptions.ServiceUnavailableException",
)
"""Errors of Iceberg's REST client for a server that is away. It wraps every connection error in the first one."""


def connect(
    spark: SparkSession,
    uri: str | None = None,
    warehouse: str | None = None,
    token: str | None = None,
    *,
    credential: str | None = None,
    oauth2_server_uri: str | None = None,
) -> SparkLake:
    """The lake of a session that is running: one of `lakepact.spark.session`, or your own.

    `uri`, `warehouse`, `token` and `credential` are those of the session's current catalog, or of its only one at a
    REST server, unless given. Raises `InvalidSetting` for a session without the right Iceberg runtime, and what the
    client raises.
    """
    check_session(spark)
    catalogs = rest_catalogs(spark.conf.getAll)
    if uri is None:
        current = chosen_catalog(catalogs, spark.catalog.currentCatalog())
        headers = current.headers
        uri, warehouse = current.uri, warehouse or current.warehouse
        if not token and credential is None:
            # Iceberg allows both; a credential can be exchanged again when the token has expired.
            token, credential = None if current.credential else current.token, current.credential
            oauth2_server_uri = oauth2_server_uri or _elsewhere(current)
    else:
        uri, headers, current = uri.rstrip("/"), {}, None
    plain = lakepact.client.connect(
        uri, warehouse, token, credential=credential, oauth2_server_uri=oauth2_server_uri, headers=headers
    )
    own = [catalog for catalog in catalogs if _is_at(catalog, plain, warehouse)]
    if not own:
        place = plain.place
        own = [catalog_settings(_free_name(spark, plain), place.uri, place.warehouse, place.token, place.credential)]
    own.sort(key=lambda catalog: (catalog is not current, catalog.name))
    return SparkLake(spark, plain, tuple(own))


class SparkLake:
    """One warehouse, from one session. Safe to share between threads."""

    def __init__(self, spark: SparkSession, plain: Lake, catalogs: tuple[CatalogSettings, ...]) -> None:
        self.spark = spark
        """The user's session. Nothing here changes it or stops it."""

        self.plain = plain
        """The client: namespaces, tables as documents, cuts, transactions by id, documents of your own."""

        self._catalogs = catalogs
        self._lock = threading.Lock()
        self._outside: Clone | None = None
        self._ended: deque[tuple[float, Sequence[Clone]]] = deque()

        self.delta_names = DeltaNames()
        """Tables that were Delta tables when they were last used here."""

    @property
    def catalog(self) -> str:
        """The name that the lake has in SQL."""
        return self._catalogs[0].name

    def __repr__(self) -> str:
        return f"SparkLake({self.plain.uri}, {self.plain.warehouse})"

    # --- outside of transactions ---

    def table(self, name: Name) -> DataFrame:
        """A table as it is committed, of either format."""
        aliases = [catalog.name for catalog in self._catalogs]
        spark = self._main().spark
        try:
            return spark.table(full_name(name, self.catalog, aliases))
        except AnalysisException:
            plain = plain_name(name, self.catalog, aliases)
            if len(plain) > 1:
                with suppress(NotFound):
                    return read_files(spark, self.plain.delta.load(plain))
            raise

    def sql(self, text: str, args: dict[str, Any] | list[Any] | None = None, **values: Any) -> DataFrame:
        """A statement of its own, outside of any transaction, with the lake as the current catalog."""
        return self._main().sql(text, args, **values)

    # --- transactions ---

    def transaction(
        self,
        *,
        isolation: Isolation | None = None,
        ttl: float | None = None,
        properties: Mapping[str, str] | None = None,
        source: Mapping[str, Any] | None = None,
        summary: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> SparkTransaction:
        """A transaction over any number of tables, to be used with `with`: committed at the end, aborted on an error.

        `isolation` is `serializable` unless `snapshot` is asked for; `ttl` for how many seconds it may live without
        being renewed, which happens by itself; `properties` are kept with it; `source` goes into the receipts, and
        `summary` into the snapshots of everything it writes. `conf` are settings of the session inside. `key`, a
        UUIDv7, becomes its id.
        """
        plain = self.plain.transaction(ttl=ttl, isolation=isolation, properties=properties, key=key)
        return SparkTransaction(
            plain,
            self.spark,
            self._catalogs,
            source=source,
            summary=summary,
            conf=conf,
            delta_names=self.delta_names,
            ended=self._transaction_ended,
        )

    def run(
        self,
        work: Callable[[SparkTransaction], T],
        *,
        attempts: int = 5,
        isolation: Isolation | None = None,
        ttl: float | None = None,
        properties: Mapping[str, str] | None = None,
        source: Mapping[str, Any] | None = None,
        summary: Mapping[str, str] | None = None,
    ) -> T:
        """Run `work` in a transaction, and again in a new one if another commit was faster or the server was away.

        What it does outside of the transaction happens once an attempt, so it had better do nothing there. Returns
        what `work` returned in the attempt that was committed; after the last one the `Conflict` is raised. A server
        that does not answer is waited for up to a minute, five times at most, with a pause before each repetition. A
        commit without an answer is then sent again, which is safe; `work` is repeated only if nothing was committed.
        Raises `Unknown` if the server does not tell in that time.

        Other changes are never repeated in doubt. `work` may change something outside of its transaction, such as with
        `lake.plain.write` or `lake.sql`; if the outcome of that is unknown, the error is raised and `work` is not
        repeated. A connection error in Java is an outage only if it came from Iceberg's REST client, or names this
        server's host and port: connection errors of databases and storage are raised. If a write was sent with
        `tx.spark` and not with `tx.sql` or `tx.write`, its connection error is raised as well, for it cannot be told
        from a write outside of the transaction.
        """
        return run_in_transaction(
            lambda: self.transaction(
                isolation=isolation, ttl=ttl, properties=properties, source=source, summary=summary
            ),
            work,
            attempts,
            self.plain.outages(),
            is_outage=lambda error, transaction: _is_lake_outage(error, self.plain.uri),
            conflict_in=conflict_in,
        )

    # --- its parts ---

    def _main(self) -> Clone:
        with self._lock:
            if self._outside is None:
                self._outside = Clone(self.spark, [catalog.at(self.plain.warehouse) for catalog in self._catalogs])
            return self._outside

    def _transaction_ended(self, transaction: SparkTransaction, clones: Sequence[Clone]) -> None:
        now_s = time.monotonic()
        if transaction.outcome == _COMMITTED:
            refresh(self.spark, self._catalogs, transaction.results)
        with self._lock:
            self._ended.append((now_s, clones))
            closing: list[Clone] = []
            while len(self._ended) > _KEPT or (self._ended and self._ended[0][0] < now_s - _KEPT_S):
                closing += self._ended.popleft()[1]
        for old in closing:
            old.close()


def _is_at(catalog: CatalogSettings, plain: Lake, asked: str | None) -> bool:
    """Whether a catalog is this lake. One that names no warehouse is at the server's default one, whichever that is."""
    if catalog.uri != plain.uri:
        return False
    if catalog.warehouse is not None:
        return catalog.warehouse == plain.warehouse
    if asked is None:
        return True
    with lakepact.client.connect(
        catalog.uri,
        None,
        catalog.token,
        credential=catalog.credential,
        oauth2_server_uri=_elsewhere(catalog),
        headers=catalog.headers,
    ) as default:
        return default.warehouse == plain.warehouse


def _elsewhere(catalog: CatalogSettings) -> str | None:
    """The place at which the catalog's credential is exchanged, if it is not the server itself."""
    place = catalog.oauth2_server_uri
    # Iceberg takes a path for one below the server's address.
    return place if place and "://" in place and not place.startswith(f"{catalog.uri}/") else None


def _free_name(spark: SparkSession, plain: Lake) -> str:
    """A name for a catalog that the session does not have yet. Spark mistakes one for a namespace of the same name."""
    taken = {levels[0] for levels in plain.namespaces.list()}
    taken |= {key.removeprefix(PREFIX).split(".")[0] for key in spark.conf.getAll if key.startswith(PREFIX)}
    # Not `lakepact`: that is the namespace of the projections.
    names = (DEFAULT_CATALOG, *(f"lakepact_{number}" for number in range(len(taken) + 1)))
    return next(name for name in names if name not in taken)


def _is_lake_outage(error: BaseException, uri: str) -> bool:
    """Return whether the lake's server did not answer, and no change outside of the transaction is in doubt.

    `is_outage` alone is also true for a database or a storage service that Spark could not connect to.
    """
    if not is_outage(error):
        return False
    chain = list(causes(error))
    thrown = [one for cause in chain for one in java_exceptions(cause)]
    if not thrown:
        # The client's own error.
        return True
    server = urlsplit(uri).netloc
    named = [(str(one.getClass().getName()), str(one.getMessage() or "")) for one in thrown]
    if not any(kind in _REST_ERRORS or server in message for kind, message in named):
        return False
    # A statement of the transaction raises one of these. Any other write may have been outside of it.
    in_transaction = any(isinstance(cause, Unavailable | TransactionUnfit) for cause in chain)
    return in_transaction or not any(
        kind == _COMMIT_UNKNOWN or (kind == _REST_EXCEPTION and "POST request" in message) for kind, message in named
    )
