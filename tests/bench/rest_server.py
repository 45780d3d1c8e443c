"""`python -m tests.bench.rest_server SETTINGS`: the catalog server, and beside it a bare handler on the same server.

Below `/bare/` a request is answered by three lines of ASGI with bytes that were put there before: what uvicorn alone
can do with the same answer. Everything else goes to Lakepact as it is.

With the setting `by_query` the server believes what the query says of who asks: `?as=eve`. Without it, or with nobody
named, everybody may do everything: so one server shows what rights cost. With `asking`, settings of a second service,
whoever sends an Authorization header is answered by that one: so one process shows what it costs to ask, for two that
are the same differ by a tenth.
"""

from __future__ import annotations

import json
import socket
import sys
from contextlib import AsyncExitStack
from typing import Any

import uvicorn
import uvloop

from lakepact.access import ANYONE, Principal
from lakepact.server import logs
from lakepact.server.app import build
from lakepact.server.asgi import Scope
from lakepact.server.heads import heads_within
from lakepact.server.http import Headers
from lakepact.server.routing import Route
from lakepact.server.run import KEEP_ALIVE_S, bind, url_of
from lakepact.settings import Settings


class WithBareHandler:
    def __init__(self, lakepact: Any) -> None:
        self._lakepact = lakepact
        self._bodies: dict[str, bytes] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/bare/"):
            await self._lakepact(scope, receive, send)
        elif scope["method"] == "PUT":
            await self._keep(scope["path"], receive, send)
        else:
            body = self._bodies[scope["path"]]
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    async def _keep(self, path: str, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self._bodies[path] = body
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


class ByHeader:
    def __init__(self, plain: Any, asking: Any) -> None:
        self._plain = plain
        self._asking = asking

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        named = scope["type"] == "http" and any(name == b"authorization" for name, _ in scope["headers"])
        await (self._asking if named else self._plain)(scope, receive, send)


_PEOPLE = {"": ANYONE}


async def by_query(route: Route, scope: Scope, headers: Headers) -> Principal:
    query = scope["query_string"].decode()
    name = query.partition("as=")[2].partition("&")[0]
    if name not in _PEOPLE:
        _PEOPLE[name] = Principal(name, groups=frozenset({"readers", "writers"}))
    return _PEOPLE[name]


async def main(given: dict[str, Any]) -> None:
    admit = by_query if given.pop("by_query", False) else None
    asking = given.pop("asking", None)
    settings = Settings.load(host="127.0.0.1", port=0, log_level="warning", **given)
    logs.configure(settings.log_level)
    bound = bind(settings.host, settings.port)
    async with AsyncExitStack() as services:
        service = await build(settings, admit=admit)
        services.push_async_callback(service.close)
        asgi: Any = service.asgi
        if asking is not None:
            second = await build(Settings.load(host="127.0.0.1", port=0, log_level="warning", **asking))
            services.push_async_callback(second.close)
            asgi = ByHeader(asgi, second.asgi)
        await _serve(asgi, bound, settings)


async def _serve(asgi: Any, bound: socket.socket, settings: Settings) -> None:
    config = uvicorn.Config(
        WithBareHandler(asgi),
        http=heads_within(settings.max_head_bytes, settings.request_deadline_s, idle_s=KEEP_ALIVE_S),
        ws="none",
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE_S,
    )
    print(url_of(bound, ""), flush=True)
    await uvicorn.Server(config).serve(sockets=[bound])


if __name__ == "__main__":
    uvloop.run(main(json.loads(sys.argv[1])))
