"""The server's process when it is killed at one chosen storage operation: `python -m tests.crash.server_victim`.

It imports everything once and then, for every line of JSON on its standard input, makes a child that opens the data,
carries out one request, or several in turn, and finishes what comes after the answer. The child counts its storage
operations, SQL statements and calls to the file system alike, and sends itself SIGKILL right before number `at`; with
`at` 0 it lives. One line of JSON on standard output tells how it ended, and what it had answered by then.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from lakepact.server.app import build
from lakepact.settings import Settings
from tests.crash.victim import Trap, trap_files, trap_sqlite
from tests.support.asgi_client import AsgiClient


async def _carry_out(job: dict[str, Any], trap: Trap, descriptor: int) -> None:
    service = await build(Settings.load(**job["settings"]))
    client = AsgiClient(service.asgi)
    # What is imported, opened and cached by the first request is not part of the commit.
    for path in job["before"]:
        assert (await client.send("GET", path)).status == 200
    trap.is_set = True
    for one in job.get("requests", [job]):
        answer = await client.send(one["method"], one["path"], json=one["body"], headers=one["headers"])
    # One more point: it has happened, and nobody has been told.
    trap.operation()
    # It has been answered, and that is told at once. What follows is its receipts.
    os.write(descriptor, json.dumps({"status": answer.status, "answered_at": trap.count}).encode())
    await service.close()
    trap.is_set = False


def _child(job: dict[str, Any], descriptor: int) -> None:
    trap = Trap(job["at"])
    trap_sqlite(trap)
    trap_files(trap)
    asyncio.run(_carry_out(job, trap, descriptor))


def _run(job: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _child(job, writing)
            code = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(pid, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or status == 0, f"the child ended with {status}"
    return {"killed": killed, "status": None, **json.loads(said or b"{}")}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
