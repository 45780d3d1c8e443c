"""Avro files, as far as Iceberg's manifests need them: the wanted fields of every record, and nothing else.

A file says how it was written. Its schema is turned into functions once, which step over what nobody has asked for;
manifests carry the bounds of every column, and most of a file is that.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import orjson

from lakepact.errors import Unreadable
from lakepact.extras import how_to_install

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_MOST_BLOCK_BYTES: Final = 64 << 20
"""Of a block when it is decompressed. Writers end a block after some 64 KiB; a small file must not fill the memory."""

_FIXED_SIZES: Final = {"float": 4, "double": 8, "boolean": 1, "null": 0}

Step: TypeAlias = Callable[[bytes, int], int]
"""From a position to the one behind a value."""

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
Wanted: TypeAlias = "Mapping[str, Wanted | None]"
"""Names of fields; None for the whole value, or the wanted fields of a nested record."""


def records(data: bytes, wanted: Wanted, where: str) -> Iterator[dict[str, Any]]:
    """The wanted fields of every record. A field that the writer did not know is left out. Raises `Unreadable`."""
    try:
        yield from _records(data, wanted, where)
    except (IndexError, KeyError, ValueError, TypeError, zlib.error) as error:
        raise Unreadable(f"{where} is not a readable Avro file: {error!r}") from error


def _records(data: bytes, wanted: Wanted, where: str) -> Iterator[dict[str, Any]]:
    if not data.startswith(_MAGIC):
        raise Unreadable(f"{where} is not an Avro file")
    about, position = _read_header(data, len(_MAGIC))
    sync = data[position : position + _SYNC]
    position += _SYNC
    read = _Compiler().record(orjson.loads(about["avro.schema"]), wanted)
    codec = about.get("avro.codec", b"null").decode()
    while position < len(data):
        count, position = _long(data, position)
        size, position = _long(data, position)
        if count < 0 or size < 0 or data[position + size : position + size + _SYNC] != sync:
            raise Unreadable(f"{where} is cut off or damaged at byte {position}")
        block = _decompressed(codec, data[position : position + size], where)
        position += size + _SYNC
        at = 0
        for _ in range(count):
            found, at = read(block, at)
            yield found
        if at != len(block):
            raise Unreadable(f"{where} is damaged: a block of {len(block)} bytes holds records of {at}")


def _read_header(data: bytes, position: int) -> tuple[dict[str, bytes], int]:
    about: dict[str, bytes] = {}
    while True:
        count, position = _long(data, position)
        if count == 0:
            return about, position
        if count < 0:
            _, position = _long(data, position)
        for _ in range(abs(count)):
            key, position = _bytes(data, position)
            value, position = _bytes(data, position)
            about[key.decode()] = value


def _decompressed(codec: str, block: bytes, where: str) -> bytes:
    match codec:
        case "null":
            return block
        case "deflate":
            inflater = zlib.decompressobj(-15)
            return _whole(inflater.decompress(block, _MOST_BLOCK_BYTES + 1), where)
        case "zstandard" | "snappy":
            return _by_arrow(codec, block, where)
        case _:
            raise Unreadable(f"{where} is compressed by {codec}, which is not known here")


def _by_arrow(codec: str, block: bytes, where: str) -> bytes:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise Unreadable(f"{where} is compressed by {codec}, which needs pyarrow: {how_to_install('spark')}") from None
    if codec == "snappy":
        # Behind the block stands a checksum, before it how long it will be.
        size, shift, at = 0, 0, 0
        while True:
            size |= (block[at] & 0x7F) << shift
            if not block[at] & 0x80:
                break
            at, shift = at + 1, shift + 7
        if size > _MOST_BLOCK_BYTES:
            raise _too_large(where)
        return bytes(pyarrow.decompress(block[:-4], size, codec="snappy", asbytes=True))
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(block), "zstd") as stream:
        return _whole(bytes(stream.read(_MOST_BLOCK_BYTES + 1)), where)


def _whole(block: bytes, where: str) -> bytes:
    if len(block) > _MOST_BLOCK_BYTES:
        raise _too_large(where)
    return block


def _too_large(where: str) -> Unreadable:
    return Unreadable(
        f"{where} has a block of more than {_MOST_BLOCK_BYTES:,} bytes. Rewrite the manifests of the table"
    )


# --- values ---


def _long(data: bytes, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    value, shift = byte & 0x7F, 7
    while byte & 0x80:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), position


def _bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = _long(data, position)
    if size < 0 or position + size > len(data):
        raise ValueError("a value is longer than the block")
    return data[position : position + size], position + size


def _text(data: bytes, position: int) -> tuple[str, int]:
    value, position = _bytes(data, position)
    return value.decode(), position


def _skip_long(data: bytes, position: int) -> int:
    while data[position] & 0x80:
        position += 1
    return position + 1


def _skip_bytes(data: bytes, position: int) -> int:
    byte = data[position]
    if byte < 0x80:
        # Most are short.
        return position + 1 + (byte >> 1)
    size, position = _long(data, position)
    return position + size


class _Compiler:
    """Makes functions of a schema. Types that have a name may be used again by it."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def record(self, schema: Any, wanted: Wanted) -> Read:
        schema = self._resolve(schema)
        if isinstance(schema, list):
            return self._optional(schema, wanted)
        if schema["type"] != "record":
            raise ValueError(f"a record was expected, not {schema['type']}")
        steps: list[tuple[str | None, Read | None, Step | None]] = []
        for field in schema["fields"]:
            name = field["name"]
            if name in wanted:
                steps.append((name, self._read(field["type"], wanted[name]), None))
            else:
                steps.append((None, None, self._skip(field["type"])))

        def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
            found: dict[str, Any] = {}
            for name, value, skip in steps:
                if skip is not None:
                    position = skip(data, position)
                elif name is not None and value is not None:
                    found[name], position = value(data, position)
            return found, position

        return read

    def _optional(self, union: list[Any], wanted: Wanted | None) -> Read:
        branches = [None if self._resolve(one) == "null" else self._read(one, wanted) for one in union]

        def read(data: bytes, position: int) -> tuple[Any, int]:
            branch, position = _long(data, position)
            value = branches[branch]
            return (None, position) if value is None else value(data, position)

        return read

    def _read(self, schema: Any, wanted: Wanted | None) -> Read:
        schema = self._resolve(schema)
        if isinstance(schema, list):
            return self._optional(schema, wanted)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("int", "long"):
            return _long
        if kind == "string":
            return _text
        if kind == "record" and wanted is not None:
            return self.record(schema, wanted)
        raise ValueError(f"a value of type {kind} cannot be asked for")

    def _skip(self, schema: Any) -> Step:
        schema = self._resolve(schema)
        if isinstance(schema, list):
            return self._skip_union(schema)
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "int" | "long" | "enum":
                return _skip_long
            case "string" | "bytes":
                return _skip_bytes
            case "record":
                return self._skip_record(schema)
            case "array":
                return _skip_blocks([self._skip(schema["items"])])
            case "map":
                return _skip_blocks([_skip_bytes, self._skip(schema["values"])])
            case "fixed":
                return _skip_fixed(schema["size"])
            case _:
                return _skip_fixed(_FIXED_SIZES[kind])

    def _skip_union(self, union: list[Any]) -> Step:
        branches = [self._skip(one) for one in union]

        def skip(data: bytes, position: int) -> int:
            # A union of Iceberg's has two branches: its number is one byte.
            byte = data[position]
            if byte < 0x80:
                return branches[byte >> 1](data, position + 1)
            branch, position = _long(data, position)
            return branches[branch](data, position)

        return skip

    def _skip_record(self, schema: Any) -> Step:
        steps = [self._skip(field["type"]) for field in schema["fields"]]

        def skip(data: bytes, position: int) -> int:
            for step in steps:
                position = step(data, position)
            return position

        return skip

    def _resolve(self, schema: Any) -> Any:
        """The type itself, where only its name stands. Remembers names."""
        if isinstance(schema, str):
            return self._named.get(schema, schema)
        if isinstance(schema, dict):
            if isinstance(schema["type"], dict | list):
                return self._resolve(schema["type"])
            if "name" in schema:
                self._named[schema["name"]] = schema
        return schema


def _skip_fixed(size: int) -> Step:
    return lambda data, position: position + size


def _skip_blocks(item: list[Step]) -> Step:
    """Of an array or a map: blocks of items, each with its number, and perhaps with its size."""
    if len(item) == 1:
        [only] = item

        def one(data: bytes, position: int) -> int:
            return only(data, position)

    else:
        first, second = item

        def one(data: bytes, position: int) -> int:
            return second(data, first(data, position))

    def skip(data: bytes, position: int) -> int:
        while True:
            count, position = _long(data, position)
            if count == 0:
                return position
            if count < 0:
                size, position = _long(data, position)
                position += size
                continue
            for _ in range(count):
                position = one(data, position)

    return skip
