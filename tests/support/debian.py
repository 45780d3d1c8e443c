"""Programs that come from Debian: the machine's own, or installed once where that is allowed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

_CACHE: Final = Path(__file__).parents[2] / ".cache"


def debian_program(names: tuple[str, ...], package: str) -> str:
    """The path of the first of these programs that is there. As root the package is installed if none is."""
    if (found := _first(names)) is not None:
        return found
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError(f"there is none of {', '.join(names)} here, and the tests need one: apt install {package}")
    _CACHE.mkdir(exist_ok=True)
    with (_CACHE / "apt.lock").open("w") as lock:
        # One process installs; the others wait for it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := _first(names)) is not None:
            return found
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
            done = subprocess.run(
                ["apt-get", "-o", "DPkg::Lock::Timeout=300", *command],
                env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
        found = _first(names)
    if found is None:
        raise RuntimeError(f"apt-get could not install {package}: {done.stdout[-1_000:]} {done.stderr[-2_000:]}")
    return found


def _first(names: tuple[str, ...]) -> str | None:
    return next((found for name in names if (found := shutil.which(name))), None)
