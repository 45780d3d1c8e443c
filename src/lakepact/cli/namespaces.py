from __future__ import annotations

from typing import Annotated

import typer

from lakepact.cli.options import InTransaction, Json, Token, Uri, WarehouseName, connected, inside, pairs, written
from lakepact.cli.output import print_json, print_rows, say
from lakepact.client.names import namespace_name, shown

_Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="Levels are parted by dots: sales.eu")]


def list_(
    parent: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", help="List what is below this one instead of the top.")
    ] = None,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """List namespaces, one level of them."""
    below = None if parent is None else written(namespace_name, parent)
    found = inside(connected(uri, warehouse, token), transaction).namespaces.list(below)
    if json:
        print_json(found)
        return
    print_rows(("namespace",), [(shown(one),) for one in found])


def create(
    name: _Name,
    property: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Create a namespace."""
    namespace, properties = written(namespace_name, name), pairs("--property", property)
    inside(connected(uri, warehouse, token), transaction).namespaces.create(namespace, properties)
    if json:
        print_json({"namespace": namespace, "properties": properties})
        return
    say(f"Created {shown(namespace)}")


def drop(
    name: _Name,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Drop a namespace that has nothing in it."""
    namespace = written(namespace_name, name)
    inside(connected(uri, warehouse, token), transaction).namespaces.drop(namespace)
    if json:
        print_json({"namespace": namespace, "dropped": True})
        return
    say(f"Dropped {shown(namespace)}")
