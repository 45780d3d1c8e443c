"""Documents that never change once they are there: receipts and reports of runs, read side by side and remembered.

What is not there may come later, and is asked for again. What cannot be read is as good as not there: a window shows
what it can.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from lakepact.catalog import Catalog
from lakepact.errors import LakepactError

Document = Mapping[str, Any]

_MOST_BYTES: Final = 16 << 20
"""Of memory, about: a document takes some five times its text."""

_TIMES_ITS_TEXT: Final = 5
_LARGEST: Final = 2 << 20
_SIDE_BY_SIDE: Final = 50


class Documents:
    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held_bytes = 0
        self._known: OrderedDict[tuple[str, str], tuple[Document, int]] = OrderedDict()
        """With what each of them weighs."""

    async def read(self, catalog: Catalog, names: Iterable[str]) -> dict[str, Document]:
        """Those of these blobs that are there, by name."""
        warehouse = catalog.warehouse.name
        wanted = list(dict.fromkeys(names))
        found: dict[str, Document] = {}
        for name in wanted:
            known = self._known.get((warehouse, name))
            if known is not None:
                self._known.move_to_end((warehouse, name))
                found[name] = known[0]
        away = [name for name in wanted if name not in found]
        for first in range(0, len(away), _SIDE_BY_SIDE):
            some = away[first : first + _SIDE_BY_SIDE]
            read = await catalog.parts.tasks.all([_read(catalog, one) for one in some])
            for name, (document, weight) in zip(some, read, strict=True):
                if document is not None:
                    found[name] = document
                    self._remember((warehouse, name), document, weight)
        return {name: found[name] for name in wanted if name in found}

    def _remember(self, key: tuple[str, str], document: Document, weight: int) -> None:
        if key in self._known:
            # Another page has read it at the same time.
            return
        self._known[key] = document, weight
        self._held_bytes += weight
        while self._held_bytes > self._most_bytes:
            _, (_, old) = self._known.popitem(last=False)
            self._held_bytes -= old


async def _read(catalog: Catalog, name: str) -> tuple[Document | None, int]:
    """The document, and what it weighs."""
    try:
        data = await catalog.parts.blobs.get(name)
        if data is None or len(data) > _LARGEST:
            return None, 0
        found = orjson.loads(data)
    except (LakepactError, orjson.JSONDecodeError):
        return None, 0
    return (found if isinstance(found, dict) else None), _TIMES_ITS_TEXT * len(data)
