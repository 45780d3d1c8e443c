"""Names of data files: on disk, in actions, and what partition directories say.

An action names its file by a URI relative to the table, so a path is percent-encoded once more than on disk: Spark
writes the partition value `a:b` into the directory `p=a%3Ab`, and the action says `p=a%253Ab`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from lakepact.delta.errors import BadAction

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = re.compile("[\x01-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
"""What Spark escapes in the names of partition directories."""
_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")


def encode_path(path: str) -> str:
    """The `path` of an action for a file at this place below its table."""
    if path.startswith("/"):
        raise BadAction(f"path {path[:200]!r}: expected a path relative to the table")
    return quote(path, safe="/=")


def decode_path(path: str) -> str:
    """Where the file of an action is, below its table. An absolute URI comes out as it is, decoded."""
    return unquote(path)


def partition_values(path: str, columns: Sequence[str]) -> dict[str, str | None]:
    """What the directories of a file (on disk, not encoded) say of the partition columns."""
    found: dict[str, str | None] = {}
    for segment in path.split("/")[:-1]:
        name, equals, value = segment.partition("=")
        if equals:
            # An empty string cannot be told from null in a path, nor in a table: it is null.
            found[_unescaped(name)] = None if value in (HIVE_NULL, "") else _unescaped(value)
    missing = [name for name in columns if name not in found]
    if missing:
        raise BadAction(f"file {path[:200]!r}: no directory says what its partition column {missing[0]!r} is")
    return {name: found[name] for name in columns}


def partition_path(values: Mapping[str, str | None], columns: Sequence[str]) -> str:
    """The directories, on disk, for a file with these values: `a=1/b=x`, as Spark would name them."""
    segments = []
    for name in columns:
        value = values[name]
        segments.append(f"{_escaped(name)}={HIVE_NULL if value in (None, '') else _escaped(str(value))}")
    return "/".join(segments)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
