"""What a SQL store does on meeting a transaction's row: pure functions of the row, the request and the time.

In a database the row is locked while it is judged and changed, so there are no leases and no epochs here: a
transaction is `open`, `prepared` or `retryable`, or it has ended. One function a call of the port. Each returns the
stored answer, or a `Step` that says what to do now, or raises what the caller did wrong.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Literal

from lakepact.errors import Contended, KeyReused, OutcomeUnknown, TransactionClosed, TransactionNotFound, WrongState
from lakepact.kernel.decide import check_prepared as check_prepared_plan
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import Committed, Conflict, Failed, Prepared, State
from lakepact.stores.sql_codec import EncodedTransaction, Stored, decode_json, decode_moved, decode_plan

UNDECIDED = (State.OPEN, State.PREPARED, State.RETRYABLE)


class Step(Enum):
    GO_ON = auto()
    """Nothing stands against it: take the step from the state the row is in."""

    EXPIRE = auto()
    """Its time is over: abort it, then raise `expired`."""


def is_over(stored: Stored, now_ms: int) -> bool:
    """Whether an undecided transaction has outlived its time. Whoever sees this may end it; the row decides."""
    ends = [stored.expires_ms]
    if stored.state is State.RETRYABLE:
        ends.append(stored.retry_until_ms)
    return not stored.state.final and any(end_ms is not None and now_ms >= end_ms for end_ms in ends)


def on_commit(stored: Stored, request_hash: str, sealed: bool, now_ms: int) -> Committed | Conflict | Failed | Step:
    check_hash(stored, request_hash)
    if stored.state.final:
        return replay(stored)
    if is_over(stored, now_ms):
        return Step.EXPIRE
    if stored.state is State.OPEN and not (sealed and stored.sealed):
        raise WrongState(f"transaction {stored.id} is open; call seal() first and commit the plan it returns")
    return Step.GO_ON


def on_prepare(
    stored: Stored, request_hash: str, sealed: bool, now_ms: int
) -> Prepared | Committed | Conflict | Failed | Step:
    decision = on_commit(stored, request_hash, sealed, now_ms)
    if decision is Step.GO_ON and stored.state is State.PREPARED:
        assert stored.expires_ms is not None
        return Prepared(stored.id, stored.expires_ms)
    return decision


def check_prepared(stored: Stored, request: EncodedTransaction) -> None:
    """A prepared transaction is committed as it was prepared. What is prepared stays so until it ends."""
    assert stored.plan is not None
    if request.plan != stored.plan:
        check_prepared_plan(stored.id, decode_plan(request.id, request.plan), decode_plan(stored.id, stored.plan))


def on_fail(stored: Stored, request_hash: str, now_ms: int) -> Committed | Failed | Literal[Step.GO_ON]:
    check_hash(stored, request_hash)
    if stored.state.final:
        answer = replay(stored)
        if isinstance(answer, Conflict):
            raise WrongState(f"transaction {stored.id} has failed already, with a conflict; its answer stays that")
        return answer
    if stored.state is State.PREPARED and not is_over(stored, now_ms):
        raise Contended(f"transaction {stored.id} is prepared and holds its cells; commit it or abort it")
    # One that is over has no effect and no answer yet, so the refusal may as well be its answer.
    return Step.GO_ON


def on_staging(stored: Stored, now_ms: int) -> Step:
    """For `stage`, and for reads that are noted."""
    if stored.state.final:
        raise closed(stored)
    if is_over(stored, now_ms):
        return Step.EXPIRE
    if stored.state is not State.OPEN:
        raise WrongState(f"transaction {stored.id} is {stored.state.value}, no longer open; commit it or abort it")
    if stored.sealed:
        raise WrongState(f"transaction {stored.id} is sealed: its plan is made and takes no more reads or writes")
    return Step.GO_ON


def on_looking(stored: Stored, now_ms: int) -> Step:
    """For reads that leave no trace: these are allowed as long as the transaction has an instant and a plan."""
    if stored.state.final:
        raise closed(stored)
    if is_over(stored, now_ms):
        return Step.EXPIRE
    # One that is prepared was open before if it has been sealed; else it has no instant of its own.
    if stored.state is State.OPEN or (stored.state is State.PREPARED and stored.sealed):
        return Step.GO_ON
    raise WrongState(f"transaction {stored.id} is {stored.state.value}: there is nothing to see from inside it")


def on_seal(stored: Stored, now_ms: int) -> Step:
    """A transaction that is committed or failed may be sealed again: its plan is for hearing the answer again."""
    if stored.state is State.ABORTED:
        raise closed(stored)
    if is_over(stored, now_ms):
        return Step.EXPIRE
    return Step.GO_ON


def on_renew(stored: Stored, now_ms: int) -> Step:
    if stored.state.final:
        raise closed(stored)
    if is_over(stored, now_ms):
        return Step.EXPIRE
    if stored.state is State.RETRYABLE:
        raise WrongState(
            f"transaction {stored.id} is retryable: it holds nothing to renew; commit it again or abort it"
        )
    return Step.GO_ON


def on_abort(stored: Stored) -> Step | None:
    """None: it is aborted already."""
    if stored.state in (State.COMMITTED, State.FAILED):
        raise closed(stored)
    return None if stored.state is State.ABORTED else Step.GO_ON


def replay(stored: Stored) -> Committed | Conflict | Failed:
    """The stored answer of a transaction that has ended."""
    match stored.state:
        case State.COMMITTED:
            return Committed(stored.id, decode_json(stored.id, stored.answer) or {}, replayed=True)
        case State.FAILED if stored.moved is not None:
            return Conflict(stored.id, decode_moved(stored.id, stored.moved), replayed=True)
        case State.FAILED:
            return Failed(stored.id, decode_json(stored.id, stored.answer) or {}, replayed=True)
        case _:
            raise closed(stored)


def check_hash(stored: Stored, request_hash: str) -> None:
    if stored.request_hash != request_hash:
        raise KeyReused(
            f"transaction id {stored.id} was used before for a different request. Nothing was done. Use a new UUIDv7 "
            f"for a new request; repeat a request byte for byte to get its answer again"
        )


# --- what is said ---


def closed(stored: Stored) -> TransactionClosed:
    if stored.state is State.COMMITTED:
        return TransactionClosed(
            f"transaction {stored.id} is committed already; begin a new transaction for further changes"
        )
    return TransactionClosed(
        f"transaction {stored.id} was {stored.state.value}; nothing of it was applied. "
        f"Begin again with a new transaction id"
    )


def expired(stored: Stored) -> TransactionClosed:
    return TransactionClosed(
        f"transaction {stored.id} outlived its time and was aborted; nothing of it was applied. Begin again with a new "
        f"transaction id, and renew a transaction that needs longer"
    )


def not_found(transaction_id: TransactionId) -> TransactionNotFound:
    return TransactionNotFound(
        f"there is no transaction {transaction_id}; begin it first. Records are kept for the key horizon only"
    )


def unknown(transaction_id: TransactionId, reason: object) -> OutcomeUnknown:
    return OutcomeUnknown(transaction_id, str(reason))
