"""The files that a table needs, from its metadata down: names only, no IO.

metadata file -> earlier metadata files, statistics, manifest lists -> manifests -> data and delete files
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from lakepact.iceberg.avro import records
from lakepact.iceberg.fields import JsonObject

GC_ENABLED: Final = "gc.enabled"
_DELETED: Final = 2
"""The status of an entry that tells of a file which this snapshot does not have any more."""

_SLASHES: Final = re.compile("/{2,}")
_SAME_STORE: Final = {"s3a": "s3", "s3n": "s3", "abfs": "az", "abfss": "az", "wasb": "az", "wasbs": "az"}


def beside_metadata(location: str, metadata: JsonObject) -> set[str]:
    """The files that a version names itself, and itself: earlier versions, statistics."""
    found = {location}
    found.update(one["metadata-file"] for one in metadata.get("metadata-log") or ())
    for statistics in ("statistics", "partition-statistics"):
        found.update(one["statistics-path"] for one in metadata.get(statistics) or ())
    return found


def manifest_lists(metadata: JsonObject) -> set[str]:
    """Of every snapshot, whether a branch or tag leads to it or not."""
    return {one["manifest-list"] for one in metadata.get("snapshots") or () if one.get("manifest-list")}


def inline_manifests(metadata: JsonObject) -> set[str]:
    """Manifests that the metadata names without a list, as the first version of the format could."""
    return {path for one in metadata.get("snapshots") or () for path in one.get("manifests") or ()}


def manifests_in(data: bytes, where: str) -> list[str]:
    """What a manifest list names."""
    return [one["manifest_path"] for one in records(data, {"manifest_path": None}, where)]


_ENTRY: Final[dict[str, Any]] = {"status": None, "data_file": {"file_path": None}}
_WHOLE_ENTRY: Final[dict[str, Any]] = {
    "status": None,
    "data_file": {"content": None, "file_format": None, "file_path": None},
}


def files_in(data: bytes, where: str) -> Iterator[str]:
    """The data and delete files that a manifest holds."""
    for entry in records(data, _ENTRY, where):
        if entry["status"] != _DELETED:
            yield entry["data_file"]["file_path"]


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that a manifest holds."""

    content: int
    """0 data, 1 position deletes, 2 equality deletes."""

    format: str
    path: str


def listed_files(data: bytes, where: str) -> Iterator[ListedFile]:
    """The same, with what they are."""
    for entry in records(data, _WHOLE_ENTRY, where):
        if entry["status"] != _DELETED:
            file = entry["data_file"]
            # The first version of the format knows data alone.
            yield ListedFile(file.get("content") or 0, str(file["file_format"]).upper(), file["file_path"])


def collects(metadata: JsonObject) -> bool:
    """Whether the table allows its files to be deleted. One that shares files with another says no."""
    return str((metadata.get("properties") or {}).get(GC_ENABLED, "true")).lower() != "false"


def one_spelling(location: str) -> str:
    """A location in the form in which two are compared. What might be the same file has the same form."""
    scheme, colon, rest = location.partition(":")
    if location.startswith("/") or not colon or not scheme.isalnum():
        return "file:///" + _SLASHES.sub("/", location).strip("/")
    scheme = scheme.lower()
    if scheme == "file":
        return "file:///" + _SLASHES.sub("/", rest).strip("/")
    scheme = _SAME_STORE.get(scheme, scheme)
    return f"{scheme}://" + _SLASHES.sub("/", rest).strip("/")


def is_inside(path: str, folder: str) -> bool:
    """Both in `one_spelling`."""
    return path.startswith(folder + "/")
