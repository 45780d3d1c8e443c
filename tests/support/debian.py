"""Programs that come from Debian: the machine's own, or installed once where that is allowed, or unpacked in the cache.

A package is unpacked, not installed, if installing it would start a service.
"""

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


def unpacked_program(name: str, package: str) -> str:
    """Return the path of a program: the machine's own, or that of the package, which is unpacked once in the cache.

    This needs no root. The program must need no libraries beyond those that every Debian has.
    """
    if (found := _first((name,))) is not None:
        return found
    if shutil.which("apt-get") is None:
        raise RuntimeError(f"there is no {name} and no apt-get here, and the tests need {name}: install {package}")
    folder = _CACHE / "debian" / package
    program = folder / "unpacked" / "usr" / "bin" / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # One process unpacks; the others wait for it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _unpack(package, folder)
    if not program.exists():
        raise RuntimeError(f"the package {package} has no usr/bin/{name}; name the package that has it")
    return str(program)


def _unpack(package: str, folder: Path) -> None:
    for part in ("lists/partial", "archives/partial", "unpacking"):
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    # The package lists of the machine may be missing or old, and to renew them needs root: then with lists of its own.
    own = {"Dir::State::lists": folder / "lists", "Dir::Cache": folder / "archives", "APT::Sandbox::User": ""}
    options = ["-qq", *(part for key, value in own.items() for part in ("-o", f"{key}={value}"))]
    download = ["download", package]
    for command in (["-qq", *download], [*options, "update"], [*options, *download]):
        done = subprocess.run(
            ["apt-get", *command], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if archives := sorted(folder.glob(f"{package}_*.deb")):
            break
    else:
        raise RuntimeError(f"apt-get could not download {package}: {done.stdout[-1_000:]} {done.stderr[-2_000:]}")
    subprocess.run(["dpkg-deb", "-x", str(archives[-1]), str(folder / "unpacking")], check=True)
    (folder / "unpacking").rename(folder / "unpacked")
    for archive in archives:
        archive.unlink()
    for part in ("lists", "archives"):
        shutil.rmtree(folder / part)


def _first(names: tuple[str, ...]) -> str | None:
    return next((found for name in names if (found := shutil.which(name))), None)
