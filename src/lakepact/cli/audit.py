from __future__ import annotations

from typing import Annotated

import typer

from lakepact.catalog.audit import about
from lakepact.catalog.trail import Outcome
from lakepact.cli.options import Json, Token, Uri, WarehouseName, connected, written
from lakepact.cli.output import instant, print_json, print_rows, say
from lakepact.client.names import table_name


def audit(
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="NAME", help="Only what this one asked for.")
    ] = None,
    operation: Annotated[
        str | None, typer.Option("--operation", metavar="NAME", help="Only this operation: dropTable")
    ] = None,
    outcome: Annotated[Outcome | None, typer.Option("--outcome", help="Only what came to this.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="Only what is about this table or view: sales.orders")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="MOMENT",
            help="Only what was before this: 2026-01-31T12:00:00Z, or where the command said that it goes on.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")] = 100,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """List who did what, and what came of it, newest first."""
    name = None if table is None else written(table_name, table)
    lake = connected(uri, warehouse, token)
    found = lake.audit(
        principal=principal, operation=operation, outcome=outcome, table=name, before=before, limit=limit
    )
    if json:
        print_json({"lines": found.lines, "damaged": found.damaged, "next-page-token": found.following})
        return
    print_rows(
        ("at", "who", "operation", "outcome", "about", "transaction"),
        [
            (
                instant(line["at-ms"]),
                line.get("principal") or "-",
                line["operation"],
                line["outcome"],
                about(line) or "-",
                line.get("transaction-id") or "-",
            )
            for line in found.lines
        ],
    )
    if not found.lines and found.following is None:
        say("No line is like that. A server that asks nobody for a name (--auth none) keeps none.", err=True)
    if found.damaged:
        say(f"Left out because they cannot be read: {found.damaged}", err=True)
    if found.following is not None:
        say(f"There may be older ones: --before {found.following} goes on, --limit shows more at once", err=True)
