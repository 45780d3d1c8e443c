from __future__ import annotations

from typing import Annotated

import typer

from lakepact.cli.options import Json, Token, Uri, WarehouseName, connected, written
from lakepact.cli.output import instant, print_json, print_rows, say
from lakepact.client.names import shown, table_name


def dropped(uri: Uri = None, warehouse: WarehouseName = None, token: Token = None, json: Json = False) -> None:
    """List what was dropped and can come back: tables of both formats, and views."""
    found = connected(uri, warehouse, token).tables.dropped()
    if json:
        print_json(found)
        return
    print_rows(
        ("table", "id", "kind", "dropped", "kept until", "files", "state"),
        [
            (
                one.name,
                one.id,
                one.kind,
                instant(one.dropped_ms),
                instant(one.retained_until_ms),
                "go then" if one.purge else "stay",
                one.state,
            )
            for one in found
        ],
    )


def undrop(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The name it had: sales.orders")],
    id: Annotated[
        str | None, typer.Option("--id", help="Which one, if several had this name. Default: the one dropped last.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="NEW", help="Bring it back under another name.")] = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Bring back a dropped table or view, with its files and its history."""
    identifier = written(table_name, name)
    target = None if to is None else written(table_name, to)
    back = connected(uri, warehouse, token).tables.undrop(identifier, id=id, to=target)
    if json:
        print_json({"table": back, "restored": True})
        return
    say(f"Restored {shown(back)}")
