"""Open transactions in PostgreSQL: begin, read, stage, seal, renew.

The row of the transaction is locked by every staging call and changed by the seal, so whichever comes first is
complete before the other begins. A staging call writes its own rows and that one, however much is staged already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import asyncpg

from lakepact.errors import LakepactError, SnapshotTooOld, TooManyCells, ValueTooLarge
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, CellPage, Isolation, State, Transaction, TransactionRecord, Value
from lakepact.kernel.seen import Seen, never_shown, staged_meanwhile
from lakepact.kernel.settings import KernelSettings
from lakepact.stores import sql_decide as decide
from lakepact.stores.postgres_call import TransactionCall
from lakepact.stores.postgres_session import LONGEST_LOCK_WAIT_S
from lakepact.stores.sql_codec import StagedCell, Stored, cell_of, key_range, staged_bytes
from lakepact.stores.sql_decide import Step


class Staging(TransactionCall):
    async def begin(self, request_hash: str, ttl_s: float, isolation: Isolation, properties: str) -> TransactionRecord:
        now_ms = self._now_ms()
        expires_ms = now_ms + int(ttl_s * 1000)
        await self._call.rows(
            self._statements.begin, self._id, request_hash, now_ms, expires_ms, isolation.value, properties
        )
        # Only now, when everyone can see that it is open, may it have its instant.
        stored = await self._row()
        decide.check_hash(stored, request_hash)
        if stored.state is State.OPEN:
            await self._anchor()
        return stored.public()

    async def _anchor(self) -> None:
        patience_ms = min(LONGEST_LOCK_WAIT_S * 1000, self._settings.deadline_s * 500)
        if not await self._call.value(self._statements.anchor, self._id, patience_ms):
            raise self._call.contended(f"transaction {self._id} could not begin: other commits did not end in time")

    async def read_in(self, keys: Sequence[Key]) -> dict[Key, Cell]:
        while True:
            try:
                rows = await self._call.rows(
                    self._statements.read_in, self._id, self._now_ms(), keys, self._settings.max_cells
                )
            except asyncpg.PostgresError as error:
                raise self._refusal(error) from None
            if _are_cells(rows):
                found = self._cells(rows)
                return {key: found[key] for key in keys}
            await self._reopen()

    async def look(self, keys: Sequence[Key]) -> dict[Key, Cell]:
        found = self._cells(await self._look_inside(self._statements.look, keys))
        return {key: found[key] for key in keys}

    async def scan(self, prefix: str, after: str | None, limit: int) -> CellPage:
        first, last = key_range(prefix, after)
        found = self._cells(await self._look_inside(self._statements.scan_in, first, last, limit))
        live = tuple(found[key] for key in sorted(found) if found[key].exists)
        return CellPage(live, max(found) if len(found) == limit else None)

    async def _look_inside(self, statement: str, *arguments: Any) -> Any:
        while True:
            try:
                rows = await self._call.rows(statement, self._id, self._now_ms(), *arguments)
            except asyncpg.PostgresError as error:
                raise self._refusal(error) from None
            if _are_cells(rows):
                return rows
            await self._reopen(decide.on_looking)

    def _cells(self, rows: Any) -> dict[Key, Cell]:
        if any(row[1] < 0 for row in rows):
            raise _too_old(self._id)
        return {row[0]: cell_of(*row) for row in rows}

    async def contents(self) -> Transaction:
        rows = await self._call.rows(self._statements.contents, self._id)
        if not rows:
            raise decide.not_found(self._id)
        staged = [StagedCell(*row[-4:]) for row in map(tuple, rows) if row[-4] is not None]
        return Stored.of(tuple(rows[0])[:-4]).contents(staged)

    async def stage(self, operation_id: str, writes: Mapping[Key, str | None], planned_on: Mapping[Key, Seen]) -> None:
        keys, seen_keys = sorted(writes), sorted(planned_on)
        seen = [planned_on[key] for key in seen_keys]
        while True:
            try:
                staged = await self._call.value(
                    self._statements.stage,
                    self._id,
                    self._now_ms(),
                    operation_id,
                    keys,
                    [writes[key] for key in keys],
                    staged_bytes(writes.values()),
                    self._settings.max_cells,
                    self._settings.max_transaction_bytes,
                    seen_keys,
                    [cell.revision for cell in seen],
                    [cell.staged for cell in seen],
                    [cell.text for cell in seen],
                )
            except asyncpg.PostgresError as error:
                match error.sqlstate:
                    case "LP006":
                        # A copy whose answer was lost may yet arrive, and find everything as it was shown again.
                        self._call.check_nothing_lost()
                        raise staged_meanwhile(self._id, error.detail) from None
                    case "LP007":
                        key = Key(error.detail)
                        raise never_shown(self._id, key, planned_on[key].revision) from None
                raise self._refusal(error) from None
            if staged:
                return
            await self._reopen()

    async def seal(self, answer: Value | None) -> Transaction:
        await self._call.rows(self._statements.seal, self._id, self._now_ms())
        stored = await self._row()
        while decide.on_seal(stored, self._now_ms()) is Step.EXPIRE or (
            stored.state is State.OPEN and not stored.sealed
        ):
            if (error := await self._expired(stored)) is not None:
                raise error
            await self._call.rows(self._statements.seal, self._id, self._now_ms())
            stored = await self._look_again() or stored
        staged = await self._call.rows(self._statements.staged, self._id)
        return stored.sealed_plan([StagedCell(*row) for row in staged], answer)

    async def renew(self, ttl_s: float) -> TransactionRecord:
        while True:
            now_ms = self._now_ms()
            rows = await self._call.rows(
                self._statements.renew,
                self._id,
                now_ms,
                now_ms + int(ttl_s * 1000),
                now_ms + int(min(ttl_s, self._settings.prepared_s) * 1000),
            )
            if rows:
                return Stored.of(rows[0]).public()
            stored = await self._look_again()
            if stored is None:
                raise decide.not_found(self._id)
            if decide.on_renew(stored, self._now_ms()) is Step.EXPIRE:
                error = await self._expired(stored)
                if error is not None:
                    raise error

    async def _reopen(self, judged: Callable[[Stored, int], Step] = decide.on_staging) -> None:
        """Return if a call that found the transaction not open should be tried again; else raise why it is closed."""
        stored = await self._look_again()
        if stored is None:
            raise decide.not_found(self._id)
        if judged(stored, self._now_ms()) is Step.EXPIRE:
            closed = await self._expired(stored)
            if closed is not None:
                raise closed
        else:
            # It is open after all: the process that began it ended before it gave it its instant.
            await self._anchor()

    def _refusal(self, error: asyncpg.PostgresError) -> Exception:
        """Return what the error of a function means."""
        match error.sqlstate:
            case "LP003":
                return _too_much(self._id, error.detail, self._settings)
            case "LP004":
                return _too_old(self._id)
            case _:
                return cast(Exception, error)


def _are_cells(rows: Any) -> bool:
    """Whether these are cells: a function says by a row without a key that the transaction is not open."""
    return not rows or rows[-1][0] is not None


def _too_much(transaction_id: TransactionId, detail: str, settings: KernelSettings) -> LakepactError:
    unit, _, amount = detail.partition(" ")
    if unit == "cells":
        return TooManyCells(
            f"transaction {transaction_id} would name {amount} cells; the limit is {settings.max_cells} (max_cells)"
        )
    return ValueTooLarge(
        f"transaction {transaction_id} would hold {amount} bytes; the limit is {settings.max_transaction_bytes} "
        f"(max_transaction_bytes). Split it, or keep large content in blobs"
    )


def _too_old(transaction_id: TransactionId) -> SnapshotTooOld:
    return SnapshotTooOld(
        f"the database no longer holds what transaction {transaction_id} would have read when it began. "
        f"Abort it and run it again"
    )
