"""All of authentication from the settings: the guard for both doors, the routes, and sessions for pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lakepact.access.claims import Expected
from lakepact.access.principal import Principal
from lakepact.catalog.trail import Trail
from lakepact.errors import InvalidSetting
from lakepact.extras import how_to_install
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.server.auth.admin import TokenHandlers
from lakepact.server.auth.bearer import Bearers
from lakepact.server.auth.guard import Guard
from lakepact.server.auth.issuer import trustworthy
from lakepact.server.auth.keys import SigningKeys
from lakepact.server.auth.limits import Buckets
from lakepact.server.auth.login import Client, IssuerLogin, LoginTokens
from lakepact.server.auth.noted import AccountTrail
from lakepact.server.auth.oauth import OAuthHandler
from lakepact.server.auth.sessions import CALLBACK, LOGIN, Sessions
from lakepact.server.auth.tokens import Tokens
from lakepact.server.metrics import Metrics
from lakepact.server.routing import Route
from lakepact.settings import Settings

if TYPE_CHECKING:
    from lakepact.server.auth.oidc import OidcTokens

_BURST_S: Final = 2.0
"""For how many seconds' worth of requests a caller may come at once, if the setting does not say."""


@dataclass(frozen=True, slots=True)
class Auth:
    guard: Guard
    sessions: Sessions
    """For pages: begins and ends sessions, and makes what forms carry."""

    login: IssuerLogin | None
    """The way in over the identity provider, if the settings say what this server is to it."""

    routes: tuple[Route, ...]


def auth_of(
    settings: Settings,
    store: CellStore,
    clock: Clock,
    rng: Rng,
    metrics: Metrics,
    trail: Trail,
    home: Callable[[Principal], str | None],
) -> Auth:
    """`home`: the warehouse whose audit trail tells of this one's account. Raises `InvalidSetting` for settings that do
    not fit together."""
    modes = settings.auth_modes
    tokens, keys = Tokens(store, clock, rng), SigningKeys(store, clock, rng, secret=settings.auth_secret)
    oidc = _oidc(settings, clock) if "oidc" in modes else None
    bearers = None
    if modes:
        bearers = Bearers(
            clock,
            tokens=tokens if "tokens" in modes else None,
            keys=keys,
            foreign=oidc,
            remember_s=settings.token_cache_s,
            expired_status=settings.expired_status,
        )
    sessions = Sessions(
        keys,
        bearers,
        clock,
        rng,
        lifetime_s=settings.session_s,
        secure=settings.reached_by_https,
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
    oauth = OAuthHandler(
        bearers if "tokens" in modes else None,
        keys,
        guard,
        clock,
        lifetime_s=settings.access_token_s,
        anonymous=not modes,
    )
    handlers = TokenHandlers(
        tokens,
        AccountTrail(trail, home, clock.now_ms),
        grace_s=settings.token_grace_s,
        longest_s=settings.token_max_s or None,
        now_ms=clock.now_ms,
    )
    login = _login(settings, oidc, keys, clock, rng) if oidc is not None and settings.oidc_client_id else None
    return Auth(guard, sessions, login, (*oauth.routes(), *handlers.routes()))


def _login(settings: Settings, tokens: LoginTokens, keys: SigningKeys, clock: Clock, rng: Rng) -> IssuerLogin:
    public = settings.public_url
    if not trustworthy(public):
        raise InvalidSetting(
            f"public_url = {public!r}: the identity provider sends people back there with a code, so it begins with "
            f"https:// (http:// only for this machine); correct it"
        )
    # Never what a request says as its Host: the code would go wherever somebody wants it.
    root = f"{urlsplit(public).scheme}://{urlsplit(public).netloc}{settings.base_path}"
    client = Client(
        id=settings.oidc_client_id,
        redirect_uri=root + CALLBACK,
        after_logout=root + LOGIN,
        scopes=settings.oidc_scopes,
        secret=settings.oidc_client_secret,
    )
    return IssuerLogin(settings.oidc_issuer, client, tokens, keys, clock, rng, secure=settings.reached_by_https)


def _oidc(settings: Settings, clock: Clock) -> OidcTokens:
    try:
        from lakepact.server.auth.jwks import Jwks, over_http
        from lakepact.server.auth.oidc import OidcTokens
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"auth = oidc needs {error.name}: {how_to_install('oidc')}") from None
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
