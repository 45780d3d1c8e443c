"""Tables that lie outside of their warehouse: those of a store that is served with the settings of another one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import structlog

from lakepact.catalog.warehouse import Warehouse
from lakepact.errors import LakepactError
from lakepact.kernel.keys import key_of
from lakepact.kernel.ports import CellStore

LOOKED_AT: Final = 100
"""Tables of a warehouse: if one of them is elsewhere, most are."""

_log = structlog.get_logger(__name__)


async def astray(store: CellStore, warehouse: Warehouse) -> tuple[int, str | None]:
    """How many tables were looked at, and where one of them is that lies outside."""
    page = await store.scan(key_of(warehouse.name, "tables"), limit=LOOKED_AT)
    locations = [str(one.value["metadata-location"]) for one in page.cells if one.value is not None]
    return len(locations), next((one for one in locations if not warehouse.holds(one)), None)


async def tell_of_astray(store: CellStore, warehouses: Iterable[Warehouse]) -> None:
    """Into the log of a server that begins. It goes on: others may be well, or somebody is putting these right."""
    for warehouse in warehouses:
        outside = None
        # A store that does not answer now is told of by those who ask it next.
        with suppress(LakepactError):
            _, outside = await astray(store, warehouse)
        if outside is not None:
            _log.error(
                "a table lies outside of its warehouse and cannot be loaded: are these the settings of another store "
                "or warehouse, or was it moved? Set store and warehouse (or data) as they were; lakepact doctor tells "
                "more",
                warehouse=warehouse.name,
                root=warehouse.root,
                table=outside,
            )
