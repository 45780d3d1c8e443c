"""People with a browser: who they are is in a cookie, and what they change comes from a page of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import pytest

from lakepact.catalog.trail import Trail
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.server.asgi import Application
from lakepact.server.auth.tokens import Tokens
from lakepact.server.auth.wiring import Auth, auth_of
from lakepact.server.http import Request, Response
from lakepact.server.metrics import Metrics
from lakepact.server.rest import error_answer
from lakepact.server.routing import Route, Router
from lakepact.settings import Settings
from lakepact.stores import open_store
from tests.support.asgi_client import Answer, AsgiClient

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Pages:
    """Three pages as the web page has them: one to log in, one to look at, one with a form."""

    def __init__(self, auth: Auth, tokens: Tokens) -> None:
        self.auth = auth
        self.tokens = tokens
        self.changes: list[str | None] = []
        routes = [
            Route("POST", "/ui/login", "login", self._login, open=True),
            Route("POST", "/ui/logout", "logout", self._logout),
            Route("GET", "/ui/page", "page", self._page),
            Route("POST", "/ui/change", "change", self._change),
            Route("POST", "/v1/change", "api", self._change),
        ]
        self.client = AsgiClient(
            Application(
                Router(map(auth.sessions.protect, routes)),
                metrics=Metrics(),
                on_error=lambda error, _: error_answer(error),
                max_body_bytes=10_000,
                admit=auth.guard.admit,
            )
        )

    async def _login(self, request: Request) -> Response:
        _, cookie = await self.auth.sessions.begin(request.body.decode())
        return Response(303, b"", (cookie, (b"Location", b"/ui")))

    async def _logout(self, request: Request) -> Response:
        return Response(303, b"", (self.auth.sessions.ended(),))

    async def _page(self, request: Request) -> Response:
        return Response(200, f"{request.principal.name} {await self.auth.sessions.csrf(request)}".encode())

    async def _change(self, request: Request) -> Response:
        self.changes.append(request.principal.name)
        return Response(204)

    async def login(self, token: str, **headers: str) -> Answer:
        return await self.client.send("POST", "/ui/login", body=token.encode(), headers=headers)

    async def logged_in(self, token: str) -> tuple[str, str]:
        """The cookie, and what its forms carry."""
        answer = await self.login(token)
        assert answer.status == 303, answer.body
        cookie = (answer.header("Set-Cookie") or "").partition(";")[0]
        page = await self.page(cookie)
        return cookie, page.body.decode().split(" ")[1]

    async def page(self, cookie: str) -> Answer:
        return await self.client.send("GET", "/ui/page", headers={"Cookie": cookie})

    async def change(self, cookie: str, csrf: str | None, path: str = "/ui/change", **headers: str) -> Answer:
        body = urlencode({} if csrf is None else {"csrf": csrf, "other": "x"}).encode()
        return await self.client.send("POST", path, body=body, headers={"Cookie": cookie, **FORM, **headers})


@asynccontextmanager
async def opened(**given: Any) -> AsyncIterator[Pages]:
    settings = Settings.load(**{"auth": "tokens", "store": "memory://", "warehouse": "memory://", **given})
    clock, rng = SystemClock(), SystemRng()
    store = await open_store(settings.store, settings.kernel(), clock=clock, rng=rng, tasks=AsyncioTasks())
    try:
        yield Pages(
            auth_of(settings, store, clock, rng, Metrics(), Trail(), lambda who: None), Tokens(store, clock, rng)
        )
    finally:
        await store.close()


@pytest.fixture
def pages() -> AbstractAsyncContextManager[Pages]:
    return opened()


async def test_a_token_opens_a_session_and_forms_of_it_may_change_things(pages: Pages) -> None:
    made = await pages.tokens.create("alice")
    cookie, csrf = await pages.logged_in(made.text)
    assert (await pages.page(cookie)).body.decode() == f"alice {csrf}"
    assert (await pages.change(cookie, csrf)).status == 204
    assert (
        await pages.client.send("POST", "/ui/change", headers={"Cookie": cookie, "X-CSRF-Token": csrf})
    ).status == 204
    assert (
        await pages.client.send("POST", "/ui/change", headers={"Authorization": f"Bearer {made.text}"})
    ).status == 204
    assert pages.changes == ["alice"] * 3
    assert made.secret not in cookie


async def test_t_ui_5_the_cookie_is_for_the_browser_alone_and_secure_where_the_server_is(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    made = await pages.tokens.create("alice")
    said = (await pages.login(made.text)).header("Set-Cookie") or ""
    assert said.startswith("lakepact=")
    assert said.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Lax")
    async with opened(public_url="https://catalog.example.com") as secure:
        made = await secure.tokens.create("alice", expires_in_s=60)
        said = (await secure.login(made.text)).header("Set-Cookie") or ""
        assert said.startswith("__Host-lakepact=")
        assert "; Max-Age=60; " in said
        assert said.endswith("; HttpOnly; SameSite=Lax; Secure")
        cookie = said.partition(";")[0]
        assert (await secure.page(cookie.removeprefix("__Host-"))).status == 303
        ended = await secure.change(cookie, (await secure.logged_in(made.text))[1], "/ui/logout")
        assert ended.status == 403
    cookie, csrf = await pages.logged_in((await pages.tokens.create("bob")).text)
    ended = await pages.change(cookie, csrf, "/ui/logout")
    assert "Max-Age=0" in (ended.header("Set-Cookie") or "")


async def test_t_ui_4_without_a_session_people_are_sent_to_the_login_and_programs_are_not(pages: Pages) -> None:
    made = await pages.tokens.create("alice")
    cookie, csrf = await pages.logged_in(made.text)
    for wrong in ("", "lakepact=", "lakepact=x", cookie[:-1], cookie.replace("lakepact=", "other="), cookie + "x"):
        answer = await pages.client.send("GET", "/ui/page?a=b&c=//d", headers={"Cookie": wrong})
        assert answer.status == 303
        assert answer.header("Location") == "/ui/login?next=%2Fui%2Fpage%3Fa%3Db%26c%3D%2F%2Fd"
    # A cookie is nothing to the API: no page of somebody else's can use it there.
    assert (await pages.change(cookie, csrf, "/v1/change")).status == 401
    wrong_header = {"Cookie": cookie, "Authorization": "Bearer x"}
    assert (await pages.client.send("GET", "/ui/page", headers=wrong_header)).status == 401
    assert not pages.changes


async def test_t_ui_3_a_form_that_is_not_of_this_session_changes_nothing(pages: Pages) -> None:
    cookie, csrf = await pages.logged_in((await pages.tokens.create("alice")).text)
    _, other = await pages.logged_in((await pages.tokens.create("bob")).text)
    _, again = await pages.logged_in((await pages.tokens.create("alice")).text)
    assert len({csrf, other, again}) == 3
    for wrong in (None, "", "x", other, again, csrf[:-1], csrf + "=", "ü"):
        answer = await pages.change(cookie, wrong)
        assert answer.refusal == (403, "ForbiddenException"), wrong
    as_json = await pages.client.send("POST", "/ui/change", json={"csrf": csrf}, headers={"Cookie": cookie})
    assert as_json.status == 403
    assert not pages.changes
    assert (await pages.change(cookie, csrf)).status == 204


async def test_t_ui_3_a_form_from_another_site_changes_nothing_and_logs_nobody_in(pages: Pages) -> None:
    made = await pages.tokens.create("alice")
    cookie, csrf = await pages.logged_in(made.text)
    for headers in (
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example.com", "Host": "here:8181"},
        {"Origin": "null", "Host": "here:8181"},
        {"Origin": "http://here:9999", "Host": "here:8181"},
        {"Origin": "http://[", "Host": "here:8181"},
        {"Origin": "", "Host": "here:8181"},
    ):
        assert (await pages.change(cookie, csrf, **headers)).status == 403, headers
        assert (await pages.login(made.text, **headers)).status == 403, headers
    for headers in (
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://proxied.example.com", "Host": "here"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://here:8181", "Host": "here:8181"},
        {},
    ):
        assert (await pages.change(cookie, csrf, **headers)).status == 204, headers
    async with opened(public_url="https://catalog.example.com") as proxied:
        cookie, csrf = await proxied.logged_in((await proxied.tokens.create("alice")).text)
        inside = {"Origin": "https://catalog.example.com", "Host": "10.0.0.1:8181"}
        assert (await proxied.change(cookie, csrf, **inside)).status == 204


async def test_t_auth_12_a_server_that_asks_nobody_still_takes_no_forms_from_elsewhere() -> None:
    async with opened(auth="none") as pages:
        assert (await pages.page("")).body == b"None "
        assert (await pages.change("", None)).status == 204
        for path in ("/ui/change", "/v1/change"):
            answer = await pages.change("", None, path, **{"Sec-Fetch-Site": "cross-site"})
            assert answer.refusal == (403, "ForbiddenException")
        assert (await pages.change("", None, "/v1/change", **{"Sec-Fetch-Site": "same-origin"})).status == 204


@pytest.mark.parametrize("path", ["/ui/change", "/v1/change"])
async def test_t_auth_12_browsers_that_say_only_their_origin_are_held_to_it(path: str) -> None:
    async with opened(auth="none", public_url="https://catalog.example.com") as pages:
        for elsewhere in ("https://evil.example", "http://[half", "null", ""):
            answer = await pages.change("", None, path, Host="localhost:8181", Origin=elsewhere)
            assert answer.refusal == (403, "ForbiddenException"), elsewhere
        for here in ("http://localhost:8181", "http://LOCALHOST:8181", "https://catalog.example.com"):
            assert (await pages.change("", None, path, Host="localhost:8181", Origin=here)).status == 204, here
        trusted = {"Sec-Fetch-Site": "same-origin", "Origin": "https://elsewhere.example"}
        assert (await pages.change("", None, path, **trusted)).status == 204, "what the browser has compared itself"
        assert (await pages.change("", None, path)).status == 204, "no browser"


async def test_t_ui_5_a_session_ends_with_its_token_and_with_its_time(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    one, two = await pages.tokens.create("one"), await pages.tokens.create("two", expires_in_s=60)
    cookies = [(await pages.logged_in(made.text))[0] for made in (one, two)]
    assert [(await pages.page(cookie)).status for cookie in cookies] == [200, 200]
    now_ms += 60_000
    assert [(await pages.page(cookie)).status for cookie in cookies] == [200, 303]
    await pages.tokens.revoke(one.token.id)
    assert (await pages.page(cookies[0])).status == 303
    three, _ = await pages.logged_in((await pages.tokens.create("three")).text)
    now_ms += 43_200_000
    assert (await pages.page(three)).status == 303


async def test_a_wrong_token_opens_nothing_and_an_access_token_is_no_session(pages: Pages) -> None:
    made = await pages.tokens.create("alice")
    for wrong in ("", "x", made.text + "x", "lakepact_"):
        assert (await pages.login(wrong)).refusal == (401, "NotAuthorizedException")
    cookie, _ = await pages.logged_in(made.text)
    session = cookie.partition("=")[2]
    answer = await pages.client.send("POST", "/v1/change", headers={"Authorization": f"Bearer {session}"})
    assert answer.status == 401


async def test_t_ui_6_after_the_login_people_go_back_to_a_page_of_ours_only() -> None:
    async with opened(base_path="/catalog") as pages:
        local = pages.auth.sessions.local
        assert local("/catalog/ui/tables?x=1") == "/catalog/ui/tables?x=1"
        assert local("/catalog/ui") == "/catalog/ui"
        for elsewhere in (
            "https://evil.example.com/catalog/ui",
            "//evil.example.com",
            "/catalog/uix",
            "/catalog/ui/\\evil",
            "/catalog/ui//evil",
            "/catalog/ui/\r\nSet-Cookie: a=b",
            "",
            "javascript:alert(1)",
        ):
            assert local(elsewhere) == "/catalog/ui"


async def test_keys_are_rotated_and_what_the_old_one_signed_still_counts(
    pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms, now_s = SystemClock().now_ms(), SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    made = await pages.tokens.create("alice")

    async def key_of_a_new_session() -> str:
        cookie = (await pages.logged_in(made.text))[0]
        return cookie.partition("=")[2].partition(".")[0]

    first = await key_of_a_new_session()
    now_ms, now_s = now_ms + 31 * 86_400_000, now_s + 31 * 86_400
    # Made now, and used only when every replica has seen it.
    assert await key_of_a_new_session() == first
    old_cookie, old_csrf = await pages.logged_in(made.text)
    now_ms, now_s = now_ms + 301_000, now_s + 301
    assert await key_of_a_new_session() != first
    assert (await pages.page(old_cookie)).status == 200
    assert (await pages.change(old_cookie, old_csrf)).status == 204
