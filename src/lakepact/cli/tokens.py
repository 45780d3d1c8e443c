"""API tokens, in the store itself: the first one is made before any server asks for it.

A token's text is printed once, on standard output, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from lakepact.access.secrets import token_id
from lakepact.cli.options import Json, StoreUrl, with_store
from lakepact.cli.output import instant, print_json, print_rows, say
from lakepact.errors import InvalidRequest
from lakepact.runtime import SystemClock, SystemRng
from lakepact.server.auth.admin import document_of, lifetime, with_secret
from lakepact.server.auth.tokens import Shown, Tokens
from lakepact.settings import Settings, without_password

T = TypeVar("T")

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}

_Id = Annotated[str, typer.Argument(metavar="ID", help="The token's id, as `lakepact tokens list` shows it.")]


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal that it stands for.")],
    account: Annotated[
        str, typer.Option("--account", metavar="NAME", help="The tenant. Default: default.")
    ] = "default",
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="A group of the principal; may be repeated.")
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="It may do everything in its account.")] = False,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it lives: 12h, 90d. Default: for ever.")
    ] = None,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Make an API token and print it, this once."""
    settings = Settings.load(store=store)
    expires_in_s = lifetime(None if expires is None else seconds(expires), settings.token_max_s or None)
    made = _with_tokens(
        settings,
        lambda tokens: tokens.create(
            name, account=account, groups=frozenset(group or ()), admin=admin, expires_in_s=expires_in_s
        ),
        makes=True,
    )
    _print(made, json, settings)


def list_(
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="Only this tenant's. Default: all.")
    ] = None,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """List the API tokens of a store. Their secrets are not kept, and not shown."""
    found = _with_tokens(Settings.load(store=store), lambda tokens: tokens.all(account))
    now_ms = SystemClock().now_ms()
    documents = [document_of(token, now_ms) for token in found]
    if json:
        print_json(documents)
        return
    print_rows(
        ("id", "name", "account", "groups", "admin", "created", "expires", "old secret until"),
        [_row(document) for document in documents],
    )


def rotate(
    token: _Id,
    grace: Annotated[
        str | None,
        typer.Option("--grace", metavar="TIME", help="How long the old secret still counts: 0s, 12h. Default: 1d."),
    ] = None,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Give a token a new secret and print it, this once."""
    settings = Settings.load(store=store)
    grace_s = settings.token_grace_s if grace is None else seconds(grace)
    _print(_with_tokens(settings, lambda tokens: tokens.rotate(token_id(token), grace_s=grace_s)), json, settings)


def revoke(token: _Id, store: StoreUrl = None, json: Json = False) -> None:
    """Revoke a token: nobody is recognised by it any more."""
    id = token_id(token)
    _with_tokens(Settings.load(store=store), lambda tokens: tokens.revoke(id))
    if json:
        print_json({"id": id, "revoked": True})
        return
    say(f"{id} is revoked. Servers forget it within their token_cache_s.")


def seconds(text: str) -> float:
    """A duration as people write it: 90d, 12h, 30m, 45s."""
    number, unit = text[:-1], text[-1:]
    if not number.isascii() or not number.isdecimal() or len(number) > 9 or unit not in _UNITS:
        raise InvalidRequest(f"{text[:20]!r} is not a time; write a number and a unit: 90d, 12h, 30m, 45s")
    return float(int(number) * _UNITS[unit])


def _with_tokens(settings: Settings, work: Callable[[Tokens], Awaitable[T]], *, makes: bool = False) -> T:
    return with_store(settings, lambda store: work(Tokens(store, SystemClock(), SystemRng())), makes=makes)


def _print(shown: Shown, json: bool, settings: Settings) -> None:
    document = with_secret(shown, SystemClock().now_ms())
    if json:
        print_json(document)
        return
    who = f"{document['name']} of account {document['account']}"
    say(f"Token {document['id']} for {who}{', an administrator' if document['admin'] else ''}")
    say(f"  token       {document['token']}")
    say(f"  credential  {document['credential']}")
    if document["expires-at-ms"] is not None:
        say(f"  expires     {instant(document['expires-at-ms'])}")
    if document["old-secret-until-ms"] is not None:
        say(f"  old secret  counts until {instant(document['old-secret-until-ms'])}")
    say(f"  store       {without_password(settings.store)}")
    say("It is shown this once. Keep it where only its user can read it.")


def _row(document: dict[str, Any]) -> tuple[str, ...]:
    return (
        document["id"],
        document["name"],
        document["account"],
        ", ".join(document["groups"]) or "-",
        "yes" if document["admin"] else "-",
        instant(document["created-at-ms"]),
        instant(document["expires-at-ms"]) + (", over" if document["expired"] else ""),
        instant(document["old-secret-until-ms"]),
    )
