"""An ASGI application called without a socket: what a client sends goes in as raw bytes, what it would see comes out.

    client = AsgiClient(service.asgi)
    answer = await client.send("GET", "/v1/config?warehouse=main")

The path is taken as it is written, percent-encodings included, as a server would hand it on. Nothing is retried, and
nothing is decoded on the way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import orjson

Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    """As they were spelled."""

    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)

    def header(self, name: str) -> str | None:
        """The first header of this name, in any case."""
        return next((value for found, value in self.headers if found.lower() == name.lower()), None)

    @property
    def error(self) -> dict[str, Any]:
        """What went wrong, in the form of the specification; checked, since clients rely on it."""
        document = self.json()
        assert set(document) == {"error"}, document
        error: dict[str, Any] = document["error"]
        assert isinstance(error["message"], str) and error["message"], error
        assert isinstance(error["type"], str) and error["type"], error
        assert error["code"] == self.status, error
        return error

    @property
    def refusal(self) -> tuple[int, str]:
        """Status and type: what a client decides by."""
        return self.status, self.error["type"]


class AsgiClient:
    def __init__(self, application: Application) -> None:
        self._application = application
        self.answered: list[Answer] = []
        """Every answer so far."""

    async def send(
        self,
        method: str,
        target: str,
        *,
        json: Any = _NOTHING,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        parts: Sequence[bytes] | None = None,
    ) -> Answer:
        """One request. `json` is encoded; `parts` is a body that arrives in pieces."""
        if json is not _NOTHING:
            body = orjson.dumps(json)
        path, _, query = target.partition("?")
        raw_headers = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        if parts is None:
            raw_headers.append((b"content-length", str(len(body)).encode()))
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "headers": raw_headers,
        }
        waiting = [body] if parts is None else list(parts)
        sent: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if not waiting:
                return {"type": "http.disconnect"}
            part = waiting.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(waiting)}

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        await self._application(scope, receive, send)
        start = next(message for message in sent if message["type"] == "http.response.start")
        answer = Answer(
            start["status"],
            tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]),
            b"".join(message.get("body", b"") for message in sent if message["type"] == "http.response.body"),
        )
        self.answered.append(answer)
        return answer
