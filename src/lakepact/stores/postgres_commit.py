"""Deciding transactions in PostgreSQL: commit, prepare, fail, abort.

The functions in the database do the work; this decides which of them to call, given what the row of the id says. A
new transaction is tried as such at once, and a sealed one as open: the row is looked at only if it is neither.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from lakepact.kernel.model import (
    CommitResult,
    Committed,
    Conflict,
    Failed,
    Prepared,
    PrepareResult,
    State,
    TransactionRecord,
    Value,
)
from lakepact.stores import sql_decide as decide
from lakepact.stores.postgres_call import TransactionCall
from lakepact.stores.sql_codec import EncodedTransaction, Stored, decode_moved
from lakepact.stores.sql_decide import Step


class Deciding(TransactionCall):
    async def commit(self, request: EncodedTransaction, settle_conflict: bool) -> CommitResult:
        result = await self._drive(request, partial(self._send_commit, request, settle_conflict), decide.on_commit)
        match result:
            case ["committed"]:
                return Committed(request.id, request.answer_value)
            case ["conflict", moved]:
                return Conflict(request.id, decode_moved(request.id, moved), final=settle_conflict)
            case list() | Prepared():
                raise AssertionError(result)
        return result

    async def prepare(self, request: EncodedTransaction, settle_conflict: bool) -> PrepareResult:
        result = await self._drive(request, partial(self._send_prepare, request, settle_conflict), decide.on_prepare)
        match result:
            case ["prepared", expires_ms]:
                return Prepared(request.id, int(expires_ms))
            case ["conflict", moved]:
                return Conflict(request.id, decode_moved(request.id, moved), final=settle_conflict)
            case list():
                raise AssertionError(result)
        return result

    async def _drive(
        self,
        request: EncodedTransaction,
        send: Callable[[State | None], Awaitable[list[str]]],
        judge: Callable[[Stored, str, bool, int], PrepareResult | Step],
    ) -> list[str] | PrepareResult:
        """Send the request from the state the row should be in; if it is in another, find out what that means."""
        state = State.OPEN if request.sealed else None
        while True:
            result = await self._undisturbed(partial(send, state))
            if result != ["met"]:
                return result
            stored = await self._look_again()
            if stored is None and request.sealed:
                raise decide.not_found(request.id)
            # No row: it was collected in between, and the id is new again.
            state = None
            if stored is not None:
                decision = judge(stored, request.request_hash, request.sealed, self._now_ms())
                if not isinstance(decision, Step):
                    return decision
                if decision is Step.EXPIRE and (error := await self._expired(stored)) is not None:
                    raise error
                if stored.state is State.PREPARED:
                    decide.check_prepared(stored, request)
                state = stored.state

    async def fail(self, request_hash: str, answer: str, value: Value) -> Committed | Failed:
        while not await self._call.value(self._statements.fail_new, self._id, request_hash, self._now_ms(), answer):
            stored = await self._look_again()
            if stored is None:
                continue
            decision = decide.on_fail(stored, request_hash, self._now_ms())
            if decision is not Step.GO_ON:
                return decision
            if await self._end(stored, State.FAILED, over=None, answer=answer):
                break
        return Failed(self._id, value)

    async def abort(self) -> TransactionRecord:
        stored = await self._row()
        while decide.on_abort(stored) is Step.GO_ON:
            await self._end(stored, State.ABORTED, over=None)
            stored = await self._look_again() or stored
        return stored.public()

    async def _send_commit(self, request: EncodedTransaction, settle_conflict: bool, state: State | None) -> list[str]:
        now_ms = self._now_ms()
        if state is State.PREPARED:
            answer: list[str] = await self._call.value(
                self._statements.commit_prepared,
                request.id,
                request.request_hash,
                now_ms,
                request.answer,
                request.beside,
            )
            return answer
        answer = await self._call.value(
            self._statements.commit,
            request.id,
            request.request_hash,
            now_ms,
            state.value if state is not None else None,
            request.plan,
            request.answer,
            *_sorted_cells(request),
            [read.key for read in request.reads],
            [read.revision for read in request.reads],
            self._retry_until_ms(settle_conflict, now_ms),
            request.beside,
        )
        return answer

    async def _send_prepare(self, request: EncodedTransaction, settle_conflict: bool, state: State | None) -> list[str]:
        now_ms = self._now_ms()
        written = zip(request.keys, request.revisions, request.values, strict=True)
        cells = sorted(
            [(key, revision, True, value) for key, revision, value in written]
            + [(read.key, read.revision, False, None) for read in request.reads]
        )
        answer: list[str] = await self._call.value(
            self._statements.prepare,
            request.id,
            request.request_hash,
            now_ms,
            # A prepared transaction is not prepared again, but answered by whoever looks at its row.
            state.value if state is not None else None,
            request.plan,
            [key for key, _, _, _ in cells],
            [revision for _, revision, _, _ in cells],
            [written for _, _, written, _ in cells],
            [value for _, _, _, value in cells],
            now_ms + int(min(self._settings.open_ttl_s, self._settings.prepared_s) * 1000),
            now_ms + int(self._settings.prepared_s * 1000),
            self._retry_until_ms(settle_conflict, now_ms),
        )
        return answer

    def _retry_until_ms(self, settle_conflict: bool, now_ms: int) -> int | None:
        return None if settle_conflict else now_ms + int(self._settings.retryable_s * 1000)


def _sorted_cells(request: EncodedTransaction) -> tuple[list[Any], ...]:
    """New keys and values, then other keys, revisions and values.

    Sorted by code point, which is the order of the bytes, which is the order of COLLATE "C".
    """
    new_keys: list[str] = []
    new_values: list[str | None] = []
    keys: list[str] = []
    revisions: list[int] = []
    values: list[str | None] = []
    for key, revision, value in sorted(zip(request.keys, request.revisions, request.values, strict=True)):
        if revision == 0:
            new_keys.append(key)
            new_values.append(value)
        else:
            keys.append(key)
            revisions.append(revision)
            values.append(value)
    return new_keys, new_values, keys, revisions, values
