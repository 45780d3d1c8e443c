from __future__ import annotations

from typing import Annotated, Any

import typer

from lakepact.cli.options import InTransaction, Json, Token, Uri, WarehouseName, connected, inside, pairs, written
from lakepact.cli.output import print_json, print_rows
from lakepact.client.names import table_name
from lakepact.errors import InvalidRequest


def govern(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="A table or view with its namespace: sales.orders")],
    owner: Annotated[str | None, typer.Option("--owner", help="Whose it is. Empty: nobody's.")] = None,
    description: Annotated[str | None, typer.Option("--description", help="What it is. Empty: nothing.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="NAME=VALUE", help="Set a tag; may be repeated.")
    ] = None,
    untag: Annotated[
        list[str] | None, typer.Option("--untag", metavar="NAME", help="Take a tag away; may be repeated.")
    ] = None,
    protect: Annotated[bool, typer.Option("--protect", help="It cannot be dropped from now on.")] = False,
    unprotect: Annotated[bool, typer.Option("--unprotect", help="It can be dropped again.")] = False,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Show what people say about a table or view, or say it: owner, description, tags, protection."""
    if protect and unprotect:
        raise InvalidRequest("--protect and --unprotect exclude one another; give one of them")
    identifier = written(table_name, name)
    tables = inside(connected(uri, warehouse, token), transaction).tables
    given: dict[str, Any] = {}
    if owner is not None:
        given["owner"] = owner or None
    if description is not None:
        given["description"] = description or None
    if protect or unprotect:
        given["protected"] = protect
    if tag or untag:
        tags = {**tables.governance(identifier)["tags"], **pairs("--tag", tag)}
        given["tags"] = {one: value for one, value in tags.items() if one not in (untag or ())}
    found = tables.govern(identifier, **given) if given else tables.governance(identifier)
    if json:
        print_json({"table": identifier, **found})
        return
    rows = [
        ("owner", found["owner"] or "-"),
        ("description", found["description"] or "-"),
        ("protected", "yes" if found["protected"] else "no"),
        *((f"tag {one}", value) for one, value in sorted(found["tags"].items())),
    ]
    print_rows(("", ""), rows)
