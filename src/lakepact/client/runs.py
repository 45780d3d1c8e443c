"""Run a function in a transaction, and repeat it after conflicts and outages. `Lake.run` and `SparkLake.run` use it.

The function is repeated only if nothing of its transaction was applied. A commit without an answer is sent again first
(`outages.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from lakepact.client.errors import Conflict, listed
from lakepact.client.machine import Retry
from lakepact.client.outages import UNKNOWN, Interrupted, Outages, raise_unknown_elsewhere
from lakepact.client.transactions import COMMITTED

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 5.0


class Block(Interrupted, Protocol):
    """A transaction that is committed at the end of its `with` block."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object: ...


B = TypeVar("B", bound=Block)
T = TypeVar("T")


def run_in_transaction(
    begin: Callable[[], B],
    work: Callable[[B], T],
    attempts: int,
    outages: Outages,
    *,
    is_outage: Callable[[BaseException, B], bool],
    conflict_in: Callable[[BaseException], Conflict | None],
) -> T:
    """Return what `work` returned in the attempt that was committed.

    `is_outage` and `conflict_in` say what an error of `work` means. Raises the `Conflict` after the last attempt.
    """
    if attempts < 1:
        raise ValueError(f"attempts is 1 or more, not {attempts}")
    retry = Retry(attempts, first_pause_s=_FIRST_PAUSE_S, longest_pause_s=_LONGEST_PAUSE_S)
    attempt = 0
    while True:
        attempt += 1
        results: list[T] = []
        transaction = begin()
        try:
            with transaction:
                results = [work(transaction)]
        except Exception as error:
            raise_unknown_elsewhere(error, transaction.id)
            if is_outage(error, transaction) and transaction.outcome != COMMITTED:
                if outages.committed(transaction, error):
                    if not results:
                        # `work` has committed by itself, and has not returned.
                        error.add_note(f"transaction {transaction.id} was committed before this error")
                        raise
                    return results[0]
                attempt -= 1
                continue
            conflict = conflict_in(error)
            if conflict is None or transaction.outcome in (COMMITTED, UNKNOWN):
                raise
            if attempt >= attempts:
                raise _given_up(conflict, attempts) from error
            outages.machine.pause(retry.pause_s(attempt, outages.machine.chance()))
        else:
            return results[0]


def _given_up(conflict: Conflict, attempts: int) -> Conflict:
    tables = f" of {listed(conflict.tables)}" if conflict.tables else ""
    return Conflict(
        f"gave up after {attempts} attempts{tables}, others were faster each time: {conflict}",
        status=conflict.status,
        server_type=conflict.server_type,
        details=conflict.details,
    )
