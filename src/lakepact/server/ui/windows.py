"""The windows of this server: which warehouses there are for whoever asks, and the way to look into one."""

from __future__ import annotations

from collections.abc import Mapping

from lakepact.access import Principal, Role
from lakepact.catalog import Catalog
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.sight import in_sight
from lakepact.catalog.trail import Trail
from lakepact.catalog.visibility import Visibility
from lakepact.delta.ports import DeltaRows
from lakepact.server.rest.door import catalog_named, default_warehouse
from lakepact.server.ui.layout import Reach
from lakepact.server.ui.lists import Trees
from lakepact.server.ui.receipts import Documents
from lakepact.server.ui.timeline import Timeline
from lakepact.server.ui.window import Window


class Windows:
    def __init__(
        self, catalogs: Mapping[str, Catalog], default: str, rows: DeltaRows | None = None, trail: Trail | None = None
    ) -> None:
        self._catalogs = catalogs
        self._trail = trail or Trail()
        self._rows = rows
        self.default = default
        self.documents = Documents()
        self.timeline = Timeline(self.documents)
        self.trees = Trees()

    def warehouses_of(self, principal: Principal) -> list[str]:
        """Those of the account."""
        return [name for name, catalog in self._catalogs.items() if in_sight(catalog, principal)]

    def default_of(self, principal: Principal) -> str:
        return default_warehouse(self._catalogs, self.default, principal)

    async def window(self, warehouse: str, principal: Principal) -> Window:
        """For whoever may see anything there."""
        window = await self._window(catalog_named(self._catalogs, warehouse, principal), principal)
        if not window.sight.anything:
            raise Forbidden(
                f"you may read nothing in warehouse {warehouse}. Ask whoever manages it, or something in it, for the "
                f"role read: lakepact grants add user:{principal.name} read --namespace NAME"
            )
        return window

    async def readable(self, principal: Principal) -> list[Window]:
        """Those in which this principal may see anything, one at least."""
        found = [await self._window(self._catalogs[name], principal) for name in self.warehouses_of(principal)]
        may = [one for one in found if one.sight.anything]
        return may or [await self.window(self.default_of(principal), principal)]

    async def reads_all(self, principal: Principal) -> bool:
        """Whether there is a warehouse that this principal may read as a whole: its pages tell of the server too."""
        return (await self.reach(principal)).whole

    async def reach(self, principal: Principal) -> Reach:
        """Where this principal may go."""
        rights = {name: await self._catalogs[name].grants.rights(principal) for name in self.warehouses_of(principal)}
        may = tuple(name for name, held in rights.items() if held.highest is not None)
        default = self.default_of(principal)
        whole = any(held.everywhere is not None for held in rights.values())
        # Where nobody has a name there is no trail.
        named = principal.name is not None
        audited = frozenset(name for name, held in rights.items() if named and held.everywhere is Role.MANAGE)
        return Reach(may, default if default in may or not may else may[0], whole, audited)

    async def _window(self, catalog: Catalog, principal: Principal) -> Window:
        sight = await Visibility.of(catalog, principal)
        return Window(catalog, principal, sight, trail=self._trail, rows=self._rows)
