"""A storm: sixteen clients, one in twenty of whose requests nobody should send, against a server that asks for names.

The server is `lakepact serve` with tokens and rights, on SQLite and a local directory; the clients are in a process of
their own. They load, list, commit, make and drop tables, commit many at once, work in transactions, look at pages;
`bad.py` is the catalogue of the rest. Nothing may be answered with 5xx, all that was answered with 2xx must be there
afterwards, once, and nothing that was refused. The server's memory is looked at all the while: it must stay flat.

Twenty seconds, or ten minutes with `LAKEPACT_LONG`.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tests.bench.report import against, say, table
from tests.bench.storm.bad import BODY_BYTES
from tests.bench.storm.proof import Operator, Proof, failure_in
from tests.support.server import Server, running_server
from tests.support.tokens import create_token
from tests.wire.world import SCHEMA

CLIENTS: Final = 16
SECONDS: Final = 600.0 if os.environ.get("LAKEPACT_LONG") else 20.0
AIM: Final = 1.1
_ROOT: Final = Path(__file__).parents[3]
_LOOK_EVERY_S: Final = 0.5
_EXPIRED_WITHIN_S: Final = 30.0
_SETTINGS: Final = {
    "LAKEPACT_LOG_LEVEL": "warning",
    "LAKEPACT_MAX_BODY_BYTES": str(BODY_BYTES),
    # Memory that is put to use is no leak; with less of it, what leaks is seen sooner.
    "LAKEPACT_METADATA_CACHE_BYTES": str(4 << 20),
    "LAKEPACT_CACHED_BYTES": str(4 << 20),
}


@dataclass(frozen=True, slots=True)
class Storm:
    """What came of it."""

    statuses: Counter[str]
    """Of good requests."""

    bad: dict[str, Counter[str]]
    """Of the others, by kind."""

    wrong: list[str]
    """What must not have been answered, or not so."""

    resident_kib: list[int]
    """The server's memory, from the first moment to the last, at equal distances."""

    @property
    def classes(self) -> Counter[str]:
        """All answers, by class."""
        found: Counter[str] = Counter()
        for counted in (self.statuses, *self.bad.values()):
            for status, times in counted.items():
                found[f"{status[0]}xx" if status.isdigit() else status] += times
        return found

    def growth_since(self, third: int) -> float:
        """The last third against the first, in which the server fills what it remembers, or the second."""
        size = max(1, len(self.resident_kib) // 3)
        before = self.resident_kib[(third - 1) * size : third * size] or self.resident_kib
        return statistics.mean(self.resident_kib[-size:]) / statistics.mean(before)

    @property
    def slope_mib(self) -> float:
        """What it grows by in a minute, once it is warm: a line through the last two thirds."""
        warm = self.resident_kib[len(self.resident_kib) // 3 :]
        minutes = [number * _LOOK_EVERY_S / 60 for number in range(len(warm))]
        return statistics.linear_regression(minutes, warm).slope / 1024 if len(warm) > 1 else 0.0


def storm(folder: Path, seconds: float, *, requests: int = 1 << 60, clients: int = CLIENTS, seed: int = 1) -> Storm:
    """Run one, for so long or of so many requests, and prove that what was answered is true. What should not have been
    answered so is for the caller to judge."""
    root = create_token(folder, "root", "--admin").text
    with running_server(folder, "--auth", "tokens", "--grpc-port", "0", env=_SETTINGS) as server:
        operator = Operator(server.url, root)
        job = {**_furnished(operator, server, clients), "seconds": seconds, "requests": requests, "seed": seed}
        with _watched(server.process.pid) as resident_kib:
            ended = subprocess.run(
                [sys.executable, "-m", "tests.bench.storm.generator"],
                input=orjson.dumps(job),
                capture_output=True,
                cwd=_ROOT,
            )
        assert ended.returncode == 0, ended.stderr.decode()
        seen: dict[str, Any] = orjson.loads(ended.stdout)
        bad = {kind: Counter(counted) for kind, counted in seen["bad"].items()}
        came = Storm(Counter(seen["statuses"]), bad, seen["wrong"], resident_kib)
        if came.wrong:
            came.wrong.append(failure_in(server.log) or "the server's log tells of no failure")
        else:
            # Anew: the connection that was used before has been closed meanwhile, as nothing came over it.
            proof = Proof(Operator(server.url, root))
            proof.of_tables(seen["expected"])
            proof.of_keys(seen["applied"], seen["refused"])
            proof.of_the_server(server.log)
    return came


def _furnished(operator: Operator, server: Server, clients: int) -> dict[str, Any]:
    """Namespaces, names and rights; and what the clients have to know."""

    def token(name: str, **more: Any) -> dict[str, Any]:
        made: dict[str, Any] = operator.document("/v1/tokens", {"name": name, **more})
        return made

    def grant(holder: str, role: str, **on: Any) -> None:
        operator.document("/v1/main/grants", {"holder": holder, "role": role, **on})

    expired, revoked = token("expired", **{"expires-in-seconds": 1}), token("revoked")
    assert operator.send("DELETE", f"/v1/tokens/{revoked['id']}")[0] == 204
    names = [f"c{number}" for number in range(clients)]
    for name in ("secret", "shared", *names):
        operator.document("/v1/main/namespaces", {"namespace": [name]})
    for namespace, name in (("secret", "t"), ("shared", "t"), ("shared", "hot")):
        operator.document(f"/v1/main/namespaces/{namespace}/tables", {"name": name, "schema": SCHEMA})
    for name in names:
        grant(f"user:{name}", "create", on="namespace", namespace=[name])
    grant("everyone", "read", on="table", namespace=["shared"], name="t")
    grant("everyone", "write", on="table", namespace=["shared"], name="hot")
    grant("user:watcher", "read", on="warehouse")
    port = re.findall(r"^gRPC listens on 127\.0\.0\.1:(\d+)$", server.log.read_text(), re.MULTILINE)[-1]
    until = time.monotonic() + _EXPIRED_WITHIN_S
    while operator.send("GET", "/v1/whoami", token=expired["token"])[0] != 401:
        assert time.monotonic() < until, "a token does not expire"
        time.sleep(_LOOK_EVERY_S)
    place = urlsplit(server.url)
    return {
        "host": place.hostname,
        "ports": {"http": place.port, "grpc": int(port)},
        "tokens": [token(name)["token"] for name in names],
        "watcher": token("watcher")["token"],
        "dead_tokens": [expired["token"], revoked["token"]],
        "operations": _taking_bodies(operator.document("/openapi.json")),
        "transaction": operator.document("/v1/main/transactions", {"ttl-seconds": 3_600})["transaction-id"],
    }


def _taking_bodies(described: dict[str, Any]) -> list[tuple[str, str]]:
    """Method and path. Not pages; not the login of programs, which is a kind of its own; and not the beginning of a
    transaction, which asks for nothing."""
    return [
        (method.upper(), path)
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
        if "requestBody" in operation
        and path.startswith("/v1/")
        and not path.endswith(("/oauth/tokens", "/transactions"))
    ]


@contextmanager
def _watched(process: int) -> Iterator[list[int]]:
    """The resident memory of a process, looked at for as long as this lasts."""
    found: list[int] = []
    over = threading.Event()
    page_kib = os.sysconf("SC_PAGE_SIZE") // 1024

    def look() -> None:
        while True:
            found.append(int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page_kib)
            if over.wait(_LOOK_EVERY_S):
                return

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        over.set()
        watcher.join()


async def run() -> None:
    with tempfile.TemporaryDirectory(prefix="lakepact-bench-") as folder:
        came = await asyncio.to_thread(storm, Path(folder), SECONDS)
    good, bad = came.statuses.total(), sum(counted.total() for counted in came.bad.values())
    table(
        f"a storm: {CLIENTS} clients for {SECONDS:.0f} s, {good + bad:,} requests, one in {(good + bad) / bad:.0f} bad",
        ("", "requests", *sorted(came.classes)),
        [
            ("good", f"{good:,}", *_row([came.statuses], sorted(came.classes))),
            (f"bad, of {len(came.bad)} kinds", f"{bad:,}", *_row(list(came.bad.values()), sorted(came.classes))),
        ],
    )
    kib = came.resident_kib
    marks = [kib[0], kib[len(kib) // 3], kib[2 * len(kib) // 3], kib[-1]]
    table(
        "the server's resident memory (aim: flat)",
        ("", "start", "a third", "two", "end", "most", "a minute", "last third to first", "to second"),
        [
            (
                "MiB",
                *(f"{mark / 1024:.0f}" for mark in marks),
                f"{max(kib) / 1024:.0f}",
                f"{came.slope_mib:+.1f}",
                f"{came.growth_since(1):.2f}",
                against(came.growth_since(2), f"{AIM}", met=came.growth_since(2) <= AIM),
            )
        ],
    )
    for complaint in came.wrong[:20]:
        say(f"  {complaint}")
    assert not came.wrong and not came.classes["5xx"], "the storm has broken something"


def _row(counted: Sequence[Counter[str]], classes: Sequence[str]) -> list[str]:
    found = Storm(Counter(), {str(number): one for number, one in enumerate(counted)}, [], []).classes
    return [f"{found[one]:,}" for one in classes]
