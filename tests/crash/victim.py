"""The process that is killed. `python -m tests.crash.victim URL OPTIONS ACT ID BASE TRAP AT`

It counts its storage operations and sends itself SIGKILL right before operation number AT, so everything up to
number AT - 1 has been done and nothing after it. With AT = 0 it lives, and prints how many operations there were.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from typing import Any

from lakepact.kernel.identity import TransactionId
from lakepact.stores import open_store
from tests.crash.delta import DELTA_ACTS
from tests.crash.scenario import ACTS, SETTINGS, Job


class Trap:
    """Counts operations while it is set; kills the process when the count is reached."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.count = 0
        self.is_set = False

    def operation(self) -> None:
        if not self.is_set:
            return
        self.count += 1
        if self.count == self._at:
            os.kill(os.getpid(), signal.SIGKILL)


_FILE_EVENTS = frozenset({"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate", "fcntl.flock"})


def trap_files(trap: Trap) -> None:
    """Every system call that opens, links, renames, removes, locks or syncs a file."""

    def audited(event: str, _arguments: tuple[Any, ...]) -> None:
        if event in _FILE_EVENTS:
            trap.operation()

    sys.addaudithook(audited)
    fsync = os.fsync

    def counted_fsync(descriptor: Any) -> None:
        trap.operation()
        fsync(descriptor)

    os.fsync = counted_fsync  # type: ignore[assignment]


def trap_sqlite(trap: Trap) -> None:
    """Every SQL statement, COMMIT included."""
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(lambda _statement: trap.operation())
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]


def trap_documents(trap: Trap) -> None:
    """Every request to an object store: the one before has been answered by the store, but not yet used."""
    from lakepact.stores.objects import ObjectDocuments

    for name in ("get", "create", "swap", "list", "delete"):
        setattr(ObjectDocuments, name, _counted(trap, getattr(ObjectDocuments, name)))


def _counted(trap: Trap, method: Any) -> Any:
    async def counted(self: Any, *arguments: Any) -> Any:
        answer = await method(self, *arguments)
        trap.operation()
        return answer

    return counted


def trap_nothing(_trap: Trap) -> None:
    """The parent kills: it sits between this process and its database."""


TRAPS = {"files": trap_files, "sqlite": trap_sqlite, "documents": trap_documents, "proxy": trap_nothing}


async def main(url: str, options: dict[str, str], act: str, job: Job, trap: Trap) -> None:
    store = await open_store(url, SETTINGS, options=options)
    # The parent may want to arm a proxy before it goes on. Python's own IO is set up before the trap is.
    print("ready", flush=True)
    sys.stdin.readline()
    trap.is_set = True
    await (ACTS | DELTA_ACTS)[act](store, job)
    # One more point: it has happened, and nobody has been told.
    trap.operation()
    await store.close()
    trap.is_set = False
    print(trap.count)


if __name__ == "__main__":
    _, url, options, act, transaction_id, base, trap_name, at = sys.argv
    the_trap = Trap(int(at))
    TRAPS[trap_name](the_trap)
    asyncio.run(main(url, json.loads(options), act, Job(TransactionId(transaction_id), int(base)), the_trap))
    # As the `lakepact` command ends: obstore's threads may abort an interpreter that is shutting down.
    sys.stdout.flush()
    os._exit(0)
