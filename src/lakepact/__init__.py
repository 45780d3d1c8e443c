"""Lakepact: a lakehouse catalog whose tables move together.

This module is deliberately almost empty: importing one part of Lakepact must not load the others. `lakepact.connect`
is the way in for programs, and loads the client when it is first asked for.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lakepact.client import connect, new_key

__all__ = ["__version__", "connect", "new_key"]

_SOURCE_VERSION: Final = "0.1.0"
"""For sources that are not installed, such as a zip for `spark-submit --py-files`. A test compares it with
pyproject.toml."""


def _version() -> str:
    try:
        return version("lakepact")
    except PackageNotFoundError:
        return _SOURCE_VERSION


__version__: Final = _version()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in ("connect", "new_key"):
        from lakepact import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
