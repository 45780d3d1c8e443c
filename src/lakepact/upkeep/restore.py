"""A backup put back: into an empty store of any kind, once.

Cells are written batch by batch, and with every batch how far it has come, in one commit. So a restore that was ended
in the middle goes on where it was if it is run again; until it has ended, no server serves the store. Revisions begin
again, so every restore has a generation of its own, by which receipts of this store differ from those of earlier ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from lakepact.errors import Contended, InvalidRequest, InvalidTransactionId, StoreUnsuitable, Unreadable
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Committed, Failed, State, Transaction, Write
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.kernel.settings import KernelSettings
from lakepact.upkeep.backup import RESTORE_MARK, RESTORING, Contents, SavedCell, SavedRecord, contents, read

MARK: Final = RESTORE_MARK

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Restored:
    """The restore that a store comes from. Zeros if it comes from none."""

    generation: int = 0
    ended_ms: int = 0


async def check_complete(store: CellStore) -> Restored:
    """Return the restore that this store comes from. Raise `StoreUnsuitable` if it has begun and not ended."""
    value = (await store.read([MARK]))[MARK].value
    if value is not None and "ended-ms" not in value:
        raise StoreUnsuitable(
            f"a restore into this store has not ended ({value.get('cells')} cells so far): run `lakepact restore` with "
            f"the same file again, or begin with an empty store"
        )
    if value is None:
        return Restored()
    return Restored(int(value.get("generation", 0)), int(value["ended-ms"]))


async def load(
    store: CellStore,
    path: Path,
    settings: KernelSettings,
    clock: Clock,
    rng: Rng,
    *,
    say: Callable[[str], None] = lambda text: None,
) -> Contents:
    """Put the backup into the store, and compare it afterwards. Raises `InvalidRequest` if the store is not empty."""
    whole = contents(path)
    mark = (await store.read([MARK]))[MARK]
    done = await _begun(store, mark, whole)
    # Two restores of one backup must differ too, and a later one must sort behind an earlier one.
    generation = int((mark.value or {}).get("generation", max(clock.now_ms(), whole.generation + 1)))
    say(f"{whole.cells} cells" + (f", of which {done} are there already" if done else ""))
    for batch in _batches(path, done, settings):
        done += len(batch)
        value = {"backup": whole.id, "made-ms": whole.made_ms, "generation": generation, "cells": done}
        mark = await _put(store, clock, rng, mark, value, batch)
    say(f"{whole.records} records")
    kept = await _records(store, path)
    await _compare(store, path)
    value = {
        "backup": whole.id,
        "made-ms": whole.made_ms,
        "generation": generation,
        "cells": done,
        "records": kept,
        "ended-ms": clock.now_ms(),
    }
    await _put(store, clock, rng, mark, value, [])
    return replace(whole, cells=done, records=kept)


async def _begun(store: CellStore, mark: Cell, whole: Contents) -> int:
    """How many cells an earlier attempt has put; 0 for a store that is empty."""
    if mark.value is not None:
        if mark.value.get("backup") == whole.id and "ended-ms" not in mark.value:
            return int(mark.value["cells"])
        raise InvalidRequest(
            f"this store was restored from backup {mark.value.get('backup')} before; restore into an empty one"
        )
    cells = (await store.scan("", None, 1)).cells
    records = (await store.transactions(limit=1)).transactions
    if mark.revision or cells or records:
        raise InvalidRequest(
            "the store is not empty, and a restore mixes nothing: name another one with --store, and point the servers "
            "there afterwards"
        )
    return 0


def _batches(path: Path, skipped: int, settings: KernelSettings) -> Iterator[list[SavedCell]]:
    """Cells in the order of the file, as many as one transaction takes; one cell less, for the mark."""
    batch: list[SavedCell] = []
    size = number = 0
    for line in read(path):
        if not isinstance(line, SavedCell):
            continue
        number += 1
        if number <= skipped:
            continue
        weight = len(orjson.dumps(line.value)) + len(line.key)
        if batch and (len(batch) >= settings.max_cells - 1 or size + weight > settings.max_transaction_bytes // 2):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += weight
    if batch:
        yield batch


async def _put(
    store: CellStore, clock: Clock, rng: Rng, mark: Cell, value: dict[str, Any], batch: Iterable[SavedCell]
) -> Cell:
    writes = (Write(MARK, mark.revision, value), *(Write(cell.key, 0, cell.value) for cell in batch))
    id = uuid7(clock.now_ms(), rng.bits(74))
    result = await store.commit(Transaction(id, "", writes, answer={"operation": RESTORING}))
    if not isinstance(result, Committed):
        raise Contended(f"somebody else writes to this store: {result}. Stop them, and begin with an empty store")
    return Cell(MARK, mark.revision + 1, value, id)


async def _records(store: CellStore, path: Path) -> int:
    """What became of earlier transactions, so that none is done twice. Those too old to be sent again are left out."""
    kept, waiting = 0, list[Awaitable[bool]]()
    for line in read(path):
        if isinstance(line, SavedRecord):
            waiting.append(_record(store, line))
        if len(waiting) >= _AT_ONCE:
            kept += sum(await asyncio.gather(*waiting))
            waiting.clear()
    return kept + sum(await asyncio.gather(*waiting))


async def _record(store: CellStore, record: SavedRecord) -> bool:
    try:
        if record.state is State.FAILED:
            result: object = await store.fail(record.id, record.request_hash, record.answer)
        else:
            result = await store.commit(Transaction(record.id, record.request_hash, answer=record.answer))
    except InvalidTransactionId:
        return False
    if not isinstance(result, Committed | Failed):
        raise Contended(f"record {record.id} could not be put: {result}. Run the restore again")
    return True


async def _compare(store: CellStore, path: Path) -> None:
    """Every cell is what the file says."""
    page: dict[Key, Any] = {}

    async def check() -> None:
        for key, cell in (await store.read(page)).items():
            if cell.value is None or orjson.dumps(cell.value, option=_SORTED) != orjson.dumps(
                page[key], option=_SORTED
            ):
                raise Unreadable(f"cell {key} is not what the backup says; begin anew, with an empty store")
        page.clear()

    for line in read(path):
        if isinstance(line, SavedCell):
            page[line.key] = line.value
            if len(page) >= 100:
                await check()
    await check()


_SORTED: Final = orjson.OPT_SORT_KEYS
