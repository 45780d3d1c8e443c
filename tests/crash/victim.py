"""The process that is killed: `python -m tests.crash.victim`.

It imports everything once and then, for every line of JSON on its standard input, makes a child, which says `ready` and
its process id, waits for a line, and goes on. The child counts its storage operations and sends itself SIGKILL right
before number `at`, so everything up to number `at` - 1 has been done and nothing after it. With `at` 0 it lives, and
prints how many operations there were. The last line of each says `killed` or `ended`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
import traceback
from typing import Any

# Stores are imported when they are opened; here once for all children.
import lakepact.stores.files
import lakepact.stores.objects
import lakepact.stores.postgres
import lakepact.stores.sqlite  # noqa: F401
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


async def _carry_out(url: str, options: dict[str, str], act: str, job: Job, trap: Trap) -> None:
    store = await open_store(url, SETTINGS, options=options)
    # The parent may want to arm a proxy before it goes on.
    _say(f"ready {os.getpid()}")
    _line()
    trap.is_set = True
    await (ACTS | DELTA_ACTS)[act](store, job)
    # One more point: it has happened, and nobody has been told.
    trap.operation()
    await store.close()
    trap.is_set = False
    _say(f"operations {trap.count}")


def _child(order: dict[str, Any]) -> None:
    trap = Trap(order["at"])
    TRAPS[order["trap"]](trap)
    job = Job(TransactionId(order["id"]), order["base"])
    asyncio.run(_carry_out(order["url"], order["options"], order["act"], job, trap))


def _line() -> str:
    """The next line of standard input. Unbuffered, since parent and children take turns at it."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()


def _say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def main() -> None:
    while line := _line():
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _child(json.loads(line))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                # As the `lakepact` command ends: obstore's threads may abort an interpreter that is shutting down.
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        _say("killed" if killed else f"ended {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
