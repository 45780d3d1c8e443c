"""The web page in a real Chromium: every page, light and dark and on a phone, with real, hostile and very large data.

LAKEPACT_SCREENSHOTS=<folder> keeps a picture of every page in every look, for people to judge.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import pytest

from lakepact.catalog.trail import Entry, Outcome, file_name
from lakepact.client import new_key
from lakepact.iceberg.requests import Identifier
from lakepact.runtime import SystemClock, SystemRng
from lakepact.server.auth.tokens import Tokens
from lakepact.settings import Settings
from lakepact.stores import open_store
from tests.support.browser import axe, chromium, findings
from tests.support.server import Server, running_server
from tests.support.showcase import HOSTILE, Company, fill
from tests.wire.uis import many_tables

# The first of all may install the browser.

T = TypeVar("T")

LOOKS: Final[dict[str, dict[str, Any]]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "has_touch": True},
}
PARTIAL: Final = (
    *("overview", "warehouse", "namespace", "search", "table", "timeline", "lineage", "delta"),
    *("transactions", "commit", "pipelines", "run"),
)
"""Pages for somebody who may read a part of the warehouse."""

NARROWEST: Final = {"viewport": {"width": 320, "height": 640}}


@dataclass(frozen=True, slots=True)
class Shown:
    """A server with everything in it, and where its pages are."""

    server: Server
    lake: Company
    pages: dict[str, str]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("ui")
    (folder / "data").mkdir()
    run(many_tables(Settings.load(data=str(folder / "data")), "many", 10_000))
    with running_server(folder, env={"LAKEPACT_LOG_LEVEL": "warning", "LAKEPACT_UPKEEP_INTERVAL_S": "5"}) as server:
        lake = fill(server.url, folder / "data" / "warehouse")
        lake.past("raw", "events", 5_000, receipts=120, step_ms=60_000)
        busy_trail(folder / "data" / "warehouse")
        yield Shown(server, lake, pages_of(lake))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


def run(work: Coroutine[Any, Any, T]) -> T:
    """Elsewhere: this thread has an event loop, which is Playwright's."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def busy_trail(warehouse: Path) -> None:
    """More than a page of the audit trail, with names that nobody would choose."""
    now_ms = SystemClock().now_ms()
    reason = "eve may not do this: it needs the role manage on table sales.orders. Whoever manages that can give it"
    lines = []
    for number in range(120):
        tables = (Identifier(("sales",), "orders"), *(Identifier(("names",), one) for one in HOSTILE[: number % 6]))
        refused = number % 4 == 1
        outcome = list(Outcome)[number % 4]
        entry = Entry(
            now_ms - 120 + number,
            "default",
            HOSTILE[number % len(HOSTILE)] if number % 3 else "eve",
            ("updateTable", "dropTable", "commitTransaction")[number % 3],
            outcome,
            tables if number % 5 else (),
            transaction_id=new_key(),
            reason=reason if refused else None,
            detail={"holder": "user:" + "x" * 200, "role": "read", "on": "warehouse"} if not number % 5 else None,
        )
        lines.append(json.dumps(entry.to_json("main")))
    file = warehouse / file_name(now_ms - 120, now_ms - 1, "host", 1)
    file.parent.mkdir(parents=True)
    file.write_text("\n".join([*lines, "damaged"]))


def pages_of(lake: Company) -> dict[str, str]:
    def ids(state: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = lake.done("GET", f"/transactions?state={state}&pageToken=&pageSize=500")[
            "transactions"
        ]
        return found

    runs = [one["transaction-id"] for one in ids("committed") if "pipeline" in one["properties"]]
    failed_run = next(one["transaction-id"] for one in ids("aborted") if "pipeline" in one["properties"])
    stale = next(one["transaction-id"] for one in ids("open") if one["properties"].get("team") == "finance")
    hostile = quote(HOSTILE[0], safe="")
    return {
        "overview": "/ui",
        "server": "/ui/server",
        "warehouse": "/ui/catalog/main",
        "namespace": "/ui/catalog/main/sales",
        "empty-namespace": "/ui/catalog/main/empty",
        "hostile-names": "/ui/catalog/main/names",
        "hostile-table": f"/ui/catalog/main/names/{hostile}",
        "many-tables": "/ui/catalog/main/many",
        "search": "/ui/search?q=orders",
        "search-many": "/ui/search?q=t0",
        "table": "/ui/catalog/main/sales/orders",
        "govern": "/ui/catalog/main/sales/orders/govern",
        "timeline": "/ui/catalog/main/shop/fact_sales/timeline",
        "snapshots": "/ui/catalog/main/sales/orders/snapshots",
        "lineage": "/ui/catalog/main/shop/fact_sales/lineage",
        "many-versions": "/ui/catalog/main/raw/events",
        "many-versions-timeline": "/ui/catalog/main/raw/events/timeline",
        "many-versions-snapshots": "/ui/catalog/main/raw/events/snapshots",
        "view": "/ui/catalog/main/sales/weekly_revenue",
        "delta": "/ui/catalog/main/ml/labels",
        "delta-timeline": "/ui/catalog/main/ml/labels/timeline",
        "transactions": "/ui/transactions/main",
        "commit": f"/ui/transactions/main/{runs[-1]}",
        "open": f"/ui/transactions/main/{stale}",
        "refused": f"/ui/transactions/main/{ids('failed')[0]['transaction-id']}",
        "pipelines": "/ui/pipelines/main",
        "run": f"/ui/pipelines/main/{runs[-1]}",
        "failed-run": f"/ui/pipelines/main/{failed_run}",
        "mirrors": "/ui/mirrors/main",
        "audit": "/ui/audit/main",
        "audit-none": "/ui/audit/main?principal=nobody&outcome=denied",
        "broken-table": "/ui/catalog/main/many/t00001",
    }


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_is_shown_well(look: str, shown: Shown, browser: Any) -> None:
    script = axe()
    # What a look cannot change is looked at once.
    rules = {"light": None, "dark": ["color-contrast"], "phone": ["scrollable-region-focusable", "target-size"]}[look]
    wrong: list[str] = []
    said: list[str] = []
    asked: list[str] = []
    context = browser.new_context(**LOOKS[look])
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(f"a dialog: {dialog.message}"))
    page.on("request", lambda request: asked.append(request.url))
    for name, path in shown.pages.items():
        answer = page.goto(shown.server.url + path)
        keep(page, f"{name}-{look}")
        foreign = [url for url in asked if not url.startswith(shown.server.url)]
        width, room = page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
        problems = [*said, *foreign, *findings(page, script, rules=rules)]
        if answer.status != 200:
            problems.append(f"status {answer.status}")
        if width > room:
            problems.append(f"it is {width} wide where there is room for {room}")
        wrong += [f"{name}, {look}: {problem}" for problem in problems]
        said.clear()
        asked.clear()
    context.close()
    assert not wrong, "\n".join(wrong)


def test_no_page_breaks_on_the_narrowest_phone(shown: Shown, browser: Any) -> None:
    context = browser.new_context(**NARROWEST)
    page = context.new_page()
    broken = []
    for name, path in shown.pages.items():
        page.goto(shown.server.url + path)
        if page.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
            broken.append(name)
    context.close()
    assert not broken


def test_everything_can_be_done_without_javascript(shown: Shown, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{shown.server.url}/ui")
    page.get_by_role("link", name="Catalog", exact=True).click()
    page.get_by_role("main").get_by_role("link", name="sales").click()
    page.get_by_role("main").get_by_role("link", name="orders").click()
    page.get_by_role("link", name="Timeline", exact=True).click()
    page.get_by_text("v90").wait_for()
    page.get_by_role("link", name="Next page").click()
    page.get_by_text("v40", exact=True).wait_for()
    page.get_by_role("searchbox").fill("fact")
    page.get_by_role("searchbox").press("Enter")
    page.get_by_role("link", name="shop.fact_sales").click()
    page.get_by_role("link", name="Lineage").click()
    page.get_by_role("link", name="shop.daily_revenue").click()
    page.wait_for_url("**/shop/daily_revenue/lineage")
    page.get_by_role("link", name="Pipelines", exact=True).click()
    page.get_by_role("link", name="2026-01-15", exact=True).click()
    page.get_by_text("90421").wait_for()
    context.close()


def test_a_transaction_is_renewed_and_aborted_from_its_page(shown: Shown, browser: Any) -> None:
    transaction_id = shown.lake.begin(team="browser")
    before = shown.lake.done("GET", f"/main/transactions/{transaction_id}")["expires-at"]
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{shown.server.url}/ui/transactions/main/{transaction_id}")
    page.get_by_label("Let it live for").select_option("1 hour")
    with page.expect_navigation():
        page.get_by_role("button", name="Renew").click()
    assert shown.lake.done("GET", f"/main/transactions/{transaction_id}")["expires-at"] > before
    with page.expect_navigation():
        page.get_by_role("button", name="Abort").click()
    assert shown.lake.done("GET", f"/main/transactions/{transaction_id}")["state"] == "open"
    with page.expect_navigation():
        page.get_by_role("button", name="Abort the transaction").click()
    page.get_by_text("aborted").first.wait_for()
    assert shown.lake.done("GET", f"/main/transactions/{transaction_id}")["state"] == "aborted"
    context.close()


def test_a_keyboard_is_enough(shown: Shown, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{shown.server.url}/ui/catalog/main/sales")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    assert page.evaluate("document.activeElement.getBoundingClientRect().top") >= 0
    page.keyboard.press("Enter")
    page.locator("#main:focus").wait_for()
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "(() => { const it = document.activeElement, style = getComputedStyle(it);"
            " return [it.tagName, it.textContent.trim(), style.outlineStyle, parseFloat(style.outlineWidth)] })()"
        )
        assert focused[2] != "none" and focused[3] >= 2, focused
        if focused[:2] == ["A", "customers"]:
            break
    else:
        pytest.fail("the table cannot be reached by keyboard")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sales/customers")
    context.close()


def test_a_server_that_asks_lets_people_in_with_a_token(tmp_path: Path, browser: Any) -> None:
    (tmp_path / "data").mkdir()
    token = run(new_token(Settings.load(data=str(tmp_path / "data")), "ada"))
    with running_server(tmp_path, env={"LAKEPACT_LOG_LEVEL": "warning", "LAKEPACT_AUTH": "tokens"}) as server:
        context = browser.new_context(**LOOKS["phone"])
        page = context.new_page()
        page.goto(f"{server.url}/ui/transactions/main")
        assert not findings(page, axe())
        keep(page, "login-phone")
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("That did not work").wait_for()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/ui/transactions/main")
        page.get_by_role("link", name="ada").click()
        page.get_by_role("button", name="Log out").wait_for()
        assert not findings(page, axe())
        with page.expect_navigation():
            page.get_by_role("button", name="Log out").click()
        page.goto(f"{server.url}/ui")
        page.get_by_label("Token").wait_for()
        context.close()


def test_somebody_who_sees_a_part_of_it_is_shown_that_part_well(tmp_path: Path, browser: Any) -> None:
    env = {"LAKEPACT_LOG_LEVEL": "warning"}
    with running_server(tmp_path, env=env) as server:
        pages = pages_of(fill(server.url, tmp_path / "data" / "warehouse"))
    settings = Settings.load(data=str(tmp_path / "data"))
    admin, ada = run(new_token(settings, "root")), run(new_token(settings, "ada", admin=False))
    wrong: list[str] = []
    with running_server(tmp_path, env={**env, "LAKEPACT_AUTH": "tokens"}) as server:
        lake = Company(server.url, tmp_path / "data" / "warehouse")
        for on in (
            {"on": "namespace", "namespace": ["sales"]},
            {"on": "table", "namespace": ["shop"], "name": "fact_sales"},
            {"on": "table", "namespace": ["ml"], "name": "labels"},
        ):
            body = {"holder": "user:ada", "role": "write", **on}
            lake.done("POST", "/main/grants", body, Authorization=f"Bearer {admin}")
        mine = lake.done("POST", "/main/transactions", {}, Authorization=f"Bearer {ada}")["transaction-id"]
        shown = {one: pages[one] for one in PARTIAL} | {
            "shop": "/ui/catalog/main/shop",
            "own": f"/ui/transactions/main/{mine}",
            "no-mirrors": "/ui/mirrors/main",
            "no-table": "/ui/catalog/main/shop/daily_revenue",
        }
        # The same pages are looked at in every light by who sees all of them.
        for look in LOOKS if os.environ.get("LAKEPACT_LONG") else ("light",):
            context = browser.new_context(**LOOKS[look])
            page = context.new_page()
            page.goto(f"{server.url}/ui")
            page.get_by_label("Token").fill(ada)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url("**/ui")
            for name, path in shown.items():
                page.goto(server.url + path)
                keep(page, f"part-{name}-{look}")
                told = page.content()
                problems = [one for one in ("raw.clicks", "dim_customer", "90421") if one in told]
                problems += [] if "daily_revenue" in path or "daily_revenue" not in told else ["daily_revenue"]
                problems += findings(page, axe(), rules=None if look == "light" else ["color-contrast", "target-size"])
                if page.evaluate("document.scrollingElement.scrollWidth > innerWidth"):
                    problems.append("it is too wide")
                wrong += [f"{name}, {look}: {problem}" for problem in problems]
            context.close()
    assert not wrong, "\n".join(wrong)


async def new_token(settings: Settings, name: str, *, admin: bool = True) -> str:
    store = await open_store(settings.store, settings.kernel())
    try:
        return (await Tokens(store, SystemClock(), SystemRng()).create(name, admin=admin)).text
    finally:
        await store.close()


def keep(page: Any, name: str) -> None:
    folder = os.environ.get("LAKEPACT_SCREENSHOTS")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
