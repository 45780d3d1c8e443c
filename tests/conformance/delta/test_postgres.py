"""What is PostgreSQL's own: one round trip, lost answers, the order of the outbox, the guide's queries, old schemas."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from lakepact.delta.ports import ErrorRow
from lakepact.errors import OutcomeUnknown
from lakepact.kernel.model import Committed
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import SystemRng
from lakepact.stores.postgres import PostgresCells
from lakepact.stores.postgres_schema import STEPS, quoted
from lakepact.stores.sql_format import FORMAT
from tests.conformance.cells.postgres_proxy import Fault, Proxy
from tests.conformance.cells.world import SETTINGS, A, SteeredClock
from tests.conformance.delta.lake import WAREHOUSE, Change, Lake, add, adds, remove
from tests.support.postgres import LazyPostgres
from tests.support.waiting import PATIENCE_S

CONFLICTS = """
SELECT txn_id, table_id, expected_version, actual_version, error_message
FROM transaction_error_log
WHERE error_type = 'VersionConflict'
ORDER BY timestamp DESC LIMIT 10;
"""
LAG = """
SELECT table_id, mirror_engine, 
       NOW() - last_sync_time AS lag_sec,
       last_error
FROM dl_mirror_status
WHERE mirrored_version < current_version
ORDER BY lag_sec DESC;
"""  # noqa: W291  as the guide has it


class Site(Lake):
    """A lake in a schema of its own, with a way past the store: `direct` is a plain connection to the server."""

    def __init__(self, url: str, schema: str, direct: Any) -> None:
        self.url, self.schema, self.direct = url, schema, direct
        super().__init__("postgres", SteeredClock(), self._handle)

    async def _handle(self, settings: KernelSettings) -> PostgresCells:
        return await self.at(self.url, settings)

    async def at(self, url: str, settings: KernelSettings = SETTINGS) -> PostgresCells:
        return await PostgresCells.open(url, settings, self.clock, SystemRng(), schema=self.schema, connections=4)

    async def waiting(self) -> None:
        while not await self.direct.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _site(url: str) -> AsyncIterator[Site]:
    direct = await asyncpg.connect(url)
    site = Site(url, f"delta_{secrets.token_hex(8)}", direct)
    try:
        site.store = await site.open()
        yield site
    finally:
        await site.close()
        await direct.execute(f"DROP SCHEMA IF EXISTS {site.schema} CASCADE")
        await direct.close()


@pytest.fixture
def site(postgres: LazyPostgres) -> AbstractAsyncContextManager[Site]:
    return _site(postgres.url())


async def test_a_commit_with_rows_is_one_round_trip_whatever_it_publishes(site: Site) -> None:
    tables = [f"t{number}" for number in range(20)]
    await site.create(*tables)
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        rows = site.rows_of(store)

        async def round_trips(step: Callable[[], Awaitable[object]]) -> int:
            before = proxy.round_trips
            await step()
            return proxy.round_trips - before

        async def trips_of(some: list[str], version: int, files: int) -> tuple[int, int]:
            changes = [
                Change(table, version, adds(*(f"{version}-{number}" for number in range(files)))) for table in some
            ]
            plan = site.plan(changes)
            put = await round_trips(lambda: site.put_rows(plan.id, changes, rows))
            return put, await round_trips(lambda: store.commit(plan))

        await trips_of(tables[:1], 1, 1)
        few, many = await trips_of(tables[1:2], 1, 2), await trips_of(tables[2:], 1, 50)
        assert few == many and few[1] == 1
        await store.close()


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
async def test_a_commit_whose_answer_is_lost_is_applied_once(site: Site, fault: Fault) -> None:
    await site.create("t", "u")
    await site.write("t", 1, add("a"))
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        await store.read([A])
        changes = [Change("t", 2, [remove("a"), add("b")]), Change("u", 1, adds("c"))]
        plan = site.plan(changes)
        await site.put_rows(plan.id, changes, site.rows_of(store))
        proxy.lose(fault)
        result = await store.commit(plan)
        assert isinstance(result, Committed) and proxy.faults == 1
        await store.close()
    assert [await site.version_of(table) for table in "tu"] == [(2, 2), (1, 1)]
    assert (await site.paths("t", 2), await site.paths("u", 1)) == (["b"], ["c"])
    assert len(await site.rows.outgoing(WAREHOUSE)) == 3


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
async def test_an_unknown_outcome_is_settled_by_sending_the_same_again(site: Site, fault: Fault) -> None:
    await site.create("t")
    change = Change("t", 1, adds("a"))
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        await store.read([A])
        plan = site.plan([change])
        await site.put_rows(plan.id, [change])
        proxy.lose(fault, and_refuse=True)
        with pytest.raises(OutcomeUnknown):
            await store.commit(plan)
        proxy.serve_again()
        # Whoever asks again writes its rows again first: it cannot know.
        await site.put_rows(plan.id, [change])
        assert isinstance(await store.commit(plan), Committed)
        await store.close()
    assert await site.version_of("t") == (1, 1) and await site.paths("t", 1) == ["a"]


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
async def test_every_step_on_rows_survives_a_lost_connection(site: Site, fault: Fault) -> None:
    await site.create("t", engines=("delta_log",))
    await site.write("t", 1, add("a"))
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        rows = site.rows_of(store)
        transaction_id = site.id()
        change = Change("t", 2, [add("b"), remove("a")])
        steps: list[Callable[[], Awaitable[object]]] = [
            lambda: site.put_rows(transaction_id, [change], rows),
            lambda: rows.move(transaction_id, "t", 2, 3),
            lambda: rows.move(transaction_id, "t", 3, 2),
            lambda: rows.stage(transaction_id, "t", "1", "[]"),
            lambda: rows.files("t", 1),
            lambda: rows.since("t", 0, 1),
            lambda: rows.claim("delta_log", "me", 10),
            lambda: rows.outgoing(WAREHOUSE),
            lambda: rows.sent(WAREHOUSE, 1),
            lambda: rows.sweep(),
        ]
        for step in steps:
            proxy.lose(fault)
            await step()
        assert proxy.faults == len(steps)
        proxy.lose(fault, at_commit=True)
        await steps[0]()
        assert proxy.faults == len(steps) + 1
        assert isinstance(await store.commit(site.plan([change], id=transaction_id)), Committed)
        await store.close()
    assert await site.paths("t", 2) == ["b"]


async def test_a_commit_that_is_late_gets_a_later_number_and_waits_for_nobody(site: Site) -> None:
    """Its place in the sequence is taken first, but it ends last, when others have been numbered already."""
    await site.create("slow", "quick")
    await site.rows.sent(WAREHOUSE, (await site.rows.outgoing(WAREHOUSE))[-1].number)
    change = Change("slow", 1, adds("a"))
    plan = site.plan([change])
    await site.put_rows(plan.id, [change])
    # It is held up after its place in the sequence was taken: at the very last row it writes.
    await site.direct.execute(
        f"CREATE FUNCTION {site.schema}.hold() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN "
        f"IF new.tables LIKE '%slow%' THEN PERFORM pg_advisory_xact_lock(42); END IF; RETURN new; END $body$"
    )
    await site.direct.execute(
        f"CREATE TRIGGER hold AFTER INSERT ON {site.schema}.dl_outbox "
        f"FOR EACH ROW EXECUTE FUNCTION {site.schema}.hold()"
    )
    async with site.direct.transaction():
        await site.direct.execute("SELECT pg_advisory_xact_lock(42)")
        committing = asyncio.ensure_future(site.store.commit(plan))
        await site.waiting()
        await site.write("quick", 1, add("b"))
        await site.write("quick", 2, add("c"))
        seen = await site.rows.outgoing(WAREHOUSE)
        assert [(one.number, one.tables) for one in seen] == [(2, {"quick": 1}), (3, {"quick": 2})]
    assert isinstance(await committing, Committed)
    assert [(one.number, one.tables) for one in await site.rows.outgoing(WAREHOUSE)] == [
        (2, {"quick": 1}),
        (3, {"quick": 2}),
        (4, {"slow": 1}),
    ]


async def test_rows_need_no_lock_that_others_wait_for(site: Site) -> None:
    """While one transaction writes its rows for a version, others commit that version and read the table."""
    await site.create("t")
    await site.direct.execute(f"SET search_path = {site.schema}")
    async with site.direct.transaction():
        # A put that has not ended: its rows are written and its transaction is still going on.
        await site.direct.execute(
            "INSERT INTO dl_pending (transaction_id, table_id, version, adds, removes, put_ms) "
            "VALUES ('x', 't', 1, 1, 0, 0)"
        )
        await site.direct.execute(
            "INSERT INTO dl_add_files (table_id, version, transaction_id, path, dv_id, size_bytes, modification_time, "
            "data_change, partition_values) VALUES ('t', 1, 'x', 'a', '', 1, 1, true, '{}')"
        )
        async with asyncio.timeout(PATIENCE_S):
            await site.write("t", 1, add("a"))
        assert await site.paths("t", 1) == ["a"]


async def test_the_queries_of_the_guide_run_as_written(site: Site) -> None:
    await site.create("t", "u", engines=("delta_log", "duckdb"))
    # The lag is counted by the database, so the time of the store must be the real one.
    await site.rows.claim("delta_log", "me", 600)
    await site.rows.mirrored("delta_log", "me", {"t": 0, "u": 0})
    await site.write("t", 1, add("a"))
    await site.rows.log_errors(
        [
            ErrorRow("x1", "t", 1, 2, "VersionConflict", "first", 1_000),
            ErrorRow("x2", "t", 1, 3, "VersionConflict", "second", 2_000),
            ErrorRow("x3", "t", 1, 3, "SomethingElse", "third", 3_000),
        ]
    )
    await site.direct.execute(f"SET search_path = {site.schema}")
    assert [tuple(row) for row in await site.direct.fetch(CONFLICTS)] == [
        ("x2", "t", 1, 3, "second"),
        ("x1", "t", 1, 2, "first"),
    ]
    lagging = await site.direct.fetch(LAG)
    assert sorted((row["table_id"], row["mirror_engine"]) for row in lagging) == [
        ("t", "delta_log"),
        ("t", "duckdb"),
        ("u", "duckdb"),
    ]
    (synced,) = [row for row in lagging if row["lag_sec"] is not None]
    assert synced["mirror_engine"] == "delta_log" and 0 <= synced["lag_sec"].total_seconds() < PATIENCE_S


async def test_a_schema_of_the_release_before_gets_the_tables_and_keeps_its_cells(postgres: LazyPostgres) -> None:
    async with _site(postgres.url()) as site:
        await site.put({A: {"n": 1}})
        for relation in await site.direct.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' "
            "AND (relname LIKE 'dl\\_%' OR relname = 'transaction_error_log')",
            site.schema,
        ):
            await site.direct.execute(f"DROP TABLE {site.schema}.{relation[0]} CASCADE")
        await site.direct.execute(f"UPDATE {site.schema}.meta SET format = 1")
        site.store = await site.open()
        assert await site.direct.fetchval(f"SELECT format FROM {site.schema}.meta") == FORMAT == max(STEPS)
        assert await site.value(A) == {"n": 1}
        await site.create("t")
        await site.write("t", 1, add("a"))
        assert quoted(site.schema)
