"""Calls to PostgreSQL: connections, limits, what an error means, and the settling of lost answers.

Every statement of the store is a transaction of its own and idempotent by a transaction's id. So an answer that was
lost with its connection is settled by sending the same statement again on a new one: if the first was applied, the
second meets its row; if it is still running, the second waits for it at that row; if it never arrived, the second does
it. After a lost answer nothing may be reported as "nothing was applied" any more unless a stored record says so, since
the first copy might yet arrive: then only `OutcomeUnknown` is honest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any, Final, TypeVar

import asyncpg

from lakepact.errors import Contended, Damaged, LakepactError, StoreUnavailable
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.ports import Clock, Rng
from lakepact.kernel.settings import KernelSettings
from lakepact.stores import pools
from lakepact.stores.sql_decide import unknown
from lakepact.stores.sql_retry import Patience

T = TypeVar("T")

LONGEST_LOCK_WAIT_S: Final = 5.0
"""How long a statement waits for one lock. Holders are single statements of other calls: they are soon done."""


# What the driver raises for trouble with the server or the way to it. It calls a connection that was cut while idle an
# internal error of its own.
_TROUBLE: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


class Meaning(Enum):
    """What an error of the server means for the statement that met it."""

    OURS = auto()
    """One of the store's functions refused, and says why."""

    AGAIN = auto()
    """The server chose this transaction as the one to give way; nothing was applied."""

    CONTENDED = auto()
    """Somebody held a lock for too long, or the statement took too long; nothing was applied."""

    LOST = auto()
    """The connection ended: whether the statement was applied is unknown."""

    UNAVAILABLE = auto()
    """The server cannot do it now; nothing was applied."""


def meaning_of(error: BaseException) -> Meaning:
    if not isinstance(error, asyncpg.PostgresError):
        return Meaning.LOST
    code = error.sqlstate or ""
    if code.startswith("LP"):
        return Meaning.OURS
    if code in ("40001", "40P01"):
        return Meaning.AGAIN
    if code in ("55P03", "57014"):
        return Meaning.CONTENDED
    # 25P04 and 57P05 end the session by a time limit, 57P01 to 57P03 by an administrator, 08 by the network.
    if code.startswith(("08", "57P")) or code == "25P04":
        return Meaning.LOST
    return Meaning.UNAVAILABLE


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    def get_reset_query(self) -> str:
        # The pool would send this after every use: a whole round trip to undo what no statement of ours does.
        return ""


class Database:
    """A pool of connections with the store's limits."""

    def __init__(self, pool: Any, settings: KernelSettings, clock: Clock, rng: Rng) -> None:
        self._pool = pool
        pools.register("postgres", self, lambda database: database.usage())
        self.settings = settings
        self.clock = clock
        self.rng = rng
        self.silence_s = settings.deadline_s

    @classmethod
    async def connect(cls, dsn: str, settings: KernelSettings, clock: Clock, rng: Rng, *, connections: int) -> Database:
        try:
            pool = await asyncpg.create_pool(
                dsn,
                min_size=1,
                max_size=connections,
                connection_class=_Connection,
                timeout=settings.deadline_s,
                server_settings=_server_settings(settings),
                init=_limit_transactions(settings),
            )
        except (*_TROUBLE, ValueError) as error:
            raise StoreUnavailable(f"PostgreSQL cannot be reached: {error}. Check the URL and the server") from None
        return cls(pool, settings, clock, rng)

    def usage(self) -> pools.PoolUsage:
        size, idle = self._pool.get_size(), self._pool.get_idle_size()
        return pools.PoolUsage(size=size, busy=size - idle)

    def call(self, transaction_id: TransactionId | None = None) -> Call:
        return Call(self, transaction_id)

    def acquire(self, timeout_s: float) -> Any:
        return self._pool.acquire(timeout=timeout_s)

    async def release(self, connection: Any) -> None:
        await self._pool.release(connection)

    async def with_connection(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Several statements on one connection: for setting up, where nothing needs to be settled."""
        try:
            async with self.acquire(self.settings.deadline_s) as connection:
                return await work(connection)
        except _TROUBLE as error:
            raise _unavailable(error) from None

    async def close(self) -> None:
        """Let calls that are under way end, but not for longer than a call may take."""
        try:
            await asyncio.wait_for(self._pool.close(), self.settings.deadline_s)
        except TimeoutError:
            self._pool.terminate()


class Call:
    """One call of the port: its deadline, its attempts, and whether an answer has been lost on the way."""

    def __init__(self, database: Database, transaction_id: TransactionId | None) -> None:
        self._database = database
        self._transaction_id = transaction_id
        self._patience = Patience(database.settings, database.clock, database.rng)
        self._lost: object = None
        self._losses = 0

    async def wait(self) -> bool:
        return await self._patience.wait()

    def nothing_applied(self, error: LakepactError) -> LakepactError:
        """The error, if it may still claim that nothing was applied."""
        if self._lost is not None and self._transaction_id is not None:
            return unknown(self._transaction_id, self._lost)
        return error

    def contended(self, message: str) -> LakepactError:
        return self.nothing_applied(Contended(f"{message}. Nothing was applied; try again"))

    def check_nothing_lost(self) -> None:
        """Raise if an answer was lost: the caller is about to report a refusal that no record holds."""
        if self._lost is not None and self._transaction_id is not None:
            raise unknown(self._transaction_id, self._lost)

    async def value(self, query: str, *arguments: Any) -> Any:
        rows = await self.rows(query, *arguments)
        return rows[0][0] if rows else None

    async def rows(self, query: str, *arguments: Any) -> Any:
        """Run one statement to its end, whatever it takes within the bounds of the call."""
        # The server's own limit ends a statement first, with an answer that is certain; ours is for silence.
        silence_s = self._database.silence_s
        return await self.work(lambda connection: connection.fetch(query, *arguments, timeout=silence_s))

    async def work(self, run: Callable[[Any], Awaitable[T]]) -> T:
        """Run something on a connection, and all of it again if it did not come to its end: it must be repeatable."""
        while True:
            if self._patience.remaining_s() <= 0:
                raise self.nothing_applied(_contended(TimeoutError("the call has used up its time")))
            try:
                connection = await self._database.acquire(self._patience.remaining_s())
            except _TROUBLE as error:
                if _closed(error) or not await self._resend(error):
                    raise self.nothing_applied(_unavailable(error)) from None
                continue
            try:
                return await run(connection)
            except asyncpg.DataError:
                raise
            except _TROUBLE as error:
                trouble = error
                if meaning_of(error) is Meaning.LOST:
                    # Nobody else should get it, even if the driver has not noticed that it is dead. (If it has, it
                    # refuses to end it once more.)
                    with suppress(asyncpg.InterfaceError):
                        connection.terminate()
            finally:
                await self._database.release(connection)
            await self._judge(trouble)

    async def _judge(self, error: Exception) -> None:
        """Return if the statement should be sent again; else raise what the caller is told."""
        match meaning_of(error):
            case Meaning.OURS:
                raise error
            case Meaning.AGAIN:
                if not await self.wait():
                    raise self.nothing_applied(_contended(error)) from None
            case Meaning.CONTENDED:
                if self._transaction_id is not None and _at_its_own_row(error):
                    # It waited for another attempt under the same id, and that one may yet succeed.
                    raise unknown(self._transaction_id, "another attempt under the same id has not ended") from None
                raise self.nothing_applied(_contended(error)) from None
            case Meaning.UNAVAILABLE:
                raise self.nothing_applied(_unavailable(error)) from None
            case Meaning.LOST:
                self._lost = str(error) or type(error).__name__
                if not await self._resend(error):
                    raise self.nothing_applied(_unavailable(error)) from None

    async def _resend(self, error: Exception) -> bool:
        self._losses += 1
        return self._losses <= self._database.settings.resends and await self.wait()


def damaged(error: asyncpg.PostgresError) -> Damaged:
    return Damaged(f"the database contradicts itself: {error}. Nothing was changed; a person must look")


def _contended(error: Exception) -> Contended:
    return Contended(f"another transaction is in the way ({error}). Nothing was applied; try again")


def _unavailable(error: Exception) -> StoreUnavailable:
    return StoreUnavailable(f"PostgreSQL did not serve the request ({str(error) or type(error).__name__}); try again")


def _at_its_own_row(error: Exception) -> bool:
    """Whether the statement was stopped while it wrote the record. The context names it, whatever the language."""
    context = str(getattr(error, "context", None) or "")
    return ".transactions" in context


def _closed(error: Exception) -> bool:
    return isinstance(error, asyncpg.InterfaceError) and "pool is clos" in str(error)


def _server_settings(settings: KernelSettings) -> dict[str, str]:
    return {
        "application_name": "lakepact",
        "lock_timeout": _milliseconds(min(LONGEST_LOCK_WAIT_S, settings.deadline_s / 2)),
        "statement_timeout": _milliseconds(settings.deadline_s * 0.75),
        "idle_in_transaction_session_timeout": _milliseconds(settings.deadline_s),
        # The functions rely on it: every statement must see what the locks before it waited for.
        "default_transaction_isolation": "read committed",
        # Every access is to a few rows by key. A plan made while a table was small must not become a scan of a large
        # one, and planning anew for every array of keys would cost more than the work.
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
    }


def _limit_transactions(settings: KernelSettings) -> Any:
    async def limit(connection: Any) -> None:
        # Acknowledged means durable, whatever the server's default; stronger settings than "on" are left alone.
        await connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        if connection.get_server_version() >= (17,):
            await connection.execute(f"SET transaction_timeout = {_milliseconds(settings.deadline_s * 0.9)}")

    return limit


def _milliseconds(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))
