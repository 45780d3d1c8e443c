"""Files of a warehouse, as an executor lists, reads and deletes them: local files and S3, through Arrow.

Options have the names that Iceberg's clients know: `s3.endpoint`, `s3.access-key-id`, `s3.secret-access-key`,
`s3.session-token`, `s3.region`. Without them S3 is asked as the environment says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow.fs as arrow

from lakepact.errors import InvalidSetting
from lakepact.iceberg.files import one_spelling

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Listed:
    place: str
    """In `one_spelling`."""

    raw: str
    """As the storage calls it."""

    is_folder: bool
    size: int
    modified_ms: int


class Storage:
    """Picklable: every executor opens it anew."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options: Options = tuple(sorted(options.items()))

    def check(self, location: str) -> None:
        """Raises `InvalidSetting` if files there cannot be reached by this job."""
        _scheme(location)

    def list(self, location: str, *, recursive: bool) -> Iterator[Listed]:
        """What is below a folder. Nothing, if it is not there."""
        scheme = _scheme(location)
        files = _opened(scheme, self._options)
        selector = arrow.FileSelector(_path(location), allow_not_found=True, recursive=recursive)
        for one in files.get_file_info(selector):
            is_folder = one.type == arrow.FileType.Directory
            if is_folder or one.type == arrow.FileType.File:
                modified_ms = 0 if is_folder or one.mtime_ns is None else one.mtime_ns // 1_000_000
                place = one_spelling(one.path if scheme == "file" else f"{scheme}://{one.path}")
                yield Listed(place, one.path, is_folder, 0 if is_folder else one.size, modified_ms)

    def read(self, location: str) -> bytes:
        """Raises `FileNotFoundError`."""
        with _opened(_scheme(location), self._options).open_input_stream(_path(location), compression=None) as stream:
            return bytes(stream.read())

    def write(self, location: str, data: bytes) -> None:
        files, path = _opened(_scheme(location), self._options), _path(location)
        if _scheme(location) == "file":
            files.create_dir(path.rpartition("/")[0], recursive=True)
        with files.open_output_stream(path, compression=None) as stream:
            stream.write(data)

    def delete(self, scheme_of: str, raw: str) -> None:
        """A file as a listing has named it. One that has gone is fine."""
        scheme = _scheme(scheme_of)
        files = _opened(scheme, self._options)
        try:
            files.delete_file(raw)
        except FileNotFoundError:
            return
        if scheme == "file":
            # Hadoop's local files have a checksum beside them.
            folder, _, name = raw.rpartition("/")
            beside = f"{folder}/.{name}.crc"
            if files.get_file_info(beside).type == arrow.FileType.File:
                files.delete_file(beside)


def _scheme(location: str) -> str:
    scheme = one_spelling(location).partition(":")[0]
    if scheme not in ("file", "s3"):
        raise InvalidSetting(f"the search for orphans reads local files and S3, not {scheme}: ({location})")
    return scheme


def _path(location: str) -> str:
    """What the storage calls it. Only the beginning is rewritten: everything else is part of the name."""
    scheme, colon, rest = location.partition(":")
    if location.startswith("/") or not colon:
        return location
    return "/" + rest.lstrip("/") if scheme.lower() == "file" else rest.removeprefix("//")


@lru_cache(maxsize=8)
def _opened(scheme: str, options: Options) -> Any:
    if scheme == "file":
        return arrow.LocalFileSystem()
    said = dict(options)
    given: dict[str, Any] = {
        "access_key": said.get("s3.access-key-id"),
        "secret_key": said.get("s3.secret-access-key"),
        "session_token": said.get("s3.session-token"),
        "region": said.get("s3.region") or said.get("client.region"),
    }
    endpoint = said.get("s3.endpoint")
    if endpoint:
        scheme_of_endpoint, _, host = endpoint.rstrip("/").rpartition("://")
        given |= {"endpoint_override": host, "scheme": scheme_of_endpoint or "https"}
    return arrow.S3FileSystem(**{name: value for name, value in given.items() if value is not None})
