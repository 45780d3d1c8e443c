"""Logging in to the web page at an identity provider, in a real Chromium and with several worker processes."""

from __future__ import annotations

from pathlib import Path

from tests.support.browser import axe, chromium, findings
from tests.support.issuer import Registered, running_issuer
from tests.support.ports import reserved_port
from tests.support.server import running_server
from tests.support.showcase import Company

# The first of all may install the browser.


def test_somebody_logs_in_at_the_issuers_page_and_ends_on_the_table_they_asked_for(tmp_path: Path) -> None:
    # Where the issuer sends people back to is known before the server is.
    port = reserved_port()
    public_url = f"http://127.0.0.1:{port}"
    with running_issuer() as issuer:
        issuer.client = Registered(redirect_uri=f"{public_url}/ui/login/callback", secret="hush-hush-hush")
        issuer.login_claims = {"groups": ["owners"]}
        given = issuer.settings(
            auth="oidc",
            oidc_client_id=issuer.client.id,
            oidc_client_secret=issuer.client.secret,
            oidc_admin_groups="owners",
            public_url=public_url,
            log_level="debug",
        )
        env = {f"LAKEPACT_{name.upper()}": str(value) for name, value in given.items()}
        options = ("--port", str(port), "--workers", "2")
        with running_server(tmp_path, *options, env=env) as server, chromium() as browser:
            lake = Company(server.url, tmp_path)
            lake._session.headers["Authorization"] = f"Bearer {issuer.token(sub='loader', groups=['owners'])}"
            lake.namespace("sales")
            lake.table("sales", "orders")
            context = browser.new_context(viewport={"width": 390, "height": 844})
            page = context.new_page()
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text))
            page.goto(f"{server.url}/ui/catalog/main/sales/orders/timeline")
            assert not findings(page, axe())
            page.get_by_role("link", name="Log in with").click()
            # Every step waits for what the next page shows: a click ends before that page is there.
            page.get_by_label("Name").fill("alice")
            assert page.title() == "Company login"
            page.get_by_role("button", name="Let me in").click()
            page.wait_for_url(f"{server.url}/ui/catalog/main/sales/orders/timeline")
            page.get_by_role("heading", name="orders").first.wait_for()
            assert [cookie["name"] for cookie in context.cookies(server.url)] == ["lakepact"]
            page.get_by_role("link", name="alice").click()
            page.get_by_text("administrator").wait_for()
            page.get_by_role("button", name="Log out").click()
            page.get_by_role("link", name="log out there too").wait_for()
            assert not findings(page, axe())
            page.get_by_role("link", name="log out there too").click()
            page.wait_for_url(f"{server.url}/ui/login")
            assert not context.cookies(server.url)
            # Somebody who is sent an answer that is not theirs stays outside, and is told so.
            page.goto(f"{server.url}/ui/login/callback?code=x&state=y")
            page.get_by_text("this browser has begun no login").wait_for()
            assert not any("policy" in text.lower() or "refused" in text.lower() for text in said), said
            context.close()
        told = server.log.read_text()
        assert "finishLogin" in told and "hush-hush-hush" not in told and "code=" not in told
