"""New tables of transactions that were given up: their files were written, and nothing leads to them.

A transaction that begins to use a location notes it outside of itself. Once it has ended long enough ago, and the
location is nobody's, what was written below it while the transaction lived is deleted. A user may have chosen a
folder with something in it: whatever was there before, or came later, stays.
"""

from __future__ import annotations

from typing import Final

from lakepact.catalog import Catalog
from lakepact.catalog.announced import owner_of
from lakepact.catalog.errors import NotFound, Refusal
from lakepact.catalog.reachable import ALIVE
from lakepact.catalog.work import Draft
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.files import is_inside, one_spelling
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, State, TransactionRecord
from lakepact.upkeep.collection.removal import Class, Removal, Remover, Report

_PAGE: Final = 500
_FILES: Final = 1_000

_LATE_MS: Final = 3_600_000
"""A statement may still be writing when its transaction ends."""

_SKEW_MS: Final = 60_000


class Abandoned:
    def __init__(self, catalog: Catalog, *, retention_s: float) -> None:
        self._catalog = catalog
        self._retention_ms = int(retention_s * 1000)

    async def run(self, remover: Remover, report: Report) -> None:
        parts = self._catalog.parts
        after: str | None = None
        while True:
            page = await parts.store.scan(parts.keys.all_staged_locations(), after, _PAGE)
            for cell in page.cells:
                await self._one(cell, remover, report)
            if page.after is None:
                return
            after = page.after

    async def _one(self, cell: Cell, remover: Remover, report: Report) -> None:
        parts = self._catalog.parts
        assert cell.value is not None
        location, transaction_id = cell.value["location"], TransactionId(cell.value["transaction-id"])
        record = await parts.store.lookup(transaction_id)
        now_ms = parts.clock.confirmed_ms()
        if record is not None and (
            record.state in ALIVE or now_ms < (record.decided_ms or now_ms) + self._retention_ms
        ):
            return
        if record is not None and record.state is not State.COMMITTED:
            try:
                if await self._hold(location, record, remover):
                    await self._delete_files(location, record, remover)
            except (Refusal, NotFound) as error:
                report.leave(location, error)
                return
        if not remover.dry_run:
            await self._catalog.collect_step(lambda draft: self._forget(draft, cell.key, location))

    async def _hold(self, location: str, record: TransactionRecord, remover: Remover) -> bool:
        """Take the location, so that nobody makes a table there while its files go. False: it is somebody's."""
        key = self._location(location)
        if remover.dry_run:
            return owner_of((await self._catalog.parts.store.read([key]))[key].value) is None

        async def plan(draft: Draft) -> JsonObject:
            owner = owner_of(await draft.current(key))
            if owner is None:
                draft.write(key, {"id": _holder(record.id), "location": location})
            return {"held": owner is None or owner["id"] == _holder(record.id)}

        return bool((await self._catalog.collect_step(plan)).result["held"])

    def _location(self, location: str) -> Key:
        return self._catalog.parts.keys.location(self._catalog.warehouse.blob_name(location))

    async def _delete_files(self, location: str, record: TransactionRecord, remover: Remover) -> None:
        parts = self._catalog.parts
        began_ms = timestamp_ms(record.id) - _SKEW_MS
        ended_ms = (record.decided_ms or record.created_ms) + _LATE_MS
        folder = parts.warehouse.blob_name(location)
        others = await self._nested(one_spelling(location))
        why = f"transaction {record.id}, which would have made the table, was given up"
        after: str | None = None
        while True:
            page = await parts.blobs.list(folder + "/", after, _FILES)
            if not page:
                return
            after = page[-1].name
            await remover.files(
                [
                    Removal(Class.ABANDONED, path, location, why)
                    for path, one in ((f"{location}{one.name[len(folder) :]}", one) for one in page)
                    if began_ms <= one.modified_ms <= ended_ms
                    and not any(is_inside(one_spelling(path), other) for other in others)
                ]
            )

    async def _nested(self, folder: str) -> list[str]:
        """Locations of others below this one."""
        parts = self._catalog.parts
        found: list[str] = []
        after: str | None = None
        while True:
            page = await parts.store.scan(parts.keys.all_locations(), after, _PAGE)
            places = (one_spelling(cell.value["location"]) for cell in page.cells if cell.value is not None)
            found += [place for place in places if is_inside(place, folder)]
            if page.after is None:
                return found
            after = page.after

    async def _forget(self, draft: Draft, note: Key, location: str) -> JsonObject:
        [cell] = await draft.read(note)
        if cell.value is not None:
            draft.write(note, None)
            place = self._location(location)
            owner = await draft.current(place)
            if owner is not None and owner["id"] == _holder(cell.value["transaction-id"]):
                draft.write(place, None)
        return {}


def _holder(transaction_id: str) -> str:
    """Whose a location is while it is cleared. No table has such an id."""
    return f"abandoned by {transaction_id}"
