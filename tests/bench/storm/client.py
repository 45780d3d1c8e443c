"""One client of the storm: works on tables of its own, and knows what must be there when all is over.

It does one thing after the other, so what its tables hold follows from the answers: a change that was answered with 2xx
has happened once, one that was answered with 4xx has not. A request whose connection it has closed itself is sent again
under its key.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from tests.bench.storm.bad import KINDS, Sender
from tests.bench.storm.http import ANSWER_WITHIN_S, Answer, Connection, HungUp, NoAnswer, request
from tests.wire.world import SCHEMA, append, new_key

NAMES: Final = ("a", "b", "c")
ONE_BAD_IN: Final = 20
_VERSIONS: Final = 40
"""How many a table has before it is dropped and made anew: the log of its metadata holds a hundred."""

_LIMITED_S: Final = 0.2
_PATIENCE_S: Final = 2.0
"""How long to wait for an answer to what need not have one."""

_PAGES: Final = (
    "/ui",
    "/ui/catalog/main",
    "/ui/catalog/main/{namespace}",
    "/ui/catalog/main/{namespace}/a",
    "/ui/catalog/main/{namespace}/a/timeline",
    "/ui/catalog/main/{namespace}/a/snapshots",
    "/ui/search?q={namespace}",
    "/ui/transactions/main",
    "/ui/pipelines/main",
    "/ui/server",
)


class Failed(Exception):
    """An answer that a good request must not get."""


@dataclass(slots=True)
class Table:
    """What must be there."""

    location: str
    snapshots: list[int] = field(default_factory=list)
    versions: int = 0
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Seen:
    """What all clients have seen."""

    deck: Iterator[str]
    """Which kind of bad request is next."""

    sent: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    """Of good requests, by status; a connection that was closed is `hung up`, one that says nothing `no answer`."""

    bad: dict[str, Counter[str]] = field(default_factory=dict)
    """Of bad requests, by kind."""

    wrong: list[str] = field(default_factory=list)
    """What must not have been answered, or not so."""

    applied: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Keys."""

    def complain(self, what: str) -> None:
        if len(self.wrong) < 200:
            self.wrong.append(what)


class _Filled(dict[str, str]):
    """What stands for the parameters of a path."""

    def __missing__(self, name: str) -> str:
        return {"prefix": "main", "table": "a", "view": "a"}.get(name, "x")


class Client:
    def __init__(self, number: int, job: dict[str, Any], seen: Seen) -> None:
        self.namespace = f"c{number}"
        self.tables: dict[str, Table] = {}
        self.hot = 0
        self._seen = seen
        self._rng = random.Random(f"{job['seed']}/{number}")
        self._token: str = job["tokens"][number]
        self._watcher: str = job["watcher"]
        self._cookie = ""
        self._host, self._ports = job["host"], job["ports"]
        self._connection = self._opened()
        self._at = f"/v1/main/namespaces/{self.namespace}/tables"
        others = [f"/v1/main/namespaces/c{other}/tables/a" for other in range(len(job["tokens"])) if other != number]
        self._sender = Sender(
            token=self._token,
            table=f"{self._at}/a",
            namespace=self.namespace,
            others=(*others, "/v1/main/namespaces/secret/tables/t"),
            dead_tokens=tuple(job["dead_tokens"]),
            operations=tuple(
                (method, path.format_map(_Filled(namespace=self.namespace))) for method, path in job["operations"]
            ),
            used_key="",
            rng=self._rng,
            transaction=job["transaction"],
        )
        self._sent = self._bad = 0
        works: dict[Callable[[], Awaitable[None]], int] = {
            self._load: 25,
            self._look_around: 15,
            self._commit: 25,
            self._commit_hot: 3,
            self._commit_many: 8,
            self._in_a_transaction: 4,
            self._make_anew: 1,
            self._leave_and_settle: 2,
            self._page: 3,
        }
        self._works, self._weights = list(works), list(works.values())

    async def run(self, over: Callable[[], bool]) -> None:
        try:
            await self._log_in()
            for name in NAMES:
                await self._create(name)
            while not over():
                if self._bad * ONE_BAD_IN < self._sent:
                    await self._send_bad()
                else:
                    await self._rng.choices(self._works, self._weights)[0]()
        except Failed as error:
            self._seen.complain(str(error))
        self._connection.close()

    def expected(self) -> dict[str, Any]:
        tables = {
            name: {"snapshots": one.snapshots, "versions": one.versions, "properties": one.properties}
            for name, one in self.tables.items()
        }
        return {"namespace": self.namespace, "tables": tables, "hot": self.hot}

    # --- requests ---

    def _opened(self, door: str = "http") -> Connection:
        return Connection(self._host, self._ports[door])

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        right: tuple[int, ...] = (200,),
        key: str | None = None,
        **headers: str,
    ) -> Answer:
        """A good request, until it is answered by one of these. Anything else is a failure."""
        data = b"" if body is None else orjson.dumps(body)
        if "Cookie" not in headers:
            headers["Authorization"] = f"Bearer {self._token}"
        if key is not None:
            headers["Idempotency_Key"] = key
        while True:
            self._count()
            try:
                answer = await self._connection.ask(request(method, path, data, **headers))
            except (HungUp, NoAnswer) as error:
                self._seen.statuses["hung up" if isinstance(error, HungUp) else "no answer"] += 1
                raise Failed(
                    f"{method} {path}: the server {'hung up' if isinstance(error, HungUp) else 'said nothing'}"
                ) from None
            self._seen.statuses[str(answer.status)] += 1
            if answer.status != 429:
                break
            # Wrong tokens come from this address, too.
            await asyncio.sleep(_LIMITED_S)
        if answer.status not in right:
            raise Failed(f"{method} {path}: {answer.status} {answer.body[:300]!r}")
        return answer

    def _count(self) -> None:
        self._sent += 1
        self._seen.sent += 1

    async def _change(self, method: str, path: str, body: Any = None, right: tuple[int, ...] = (200,)) -> Answer:
        key = new_key()
        answer = await self._ask(method, path, body, right=right, key=key)
        self._applied(key)
        return answer

    def _applied(self, key: str) -> None:
        self._sender.used_key = key
        self._seen.applied.append(key)

    async def _send_bad(self) -> None:
        kind = next(self._seen.deck)
        bad = KINDS[kind](self._sender)
        self._bad += 1
        self._count()
        # What is good HTTP goes over the connection that good requests use, and must leave it as it was.
        apart = bad.leaves or bad.silence or bad.door != "http"
        connection = self._opened(bad.door) if apart else self._connection
        try:
            if bad.leaves:
                await connection.leave(bad.data)
                said = "left"
            else:
                answer = await connection.ask(bad.data, patience_s=_PATIENCE_S if bad.silence else ANSWER_WITHIN_S)
                said = str(answer.status)
                if answer.status not in bad.right | {429}:
                    self._seen.complain(f"{kind}: {answer.status} {answer.body[:300]!r} to {bad.data[:300]!r}")
        except (HungUp, NoAnswer) as error:
            said = "hung up" if isinstance(error, HungUp) else "no answer"
            if not bad.silence:
                self._seen.complain(f"{kind}: {said} to {bad.data[:300]!r}")
        except ConnectionError as error:
            said = "no connection"
            self._seen.complain(f"{kind}: {error}")
        finally:
            if apart:
                connection.close()
        self._seen.bad.setdefault(kind, Counter())[said] += 1
        if bad.key is not None:
            self._seen.refused.append(bad.key)

    # --- looking ---

    async def _log_in(self) -> None:
        body = f"token={self._watcher}".encode()
        media = "application/x-www-form-urlencoded"
        answer = await self._connection.ask(request("POST", "/ui/login", body, Content_Type=media))
        assert answer.status == 303, answer
        self._cookie = answer.headers["set-cookie"].partition(";")[0]

    async def _load(self) -> None:
        name = self._rng.choice(NAMES)
        shared = self._rng.random() < 0.5
        path = "/v1/main/namespaces/shared/tables/t" if shared else f"{self._at}/{name}"
        answer = await self._ask("GET", path)
        if not shared:
            self._compare(name, answer)

    def _compare(self, name: str, answer: Answer) -> None:
        found, expected = answer.json()["metadata"], self.tables[name]
        snapshots = [one["snapshot-id"] for one in found.get("snapshots", ())]
        if snapshots != expected.snapshots or len(found["metadata-log"]) != expected.versions:
            raise Failed(f"{self.namespace}.{name} is not what was answered: {found} instead of {expected}")

    async def _look_around(self) -> None:
        method, path = self._rng.choice(
            [
                ("GET", f"{self._at}?pageSize=2"),
                ("GET", "/v1/main/namespaces"),
                ("GET", f"/v1/main/namespaces/{self.namespace}"),
                ("HEAD", f"{self._at}/a"),
                ("GET", "/v1/config?warehouse=main"),
                ("GET", "/v1/whoami"),
                ("POST", "/v1/main/tables/batch-load"),
                ("GET", "/v1/main/transactions"),
            ]
        )
        named = [{"namespace": [self.namespace], "name": name} for name in NAMES]
        body = {"identifiers": named} if method == "POST" else None
        await self._ask(method, path, body, right=(200, 204))

    async def _page(self) -> None:
        page = self._rng.choice(_PAGES).format(namespace=self.namespace)
        await self._ask("GET", page, Cookie=self._cookie)

    # --- changing ---

    async def _create(self, name: str) -> None:
        made = await self._change("POST", self._at, {"name": name, "schema": SCHEMA})
        metadata = made.json()["metadata"]
        self.tables[name] = Table(metadata["location"], properties=metadata["properties"])

    async def _make_anew(self, name: str | None = None) -> None:
        name = name or self._rng.choice(NAMES)
        self._compare(name, await self._ask("GET", f"{self._at}/{name}"))
        await self._change("DELETE", f"{self._at}/{name}", right=(204,))
        await self._ask("GET", f"{self._at}/{name}", right=(404,))
        await self._create(name)

    def _next(self, name: str) -> tuple[list[Any], Callable[[], None]]:
        """Updates of a table, and what to note once they are made."""
        table, number = self.tables[name], self._rng.getrandbits(60)
        made: list[Any]
        if self._rng.random() < 0.5:
            place = {"manifest-list": f"{table.location}/metadata/snap-{number}.avro"}
            made = append(number, len(table.snapshots) + 1, table.snapshots[-1] if table.snapshots else None, **place)
        else:
            made = [{"action": "set-properties", "updates": {"last": str(number)}}]

        def note() -> None:
            table.versions += 1
            if len(made) > 1:
                table.snapshots.append(number)
            else:
                table.properties["last"] = str(number)

        return made, note

    async def _room(self, *names: str) -> None:
        for name in names:
            if self.tables[name].versions >= _VERSIONS:
                await self._make_anew(name)

    async def _commit(self) -> None:
        name = self._rng.choice(NAMES)
        await self._room(name)
        updates, note = self._next(name)
        await self._change("POST", f"{self._at}/{name}", {"requirements": [], "updates": updates})
        note()

    async def _commit_hot(self) -> None:
        """To a table that all clients change."""
        updates = [{"action": "set-properties", "updates": {self.namespace: str(self.hot + 1)}}]
        await self._change("POST", "/v1/main/namespaces/shared/tables/hot", {"requirements": [], "updates": updates})
        self.hot += 1

    async def _commit_many(self) -> None:
        await self._room(*NAMES)
        planned = {name: self._next(name) for name in self._rng.sample(NAMES, self._rng.choice([2, 3]))}
        changes = [
            {"identifier": {"namespace": [self.namespace], "name": name}, "requirements": [], "updates": updates}
            for name, (updates, _) in planned.items()
        ]
        await self._change("POST", "/v1/main/transactions/commit", {"table-changes": changes}, right=(204,))
        for _, note in planned.values():
            note()

    async def _in_a_transaction(self) -> None:
        """Two tables inside of one, then all of it or none."""
        await self._room(*NAMES)
        begun = (await self._ask("POST", "/v1/main/transactions", {"ttl-seconds": 600})).json()
        inside = f"/v1/{begun['prefix']}/namespaces/{self.namespace}/tables"
        planned = {name: self._next(name) for name in self._rng.sample(NAMES, 2)}
        for name, (updates, _) in planned.items():
            await self._ask("GET", f"{inside}/{name}")
            await self._ask("POST", f"{inside}/{name}", {"requirements": [], "updates": updates}, key=new_key())
        step = self._rng.choice(["commit", "commit", "abort"])
        await self._ask("POST", f"/v1/main/transactions/{begun['transaction-id']}/{step}", right=(200, 204))
        if step == "commit":
            self._seen.applied.append(begun["transaction-id"])
            for _, note in planned.values():
                note()
        else:
            self._seen.refused.append(begun["transaction-id"])

    async def _leave_and_settle(self) -> None:
        """A commit whose answer nobody waits for, and what became of it: sent again under its key, it happens once."""
        name, key = self._rng.choice(NAMES), new_key()
        await self._room(name)
        updates, note = self._next(name)
        body = {"requirements": [], "updates": updates}
        sent = request(
            "POST",
            f"{self._at}/{name}",
            orjson.dumps(body),
            Authorization=f"Bearer {self._token}",
            Idempotency_Key=key,
        )
        self._count()
        await self._opened().leave(sent)
        await self._look_around()
        await self._ask("POST", f"{self._at}/{name}", body, key=key)
        self._applied(key)
        note()
