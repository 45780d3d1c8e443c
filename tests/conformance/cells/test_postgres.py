"""What is PostgreSQL's own: round trips, lost connections, waiting for locks, beginnings, formats, restored dumps."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from lakepact.errors import (
    Contended,
    FormatTooNew,
    InvalidSetting,
    OutcomeUnknown,
    StagedMeanwhile,
    StoreUnavailable,
    TransactionClosed,
)
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Cell, Committed, Conflict, State
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import SystemRng
from lakepact.stores import postgres_session
from lakepact.stores.postgres import PostgresCells
from lakepact.stores.sql_format import FORMAT, NEWEST_READABLE
from tests.conformance.cells.postgres_proxy import Fault, Proxy
from tests.conformance.cells.world import SETTINGS, A, B, C, SteeredClock, World, keys
from tests.support.postgres import LazyPostgres


class Site(World):
    """A world in a schema of its own, with a way past the store: `direct` is a plain connection to the server."""

    def __init__(self, url: str, schema: str, direct: Any) -> None:
        self.url, self.schema, self.direct = url, schema, direct
        super().__init__("postgres", SteeredClock(), self._handle)

    async def _handle(self, settings: KernelSettings) -> PostgresCells:
        return await self.at(self.url, settings)

    async def at(self, url: str, settings: KernelSettings = SETTINGS) -> PostgresCells:
        return await PostgresCells.open(url, settings, self.clock, SystemRng(), schema=self.schema, connections=4)

    async def waiting(self) -> int:
        """The server process of the store that waits for a lock, once one does."""
        while True:
            pid = await self.direct.fetchval("SELECT pid FROM pg_locks WHERE NOT granted")
            if pid is not None:
                return int(pid)
            await asyncio.sleep(0.005)

    async def count_waiting(self) -> int:
        return int(await self.direct.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))


@asynccontextmanager
async def _site(url: str) -> AsyncIterator[Site]:
    direct = await asyncpg.connect(url)
    site = Site(url, f"site_{secrets.token_hex(8)}", direct)
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


# --- round trips ---


async def test_a_commit_is_one_round_trip_however_many_cells_it_has_and_so_is_staging(site: Site) -> None:
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)

        async def round_trips(step: Callable[[], Awaitable[object]]) -> int:
            before = proxy.round_trips
            await step()
            return proxy.round_trips - before

        async def one_of_each(count: int, folder: str) -> dict[str, int]:
            cells = keys(count, folder)
            create = site.transaction({key: (0, {"n": 0}) for key in cells})
            change = site.transaction({key: (1, {"n": 1}) for key in cells})
            depend = site.transaction({key: (2, {"n": 2}) for key in cells[::2]}, dict.fromkeys(cells[1::2], 2))
            moved = site.transaction({key: (0, {"n": 2}) for key in cells})
            return {
                "create": await round_trips(lambda: store.commit(create)),
                "change": await round_trips(lambda: store.commit(change)),
                "depend": await round_trips(lambda: store.commit(depend)),
                "read": await round_trips(lambda: store.read(cells)),
                "conflict": await round_trips(lambda: store.commit(moved)),
                "replay": await round_trips(lambda: store.commit(change)),
            }

        async def staging(count: int) -> list[int]:
            transaction_id = await site.begin(store=store)
            steps = [
                await round_trips(lambda key=key: store.stage(transaction_id, key, {key: {"n": 1}}))  # type: ignore[misc]
                for key in keys(count, "staged")
            ]
            await store.abort(transaction_id)
            return steps

        async def in_an_overlay(count: int) -> list[int]:
            """Look, plan, stage: as an operation of the catalog does inside a transaction."""
            transaction_id = await site.begin(store=store)
            steps = []
            for key in keys(count, "overlay"):
                before = proxy.round_trips
                seen = await store.read_in(transaction_id, [key, A, B], note=False)
                await store.stage(transaction_id, key, {key: {"n": 1}}, seen=seen)
                await store.scan_in(transaction_id, "main/overlay")
                await store.contents(transaction_id)
                steps.append(proxy.round_trips - before)
            await store.abort(transaction_id)
            return steps

        await one_of_each(2, "warm-up")
        await staging(1)
        await in_an_overlay(1)
        assert await staging(50) == [1] * 50
        assert await in_an_overlay(20) == [4] * 20
        few, many = await one_of_each(2, "few"), await one_of_each(100, "many")
        assert few == many == {"create": 1, "change": 1, "depend": 1, "read": 1, "conflict": 1, "replay": 2}
        await store.close()


# --- lost connections ---


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
async def test_p9_a_lost_connection_at_commit_is_settled(site: Site, fault: Fault) -> None:
    await site.put({A: {"n": 0}})
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        await store.commit(site.transaction({C: (0, {"warm": 1})}))
        plan = site.transaction({A: (1, {"n": 1}), B: (0, {"n": 1})}, answer={"ok": True})
        proxy.lose(fault)
        result = await store.commit(plan)
        assert isinstance(result, Committed) and result.answer == {"ok": True}
        assert proxy.faults == 1
        await store.close()
    assert [(await site.cell(key)).revision for key in (A, B)] == [2, 1]


@pytest.mark.parametrize(
    ("fault", "state"), [(Fault.LOSE_REQUEST, None), (Fault.LOSE_ANSWER, State.COMMITTED)], ids=["lost", "applied"]
)
async def test_p9_what_cannot_be_settled_is_unknown_and_a_lookup_settles_it(
    site: Site, fault: Fault, state: State | None
) -> None:
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        await store.commit(site.transaction({C: (0, {"warm": 1})}))
        plan = site.transaction({A: (0, {"n": 1})})
        proxy.lose(fault, and_refuse=True)
        with pytest.raises(OutcomeUnknown, match="Look the transaction up"):
            await store.commit(plan)
        with pytest.raises(StoreUnavailable):
            await store.read([A])
        with pytest.raises(StoreUnavailable):
            await store.commit(site.transaction({B: (0, {"n": 1})}))
        found = await site.store.lookup(plan.id)
        assert (found.state if found else None) is state
        proxy.serve_again()
        assert isinstance(await store.commit(plan), Committed)
        await store.close()
    assert [(await site.cell(key)).revision for key in (A, B)] == [1, 0]


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
async def test_p3_every_step_of_an_open_transaction_survives_a_lost_connection(site: Site, fault: Fault) -> None:
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        transaction_id, unused = site.id(), site.id()
        steps: list[Callable[[], Awaitable[object]]] = [
            lambda: store.begin(transaction_id),
            lambda: store.read_in(transaction_id, [A, B]),
            lambda: store.read_in(transaction_id, [A, B], note=False),
            lambda: store.scan_in(transaction_id, "main"),
            lambda: store.stage(transaction_id, "1", {A: {"n": 1}}, seen={A: Cell(A), B: Cell(B)}),
            lambda: store.contents(transaction_id),
            lambda: store.renew(transaction_id, 1_000),
            lambda: store.seal(transaction_id, {"ok": 1}),
            lambda: store.fail(unused, "hash", {"no": 1}),
        ]
        for step in steps:
            proxy.lose(fault)
            await step()
        plan = await store.seal(transaction_id)
        assert ([write.key for write in plan.writes], [read.key for read in plan.reads]) == ([A], [B])
        proxy.lose(fault)
        await store.prepare(plan)
        proxy.lose(fault)
        assert isinstance(await store.commit(plan), Committed)
        assert proxy.faults == len(steps) + 2
        await store.close()
    assert (await site.cell(A)).revision == 1


async def test_p9_a_server_process_killed_at_commit_is_settled(site: Site) -> None:
    await site.put({A: {"n": 0}})
    plan = site.transaction({A: (1, {"n": 1}), B: (0, {"n": 1})})
    async with site.direct.transaction():
        await site.direct.execute(f"SELECT FROM {site.schema}.cells WHERE key = $1 FOR UPDATE", A)
        committing = asyncio.ensure_future(site.store.commit(plan))
        await site.direct.execute("SELECT pg_terminate_backend($1)", await site.waiting())
        await site.waiting()
    assert isinstance(await committing, Committed)
    assert [(await site.cell(key)).revision for key in (A, B)] == [2, 1]


async def test_the_store_works_again_after_all_its_connections_were_cut(site: Site) -> None:
    await asyncio.gather(*(site.store.read([A]) for _ in range(4)))
    await site.direct.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakepact'"
    )
    await site.put({A: {"n": 1}})
    assert await site.value(A) == {"n": 1}


async def test_a_closed_store_says_so(site: Site) -> None:
    store = await site.at(site.url)
    await store.close()
    with pytest.raises(StoreUnavailable, match="clos"):
        await store.read([A])
    with pytest.raises(StoreUnavailable, match="clos"):
        await store.commit(site.transaction({A: (0, {})}))


# --- waiting ---


@pytest.fixture
def short_locks(patient_locks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores that are opened from now on wait for a lock in vain. Nothing else that they do must be quick."""
    monkeypatch.setattr(postgres_session, "LONGEST_LOCK_WAIT_S", 0.1)


@pytest.mark.usefixtures("short_locks")
async def test_p9_a_lock_held_too_long_is_contended_and_nothing_is_applied(site: Site) -> None:
    await site.put({A: {"n": 0}})
    hasty = await site.open()
    plan = site.transaction({A: (1, {"n": 1}), B: (0, {"n": 1})})
    async with site.direct.transaction():
        await site.direct.execute(f"SELECT FROM {site.schema}.cells WHERE key = $1 FOR UPDATE", A)
        with pytest.raises((Contended, OutcomeUnknown)) as caught:
            await hasty.commit(plan)
    assert caught.type is Contended
    assert await site.store.lookup(plan.id) is None
    assert (await site.cell(B)).revision == 0
    assert isinstance(await site.store.commit(plan), Committed)


@pytest.mark.usefixtures("short_locks")
async def test_p9_waiting_in_vain_for_the_same_id_is_unknown(site: Site) -> None:
    hasty = await site.open()
    plan = site.transaction({A: (0, {"n": 1})})
    async with site.direct.transaction():
        await site.direct.execute(
            f"INSERT INTO {site.schema}.transactions (id, state, request_hash, created_ms) VALUES ($1, 'x', 'y', 1)",
            plan.id,
        )
        with pytest.raises(OutcomeUnknown, match="another attempt"):
            await hasty.commit(plan)
        await site.direct.execute(f"DELETE FROM {site.schema}.transactions WHERE id = $1", plan.id)


async def test_p6_a_deadlock_is_resolved_and_tried_again(site: Site) -> None:
    await site.put({A: {"n": 0}, B: {"n": 0}})
    lock = f"SELECT FROM {site.schema}.cells WHERE key = $1 FOR UPDATE"
    try:
        async with site.direct.transaction():
            await site.direct.execute(lock, B)
            committing = asyncio.ensure_future(site.store.commit(site.transaction({A: (1, {}), B: (1, {})})))
            await site.waiting()
            await site.direct.execute(lock, A)
    except asyncpg.DeadlockDetectedError:
        pass
    assert isinstance(await committing, Committed)


async def test_p4_write_skew_is_impossible_up_to_the_last_moment_of_a_commit(site: Site) -> None:
    """The first has compared what it read and is held up before it ends; the second must not slip in there."""
    await site.put({A: {"on": 1}, B: {"on": 1}})
    transaction_id = await site.begin()
    await site.store.read_in(transaction_id, [B])
    await site.store.stage(transaction_id, "1", {A: {"on": 0}})
    plan = await site.store.seal(transaction_id)
    async with site.direct.transaction():
        await site.direct.execute(f"SELECT FROM {site.schema}.staged WHERE transaction_id = $1 FOR UPDATE", plan.id)
        first = asyncio.ensure_future(site.store.commit(plan))
        await site.waiting()
        second = asyncio.ensure_future(site.store.commit(site.transaction({B: (1, {"on": 0})}, {A: 1})))
        while not second.done() and await site.count_waiting() < 2:
            await asyncio.sleep(0.005)
    assert [type(result) for result in await asyncio.gather(first, second)] == [Committed, Conflict]


async def test_looking_from_inside_writes_nothing(site: Site) -> None:
    await site.put({A: {"n": 0}})
    transaction_id = await site.begin()
    await site.store.stage(transaction_id, "1", {B: {"n": 1}})
    reader = await site.at(f"{site.url}{'&' if '?' in site.url else '?'}default_transaction_read_only=on")
    assert (await reader.read_in(transaction_id, [A, B], note=False))[B].value == {"n": 1}
    assert len((await reader.scan_in(transaction_id, "main")).cells) == 2
    assert len((await reader.contents(transaction_id)).writes) == 1
    with pytest.raises(StoreUnavailable, match="read-only"):
        await reader.read_in(transaction_id, [A])
    await reader.close()


async def test_p2_a_refusal_after_a_lost_answer_claims_nothing(site: Site) -> None:
    """The lost copy may still arrive, and find what it was planned on again."""
    transaction_id = await site.begin()
    seen = await site.store.read_in(transaction_id, [A], note=False)
    await site.store.stage(transaction_id, "theirs", {A: {"n": 1}})
    async with Proxy.before(site.url) as proxy:
        store = await site.at(proxy.url)
        await store.read([A])
        proxy.lose(Fault.LOSE_REQUEST)
        with pytest.raises(OutcomeUnknown):
            await store.stage(transaction_id, "mine", {A: {"n": 2}}, seen=seen)
        with pytest.raises(StagedMeanwhile):
            await store.stage(transaction_id, "mine", {A: {"n": 2}}, seen=seen)
        await store.close()


async def test_a_transaction_begins_only_after_commits_that_do_not_know_of_it(site: Site) -> None:
    """They keep no history for it, so they must lie in its past."""
    await site.put({A: {"n": 0}, B: {"n": 0}})
    async with site.direct.transaction():
        await site.direct.execute(f"SELECT FROM {site.schema}.cells WHERE key = $1 FOR UPDATE", B)
        committing = asyncio.ensure_future(site.store.commit(site.transaction({A: (1, {"n": 1}), B: (1, {"n": 1})})))
        await site.waiting()
        beginning = asyncio.ensure_future(site.begin())
        # A commit that comes later is not held up by the beginning.
        await site.put({C: {"n": 1}})
        assert not beginning.done()
    assert isinstance(await committing, Committed)
    transaction_id = await beginning
    await site.put({A: {"n": 2}, B: {"n": 2}})
    seen = await site.store.read_in(transaction_id, [A, B])
    assert {cell.value["n"] for cell in seen.values() if cell.value} == {1}


async def test_a_transaction_whose_beginning_was_cut_short_gets_its_instant_when_it_is_used(site: Site) -> None:
    await site.put({A: {"n": 0}})
    transaction_id = await site.begin()
    await site.direct.execute(f"UPDATE {site.schema}.transactions SET snapshot = NULL WHERE id = $1", transaction_id)
    await site.put({A: {"n": 1}})
    assert (await site.store.read_in(transaction_id, [A]))[A].value == {"n": 1}
    await site.put({A: {"n": 2}})
    assert (await site.store.read_in(transaction_id, [A]))[A].value == {"n": 1}


async def test_history_is_kept_only_while_somebody_may_look(site: Site) -> None:
    async def history() -> object:
        return await site.direct.fetchval(f"SELECT count(*) FROM {site.schema}.history")

    for number in range(3):
        await site.put({A: {"n": number}})
    assert await history() == 0
    transaction_id = await site.begin()
    for number in range(3):
        await site.put({A: {"n": number}})
    assert await history() == 3
    await site.store.recover()
    assert await history() == 3
    await site.store.abort(transaction_id)
    await site.store.recover()
    assert await history() == 0


# --- the schema ---


async def test_a_new_schema_can_be_opened_by_many_at_once(postgres: LazyPostgres) -> None:
    async with _site(postgres.url()) as site:
        await site.direct.execute(f"DROP SCHEMA {site.schema} CASCADE")
        stores = await asyncio.gather(*(site.at(site.url) for _ in range(8)))
        for store in stores:
            assert (await store.scan("")).cells == ()
            await store.close()


async def test_a_newer_format_is_refused_and_left_alone(site: Site) -> None:
    await site.direct.execute(f"UPDATE {site.schema}.meta SET format = $1", NEWEST_READABLE + 1)
    with pytest.raises(FormatTooNew, match="Upgrade"):
        await site.at(site.url)
    assert await site.direct.fetchval(f"SELECT format FROM {site.schema}.meta") == NEWEST_READABLE + 1


async def test_the_next_format_is_read_and_not_rewritten(site: Site) -> None:
    assert await site.direct.fetchval(f"SELECT format FROM {site.schema}.meta") == FORMAT
    await site.direct.execute(f"UPDATE {site.schema}.meta SET format = $1", NEWEST_READABLE)
    store = await site.at(site.url)
    assert (await store.scan("")).cells == ()
    await store.close()
    assert await site.direct.fetchval(f"SELECT format FROM {site.schema}.meta") == NEWEST_READABLE


async def test_a_dump_restored_into_another_cluster_goes_on(site: Site) -> None:
    """There the ids of database transactions begin anew, and those stored would lie in the future."""
    await site.put({A: {"n": 1}})
    lost = await site.begin()
    await site.put({A: {"n": 2}})
    await site.direct.execute(f"UPDATE {site.schema}.cells SET xid = '9000000000'")
    await site.direct.execute(f"UPDATE {site.schema}.meta SET cluster = 'another'")
    store = await site.open()
    with pytest.raises(TransactionClosed):
        await store.read_in(lost, [A])
    transaction_id = await site.begin(store=store)
    assert (await store.read_in(transaction_id, [A]))[A].value == {"n": 2}
    await site.put({A: {"n": 3}}, store)
    assert (await store.read_in(transaction_id, [A]))[A].value == {"n": 2}


async def test_an_ordinary_role_is_enough(site: Site) -> None:
    role = f"app_{secrets.token_hex(4)}"
    await site.direct.execute(f"CREATE ROLE {role} LOGIN; GRANT CREATE ON DATABASE postgres TO {role}")
    url = site.url.replace("postgres@", f"{role}@") + f"&schema={role}&connections=2"
    store = await PostgresCells.open(url, SETTINGS, site.clock, SystemRng())
    transaction_id = await site.begin(store=store)
    await site.put({A: {"n": 1}}, store)
    assert (await store.read_in(transaction_id, [A]))[A].revision == 0
    assert (await store.recover()).left == 0
    await store.close()
    await site.direct.execute(f"DROP SCHEMA {role} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}")


async def test_bad_settings_are_refused(site: Site) -> None:
    for query in ("schema=Robert'); --", "schema=", "connections=0", "connections=many"):
        with pytest.raises(InvalidSetting):
            await PostgresCells.open(f"{site.url}&{query}", SETTINGS, site.clock, SystemRng())
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        await PostgresCells.open("postgresql://postgres@/postgres?host=/nowhere", SETTINGS, site.clock, SystemRng())


async def test_keys_are_in_byte_order_whatever_the_database_is_set_to(site: Site) -> None:
    names = ["b", "B", "a", "A", "ä", "~", "_", "0", "日", "🦆", "z"]
    await site.put({key_of("main", name): {"n": 1} for name in names})
    assert [cell.key for cell in (await site.store.scan("main")).cells] == sorted(
        key_of("main", name) for name in names
    )


async def test_a_closed_transaction_is_no_error_of_the_database(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a statement is a line in the database's log. Asking for what is closed must not fill it."""
    errors: list[BaseException] = []
    fetch = asyncpg.Connection.fetch

    async def watched(connection: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return await fetch(connection, *arguments, **named)
        except BaseException as error:
            errors.append(error)
            raise

    monkeypatch.setattr(asyncpg.Connection, "fetch", watched)
    transaction_id = await site.begin()
    await site.store.abort(transaction_id)
    for step in (
        site.store.read_in(transaction_id, [A]),
        site.store.read_in(transaction_id, [A], note=False),
        site.store.scan_in(transaction_id, "main"),
        site.store.stage(transaction_id, "1", {B: {"n": 1}}),
    ):
        with pytest.raises(TransactionClosed):
            await step
    assert errors == []
