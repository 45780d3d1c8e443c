from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from lakepact.cli.options import Json, Token, Uri, WarehouseName, connected, written
from lakepact.cli.output import instant, print_json, print_rows, say
from lakepact.client.grants import On
from lakepact.client.names import namespace_name, shown, table_name
from lakepact.errors import InvalidRequest

_Holder: TypeAlias = Annotated[str, typer.Argument(metavar="HOLDER", help="user:NAME, group:NAME or everyone.")]
_Role: TypeAlias = Annotated[str, typer.Argument(metavar="ROLE", help="read, write, create or manage.")]
_Account: TypeAlias = Annotated[bool, typer.Option("--account", help="On all warehouses of the account.")]
_Namespace: TypeAlias = Annotated[
    str | None, typer.Option("--namespace", metavar="NAMESPACE", help="On this namespace and all below it.")
]
_Table: TypeAlias = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="On this table or view: sales.orders")
]

NOT_ALLOWED = 1


def list_(
    holder: Annotated[
        str | None, typer.Argument(metavar="HOLDER", help="Only what this one holds: user:NAME, group:NAME, everyone.")
    ] = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """List who may do what, as far as you may know of it."""
    found = connected(uri, warehouse, token).grants.list(holder)
    if json:
        print_json(found)
        return
    rows = [
        (
            one["holder"],
            one["role"],
            _where(one),
            one["by"] or "-",
            "-" if one["at-ms"] is None else instant(one["at-ms"]),
        )
        for one in found
    ]
    print_rows(("holder", "role", "on", "by", "at"), rows)


def add(
    holder: _Holder,
    role: _Role,
    account: _Account = False,
    namespace: _Namespace = None,
    table: _Table = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Give a role: on the warehouse, unless an option says on what."""
    on = _on(account, namespace, table)
    changed = connected(uri, warehouse, token).grants.add(holder, role, on)
    if json:
        print_json({**on.document, "holder": holder, "role": role, "changed": changed})
        return
    say(f"{holder} {'has' if changed else 'had'} the role {role} on {_where(on.document)}")


def remove(
    holder: _Holder,
    account: _Account = False,
    namespace: _Namespace = None,
    table: _Table = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Take a role away: on the warehouse, unless an option says on what."""
    on = _on(account, namespace, table)
    changed = connected(uri, warehouse, token).grants.remove(holder, on)
    if json:
        print_json({**on.document, "holder": holder, "changed": changed})
        return
    say(f"{holder} {'has no role any more' if changed else 'had no role'} on {_where(on.document)}")


def check(
    role: _Role,
    holder: Annotated[
        str | None, typer.Option("--holder", metavar="HOLDER", help="Whom to ask about. Without it: yourself.")
    ] = None,
    account: _Account = False,
    namespace: _Namespace = None,
    table: _Table = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Say whether somebody has a role, by whatever grant. Exit code 1: no."""
    on = _on(account, namespace, table)
    found = connected(uri, warehouse, token).grants.check(on, role, holder)
    if json:
        print_json(found)
    else:
        who = "you have" if holder is None else f"{holder} has"
        what = f"the role {found['role']}" if found["role"] else "no role"
        say(f"{'yes' if found['allowed'] else 'no'}: {who} {what} on {_where(on.document)}")
    if not found["allowed"]:
        raise typer.Exit(NOT_ALLOWED)


def _on(account: bool, namespace: str | None, table: str | None) -> On:
    if account + (namespace is not None) + (table is not None) > 1:
        raise InvalidRequest("--account, --namespace and --table exclude one another; give one of them")
    if account:
        return On.account()
    if namespace is not None:
        return On.namespace(written(namespace_name, namespace))
    if table is not None:
        return On.table(written(table_name, table))
    return On.warehouse()


def _where(document: object) -> str:
    assert isinstance(document, dict)
    match document["on"]:
        case "namespace":
            return f"namespace {shown(tuple(document['namespace']))}"
        case "table" if "name" in document:
            return f"{document.get('kind', 'table')} {shown((*document['namespace'], document['name']))}"
        case "table":
            return f"a table that is gone ({document['id']})"
        case other:
            return f"the {other}"
