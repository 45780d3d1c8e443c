"""A server that answers what a test says, and a machine on which no time passes unless the client pauses."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from lakepact.client.caller import Caller
from lakepact.client.http import Answer, Lost, NotSent
from lakepact.client.lake import Lake
from lakepact.client.machine import Retry
from lakepact.client.place import Place

Reply: TypeAlias = Answer | Exception


@dataclass(frozen=True)
class Sent:
    method: str
    target: str
    headers: Mapping[str, str]
    body: Any

    @property
    def key(self) -> str | None:
        return self.headers.get("Idempotency-Key")


@dataclass
class Script:
    """A transport. `reply` decides the answer to each request; without it the answers are taken one after another."""

    replies: list[Reply] = field(default_factory=list)
    reply: Callable[[Sent], Reply] | None = None
    sent: list[Sent] = field(default_factory=list)
    timeouts: list[float | None] = field(default_factory=list)
    """How long each request was waited for; None: as long as the transport waits by itself."""

    def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float | None = None,
    ) -> Answer:
        self.timeouts.append(timeout_s)
        request = Sent(method, target, dict(headers), None if body is None else json.loads(body))
        self.sent.append(request)
        answer = self.reply(request) if self.reply is not None else self.replies.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        pass


@dataclass
class StillMachine:
    now: float = 1_760_000_000.0
    pauses: list[float] = field(default_factory=list)
    drawn: int = 0

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic_s(self) -> float:
        return self.now

    def chance(self) -> float:
        return 0.5

    def bits(self, count: int) -> int:
        self.drawn += 1
        return self.drawn

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(0.001)


LOST = Lost("the connection was lost")
NOT_SENT = NotSent("no connection")
JSON = {"content-type": "application/json"}
OK = Answer(200, b"{}", JSON)
BUSY = Answer(503, b'{"error": {"message": "held", "type": "ServiceUnavailableException"}}', {"retry-after": "2"})


def document(body: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body).encode(), JSON)


def refusal(status: int, type: str, message: str = "no", **details: Any) -> Answer:
    return document({"error": {"message": message, "type": type, "code": status, **details}}, status)


def caller(script: Script, machine: StillMachine | None = None, retry: Retry | None = None) -> Caller:
    return Caller(script, machine or StillMachine(), prefix="main", retry=retry)


def lake(script: Script, machine: StillMachine | None = None) -> Lake:
    return Lake(caller(script, machine), Place("http://lake.test", "main"))


def transaction(id: str, state: str = "open", **more: Any) -> dict[str, Any]:
    """A transaction as the server shows it."""
    return {
        "transaction-id": id,
        "state": state,
        "isolation": "serializable",
        "read-only": False,
        "warehouse": f"main@{id}",
        "prefix": f"main@{id}",
        "created-at": "2026-01-01T00:00:00.000Z",
        "expires-at": "2026-01-01T00:10:00.000Z",
        "decided-at": None,
        "properties": {},
        **more,
    }
