"""Python's search for cyclic garbage, less often: a simulated world is made of cycles, and lives for a moment only."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def rarely_collected() -> Iterator[None]:
    usual = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
