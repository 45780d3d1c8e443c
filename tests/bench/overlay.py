"""Open transactions: what a statement costs inside, whether that grows, what the commit costs, and loads in one cut.

The server is a process of its own, and the load comes from this one, over connections that are kept. What is compared
is measured in turns, so that a machine that is busy is busy for both. Stores are named; fsync is on everywhere.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from tests.bench.load import Connection
from tests.bench.report import against, table
from tests.bench.rest import Lake, running
from tests.support.postgres import running_postgres

STATEMENTS = 1_000
TURNS = 120
TABLES = 50
CONNECTIONS = 16

Row = tuple[object, ...]
Step = Callable[[], Awaitable[None]]


async def run() -> None:
    rows: list[Row] = []
    with running() as lake:
        rows += await _all_on("SQLite", lake)
    with running_postgres() as url, running(store=url) as lake:
        rows += await _all_on("PostgreSQL", lake)
    table("open transactions, one client, median ms", ("", "ms", "against", "ms", "ratio"), rows)


async def _all_on(store: str, lake: Lake) -> list[Row]:
    bench = Bench(lake)
    for number in range(TABLES):
        lake.table(f"t{number}", 10)
    return [
        *await bench.statements(store),
        await bench.commits(store),
        *await bench.loads(store),
    ]


class Bench:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._number = 0

    def begin(self) -> str:
        """A new transaction: the prefix of what is inside it."""
        prefix: str = json.loads(self._lake.send("POST", "/v1/main/transactions", {}))["prefix"]
        return prefix

    async def connection(self) -> Connection:
        place = urlsplit(self._lake.url)
        return await Connection.to(place.hostname or "", place.port or 0)

    def update(self) -> list[dict[str, Any]]:
        """A change that is a new one each time, and leaves the table as large as it was."""
        self._number += 1
        return [{"action": "set-properties", "updates": {"counter": f"{self._number:08}"}}]

    async def statement(self, connection: Connection, prefix: str, name: str = "t0") -> None:
        body = json.dumps({"requirements": [], "updates": self.update()}).encode()
        await connection.send("POST", f"/v1/{prefix}/namespaces/bench/tables/{name}", body)

    async def statements(self, store: str) -> list[Row]:
        connection = await self.connection()
        outside, inside = [], []
        began: list[str] = []

        async def in_a_new_one() -> None:
            await self.statement(connection, began[-1], "t1")

        for turn in range(TURNS):
            # Half of them are the first statement of their transaction, half a later one.
            if turn % 2 == 0:
                began.append(self.begin())
            outside.append(await timed(lambda: self.statement(connection, "main", "t0")))
            inside.append(await timed(in_a_new_one))
        ratio = median(inside) / median(outside)
        first = (
            f"{store}: statement inside",
            f"{median(inside):.2f}",
            "outside",
            f"{median(outside):.2f}",
            against(ratio, "1.3", met=ratio <= 1.3),
        )
        return [first, await self._growth(store, connection)]

    async def _growth(self, store: str, connection: Connection) -> Row:
        """The last statements of a long transaction against the first of others, in turns."""
        long = self.begin()
        for _ in range(STATEMENTS - TURNS // 2):
            await self.statement(connection, long)
        late, early = [], []
        for _ in range(TURNS // 2):
            new = self.begin()
            early.append(await timed(lambda new=new: self.statement(connection, new)))  # type: ignore[misc]
            late.append(await timed(lambda: self.statement(connection, long)))
        ratio = median(late) / median(early)
        return (
            f"{store}: statement {STATEMENTS:,}",
            f"{median(late):.2f}",
            "the first",
            f"{median(early):.2f}",
            against(ratio, "1.2", met=ratio <= 1.2),
        )

    async def commits(self, store: str, tables: int = 5) -> Row:
        connection = await self.connection()
        staged, at_once = [], []
        names = [f"t{number}" for number in range(tables)]
        for _ in range(TURNS):
            prefix = self.begin()
            for name in names:
                await self.statement(connection, prefix, name)
            path = f"/v1/main/transactions/{prefix.partition('@')[2]}/commit"
            staged.append(await timed(lambda path=path: connection.send("POST", path, b"")))  # type: ignore[misc]
            changes = [
                {"identifier": {"namespace": ["bench"], "name": name}, "requirements": [], "updates": self.update()}
                for name in names
            ]
            body = json.dumps({"table-changes": changes}).encode()
            send = lambda body=body: connection.send("POST", "/v1/main/transactions/commit", body)  # noqa: E731
            at_once.append(await timed(send))
        ratio = median(staged) / median(at_once)
        return (
            f"{store}: commit of a transaction, {tables} tables",
            f"{median(staged):.2f}",
            "transactions/commit",
            f"{median(at_once):.2f}",
            against(ratio, "1.5", met=ratio <= 1.5),
        )

    async def loads(self, store: str) -> list[Row]:
        connections = [await self.connection() for _ in range(CONNECTIONS)]
        names = [f"t{number}" for number in range(TABLES)]
        asked = {"identifiers": [{"namespace": ["bench"], "name": name} for name in names]}
        body = json.dumps(asked).encode()

        async def together() -> None:
            await connections[0].send("POST", "/v1/main/tables/batch-load", body)

        async def each(connection: Connection, share: Sequence[str]) -> None:
            for name in share:
                await connection.send("GET", f"/v1/main/namespaces/bench/tables/{name}", b"")

        async def over(count: int) -> None:
            await asyncio.gather(*(each(one, names[n::count]) for n, one in enumerate(connections[:count])))

        batch, one, many = [], [], []
        for _ in range(TURNS // 2):
            batch.append(await timed(together))
            one.append(await timed(lambda: over(1)))
            many.append(await timed(lambda: over(CONNECTIONS)))
        rows: list[Row] = []
        for count, taken, aim in ((1, one, 0.15), (CONNECTIONS, many, 0.5)):
            ratio = median(batch) / median(taken)
            against_what = f"{TABLES} loads over {count} connection{'s' if count > 1 else ''}"
            rows.append(
                (
                    f"{store}: batch load of {TABLES}",
                    f"{median(batch):.2f}",
                    against_what,
                    f"{median(taken):.2f}",
                    against(ratio, f"{aim}", met=ratio <= aim),
                )
            )
        return rows


async def timed(step: Step) -> float:
    began = time.perf_counter()
    await step()
    return (time.perf_counter() - began) * 1000


def median(taken: Sequence[float]) -> float:
    return statistics.median(taken)
