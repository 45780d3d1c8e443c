"""Cell keys: paths of text segments, and where a key's document lives in a store.

A key is its segments joined by `/`. Inside a segment `/` is written `%2F` and `%` is written `%25`; nothing else
is escaped, so keys stay readable and every key has exactly one spelling. Keys sort by code point, which is also
the byte order of their UTF-8, so every store agrees on the order.

A document name is stricter than a key, because it must be a safe file name and object name everywhere: lower-case
letters, digits, `_` and `-` stand for themselves and every other byte is percent-encoded, upper case too (some file
systems fold case). A segment that would be too long for a file name keeps its beginning and ends in a digest.
"""

from __future__ import annotations

import hashlib
import unicodedata
from functools import lru_cache
from typing import Final, NewType

from lakepact.errors import IllegalKey

Key = NewType("Key", str)

MAX_NAME_BYTES: Final = 900
"""Object stores allow 1,024 bytes for a whole name; the rest is room for the store's own prefix."""

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
_MAX_SEGMENT_BYTES: Final = 180
_KEPT_SEGMENT_BYTES: Final = 100


def key_of(*segments: str) -> Key:
    """The key with these segments, each any text: `key_of("main", "names", "a/b") == "main/names/a%2Fb"`."""
    return Key("/".join(segment.replace("%", "%25").replace("/", "%2F") for segment in segments))


def segments_of(key: Key) -> tuple[str, ...]:
    """The segments a key was made of."""
    return tuple(segment.replace("%2F", "/").replace("%25", "%") for segment in key.split("/"))


def check_key(key: str, max_key_bytes: int) -> Key:
    """The key itself if it is legal; otherwise an error that says what is wrong with it."""
    try:
        length = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        raise IllegalKey(f"key {key!r} is not valid Unicode; build keys from text with key_of()") from None
    if length > max_key_bytes:
        raise IllegalKey(f"key {_short(key)!r} has {length} bytes; the limit is {max_key_bytes} (max_key_bytes)")
    for segment in key.split("/"):
        if not segment:
            raise IllegalKey(f"key {_short(key)!r} has an empty segment; join non-empty segments with key_of()")
        if any(unicodedata.category(character) == "Cc" for character in segment):
            # The part alone: that is the name which somebody has chosen, and the rest of the key is ours.
            raise IllegalKey(f"the name {_short(segment)!r} holds a control character; leave it out")
    if key_of(*segments_of(Key(key))) != key:
        raise IllegalKey(f"key {_short(key)!r} is not in canonical form; build it with key_of(), which escapes '%'")
    if len(name_of_cell(Key(key))) > MAX_NAME_BYTES:
        raise IllegalKey(f"key {_short(key)!r} needs more than {MAX_NAME_BYTES} bytes as a name; shorten its segments")
    return Key(key)


@lru_cache(maxsize=65_536)
def name_of_cell(key: Key) -> str:
    """The name of the document that holds this cell."""
    return f"cells/{_encoded_path(key)}.json"


def name_prefix_of_cells(prefix: str) -> str:
    """What the names of all cells below this key prefix begin with. The empty prefix is every cell."""
    return f"cells/{_encoded_path(Key(prefix))}/" if prefix else "cells/"


def is_below(key: Key, prefix: str) -> bool:
    """Whether the key lies below this key prefix, by whole segments. Everything lies below the empty one."""
    return not prefix or key.startswith(f"{prefix}/")


def _encoded_path(key: Key) -> str:
    return "/".join(_encoded_segment(segment) for segment in segments_of(key))


def _encoded_segment(segment: str) -> str:
    raw = segment.encode("utf-8")
    encoded = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in raw)
    if len(encoded) <= _MAX_SEGMENT_BYTES:
        return encoded
    # `~` occurs in no other encoded segment, so a shortened one cannot collide with a plain one.
    return f"{encoded[:_KEPT_SEGMENT_BYTES]}~{hashlib.sha256(raw).hexdigest()}"


def _short(key: str) -> str:
    return key if len(key) <= 120 else key[:117] + "..."
