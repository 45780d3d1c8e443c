"""The ASGI callable, called without a socket: bodies within bounds, answers as spelled, errors that leak nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lakepact.errors import InvalidRequest
from lakepact.server.asgi import Application, internal_error
from lakepact.server.http import Request, Response, error_response, json_response
from lakepact.server.metrics import Metrics
from lakepact.server.routing import Route, Router

LIMIT = 1_000


@dataclass
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        return next((value for found, value in self.headers if found == name), None)

    @property
    def error(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)["error"]
        return document


class World:
    def __init__(self, **given: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        self.metrics = Metrics()
        self.requests: list[Request] = []
        routes = [
            Route("POST", "/echo", "echo", self._echo),
            Route("GET", "/tables/{table}", "load", self._load),
            Route("HEAD", "/tables/{table}", "exists", self._load),
            Route("DELETE", "/tables/{table}", "drop", self._drop),
            Route("GET", "/broken", "broken", self._broken),
            Route("GET", "/refused", "refused", self._refused),
        ]
        given.setdefault("on_error", self._on_error)
        self.application = Application(
            Router(routes),
            metrics=self.metrics,
            max_body_bytes=LIMIT,
            log_request=self.lines.append,
            **given,
        )

    async def _echo(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(200, request.body)

    async def _load(self, request: Request) -> Response:
        self.requests.append(request)
        return json_response(
            {"table": request.params["table"]},
            headers=((b"ETag", b'"1"'), (b"X-Lakepact-Transaction", b"0197-7")),
        )

    async def _drop(self, request: Request) -> Response:
        return Response(204, b"this is not sent")

    async def _broken(self, request: Request) -> Response:
        raise ZeroDivisionError("the secret is 42")

    async def _refused(self, request: Request) -> Response:
        raise InvalidRequest("do it another way")

    def _on_error(self, error: Exception, request: Request) -> Response:
        if isinstance(error, InvalidRequest):
            return error_response(400, "BadRequestException", str(error))
        return internal_error(request.id)

    async def call(
        self,
        method: str,
        path: str,
        parts: Sequence[bytes] = (b"",),
        headers: Sequence[tuple[bytes, bytes]] = (),
        receive: Callable[[], Awaitable[dict[str, Any]]] | None = None,
        query: bytes = b"",
    ) -> Answer | None:
        messages = [
            {"type": "http.request", "body": part, "more_body": place < len(parts) - 1}
            for place, part in enumerate(parts)
        ]
        sent: list[Any] = []

        async def from_parts() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "headers": list(headers),
            "client": ("127.0.0.1", 4711),
        }
        await self.application(scope, receive or from_parts, send)
        if not sent:
            return None
        start, *bodies = sent
        return Answer(start["status"], start["headers"], b"".join(message.get("body", b"") for message in bodies))

    async def answer(self, *given: Any, **named: Any) -> Answer:
        answer = await self.call(*given, **named)
        assert answer is not None
        return answer

    def counted(self, operation: str, status_class: str) -> float | None:
        labels = {"operation": operation, "status_class": status_class}
        return self.metrics.registry.get_sample_value("lakepact_requests_total", labels)


async def test_an_answer_has_a_type_a_length_and_the_requests_id() -> None:
    world = World()
    answer = await world.answer("GET", "/tables/a%2Fb")
    assert json.loads(answer.body) == {"table": "a/b"}
    assert answer.header(b"content-type") == b"application/json"
    assert answer.header(b"content-length") == str(len(answer.body)).encode()
    assert answer.header(b"x-request-id") == world.requests[0].id.encode()


async def test_header_names_stay_as_spelled_even_if_the_server_lowers_them() -> None:
    answer = await World().answer("GET", "/tables/t")
    assert [name.lower() for name, value in answer.headers if value == b'"1"'] == [b"ETag"]


async def test_an_id_that_a_proxy_gave_is_kept_unless_it_is_odd() -> None:
    world = World()
    await world.call("GET", "/tables/t", headers=[(b"x-request-id", b"from-proxy.7")])
    await world.call("GET", "/tables/t", headers=[(b"x-request-id", b"a\nb")])
    ids = [request.id for request in world.requests]
    assert ids[0] == "from-proxy.7"
    assert "\n" not in ids[1]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("DELETE", 204)])
async def test_some_answers_have_no_body(method: str, status: int) -> None:
    answer = await World().answer(method, "/tables/t")
    assert (answer.status, answer.body) == (status, b"")
    assert answer.header(b"content-length") is None


async def test_an_empty_answer_has_a_length_and_no_type() -> None:
    answer = await World().answer("POST", "/echo")
    assert answer.header(b"content-length") == b"0"
    assert answer.header(b"content-type") is None


async def test_unknown_paths_and_wrong_methods_are_answered_in_the_specified_form() -> None:
    world = World()
    assert (await world.answer("GET", "/nowhere")).error["type"] == "NotFoundException"
    wrong = await world.answer("POST", "/tables/t")
    assert (wrong.status, wrong.error["code"], wrong.header(b"Allow")) == (405, 405, b"DELETE, GET, HEAD")
    odd = await world.answer("GET", "/tables/%ff")
    assert (odd.status, odd.error["type"]) == (400, "BadRequestException")
    assert world.counted("unmatched", "4xx") == 3


# --- bodies ----------------------------------------------------------------------------------------------------------


async def test_a_body_comes_in_any_number_of_parts() -> None:
    assert (await World().answer("POST", "/echo", [b"a", b"", b"bc"])).body == b"abc"
    assert (await World().answer("POST", "/echo", [b"x" * LIMIT])).body == b"x" * LIMIT


@pytest.mark.parametrize(
    ("parts", "headers"),
    [
        ([b"x" * (LIMIT + 1)], []),
        ([b"x" * LIMIT, b"x"], []),
        ([b"x" * LIMIT, b"x", *[b"x" * LIMIT] * 5], []),
        ([b"x" * LIMIT, b"x"], [(b"content-length", b"1001")]),
        ([], [(b"content-length", b"1000000000"), (b"expect", b"100-continue")]),
        ([gzip.compress(b"x" * (LIMIT + 1))], [(b"content-encoding", b"gzip")]),
        ([gzip.compress(b"x" * 900) * 2], [(b"content-encoding", b"gzip")]),
    ],
    ids=["one part", "two parts", "many parts", "it says so", "it asks first", "packed", "packed twice"],
)
async def test_a_body_beyond_the_bound_is_refused_by_the_settings_name(
    parts: list[bytes], headers: list[tuple[bytes, bytes]]
) -> None:
    world = World()
    answer = await world.answer("POST", "/echo", parts, headers)
    assert (answer.status, answer.error["type"]) == (413, "RequestTooLargeException")
    assert "max_body_bytes" in answer.error["message"]
    assert (b"connection", b"close") in answer.headers
    assert not world.requests


async def test_a_packed_body_is_unpacked() -> None:
    packed = gzip.compress(b"abc") + gzip.compress(b"def")
    for encoding in (b"gzip", b" GZIP ", b"x-gzip"):
        answer = await World().answer("POST", "/echo", [packed], [(b"content-encoding", encoding)])
        assert answer.body == b"abcdef"
    assert (await World().answer("POST", "/echo", [b"abc"], [(b"content-encoding", b"identity")])).body == b"abc"


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"plain", b"gzip"),
        (gzip.compress(b"abc", mtime=0)[:-4], b"gzip"),
        (gzip.compress(b"abc", mtime=0) + b"rubbish", b"gzip"),
        (b"abc", b"br"),
    ],
    ids=["not gzip", "cut off", "more behind it", "another encoding"],
)
async def test_a_body_that_is_not_packed_as_it_says_is_refused(body: bytes, encoding: bytes) -> None:
    answer = await World().answer("POST", "/echo", [body], [(b"content-encoding", encoding)])
    assert (answer.status, answer.error["type"]) == (400, "BadRequestException")


async def test_a_client_that_leaves_before_its_body_is_there_changes_nothing() -> None:
    world = World()
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"a", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    assert await world.call("POST", "/echo", receive=receive) is None
    assert not world.requests
    assert world.lines[0]["status"] == 499
    assert world.counted("echo", "4xx") == 1


async def test_a_body_that_does_not_arrive_in_time_is_given_up() -> None:
    world = World(body_deadline_s=0.01)
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await never.wait()
        raise AssertionError("unreachable")

    answer = await world.answer("POST", "/echo", receive=receive)
    assert answer.status == 408
    assert "request_deadline_s" in answer.error["message"]


# --- errors and lines ------------------------------------------------------------------------------------------------


async def test_an_error_nobody_foresaw_is_500_and_says_only_where_to_look() -> None:
    world = World()
    answer = await world.answer("GET", "/broken")
    assert (answer.status, answer.error["type"]) == (500, "InternalServerError")
    assert b"secret" not in answer.body
    assert b"Traceback" not in answer.body
    assert world.lines[0]["request_id"] in answer.error["message"]
    assert world.counted("broken", "5xx") == 1


async def test_an_error_that_cannot_even_be_explained_is_500_too() -> None:
    def on_error(error: Exception, request: Request) -> Response:
        raise error

    assert (await World(on_error=on_error).answer("GET", "/broken")).status == 500


async def test_a_refusal_is_what_on_error_makes_of_it() -> None:
    answer = await World().answer("GET", "/refused")
    assert (answer.status, answer.error["message"]) == (400, "do it another way")


async def test_every_request_leaves_one_line_and_one_count() -> None:
    world = World()
    await world.call("GET", "/tables/t")
    await world.call("GET", "/nowhere")
    first, second = world.lines
    assert first.pop("duration_ms") >= 0
    assert first.pop("request_id")
    assert first == {"method": "GET", "operation": "load", "status": 200, "transaction_id": "0197-7"}
    assert (second["operation"], second["path"]) == ("unmatched", "/nowhere")
    assert world.counted("load", "2xx") == 1
    assert world.metrics.registry.get_sample_value("lakepact_open_requests") == 0


# --- lifespan --------------------------------------------------------------------------------------------------------


async def lifespan(application: Application) -> list[str]:
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await application({"type": "lifespan"}, receive, send)
    return sent


async def test_the_hooks_run_at_the_beginning_and_at_the_end() -> None:
    done: list[str] = []

    async def startup() -> None:
        done.append("startup")

    async def shutdown() -> None:
        done.append("shutdown")

    sent = await lifespan(World(startup=startup, shutdown=shutdown).application)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert done == ["startup", "shutdown"]


async def test_a_hook_that_fails_is_told_to_the_server() -> None:
    async def startup() -> None:
        raise OSError("no disk")

    assert await lifespan(World(startup=startup).application) == ["lifespan.startup.failed"]


async def test_the_line_of_a_refusal_says_what_was_answered_to_whom() -> None:
    world = World()
    await world.call("GET", "/refused", query=b"secret=do-not-log-me")
    await world.call("GET", "/nowhere")
    await world.call("GET", "/tables/t")
    refused, unmatched, good = world.lines
    assert (refused["error_type"], refused["error"]) == ("BadRequestException", "do it another way")
    assert (refused["path"], refused["address"]) == ("/refused", "127.0.0.1")
    assert "do-not-log-me" not in str(refused)
    assert (unmatched["path"], unmatched["status"]) == ("/nowhere", 404)
    # What went well is as short as ever.
    assert not {"error", "error_type", "path", "address"} & good.keys()


async def test_what_is_no_error_of_ours_is_a_line_all_the_same() -> None:
    for body in (b"<html>no</html>", b'{"error"', b'{"error": "invalid_client", "error_description": "not known"}'):
        world = World(on_error=lambda error, request, body=body: Response(403, body))
        await world.call("GET", "/refused")
        [line] = world.lines
        assert (line["status"], line["path"]) == (403, "/refused")
    assert (line["error_type"], line["error"]) == ("invalid_client", "not known")
