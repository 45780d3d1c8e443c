"""The one thread of a process that writes to the SQLite file, and its group commit.

SQLite has one writer at a time, and a durable COMMIT waits for the disk. So every change is a job for one thread; all
jobs that wait when the thread is free go into one database transaction, each under its own SAVEPOINT, and share one
COMMIT. A job that fails takes nothing with it but itself. A caller is answered only after the COMMIT. Jobs run in the
order in which they were submitted, and several processes take turns (`sqlite_turn`).

What can go wrong, and what the callers are told:

- the file is busy with another process beyond the timeout: `Contended`, nothing was applied;
- the disk fails before COMMIT: everything is rolled back and the jobs run again one by one, so that only the job
  that needs more room than there is gets `StoreUnavailable`;
- COMMIT itself fails: what was written may be in the log or not. The jobs run again one by one (each is idempotent
  by its id), and a run that ends well settles it. A job for which none does gets `OutcomeUnknown`.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from lakepact.errors import Contended, LakepactError, StoreUnavailable
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.ports import Clock
from lakepact.kernel.settings import KernelSettings
from lakepact.stores import pools
from lakepact.stores.sql_decide import unknown
from lakepact.stores.sqlite_schema import explained
from lakepact.stores.sqlite_turn import Turns

T = TypeVar("T")

MAX_GROUP: Final = 256
"""Jobs in one database transaction. More would only make the first of them wait."""

MAX_WAITING: Final = 10_000
"""Jobs in the queue. Beyond this the disk is hopelessly behind, and callers are told so at once."""


class Work:
    """One database transaction, as its jobs see it."""

    __slots__ = ("connection", "execute", "executemany", "instant", "newest_open")

    def __init__(self, connection: sqlite3.Connection, instant: int, newest_open: int | None) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.instant = instant
        """The counter's value: every cell written now carries it."""

        self.newest_open = newest_open
        """The largest number an open transaction has, or one prepared since; None if there is none. See
        `sqlite_schema`."""

    def restart(self) -> None:
        """Undo what this job has done so far."""
        self.execute("ROLLBACK TO job")


class Refused(Exception):
    """Ends a job with an error for the caller, but keeps what the job has written: it ended an expired transaction."""

    def __init__(self, error: LakepactError) -> None:
        super().__init__(str(error))
        self.error = error


class _Job:
    __slots__ = ("deadline_s", "future", "outcome", "run", "transaction_id")

    def __init__(
        self,
        run: Callable[[Work], Any],
        future: asyncio.Future[Any],
        transaction_id: TransactionId | None,
        deadline_s: float,
    ) -> None:
        self.run = run
        self.future = future
        self.transaction_id = transaction_id
        self.deadline_s = deadline_s
        self.outcome: Any = None


class Writer:
    def __init__(
        self, connect: Callable[[], sqlite3.Connection], turns: Turns, clock: Clock, settings: KernelSettings
    ) -> None:
        self._connect = connect
        self._turns = turns
        self._clock = clock
        self._settings = settings
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._working = False
        self._connection = connect()
        self._thread = threading.Thread(target=self._loop, name="lakepact-sqlite-writer", daemon=True)
        self._thread.start()
        pools.register("sqlite_writer", self, lambda writer: writer.usage())

    def usage(self) -> pools.PoolUsage:
        """One connection, busy while it works on a job."""
        return pools.PoolUsage(size=1, busy=int(self._working), waiting=self._jobs.qsize())

    def submit(self, run: Callable[[Work], T], transaction_id: TransactionId | None = None) -> asyncio.Future[T]:
        """Run the job in the next database transaction; the future is done once that is durable."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._jobs.qsize() >= MAX_WAITING:
            raise Contended(f"{MAX_WAITING} changes are waiting for the disk already. Try again later")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        deadline_s = self._clock.monotonic_s() + self._settings.deadline_s
        self._jobs.put(_Job(run, future, transaction_id, deadline_s))
        return future

    async def close(self) -> None:
        """Finish what is waiting, then end the thread."""
        if self._closed:
            return
        self._closed = True
        self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    # --- on the thread ---

    def _loop(self) -> None:
        closing = False
        while not closing:
            group: list[_Job] = []
            job = self._jobs.get()
            while job is not None:
                group.append(job)
                if len(group) == MAX_GROUP or self._jobs.empty():
                    break
                job = self._jobs.get()
            closing = job is None
            if group:
                self._working = True
                with self._turns.taken(self._settings.deadline_s):
                    self._run(group)
                _deliver(group)
                self._working = False
            # A waiting thread must not keep the last group's values alive.
            group = []
            job = None
        self._connection.close()
        self._turns.close()

    def _run(self, group: list[_Job]) -> None:
        try:
            broken, doubt = self._attempt(group, None)
            if broken:
                # Somebody in the group broke the transaction of all. Alone, everybody answers for himself.
                for job in group:
                    self._settle(job, doubt)
        except Exception as error:
            # Nobody waits for ever, whatever is wrong with this code.
            for job in group:
                job.outcome = error

    def _settle(self, job: _Job, doubt: object) -> None:
        for _ in range(self._settings.resends + 1):
            broken, doubt = self._attempt([job], doubt)
            if not broken:
                return
        self._answer([job], None, doubt)

    def _attempt(self, group: list[_Job], doubt: object) -> tuple[bool, object]:
        """Run the jobs in one database transaction, and give each its outcome unless the transaction breaks.

        `doubt` is the error of a COMMIT of the same jobs that failed before. Returns whether it broke, and the doubt.
        """
        try:
            work = self._begin()
        except sqlite3.Error as error:
            self._rollback()
            self._answer(group, explained(error, "nothing could be written"), doubt)
            return False, doubt
        try:
            for job in group:
                self._run_job(work, job)
        except sqlite3.Error as error:
            self._rollback()
            if len(group) > 1:
                return True, doubt
            self._answer(group, explained(error, "the change could not be written"), doubt)
            return False, doubt
        try:
            work.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            return True, error
        return False, None

    def _begin(self) -> Work:
        if not self._usable():
            self._connection = self._connect()
        self._connection.execute("BEGIN IMMEDIATE")
        instant, newest_open = self._connection.execute(
            "SELECT value, (SELECT max(began) FROM ("
            "SELECT max(began) AS began FROM transactions WHERE state = 'open' AND decided_ms IS NULL UNION ALL "
            "SELECT max(began) FROM transactions WHERE state = 'prepared' AND decided_ms IS NULL)) FROM instant"
        ).fetchone()
        return Work(self._connection, instant, newest_open)

    def _run_job(self, work: Work, job: _Job) -> None:
        if self._clock.monotonic_s() > job.deadline_s:
            job.outcome = Contended(
                f"the change waited longer than {self._settings.deadline_s} s (deadline_s) for the disk"
            )
            return
        work.execute("SAVEPOINT job")
        try:
            job.outcome = job.run(work)
        except Refused as refused:
            job.outcome = refused.error
        except sqlite3.Error:
            raise
        except Exception as error:
            work.restart()
            job.outcome = error
        work.execute("RELEASE job")

    def _answer(self, group: list[_Job], outcome: LakepactError | None, doubt: object) -> None:
        """Before the first COMMIT nothing can have been applied. After it only `OutcomeUnknown` is honest."""
        for job in group:
            if doubt is not None and job.transaction_id is not None:
                job.outcome = unknown(job.transaction_id, doubt)
            else:
                job.outcome = outcome or StoreUnavailable(f"the change could not be written: {doubt}")

    def _rollback(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            # The connection is beyond use; the next transaction gets a new one.
            self._connection.close()

    def _usable(self) -> bool:
        try:
            return not self._connection.in_transaction
        except sqlite3.ProgrammingError:
            return False


def _deliver(group: list[_Job]) -> None:
    """Wake each event loop once for all of its jobs: a wake-up costs more than a small commit."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        loops.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in loops.items():
        # A loop that is closed has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, jobs)


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if isinstance(job.outcome, BaseException):
            job.future.set_exception(job.outcome)
        else:
            job.future.set_result(job.outcome)
