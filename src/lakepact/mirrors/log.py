"""The engine `delta_log`: every version of every table as a file of its log, strictly in order.

A file is put if absent, and its bytes follow from the rows alone, so it does not matter who writes it or how often:
what is there with equal bytes was written by one of us. Other bytes are somebody else's: the table's log has been
forked, and is left alone from there on.

The versions of one transaction are prepared together and then put side by side. One that fails keeps its own table from
going on, and no other.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from lakepact.catalog.warehouse import Warehouse
from lakepact.delta import codec
from lakepact.delta.actions import Protocol
from lakepact.delta.checkpoint import newest_due
from lakepact.delta.ports import DeltaRows, MirrorRow, TableRow, VersionActions
from lakepact.delta.protocol import is_managed
from lakepact.kernel.ports import BlobStore
from lakepact.mirrors.checkpoints import Checkpoints

LOG: Final = "_delta_log"
MOST_VERSIONS: Final = 100
"""Of one table in one round."""

MOST_FILES: Final = 100_000
"""Added and removed in the versions of one round: they are in memory together. One version may have more."""

_MOST_REMEMBERED: Final = 100_000
_FEW: Final = 500


@dataclass(slots=True)
class Followed:
    """What became of one table in one round."""

    table: TableRow
    began_at: int
    """The version that was mirrored before."""

    reached: int
    """The version whose file is there now, and those of all before."""

    times: list[int] = field(default_factory=list)
    """When the versions that were put now had been committed, in ms."""

    conflict: str | None = None
    error: Exception | None = None

    @property
    def stopped(self) -> bool:
        return self.conflict is not None or self.error is not None


@dataclass(frozen=True, slots=True)
class _File:
    followed: Followed
    version: int
    committed_ms: int
    data: bytes


class LogMirror:
    def __init__(self, warehouse: Warehouse, blobs: BlobStore, rows: DeltaRows) -> None:
        self._warehouse = warehouse
        self._blobs = blobs
        self._rows = rows
        self._checkpoints = Checkpoints(blobs, rows)
        self._tables: OrderedDict[str, TableRow] = OrderedDict()
        """Of them the place counts alone, and no table ever moves."""

        self._ours: set[str] = set()
        """Tables whose log is known to be ours from the version on that comes next."""

    async def follow(self, claimed: Sequence[MirrorRow], hold: Callable[[], Awaitable[None]]) -> list[Followed]:
        """Write what these tables have and their logs have not, up to a bound. `hold` is called now and then.

        Never raises for a table: what went wrong is in the answer.
        """
        most_files = MOST_FILES // max(len(claimed), 1)
        begun = [one for one in await asyncio.gather(*(self._begin(row, most_files) for row in claimed)) if one]
        all_followed = [followed for followed, _ in begun]
        pending = [(one, followed) for followed, versions in begun for one in versions]
        # All tables of a transaction have one timestamp, and a table's timestamps grow with its versions.
        pending.sort(key=lambda pair: (pair[0].row.info.timestamp_ms, pair[0].row.transaction_id, pair[0].row.version))
        for _, group in groupby(pending, key=lambda pair: (pair[0].row.info.timestamp_ms, pair[0].row.transaction_id)):
            await self._publish(list(group))
            await hold()
        return all_followed

    async def checkpoint(self, followed: Iterable[Followed], hold: Callable[[], Awaitable[None]]) -> None:
        """Write the checkpoints that have become due. One that fails is the matter of the next."""
        for one in followed:
            version = newest_due(one.began_at, one.reached)
            if version is not None and one.table.table_id in self._ours:
                await hold()
                await self._checkpoints.write(one.table, self._folder(one.table), version)

    async def _begin(self, row: MirrorRow, most_files: int) -> tuple[Followed, Sequence[VersionActions]] | None:
        table = self._tables.get(row.table_id) or await self._rows.table(row.table_id)
        if table is None:
            return None
        self._tables[row.table_id] = table
        if len(self._tables) > _MOST_REMEMBERED:
            self._tables.popitem(last=False)
        followed = Followed(table, row.mirrored_version, row.mirrored_version)
        try:
            return followed, await self._versions(row, followed, most_files)
        except Exception as error:
            followed.error = error
            return followed, ()

    async def _versions(self, row: MirrorRow, followed: Followed, most_files: int) -> Sequence[VersionActions]:
        after, until = row.mirrored_version, row.current_version
        if until - after > 1:
            until = await self._bounded(row.table_id, after, min(until, after + MOST_VERSIONS), most_files)
        versions = await self._rows.since(row.table_id, after, until)
        if not versions:
            # An imported table may begin anywhere: there is nothing to write before that.
            followed.reached = until
        elif row.table_id not in self._ours:
            versions = await self._managed(versions, followed)
        return versions

    async def _bounded(self, table_id: str, after: int, until: int, most_files: int) -> int:
        files = 0
        for one in reversed(await self._rows.versions(table_id, until + 1, until - after)):
            files += one.adds + one.removes
            if one.version > after + 1 and files > most_files:
                return one.version - 1
        return until

    async def _managed(self, versions: Sequence[VersionActions], followed: Followed) -> Sequence[VersionActions]:
        """Without those that were imported: they came from a log that is there already, and is not ours to write."""
        table_id = followed.table.table_id
        protocol = (await self._rows.contents(table_id, versions[0].row.version)).protocol
        for number, one in enumerate(versions):
            protocol = next((action for action in one.actions if isinstance(action, Protocol)), protocol)
            # A digest is of a file that was read: a table that was recovered has had our protocol before.
            if protocol is not None and is_managed(protocol) and not one.row.digest:
                self._ours.add(table_id)
                return versions[number:]
            followed.reached = one.row.version
        return ()

    async def _publish(self, group: Sequence[tuple[VersionActions, Followed]]) -> None:
        """The files of one transaction: all of them made, then all of them put."""
        files: list[_File] = []
        for one, followed in group:
            if followed.stopped:
                continue
            try:
                data = await _commit_file(one)
                files.append(_File(followed, one.row.version, one.row.info.timestamp_ms, data))
            except Exception as error:
                followed.error = error
        while files:
            # Of a table that has several versions in one transaction (an import), one after the other.
            first = {id(file.followed): file for file in reversed(files)}
            await asyncio.gather(*(self._put(file) for file in first.values()))
            taken = set(map(id, first.values()))
            files = [file for file in files if id(file) not in taken and not file.followed.stopped]

    async def _put(self, file: _File) -> None:
        followed = file.followed
        try:
            name = f"{self._folder(followed.table)}/{file.version:020}.json"
            if await self._blobs.put(name, file.data):
                followed.reached = file.version
                followed.times.append(file.committed_ms)
                return
            followed.conflict = (
                f"{name} is there with other content (ours has sha256 {codec.digest(file.data)}): somebody else has "
                f"written to this log. Nothing was overwritten. Find out who, move what they wrote away, then: "
                f"lakepact mirror retry --table {followed.table.table_id}"
            )
        except Exception as error:
            followed.error = error

    def _folder(self, table: TableRow) -> str:
        return f"{self._warehouse.blob_name(table.location)}/{LOG}"


async def _commit_file(one: VersionActions) -> bytes:
    if len(one.actions) <= _FEW:
        # That takes less time than asking a thread for it.
        return codec.commit_file(one.actions, one.row.info)
    return await asyncio.to_thread(codec.commit_file, one.actions, one.row.info)
