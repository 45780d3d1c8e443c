"""The days that have a folder, without listing what is in them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from lakepact.kernel.ports import BlobEntry, BlobStore

T = TypeVar("T")
S = TypeVar("S")

AT_ONCE: Final = 32
"""Requests to a warehouse at the same time, by one job."""

_DAY_MS: Final = 24 * 60 * 60 * 1000
_PAGE: Final = 1_000
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


async def days_in(blobs: BlobStore, folder: str, after: str | None = None) -> AsyncIterator[str]:
    """The dates beyond `after` that have anything below this folder, in order. One small listing for each."""
    last = f"{folder}/" if after is None else f"{folder}/{after}0"
    while found := await blobs.list(f"{folder}/", last, 1):
        date = found[0].name[len(folder) + 1 :].partition("/")[0]
        if _DATE.fullmatch(date):
            yield date
        # The character after the slash: everything below this date sorts before it.
        last = f"{folder}/{date}0"


async def entries_of(blobs: BlobStore, prefix: str, after: str | None = None) -> AsyncIterator[Sequence[BlobEntry]]:
    """Everything below a prefix, or what of it comes after this name, page by page, in order."""
    while page := await blobs.list(prefix, after, _PAGE):
        yield page
        after = page[-1].name


def age_ms(date: str, now_ms: int) -> int:
    """How long ago the day ended; negative if it has not."""
    began = datetime.strptime(date, "%Y-%m-%d").replace(tzinfo=UTC)
    return now_ms - int(began.timestamp() * 1000) - _DAY_MS


def in_ms(days: float) -> int:
    return int(days * _DAY_MS)


async def side_by_side(step: Callable[[S], Awaitable[T]], items: Sequence[S], at_once: int = AT_ONCE) -> list[T]:
    """The step for each of these, some at a time; the results in order."""
    found: list[T] = []
    for first in range(0, len(items), at_once):
        found += await asyncio.gather(*(step(item) for item in items[first : first + at_once]))
    return found
