"""`python -m tests.bench.storm.generator`: all clients of a storm, in a process of their own.

Standard input brings a job as JSON, as `storm` makes it; it is done after so many seconds, or as soon as there were so
many requests. Standard output takes what the clients have seen, and what must be there now.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

import orjson
import uvloop

from tests.bench.storm.bad import deck
from tests.bench.storm.client import Client, Seen


async def main() -> None:
    job = orjson.loads(sys.stdin.buffer.read())
    seen = Seen(deck(random.Random(job["seed"])))
    clients = [Client(number, job, seen) for number in range(len(job["tokens"]))]
    until = time.monotonic() + job["seconds"]

    def over() -> bool:
        return bool(time.monotonic() >= until or seen.sent >= job["requests"])

    await asyncio.gather(*(client.run(over) for client in clients))
    report = {
        "statuses": seen.statuses,
        "bad": seen.bad,
        "wrong": seen.wrong,
        "applied": seen.applied,
        "refused": seen.refused,
        "expected": [client.expected() for client in clients],
    }
    sys.stdout.buffer.write(orjson.dumps(report))


if __name__ == "__main__":
    uvloop.run(main())
