"""Snapshots are not taken from a transaction that looks at them, not even from one that begins at the same moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from lakepact.catalog import Call, Catalog, CatalogSettings
from lakepact.catalog.errors import CommitFailed, StillInUse
from lakepact.catalog.warehouse import Warehouse
from lakepact.iceberg.requests import Identifier, parse_commit_table, parse_create_table
from lakepact.kernel.model import CommitResult, Transaction
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.server.rest import error_answer
from lakepact.stores import open_blobs, open_store
from tests.wire.world import SCHEMA, append

TABLE = Identifier(("db",), "t")
REMOVAL = [{"action": "remove-snapshots", "snapshot-ids": [1]}]


class Meanwhile:
    """A store in which something happens right before the next commit."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.first: Callable[[], Awaitable[object]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, transaction: Transaction, **more: Any) -> CommitResult:
        first, self.first = self.first, None
        if first is not None:
            await first()
        result: CommitResult = await self._store.commit(transaction, **more)
        return result


async def commit(catalog: Catalog, updates: list[dict[str, Any]]) -> None:
    parsed = parse_commit_table(
        {"identifier": {"namespace": ["db"], "name": "t"}, "requirements": [], "updates": updates}
    )
    await catalog.commit_table(Call(catalog.new_id(), "test"), parsed)


@pytest.mark.parametrize("begins", ["before", "at the same moment", "after"])
async def test_a_removal_is_answered_only_if_nobody_looks(tmp_path: Path, begins: str) -> None:
    store = Meanwhile(await open_store(f"sqlite:///{tmp_path}/store.db"))
    blobs = await open_blobs(f"file://{tmp_path}/warehouse", {})
    tasks = AsyncioTasks()
    catalog = Catalog(
        Warehouse("main", f"file://{tmp_path}/warehouse"),
        store,
        blobs,
        SystemClock(),
        SystemRng(),
        tasks,
        CatalogSettings(),
    )

    async def begin() -> None:
        await catalog.transactions.begin(Call(catalog.new_id(), "begin"))

    try:
        await catalog.create_namespace(Call(catalog.new_id(), "test"), ("db",), {})
        wanted = parse_create_table({"name": "t", "schema": SCHEMA})
        await catalog.create_table(Call(catalog.new_id(), "test"), ("db",), wanted)
        await commit(catalog, append(1))
        match begins:
            case "before":
                await begin()
                with pytest.raises(CommitFailed, match="in use by open transaction"):
                    await commit(catalog, REMOVAL)
            case "at the same moment":
                store.first = begin
                with pytest.raises(StillInUse, match="Delete none of its files") as caught:
                    await commit(catalog, REMOVAL)
                with pytest.raises(StillInUse, match="Delete none of its files"):
                    await commit(catalog, REMOVAL)
                # Neither yes nor no, also if it is sent again: an engine deletes nothing on it.
                assert error_answer(caught.value).status == 504
                assert b"CommitStateUnknownException" in error_answer(caught.value).body
            case _:
                await commit(catalog, REMOVAL)
                await begin()
        file = await catalog.table_file((await catalog.table(TABLE)).metadata_location)
        assert len(file.document["snapshots"]) == (1 if begins == "before" else 0)
    finally:
        await tasks.drain()
        await store.close()
        await blobs.close()
