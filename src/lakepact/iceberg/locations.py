"""Where metadata files go: the folder, the number in front, the ending. What makes a name unique is an argument."""

from __future__ import annotations

import re
from typing import Final

from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.names import METADATA_COMPRESSION, METADATA_PATH

_VERSION: Final = re.compile(r"(\d{1,18})-", re.ASCII)
_FOLDER: Final = "metadata"


def without_trailing_slash(location: str) -> str:
    """Locations are compared and joined as text. The slashes of a bare scheme stay."""
    while location.endswith("/") and not location.endswith("://"):
        location = location[:-1]
    if not location:
        raise InvalidUpdate("a location must not be empty")
    return location


def metadata_folder(metadata: JsonObject) -> str:
    """The folder of a table's or view's metadata files. A property may put it elsewhere than below the location."""
    path = (metadata.get("properties") or {}).get(METADATA_PATH)
    if path:
        return without_trailing_slash(path)
    return f"{without_trailing_slash(metadata['location'])}/{_FOLDER}"


def next_metadata_location(metadata: JsonObject, previous_location: str | None, unique: str) -> str:
    """The location of the next metadata file: `<folder>/<number>-<unique>.metadata.json`, one up from the previous.

    The folder and the ending are those of the new metadata. The number is for people to read; only `unique` keeps two
    files apart.
    """
    ending = ".gz.metadata.json" if is_compressed(metadata) else ".metadata.json"
    return f"{metadata_folder(metadata)}/{version_of(previous_location) + 1:05d}-{unique}{ending}"


def version_of(location: str | None) -> int:
    """The number in front of a metadata file's name; -1 if there is none, so that the next one is 0."""
    if location is None:
        return -1
    found = _VERSION.match(location.rpartition("/")[2])
    return int(found[1]) if found else -1


def is_compressed(metadata: JsonObject) -> bool:
    """Whether the table asks for gzip."""
    codec: str = (metadata.get("properties") or {}).get(METADATA_COMPRESSION, "none").lower()
    if codec not in ("none", "gzip"):
        raise InvalidUpdate(f"property {METADATA_COMPRESSION!r} is none or gzip, not {codec[:40]!r}")
    return codec == "gzip"


def has_gzip_name(location: str) -> bool:
    """Whether a reader must take the file for gzip. Both endings are in use."""
    return location.endswith((".gz.metadata.json", ".metadata.json.gz"))
