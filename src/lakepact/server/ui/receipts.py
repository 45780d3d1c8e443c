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

_MOST: Final = 20_000
_LARGEST: Final = 1 << 20
_SIDE_BY_SIDE: Final = 50


class Documents:
    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Document] = OrderedDict()

    async def read(self, catalog: Catalog, names: Iterable[str]) -> dict[str, Document]:
        """Those of these blobs that are there, by name."""
        wanted = list(dict.fromkeys(names))
        warehouse = catalog.warehouse.name
        away = [name for name in wanted if (warehouse, name) not in self._known]
        for first in range(0, len(away), _SIDE_BY_SIDE):
            some = away[first : first + _SIDE_BY_SIDE]
            for name, found in zip(
                some, await catalog.parts.tasks.all([_read(catalog, one) for one in some]), strict=True
            ):
                if found is not None:
                    self._known[warehouse, name] = found
        while len(self._known) > _MOST:
            self._known.popitem(last=False)
        return {name: self._known[warehouse, name] for name in wanted if (warehouse, name) in self._known}


async def _read(catalog: Catalog, name: str) -> Document | None:
    try:
        data = await catalog.parts.blobs.get(name)
        found = None if data is None or len(data) > _LARGEST else orjson.loads(data)
    except (LakepactError, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None
