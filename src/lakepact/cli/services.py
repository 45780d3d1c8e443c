"""Checks of the services that a server depends on: PostgreSQL's connections, and the identity provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from lakepact.cli.finding import Finding, bad, good, odd
from lakepact.errors import LakepactError
from lakepact.extras import how_to_install
from lakepact.settings import Settings

_SERVERS: Final = 2
"""How many servers of this size should fit: replicas, or the old and the new one of a restart."""


async def postgres(settings: Settings) -> AsyncIterator[Finding]:
    """Whether PostgreSQL lets as many sessions in as servers open. The store can be opened."""
    import asyncpg

    from lakepact.stores.postgres import driver_url

    dsn, connections = driver_url(settings.store)
    try:
        session = await asyncpg.connect(dsn)
        try:
            yield connection_limit(settings.workers, connections, *await _limits(session))
        finally:
            await session.close()
    except (OSError, asyncpg.PostgresError) as error:
        yield bad("store: connections", f"PostgreSQL takes no further session: {error}", "Raise max_connections.")


async def _limits(session: Any) -> tuple[int, int]:
    """How many sessions there may be, and how many of them are not for us."""
    rows = await session.fetch(
        "SELECT name, setting FROM pg_settings "
        "WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')"
    )
    limits = {row["name"]: int(row["setting"]) for row in rows}
    return limits.pop("max_connections"), sum(limits.values())


def connection_limit(workers: int, connections: int, most: int, reserved: int) -> Finding:
    """Whether the sessions of two servers fit: `workers` processes with `connections` sessions each."""
    needed, free = workers * connections, most - reserved
    each = f"{workers} workers x {connections} connections = {needed} for each server"
    shown = f"max_connections is {most}, {reserved} of them reserved; {each}: room for {free // needed}"
    if free >= _SERVERS * needed:
        return good("store: connections", shown)
    fitting = max(1, free // (_SERVERS * workers))
    advice = (
        f"Set max_connections to more than servers x {needed} + {reserved}, or fewer connections in the store's URL: "
        f"?connections={fitting} is right for {_SERVERS} servers."
    )
    return (bad if free < workers else odd)("store: connections", shown, advice)


async def identity_provider(settings: Settings) -> AsyncIterator[Finding]:
    """Whether the issuer of OIDC tokens can be reached and has keys for the algorithms that are accepted."""
    if "oidc" not in settings.auth_modes:
        return
    subject, issuer = "identity provider", settings.oidc_issuer
    try:
        from lakepact.server.auth.issuer import description, in_a_thread, trustworthy
        from lakepact.server.auth.jwks import fetched_keys
    except ModuleNotFoundError as error:
        yield bad(subject, f"{error.name} is not installed", f"{how_to_install('oidc')}.")
        return
    for name in ("oidc_issuer", "oidc_jwks_url"):
        url = getattr(settings, name)
        if url and not trustworthy(url):
            yield bad(subject, f"{name} = {url} is not https", "Use https; http is for this machine only.")
            return
    try:
        if not settings.oidc_jwks_url or settings.oidc_client_id:
            await in_a_thread(lambda: description(issuer))
        keys = await fetched_keys(issuer, settings.oidc_jwks_url)
    except LakepactError as error:
        yield bad(
            subject,
            f"{issuer}: {error}",
            "Check oidc_issuer and oidc_jwks_url, and that this machine can reach them: users cannot log in otherwise.",
        )
        return
    if not keys:
        yield bad(
            subject, f"{issuer} has no key that this server can use", "Publish a signing key, or correct the URL."
        )
        return
    yield good(subject, f"{issuer} answers, with {len(keys)} keys")
