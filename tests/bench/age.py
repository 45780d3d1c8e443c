"""What a commit costs in a server that has made many: CPU and memory must not grow with the age of the process."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import structlog

from lakepact.kernel.identity import uuid7
from lakepact.server.app import build
from lakepact.settings import Settings
from tests.bench.report import table
from tests.support.asgi_client import AsgiClient

COMMITS = int(os.environ.get("LAKEPACT_BENCH_COMMITS") or 20_000)
EVERY = max(1, COMMITS // 10)
TABLES = 50
AT_ONCE = 8
_SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}


async def run() -> None:
    command = [sys.executable, "-m", "tests.bench.age"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    marks = [(int(after), float(cpu_ms), int(kib)) for after, cpu_ms, kib in map(str.split, out.splitlines())]
    table(
        f"A server on SQLite that commits {COMMITS:,} times, by its age (aim: ratios near 1)",
        ("commits", "CPU a commit", "resident memory"),
        [
            *((f"{after:,}", f"{cpu_ms:.2f} ms", f"{kib / 1024:.0f} MiB") for after, cpu_ms, kib in marks),
            ("last to first", f"{marks[-1][1] / marks[0][1]:.2f}", f"{marks[-1][2] / marks[0][2]:.2f}"),
        ],
    )


async def _measure() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as folder:
        service = await build(Settings.load(data=str(Path(folder) / "data"), log_level="error"))
        service.upkeep.start()
        try:
            await _commit_all(AsgiClient(service.asgi))
        finally:
            await service.upkeep.stop()
            await service.close()


async def _commit_all(client: AsgiClient) -> None:
    await client.send("POST", "/v1/main/namespaces", json={"namespace": ["db"]})
    for number in range(TABLES):
        await client.send("POST", "/v1/main/namespaces/db/tables", json={"name": f"t{number}", "schema": _SCHEMA})

    async def commit(number: int) -> None:
        key = uuid7(time.time_ns() // 1_000_000, random.getrandbits(74))
        updates = [{"action": "set-properties", "updates": {"n": str(number)}}]
        answer = await client.send(
            "POST",
            f"/v1/main/namespaces/db/tables/t{number % TABLES}",
            json={"requirements": [], "updates": updates},
            headers={"idempotency-key": key},
        )
        assert answer.status == 200, answer
        client.answered.clear()

    began_s = time.process_time()
    for first in range(0, COMMITS, AT_ONCE):
        await asyncio.gather(*(commit(number) for number in range(first, first + AT_ONCE)))
        done = first + AT_ONCE
        if done // EVERY != first // EVERY:
            cpu_ms = (time.process_time() - began_s) * 1000 / EVERY
            print(done, f"{cpu_ms:.3f}", _resident_kib(), flush=True)
            began_s = time.process_time()


def _resident_kib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise AssertionError("/proc/self/status does not say how much memory is in use")


if __name__ == "__main__":
    asyncio.run(_measure())
