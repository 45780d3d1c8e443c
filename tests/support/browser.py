"""A real Chromium for the tests, driven by Playwright; and axe, which knows what makes a page hard to use.

The browser is Debian's (`apt install chromium`; as root the tests do it themselves), not one that Playwright brings.
Where none can be had, whoever asks for it fails and is told so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.debian import debian_program
from tests.support.npm import npm_package

AXE_VERSION: Final = "4.14.0"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's sync API."""
    path = debian_program(_NAMES, "chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise RuntimeError("there is no Playwright in this environment: run `make setup`") from None
    # A browser that runs as root has no sandbox of its own.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


def axe() -> str:
    """The script, to be evaluated in a page."""
    return (npm_package("axe-core", AXE_VERSION) / "axe.min.js").read_text()


def findings(page: Any, script: str, *, rules: list[str] | None = None) -> list[str]:
    """What axe finds serious or critical in the page that is shown. `rules`: only these."""
    page.evaluate(script)
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules is not None:
        options["runOnly"] = {"type": "rule", "values": rules}
    result = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {one['nodes'][0]['html'][:200]} "
        f"{one['nodes'][0].get('failureSummary', '')[:300]}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical", "moderate")
    ]
