"""Which versions belong together: the manifests in `_transactions/`, for readers that know only paths.

    _transactions/00000000000000000042.json   what commit 42 has moved; written once
    _transactions/latest                      all tables as of the newest cut; replaced

Both are `{"sequence", "transaction-id", "timestamp-ms", "tables": {location: version}, "behind": {location:
version}}`. What is in `tables` is in the logs. A table whose mirror cannot go on is in `behind`, with the version it
ought to have, so that one broken table does not keep the others back; `null` in a numbered manifest is a table that was
dropped, or has no log (any more). Cuts are published in the order of their numbers, a cut only when its files are
there. So whoever takes the versions in `latest` reads what was true at one instant.

`latest` is compared with what was read before it is replaced: it never moves back, whoever publishes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import structlog

from lakepact.delta.ports import DeltaRows, MirrorState, Outgoing, TableLife, TableRow
from lakepact.errors import Damaged
from lakepact.kernel.ports import BlobStore
from lakepact.mirrors.engines import Engine

FOLDER: Final = "_transactions"
LATEST: Final = f"{FOLDER}/latest"
MOST: Final = 1_000
"""Cuts of one round."""

PATIENCE: Final = 6
"""Failures in a row, over half a minute, after which the cuts go on without a table."""

_ATTEMPTS: Final = 20
_MOST_REMEMBERED: Final = 100_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Cut:
    """What a manifest says."""

    sequence: int
    transaction_id: str
    timestamp_ms: int | None
    tables: dict[str, int | None] = field(default_factory=dict)
    behind: dict[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return orjson.dumps(
            {
                "sequence": self.sequence,
                "transaction-id": self.transaction_id,
                "timestamp-ms": self.timestamp_ms,
                "tables": dict(sorted(self.tables.items())),
                "behind": dict(sorted(self.behind.items())),
            }
        )

    @classmethod
    def of(cls, data: bytes) -> Cut:
        document: Any = orjson.loads(data)
        return cls(
            document["sequence"],
            document["transaction-id"],
            document["timestamp-ms"],
            document["tables"],
            document["behind"],
        )

    def then(self, later: Cut) -> Cut:
        """This whole cut, and what a later commit has moved."""
        tables, behind = dict(self.tables), dict(self.behind)
        for location in (*later.tables, *later.behind):
            tables.pop(location, None)
            behind.pop(location, None)
        tables.update((location, version) for location, version in later.tables.items() if version is not None)
        behind.update(later.behind)
        newest_ms = later.timestamp_ms if later.timestamp_ms is not None else self.timestamp_ms
        return Cut(later.sequence, later.transaction_id, newest_ms, tables, behind)


class Cuts:
    """The cuts of one warehouse."""

    def __init__(self, warehouse: str, blobs: BlobStore, rows: DeltaRows) -> None:
        self._warehouse = warehouse
        self._blobs = blobs
        self._rows = rows
        self._locations: OrderedDict[str, str] = OrderedDict()
        """Of live tables, by id. A table never moves."""

        self._latest: bytes | None = None
        """As it was read or written last; what is there may be newer."""

    async def publish(self, reached: Mapping[str, int]) -> bool:
        """Publish the cuts whose files are there, in order: whether none was left. `reached` are versions that are
        known to be there."""
        while True:
            ready: list[Cut] = []
            waiting = await self._rows.outgoing(self._warehouse, MOST)
            for outgoing in waiting:
                cut = await self._cut(outgoing, reached)
                if cut is None:
                    break
                ready.append(cut)
            if ready:
                for cut in ready:
                    await self._put(cut)
                await self._move_latest(ready)
                await self._rows.sent(self._warehouse, ready[-1].sequence)
            if len(ready) < len(waiting) or len(waiting) < MOST:
                return len(ready) == len(waiting)

    async def welcome_back(self) -> None:
        """Put tables that were left behind, and have come as far as the newest cut, back among the others."""
        was = await self._blobs.get(LATEST)
        latest = _read(was)
        if was is None or latest is None or not latest.behind:
            return
        back = [table.location for table in await self._tables() if await self._has_come(table, latest)]
        for location in back:
            latest.tables[location] = latest.behind.pop(location)
        if back:
            # False: somebody has published a newer one, and looks again.
            await self._blobs.replace(LATEST, latest.to_bytes(), was)

    # --- how ---

    async def _cut(self, outgoing: Outgoing, reached: Mapping[str, int]) -> Cut | None:
        """What there is to say of this commit, or None if some of its files are still to come."""
        cut = Cut(outgoing.number, outgoing.transaction_id, outgoing.ict_ms)
        for table_id, version in sorted(outgoing.tables.items()):
            if version is None:
                table = await self._rows.table(table_id)
                if table is not None and table.state is TableLife.DROPPED:
                    cut.tables[table.location] = None
                continue
            if reached.get(table_id, -1) >= version:
                cut.tables[await self._location(table_id)] = version
                continue
            row = next(
                (one for one in await self._rows.mirror_status(table_id=table_id) if one.engine == Engine.DELTA_LOG),
                None,
            )
            if row is None or row.state is MirrorState.OFF:
                # Not followed, or no longer: at the version it had it would not belong to the others any more.
                table = await self._rows.table(table_id)
                if table is not None:
                    cut.tables[table.location] = None
            elif row.mirrored_version >= version:
                cut.tables[await self._location(table_id)] = version
            elif row.state in (MirrorState.CONFLICT, MirrorState.DEAD) or row.attempts >= PATIENCE:
                cut.behind[await self._location(table_id)] = version
            else:
                return None
        return cut

    async def _put(self, cut: Cut) -> None:
        name = f"{FOLDER}/{cut.sequence:020}.json"
        if await self._blobs.put(name, cut.to_bytes()):
            return
        there = _read(await self._blobs.get(name))
        # Said before, when one more or one less of its tables was behind: the first word stays.
        if there is None or (there.sequence, there.transaction_id) != (cut.sequence, cut.transaction_id):
            raise Damaged(
                f"{name} in warehouse {self._warehouse} is there, and is not of transaction {cut.transaction_id}: "
                f"another catalog publishes here, or the store was restored to an earlier time. No cut was "
                f"published; a person must look"
            )

    async def _move_latest(self, ready: Sequence[Cut]) -> None:
        for _ in range(_ATTEMPTS):
            was = self._latest
            latest = _read(was)
            if latest is None:
                was = await self._blobs.get(LATEST)
                latest = _read(was)
            if latest is None:
                latest = await self._fold(before=ready[0].sequence)
            new = latest
            for cut in ready:
                if cut.sequence > new.sequence:
                    new = new.then(cut)
            data = new.to_bytes()
            if new is latest or await self._blobs.replace(LATEST, data, was):
                self._latest = was if new is latest else data
                return
            self._latest = None
        raise Damaged(f"{LATEST} in warehouse {self._warehouse} keeps changing; no cut was noted as published")

    async def _fold(self, before: int) -> Cut:
        """All tables as of the cut before this one, from the manifests: where `latest` is missing or unreadable."""
        whole, after = Cut(0, "", None), f"{FOLDER}/"
        while page := await self._blobs.list(f"{FOLDER}/0", after):
            for entry in page:
                cut = _read(await self._blobs.get(entry.name))
                if cut is not None and whole.sequence < cut.sequence < before:
                    whole = whole.then(cut)
            after = page[-1].name
        return whole

    async def _has_come(self, table: TableRow, latest: Cut) -> bool:
        wanted = latest.behind.get(table.location)
        return wanted is not None and any(
            row.engine == Engine.DELTA_LOG and row.mirrored_version >= wanted
            for row in await self._rows.mirror_status(table_id=table.table_id)
        )

    async def _tables(self) -> list[TableRow]:
        found: list[TableRow] = []
        while page := await self._rows.tables(self._warehouse, after=found[-1].table_id if found else ""):
            found += page
        return found

    async def _location(self, table_id: str) -> str:
        known = self._locations.get(table_id)
        if known is not None:
            return known
        table = await self._rows.table(table_id)
        if table is None:
            raise Damaged(f"Delta table {table_id} is mirrored, but the store does not know it")
        self._locations[table_id] = table.location
        if len(self._locations) > _MOST_REMEMBERED:
            self._locations.popitem(last=False)
        return table.location


def _read(data: bytes | None) -> Cut | None:
    if data is None:
        return None
    try:
        return Cut.of(data)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
