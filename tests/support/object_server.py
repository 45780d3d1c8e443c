"""An object server for tests: conditional puts are atomic, and it fails exactly as told.

The dialects (`s3_strict`, `gcs_strict`) say what requests mean. This module owns the objects, the HTTP server on its
own thread, and the faults. Every request is applied in one step under a lock, so races are decided here as strictly as
at the real clouds. A test adds faults, acts, and looks at `requests` and `objects`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from enum import Enum, auto
from typing import ClassVar
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from aiohttp import web

from tests.support.waiting import PATIENCE_S


class Kind(Enum):
    LOST = auto()
    """The connection drops before the request is applied."""

    ANSWER_LOST = auto()
    """The request is applied, and the connection drops instead of an answer."""

    STATUS = auto()
    """The request is not applied; the answer is `status`."""

    STATUS_AFTER = auto()
    """The request is applied; the answer is `status` all the same."""

    LATE = auto()
    """No answer comes. The request is held until `apply_late`, however long ago its client gave up."""

    PASSED = auto()
    """Nothing goes wrong; `then` is done after the answer was made."""

    TRUNCATED = auto()
    """Half of the answer's body is sent, then the connection drops."""


@dataclass(slots=True)
class Fault:
    """What happens to the next `times` requests of this method whose object name contains `name`."""

    kind: Kind
    method: str = "PUT"
    name: str = ""
    times: int = 1
    status: int = 503
    code: str = "ScriptedFault"
    then: Callable[[], object] | None = None
    """Done right after the fault: what happens at the server while the client recovers."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    bucket: str
    name: str
    """Empty if the request is about the bucket itself."""

    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Header names in lower case."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredObject:
    data: bytes
    e_tag: str
    generation: int
    modified_s: float
    headers: Mapping[str, str]


class ObjectServer:
    """Objects in memory behind HTTP. Subclasses are dialects: they turn a request into an answer."""

    dialect: ClassVar[str]

    def __init__(self, *, buckets: tuple[str, ...] = ("lake",)) -> None:
        self.buckets = set(buckets)
        self.objects: dict[tuple[str, str], StoredObject] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.latency_s = 0.0
        self.page_size = 1_000
        self.ignored_conditions: set[str] = set()
        """Header names whose conditions are accepted and not checked, as some servers do."""

        self.listing_key: Callable[[str], str] = str
        """What listings are sorted by: the name itself, unless a test imitates a provider that has another order."""

        self.url = ""
        self._generation = 1_700_000_000_000_000
        self._lock = threading.RLock()
        self._arrived = threading.Condition(self._lock)
        self._late: list[Request] = []
        self._stopping: asyncio.Event | None = None

    def apply(self, request: Request) -> Answer:
        """What the request does and what is answered. Called with the lock held."""
        raise NotImplementedError

    # --- for tests ---------------------------------------------------------------------------------------------------

    def sent(self, method: str, name: str = "") -> list[Request]:
        """The requests of this method that have arrived for names that contain `name`."""
        with self._lock:
            return [request for request in self.requests if request.method == method and name in request.name]

    def wait_for_late(self, count: int = 1, timeout_s: float = PATIENCE_S) -> None:
        """Block until this many requests are being held."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._late) >= count, timeout_s):
                raise TimeoutError(f"{len(self._late)} of {count} late requests arrived in {timeout_s} s")

    def apply_late(self) -> list[Answer]:
        """Apply the held requests now, in order of arrival. Their clients have long gone."""
        with self._lock:
            late, self._late = self._late, []
            return [self.apply(request) for request in late]

    @contextmanager
    def running(self) -> Iterator[ObjectServer]:
        """Serve on a free port of the loopback interface, on a thread of its own."""
        ready = threading.Event()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(
            target=lambda: loop.run_until_complete(self._serve(ready)), name=f"{self.dialect}-server", daemon=True
        )
        thread.start()
        if not ready.wait(PATIENCE_S):
            raise TimeoutError(f"the {self.dialect} server did not start")
        try:
            yield self
        finally:
            if self._stopping is not None:
                loop.call_soon_threadsafe(self._stopping.set)
            thread.join(PATIENCE_S)
            loop.close()

    # --- for dialects ------------------------------------------------------------------------------------------------

    def store(self, request: Request, e_tag: str) -> StoredObject:
        self._generation += 1
        kept = {name: value for name, value in request.headers.items() if name in ("content-type", "cache-control")}
        stored = StoredObject(request.body, e_tag, self._generation, time.time(), kept)
        self.objects[request.bucket, request.name] = stored
        return stored

    def conditions(self, request: Request, header: str) -> str | None:
        return None if header in self.ignored_conditions else request.headers.get(header)

    def read(self, request: Request, stored: StoredObject, extra: Mapping[str, str]) -> Answer:
        headers = {
            **stored.headers,
            **extra,
            "ETag": stored.e_tag,
            "Last-Modified": formatdate(stored.modified_s, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        wanted = request.headers.get("range")
        if wanted is None:
            return Answer(200, headers, stored.data)
        first, last = (int(part) for part in wanted.removeprefix("bytes=").split("-"))
        part = stored.data[first : last + 1]
        span = f"bytes {first}-{first + len(part) - 1}/{len(stored.data)}"
        return Answer(206, {**headers, "Content-Range": span}, part)

    def listing(self, request: Request) -> Answer:
        """ListObjectsV2, which Google's XML API speaks as well: flat, in order, page by page."""
        prefix = request.query.get("prefix", "")
        begin = request.query.get("continuation-token") or request.query.get("start-after", "")
        size = min(int(request.query.get("max-keys", self.page_size)), self.page_size)
        if "delimiter" in request.query:
            return self.error(501, "NotImplemented")
        key = self.listing_key
        names = sorted((name for bucket, name in self.objects if bucket == request.bucket), key=key)
        matching = [name for name in names if name.startswith(prefix) and (not begin or key(name) > key(begin))]
        page, more = matching[:size], len(matching) > size
        contents = "".join(self._contents(name, self.objects[request.bucket, name]) for name in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return Answer(
            200,
            {"Content-Type": "application/xml"},
            f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>{request.bucket}</Name>'
            f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount><MaxKeys>{size}</MaxKeys>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{contents}</ListBucketResult>".encode(),
        )

    @staticmethod
    def _contents(name: str, stored: StoredObject) -> str:
        modified = datetime.fromtimestamp(stored.modified_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        return (
            f"<Contents><Key>{escape(name)}</Key><LastModified>{modified}</LastModified>"
            f"<ETag>{escape(stored.e_tag, {chr(34): '&quot;'})}</ETag><Size>{len(stored.data)}</Size></Contents>"
        )

    @staticmethod
    def error(status: int, code: str) -> Answer:
        body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code></Error>'
        return Answer(status, {"Content-Type": "application/xml"}, body.encode())

    # --- the server --------------------------------------------------------------------------------------------------

    async def _serve(self, ready: threading.Event) -> None:
        self._stopping = asyncio.Event()
        application = web.Application(client_max_size=256 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        ready.set()
        await self._stopping.wait()
        await runner.cleanup()

    async def _handle(self, raw: web.Request) -> web.StreamResponse:
        request = await self._parse(raw)
        with self._lock:
            self.requests.append(request)
            fault = self._fault_for(request)
            if fault is not None and fault.kind is Kind.LATE:
                self._late.append(request)
                self._arrived.notify_all()
        if self.latency_s:
            await asyncio.sleep(self.latency_s)
        if fault is None:
            return _response(raw, self._apply(request))
        try:
            return await self._fail(raw, request, fault)
        finally:
            if fault.then is not None:
                fault.then()

    async def _fail(self, raw: web.Request, request: Request, fault: Fault) -> web.StreamResponse:
        match fault.kind:
            case Kind.LOST:
                return _drop(raw)
            case Kind.ANSWER_LOST:
                self._apply(request)
                return _drop(raw)
            case Kind.STATUS:
                return _response(raw, self.error(fault.status, fault.code))
            case Kind.STATUS_AFTER:
                self._apply(request)
                return _response(raw, self.error(fault.status, fault.code))
            case Kind.LATE:
                assert self._stopping is not None
                await self._stopping.wait()
                return _drop(raw)
            case Kind.PASSED:
                return _response(raw, self._apply(request))
            case Kind.TRUNCATED:
                return await _truncated(raw, self._apply(request))

    @staticmethod
    async def _parse(raw: web.Request) -> Request:
        path, _, query = raw.raw_path.partition("?")
        bucket, _, name = path.removeprefix("/").partition("/")
        return Request(
            method=raw.method,
            bucket=unquote(bucket),
            name=unquote(name),
            query=dict(parse_qsl(query, keep_blank_values=True)),
            headers={name.lower(): value for name, value in raw.headers.items()},
            body=await raw.read(),
        )

    def _apply(self, request: Request) -> Answer:
        with self._lock:
            if request.bucket not in self.buckets:
                return self.error(404, "NoSuchBucket")
            return self.apply(request)

    def _fault_for(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.times > 0 and fault.method == request.method and fault.name in request.name:
                fault.times -= 1
                return fault
        return None


def _response(raw: web.Request, answer: Answer) -> web.Response:
    headers = dict(answer.headers)
    if raw.method == "HEAD":
        headers["Content-Length"] = str(len(answer.body))
    return web.Response(status=answer.status, headers=headers, body=answer.body)


def _drop(raw: web.Request) -> web.Response:
    if raw.transport is not None:
        raw.transport.abort()
    return web.Response()


async def _truncated(raw: web.Request, answer: Answer) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    response.content_length = len(answer.body)
    await response.prepare(raw)
    await response.write(answer.body[: len(answer.body) // 2])
    if raw.transport is not None:
        raw.transport.close()
    return response
