"""People with a browser: a session in a signed cookie, and forms that nobody else can have made.

    header = (await sessions.begin(token))[1]     after the login form: `Set-Cookie`, to send with the answer
    header = await sessions.begun(recognised)      the same for somebody who has been recognised in another way
    principal = request.principal                  on every page: the guard has looked at the cookie
    await sessions.csrf(request)                   goes into every form, as the hidden field `csrf`
    sessions.ended()                               after the logout form: `Set-Cookie` again

A cookie counts only below `/ui`: no page of somebody else's can use it for the API. There, everything but GET and HEAD
must come from a page of this server's: the browser says so (`Sec-Fetch-Site`, `Origin`), and a form carries the
session's `csrf`. `protect` checks both before a handler sees the request, for every route below `/ui`.

A session is a signed statement and not kept anywhere. It ends with its time, with the token it was begun with, and if
that was an API token then also when it is revoked. Logging out removes the cookie from the browser.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from lakepact.access.principal import Principal
from lakepact.access.secrets import TokenId
from lakepact.access.signed import MOST_BYTES
from lakepact.errors import InvalidRequest
from lakepact.kernel.ports import Clock, Rng
from lakepact.server.auth.bearer import Bearers, Recognised
from lakepact.server.auth.cookies import Cookie, Header, cookies_of
from lakepact.server.auth.errors import NotAllowed, Unrecognised
from lakepact.server.auth.keys import SigningKeys
from lakepact.server.http import Headers, Request, Response
from lakepact.server.routing import Handler, Route

UI: Final = "/ui"
LOGIN: Final = "/ui/login"
CALLBACK: Final = "/ui/login/callback"
CSRF_FIELD: Final = "csrf"
CSRF_HEADER: Final = "X-CSRF-Token"
SESSION: Final = "session"
"""What a session is signed for."""

_CSRF: Final = "csrf"
_SAFE: Final = frozenset({"GET", "HEAD"})
_MOST_FIELDS: Final = 100
_MOST_DECODINGS: Final = 5


def is_page(route: Route) -> bool:
    return route.template == UI or route.template.startswith(UI + "/")


class NotFromHere(NotAllowed):
    """A form that was not made by a page of this server's, or has grown too old. Nothing happened."""


class Sessions:
    def __init__(
        self,
        keys: SigningKeys,
        bearers: Bearers | None,
        clock: Clock,
        rng: Rng,
        *,
        lifetime_s: float,
        secure: bool = False,
        public_url: str = "",
        base_path: str = "",
    ) -> None:
        """Without `bearers` nobody is asked for a name: there are no sessions, and forms are checked all the same."""
        self._keys = keys
        self._bearers = bearers
        self._clock = clock
        self._rng = rng
        self._lifetime_s = lifetime_s
        self._public_host = urlsplit(public_url).netloc.lower()
        self._base_path = base_path
        self._cookie = Cookie("lakepact", secure=secure)

    @property
    def asks(self) -> bool:
        """Whether people have to log in at all."""
        return self._bearers is not None

    async def begin(self, token: str) -> tuple[Principal, Header]:
        """Recognise somebody by a token that they have typed in. Raises `Unrecognised`."""
        if self._bearers is None:
            raise InvalidRequest("this server asks nobody for a name: there is nothing to log in to")
        found = await self._bearers.checked(token.strip().encode())
        return found.principal, await self.begun(found)

    async def begun(self, found: Recognised) -> Header:
        """A session of somebody who has been recognised, for no longer than that counts."""
        now_ms = self._clock.now_ms()
        ends_ms = now_ms + int(self._lifetime_s * 1000)
        if found.until_ms is not None:
            ends_ms = min(ends_ms, found.until_ms)
        who = found.principal
        statement = {
            "name": who.name,
            "account": who.account,
            "groups": sorted(who.groups),
            "admin": who.admin,
            "tid": found.token,
            "sec": found.secret,
            "exp": ends_ms // 1000,
            "jti": f"{self._rng.bits(128):032x}",
        }
        text = await self._keys.sign(SESSION, statement)
        if len(text) > MOST_BYTES - 256:
            raise InvalidRequest(
                "you are in more groups than fit into a session; have fewer of them put into your token"
            )
        return self._cookie.header(text, max(0, (ends_ms - now_ms) // 1000))

    def ended(self) -> Header:
        return self._cookie.gone()

    async def recognise(self, cookies: bytes | None) -> Principal | None:
        """Whose session the request's `Cookie` brings. None: nobody's, or nobody's any more."""
        text = self._cookie.sent(cookies)
        if self._bearers is None or text is None:
            return None
        said = await self._keys.verified(SESSION, text)
        if said is None or self._clock.now_ms() >= said["exp"] * 1000:
            return None
        if said["tid"] is not None:
            try:
                token, _ = await self._bearers.live(TokenId(said["tid"]), said["sec"])
            except Unrecognised:
                return None
            return token.principal
        return Principal(said["name"], said["account"], frozenset(said["groups"]), said["admin"])

    async def csrf(self, request: Request) -> str:
        """What a form of this session carries. Empty without a session: then there is nothing to be stolen."""
        session = self._cookie.sent(cookies_of(request))
        return "" if session is None else _csrf((await self._keys.derived(_CSRF))[0], session)

    def login(self, scope_path: str) -> Response:
        """To the login page, and back afterwards."""
        back = quote(scope_path, safe="")
        return Response(303, b"", ((b"Location", f"{self._base_path}{LOGIN}?next={back}".encode()),))

    def local(self, path: str) -> str:
        """A place to go back to after the login, if it is one of these pages; else the first page."""
        bare = re.split(r"[?#]", path, maxsplit=1)[0]
        inside = bare == self._base_path + UI or bare.startswith(self._base_path + UI + "/")
        return path if inside and _is_plain(path, bare) else self._base_path + UI

    def protect(self, route: Route) -> Route:
        """The same route; if it changes something below `/ui`, only for requests from these pages."""
        if route.method in _SAFE or not is_page(route):
            return route
        return replace(route, handler=self._checked(route.handler))

    def _checked(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            if request.header("authorization") is None:
                self.check_site(request.headers)
                session = self._cookie.sent(cookies_of(request))
                if session is not None and request.principal.name is not None:
                    await self._check_form(request, session)
            return await handler(request)

        return checked

    def check_site(self, headers: Headers) -> None:
        """Raises `NotFromHere` if a page of another site has a browser send this. Browsers say so, older ones by
        `Origin` alone; what is not a browser says nothing of either."""
        site = headers.get(b"sec-fetch-site")
        if site is not None:
            here = site in (b"same-origin", b"none")
        else:
            origin = headers.get(b"origin")
            here = origin is None or _host_of(origin.decode("latin-1")) in self._hosts(headers)
        if not here:
            raise NotFromHere("this request comes from a page of another site, and is not answered")

    def _hosts(self, headers: Headers) -> set[str]:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        return {one for one in (host, self._public_host) if one}

    async def _check_form(self, request: Request, session: str) -> None:
        sent = request.header(CSRF_HEADER) or _field(request, CSRF_FIELD)
        known = [_csrf(secret, session) for secret in await self._keys.derived(_CSRF)]
        if not any(hmac.compare_digest(sent.encode(), one.encode()) for one in known):
            raise NotFromHere("the form is not of this session, or too old; load the page again and send it again")


def _is_plain(path: str, bare: str) -> bool:
    """Whether a browser goes to this path and nowhere else. `bare` is the path without query and fragment.

    Browsers resolve `.` and `..` also when they are encoded, take a backslash for a slash and drop control characters;
    proxies may decode once more. So the path is decoded until nothing changes, and must be in normal form then.
    """
    if not path.isascii() or not path.isprintable() or "\\" in path or "//" in path:
        return False
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(bare)
        if decoded == bare:
            dots = {".", ".."} & set(bare.split("/"))
            # The levels of a namespace are separated by a control character.
            return bare.replace("\x1f", "").isprintable() and "\\" not in bare and "//" not in bare and not dots
        bare = decoded
    return False


def _csrf(secret: bytes, session: str) -> str:
    digest = hmac.digest(secret, session.encode("latin-1"), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        # Half of an IPv6 address, say: no page has such an origin.
        return ""


def _field(request: Request, name: str) -> str:
    kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return ""
    try:
        fields = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return ""
    return next((value for found, value in fields if found == name), "")
