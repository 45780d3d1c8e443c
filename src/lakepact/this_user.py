"""Who this process runs as, and what of a place on disk it may not do, in the words of an error."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

_AS_IT_RUNS: Final = os.access in os.supports_effective_ids


def this_user() -> str:
    number = os.geteuid()
    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        # In a container a user often has a number and no name.
        return f"user {number}"


def may_not_write(path: Path) -> str | None:
    """Why this user cannot keep a file at `path`, with files beside it; None if nothing forbids it."""
    there = next((one for one in path.absolute().parents if _is(one, os.F_OK)), Path("/"))
    if not _is(there, os.W_OK | os.X_OK):
        return f"{this_user()} may not write to the folder {there}"
    if _is(path, os.F_OK) and not _is(path, os.R_OK | os.W_OK):
        return f"{this_user()} may not read and write {path.absolute()}"
    return None


def _is(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=_AS_IT_RUNS)
