"""A lake as a Spark program sees it: transactions from a session, and the plain client beside it."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import lakepact.client
from lakepact.client import Conflict, Lake, Name, Retry
from lakepact.client.transactions import Isolation
from lakepact.spark.caches import refresh
from lakepact.spark.clones import Clone
from lakepact.spark.delta_files import read_files
from lakepact.spark.errors import conflict_in
from lakepact.spark.names import full_name, plain_name
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
            if len(plain) < 2 or not self.plain.delta.exists(plain):
                raise
            return read_files(spark, self.plain.delta.load(plain))

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
        key: str | None = None,
    ) -> SparkTransaction:
        """A transaction over any number of tables, to be used with `with`: committed at the end, aborted on an error.

        `isolation` is `serializable` unless `snapshot` is asked for; `ttl` for how many seconds it may live without
        being renewed, which happens by itself; `properties` are kept with it; `source` goes into the receipts, and
        `summary` into the snapshots of everything it writes. `key`, a UUIDv7, becomes its id.
        """
        plain = self.plain.transaction(ttl=ttl, isolation=isolation, properties=properties, key=key)
        return SparkTransaction(
            plain, self.spark, self._catalogs, source=source, summary=summary, ended=self._transaction_ended
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
        """Do `work` in a transaction, and all of it again in a fresh one while somebody else is faster.

        What it does outside of the transaction happens once an attempt, so it had better do nothing there. Returns
        what `work` returned in the attempt that was committed; after the last one the `Conflict` is raised. An
        `Unknown` outcome is never repeated.
        """
        if attempts < 1:
            raise ValueError(f"attempts is 1 or more, not {attempts}")
        retry = Retry(attempts, first_pause_s=0.05)
        for attempt in range(1, attempts + 1):
            transaction = self.transaction(
                isolation=isolation, ttl=ttl, properties=properties, source=source, summary=summary
            )
            try:
                with transaction:
                    result = work(transaction)
                return result
            except Exception as error:
                conflict = conflict_in(error)
                if conflict is None or transaction.outcome in (_COMMITTED, "unknown"):
                    raise
                if attempt == attempts:
                    raise _given_up(conflict, attempts) from error
            time.sleep(retry.pause_s(attempt, random.random()))
        raise AssertionError("unreachable: the last attempt returns or raises")

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


def _given_up(conflict: Conflict, attempts: int) -> Conflict:
    return Conflict(
        f"gave up after {attempts} attempts, others were faster each time: {conflict}",
        status=conflict.status,
        server_type=conflict.server_type,
        details=conflict.details,
    )
