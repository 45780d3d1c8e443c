from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from lakepact.cli.options import (
    InTransaction,
    Json,
    Token,
    Uri,
    WarehouseName,
    connected,
    iceberg_table,
    inside,
    told_if_delta,
    written,
)
from lakepact.cli.output import instant, print_json, print_rows, say
from lakepact.client import Identifier, Lake, LoadedTable, NotFound, Refused, Transaction
from lakepact.client.names import namespace_name, shown, table_name

_Table = Annotated[str, typer.Argument(metavar="TABLE", help="With its namespace: sales.orders")]


def list_(
    namespace: Annotated[
        str | None,
        typer.Argument(metavar="NAMESPACE", help="Levels are parted by dots: sales.eu. Without it: all there are."),
    ] = None,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """List the tables of a namespace, or of the warehouse."""
    where = inside(connected(uri, warehouse, token), transaction)
    if namespace is not None:
        namespaces = [written(namespace_name, namespace)]
        found = where.tables.list(namespaces[0])
    else:
        namespaces = list(where.namespaces.walk())
        found = tuple(one for levels in namespaces for one in _listed(where, levels))
    if json:
        print_json(found)
        return
    print_rows(("table",), [(shown(one),) for one in found])
    # A store of documents has none, and says so.
    with suppress(Refused):
        for levels in namespaces:
            if others := len(where.delta.list(levels)):
                say(f"and {others} Delta tables: lakepact delta list {shown(levels)}", err=True)


def _listed(where: Lake | Transaction, namespace: Identifier) -> tuple[Identifier, ...]:
    try:
        return where.tables.list(namespace)
    except NotFound:
        # It has gone since it was listed.
        return ()


def show(
    name: _Table,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Show a table: where it is, its columns, its snapshots."""
    identifier = written(table_name, name)
    table = iceberg_table(inside(connected(uri, warehouse, token), transaction), identifier, "show")
    if json:
        print_json(
            {"table": identifier, "metadata-location": table.metadata_location, "metadata": dict(table.metadata)}
        )
        return
    _print(table)


def drop(
    name: _Table,
    purge: Annotated[bool, typer.Option("--purge", help="Ask for its files to be deleted too.")] = False,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Take a table out of the catalog."""
    identifier = written(table_name, name)
    where = inside(connected(uri, warehouse, token), transaction)
    with told_if_delta(where, identifier, "drop"):
        where.tables.drop(identifier, purge=purge)
    if json:
        print_json({"table": identifier, "dropped": True})
        return
    say(f"Dropped {shown(identifier)}")


def rename(
    source: _Table,
    target: Annotated[str, typer.Argument(metavar="NEW", help="Its new name, with its namespace.")],
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Give a table another name."""
    old, new = written(table_name, source), written(table_name, target)
    where = inside(connected(uri, warehouse, token), transaction)
    with told_if_delta(where, old, "rename"):
        where.tables.rename(old, new)
    if json:
        print_json({"source": old, "destination": new})
        return
    say(f"Renamed {shown(old)} to {shown(new)}")


def register(
    name: _Table,
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="Its metadata file, inside the warehouse.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Move a table that is there already to this file.")
    ] = False,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Take over a table by its metadata file."""
    identifier = written(table_name, name)
    tables = inside(connected(uri, warehouse, token), transaction).tables
    table = tables.register(identifier, location, overwrite=overwrite)
    if json:
        print_json({"table": identifier, "metadata-location": table.metadata_location})
        return
    say(f"Registered {shown(identifier)} from {table.metadata_location}")


def _print(table: LoadedTable) -> None:
    metadata = table.metadata
    facts = [
        ("table", table.name),
        ("uuid", table.uuid),
        ("format version", str(metadata["format-version"])),
        ("location", metadata["location"]),
        ("metadata", table.metadata_location),
        ("last updated", instant(metadata["last-updated-ms"])),
        ("snapshot", "-" if table.snapshot_id is None else str(table.snapshot_id)),
    ]
    properties = metadata.get("properties") or {}
    print_rows(("", ""), facts + [(f"property {name}", str(value)) for name, value in properties.items()])
    schemas = {schema.get("schema-id", 0): schema for schema in metadata.get("schemas") or [metadata.get("schema", {})]}
    fields = schemas.get(metadata.get("current-schema-id", 0), {}).get("fields", ())
    say("\nColumns:")
    print_rows(
        ("id", "name", "type", ""),
        [(str(one["id"]), one["name"], _type(one["type"]), "required" if one["required"] else "") for one in fields],
    )
    if snapshots := metadata.get("snapshots"):
        say("\nSnapshots:")
        print_rows(
            ("snapshot", "at", "operation", "rows"),
            [
                (
                    str(one["snapshot-id"]),
                    instant(one["timestamp-ms"]),
                    (one.get("summary") or {}).get("operation", "-"),
                    (one.get("summary") or {}).get("total-records", "-"),
                )
                for one in snapshots
            ],
        )


def _type(kind: object) -> str:
    """A nested type by its kind alone: `--json` has the whole of it."""
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)
