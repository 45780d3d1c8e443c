"""What may be seen inside an open transaction, by one who may not see everything.

A transaction depends on what it reads, and tells its owner what that is and what of it has changed since. So nothing
that they may not know of becomes a part of it: all is looked at without a trace first. And a transaction goes on seeing
tables where they were when it began, while rights are those of now: what was moved away since is judged by where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakepact.access import Rights, Scope
from lakepact.catalog.grants import pointer_key
from lakepact.catalog.guard import Guard
from lakepact.catalog.names import TableAt
from lakepact.catalog.needs import Asking, namespace_now
from lakepact.catalog.overlay import Overlay
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, scope_of
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import Cell

_AT_ONCE: Final = 500


class Inside:
    def __init__(self, overlay: Overlay, guard: Guard) -> None:
        self._overlay = overlay
        self._guard = guard
        self.quietly = overlay.quietly

    async def rights(self) -> Rights:
        return await self._guard.catalog.grants.rights(self._guard.principal)

    async def find(self, identifier: Identifier, rights: Rights) -> tuple[Pointer | None, tuple[str, ...]]:
        """The table or view of this name, if it may be seen, and the namespace that its rights come from."""
        names, cells = self._overlay.names, self._overlay.cells
        while rights.everywhere is None:
            found, namespace = await names.find(self.quietly, identifier), identifier.namespace
            if found is not None:
                namespace = await namespace_now(self._overlay.parts.store, self._overlay.parts.keys, found)
            sees = rights.on_namespace(namespace) if found is None else rights.on_thing(namespace, scope_of(found))
            if sees is None:
                return None, namespace
            noted = await names.find(cells, identifier)
            # Another call of the transaction may have come in between.
            if (noted and noted.id) == (found and found.id):
                return noted, namespace
        return await names.find(cells, identifier), identifier.namespace

    async def cut(self, identifiers: Sequence[Identifier], rights: Rights) -> list[TableAt | None]:
        """Where those of these tables are that may be seen, in one cut."""
        overlay = self._overlay
        if rights.everywhere is not None:
            return await overlay.cut(overlay.cells, identifiers)
        found = await overlay.cut(self.quietly, identifiers)
        keys = {one.id: overlay.parts.keys.table(one.id) for one in found if one is not None}
        now = await overlay.parts.store.read(keys.values())
        seen = {
            identifier: one.id
            for identifier, one in zip(identifiers, found, strict=True)
            if one is not None and sees_table(rights, _namespace_in(now[keys[one.id]], identifier.namespace), one.id)
        }
        at = dict(zip(seen, await overlay.cut(overlay.cells, list(seen)), strict=True))
        # One that has come to stand for another table in between was judged by the one before.
        return [there if (there := at.get(one)) is not None and there.id == seen[one] else None for one in identifiers]

    async def listed(self, namespace: Sequence[str], asking: Asking) -> set[str]:
        """The ids of those that the transaction has in this namespace and that may be seen where they are now."""
        parts, seen, after = self._overlay.parts, set[str](), None
        while True:
            page = await self._overlay.cells.scan(parts.keys.names_in(namespace), after, _AT_ONCE)
            scopes = [Scope.thing(FAMILIES[Kind(one["kind"])], one["id"]) for cell in page.cells if (one := cell.value)]
            keys = {scope: pointer_key(parts.keys, scope) for scope in scopes}
            now = await parts.store.read(keys.values())
            for scope, key in keys.items():
                if asking.rights.on_thing(_namespace_in(now[key], namespace), scope) is not None:
                    seen.add(scope.id)
            after = page.after
            if after is None:
                return seen


def sees_table(rights: Rights, namespace: tuple[str, ...], table_id: str) -> bool:
    return rights.on_thing(namespace, Scope.thing(FAMILIES[Kind.TABLE], table_id)) is not None


def _namespace_in(cell: Cell, else_in: Sequence[str]) -> tuple[str, ...]:
    pointer = Pointer.of(cell)
    return tuple(else_in) if pointer is None else pointer.identifier.namespace
