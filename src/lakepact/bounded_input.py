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
import re
import zlib
from typing import Any, Final

import orjson

from lakepact.errors import InvalidRequest
from lakepact.limits import (
    GZIP_MEMBERS,
    JSON_DEPTH,
    JSON_VALUES,
    LARGE_INPUT_BYTES,
    LARGE_METADATA_BYTES,
    LimitExceeded,
)

_CHUNK_BYTES: Final = 65_536
_WHITESPACE: Final = b" \t\r\n"
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.?+[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
"""Matches at every quote, also at one that is never closed, and never backtracks: a search is linear."""

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

    Raises `LimitExceeded`, `DuplicateMember`, or `ValueError` (`orjson.JSONDecodeError` is one) for what is not JSON.
    """
    brackets = body.count(b"{") + body.count(b"[")
    # An upper bound, as strings may contain these characters. Only a body that exceeds it is counted exactly.
    if len(body) > JSON_VALUES.most and body.count(b",") + brackets >= JSON_VALUES.most:
        _check_value_count(body, where)
    document = _loads(body)
    if brackets > JSON_DEPTH.most:
        _check_depth(document, where)
    _check_members(body, document, where)
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


def _check_value_count(body: bytes, where: str) -> None:
    """Count commas and brackets outside of strings, one for each value. A value has two strings at most: its name is
    the second."""
    count = end = 0
    for strings, string in enumerate(_STRING.finditer(body)):
        count += _separators(body[end : string.start()])
        end = string.end()
        if max(count, strings // 2) > JSON_VALUES.most:
            raise LimitExceeded(JSON_VALUES, None, where)
    if count + _separators(body[end:]) > JSON_VALUES.most:
        raise LimitExceeded(JSON_VALUES, None, where)


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{") if text else 0


def _check_depth(document: Any, where: str) -> None:
    level = [document]
    for _ in range(JSON_DEPTH.most):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
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

    def unique(members: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise DuplicateMember(
                    f"{where} has an object with two members named {name[:80]!r}; send each member once"
                )
            seen.add(name)

    json.loads(body, object_pairs_hook=unique, parse_int=len, parse_float=len)


# --- stored JSON ---


def parse_document(data: bytes) -> Any:
    """Parse a stored JSON document, piece by piece if it is large.

    Raises `orjson.JSONDecodeError` for what is not JSON, and `MemoryError` if there is not enough memory.
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
    scan = json.JSONDecoder(parse_constant=_refuse_constant).scan_once  # type: ignore[attr-defined]
    space = _SPACE.match

    def skip(position: int) -> int:
        found = space(text, position)
        assert found is not None
        return found.end()

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
        found: dict[str, Any] = {}
        position = skip(position + 1)
        if text[position] == "}":
            return found, position + 1
        while True:
            if text[position] != '"':
                raise ValueError(position)
            name, position = _scanned(scan, text, position)
            position = skip(position)
            if text[position] != ":":
                raise ValueError(position)
            position = skip(position + 1)
            found[name], position = array(position) if text[position] == "[" else _scanned(scan, text, position)
            position = skip(position)
            if text[position] == "}":
                return found, position + 1
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


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)
