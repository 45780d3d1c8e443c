"""A change of a table that a prepared transaction holds waits for it, for a time that is the same on every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.support.postgres import LazyPostgres
from tests.wire.conftest import fresh_database
from tests.wire.overlays import begin, furnish, properties
from tests.wire.world import Wire, set_properties

KINDS = ("sqlite", "memory", "file", "postgres")


def opened(kind: str, folder: Path, postgres: LazyPostgres, held_wait_s: float) -> AbstractAsyncContextManager[Wire]:
    match kind:
        case "sqlite":
            return Wire.opened(folder, held_wait_s=held_wait_s)
        case "memory":
            return Wire.opened(folder, held_wait_s=held_wait_s, store="memory://", warehouse="memory://")
        case "file":
            return Wire.opened(folder, held_wait_s=held_wait_s, store=f"file://{folder}/cells")
        case _:
            return _on_postgres(folder, postgres.url(), held_wait_s)


@asynccontextmanager
async def _on_postgres(folder: Path, url: str, held_wait_s: float) -> AsyncIterator[Wire]:
    async with fresh_database(url) as store, Wire.opened(folder, store=store, held_wait_s=held_wait_s) as wire:
        yield wire


@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_waits_until_the_table_is_let_go(kind: str, tmp_path: Path, postgres: LazyPostgres) -> None:
    # Longer than any machine needs: whoever does not wait fails at once.
    async with opened(kind, tmp_path, postgres, held_wait_s=600) as wire:
        await furnish(wire, "t")
        holder = await begin(wire)
        assert (await holder.commit([set_properties(a="held")])).status == 200
        assert (await holder.do("prepare")).status == 200
        waiting = asyncio.create_task(wire.commit([set_properties(b="waited")]))
        other = await begin(wire, isolation="snapshot")
        assert (await other.commit([set_properties(c="waited")])).status == 200
        publishing = asyncio.create_task(other.do("commit"))
        # A transaction on other tables is not kept waiting.
        await wire.table("free")
        assert not waiting.done() and not publishing.done()
        await holder.publish()
        assert (await waiting).status == 200
        assert (await publishing).status == 200
        assert {"a": "held", "b": "waited", "c": "waited"}.items() <= properties(await wire.load()).items()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_that_has_waited_long_enough_is_503_and_names_the_holder(
    kind: str, tmp_path: Path, postgres: LazyPostgres
) -> None:
    async with opened(kind, tmp_path, postgres, held_wait_s=0.1) as wire:
        await furnish(wire, "t")
        holder = await begin(wire)
        assert (await holder.commit([set_properties(a="held")])).status == 200
        assert (await holder.do("prepare")).status == 200
        answer = await wire.commit([set_properties(b="later")])
        assert answer.refusal == (503, "SlowDownException")
        assert holder.id in answer.error["message"] and answer.header("Retry-After")
        assert (await holder.do("abort")).status == 200
        assert (await wire.commit([set_properties(b="later")])).status == 200
