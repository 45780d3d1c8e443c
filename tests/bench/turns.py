"""`python -m tests.bench.turns`: two kinds of requests in short turns, and what one of each costs the server.

What else a machine does comes and goes within seconds. So the turns are short, each kind has one right beside one of
the other, now before it and now after it, and what counts is the median of their ratios. The cost of a request is the
server's processor time: the work of others hardly changes that.

Standard input brings one job as JSON: {process, sides: [{host, port, clients}, {…}]}, with clients as `load` has them.
Standard output takes, of each pair of turns and each side: [requests, seconds, seconds of the server's processor].
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from tests.bench.load import Client, Connection

ROOT: Final = Path(__file__).parents[2]
_PAIRS: Final = 45
_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Turn:
    requests: int
    seconds: float
    processor_s: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def cost_s(self) -> float:
        """What one request took of the server's processor."""
        return self.processor_s / self.requests


@dataclass(frozen=True)
class Side:
    per_second: float
    cost_ms: float


@dataclass(frozen=True)
class Compared:
    """The second kind against the first."""

    first: Side
    second: Side
    of_cost: float
    of_rate: float
    """By requests a second: above 1 the second is slower."""


def compared(
    process: int, first: tuple[str, list[dict[str, Any]]], second: tuple[str, list[dict[str, Any]]]
) -> Compared:
    """Each side: where the server of this process is, and what each client asks for."""
    sides = []
    for url, clients in (first, second):
        place = urlsplit(url)
        sides.append({"host": place.hostname, "port": place.port, "clients": clients})
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench.turns"],
        input=json.dumps({"process": process, "sides": sides}),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ended.returncode == 0, ended.stderr
    pairs = [(Turn(*one), Turn(*other)) for one, other in json.loads(ended.stdout)]
    one, other = (_side(list(turns)) for turns in zip(*pairs, strict=True))
    return Compared(
        one,
        other,
        of_cost=statistics.median(second.cost_s / first.cost_s for first, second in pairs),
        of_rate=statistics.median(first.per_second / second.per_second for first, second in pairs),
    )


def _side(turns: list[Turn]) -> Side:
    return Side(
        statistics.median(turn.per_second for turn in turns),
        statistics.median(turn.cost_s for turn in turns) * 1000,
    )


def _processor_s(process: int) -> float:
    """What a process has used so far, by the clock that Linux has for each (`clock_getcpuclockid`)."""
    return time.clock_gettime((~process << 3) | 2)


async def _turn(process: int, clients: list[Client]) -> list[float]:
    began, before_s = time.perf_counter(), _processor_s(process)
    taken = await asyncio.gather(*(client.ask(began + _SECONDS) for client in clients))
    return [sum(map(len, taken)), time.perf_counter() - began, _processor_s(process) - before_s]


async def main() -> None:
    job = json.loads(sys.stdin.read())
    process = job["process"]
    one, other = [
        [Client(await Connection.to(side["host"], side["port"]), client) for client in side["clients"]]
        for side in job["sides"]
    ]
    pairs = []
    for number in range(-1, _PAIRS):
        if number % 2:
            second = await _turn(process, other)
            first = await _turn(process, one)
        else:
            first = await _turn(process, one)
            second = await _turn(process, other)
        if number >= 0:  # the pair before the first has warmed everything up
            pairs.append([first, second])
    print(json.dumps(pairs))


if __name__ == "__main__":
    uvloop.run(main())
