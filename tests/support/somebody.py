"""Somebody who may not do everything: tests often run as root, to whom no file is forbidden."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65_534


@contextmanager
def somebody() -> Iterator[None]:
    """For a while this process is not root. Load what is needed before: it may lie where others may not read."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """A new folder that everybody may enter, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="lakepact-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        for one in (folder, *folder.rglob("*")):
            one.chmod(0o700)
        shutil.rmtree(folder)
