"""Checkpoints of the logs: every ten versions, so that no reader has to read every version.

A checkpoint's bytes follow from its version alone: what counts as expired is measured from the version's own time. It
is put if absent, like a commit file. `_last_checkpoint` only moves forward: it is compared with what was read before
it is replaced.
"""

from __future__ import annotations

import asyncio
from typing import Final

import orjson
import structlog

from lakepact.delta.checkpoint import checkpoint_file, last_checkpoint_file, retention_ms
from lakepact.delta.ports import DeltaRows, TableRow
from lakepact.delta.state import TableState
from lakepact.extras import how_to_install
from lakepact.kernel.ports import BlobStore

LAST: Final = "_last_checkpoint"
_ATTEMPTS: Final = 5

_log = structlog.get_logger(__name__)


class Checkpoints:
    def __init__(self, blobs: BlobStore, rows: DeltaRows) -> None:
        self._blobs = blobs
        self._rows = rows

    async def write(self, table: TableRow, folder: str, version: int) -> None:
        """Never raises: readers do without, and the next one is never far."""
        try:
            await self._write(table, folder, version)
        except ModuleNotFoundError as error:
            _log.warning(f"no checkpoint: {how_to_install('delta')}", location=table.location, error=str(error))
        except Exception as error:
            _log.warning("a checkpoint failed", location=table.location, version=version, error=repr(error))

    async def _write(self, table: TableRow, folder: str, version: int) -> None:
        state, committed_ms = await self._state(table.table_id, version)
        after_ms = committed_ms - retention_ms(state.metadata)
        data = await asyncio.to_thread(checkpoint_file, state, tombstones_after_ms=after_ms)
        name = f"{folder}/{version:020}.checkpoint.parquet"
        if not await self._blobs.put(name, data):
            # Written by another release of a library, which packs the same rows in another way.
            there = await self._blobs.get(name)
            data = data if there is None else there
        last = last_checkpoint_file(state, data, tombstones_after_ms=after_ms)
        for _ in range(_ATTEMPTS):
            was = await self._blobs.get(f"{folder}/{LAST}")
            if _version(was) >= version or await self._blobs.replace(f"{folder}/{LAST}", last, was):
                return

    async def _state(self, table_id: str, version: int) -> tuple[TableState, int]:
        contents = await self._rows.contents(table_id, version)
        [row] = await self._rows.versions(table_id, version + 1, 1)
        if contents.metadata is None or contents.protocol is None or row.version != version:
            raise ValueError(f"Delta table {table_id} has no version {version} that begins with metaData and protocol")
        files = {one.key: one for one in await self._rows.files(table_id, version)}
        committed_ms = row.info.timestamp_ms
        before = await self._rows.version_at(table_id, committed_ms - retention_ms(contents.metadata))
        removed = await self._rows.removed(table_id, -1 if before is None else before, version)
        tombstones = {one.key: one for one in removed if one.key not in files}
        state = TableState(
            version, contents.protocol, contents.metadata, files, tombstones, contents.txns, contents.domains
        )
        return state, committed_ms


def _version(last: bytes | None) -> int:
    if last is None:
        return -1
    try:
        version = orjson.loads(last)["version"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return -1
    return version if isinstance(version, int) else -1
