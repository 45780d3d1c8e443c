"""People who log in at an identity provider and come back: what lets them in, and everything that does not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from lakepact.errors import InvalidSetting
from lakepact.runtime import SystemClock
from lakepact.server.app import build
from lakepact.server.auth.guard import FAILURES_AT_ONCE
from lakepact.settings import Settings
from tests.support.asgi_client import Answer
from tests.support.doors import Door, asking
from tests.support.issuer import Issuer, Registered
from tests.support.pages import Html
from tests.support.waiting import wait_until_async
from tests.wire.uis import guarded

PUBLIC = "https://catalog.example.com"
CALLBACK = f"{PUBLIC}/ui/login/callback"
TABLE = "/ui/catalog/main/sales/orders?x=1"


@pytest.fixture(autouse=True)
def registered(issuer: Issuer) -> None:
    issuer.client = Registered(redirect_uri=CALLBACK)


@dataclass(slots=True)
class Browser:
    """What a browser keeps and where it goes, for one server."""

    door: Door
    issuer: Issuer
    jar: dict[str, str] = field(default_factory=dict)

    async def go(self, place: str) -> Answer:
        """One page, without going where it leads."""
        parts = urlsplit(place)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        answer = await self.door.client.send("GET", target, headers={"cookie": self.cookies, "host": "evil.example"})
        for name, value in answer.headers:
            if name == "Set-Cookie":
                cookie, _, about = value.partition(";")
                assert "HttpOnly; SameSite=Lax; Secure" in about and "Path=/" in about and "Domain" not in about
                key, _, text = cookie.partition("=")
                assert key.startswith("__Host-"), value
                self.jar.pop(key, None)
                if "Max-Age=0" not in about:
                    self.jar[key] = text
        return answer

    @property
    def cookies(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.jar.items())

    async def begin(self, back: str = TABLE) -> dict[str, str]:
        """On the way to the issuer: what it is asked."""
        answer = await self.go(f"/ui/login/issuer?{urlencode({'next': back})}")
        assert answer.status == 303, answer.body
        place = urlsplit(answer.header("location") or "")
        assert f"{place.scheme}://{place.netloc}{place.path}" == f"{self.issuer.url}/authorize"
        return dict(parse_qsl(place.query))

    async def log_in(self, back: str = TABLE) -> Answer:
        """All the way, and what is answered in the end."""
        return await self.go(self.issuer.approve(await self.begin(back)))

    async def who(self) -> str | None:
        """Whom the server takes them for."""
        answer = await self.go("/ui/account")
        return guarded(answer).text if answer.status == 200 else None


@pytest.fixture
def browser(tmp_path: Path, issuer: Issuer) -> AbstractAsyncContextManager[Browser]:
    return opened(tmp_path, issuer)


@asynccontextmanager
async def opened(folder: Path, issuer: Issuer, **given: Any) -> AsyncIterator[Browser]:
    login = {"oidc_client_id": issuer.client.id, "public_url": PUBLIC, "oidc_admin_groups": "owners", **given}
    async with asking(folder, **issuer.settings(**login)) as door:
        yield Browser(door, issuer)


def refused(answer: Answer, status: int, why: str) -> Html:
    """A page that says why, lets nobody in, and has both ways in on it."""
    page = guarded(answer)
    assert answer.status == status, page.text
    assert why in page.text and "That did not work" in page.text
    assert "Log in with" in page.text and page.forms
    set_cookies = [value for name, value in answer.headers if name == "Set-Cookie"]
    assert not any(value.startswith("__Host-lakepact=") for value in set_cookies)
    return page


async def test_somebody_logs_in_at_the_issuer_and_gets_to_the_table_they_asked_for(
    browser: Browser, issuer: Issuer
) -> None:
    issuer.login_claims = {"groups": ["owners"]}
    first = await browser.go(TABLE)
    page = guarded(await browser.go(first.header("location") or ""))
    way = page.link(f"Log in with {urlsplit(issuer.url).netloc}")
    answer = await browser.go(way)
    asked = dict(parse_qsl(urlsplit(answer.header("location") or "").query))
    # Where they come back to is the settings' to say, whatever Host the request had.
    assert asked["redirect_uri"] == CALLBACK and asked["realm"] == "company"
    assert asked["scope"] == "openid profile"
    begun = browser.jar["__Host-lakepact-login"]
    assert not any(asked[name] in begun for name in ("state", "nonce"))
    answer = await browser.go(issuer.approve(asked))
    assert (answer.status, answer.header("location")) == (303, TABLE), answer.body
    assert answer.header("cache-control") == "no-store"
    assert list(browser.jar) == ["__Host-lakepact"]
    text = await browser.who()
    assert text is not None and "alice" in text and "administrator" in text


async def test_a_token_can_still_be_pasted(browser: Browser, issuer: Issuer) -> None:
    form = urlencode({"token": issuer.token(sub="bob"), "next": TABLE}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = await browser.door.client.send("POST", "/ui/login", body=form, headers=headers)
    assert (answer.status, answer.header("location")) == (303, TABLE)


async def test_another_replica_finishes_what_one_began(tmp_path: Path, issuer: Issuer) -> None:
    async with opened(tmp_path, issuer) as one, opened(tmp_path, issuer) as two:
        back = issuer.approve(await one.begin())
        two.jar.update(one.jar)
        assert (await two.go(back)).header("location") == TABLE
        one.jar = two.jar
        assert "alice" in (await one.who() or "")


def passing(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let both clocks say that so many seconds have passed since now: one alone would be a clock that was set."""
    now_ms, now_s = SystemClock().now_ms(), SystemClock().monotonic_s()

    def pass_time(seconds: float) -> None:
        monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms + int(seconds * 1000))
        monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s + seconds)

    return pass_time


async def test_a_session_lives_as_the_setting_says_and_not_as_long_as_the_id_token(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.login_claims = {"exp": int(time.time()) + 5}
    async with opened(tmp_path, issuer, session_s=3_600) as browser:
        answer = await browser.log_in()
        cookies = [value for name, value in answer.headers if name == "Set-Cookie"]
        assert any("Max-Age=3600" in value for value in cookies if value.startswith("__Host-lakepact="))
        pass_time = passing(monkeypatch)
        pass_time(3_500)
        assert await browser.who() is not None
        pass_time(3_600.001)
        assert await browser.who() is None


@pytest.mark.parametrize("in_form", [False, True])
async def test_a_client_with_a_secret_shows_it_to_the_issuer_alone(
    in_form: bool, tmp_path: Path, issuer: Issuer
) -> None:
    secret = "s3cret+/ &%"
    issuer.client = Registered(redirect_uri=CALLBACK, secret=secret, in_form=in_form)
    if in_form:
        issuer.says = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    async with opened(tmp_path, issuer, oidc_client_secret=secret) as browser:
        assert (await browser.log_in()).header("location") == TABLE
    assert not any(secret in asked for asked in issuer.asked)
    async with opened(tmp_path, issuer, oidc_client_secret="wrong-secret") as browser:
        page = refused(await browser.log_in(), 503, "does not accept this server as a client of its (invalid_client)")
        assert "wrong-secret" not in page.text


# --- what lets nobody in ----------------------------------------------------------------------------------------------


async def test_t_login_1_an_answer_to_something_else_lets_nobody_in(browser: Browser, issuer: Issuer) -> None:
    other = Browser(browser.door, issuer)
    theirs = issuer.approve(await other.begin())
    # Somebody else's answer in this browser: they would be logged in as another.
    refused(await browser.go(theirs), 401, "this browser has begun no login")
    mine = await browser.begin()
    refused(await browser.go(theirs), 401, "another login")
    assert not browser.jar, "what was begun is over with the first answer"
    refused(await browser.go(issuer.approve(mine)), 401, "begun no login")
    for state in ("", "x", "ü", "\x00", mine["state"]):
        await browser.begin()
        refused(await browser.go(f"{CALLBACK}?{urlencode({'code': 'c', 'state': state})}"), 401, "another login")
    assert "/token" not in issuer.asked, "a wrong answer is not worth a question to the issuer"


async def test_t_login_2_an_answer_is_taken_once(browser: Browser, issuer: Issuer) -> None:
    back = issuer.approve(await browser.begin())
    begun = dict(browser.jar)
    assert (await browser.go(back)).status == 303
    refused(await browser.go(back), 401, "begun no login, or has finished it already")
    # Somebody who has kept the cookie: the code counts once.
    browser.jar = begun
    refused(await browser.go(back), 401, "invalid_grant")


async def test_a_cookie_that_is_not_ours_begins_nothing(browser: Browser, issuer: Issuer, tmp_path: Path) -> None:
    assert (await browser.log_in()).status == 303
    session = browser.jar["__Host-lakepact"]
    back = issuer.approve(await browser.begin())
    begun = browser.jar["__Host-lakepact-login"]
    header, said, mac = begun.split(".")
    for wrong in ("x", "a.b.c", session, f"{header}.{said}.{mac[:-2]}AA", f"{header}.{said}x.{mac}", "." * 3, "é"):
        browser.jar = {"__Host-lakepact-login": wrong}
        refused(await browser.go(back), 401, "not begun here")
    # Nor is what was begun a session.
    browser.jar = {"__Host-lakepact": begun}
    assert await browser.who() is None
    elsewhere = tmp_path / "elsewhere"
    async with opened(elsewhere, issuer) as other:
        other.jar = {"__Host-lakepact-login": begun}
        refused(await other.go(back), 401, "not begun here")


async def test_a_login_that_takes_too_long_is_begun_again(
    browser: Browser, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = issuer.approve(await browser.begin())
    passing(monkeypatch)(601)
    refused(await browser.go(back), 401, "longer than 10 minutes")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "another"}, "another login (nonce)"),
        ({"nonce": None}, "another login (nonce)"),
        ({"nonce": 7}, "another login (nonce)"),
        ({"aud": "lakepact"}, "another client than oidc_client_id"),
        ({"aud": None}, "another client"),
        ({"aud": ["other", "another"]}, "another client"),
        ({"aud": ["lakepact-web", "other"]}, "azp"),
        ({"azp": "other"}, "azp"),
        ({"iss": "https://another.example.com"}, "another issuer"),
        ({"exp": 1}, "expired"),
        ({"exp": None}, "when it expires"),
        ({"sub": None}, "claim sub is missing"),
        ({"groups": {"owners": True}}, "groups"),
    ],
)
async def test_an_id_token_that_is_not_for_this_login_lets_nobody_in(
    claims: dict[str, Any], why: str, browser: Browser, issuer: Issuer
) -> None:
    issuer.login_claims = claims
    refused(await browser.log_in(), 401, why)
    assert await browser.who() is None


async def test_several_audiences_are_fine_if_it_was_made_for_us(browser: Browser, issuer: Issuer) -> None:
    issuer.login_claims = {"aud": ["lakepact-web", "other"], "azp": "lakepact-web"}
    assert (await browser.log_in()).status == 303


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        ((400, b'{"error": "invalid_grant"}'), 401, "refused the login (invalid_grant)"),
        ((400, b'{"error": "<b>x</b>"}'), 401, "an error without a name"),
        ((401, b"[]"), 401, "an error without a name"),
        ((400, b'{"error": "temporarily_unavailable"}'), 503, "now (temporarily_unavailable)"),
        ((400, b"no json"), 503, "no JSON"),
        ((500, b"{}"), 503, "answered with 500"),
        ((302, b""), 503, "answered with 302"),
        ((200, b""), 503, "no JSON"),
        ((200, b"[]"), 503, "no ID token"),
        ((200, b'{"access_token": "x"}'), 503, "no ID token"),
        ((200, b'{"id_token": 7}'), 503, "no ID token"),
        ((200, b'{"id_token": "a.b.c"}'), 401, "neither a token"),
        ((200, b'{"id_token": "' + b"x" * 20_000 + b'"}'), 401, "neither a token"),
        ((200, b'"' + b"x" * 600_000 + b'"'), 503, "more than"),
    ],
)
async def test_whatever_the_issuer_answers_to_a_code_is_a_page(
    answer: tuple[int, bytes], status: int, why: str, browser: Browser, issuer: Issuer
) -> None:
    issuer.token_answer = answer
    refused(await browser.log_in(), status, why)


async def test_an_id_token_of_another_key_lets_nobody_in(browser: Browser, issuer: Issuer) -> None:
    back = issuer.approve(await browser.begin())
    token = issuer.with_shared_secret(b"s" * 32, "rsa")
    issuer.token_answer = (200, f'{{"id_token": "{token}"}}'.encode())
    refused(await browser.go(back), 401, "oidc_algorithms")


async def test_an_error_of_the_issuers_is_shown_only_to_whoever_has_asked(browser: Browser) -> None:
    said = {"error": "access_denied", "error_description": "not <b>you</b>"}
    page = refused(await browser.go(f"{CALLBACK}?{urlencode(said)}"), 401, "begun no login")
    assert "not" not in page.text.partition("That did not work")[2].partition("again")[0]
    state = (await browser.begin())["state"]
    page = refused(await browser.go(f"{CALLBACK}?{urlencode({**said, 'state': state})}"), 401, "access_denied")
    assert "not <b>you</b>" in page.text
    state = (await browser.begin())["state"]
    answer = await browser.go(f"{CALLBACK}?{urlencode({'error': 'server_error', 'state': state})}")
    refused(answer, 503, "server_error")
    assert answer.header("retry-after") == "1"
    for code in ("", "c" * 5_000):
        state = (await browser.begin())["state"]
        refused(await browser.go(f"{CALLBACK}?{urlencode({'code': code, 'state': state})}"), 401, "no code")


async def test_an_answer_of_another_issuer_is_not_taken(browser: Browser, issuer: Issuer) -> None:
    back = issuer.approve(await browser.begin())
    refused(await browser.go(f"{back}&iss=https%3A%2F%2Fanother.example.com"), 401, "another issuer")
    assert "/token" not in issuer.asked
    back = issuer.approve(await browser.begin())
    assert (await browser.go(f"{back}&{urlencode({'iss': issuer.url})}")).status == 303


async def test_an_issuer_that_always_names_itself_must_do_so(browser: Browser, issuer: Issuer) -> None:
    issuer.says = {"authorization_response_iss_parameter_supported": True}
    asked = await browser.begin()
    issuer.says = {}
    refused(await browser.go(issuer.approve(asked)), 401, "another issuer")
    issuer.says = {"authorization_response_iss_parameter_supported": True}
    assert (await browser.log_in()).status == 303


async def test_an_issuer_that_is_down_is_a_page_and_is_not_asked_again_and_again(
    browser: Browser, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    issuer.down = True
    for _ in range(5):
        refused(await browser.go("/ui/login/issuer"), 503, "description cannot be had now")
    assert issuer.asked == ["/.well-known/openid-configuration"]
    issuer.down = False
    now_s += 2
    back = issuer.approve(await browser.begin())
    issuer.down = True
    refused(await browser.go(back), 503, "answered with 500")
    assert not browser.jar
    # Its description is known for a day; it is asked for again in the background.
    now_s += 3_600
    await browser.begin()

    async def asked_again() -> bool:
        return issuer.asked.count("/.well-known/openid-configuration") == 3

    # This request must not reach the issuer while the next test uses it.
    await wait_until_async(asked_again, lambda: str(issuer.asked))


@pytest.mark.parametrize(
    "says",
    [
        {"issuer": "https://another.example.com"},
        {"authorization_endpoint": None},
        {"authorization_endpoint": "http://id.example.com/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "https://[id.example.com/authorize"},
        {"authorization_endpoint": "https:///authorize"},
        {"authorization_endpoint": "https://id.example.com/\r\nSet-Cookie: a=b"},
        {"token_endpoint": "http://id.example.com/token"},
        {"token_endpoint": 7},
        {"end_session_endpoint": "http://id.example.com/logout"},
    ],
)
async def test_a_description_that_is_none_is_as_good_as_no_answer(
    says: dict[str, Any], browser: Browser, issuer: Issuer
) -> None:
    issuer.says = says
    refused(await browser.go("/ui/login/issuer"), 503, "description cannot be had now")


async def test_those_who_try_codes_have_to_wait(
    browser: Browser, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    # As time passes, further codes are allowed.
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    allowed = int(FAILURES_AT_ONCE)
    statuses = []
    for _ in range(allowed + 2):
        state = (await browser.begin())["state"]
        answer = await browser.go(f"{CALLBACK}?{urlencode({'code': 'guess', 'state': state})}")
        statuses.append(answer.status)
    assert statuses == [401] * allowed + [429] * 2
    assert issuer.asked.count("/token") == allowed


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        "https://elsewhere.example/",
        "//elsewhere.example",
        "/ui//elsewhere.example",
        "/ui\\elsewhere.example",
        "/v1/config",
        "/ui/\r\nSet-Cookie: a=b",
        "/ui/" + "x" * 3_000,
        "",
    ],
)
async def test_t_login_3_nobody_is_sent_elsewhere_after_the_login(place: str, browser: Browser) -> None:
    assert (await browser.log_in(place)).header("location") == "/ui"


async def test_a_server_below_a_path_is_come_back_to_there(tmp_path: Path, issuer: Issuer) -> None:
    issuer.client = Registered(redirect_uri=f"{PUBLIC}/lake/ui/login/callback")
    async with opened(tmp_path, issuer, base_path="/lake", public_url=f"{PUBLIC}/lake/") as browser:
        answer = await browser.go("/lake/ui/login/issuer?next=/lake/ui/server")
        asked = dict(parse_qsl(urlsplit(answer.header("location") or "").query))
        assert (await browser.go(issuer.approve(asked))).header("location") == "/lake/ui/server"


async def test_logging_out_offers_to_log_out_there_too(browser: Browser, issuer: Issuer) -> None:
    await browser.log_in()
    form = guarded(await browser.go("/ui/account")).forms[-1]
    headers = {"content-type": "application/x-www-form-urlencoded", "cookie": browser.cookies}
    answer = await browser.door.client.send("POST", "/ui/logout", body=urlencode(form.fields).encode(), headers=headers)
    assert answer.status == 303
    page = guarded(await browser.go(answer.header("location") or ""))
    assert "You are logged out" in page.text
    place = urlsplit((await browser.go(page.link("log out there too"))).header("location") or "")
    assert f"{place.scheme}://{place.netloc}{place.path}" == f"{issuer.url}/logout"
    assert dict(parse_qsl(place.query)) == {
        "client_id": "lakepact-web",
        "post_logout_redirect_uri": f"{PUBLIC}/ui/login",
    }


async def test_without_a_client_there_is_no_such_way(tmp_path: Path, issuer: Issuer) -> None:
    async with asking(tmp_path, **issuer.settings()) as door:
        page = guarded(await door.client.send("GET", "/ui/login"))
        assert "Log in with" not in page.text
        for path in ("/ui/login/issuer", "/ui/login/callback?code=x&state=y", "/ui/logout/issuer"):
            answer = await door.client.send("GET", path)
            assert answer.status == 404, path
            guarded(answer)


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"oidc_client_id": "x"}, "oidc_client_id needs public_url"),
        ({"oidc_client_secret": "hush-hush"}, "oidc_client_secret needs oidc_client_id"),
        ({"oidc_scopes": "profile"}, "openid must be among them"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why) as caught:
        Settings.load(auth="oidc", oidc_issuer="https://a", oidc_audience="a", **given)
    assert "hush" not in str(caught.value)


async def test_a_code_is_not_sent_through_the_open(issuer: Issuer) -> None:
    given = issuer.settings(oidc_client_id="x", public_url="http://catalog.example.com")
    with pytest.raises(InvalidSetting, match="begins with https"):
        await build(Settings.load(store="memory://", warehouse="memory://", **given))


def test_the_clients_secret_is_not_shown() -> None:
    given = {"auth": "oidc", "oidc_issuer": "https://a", "oidc_audience": "a", "public_url": PUBLIC}
    shown = Settings.load(**given, oidc_client_id="x", oidc_client_secret="hush-hush").shown()
    assert shown["oidc_client_secret"] == "***" and "hush" not in str(shown)
