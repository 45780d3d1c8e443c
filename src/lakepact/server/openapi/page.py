"""The two routes: the description for programs, and the page for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import Final

import orjson

from lakepact.server.http import Request, Response
from lakepact.server.openapi.document import document_of
from lakepact.server.routing import Handler, Route

_JSON: Final = ((b"Content-Type", b"application/json"),)
_HTML: Final = (
    (b"Content-Type", b"text/html; charset=utf-8"),
    # The page asks this server for the description, and nobody for anything else.
    (
        b"Content-Security-Policy",
        b"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'",
    ),
)


def docs_routes(routes: Sequence[Route], *, base_path: str = "", open: bool = True) -> list[Route]:
    """The routes that describe these routes, and themselves."""

    @cache
    def description() -> bytes:
        return orjson.dumps(document_of([*routes, *ours], base_path=base_path))

    @cache
    def page() -> bytes:
        return files("lakepact.server.openapi").joinpath("page.html").read_bytes()

    ours = [
        Route("GET", "/openapi.json", "openapi", _fixed(description, _JSON), open=open),
        Route("GET", "/docs", "docs", _fixed(page, _HTML), open=open),
    ]
    return ours


def _fixed(body: Callable[[], bytes], headers: tuple[tuple[bytes, bytes], ...]) -> Handler:
    """Always this answer, made when somebody asks for it first: a server starts without."""

    async def answer(request: Request) -> Response:
        return Response(200, body(), headers)

    return answer
