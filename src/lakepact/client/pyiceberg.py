"""PyIceberg on this client: catalogs inside and outside of transactions, tables of a cut, commits of several tables.

The only module that knows what PyIceberg's transactions are made of. PyIceberg is the
extra `lakepact[pyiceberg]`; without it everything else works.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from lakepact.client.names import document_of, shown
from lakepact.client.place import Place
from lakepact.client.token import source_of
from lakepact.extras import how_to_install

try:
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.io import load_file_io
    from pyiceberg.table import CreateTableTransaction, StaticTable, Table
    from pyiceberg.table import Transaction as TableTransaction
    from pyiceberg.table.metadata import TableMetadataUtil
    from pyiceberg.table.update import AssertCreate, AssertTableUUID, TableRequirement
except ImportError as error:
    raise ImportError(f"this needs PyIceberg: {how_to_install('pyiceberg')}") from error

if TYPE_CHECKING:
    from lakepact.client.tables import LoadedTable

_log = logging.getLogger(__name__)


def rest_catalog(place: Place, warehouse: str, properties: Mapping[str, str] | None = None) -> RestCatalog:
    """Return a catalog of this warehouse, or of a transaction in it: `main@<id>`.

    Raises `ValueError` for properties that say where the catalog is: they would send changes to another place than the
    caller of this function means, or be replaced by what the server answers.
    """
    _check_properties({**place.properties, **(properties or {})}, {"uri": place.uri, "warehouse": warehouse})
    given: dict[str, Any] = {f"header.{name}": value for name, value in place.headers.items()}
    if place.ca_bundle is not None:
        given["ssl"] = {"cabundle": place.ca_bundle}
    if place.credential is not None:
        given |= {"credential": place.credential, "oauth2-server-uri": place.token_endpoint}
    elif place.token is not None:
        given["token"] = source_of(place.token).current()
    given |= {**place.properties, **(properties or {}), "uri": place.uri, "warehouse": warehouse}
    return RestCatalog("lakepact", **given)


def _check_properties(properties: Mapping[str, str], fixed: Mapping[str, str]) -> None:
    for name in ("uri", "warehouse", "prefix"):
        if name in properties and properties[name] != fixed.get(name):
            raise ValueError(
                f"the property {name}={properties[name]!r} cannot be set here: this catalog is of warehouse "
                f"{fixed['warehouse']} at {fixed['uri']}. For a transaction use tx.pyiceberg(), or "
                f"lake.join(transaction_id).begin().pyiceberg(); for another warehouse or server use "
                f"lakepact.connect(uri, warehouse).pyiceberg()"
            )


def static_table(table: LoadedTable) -> StaticTable:
    """The table as it was loaded. It can be read and never refreshes."""
    metadata = TableMetadataUtil.parse_obj(dict(table.metadata))
    properties = {**table.properties, **metadata.properties, **table.config}
    return StaticTable(
        identifier=table.identifier,
        metadata=metadata,
        metadata_location=table.metadata_location,
        io=load_file_io(properties, table.metadata_location),
        catalog=NoopCatalog("cut"),
        config=dict(table.config),
    )


def is_transaction(value: object) -> bool:
    return isinstance(value, TableTransaction)


def change_of(transaction: TableTransaction, prefix: str) -> dict[str, Any] | None:
    """What the transaction has collected, as a table change of the REST protocol. None if it changes nothing."""
    table = transaction._table
    name = shown(table.name())
    belongs_to = table.catalog.properties.get("prefix", prefix)
    if belongs_to != prefix:
        raise ValueError(f"{name} was loaded from {belongs_to}, and this commit is to {prefix}: load it from there")
    if transaction._autocommit:
        raise ValueError(f"the transaction of {name} commits by itself; make it with table.transaction()")
    if getattr(transaction, "_failed", False):
        raise ValueError(f"the transaction of {name} has failed before; make a new one with table.transaction()")
    if not transaction._updates:
        return None
    return {
        "identifier": document_of(table.name()),
        "requirements": [orjson.loads(one.model_dump_json()) for one in _requirements(transaction)],
        "updates": [orjson.loads(one.model_dump_json()) for one in transaction._updates],
    }


def _requirements(transaction: TableTransaction) -> tuple[TableRequirement, ...]:
    if isinstance(transaction, CreateTableTransaction):
        return (AssertCreate(),)
    return (*transaction._requirements, AssertTableUUID(uuid=transaction.table_metadata.table_uuid))


def applied(transactions: Iterable[TableTransaction]) -> None:
    """After the commit: nothing is left to commit, and the tables are what they are now."""
    for transaction in transactions:
        transaction._cleanup_uncommitted_manifests()
        transaction._snapshot_producers = []
        transaction._updates = ()
        transaction._requirements = ()
        _refresh(transaction._table)


def not_applied(transactions: Iterable[TableTransaction]) -> None:
    """After a refusal: what was written for it is of no use, and the transactions cannot be used again."""
    for transaction in transactions:
        for producer in transaction._snapshot_producers:
            producer._clean_all_uncommitted()
        transaction._failed = True


def in_doubt(transactions: Iterable[TableTransaction]) -> None:
    """It may have happened: nothing is deleted, and it must not be sent again under another key."""
    for transaction in transactions:
        transaction._failed = True


def _refresh(table: Table) -> None:
    try:
        # Not `refresh`: a table that was only staged refuses to.
        fresh = table.catalog.load_table(table.name())
    except Exception as error:
        # The commit has happened. An error here would say otherwise.
        _log.warning("%s is committed, and could not be loaded again: %s", shown(table.name()), error)
        return
    table.metadata, table.metadata_location = fresh.metadata, fresh.metadata_location
    table.io, table.config = fresh.io, fresh.config
