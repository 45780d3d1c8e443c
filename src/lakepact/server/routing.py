"""From a raw path to the handler of an operation.

The path is split on `/` first and decoded afterwards, so `%2F` is part of a name and not a border. `+` is a space:
Java's URLEncoder writes it so, in paths too. The way through the tree is one lookup a segment; a literal goes before
a parameter, and there is no way back.

Every route below `/v1/{prefix}/` also matches without the prefix; the REST handlers decide whether they accept that.
To tell the two apart, the words that may follow the prefix are reserved: `RESERVED_WORDS`, which no warehouse may have
as its name. The router refuses a route that would need another one.

Every route below `/v1/` also matches below `/in/<warehouse>@<transaction>/`, the base URI of a transaction. The match
carries that segment, and its path and segments are those of the rest.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from lakepact.errors import InvalidRequest
from lakepact.server.http import Request, Response
from lakepact.settings import RESERVED_WORDS

__all__ = ["RESERVED_WORDS", "BadPath", "Handler", "Match", "Route", "Router", "UnknownPath", "WrongMethod"]

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]

PREFIX: Final = "{prefix}"
_VERSION: Final = "v1"
_INSIDE: Final = "in"
"""The first segment of a transaction's base URI."""

_MOST_REMEMBERED: Final = 4_096
"""Paths whose match is at hand: most requests are for tables that were asked for just before."""

_LONGEST_REMEMBERED: Final = 512
"""Bytes. Most paths have far fewer, and strangers may send more."""

_ESCAPES_NOTHING: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class UnknownPath(InvalidRequest):
    """No route has this path."""

    type: ClassVar[str] = "unknown-path"


class WrongMethod(InvalidRequest):
    """The path is known, but not with this method."""

    type: ClassVar[str] = "wrong-method"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class BadPath(InvalidRequest):
    """A segment of the path cannot be decoded."""

    type: ClassVar[str] = "bad-path"


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    template: str
    operation: str
    """The operation's name in logs and metrics: the specification's operationId where there is one."""

    handler: Handler
    open: bool = False
    """Whether it answers without asking who it is."""


class Match(NamedTuple):
    route: Route
    params: Mapping[str, str]
    segments: tuple[str, ...]
    raw_path: str
    inside: str | None = None
    """The transaction whose base URI the path begins with, as `Request.inside`."""


@dataclass(slots=True)
class _Node:
    literals: dict[str, _Node] = field(default_factory=dict)
    parameter: _Node | None = None
    routes: dict[str, tuple[Route, tuple[str, ...]]] = field(default_factory=dict)
    """By method: the route, and the names of its parameters in order."""

    allowed: str = ""


class Router:
    def __init__(self, routes: Iterable[Route], *, base_path: str = "") -> None:
        self._base = base_path.rstrip("/").encode()
        self._root = _Node()
        self._remembered = lru_cache(maxsize=_MOST_REMEMBERED)(self._found)
        self.routes = tuple(routes)
        version = self._root.literals.setdefault(_VERSION, _Node())
        for word in RESERVED_WORDS:
            version.literals[word] = _Node()
        for route in self.routes:
            segments = _template(route.template)
            self._add(segments, route)
            if PREFIX in segments:
                self._add([segment for segment in segments if segment != PREFIX], route)

    def match(self, method: str, raw_path: bytes) -> Match:
        """The route of this request. Raises `UnknownPath`, `WrongMethod` or `BadPath`, each with what to do."""
        return (self._remembered if len(raw_path) <= _LONGEST_REMEMBERED else self._found)(method, raw_path)

    def _found(self, method: str, raw_path: bytes) -> Match:
        if self._base:
            if not raw_path.startswith(self._base) or raw_path[len(self._base) :][:1] not in (b"/", b""):
                raise UnknownPath(f"nothing is served here; this server's base path is {self._base.decode()}")
            raw_path = raw_path[len(self._base) :] or b"/"
        path = raw_path.decode("latin-1")
        segments = tuple(path.split("/")[1:])
        inside: str | None = None
        if segments[:1] == (_INSIDE,) and segments[2:3] == (_VERSION,) and segments[1]:
            inside, segments = _decoded(segments[1]), segments[2:]
            path = "/" + "/".join(segments)
        node = self._root
        values: list[str] = []
        for segment in segments:
            text = _decoded(segment)
            child = node.literals.get(text)
            if child is None:
                child = node.parameter
                if child is None or not text:
                    raise UnknownPath(f"there is no {_short(path)} here; GET /v1/config lists the endpoints")
                values.append(text)
            node = child
        found = node.routes.get(method)
        if found is None:
            if not node.routes:
                raise UnknownPath(f"there is no {_short(path)} here; GET /v1/config lists the endpoints")
            raise WrongMethod(f"{_short(path)} does not answer to {method}, only to {node.allowed}", node.allowed)
        route, names = found
        # Whoever asks for the same path gets the same match.
        return Match(route, MappingProxyType(dict(zip(names, values, strict=True))), segments, path, inside)

    def _add(self, segments: list[str], route: Route) -> None:
        node = self._root
        names: list[str] = []
        for segment in segments:
            if segment.startswith("{"):
                names.append(segment[1:-1])
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.literals.setdefault(segment, _Node())
        if route.method in node.routes:
            raise ValueError(f"{route.method} {route.template} is served twice; remove one of the two routes")
        node.routes[route.method] = (route, tuple(names))
        node.allowed = ", ".join(sorted(node.routes))


def _template(template: str) -> list[str]:
    segments = template.split("/")[1:]
    if PREFIX in segments:
        well_placed = segments[:2] == [_VERSION, PREFIX] and segments.count(PREFIX) == 1
        if not well_placed or segments[2:3] == [] or segments[2] not in RESERVED_WORDS:
            raise ValueError(
                f"{template}: a prefix stands after /v1/, and before one of {', '.join(sorted(RESERVED_WORDS))}; "
                f"reserve the word in lakepact.settings first"
            )
    return segments


def _decoded(segment: str) -> str:
    if "%" not in segment and "+" not in segment and segment.isascii():
        return segment
    raw = segment.encode("latin-1").replace(b"+", b" ")
    if _ESCAPES_NOTHING.search(raw):
        raise BadPath(f"the path segment {_short(segment)!r} has a '%' that escapes nothing; write it as %25")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError:
        raise BadPath(f"the path segment {_short(segment)!r} is not UTF-8; percent-encode names as UTF-8") from None


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."
