"""Engines that come as wheels and are too large for the development environment, in the repository's git-ignored cache.

Each is installed once, in the pinned version and without its dependencies, into a folder of its own. A test runs it in
a process of its own with that folder on its path; what else it imports (PyArrow, pandas, PySpark) is the development
environment's. An engine that cannot be installed is an error with pip's reason, and the test that needs it fails.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

SAIL: Final = ("pysail==0.7.2",)
"""170 MB."""

CHDB: Final = ("chdb==4.4.0", "chdb-core==26.9.0")
"""ClickHouse as a library: 560 MB."""

DATAFUSION: Final = ("datafusion==54.1.0", "pyiceberg-core==0.11.0")
"""With the table provider of PyIceberg, which is built for one major version of DataFusion."""

_CACHE: Final = Path(__file__).parents[2] / ".cache" / "wheels"
_INSTALL_TIMEOUT_S: Final = 280
_RUN_TIMEOUT_S: Final = 280


def installed(requirements: tuple[str, ...]) -> Path:
    """Return the folder that these wheels are installed in. One process installs; others wait for it."""
    folder = _CACHE / "_".join(requirements).replace("==", "-")
    done = folder / "installed"
    if done.exists():
        return folder / "site"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
            outcome = subprocess.run(
                [*command, "--upgrade", "--target", str(folder / "site"), *requirements],
                capture_output=True,
                text=True,
                timeout=_INSTALL_TIMEOUT_S,
            )
            if outcome.returncode:
                raise RuntimeError(f"pip could not install {', '.join(requirements)}: {outcome.stdout}{outcome.stderr}")
            done.touch()
    return folder / "site"


def run_with(requirements: tuple[str, ...], script: Path, *arguments: str, env: dict[str, str] | None = None) -> str:
    """Run a script in a process that can import these wheels. Return its standard output; raise if it fails.

    Without requirements the script has the packages of the development environment alone.
    """
    folder = str(installed(requirements)) if requirements else None
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    outcome = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=_RUN_TIMEOUT_S,
        env={**os.environ, **(env or {}), "PYTHONPATH": path},
    )
    if outcome.returncode:
        raise RuntimeError(f"{script.name} failed with {outcome.returncode}: {outcome.stdout}{outcome.stderr}"[-8_000:])
    return outcome.stdout
