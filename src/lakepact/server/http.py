"""Requests and responses as plain values, so that a handler is a function that anything can call.

Knows nothing of ASGI, of sockets or of what a request means. What is costly and not always wanted (the query, the
headers, the body as JSON) is taken apart when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Final, ParamSpec, TypeAlias, TypeVar
from urllib.parse import parse_qsl

import orjson

from lakepact.access import ANYONE, Principal
from lakepact.bounded_input import parse_request
from lakepact.errors import InvalidRequest, OutOfMemory, short_message
from lakepact.kernel.identity import TransactionId, parse_transaction_id
from lakepact.runtime import off_loop

T = TypeVar("T")
P = ParamSpec("P")

Headers: TypeAlias = Mapping[bytes, bytes]
"""By name in lower case. If a name comes twice, the first counts."""

KEY_HEADER: Final = "Idempotency-Key"
TIMEOUT_HEADER: Final = "X-Lakepact-Timeout-Ms"
_MOST_TIMEOUT_MS: Final = 86_400_000
_KEY_CHARACTERS: Final = 36
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_MOST_QUERY_FIELDS: Final = 100
MOST_LOGGED: Final = 1_000
"""Characters of a message in a line of the log."""


class BadBody(InvalidRequest):
    """The body of a request is not the JSON it should be."""

    type: ClassVar[str] = "bad-body"


class BadQuery(InvalidRequest):
    """The query of a request cannot be read."""

    type: ClassVar[str] = "bad-query"


@dataclass(frozen=True, slots=True)
class LargeBody:
    """A large body, parsed and hashed in a worker thread."""

    document: Any
    hashed: Any = None
    """The state of the request hash once it has covered the body; None if the request has no Idempotency-Key."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    raw_path: str
    """The path as it was sent, still percent-encoded, below the base path and below a transaction's base URI."""

    params: Mapping[str, str]
    """What the route's template names, decoded: one text for one segment, slashes included."""

    segments: tuple[str, ...]
    """The segments of the raw path, not decoded."""

    query_string: str
    headers: Headers
    body: bytes
    id: str
    """The request's id, for logs and for the `X-Request-Id` of the answer."""

    principal: Principal = ANYONE
    """Who sent it."""

    address: str = ""
    """Where it came from: a client, or the proxy in front of us."""

    inside: str | None = None
    """The transaction whose base URI it was sent to: `<warehouse>@<id>`, or `<id>` for the default warehouse."""

    waits_until_s: float | None = None
    """Until when the client waits for the response, by the monotonic clock. None: it has not said."""

    large_body: LargeBody | None = None
    """What a worker thread made of a body that is too large for the event loop."""

    @property
    def query(self) -> Mapping[str, str]:
        """The query's fields. If one is given twice, the first counts."""
        return _query(self.query_string) if self.query_string else _NOTHING

    def header(self, name: str) -> str | None:
        """The first header of this name, in any case."""
        value = self.headers.get(_on_the_wire(name))
        return value.decode("latin-1") if value is not None else None

    def json(self) -> Any:
        """The body as JSON. Raises `InvalidRequest` for everything that is not a JSON document within the limits."""
        return parse_body(self.body) if self.large_body is None else self.large_body.document

    def hashed(self, document: Any) -> Any:
        """The state of the request hash that was computed with a large body, if this document is that body."""
        large = self.large_body
        return large.hashed if large is not None and document is large.document else None

    async def checked(self, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `parse` makes of the body: in a worker thread if the body is large, since the work grows with it."""
        if self.large_body is None:
            return parse(*args, **kwargs)
        return await off_loop(parse, *args, **kwargs)


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Sent exactly as spelled here: a client that looks for `ETag` does not find `etag`."""

    parts: tuple[bytes, ...] = ()
    """The body in parts, instead of `body`: they are sent one after another, and never copied together."""


def json_response(value: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    return Response(status, orjson.dumps(value), headers)


def error_response(status: int, type: str, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    """An error in the form the Iceberg REST specification gives it.

    A message may quote what a client sent. It is cut, so that the response is not as large as the request.
    """
    return json_response({"error": {"message": short_message(message), "type": type, "code": status}}, status, headers)


def error_of(response: Response) -> dict[str, str]:
    """What a refusal says, for the log: `error_response`, or OAuth's form, read back. Of a page nothing."""
    if not response.body.startswith(b'{"error"'):
        return {}
    try:
        document = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return {}
    error = document["error"]
    if isinstance(error, dict):
        told = {"error_type": error.get("type"), "error": error.get("message")}
    else:
        told = {"error_type": error, "error": document.get("error_description")}
    return {name: str(text)[:MOST_LOGGED] for name, text in told.items() if text is not None}


def headers_of(raw: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers as ASGI gives them, by name."""
    return dict(reversed(raw))


@lru_cache(maxsize=256)
def _on_the_wire(name: str) -> bytes:
    return name.lower().encode("latin-1")


@lru_cache(maxsize=256)
def _query(query_string: str) -> Mapping[str, str]:
    try:
        fields = parse_qsl(query_string, keep_blank_values=True, errors="strict", max_num_fields=_MOST_QUERY_FIELDS)
    except UnicodeDecodeError:
        raise BadQuery("the query is not UTF-8; percent-encode names and values as UTF-8") from None
    except ValueError:
        raise BadQuery(f"the query has more than {_MOST_QUERY_FIELDS} fields; send fewer") from None
    return MappingProxyType(dict(reversed(fields)))


def idempotency_key(text: str) -> TransactionId:
    """The transaction id that a client chose for its request. Raises `InvalidRequest` if it is not a UUIDv7."""
    if len(text) != _KEY_CHARACTERS:
        raise InvalidRequest(f"{KEY_HEADER} {text[:80]!r} is not a UUIDv7 of 36 characters; generate one a request")
    return parse_transaction_id(text)


def timeout_s(text: str) -> float:
    """Return how long a client waits for the response. Raises `InvalidRequest` if the text is no such time."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= _MOST_TIMEOUT_MS):
        raise InvalidRequest(
            f"{TIMEOUT_HEADER} is a whole number of milliseconds from 1 to {_MOST_TIMEOUT_MS:,}, not {text[:40]!r}"
        )
    return int(text) / 1000


def parse_body(body: bytes) -> Any:
    """The JSON of a request's body, within the limits."""
    if not body:
        raise BadBody("the request has no body; send a JSON document")
    try:
        return parse_request(body)
    except (ValueError, RecursionError) as error:
        raise BadBody(f"the body is not JSON in UTF-8: {str(error)[:200]}") from None
    except MemoryError:
        raise OutOfMemory(
            f"the server has not enough free memory for a body of {len(body):,} bytes. Nothing was applied; send the "
            f"request again later"
        ) from None
