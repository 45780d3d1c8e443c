"""Make the project's virtual environment, once, however many runs ask for it at the same time.

    python3 tools/setup_venv.py [--force]

Needs nothing but the standard library. The environment is `.venv` beside `pyproject.toml`; its versions come from
`constraints.txt`. A stamp inside it holds a digest of everything it was made from, so a second run has nothing to do;
an environment that was moved, copied, half made or made by another Python is made again.
"""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
STAMP = VENV / ".lakepact-setup"
LOCK = ROOT / ".venv.lock"
MADE_FROM = ("pyproject.toml", "constraints.txt", "tools/setup_venv.py")


def main(force: bool) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is what tells people with an older Python
        version = ".".join(map(str, sys.version_info[:3]))
        print(f"Lakepact needs Python 3.11 or newer, and {sys.executable} is {version}.", file=sys.stderr)
        print("Name another one: make setup PYTHON=python3.12", file=sys.stderr)
        return 1
    if is_ready() and not force:
        return 0
    with LOCK.open("w") as lock:
        wait_for(lock.fileno())
        # Somebody else may have made it while we waited.
        if is_ready() and not force:
            return 0
        return make()


def is_ready() -> bool:
    try:
        return STAMP.read_text() == digest()
    except OSError:
        return False


def digest() -> str:
    parts = [
        str(sys.version_info[:3]),
        str(VENV),
        *(hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in MADE_FROM),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def wait_for(descriptor: int) -> None:
    """One setup at a time. The lock ends with the process, however it ends."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        return
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("Another run is setting up the environment; waiting for it.", file=sys.stderr)
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def make() -> int:
    print(f"Setting up {VENV.name} with Python {sys.version.split()[0]} (minutes the first time).", flush=True)
    STAMP.unlink(missing_ok=True)
    if not is_usable():
        venv.create(VENV, clear=True, with_pip=True)
    # Both names, because newer releases of pip keep the build environment's constraints apart. The path is relative,
    # because pip splits these values at spaces.
    environment = {**os.environ, "PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--editable", ".[dev]"]
    done = subprocess.run(command, cwd=ROOT, env=environment)
    if done.returncode != 0:
        print("Setup failed: pip could not install the pinned versions (see above). Run it again.", file=sys.stderr)
        return 1
    STAMP.write_text(digest())
    return 0


def is_usable() -> bool:
    """Whether `.venv` works, is of the Python that runs this, and is where it was made (its scripts hold its path)."""
    try:
        found = subprocess.run(
            [str(PYTHON), "-c", "import pip, sys; print(sys.version_info[:3])"], capture_output=True, text=True
        )
        made_here = str(VENV) in (PYTHON.parent / "activate").read_text()
    except OSError:
        return False
    return found.returncode == 0 and found.stdout.strip() == str(sys.version_info[:3]) and made_here


if __name__ == "__main__":
    raise SystemExit(main(force="--force" in sys.argv[1:]))
