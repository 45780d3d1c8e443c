"""Segments: the receipts of a day that has ended, many in one file. Pure: names, lines, manifests.

A segment's name holds the hash of what is in it, so two packers that make the same segment write the same file, and two
that make different ones do not meet. The manifest is put if absent: it says which segments count. It is written anew
only where it, or a segment that it names, turns out to be damaged (`mending`).
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from lakepact.catalog.receipts import EVENTS
from lakepact.catalog.warehouse import OWN_FOLDER
from lakepact.errors import Unreadable
from lakepact.iceberg.fields import JsonObject

FORMAT: Final = 1
SEGMENTS: Final = f"{OWN_FOLDER}/segments"
LATE: Final = "late"
"""The kind of segments with receipts of other days, which have arrived on this one."""

WHAT_TO_DO: Final = "Restore it from a backup, or have made again of it what can be: lakepact reconcile --mend"

ABANDONED_MS: Final = 24 * 3600 * 1000
"""Segments that no manifest names for so long were left behind: nobody is about to write one."""

_NAME_HEX: Final = 16
_NAME: Final = re.compile(r"([a-z]+)-(\d{5})-([0-9a-f]{16})\.jsonl\.gz")


@dataclass(frozen=True, slots=True)
class Segment:
    """What a manifest says of one."""

    name: str
    """In the folder of its day."""

    receipts: int
    bytes: int
    """Unpacked."""

    packed_bytes: int
    sha256: str
    """Of the unpacked bytes."""

    first: str
    last: str
    """The commit keys at its ends."""

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "receipts": self.receipts,
            "bytes": self.bytes,
            "packed-bytes": self.packed_bytes,
            "sha256": self.sha256,
            "first": self.first,
            "last": self.last,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            value["name"],
            value["receipts"],
            value["bytes"],
            value["packed-bytes"],
            value["sha256"],
            value["first"],
            value["last"],
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """A day that is packed, and into what."""

    date: str
    packed_ms: int
    segments: tuple[Segment, ...]
    damaged: tuple[str, ...] = ()
    """Loose files that were no receipts, and were left out."""

    lost: tuple[Segment, ...] = ()
    """Segments that could not be read any more, nor made again. They lie where they lay, and count no longer."""

    def to_bytes(self) -> bytes:
        return orjson.dumps(
            {
                "format": FORMAT,
                "date": self.date,
                "packed-ms": self.packed_ms,
                "receipts": sum(segment.receipts for segment in self.segments),
                "segments": [segment.to_json() for segment in self.segments],
                "damaged": list(self.damaged),
                **({"lost": [segment.to_json() for segment in self.lost]} if self.lost else {}),
            }
        )

    @classmethod
    def read(cls, name: str, data: bytes) -> Self:
        try:
            value = orjson.loads(data)
            return cls(
                value["date"],
                value["packed-ms"],
                tuple(map(Segment.from_json, value["segments"])),
                tuple(value["damaged"]),
                tuple(map(Segment.from_json, value.get("lost", ()))),
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise Unreadable(f"{name} is damaged: {error!r}. {WHAT_TO_DO}") from error


def manifest_name(date: str) -> str:
    return f"{SEGMENTS}/{date}/manifest.json"


def folder_of(date: str) -> str:
    """What the names of a day's segments begin with."""
    return f"{SEGMENTS}/{date}/"


def committed_of(date: str, format_: str) -> str:
    """What the names of a day's loose receipts begin with."""
    return f"{EVENTS}/{date}/{format_}/committed/"


def key_of_name(name: str) -> str:
    """The commit key, from the name of a loose receipt or a note."""
    return name.rpartition("/")[2].removesuffix(".json")


def date_of_name(name: str) -> str:
    """The day, from the name of anything below `events` or `segments`."""
    return name.split("/", 3)[2]


def receipt_in(data: bytes, key: str) -> JsonObject | None:
    """The receipt with this commit key, or None if these bytes are none."""
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or document.get("commit-key") != key or "committed-ms" not in document:
        return None
    return document


def line_of(data: bytes, document: JsonObject) -> bytes:
    """A receipt as a line: as it is in its file, unless somebody has written that in several lines."""
    return data if b"\n" not in data and b"\r" not in data else orjson.dumps(document)


def pack(kind: str, number: int, lines: Sequence[tuple[str, bytes]]) -> tuple[Segment, bytes]:
    """The segment of these lines, which are in the order of their commit keys and beside them, and its bytes."""
    unpacked = b"\n".join([*(line for _, line in lines), b""])
    digest = hashlib.sha256(unpacked).hexdigest()
    packed = gzip.compress(unpacked, compresslevel=6, mtime=0)
    name = f"{kind}-{number:05}-{digest[:_NAME_HEX]}.jsonl.gz"
    return Segment(name, len(lines), len(unpacked), len(packed), digest, lines[0][0], lines[-1][0]), packed


def place_of(segment_name: str) -> tuple[str, int]:
    """The kind and the number of a segment, from its name in the folder of its day."""
    found = _NAME.fullmatch(segment_name)
    if found is None:
        raise Unreadable(f"{segment_name} is no name of a segment")
    return found[1], int(found[2])


def unpack(segment: Segment, data: bytes | None) -> list[JsonObject]:
    """The receipts of a segment, if it is exactly what its manifest says."""
    return [orjson.loads(line) for line in lines_of(segment, data)]


def lines_of(segment: Segment, data: bytes | None) -> list[bytes]:
    """The lines of a segment, if it is exactly what its manifest says."""
    if data is None:
        raise Unreadable(f"segment {segment.name} is not there, and its manifest says it is. {WHAT_TO_DO}")
    unpacked = _unpacked(segment.name, data)
    if hashlib.sha256(unpacked).hexdigest() != segment.sha256:
        raise Unreadable(f"segment {segment.name} is not what was packed. {WHAT_TO_DO}")
    return unpacked.splitlines()


def recognized(name: str, data: bytes) -> Segment:
    """What a manifest would say of these bytes, if they are what the name of the segment says."""
    unpacked = _unpacked(name, data)
    digest = hashlib.sha256(unpacked).hexdigest()
    found = _NAME.fullmatch(name)
    if found is None or found[3] != digest[:_NAME_HEX]:
        raise Unreadable(f"segment {name} is not what was packed. {WHAT_TO_DO}")
    keys = [orjson.loads(line)["commit-key"] for line in unpacked.splitlines()]
    return Segment(name, len(keys), len(unpacked), len(data), digest, keys[0], keys[-1])


def _unpacked(name: str, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Unreadable(f"segment {name} is not valid gzip: {error}. {WHAT_TO_DO}") from error
