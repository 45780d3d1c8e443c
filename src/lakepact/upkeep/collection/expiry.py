"""Snapshots that the tables' own properties let go of, by ordinary commits.

Their files stay where they are: whoever searches for orphans takes them.
"""

from __future__ import annotations

from typing import Final

from lakepact.catalog import Call, Catalog
from lakepact.catalog.errors import NotFound, Refusal
from lakepact.catalog.pins import in_use
from lakepact.catalog.pointers import Pointer, shown
from lakepact.errors import Contended, Unreadable
from lakepact.iceberg.expiry import Expired, expired
from lakepact.iceberg.files import collects
from lakepact.upkeep.collection.removal import Class, Removal, Remover, Report

_PAGE: Final = 500
_WHY: Final = "history.expire.* of the table"


class Expiry:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def run(self, remover: Remover, report: Report) -> None:
        parts = self._catalog.parts
        after: str | None = None
        while True:
            page = await parts.store.scan(parts.keys.all_pointers("tables"), after, _PAGE)
            for cell in page.cells:
                if cell.value is not None:
                    await self._one(Pointer.from_json(cell.value), remover, report)
            if page.after is None:
                return
            after = page.after

    async def _one(self, pointer: Pointer, remover: Remover, report: Report) -> None:
        name = shown(pointer.identifier)
        try:
            gone = await self._gone(pointer)
            if gone and not remover.dry_run:
                call = Call(self._catalog.new_id(), "expireSnapshots", source={"kind": "admin"})
                result = (await self._catalog.expire_snapshots(call, pointer.identifier)).result
                gone = Expired(tuple(result["snapshots"]), tuple(result["refs"]))
        except (Refusal, NotFound, Unreadable, Contended) as error:
            report.leave(name, error)
            return
        for ref in gone.refs:
            remover.note(Removal(Class.SNAPSHOTS, f"ref {ref}", name, _WHY))
        for snapshot_id in gone.snapshots:
            remover.note(Removal(Class.SNAPSHOTS, f"snapshot {snapshot_id}", name, _WHY))

    async def _gone(self, pointer: Pointer) -> Expired:
        parts = self._catalog.parts
        document = (await parts.files.of(pointer)).document
        if not collects(document) or not (gone := expired(document, parts.clock.confirmed_ms())):
            return Expired((), ())
        used: set[int] = set()
        async for _, ids in in_use(parts, parts.keys.table(pointer.id)):
            used |= ids
        return expired(document, parts.clock.confirmed_ms(), used) if used else gone
