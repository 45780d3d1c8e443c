"""Transactions of a server. `lakepact transactions` reads the records of a store instead, with or without a server."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from lakepact.cli.options import Json, Token, Uri, WarehouseName, connected, pairs
from lakepact.cli.output import print_json, print_rows, say
from lakepact.client import Published, TransactionInfo
from lakepact.client.names import shown
from lakepact.client.transactions import Isolation
from lakepact.kernel.identity import parse_transaction_id
from lakepact.kernel.model import State

_Id = Annotated[str, typer.Argument(metavar="ID", help="The transaction's id, a UUIDv7.")]


def begin(
    ttl: Annotated[
        float | None,
        typer.Option("--ttl", min=0, metavar="SECONDS", help="How long it may live unless renewed."),
    ] = None,
    isolation: Annotated[
        Isolation | None, typer.Option("--isolation", help="What it is safe from. Default: serializable.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="It only reads, as of one instant.")] = False,
    property: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="A property; may be repeated.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="ID", help="A UUIDv7 as its id: the same one begins it once.")
    ] = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Begin a transaction. Engines work in it with what it prints as its warehouse."""
    properties = pairs("--property", property)
    key = None if key is None else parse_transaction_id(key)
    info = connected(uri, warehouse, token).transactions.begin(
        ttl=ttl, isolation=isolation, properties=properties, read_only=read_only, key=key
    )
    _print(info, json)


def show(
    transaction_id: _Id, uri: Uri = None, warehouse: WarehouseName = None, token: Token = None, json: Json = False
) -> None:
    """Show one transaction: what it has staged and read, and what became of it. This settles an unknown outcome."""
    id = parse_transaction_id(transaction_id)
    _print(connected(uri, warehouse, token).transactions.get(id), json)


def list_(
    state: Annotated[list[State] | None, typer.Option("--state", help="Only this state; may be repeated.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many at most.")] = 100,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="ID", help="Only those begun before this one."),
    ] = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """List transactions, newest first."""
    before = None if before is None else parse_transaction_id(before)
    states = [one.value for one in state or ()]
    found, more = connected(uri, warehouse, token).transactions.newest(states, limit=limit, before=before)
    if json:
        print_json([_plain(info) for info in found])
        return
    print_rows(
        ("id", "state", "principal", "isolation", "created", "expires", "decided"),
        [
            (
                info.id,
                info.state,
                info.principal or "-",
                info.isolation + (", read-only" if info.read_only else ""),
                _time(info.created_at),
                _time(info.expires_at),
                _time(info.decided_at),
            )
            for info in found
        ],
    )
    if more:
        say(f"There are older ones: --before {found[-1].id} goes on, --limit shows more at once", err=True)


def commit(
    transaction_id: _Id,
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="NAME=VALUE", help="Who or what this was, for the receipts; may be repeated."),
    ] = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Make all of it visible at one instant. Committing twice is fine."""
    id, said = parse_transaction_id(transaction_id), pairs("--source", source)
    results = connected(uri, warehouse, token).transactions.commit(id, said or None)
    if json:
        print_json({"id": id, "state": "committed", "results": [_result(one) for one in results]})
        return
    say(f"Committed {id}")
    if results:
        print_rows(("table", "metadata"), [(shown(one.identifier), one.metadata_location) for one in results])


def abort(
    transaction_id: _Id, uri: Uri = None, warehouse: WarehouseName = None, token: Token = None, json: Json = False
) -> None:
    """Give it up: nothing of it will ever be visible. Aborting twice is fine."""
    id = parse_transaction_id(transaction_id)
    info = connected(uri, warehouse, token).transactions.abort(id)
    if json:
        print_json(_plain(info))
        return
    say(f"Aborted {id}")


def _print(info: TransactionInfo, json: bool) -> None:
    if json:
        print_json(_plain(info))
        return
    facts = [
        ("id", info.id),
        ("warehouse", info.warehouse),
        ("state", info.state),
        ("principal", info.principal or "-"),
        ("isolation", info.isolation + (", read-only" if info.read_only else "")),
        ("created", _time(info.created_at)),
        ("expires", _time(info.expires_at)),
        ("decided", _time(info.decided_at)),
        *((f"property {name}", value) for name, value in info.properties.items()),
    ]
    print_rows(("", ""), facts)
    if info.error is not None:
        say(f"\nWhy it was refused: {info.error}")
    if info.changes:
        say("\nWhat it writes and depends on:")
        print_rows(
            ("", "access", "planned on", "metadata"),
            [
                (
                    one.cell if one.table is None else shown(one.table),
                    one.access,
                    str(one.base),
                    one.metadata_location or "-",
                )
                for one in info.changes
            ],
        )
    if info.results:
        say("\nPublished:")
        print_rows(("table", "metadata"), [(shown(one.identifier), one.metadata_location) for one in info.results])


def _plain(info: TransactionInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "state": info.state,
        "principal": info.principal,
        "isolation": info.isolation,
        "read-only": info.read_only,
        "warehouse": info.warehouse,
        "prefix": info.prefix,
        "created-at": info.created_at,
        "expires-at": info.expires_at,
        "decided-at": info.decided_at,
        "properties": dict(info.properties),
        "changes": info.changes,
        "results": [_result(one) for one in info.results],
        "error": None if info.error is None else {"type": info.error.type, "message": str(info.error)},
    }


def _result(published: Published) -> dict[str, Any]:
    return {"table": published.identifier, "metadata-location": published.metadata_location}


def _time(instant: datetime | None) -> str:
    return "-" if instant is None else instant.strftime("%Y-%m-%d %H:%M:%SZ")
