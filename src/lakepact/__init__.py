"""Lakepact: a lakehouse catalog whose tables move together.

This module is deliberately almost empty: importing one part of Lakepact must not load the others. `lakepact.connect`
is the way in for programs, and loads the client when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lakepact.client import connect, new_key

    __version__: str

__all__ = ["__version__", "connect", "new_key"]

_SOURCE_VERSION: Final = "0.1.0"
"""For sources that are not installed, such as a zip for `spark-submit --py-files`. A test compares it with
pyproject.toml."""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # Read at first use: it takes longer than the rest of this module.
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("lakepact")
        except PackageNotFoundError:
            return _SOURCE_VERSION
    if name in ("connect", "new_key"):
        from lakepact import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
