"""What clients of a real server saw while it was killed, judged as a whole: is there an order that explains all of it?

Tables are lists: a commit appends a snapshot with a unique id, and whoever loads a table sees the whole list. So the
order of all versions is known in the end, every read says which version it was of, and nothing has to be guessed.

    serializable   no cycle at all: every transaction and every cut has its place in one order, which respects real time
    snapshot       no cycle but write skew: each has two reads in a row of what the next one overwrote
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.crash.server_tables import NAMESPACE, adding, creation, named, new_key, snapshots_of
from tests.sim.broken import PromiseBroken
from tests.sim.history import Operation, check_strictly_serializable
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S

LONG: Final = bool(os.environ.get("LAKEPACT_LONG"))
TABLES: Final = ("t0", "t1", "t2", "t3")
CLIENTS: Final = 4

# --- a checker for snapshot isolation ---


def check_snapshot_isolation(operations: Sequence[Operation]) -> None:
    """Raise `PromiseBroken` if there is a cycle that snapshot isolation forbids.

    It allows only cycles in which two of "read what the next one overwrote" follow each other. So one such step is
    taken together with the step before it, and what is left must have no cycle.
    """
    known: dict[object, set[object]] = {operation.name: set() for operation in operations}
    overwrote: dict[str, set[str]] = {operation.name: set() for operation in operations}
    writer = {(key, revision + 1): one.name for one in operations for key, revision in one.writes.items()}
    for operation in operations:
        for key, revision in (*operation.reads.items(), *operation.writes.items()):
            made_by = writer.get((key, revision))
            if made_by is not None and made_by != operation.name:
                known[operation.name].add(made_by)
        for key, revision in operation.reads.items():
            replaced_by = writer.get((key, revision + 1))
            if replaced_by is not None and replaced_by != operation.name:
                overwrote[operation.name].add(replaced_by)
    _add_real_time(known, operations)
    before = {node: set(earlier) for node, earlier in known.items()}
    for reader, writers in overwrote.items():
        for one in writers:
            before[one] |= known[reader]
    try:
        tuple(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise PromiseBroken("snapshot isolation", f"a cycle that is no write skew: {error.args[1]}") from None


def _add_real_time(before: dict[object, set[object]], operations: Sequence[Operation]) -> None:
    """What had ended comes before what began after that: by a chain of barriers, one for each end."""
    events = sorted(
        [(one.end, 0, one.name) for one in operations if one.end is not None]
        + [(one.start, 1, one.name) for one in operations]
    )
    barrier: object = None
    for at, kind, name in events:
        if kind == 0:
            following = (at, name)
            before[following] = {name} if barrier is None else {name, barrier}
            barrier = following
        elif barrier is not None:
            before[name].add(barrier)


# --- the checkers detect what they are for ---


def done(name: str, start: int, reads: Mapping[str, int], writes: Mapping[str, int], end: int = 100) -> Operation:
    return Operation(name, start, end, reads, writes)


WRITE_BOTH = done("writer", 0, {"x": 0, "y": 0}, {"x": 0, "y": 0})
BAD_HISTORIES = {
    "read skew": [WRITE_BOTH, done("reader", 0, {"x": 1, "y": 0}, {})],
    "lost update": [done("one", 0, {"x": 0}, {"x": 0}), done("other", 0, {"x": 0}, {"x": 1})],
    "long fork": [
        done("x", 0, {"x": 0}, {"x": 0}),
        done("y", 0, {"y": 0}, {"y": 0}),
        done("sees x", 0, {"x": 1, "y": 0}, {}),
        done("sees y", 0, {"x": 0, "y": 1}, {}),
    ],
    "stale read": [done("writer", 0, {"x": 0}, {"x": 0}, end=1), done("reader", 2, {"x": 0}, {})],
    "circular flow": [done("one", 0, {"y": 1}, {"x": 0}), done("other", 0, {"x": 1}, {"y": 0})],
}
WRITE_SKEW = [done("one", 0, {"x": 0, "y": 0}, {"x": 0}), done("other", 0, {"x": 0, "y": 0}, {"y": 0})]


@pytest.mark.parametrize("anomaly", BAD_HISTORIES)
def test_the_checkers_detect(anomaly: str) -> None:
    for check in (check_strictly_serializable, check_snapshot_isolation):
        with pytest.raises(PromiseBroken):
            check(BAD_HISTORIES[anomaly])


def test_write_skew_alone_is_what_snapshot_isolation_allows() -> None:
    check_snapshot_isolation(WRITE_SKEW)
    with pytest.raises(PromiseBroken):
        check_strictly_serializable(WRITE_SKEW)
    fine = [WRITE_BOTH, done("reader", 0, {"x": 1, "y": 1}, {}), done("later", 101, {"x": 1, "y": 1}, {"x": 1}, 102)]
    check_snapshot_isolation(fine)
    check_strictly_serializable(fine)


# --- a client that never gives up ---


class Client:
    """One connection, made anew when it breaks. Every change has a key, so that it can be sent until it is answered."""

    def __init__(self, url: Callable[[], str], chance: random.Random) -> None:
        self._url = url
        self.chance = chance
        self._connection: http.client.HTTPConnection | None = None
        self._at = ""

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """Send it until it is answered: 2xx or 4xx."""
        headers = {"Content-Type": "application/json"} | ({} if key is None else {"Idempotency-Key": key})
        data = None if body is None else json.dumps(body).encode()
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            try:
                connection = self._connected()
                connection.request(method, path, data, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                self.close()
                # The server is on its way up again; asking in a tight loop would only slow it down.
                time.sleep(0.03)
                continue
            if answer.status < 500:
                return answer.status, json.loads(content) if content else None
            assert answer.status in (503, 504), content
        raise AssertionError(f"{method} {path} was not answered within {PATIENCE_S:.0f} s")

    def get(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        status, answer = self.ask(method, path, body, key)
        assert status in (200, 204), (method, path, status, answer)
        return answer

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        url = self._url()
        if self._connection is None or url != self._at:
            self.close()
            place = urlsplit(url)
            self._at = url
            self._connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=PATIENCE_S)
        return self._connection


def table_path(name: str, prefix: str = "main") -> str:
    return f"/v1/{prefix}/namespaces/{NAMESPACE}/tables/{name}"


def make_tables(client: Client, names: Sequence[str]) -> None:
    client.get("POST", "/v1/main/namespaces", {"namespace": [NAMESPACE]}, new_key(client.chance))
    for name in names:
        path = f"/v1/main/namespaces/{NAMESPACE}/tables"
        client.get("POST", path, creation(name), new_key(client.chance))


def batch(client: Client, names: Sequence[str], prefix: str = "main") -> dict[str, list[int]]:
    """The lists of these tables, in one cut."""
    asked = {"identifiers": [{"namespace": [NAMESPACE], "name": name} for name in names]}
    found = client.get("POST", f"/v1/{prefix}/tables/batch-load", asked)["results"]
    return {one["identifier"]["name"]: snapshots_of(one["metadata"]) for one in found}


# --- the history ---


@dataclass(frozen=True)
class Seen:
    """What one transaction or one cut saw and did."""

    name: str
    start: int
    end: int
    lists: Mapping[str, list[int]]
    appended: Mapping[str, int] = field(default_factory=dict)


@dataclass
class History:
    """Clients, a server that is killed, and everything that was seen."""

    folder: Path
    options: tuple[str, ...]
    isolation: str
    seed: int
    transactions: int
    kills: int
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _serials: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def play(self) -> None:
        with self._serving():
            make_tables(self._client("setup"), TABLES)
        clients = [threading.Thread(target=self._guarded, args=(number,)) for number in range(CLIENTS)]
        for killed in range(self.kills):
            # A share of the work before each kill, and the rest after the last.
            until = self.transactions * (killed + 1) // (self.kills + 1)
            with self._serving() as kill:
                for thread in clients if killed == 0 else ():
                    thread.start()
                while self.outcomes.total() < until and not self.failures:
                    time.sleep(0.01)
                kill()
        with self._serving():
            for thread in clients:
                thread.join(PATIENCE_S)
            if not self.failures:
                last = self._client("last")
                start = time.monotonic_ns()
                self.note("the end", start, batch(last, TABLES))
                last.close()
        if self.failures:
            raise self.failures[0]

    def note(self, name: str, start: int, lists: Mapping[str, list[int]], **appended: int) -> None:
        with self._lock:
            self.seen.append(Seen(name, start, time.monotonic_ns(), dict(lists), appended))

    def _client(self, name: object) -> Client:
        return Client(lambda: self.url, random.Random(f"{self.seed}/{name}"))

    @contextmanager
    def _serving(self) -> Iterator[Callable[[], None]]:
        env = {"LAKEPACT_LOG_LEVEL": "warning", "LAKEPACT_LEASE_S": "1"}
        with running_server(self.folder, *self.options, env=env) as server:
            self.url = server.url

            def kill() -> None:
                server.process.kill()
                server.process.wait()

            yield kill

    def _guarded(self, number: int) -> None:
        client = self._client(number)
        try:
            while self.outcomes.total() < self.transactions and not self.failures:
                chosen = client.chance.choices((self._transact, self._look, self._look_inside), (6, 1, 1))[0]
                chosen(client)
        except BaseException as error:
            self.failures.append(error)
        finally:
            client.close()

    # --- what clients do ---

    def _transact(self, client: Client) -> None:
        """Read two or three tables, append to two of them, commit."""
        read = client.chance.sample(TABLES, client.chance.choice((2, 3)))
        written = client.chance.sample(read, 2) if client.chance.random() < 0.7 else read[:1]
        key, start = new_key(client.chance), time.monotonic_ns()
        client.get("POST", "/v1/main/transactions", {"isolation": self.isolation}, key)
        lists: dict[str, list[int]] = {}
        appended: dict[str, int] = {}
        for name in read:
            status, answer = client.ask("GET", table_path(name, f"main@{key}"))
            if status != 200:
                return self._gave_up(client, key, status, answer)
            metadata = answer["metadata"]
            lists[name] = snapshots_of(metadata)
            if name in written:
                appended[name] = next(self._serials)
                body = adding(
                    appended[name],
                    parent=lists[name][-1] if lists[name] else None,
                    head=True,
                    after=metadata["last-sequence-number"],
                )
                path, statement = table_path(name, f"main@{key}"), new_key(client.chance)
                status, answer = client.ask("POST", path, body, statement)
                if status != 200:
                    return self._gave_up(client, key, status, answer)
        status, answer = client.ask("POST", f"/v1/main/transactions/{key}/commit", {})
        assert status in (200, 409), (status, answer)
        if status == 200:
            self.note(key, start, lists, **appended)
        self.outcomes["committed" if status == 200 else "conflict"] += 1

    def _gave_up(self, client: Client, key: str, status: int, answer: Any) -> None:
        """Its instant cannot be shown any more, where the store keeps no history."""
        assert (status, answer["error"]["type"]) == (409, "SnapshotTooOldException"), answer
        client.get("POST", f"/v1/main/transactions/{key}/abort")
        self.outcomes["too old"] += 1

    def _look(self, client: Client) -> None:
        start = time.monotonic_ns()
        self.note(f"cut {new_key(client.chance)}", start, batch(client, client.chance.sample(TABLES, 3)))

    def _look_inside(self, client: Client) -> None:
        """A transaction that only reads, one table after the other."""
        key, start = new_key(client.chance), time.monotonic_ns()
        client.get("POST", "/v1/main/transactions", {"read-only": True, "isolation": self.isolation}, key)
        lists = {}
        for name in client.chance.sample(TABLES, 3):
            status, answer = client.ask("GET", table_path(name, f"main@{key}"))
            if status == 409:
                break
            assert status == 200, answer
            lists[name] = snapshots_of(answer["metadata"])
        self.note(f"reader {key}", start, lists)
        client.get("POST", f"/v1/main/transactions/{key}/abort")

    # --- what it comes to ---

    def operations(self) -> list[Operation]:
        """Every list that was seen is a beginning of the last one, so its length is its version."""
        [end] = [one for one in self.seen if one.name == "the end"]
        places = {snapshot: (name, place) for name, found in end.lists.items() for place, snapshot in enumerate(found)}
        operations = []
        for one in self.seen:
            for name, found in one.lists.items():
                assert found == end.lists[name][: len(found)], f"{one.name} saw {found} in {name}: {end.lists[name]}"
            for name, snapshot in one.appended.items():
                assert places.pop(snapshot, (None,))[0] == name, f"{one.name} was committed and {snapshot} is lost"
            reads = {name: len(found) for name, found in one.lists.items()}
            writes = {name: end.lists[name].index(snapshot) for name, snapshot in one.appended.items()}
            operations.append(Operation(one.name, one.start, one.end, reads, writes))
        assert not places, f"nobody was told that these were committed: {places}"
        return operations


STORES: Final = {"sqlite": (), "file": ("--store", "file://{folder}/cells")}


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
@pytest.mark.parametrize("store", ["sqlite", pytest.param("file", marks=pytest.mark.long)])
def test_what_clients_saw_while_the_server_was_killed_has_an_order(
    store: str, isolation: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = int(os.environ.get("LAKEPACT_CHAOS_SEED") or random.randrange(1_000_000))
    options = tuple(option.format(folder=tmp_path) for option in STORES[store])
    size = (1_000, 12) if LONG else (150, 2)
    history = History(tmp_path, options, isolation, seed, *size)
    try:
        history.play()
        operations = history.operations()
        check = check_strictly_serializable if isolation == "serializable" else check_snapshot_isolation
        check(operations)
    except BaseException as error:
        error.add_note(f"LAKEPACT_CHAOS_SEED={seed} plays the same requests again; the moments differ")
        raise
    skewed = "no write skew"
    if isolation == "snapshot":
        try:
            check_strictly_serializable(operations)
        except PromiseBroken:
            skewed = "write skew"
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(history.outcomes.items()))
    cuts = sum(not one.writes for one in operations)
    record_property(
        "figure",
        f"history on {store}, {isolation}, seed {seed}: {CLIENTS} clients, {history.kills} kills; {told}; {cuts} cuts "
        f"beside them; a {'serial' if isolation == 'serializable' else 'snapshot'} order explains all of it ({skewed})",
    )
    assert history.outcomes["committed"] > 20
    assert history.outcomes["conflict"] + history.outcomes["too old"] > 0


# --- cuts ---


def test_readers_never_see_half_of_a_commit(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """Two tables get every commit together. Who loads them one after the other sees them apart; nobody else does."""
    wanted = 2_000 if LONG else 200
    pair = ("left", "right")
    with running_server(tmp_path, env={"LAKEPACT_LOG_LEVEL": "warning"}) as server:
        over = threading.Event()
        cuts: Counter[str] = Counter()
        torn: Counter[str] = Counter()
        failures: list[BaseException] = []

        def client(name: str) -> Client:
            return Client(lambda: server.url, random.Random(name))

        def write() -> None:
            writer = client("writer")
            for number in range(1, 20 * wanted):
                enough = min(cuts["batch loads"], cuts["transactions that read"]) > 20
                if (number > wanted and torn["plain loads"] and enough) or failures:
                    return
                change = {"requirements": [], "updates": [_set_number(number)]}
                if number % 2:
                    body = {"table-changes": [named(name, change) for name in pair]}
                    writer.get("POST", "/v1/main/transactions/commit", body)
                else:
                    key = new_key(writer.chance)
                    writer.get("POST", "/v1/main/transactions", {}, key)
                    for name in pair:
                        writer.get("POST", table_path(name, f"main@{key}"), change)
                    writer.get("POST", f"/v1/main/transactions/{key}/commit", {})
                cuts["commits"] += 1

        def read(how: str, look: Callable[[Client], list[str]]) -> None:
            reader = client(how)
            while not over.is_set():
                found = look(reader)
                cuts[how] += 1
                torn[how] += len(set(found)) > 1

        def guarded(step: Callable[..., None], *arguments: Any) -> threading.Thread:
            def run() -> None:
                try:
                    step(*arguments)
                except BaseException as error:
                    failures.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            return thread

        make_tables(client("setup"), pair)
        readers = [
            guarded(read, "plain loads", lambda one: [_number_in(one, name) for name in pair]),
            guarded(read, "batch loads", lambda one: _numbers_in_batch(one, pair)),
            guarded(read, "transactions that read", lambda one: _numbers_inside(one, pair)),
        ]
        guarded(write).join(600)
        over.set()
        for thread in readers:
            thread.join(PATIENCE_S)
    assert not failures, failures
    record_property(
        "figure",
        f"{cuts['commits']} commits of two tables; torn: {torn['batch loads']} of {cuts['batch loads']} batch loads, "
        f"{torn['transactions that read']} of {cuts['transactions that read']} transactions that read, "
        f"{torn['plain loads']} of {cuts['plain loads']} pairs of plain loads",
    )
    assert (torn["batch loads"], torn["transactions that read"]) == (0, 0)
    assert torn["plain loads"] > 0, "the test can see a torn cut"
    assert min(cuts["batch loads"], cuts["transactions that read"]) > 20


def _set_number(number: int) -> dict[str, Any]:
    return {"action": "set-properties", "updates": {"number": str(number)}}


def _number(metadata: dict[str, Any]) -> str:
    return str(metadata["properties"].get("number", "0"))


def _number_in(client: Client, name: str, prefix: str = "main") -> str:
    return _number(client.get("GET", table_path(name, prefix))["metadata"])


def _numbers_in_batch(client: Client, names: Sequence[str]) -> list[str]:
    asked = {"identifiers": [{"namespace": [NAMESPACE], "name": name} for name in names]}
    found = client.get("POST", "/v1/main/tables/batch-load", asked)["results"]
    return [_number(one["metadata"]) for one in found]


def _numbers_inside(client: Client, names: Sequence[str]) -> list[str]:
    key = new_key(client.chance)
    client.get("POST", "/v1/main/transactions", {"read-only": True}, key)
    found = [_number_in(client, name, f"main@{key}") for name in names]
    client.get("POST", f"/v1/main/transactions/{key}/abort")
    return found
