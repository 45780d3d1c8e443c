"""The ASGI callable: bodies in, answers out, one log line and one count a request.

Reads a request whole, within bounds, before anybody acts on it; finds its handler; sends the answer. There is no stack
of middleware: what every request pays for is in `__call__`, and `make bench` compares it with a bare handler.

A handler raises to refuse. What its error means is for `on_error` to say; an error that `on_error` answers with 500 is
logged with its traceback, and the client gets neither the traceback nor its text. A client that goes away while a
handler works does not stop it: whether a commit happens must not hang on a connection.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

import structlog

from lakepact.access import ANYONE, Principal
from lakepact.bounded_input import BadGzip, TooLarge, gunzip
from lakepact.catalog.idempotency import hash_body
from lakepact.errors import InvalidRequest, OutOfMemory
from lakepact.limits import LARGE_INPUT_BYTES, LimitExceeded
from lakepact.runtime import off_loop
from lakepact.server.health import Draining
from lakepact.server.http import (
    KEY_HEADER,
    TIMEOUT_HEADER,
    Headers,
    LargeBody,
    Request,
    Response,
    error_of,
    error_response,
    headers_of,
    idempotency_key,
    parse_body,
    timeout_s,
)
from lakepact.server.metrics import UNMATCHED, Metrics
from lakepact.server.routing import BadPath, Match, Route, Router, UnknownPath, WrongMethod

Scope: TypeAlias = Mapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
OnError: TypeAlias = Callable[[Exception, Request], Response]
Hook: TypeAlias = Callable[[], Awaitable[None]]
Admit: TypeAlias = Callable[[Route, Scope, Headers], Principal | Awaitable[Principal | Response]]
"""Who asks for this, at once if that is known already, or what they are told instead of an answer."""

Refuse: TypeAlias = Callable[[Response, Scope, Headers], Response]
"""How a request is refused that no handler has seen: people are told in another way than programs."""

BAD_REQUEST: Final = "BadRequestException"
TRANSACTION_HEADER: Final = b"X-Lakepact-Transaction"
OPEN_BODY_BYTES: Final = 65_536
"""What is read of a stranger: the forms that one logs in with are far smaller."""

CLIENT_GONE: Final = 499
"""For logs and metrics only: nobody was there to receive an answer."""

_REFUSED: Final = 400
_MOST_OF_A_PATH: Final = 300
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_WITHOUT_ANSWER_BODY: Final = frozenset({204, 304})
_KEY_HEADER: Final = KEY_HEADER.lower().encode()
_TIMEOUT_HEADER: Final = TIMEOUT_HEADER.lower().encode()
_PAGES: Final = "/ui/"
"""Where bodies are forms. All others are JSON, whatever their Content-Type says."""

_PIECE_BYTES: Final = 1 << 18
_CLOSE: Final = ((b"Connection", b"close"),)
_FOREIGN_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_log = structlog.get_logger(__name__)


class _AsSpelled(bytes):
    """A header name that stays as it is spelled.

    uvicorn sends every name in lower case, which HTTP allows; but Iceberg's Java client looks for `ETag` and does not
    find `etag`. This name's lower case is itself.
    """

    __slots__ = ()

    def lower(self) -> bytes:
        return self


class _Refused(Exception):
    """The request is answered before a handler has seen it."""

    def __init__(self, response: Response) -> None:
        self.response = response


class _ClientGone(Exception):
    """Nobody is there to receive an answer."""


class Application:
    def __init__(
        self,
        router: Router,
        *,
        metrics: Metrics,
        on_error: OnError,
        max_body_bytes: int,
        body_deadline_s: float = 30.0,
        log_request: Callable[[dict[str, Any]], None] | None = None,
        startup: Hook | None = None,
        shutdown: Hook | None = None,
        admit: Admit | None = None,
        refuse: Refuse | None = None,
        draining: Draining | None = None,
    ) -> None:
        """Without `admit` nobody is asked for a name."""
        self._draining = draining or Draining()
        self._refuse = refuse
        self._admit = admit
        self._router = router
        self._metrics = metrics
        metrics.operations_are(route.operation for route in router.routes)
        self._on_error = on_error
        self._max_body_bytes = max_body_bytes
        self._body_deadline_s = body_deadline_s
        self._log_request = log_request
        self._startup = startup
        self._shutdown = shutdown
        # Unique enough to find a line in a log, and much cheaper than a UUID.
        self._process = secrets.token_hex(4)
        self._count = itertools.count(1)
        self._names: dict[bytes, bytes] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        began = time.perf_counter()
        self._metrics.request_began()
        operation, status = UNMATCHED, 500
        headers = headers_of(scope["headers"])
        request_id = self._id(headers)
        response: Response | None = None
        principal = ANYONE
        try:
            try:
                match = self._matched(scope)
                operation = match.route.operation
                # Before the body is read: strangers send none that we keep.
                if self._admit is not None:
                    asked = self._admit(match.route, scope, headers)
                    if not isinstance(asked, Principal):
                        asked = await self._admitted(asked, match, scope, headers, request_id)
                    principal = asked
                response = await self._handled(match, scope, headers, receive, request_id, principal)
            except _Refused as refused:
                response = refused.response if self._refuse is None else self._refuse(refused.response, scope, headers)
            except _ClientGone:
                status = CLIENT_GONE
                return
            status = response.status
            await self._answer(response, scope["method"], request_id, send)
        finally:
            seconds = time.perf_counter() - began
            self._metrics.request_ended(operation, status, seconds)
            if self._log_request:
                self._log_request(_line(scope, operation, status, seconds, request_id, response, principal))

    # --- the request ---

    def _id(self, headers: Headers) -> str:
        foreign = headers.get(b"x-request-id")
        if foreign is not None and _FOREIGN_ID.fullmatch(foreign):
            return foreign.decode()
        return f"{self._process}-{next(self._count):x}"

    def _matched(self, scope: Scope) -> Match:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        try:
            return self._router.match(scope["method"], raw_path)
        except UnknownPath as error:
            raise _Refused(error_response(404, "NotFoundException", str(error))) from None
        except WrongMethod as error:
            allow = ((b"Allow", error.allowed.encode()),)
            raise _Refused(error_response(405, "UnsupportedOperationException", str(error), allow)) from None
        except BadPath as error:
            raise _Refused(error_response(400, BAD_REQUEST, str(error))) from None

    async def _admitted(
        self, asked: Awaitable[Principal | Response], match: Match, scope: Scope, headers: Headers, request_id: str
    ) -> Principal:
        try:
            found = await asked
        except Exception as error:
            request = _request(match, scope, headers, b"", request_id, ANYONE)
            raise _Refused(self._explained(error, request, match.route.operation)) from None
        if isinstance(found, Response):
            raise _Refused(found)
        return found

    async def _handled(
        self,
        match: Match,
        scope: Scope,
        headers: Headers,
        receive: Receive,
        request_id: str,
        principal: Principal,
    ) -> Response:
        body, large, waits_until_s = b"", None, None
        try:
            asked = headers.get(_TIMEOUT_HEADER)
            if asked is not None:
                # Before the body is read: the client waits meanwhile.
                waits_until_s = time.monotonic() + timeout_s(asked.decode("latin-1"))
            if scope["method"] in _WITH_BODY:
                key = headers.get(_KEY_HEADER)
                if key is not None:
                    # A key that cannot be one is refused before its body is read.
                    idempotency_key(key.decode("latin-1"))
                most = min(OPEN_BODY_BYTES, self._max_body_bytes) if match.route.open else self._max_body_bytes
                body = await self._body(headers, receive, most)
                if len(body) > LARGE_INPUT_BYTES and not match.route.template.startswith(_PAGES):
                    large = await off_loop(_large_body, body, keyed=key is not None)
        except (InvalidRequest, OutOfMemory) as error:
            request = _request(match, scope, headers, b"", request_id, principal)
            return self._explained(error, request, match.route.operation)
        request = _request(match, scope, headers, body, request_id, principal, large, waits_until_s)
        try:
            return await match.route.handler(request)
        except Exception as error:
            return self._explained(error, request, match.route.operation)

    def _explained(self, error: Exception, request: Request, operation: str) -> Response:
        try:
            response = self._on_error(error, request)
        except Exception as worse:
            _log.error("an error could not be explained", request_id=request.id, exc_info=worse)
            response = internal_error(request.id)
        if response.status == 500:
            _log.error("a request failed", operation=operation, request_id=request.id, exc_info=error)
        return response

    # --- its body ---

    async def _body(self, headers: Headers, receive: Receive, most: int) -> bytes:
        try:
            async with asyncio.timeout(self._body_deadline_s):
                body = await self._read(headers, receive, most)
        except TimeoutError:
            text = f"the body did not arrive within {self._body_deadline_s:g} s (request_deadline_s); send it again"
            raise _Refused(error_response(408, BAD_REQUEST, text, _CLOSE)) from None
        encoding = headers.get(b"content-encoding")
        return body if encoding is None else await self._unpacked(body, encoding, most)

    async def _read(self, headers: Headers, receive: Receive, most: int) -> bytes:
        if int(headers.get(b"content-length", 0)) > most:
            if b"expect" not in headers:
                await self._let_go(receive, most)
            raise self._too_large(most)
        whole = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGone
            part = message.get("body", b"")
            more = message.get("more_body", False)
            if len(whole) + len(part) > most:
                if more:
                    await self._let_go(receive, most)
                raise self._too_large(most)
            if not more and not whole:
                return bytes(part)
            # Into one buffer: a client may send its body in millions of parts.
            whole += part
            if not more:
                return bytes(whole)

    async def _let_go(self, receive: Receive, left: int) -> None:
        """Read on without keeping it, for a while: most clients look at the answer only once all is sent."""
        while left > 0:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise _ClientGone
            left -= len(message.get("body", b""))
            if not message.get("more_body", False):
                return

    def _too_large(self, most: int) -> _Refused:
        text = f"the body is larger than {most:,} bytes, and nobody sends that much here"
        if most == self._max_body_bytes:
            text = (
                f"the body is larger than {most:,} bytes (max_body_bytes). Send less in one request, or have the "
                f"setting raised"
            )
        return _Refused(error_response(413, "RequestTooLargeException", text, _CLOSE))

    async def _unpacked(self, body: bytes, encoding: bytes, most: int) -> bytes:
        name = encoding.strip().lower()
        if name in (b"identity", b""):
            return body
        if name not in (b"gzip", b"x-gzip"):
            text = f"Content-Encoding {encoding.decode('latin-1')[:40]!r} is not understood; send gzip or none"
            raise _Refused(error_response(400, BAD_REQUEST, text))
        try:
            if len(body) <= LARGE_INPUT_BYTES:
                # A few bytes may stand for many, which only decompressing shows.
                with suppress(TooLarge):
                    return gunzip(body, min(LARGE_INPUT_BYTES, most), "the body")
            return await off_loop(gunzip, body, most, "the body")
        except TooLarge:
            raise self._too_large(most) from None
        except BadGzip as error:
            text = f"the body is not valid gzip, as Content-Encoding says it is: {error}"
            raise _Refused(error_response(400, BAD_REQUEST, text)) from None
        except LimitExceeded as error:
            raise _Refused(error_response(400, BAD_REQUEST, str(error))) from None

    # --- the answer ---

    async def _answer(self, response: Response, method: str, request_id: str, send: Send) -> None:
        body, parts = response.body, response.parts
        headers: list[tuple[bytes, bytes]] = []
        if method == "HEAD" or response.status in _WITHOUT_ANSWER_BODY:
            body, parts = b"", ()
        else:
            if (body or parts) and not any(name.lower() == b"content-type" for name, _ in response.headers):
                headers.append((b"content-type", b"application/json"))
            # In lower case: uvicorn must recognise it.
            headers.append((b"content-length", b"%d" % (sum(map(len, parts)) if parts else len(body))))
        headers.append((b"x-request-id", request_id.encode()))
        for name, value in response.headers:
            headers.append((self._names.get(name) or self._spelled(name), value))
        if self._draining.asked:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        if parts or len(body) > _PIECE_BYTES:
            # Piece by piece, as the client reads: what is handed over at once is held in a buffer of the connection.
            for piece in _pieces(parts or (body,)):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            body = b""
        await send({"type": "http.response.body", "body": body})

    def _spelled(self, name: bytes) -> bytes:
        # Hop-by-hop headers are for the server to understand, and it knows them in lower case.
        known = name.lower() if name.lower() in (b"connection", b"transfer-encoding") else _AsSpelled(name)
        # Names come from code, not from clients, so there are only a few.
        self._names[name] = known
        return known

    # --- the rest of ASGI ---

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            raise RuntimeError(f"this application does not speak {scope['type']}")
        for stage, hook in (("startup", self._startup), ("shutdown", self._shutdown)):
            message = await receive()
            assert message["type"] == f"lifespan.{stage}", message["type"]
            try:
                if hook is not None:
                    await hook()
            except Exception as error:
                _log.error(f"{stage} failed", exc_info=error)
                await send({"type": f"lifespan.{stage}.failed", "message": str(error)})
                return
            await send({"type": f"lifespan.{stage}.complete"})


def _request(
    match: Match,
    scope: Scope,
    headers: Headers,
    body: bytes,
    request_id: str,
    principal: Principal,
    large: LargeBody | None = None,
    waits_until_s: float | None = None,
) -> Request:
    client = scope.get("client")
    return Request(
        method=scope["method"],
        raw_path=match.raw_path,
        params=match.params,
        segments=match.segments,
        query_string=scope["query_string"].decode("latin-1"),
        headers=headers,
        body=body,
        id=request_id,
        principal=principal,
        address=client[0] if client else "",
        inside=match.inside,
        waits_until_s=waits_until_s,
        large_body=large,
    )


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts of a body, cut and joined to pieces of about one size."""
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        for start in range(0, len(part), _PIECE_BYTES):
            piece = part[start : start + _PIECE_BYTES]
            waiting.append(piece)
            size += len(piece)
            if size >= _PIECE_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _large_body(body: bytes, *, keyed: bool) -> LargeBody:
    """Parse a large body, and hash it if the request has an Idempotency-Key. For a worker thread."""
    document = parse_body(body)
    return LargeBody(document, hash_body(document) if keyed else None)


def _line(
    scope: Scope,
    operation: str,
    status: int,
    seconds: float,
    request_id: str,
    response: Response | None,
    principal: Principal,
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "method": scope["method"],
        "operation": operation,
        "status": status,
        "duration_ms": round(seconds * 1000, 2),
        "request_id": request_id,
    }
    if principal.name is not None:
        fields["principal"] = principal.name
    if status >= _REFUSED:
        fields |= _refusal(scope, response)
    for name, value in response.headers if response is not None else ():
        if name == TRANSACTION_HEADER:
            fields["transaction_id"] = value.decode("latin-1")
    return fields


def _refusal(scope: Scope, response: Response | None) -> dict[str, Any]:
    """What one needs to find out why. Not the query, nor anything that was sent: a secret might be in them."""
    client = scope.get("client")
    where = {"path": scope["path"][:_MOST_OF_A_PATH], "address": client[0] if client else None}
    return where if response is None else {**where, **error_of(response)}


def internal_error(request_id: str) -> Response:
    """What a client learns of an error that nobody foresaw: where in the log it is."""
    text = f"the server failed; its log has the reason under request id {request_id}"
    return error_response(500, "InternalServerError", text)
