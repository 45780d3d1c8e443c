"""One call of the port on one transaction in PostgreSQL: its row, its end, and how it meets others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg

from lakepact.errors import LakepactError, MissingRecord, TransactionClosed
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import Busy, State
from lakepact.stores import sql_decide as decide
from lakepact.stores.postgres_session import Database, damaged
from lakepact.stores.postgres_statements import Statements
from lakepact.stores.sql_codec import Stored
from lakepact.stores.sql_delta import rows_gone


class TransactionCall:
    def __init__(self, database: Database, statements: Statements, transaction_id: TransactionId) -> None:
        self._clock = database.clock
        self._settings = database.settings
        self._statements = statements
        self._id = transaction_id
        self._call = database.call(transaction_id)
        self._looks = 0

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    async def _load(self, transaction_id: TransactionId) -> Stored | None:
        rows = await self._call.rows(self._statements.load, transaction_id)
        return Stored.of(rows[0]) if rows else None

    async def _row(self) -> Stored:
        """The row of this transaction as it is now."""
        stored = await self._load(self._id)
        if stored is None:
            raise decide.not_found(self._id)
        return stored

    async def _look_again(self) -> Stored | None:
        """The row, after a function has met one it did not expect. Bounded: rows do not change for ever."""
        self._looks += 1
        if self._looks > 1 and not await self._call.wait():
            raise self._call.contended(f"transaction {self._id} is being worked on under the same id")
        return await self._load(self._id)

    async def _end(self, stored: Stored, to: State, *, over: bool | None, answer: str | None = None) -> bool:
        """End a transaction if it is still in the state seen. False if it is not: look again."""
        ended = await self._call.value(
            self._statements.finish, [stored.id], [stored.state.value], to.value, self._now_ms(), over, answer
        )
        return bool(ended)

    async def _expired(self, stored: Stored) -> TransactionClosed | None:
        """Abort a transaction whose time is over; what to raise then, or None if somebody renewed or ended it first."""
        return decide.expired(stored) if await self._end(stored, State.ABORTED, over=True) else None

    async def _undisturbed(self, send: Callable[[], Awaitable[list[str]]]) -> list[str] | Busy:
        """Send a change. A prepared transaction that is in the way makes it busy at once, unless its time is over."""
        while True:
            try:
                answer = await send()
            except asyncpg.PostgresError as error:
                if error.sqlstate == "LP005":
                    raise damaged(error) from None
                if error.sqlstate == "LP008":
                    raise self._call.nothing_applied(gone(self._id, error)) from None
                raise
            if answer[0] != "busy":
                return answer
            holder = TransactionId(answer[1])
            owner = await self._load(holder)
            if owner is None:
                raise _missing(holder)
            if decide.is_over(owner, self._now_ms()):
                await self._end(owner, State.ABORTED, over=True)
            else:
                self._call.check_nothing_lost()
                remaining_s = ((owner.expires_ms or 0) - self._now_ms()) / 1000
                return Busy(self._id, holder, max(0.0, min(self._settings.max_backoff_s, remaining_s)))


def gone(transaction_id: str, error: asyncpg.PostgresError) -> LakepactError:
    """The functions name what is gone in the detail: a version and a table."""
    version, _, table_id = str(error.detail).partition(" ")
    return rows_gone(transaction_id, table_id, version)


def _missing(holder: TransactionId) -> LakepactError:
    return MissingRecord(
        f"a cell is held by transaction {holder}, whose record is missing. Nothing was changed. "
        f"Restore the database from a backup"
    )
