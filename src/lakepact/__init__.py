"""Lakepact: a lakehouse catalog whose tables move together.

This module is deliberately almost empty: importing one part of Lakepact must not load the others.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

__all__ = ["__version__"]

__version__: Final = version("lakepact")
