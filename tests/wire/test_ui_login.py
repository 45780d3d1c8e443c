"""The web page of a server that asks who looks: the way in, what it takes to change something, the way out."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from lakepact.runtime import SystemClock
from tests.support.asgi_client import Answer
from tests.support.doors import Door, asking
from tests.support.pages import Html
from tests.wire.uis import guarded


@pytest.fixture
def door(tmp_path: Path) -> AbstractAsyncContextManager[Door]:
    return asking(tmp_path)


async def show(door: Door, path: str, cookie: str = "", status: int = 200) -> Html:
    answer = await door.client.send("GET", path, headers={"cookie": cookie})
    assert answer.status == status, answer.body
    return guarded(answer)


async def submit(door: Door, path: str, fields: dict[str, str], cookie: str = "", **headers: str) -> Answer:
    sent = {"content-type": "application/x-www-form-urlencoded", "cookie": cookie, **headers}
    return await door.client.send("POST", path, body=urlencode(fields).encode(), headers=sent)


async def logged_in(door: Door, name: str = "ada <b>") -> str:
    made = await door.tokens.create(name, admin=True)
    answer = await submit(door, "/ui/login", {"token": made.text, "next": "/ui/server"})
    assert (answer.status, answer.header("location")) == (303, "/ui/server"), answer.body
    return (answer.header("set-cookie") or "").partition(";")[0]


async def test_every_page_leads_to_the_login_first_and_back_afterwards(door: Door) -> None:
    for path in ("/ui", "/ui/catalog/main", "/ui/transactions/main?state=failed", "/ui/account"):
        answer = await door.client.send("GET", path)
        assert answer.status == 303 and answer.body == b""
        place = answer.header("location") or ""
        page = await show(door, place)
        [form] = page.forms
        assert form.fields["next"] == path and "Transactions" not in page.text
    assert (await door.client.send("GET", "/ui/static/ui.css")).status == 200


async def test_after_the_login_the_page_says_who_it_is(door: Door) -> None:
    cookie = await logged_in(door)
    page = await show(door, "/ui", cookie)
    account = await show(door, page.link("ada <b>"), cookie)
    assert "administrator" in account.text and "Log out" in account.text


async def test_the_server_page_links_only_to_what_a_login_opens(door: Door, tmp_path: Path) -> None:
    page = await show(door, "/ui/server", await logged_in(door))
    assert "/metrics" not in {href for href, _ in page.links} and "GET /metrics with a token" in page.text
    async with asking(tmp_path / "open", open_metrics=True, open_docs=False) as other:
        page = await show(other, "/ui/server", await logged_in(other))
        hrefs = {href for href, _ in page.links}
        assert "/metrics" in hrefs and "/docs" not in hrefs


async def test_t_ui_8_a_wrong_token_is_401_and_many_of_them_have_to_wait(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    # As time passes, further failures are allowed.
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    answer = await submit(door, "/ui/login", {"token": "lakepact_x_y"})
    assert answer.status == 401 and answer.header("set-cookie") is None
    page = guarded(answer)
    assert "That did not work" in page.text and "lakepact_x_y" not in page.text
    for _ in range(150):
        answer = await submit(door, "/ui/login", {"token": "lakepact_x_y"})
    assert answer.status == 429
    guarded(answer)


async def test_who_asks_too_often_or_for_what_is_not_there_gets_a_page_that_names_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    async with asking(tmp_path, rate_limit_per_s=1, rate_limit_burst=2) as door:
        answers = [await door.client.send("GET", "/ui/login") for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert "Too often" in guarded(answers[-1]).text and answers[-1].header("Retry-After") == "1"
        lost = await door.client.send("GET", "/ui/nope")
        page = guarded(lost)
        assert lost.status == 404 and "Not here" in page.text
        assert "/v1/config" not in page.text and "/ui" in {href for href, _ in page.links}
        assert not any("main" in href.split("/") for href, _ in page.links), "strangers learn of no warehouse"


ELSEWHERE = [
    "",
    "https://elsewhere.example/",
    "//elsewhere.example",
    "///elsewhere.example",
    "/\\elsewhere.example",
    "\\\\elsewhere.example",
    "/ui//elsewhere.example",
    "/v1/config",
    "ui/server",
    "/uix",
    "/ui/../v1",
    "/ui/./../v1",
    "/ui/a/../../v1",
    "/ui/..",
    "/ui/.",
    "/ui/%2e%2e/v1",
    "/ui/%2E./v1",
    "/ui/.%2e/v1",
    "/ui/%252e%252e/v1",
    "/ui/%25252e%25252e/v1",
    "/ui/..%2fv1",
    "/ui/%2e%2e%2fv1",
    "/ui/..%5cv1",
    "/ui/%5c%5celsewhere.example",
    "/ui/%2f%2felsewhere.example",
    "/ui/..\\v1",
    "/ui/\t../v1",
    "/ui/.\t./v1",
    "/ui/%09../v1",
    "/ui/%0d%0aLocation:%20https://elsewhere.example",
    "/ui/\r\nLocation: x",
    "/ui/%00",
    "/ui/../v1?next=/ui/",
    "/ui/..#/ui",
    "/ui/\u2025/v1",
    " /ui/server",
]


@pytest.mark.parametrize("place", ELSEWHERE)
async def test_t_ui_6_nobody_is_sent_elsewhere_after_the_login(place: str, door: Door) -> None:
    made = await door.tokens.create("ada")
    answer = await submit(door, "/ui/login", {"token": made.text, "next": place})
    assert (answer.status, answer.header("location")) == (303, "/ui")


@pytest.mark.parametrize(
    "place",
    ["/ui", "/ui/", "/ui/server", "/ui/catalog/main/a%1Fb/t%20x", "/ui/catalog/main/%C3%A4", "/ui/search?q=a.b"],
)
async def test_after_the_login_people_come_to_the_page_they_wanted(place: str, door: Door) -> None:
    made = await door.tokens.create("ada")
    answer = await submit(door, "/ui/login", {"token": made.text, "next": place})
    assert (answer.status, answer.header("location")) == (303, place)


async def test_a_form_needs_what_the_page_of_its_session_carries(door: Door) -> None:
    cookie = await logged_in(door)
    begun = await door.post("/v1/transactions", {}, (await door.tokens.create("eve", admin=True)).text)
    path = f"/ui/transactions/main/{begun.json()['transaction-id']}"
    page = await show(door, f"{path}/abort", cookie)
    fields = page.forms[-1].fields
    assert len(fields["csrf"]) > 20
    other = await logged_in(door, "bob")
    for sent, with_cookie, headers in (
        ({}, cookie, {}),
        ({"csrf": "x"}, cookie, {}),
        (fields, other, {}),
        (fields, cookie, {"sec-fetch-site": "cross-site"}),
    ):
        answer = await submit(door, f"{path}/abort", sent, with_cookie, **headers)
        assert answer.status == 403, (sent, answer.body)
        guarded(answer)
    assert (await submit(door, f"{path}/abort", fields)).status == 303
    assert "open" in (await show(door, path, cookie)).text
    assert (await submit(door, f"{path}/abort", fields, cookie)).status == 303
    assert "aborted" in (await show(door, path, cookie)).text


async def test_logging_out_takes_the_cookie_away(door: Door) -> None:
    cookie = await logged_in(door)
    fields = (await show(door, "/ui/account", cookie)).forms[-1].fields
    assert (await submit(door, "/ui/logout", {}, cookie)).status == 403
    answer = await submit(door, "/ui/logout", fields, cookie)
    assert (answer.status, answer.header("location")) == (303, "/ui/login")
    assert "Max-Age=0" in (answer.header("set-cookie") or "")


async def test_a_server_that_asks_nobody_has_nothing_to_log_in_to(tmp_path: Path) -> None:
    async with asking(tmp_path, auth="none") as door:
        answer = await door.client.send("GET", "/ui/login")
        assert (answer.status, answer.header("location")) == (303, "/ui")
        assert (await submit(door, "/ui/login", {"token": "x"})).status == 400
        assert "asks nobody" in (await show(door, "/ui/account")).text
