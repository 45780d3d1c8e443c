"""Lakepact: a lakehouse catalog whose tables move together.

This module is deliberately almost empty: importing one part of Lakepact must not load the others. `lakepact.connect`
is the way in for programs, and loads the client when it is first asked for.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lakepact.client import connect, new_key

__all__ = ["__version__", "connect", "new_key"]

__version__: Final = version("lakepact")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name in ("connect", "new_key"):
        from lakepact import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
