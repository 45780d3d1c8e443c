"""Listing a bucket by any prefix, after any name, in bytewise order: what clouds offer only in part.

obstore lists whole folders, the order is the provider's, and the offset is honoured by some. So the folder that holds
the prefix is listed, from as near as the provider lets us begin, and the rest is decided here.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Final

import obstore

from lakepact.stores.objects_answers import unavailable
from lakepact.stores.objects_client import Bucket

if TYPE_CHECKING:
    from obstore import ObjectMeta

_MAX_CHUNK: Final = 1_000


async def list_objects(bucket: Bucket, prefix: str, after: str | None, limit: int) -> list[tuple[str, ObjectMeta]]:
    """Up to `limit` objects by name (without the bucket's prefix), as the ports define a listing."""
    if limit <= 0:
        return []
    begin = bucket.prefix + prefix
    beyond = None if after is None else bucket.prefix + after
    found: list[tuple[str, ObjectMeta]] = []
    try:
        async with bucket.turns:
            async for chunk in _chunks(bucket, begin, beyond, limit):
                for meta in chunk:
                    path = meta["path"]
                    if path.startswith(begin) and (beyond is None or path > beyond):
                        found.append((path.removeprefix(bucket.prefix), meta))
                    elif bucket.lists_in_order and path > begin and not path.startswith(begin):
                        return found
                    if bucket.lists_in_order and len(found) == limit:
                        return found
                if not bucket.lists_in_order:
                    # The whole folder must be seen, but no more than a page of it is kept.
                    found = heapq.nsmallest(limit, found, key=lambda pair: pair[0])
    except Exception as error:
        raise unavailable(f"list {bucket.url}{prefix}", error) from error
    return found


def _chunks(bucket: Bucket, begin: str, beyond: str | None, limit: int) -> AsyncIterator[Sequence[ObjectMeta]]:
    folder, _, rest = begin.rpartition("/")
    # Listing begins after the offset, so the last character of the prefix is left off: the prefix may itself be a name.
    offset = max(begin[:-1] if rest else "", beyond or "") if bucket.lists_in_order else ""
    # A chunk is filled before it is handed over, with as many requests as that takes: never ask for more than a page.
    size = min(limit, _MAX_CHUNK) if bucket.lists_in_order else _MAX_CHUNK
    if offset:
        try:
            return obstore.list(bucket.reading, folder or None, offset=offset, chunk_size=size)
        except ValueError:
            pass  # not an object name (any text may be a cursor): begin at the beginning instead
    return obstore.list(bucket.reading, folder or None, chunk_size=size)
