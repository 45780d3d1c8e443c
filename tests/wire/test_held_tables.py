"""A change of a table that a prepared transaction holds waits for it, for a time that is the same on every store, and
no longer than its client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from tests.support.postgres import LazyPostgres
from tests.wire.conftest import fresh_database
from tests.wire.overlays import Overlaid, begin, furnish, properties
from tests.wire.world import Wire, new_key, set_properties

TIMEOUT = "X-Lakepact-Timeout-Ms"
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
    # Longer than any machine needs: a request that does not wait fails at once.
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


async def prepared_holder(wire: Wire) -> Overlaid:
    await furnish(wire, "t")
    holder = await begin(wire)
    assert (await holder.commit([set_properties(a="held")])).status == 200
    assert (await holder.do("prepare")).status == 200
    return holder


@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_whose_client_stops_waiting_is_503_and_never_applied(
    kind: str, tmp_path: Path, postgres: LazyPostgres
) -> None:
    """The server would wait for ten minutes. The client has said that it does not."""
    async with opened(kind, tmp_path, postgres, held_wait_s=600) as wire:
        holder = await prepared_holder(wire)
        key = new_key()
        answer = await wire.commit([set_properties(b="late")], key=key, headers={TIMEOUT: "100"})
        assert answer.refusal == (503, "SlowDownException") and answer.header("Retry-After")
        other = await begin(wire, isolation="snapshot")
        assert (await other.commit([set_properties(c="late")])).status == 200
        for step in ("prepare", "commit"):
            answer = await wire.post(f"/transactions/{other.id}/{step}", body=b"", headers={TIMEOUT: "100"})
            assert answer.refusal == (503, "SlowDownException") and answer.header("Retry-After")
        await holder.publish()
        found = properties(await wire.load())
        assert found["a"] == "held" and not {"b", "c"} & found.keys()
        # Nothing is stored under the key, and the transaction is still there: both can be sent again.
        assert (await wire.commit([set_properties(b="late")], key=key, headers={TIMEOUT: "600000"})).status == 200
        assert (await other.do("commit")).status == 200
        assert {"a": "held", "b": "late", "c": "late"}.items() <= properties(await wire.load()).items()


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1s", "86400001", "9" * 5_000, "\u0661"])
async def test_a_time_limit_that_is_none_is_400(tmp_path: Path, text: str) -> None:
    async with Wire.opened(tmp_path) as wire:
        await furnish(wire, "t")
        answer = await wire.commit([set_properties(b="x")], headers={TIMEOUT: text})
        assert answer.refusal == (400, "BadRequestException") and TIMEOUT in answer.error["message"]
        assert "b" not in properties(await wire.load())
