"""All of authentication from the settings: the guard for both doors, the routes, and sessions for pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakepact.access.claims import Expected
from lakepact.errors import InvalidSetting
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.server.auth.admin import TokenHandlers
from lakepact.server.auth.bearer import Bearers, ForeignTokens
from lakepact.server.auth.guard import Guard
from lakepact.server.auth.keys import SigningKeys
from lakepact.server.auth.limits import Buckets
from lakepact.server.auth.oauth import OAuthHandler
from lakepact.server.auth.sessions import Sessions
from lakepact.server.auth.tokens import Tokens
from lakepact.server.metrics import Metrics
from lakepact.server.routing import Route
from lakepact.settings import Settings

_BURST_S: Final = 2.0
"""For how many seconds' worth of requests a caller may come at once, if the setting does not say."""


@dataclass(frozen=True, slots=True)
class Auth:
    guard: Guard
    sessions: Sessions
    """For pages: begins and ends sessions, and makes what forms carry."""

    routes: tuple[Route, ...]


def auth_of(settings: Settings, store: CellStore, clock: Clock, rng: Rng, metrics: Metrics) -> Auth:
    """Raises `InvalidSetting` for settings that do not fit together."""
    modes = settings.auth_modes
    tokens, keys = Tokens(store, clock, rng), SigningKeys(store, clock, rng, secret=settings.auth_secret)
    bearers = None
    if modes:
        bearers = Bearers(
            clock,
            tokens=tokens if "tokens" in modes else None,
            keys=keys,
            foreign=_oidc(settings, clock) if "oidc" in modes else None,
            remember_s=settings.token_cache_s,
            expired_status=settings.expired_status,
        )
    sessions = Sessions(
        keys,
        bearers,
        clock,
        rng,
        lifetime_s=settings.session_s,
        public_url=settings.public_url,
        base_path=settings.base_path,
    )
    per_s = settings.rate_limit_per_s
    burst = settings.rate_limit_burst or per_s * _BURST_S
    guard = Guard(
        clock,
        bearers=bearers,
        sessions=sessions,
        limits=Buckets(per_s, burst, clock) if per_s > 0 else None,
        on_unrecognised=metrics.unrecognised,
    )
    oauth = OAuthHandler(bearers if "tokens" in modes else None, keys, guard, clock, lifetime_s=settings.access_token_s)
    handlers = TokenHandlers(
        tokens,
        grace_s=settings.token_grace_s,
        longest_s=settings.token_max_s or None,
        now_ms=clock.now_ms,
    )
    return Auth(guard, sessions, (*oauth.routes(), *handlers.routes()))


def _oidc(settings: Settings, clock: Clock) -> ForeignTokens:
    try:
        from lakepact.server.auth.jwks import Jwks, over_http, trustworthy
        from lakepact.server.auth.oidc import OidcTokens
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"auth = oidc needs {error.name}; install it: pip install 'lakepact[oidc]'") from None
    for name in ("oidc_issuer", "oidc_jwks_url"):
        url = getattr(settings, name)
        if url and not trustworthy(url):
            raise InvalidSetting(f"{name} = {url!r} is fetched over https (http only from this machine); correct it")
    expected = Expected(
        issuer=settings.oidc_issuer,
        audiences=frozenset(listed(settings.oidc_audience)),
        leeway_s=settings.oidc_leeway_s,
        name=settings.oidc_name_claim,
        account=settings.oidc_account_claim or None,
        groups=settings.oidc_groups_claim or None,
        admin_groups=frozenset(listed(settings.oidc_admin_groups)),
    )
    jwks = Jwks(over_http(settings.oidc_issuer, settings.oidc_jwks_url), clock)
    return OidcTokens(jwks, expected, frozenset(listed(settings.oidc_algorithms)), clock)


def listed(text: str) -> list[str]:
    """What a setting lists, separated by commas."""
    return [one for one in (part.strip() for part in text.split(",")) if one]
