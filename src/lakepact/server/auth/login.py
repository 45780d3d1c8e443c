"""The way in over the identity provider: OpenID Connect's authorization code flow, with PKCE, state and nonce.

    place, cookie = await login.start(back)                 the browser goes there, and keeps the cookie
    found, back = await login.finish(query, cookies)        it comes back with a code; `sessions.begun(found)`
    login.over()                                            `Set-Cookie` with every answer to that, good or not

Nothing is kept here between the two: a short-lived signed cookie says what was begun, so any worker of any replica can
finish it. State, nonce and PKCE's verifier follow from that cookie by a key of the server's, and are in it only as
much as a hash is: whoever sees the cookie does not know them, and whoever has no cookie finishes nothing. A code counts
once, at the issuer, and the browser forgets the cookie with the first answer.

The ID token says who it is, and is looked at like every token of the issuer's, but for the client's own id as its
audience. It is not kept, nor is anything else that the issuer sends along.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol
from urllib.parse import quote_plus, urlencode, urlsplit

import structlog

from lakepact.kernel.ports import Clock, Rng
from lakepact.server.auth.bearer import Recognised
from lakepact.server.auth.cookies import Cookie, Header
from lakepact.server.auth.errors import IssuerUnavailable, Unrecognised
from lakepact.server.auth.issuer import Kept, address, description, in_a_thread, posted
from lakepact.server.auth.keys import SigningKeys

PURPOSE: Final = "login"
"""What the cookie is signed for."""

WITHIN_S: Final = 600
"""How long somebody may take at the issuer's page."""

_LONGEST_WAIT_S: Final = 15.0
_MOST_CODE: Final = 4_096
_MOST_BACK: Final = 1_500
"""A cookie has room for so much. Who came from a longer address gets to the first page."""

_CODE_OF_ERROR: Final = re.compile(r"[a-z_]{1,40}")
_AGAIN: Final = "log in again"
_LATER: Final = frozenset({"temporarily_unavailable", "server_error"})
_OURS: Final = frozenset({"invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope"})
"""What is wrong with this server's settings, not with whoever logs in."""

_log = structlog.get_logger(__name__)


class LoginTokens(Protocol):
    async def identify(self, text: str, *, client_id: str, nonce: str) -> Recognised:
        """Whom an ID token names. Raises `Unrecognised`, and `IssuerUnavailable` while nobody can say."""
        ...


@dataclass(frozen=True, slots=True)
class Client:
    """What this server is to the issuer."""

    id: str
    redirect_uri: str
    after_logout: str
    scopes: str
    secret: str = field(default="", repr=False)
    """Empty: a public client, which has none."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    authorization: str
    token: str
    end_session: str | None
    basic: bool
    """Whether a client's secret goes into a header, as it does unless the issuer wants it in the form."""

    says_issuer: bool
    """Whether every answer of the issuer's names it (RFC 9207)."""

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Endpoints:
        said = described.get("token_endpoint_auth_methods_supported")
        methods = said if isinstance(said, list) else []
        return cls(
            authorization=address(described, "authorization_endpoint"),
            token=address(described, "token_endpoint"),
            end_session=address(described, "end_session_endpoint") if "end_session_endpoint" in described else None,
            basic="client_secret_basic" in methods or "client_secret_post" not in methods,
            says_issuer=described.get("authorization_response_iss_parameter_supported") is True,
        )


class IssuerLogin:
    def __init__(
        self,
        issuer: str,
        client: Client,
        tokens: LoginTokens,
        keys: SigningKeys,
        clock: Clock,
        rng: Rng,
        *,
        secure: bool,
    ) -> None:
        self._issuer = issuer
        self._client = client
        self._tokens = tokens
        self._keys = keys
        self._clock = clock
        self._rng = rng
        self._cookie = Cookie("lakepact-login", secure=secure)
        self._endpoints = Kept(self._described, clock, "description")

    @property
    def host(self) -> str:
        """The name under which people may know the issuer."""
        return urlsplit(self._issuer).netloc

    async def start(self, back: str) -> tuple[str, Header]:
        """Where the browser goes to log in, and the cookie it comes back with. Raises `IssuerUnavailable`."""
        endpoints = await self._endpoints.value()
        statement = {
            "iss": self._issuer,
            "back": back if len(back) <= _MOST_BACK else "",
            "exp": self._clock.now_ms() // 1000 + WITHIN_S,
            "jti": f"{self._rng.bits(256):064x}",
        }
        text = await self._keys.sign(PURPOSE, statement)
        secret = await self._keys.behind(PURPOSE, text)
        assert secret is not None
        asked = {
            "response_type": "code",
            "client_id": self._client.id,
            "redirect_uri": self._client.redirect_uri,
            "scope": self._client.scopes,
            "state": _derived(secret, "state"),
            "nonce": _derived(secret, "nonce"),
            "code_challenge": _encoded(hashlib.sha256(_derived(secret, "verifier").encode()).digest()),
            "code_challenge_method": "S256",
        }
        return _with_query(endpoints.authorization, asked), self._cookie.header(text, WITHIN_S)

    async def finish(self, query: Mapping[str, str], cookies: bytes | None) -> tuple[Recognised, str]:
        """Who came back, and where they wanted to go. Raises `Unrecognised`, and `IssuerUnavailable` as ever."""
        begun, secret = await self._begun(cookies)
        if not _same(query.get("state", ""), _derived(secret, "state")):
            raise Unrecognised(f"this is the answer to another login than the one this browser began last; {_AGAIN}")
        endpoints = await self._endpoints.value()
        said = query.get("iss")
        if (said is not None or endpoints.says_issuer) and said != self._issuer:
            raise Unrecognised(f"this answer is of another issuer than the one that was asked; {_AGAIN}")
        if "error" in query:
            raise _refused(query["error"], query.get("error_description", ""))
        id_token = await self._exchanged(endpoints, query.get("code", ""), _derived(secret, "verifier"))
        found = await self._tokens.identify(id_token, client_id=self._client.id, nonce=_derived(secret, "nonce"))
        # The token says until when it can be shown to us, which it now was; how long a session lasts is a setting.
        return replace(found, until_ms=None), begun["back"]

    def over(self) -> Header:
        """The browser forgets what it had begun."""
        return self._cookie.gone()

    async def leave(self) -> str | None:
        """Where the browser goes to log out at the issuer too. None: the issuer has no such place."""
        place = (await self._endpoints.value()).end_session
        if place is None:
            return None
        asked = {"client_id": self._client.id, "post_logout_redirect_uri": self._client.after_logout}
        return _with_query(place, asked)

    async def _described(self) -> Endpoints:
        return await in_a_thread(lambda: Endpoints.of(description(self._issuer)))

    async def _begun(self, cookies: bytes | None) -> tuple[dict[str, Any], bytes]:
        """What this browser has begun, and the secret that goes with it."""
        text = self._cookie.sent(cookies)
        if text is None:
            raise Unrecognised(f"this browser has begun no login, or has finished it already; {_AGAIN}", missing=True)
        begun, secret = await self._keys.verified(PURPOSE, text), await self._keys.behind(PURPOSE, text)
        if begun is None or secret is None or begun["iss"] != self._issuer:
            raise Unrecognised(f"this login was not begun here; {_AGAIN}")
        if self._clock.now_ms() >= begun["exp"] * 1000:
            raise Unrecognised(f"the login took longer than {WITHIN_S // 60} minutes; {_AGAIN}", expired=True)
        return begun, secret

    async def _exchanged(self, endpoints: Endpoints, code: str, verifier: str) -> str:
        """The ID token that the issuer gives for the code."""
        if not code or len(code) > _MOST_CODE:
            raise Unrecognised(f"the identity provider's answer has no code; {_AGAIN}")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect_uri,
            "code_verifier": verifier,
        }
        form, headers = self._authenticated(endpoints, form)
        try:
            async with asyncio.timeout(_LONGEST_WAIT_S):
                status, answer = await in_a_thread(lambda: posted(endpoints.token, form, headers))
        except TimeoutError:
            raise IssuerUnavailable("the identity provider takes too long; try again") from None
        except IssuerUnavailable as error:
            _log.warning("the identity provider gave no token for a code", reason=str(error))
            raise
        said = answer if isinstance(answer, dict) else {}
        if status != 200:
            raise _refused(str(said.get("error", "")), "")
        if not isinstance(said.get("id_token"), str):
            raise _misled("the identity provider sent no ID token; oidc_scopes must have openid")
        return str(said["id_token"])

    def _authenticated(self, endpoints: Endpoints, form: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """The form and the headers by which the issuer knows this client."""
        client = self._client
        if not client.secret:
            return {**form, "client_id": client.id}, {}
        if not endpoints.basic:
            return {**form, "client_id": client.id, "client_secret": client.secret}, {}
        both = f"{quote_plus(client.id)}:{quote_plus(client.secret)}"
        return form, {"Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}


def _refused(error: str, text: str) -> Unrecognised | IssuerUnavailable:
    """What an error of the issuer's is to those who want to log in."""
    code = error if _CODE_OF_ERROR.fullmatch(error) else "an error without a name"
    if code in _LATER:
        return IssuerUnavailable(f"the identity provider cannot log anybody in now ({code}); try again")
    if code in _OURS:
        return _misled(f"the identity provider does not accept this server as a client of its ({code})")
    said = f": {text[:300]}" if text else ""
    return Unrecognised(f"the identity provider has refused the login ({code}){said}")


def _misled(text: str) -> IssuerUnavailable:
    """Something that only whoever runs this server can put right."""
    _log.error("nobody can log in over the identity provider; compare the settings oidc_client_* with it", reason=text)
    return IssuerUnavailable(f"{text}; whoever runs this server has to correct its settings")


def _derived(secret: bytes, what: str) -> str:
    return _encoded(hmac.digest(secret, what.encode(), hashlib.sha256))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _with_query(place: str, fields: Mapping[str, str]) -> str:
    parts = urlsplit(place)
    query = "&".join(part for part in (parts.query, urlencode(fields)) if part)
    return parts._replace(query=query, fragment="").geturl()
