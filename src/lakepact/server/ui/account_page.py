"""Who you are: the way in with a token, and the way out. A server that asks nobody for a name has neither."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from lakepact.errors import InvalidRequest
from lakepact.server.auth.errors import Unrecognised
from lakepact.server.auth.guard import Guard
from lakepact.server.auth.sessions import CSRF_FIELD, Sessions
from lakepact.server.http import Request, Response
from lakepact.server.ui.html import Child, join, name, tag
from lakepact.server.ui.layout import GUARDS, Frame, Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import ACCENT, BAD, CALM, alert, badge, card, facts, heading, mono

_MOST_FIELDS: Final = 20


def form_fields(request: Request) -> dict[str, str]:
    """The fields of a form, each once. What cannot be read is refused."""
    try:
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise InvalidRequest("the form cannot be read; load its page again") from None
    return dict(reversed(pairs))


class AccountPages:
    def __init__(self, sessions: Sessions, guard: Guard, links: Links, frame: Frame) -> None:
        self._sessions = sessions
        self._guard = guard
        self._links = links
        self._frame = frame

    async def login(self, request: Request) -> Response:
        if not self._sessions.asks:
            return _to(self._links.home())
        return self._frame.response(self._form(request.query.get("next", "")))

    async def begin(self, request: Request) -> Response:
        """The login form. Wrong tokens are slowed down as everywhere."""
        fields = form_fields(request)
        back = self._sessions.local(fields.get("next", ""))
        self._guard.check_failures(request.address)
        try:
            _, cookie = await self._sessions.begin(fields.get("token", ""))
        except Unrecognised as error:
            self._guard.failed(request.address, error)
            return self._frame.response(self._form(back, str(error), error.code))
        return _to(back, cookie)

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
        return _to(self._links.login(), self._sessions.ended())

    def _form(self, back: str, error: str = "", status: int = 200) -> Page:
        body = join(
            heading(
                "Log in",
                lead="This server wants to know who looks. Use an API token, or one of your identity provider.",
            ),
            alert("That did not work", name(error[:500]), look=BAD) if error else None,
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
                    autofocus=True,
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
        return Page("Log in", body, status=status, bare=True)


def _to(place: str, *headers: tuple[bytes, bytes]) -> Response:
    return Response(303, b"", ((b"Location", place.encode()), (b"Cache-Control", b"no-store"), *GUARDS, *headers))
