"""Decode gzip and JSON from outside within `limits`, in time linear in the size of the input.

`parse_request` is for request bodies: it refuses documents that nest too deeply, have too many values, or name an
object member twice. A JSON parser keeps one of two members with the same name, so two different bodies would have the
same canonical form and the same request hash.

`parse_document` is for stored documents, which may be large. orjson holds the interpreter lock for its whole run, about
10 ms a MiB. A large document is therefore parsed piece by piece with the standard library's parser, so that the event
loop gets the lock in between. That takes about 1.5 times as long.
"""

from __future__ import annotations

import gc
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, Final

import orjson

from lakepact.errors import InvalidRequest
from lakepact.limits import (
    GZIP_MEMBERS,
    JSON_DEPTH,
    JSON_MEMBERS,
    JSON_VALUES,
    LARGE_INPUT_BYTES,
    LARGE_METADATA_BYTES,
    LimitExceeded,
)

_CHUNK_BYTES: Final = 65_536
_VALUES_AT_ONCE: Final = 200_000
"""orjson takes up to 250 ns for each of them, and holds the interpreter lock all the while."""

_SMALLEST_MEMBER: Final = 5
"""Bytes of `"":1,`."""

_WHITESPACE: Final = b" \t\r\n"
_BACKSLASH: Final = ord("\\")
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_OUT_OF_MEMORY: Final = "Not enough memory"
"""How orjson reports a failed allocation: as a `JSONDecodeError`."""


class BadGzip(ValueError):
    """The data is not valid gzip. The message says why."""


class TooLarge(ValueError):
    """The decompressed data exceeds the number of bytes that the caller allows."""


class DuplicateMember(InvalidRequest):
    """An object of a request body has two members with the same name."""


# --- gzip ---


def gunzip(data: bytes, most_bytes: int, where: str, *, padded: bool = False) -> bytes:
    """Decompress all members of a gzip file.

    The data is fed in chunks, so the cost of a member does not depend on what follows it. `padded`: zero bytes after a
    member are skipped, since some writers fill up the last block of a file.

    Raises `BadGzip`, `TooLarge` (more than `most_bytes`), or `LimitExceeded` (too many members).
    """
    view = memoryview(data)
    parts: list[bytes] = []
    size = members = position = 0
    while position < len(view):
        members += 1
        if members > GZIP_MEMBERS.most:
            raise LimitExceeded(GZIP_MEMBERS, None, where)
        member = zlib.decompressobj(wbits=31)
        pending: bytes | memoryview = b""
        while not member.eof:
            if not pending:
                if position >= len(view):
                    raise BadGzip("its end is missing")
                pending = view[position : position + _CHUNK_BYTES]
                position += len(pending)
            try:
                part = member.decompress(pending, most_bytes + 1 - size)
            except zlib.error as error:
                raise BadGzip(str(error)) from None
            pending = member.unconsumed_tail
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                raise TooLarge
        position -= len(member.unused_data)
        if padded:
            position = _after_zeros(view, position)
    return b"".join(parts)


def _after_zeros(view: memoryview, position: int) -> int:
    while position < len(view) and view[position] == 0:
        position += 1
    return position


# --- JSON of requests ---


def parse_request(body: bytes, where: str = "the body") -> Any:
    """Parse the JSON of a request.

    Raises `LimitExceeded`, `DuplicateMember`, or `ValueError` (`orjson.JSONDecodeError` is one) if it is not JSON.
    """
    brackets = body.count(b"{") + body.count(b"[")
    slow = _count_values(body, brackets, where) > _VALUES_AT_ONCE
    document = _parse_slowly(body, where) if slow else _loads(body)
    if brackets > JSON_DEPTH.most or len(body) > _SMALLEST_MEMBER * JSON_MEMBERS.most:
        _check_structure(document, where)
    _check_members(body, document, where)
    return document


def parse_embedded(text: str, where: str) -> Any:
    """Parse JSON that a request carries as a string. Raises as `parse_request` does; members may come twice."""
    data = text.encode()
    brackets = data.count(b"{") + data.count(b"[")
    slow = _count_values(data, brackets, where) > _VALUES_AT_ONCE
    document = _parse_slowly(data, where) if slow else _loads(data)
    _check_structure(document, where)
    return document


def _loads(body: bytes) -> Any:
    if len(body) <= LARGE_INPUT_BYTES or not gc.isenabled():
        return _decoded(body)
    # Each new container counts as garbage to be looked for, and a document has no cycles: searching while it is built
    # takes longer than building it.
    gc.disable()
    try:
        return _decoded(body)
    finally:
        gc.enable()


def _decoded(body: bytes | str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if str(error).startswith(_OUT_OF_MEMORY):
            raise MemoryError(str(error)) from None
        raise


def _count_values(body: bytes, brackets: int, where: str) -> int:
    """How many values a document has, at most. Refuses one that has too many.

    Each value but the first follows a comma or a bracket. Strings may contain those too, so a document that seems to
    have many is counted again without its strings.
    """
    if len(body) <= _VALUES_AT_ONCE:
        return len(body)
    count = brackets + body.count(b",")
    if count <= _VALUES_AT_ONCE:
        return count
    count = 0
    for text in _outside_strings(body):
        count += text.count(b",") + text.count(b"[") + text.count(b"{")
        if count > JSON_VALUES.most:
            raise LimitExceeded(JSON_VALUES, None, where)
    return count


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """What a document has outside of its strings, chunk by chunk."""
    position = inside = 0
    while position < len(body):
        end = min(position + _CHUNK_BYTES, len(body))
        if body[end - 1] == _BACKSLASH:
            end = _after_escape(body, end)
        # Without escapes every quote begins or ends a string.
        parts = body[position:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(parts[inside::2])
        inside = (inside + len(parts) - 1) % 2
        position = end


def _after_escape(body: bytes, position: int) -> int:
    """Where the run of backslashes ends that reaches this position, with the character that the last one may escape."""
    while position < len(body):
        run = body[position : position + _CHUNK_BYTES]
        rest = run.lstrip(b"\\")
        position += len(run) - len(rest)
        if rest:
            return position + 1
    return position


def _check_structure(document: Any, where: str) -> None:
    """Refuse a document that nests too deeply, or has an object with too many members."""
    level = [document]
    for _ in range(JSON_DEPTH.most):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                if len(item) > JSON_MEMBERS.most:
                    raise LimitExceeded(JSON_MEMBERS, len(item), f"{where}: an object")
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise LimitExceeded(JSON_DEPTH, None, where)


def _check_members(body: bytes, document: Any, where: str) -> None:
    """Refuse an object that names a member twice.

    The parsed document has each member once. If its text, serialized again, equals the body but for whitespace, both
    have the same number of members, and no name came twice. That is so for nearly every client and costs little. Other
    bodies (escapes or numbers that are spelled differently) are parsed once more, member by member.
    """
    if not isinstance(document, dict | list):
        return
    try:
        text = orjson.dumps(document)
    except TypeError:
        text = b""
    if text == body or text.translate(None, _WHITESPACE) == body.translate(None, _WHITESPACE):
        return

    if len(body) > LARGE_METADATA_BYTES:
        _parse_slowly(body, where)
    else:
        json.loads(body, object_pairs_hook=_unique(where), parse_int=len, parse_float=len)


def _unique(where: str) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return a function that builds an object of its members and refuses two members with the same name."""

    def made(members: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(members)
        if len(unique) < len(members):
            names = [name for name, _ in members]
            twice = next(name for number, name in enumerate(names) if name in names[:number])
            raise DuplicateMember(f"{where} has an object with two members named {twice[:80]!r}; send each member once")
        return unique

    return made


def _parse_slowly(body: bytes, where: str) -> Any:
    """Parse with the standard library's parser in Python: it takes about 2 us a value, but other threads run meanwhile.

    orjson would hold the interpreter lock for longer than the event loop may pause.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_unique(where), parse_float=_finite, parse_constant=_refuse_constant)
    decoder.parse_object = _count_members(where)  # type: ignore[attr-defined]
    decoder.parse_array = JSONArray  # type: ignore[attr-defined]
    decoder.scan_once = py_make_scanner(decoder)  # type: ignore[attr-defined]
    document = decoder.decode(body.decode())
    try:
        orjson.dumps(document)
    except TypeError as error:
        # Lone surrogates, and numbers of more than 64 bits.
        raise ValueError(str(error)) from None
    return document


def _count_members(where: str) -> Callable[..., tuple[Any, int]]:
    """Return the standard library's parser of objects, which stops at an object that has too many members."""

    def parse_object(text: tuple[str, int], strict: bool, scan_once: Callable[[str, int], Any], *rest: Any) -> Any:
        count = 0

        def scan_member(text: str, position: int) -> Any:
            nonlocal count
            count += 1
            if count > JSON_MEMBERS.most:
                raise LimitExceeded(JSON_MEMBERS, None, f"{where}: an object")
            return scan_once(text, position)

        return JSONObject(text, strict, scan_member, *rest)

    return parse_object


# --- stored JSON ---


def parse_document(data: bytes) -> Any:
    """Parse a stored JSON document, piece by piece if it is large.

    Raises `orjson.JSONDecodeError` if it is not JSON, and `MemoryError` if there is not enough memory.
    """
    if len(data) <= LARGE_METADATA_BYTES:
        return _decoded(data)
    try:
        document = _parse_pieces(data.decode())
        # What orjson cannot write (lone surrogates, numbers of more than 64 bits), it reads differently or refuses.
        orjson.dumps(document)
    except (ValueError, TypeError, RecursionError, IndexError):
        return _decoded(data)
    return document


def _parse_pieces(text: str) -> Any:
    """Parse the elements of large arrays one after another, down to the second level.

    Table metadata is an object whose arrays (`snapshots`, `schemas`, logs) make up its size.
    """
    scan = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]
    space = _SPACE.match

    def skip(position: int) -> int:
        match = space(text, position)
        assert match is not None
        return match.end()

    def array(position: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        position = skip(position + 1)
        if text[position] == "]":
            return values, position + 1
        while True:
            value, position = _scanned(scan, text, position)
            values.append(value)
            position = skip(position)
            if text[position] == "]":
                return values, position + 1
            if text[position] != ",":
                raise ValueError(position)
            position = skip(position + 1)

    def members(position: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        position = skip(position + 1)
        if text[position] == "}":
            return values, position + 1
        while True:
            if text[position] != '"':
                raise ValueError(position)
            name, position = _scanned(scan, text, position)
            position = skip(position)
            if text[position] != ":":
                raise ValueError(position)
            position = skip(position + 1)
            values[name], position = array(position) if text[position] == "[" else _scanned(scan, text, position)
            position = skip(position)
            if text[position] == "}":
                return values, position + 1
            if text[position] != ",":
                raise ValueError(position)
            position = skip(position + 1)

    start = skip(0)
    if text[start] == "{":
        document, end = members(start)
    else:
        document, end = _scanned(scan, text, start)
    if skip(end) != len(text):
        raise ValueError(end)
    return document


def _scanned(scan: Any, text: str, position: int) -> tuple[Any, int]:
    try:
        value, end = scan(text, position)
    except StopIteration as stop:
        raise ValueError(stop.value) from None
    return value, end


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
