"""Clients that never give up, against a server that keeps being killed.

Every request has an Idempotency-Key and is sent until it is answered: once, twice at the same time, or with the
connection closed before the answer can come. Only 2xx and 4xx are answers. What was answered is kept, to be held
against what is there in the end.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lakepact.kernel.identity import TransactionId
from tests.crash.server_tables import NAMESPACE, adding, creation, named, new_key, snapshot_id, snapshots_of, tables_of
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S, wait_until

TABLES: Final = 6
CLIENTS: Final = 4
KINDS: Final = ("commit", "commit-many", "commit-to-head", "create", "rename", "property")
"""The kinds of changes that every run makes."""

_ROOT: Final = f"/v1/main/namespaces/{NAMESPACE}"


@dataclass(frozen=True)
class Sent:
    """One request that has been answered, and what it was to do."""

    key: TransactionId
    what: str
    status: int
    tables: tuple[str, ...] = ()
    snapshot: int = 0
    name: str = ""


@dataclass
class Chaos:
    """Everything the clients, the killer and the auditor share."""

    folder: Path
    options: tuple[str, ...]
    seed: int
    kills: int
    url: str = ""
    killed: int = 0
    sent: list[Sent] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _serial: int = 0

    def run(self) -> None:
        """Play until the server has been killed often enough and every client has its last answer."""
        chance = random.Random(self.seed)
        threads = [
            threading.Thread(target=self._guarded, args=(client, random.Random(f"{self.seed}/{number}")))
            for number, client in enumerate([*[self._client] * CLIENTS, self._auditor])
        ]
        with self._serving():
            self._seed_tables()
        for thread in threads:
            thread.start()
        try:
            while self.killed < self.kills and not self.failures:
                with self._serving() as kill:
                    self._over.wait(0.1 + chance.random() * 1.2)
                    kill()
                self.killed += 1
            with self._serving():
                # On a slow machine little was answered between the kills.
                wait_until(lambda: self.failures or self._has_every_answer(), "not every kind of request was answered")
                self._over.set()
                for thread in threads:
                    thread.join(PATIENCE_S)
        finally:
            self._over.set()
            for thread in threads:
                thread.join(PATIENCE_S)
        if self.failures:
            raise self.failures[0]

    def _serving(self) -> _Serving:
        return _Serving(self)

    def _has_every_answer(self) -> bool:
        """Return whether each kind of change was made at least once, and one was refused."""
        with self._lock:
            made = {one.what for one in self.sent if one.status < 300}
            return set(KINDS) <= made and any(one.status >= 400 for one in self.sent)

    def _guarded(self, play: Callable[[random.Random], None], chance: random.Random) -> None:
        try:
            play(chance)
        except BaseException as error:
            self.failures.append(error)
            self._over.set()

    def serial(self) -> int:
        with self._lock:
            self._serial += 1
            return self._serial

    # --- what clients do ---

    def _seed_tables(self) -> None:
        chance = random.Random(self.seed)
        self._until_answered(chance, "POST", "/v1/main/namespaces", {"namespace": [NAMESPACE]}, new_key(chance))
        for number in range(TABLES):
            status, _ = self._until_answered(chance, "POST", f"{_ROOT}/tables", creation(f"t{number}"), new_key(chance))
            assert status == 200

    def _client(self, chance: random.Random) -> None:
        deeds = (self._commit_one, self._commit_many, self._commit_to_head, self._come_and_go, self._set_property)
        while not self._over.is_set():
            chance.choices(deeds, (4, 4, 2, 2, 1))[0](chance)

    def _commit_one(self, chance: random.Random) -> None:
        table = chance.randrange(TABLES)
        snapshot = snapshot_id(self.serial(), [table])
        self._change(chance, "commit", "POST", f"{_ROOT}/tables/t{table}", adding(snapshot), (table,), snapshot)

    def _commit_many(self, chance: random.Random) -> None:
        """Three tables. Every fifth time the last of them has a requirement that cannot hold."""
        tables = tuple(chance.sample(range(TABLES), 3))
        snapshot = snapshot_id(self.serial(), tables)
        changes = [named(f"t{table}", adding(snapshot)) for table in tables]
        if chance.random() < 0.2:
            changes[-1]["requirements"] = [{"type": "assert-current-schema-id", "current-schema-id": 99}]
        body = {"table-changes": changes}
        self._change(chance, "commit-many", "POST", "/v1/main/transactions/commit", body, tables, snapshot)

    def _commit_to_head(self, chance: random.Random) -> None:
        """As engines commit: to the head that was seen, which somebody else may have moved."""
        table = chance.randrange(TABLES)
        metadata = self._metadata(chance, table)
        parent = (metadata.get("refs") or {}).get("main", {}).get("snapshot-id")
        snapshot = snapshot_id(self.serial(), [table])
        body = adding(snapshot, parent=parent, head=True, after=metadata["last-sequence-number"])
        self._change(chance, "commit-to-head", "POST", f"{_ROOT}/tables/t{table}", body, (table,), snapshot)

    def _come_and_go(self, chance: random.Random) -> None:
        """A table of one's own: created, renamed, and every other time dropped."""
        name = f"own{self.serial()}"
        self._change(chance, "create", "POST", f"{_ROOT}/tables", creation(name), name=name)
        new_name = f"{name}_renamed"
        rename = {
            "source": {"namespace": [NAMESPACE], "name": name},
            "destination": {"namespace": [NAMESPACE], "name": new_name},
        }
        self._change(chance, "rename", "POST", "/v1/main/tables/rename", rename, name=new_name)
        if chance.random() < 0.5:
            self._change(chance, "drop", "DELETE", f"{_ROOT}/tables/{new_name}", None, name=new_name)

    def _set_property(self, chance: random.Random) -> None:
        name = f"p{self.serial()}"
        self._change(chance, "property", "POST", f"{_ROOT}/properties", {"updates": {name: name}}, name=name)

    def _change(
        self,
        chance: random.Random,
        what: str,
        method: str,
        path: str,
        body: Any,
        tables: tuple[int, ...] = (),
        snapshot: int = 0,
        name: str = "",
    ) -> None:
        key = new_key(chance)
        status, _ = self._until_answered(chance, method, path, body, key)
        with self._lock:
            self.sent.append(Sent(key, what, status, tuple(f"t{table}" for table in tables), snapshot, name))

    # --- an auditor while all this goes on ---

    def _auditor(self, chance: random.Random) -> None:
        """Reads tables one after the other. What the first shows, the later ones must show too."""
        while not self._over.is_set():
            order = chance.sample(range(TABLES), TABLES)
            seen: dict[int, set[int]] = {}
            for table in order:
                seen[table] = set(snapshots_of(self._metadata(chance, table)))
                for earlier, snapshots in seen.items():
                    torn = [one for one in snapshots if table in tables_of(one) and one not in seen[table]]
                    assert not torn, f"t{earlier} showed {torn}, and t{table}, read later, does not"

    def _metadata(self, chance: random.Random, table: int) -> dict[str, Any]:
        status, answer = self._until_answered(chance, "GET", f"{_ROOT}/tables/t{table}", None, None)
        assert status == 200, answer
        metadata: dict[str, Any] = answer["metadata"]
        return metadata

    # --- how requests are sent ---

    def _until_answered(
        self, chance: random.Random, method: str, path: str, body: Any, key: str | None
    ) -> tuple[int, Any]:
        until = time.monotonic() + PATIENCE_S
        request = _Request(method, path, body, key)
        while time.monotonic() < until:
            way = chance.choices(("plain", "twice", "dropped"), (6, 2, 2))[0] if key is not None else "plain"
            self.attempts[way] += 1
            url = self.url
            with suppress(OSError, http.client.HTTPException):
                if way == "dropped":
                    request.drop(url, chance)
                    continue
                answers = request.twice(url) if way == "twice" else [request.send(url)]
                certain = {status for status, _ in answers if status < 500}
                assert len(certain) < 2, f"{request} was answered in two ways at once: {answers}"
                for status, answer in answers:
                    if status < 500:
                        return status, answer
                    assert status in (503, 504), f"{request}: {status} {answer}"
                    self.attempts[f"answered {status}"] += 1
                continue
            self.attempts["not answered"] += 1
            # The server is on its way up again; asking in a tight loop would only slow it down.
            time.sleep(0.03)
        raise AssertionError(f"{request} was not answered within {PATIENCE_S:.0f} s")


class _Serving:
    """The server, from when it is ready until it is killed, or ends cleanly."""

    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos

    def __enter__(self) -> Callable[[], None]:
        # Upkeep often: receipts that a crash has left out are written while the next crash is on its way.
        self._context = running_server(
            self._chaos.folder,
            *self._chaos.options,
            env={"LAKEPACT_UPKEEP_INTERVAL_S": "1", "LAKEPACT_LOG_LEVEL": "warning", "LAKEPACT_LEASE_S": "1"},
        )
        server = self._context.__enter__()
        self._chaos.url = server.url

        def kill() -> None:
            server.process.kill()
            server.process.wait()

        return kill

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


class _Request:
    """One request, the same bytes however often it is sent."""

    def __init__(self, method: str, path: str, body: Any, key: str | None) -> None:
        self._method, self._path = method, path
        self._body = b"" if body is None else json.dumps(body).encode()
        self._headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key is not None else {})

    def __str__(self) -> str:
        return f"{self._method} {self._path} {self._headers.get('Idempotency-Key', '')} {self._body[:300]!r}"

    def send(self, url: str) -> tuple[int, Any]:
        connection = self._write(url)
        try:
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return answer.status, json.loads(content) if content else None

    def twice(self, url: str) -> list[tuple[int, Any]]:
        """Two of them under way at the same time. One may be answered and the other not."""
        connections = [self._write(url), self._write(url)]
        answers = []
        for connection in connections:
            with suppress(OSError, http.client.HTTPException):
                answer = connection.getresponse()
                content = answer.read()
                answers.append((answer.status, json.loads(content) if content else None))
            connection.close()
        if not answers:
            raise ConnectionError("neither was answered")
        return answers

    def drop(self, url: str, chance: random.Random) -> None:
        """Write it whole, and hang up: politely, or with a reset."""
        connection = self._write(url)
        assert connection.sock is not None
        if chance.random() < 0.5:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.close()

    def _write(self, url: str) -> http.client.HTTPConnection:
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=PATIENCE_S)
        try:
            connection.request(self._method, self._path, self._body or None, self._headers)
        except BaseException:
            connection.close()
            raise
        return connection


def ask(url: str, path: str) -> tuple[int, Any]:
    return _Request("GET", path, None, None).send(url)
