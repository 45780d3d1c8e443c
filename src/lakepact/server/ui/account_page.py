"""Who you are: the ways in, over the identity provider and with a token, and the way out. A server that asks nobody for
a name has none of them."""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import parse_qsl

from lakepact.catalog.errors import NotFound
from lakepact.errors import InvalidRequest
from lakepact.server.auth.cookies import Header, cookies_of
from lakepact.server.auth.errors import IssuerUnavailable, Unrecognised
from lakepact.server.auth.guard import Guard
from lakepact.server.auth.login import IssuerLogin
from lakepact.server.auth.sessions import CSRF_FIELD, Sessions
from lakepact.server.http import Request, Response
from lakepact.server.ui.html import Child, join, name, tag
from lakepact.server.ui.layout import GUARDS, Frame, Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import ACCENT, BAD, CALM, alert, badge, card, facts, heading, mono

_MOST_FIELDS: Final = 20
_MOST_BYTES: Final = 65_536


def form_fields(request: Request, most_bytes: int = _MOST_BYTES) -> dict[str, str]:
    """The fields of a form, each once. What cannot be read is refused."""
    if len(request.body) > most_bytes:
        raise InvalidRequest(f"the form has more than {most_bytes:,} bytes; send less")
    try:
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise InvalidRequest("the form cannot be read; load its page again") from None
    return dict(reversed(pairs))


class AccountPages:
    def __init__(
        self, sessions: Sessions, guard: Guard, links: Links, frame: Frame, login: IssuerLogin | None = None
    ) -> None:
        self._sessions = sessions
        self._issuer = login
        self._guard = guard
        self._links = links
        self._frame = frame

    async def login(self, request: Request) -> Response:
        if not self._sessions.asks:
            return _to(self._links.home())
        return self._frame.response(self._form(request.query.get("next", ""), ended="ended" in request.query))

    async def begin(self, request: Request) -> Response:
        """The login form. Wrong tokens are limited as everywhere."""
        fields = form_fields(request)
        back = self._sessions.local(fields.get("next", ""))
        try:
            token = fields.get("token", "")
            begin = partial(self._sessions.begin, token)
            _, cookie = await self._guard.verified(request.address, token.encode(), begin)
        except Unrecognised as error:
            return self._frame.response(self._form(back, str(error), error.code))
        return _to(back, cookie)

    async def start(self, request: Request) -> Response:
        """To the identity provider's own page."""
        issuer, back = self._over_issuer(), self._sessions.local(request.query.get("next", ""))
        try:
            place, cookie = await issuer.start(back)
        except IssuerUnavailable as error:
            return self._not_now(back, error)
        return _to(place, cookie)

    async def finish(self, request: Request) -> Response:
        """Back from there. Whatever comes of it, this login is over: a code is tried once."""
        issuer = self._over_issuer()
        self._guard.check_codes(request.address)
        try:
            found, back = await issuer.finish(request.query, cookies_of(request))
            session = await self._sessions.begun(found)
        except Unrecognised as error:
            self._guard.code_failed(request.address, error)
            return self._frame.response(self._form("", str(error), error.code, issuer.over()))
        except IssuerUnavailable as error:
            return self._not_now("", error, issuer.over())
        return _to(self._sessions.local(back), session, issuer.over())

    async def leave(self, request: Request) -> Response:
        """To where the identity provider forgets who it was."""
        place = await self._over_issuer().leave()
        return _to(self._links.login() if place is None else place)

    async def account(self, request: Request) -> Page:
        who = request.principal
        body: list[Child] = [heading("Account", badge("administrator", ACCENT) if who.admin else None)]
        if who.name is None:
            body.append(alert("This server asks nobody for a name", "Whoever reaches it may do everything.", look=CALM))
            return Page("Account", body)
        groups = ", ".join(sorted(who.groups))
        logout = tag(
            "form",
            tag("input", type="hidden", name=CSRF_FIELD, value=await self._sessions.csrf(request)),
            tag("button", "Log out", type="submit"),
            method="post",
            action=self._links.logout(),
            class_="step",
        )
        known: list[tuple[str, Child]] = [
            ("Name", mono(name(who.name))),
            ("Account", mono(name(who.account))),
            ("Groups", mono(name(groups)) if groups else "none"),
        ]
        body.append(card("Who you are", facts(known), logout))
        return Page("Account", body)

    async def end(self, request: Request) -> Response:
        ended = self._links.login() + ("" if self._issuer is None else "?ended=1")
        return _to(ended, self._sessions.ended())

    def _over_issuer(self) -> IssuerLogin:
        if self._issuer is None:
            raise NotFound("nobody logs in over an identity provider here: oidc_client_id is not set")
        return self._issuer

    def _not_now(self, back: str, error: IssuerUnavailable, *headers: Header) -> Response:
        return self._frame.response(self._form(back, str(error), 503, *headers, (b"Retry-After", b"1")))

    def _form(self, back: str, error: str = "", status: int = 200, *headers: Header, ended: bool = False) -> Page:
        lead = "This server wants to know who looks. Use an API token, or one of your identity provider."
        if self._issuer is not None:
            lead = "This server wants to know who looks."
        body = join(
            heading("Log in", lead=lead),
            alert("That did not work", name(error[:500]), look=BAD) if error else None,
            None if self._issuer is None else self._way_over(self._issuer, back, ended and not error),
            tag(
                "form",
                tag("input", type="hidden", name="next", value=back),
                tag("label", "Token", for_="token"),
                tag(
                    "input",
                    type="password",
                    id="token",
                    name="token",
                    required=True,
                    autocomplete="current-password",
                    autofocus=self._issuer is None,
                ),
                tag("button", "Log in", type="submit", class_="main"),
                method="post",
                action=self._links.login(),
                class_="login",
            ),
            tag(
                "p",
                tag("code", "lakepact tokens create"),
                " makes a token. It is checked here and not kept.",
                class_="muted",
            ),
        )
        return Page("Log in", body, status=status, headers=headers, bare=True)

    def _way_over(self, issuer: IssuerLogin, back: str, ended: bool) -> Child:
        """The way in that most people take, before the one with a token."""
        there = tag("a", "log out there too", href=self._links.leave_issuer())
        said = ("Your identity provider may still know you: ", there, ".")
        return join(
            alert("You are logged out", *said, look=CALM) if ended else None,
            tag(
                "p",
                tag("a", "Log in with ", name(issuer.host), href=self._links.login_at_issuer(back), class_="button"),
                class_="way",
            ),
            tag("p", "Or with a token:", class_="muted"),
        )


def _to(place: str, *headers: Header) -> Response:
    return Response(303, b"", ((b"Location", place.encode()), (b"Cache-Control", b"no-store"), *GUARDS, *headers))
