"""Metadata files: read, written once, remembered by location.

A metadata file never changes, so what was read once is right for ever. It is kept as bytes, to be spliced into answers,
and as the parsed document, to be folded over; both are bounded. The parsed document is shared: nobody changes it.

Whoever may write a table's files may reach its metadata files too. So a pointer says what its file is known by, and a
file that is another is not taken for it (`of`). What is at hand has its digest beside it: comparing costs nothing.
"""

from __future__ import annotations

import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lakepact.bounded_input import BadGzip, TooLarge, gunzip, parse_document
from lakepact.catalog.errors import BadRequest, MissingFile, NotFound
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.catalog.warehouse import Warehouse
from lakepact.errors import OutOfMemory, Unreadable
from lakepact.iceberg import metadata as tables
from lakepact.iceberg import views
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import has_gzip_name
from lakepact.kernel.ports import BlobStore
from lakepact.limits import LARGE_INPUT_BYTES, LARGE_METADATA_BYTES, LimitExceeded
from lakepact.runtime import off_loop

_GZIP_MAGIC: Final = b"\x1f\x8b"
_MOST_UNPACKED_BYTES: Final = 256 * 1024 * 1024
"""Of a metadata file: a few bytes of gzip may stand for any number of others."""

_SUPERSEDED_SHARE: Final = 16
"""One part in this many of the memory for metadata files is for versions that were replaced."""


@dataclass(slots=True)
class MetadataFile:
    """One version of a table or view."""

    location: str
    name: str
    """Of the blob."""

    text: bytes
    """The JSON, not compressed."""

    document: JsonObject
    digest: str
    """Of the JSON, as the pointer to it says it."""

    vouched_for: Pointer | None = None
    """The pointer that it was last found to be the file of."""

    referenced: bytes | None = None
    """The JSON with only the snapshots that a branch or tag names, once somebody has asked for it."""

    answer: bytes | None = None
    """The body of the answer to a load, once somebody has asked for it. Large ones are not worth copying again."""

    answer_with: tuple[object, bytes] | None = None
    """The same with something more in it, and what that is: the last one that somebody has asked for."""


class MetadataFiles:
    """The metadata files of one warehouse."""

    def __init__(
        self,
        warehouse: Warehouse,
        blobs: BlobStore,
        cache_bytes: int,
        *,
        look_every_time: bool,
        most_bytes: int = 16 << 20,
        on_cache: Callable[[bool], None] = lambda hit: None,
    ) -> None:
        """`look_every_time`: a file may be taken away by hand, and looking costs next to nothing. `most_bytes`: the
        size of a new metadata file, not compressed; files that are there already may be larger."""
        self.most_bytes = most_bytes
        self._warehouse = warehouse
        self._blobs = blobs
        self._look_every_time = look_every_time
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[str, MetadataFile] = OrderedDict()
        self._held_bytes = 0
        self._superseded: OrderedDict[str, int] = OrderedDict()
        """Versions in memory that were replaced, the oldest first, and what each of them weighs."""

        self._superseded_bytes = 0
        self._on_cache = on_cache

    def holds(self, location: str) -> bool:
        """Whether this file is at hand."""
        return location in self._cached

    async def table(self, location: str, *, look: bool = True) -> MetadataFile:
        """Return the metadata of a table.

        `look=False`: what is in memory will do, whether or not its file is still there; a file that is not in memory is
        read, and not kept. This is for receipts.
        """
        return await self._load(location, tables.read, look=look)

    async def view(self, location: str, *, look: bool = True) -> MetadataFile:
        return await self._load(location, views.read_view, look=look)

    async def of(self, pointer: Pointer) -> MetadataFile:
        """The file that this pointer means. Another one in its place is refused."""
        location, read = pointer.metadata_location, views.read_view if pointer.kind is Kind.VIEW else tables.read
        file = await self._load(location, read, look=True)
        if file.vouched_for is not pointer:
            file = await self._checked(file, read, lambda one: check_unaltered(one, pointer))
            file.vouched_for = pointer
        return file

    async def known_by(self, location: str, digest: str | None) -> MetadataFile:
        """The same for a table of which only this much is at hand."""
        return await self._checked(await self.table(location), tables.read, lambda one: check_digest(one, digest))

    async def _checked(
        self, file: MetadataFile, read: Callable[[object], JsonObject], check: Callable[[MetadataFile], None]
    ) -> MetadataFile:
        try:
            check(file)
        except Unreadable:
            # Somebody may have put the right one back since this was read.
            self._forget(file.location)
            file = await self._load(file.location, read, look=True)
            self._forget(file.location)
            check(file)
            self._remember(file)
        return file

    async def raw(self, location: str) -> bytes:
        """The JSON of a file that has not been checked yet."""
        data = await self._get(location)
        try:
            if _is_large(data):
                return await off_loop(_decompressed, location, data, _MOST_UNPACKED_BYTES)
            return _decompressed(location, data, _MOST_UNPACKED_BYTES)
        except TooLarge:
            raise Unreadable(f"metadata file {location} is larger than {_MOST_UNPACKED_BYTES:,} bytes") from None

    async def raw_new(self, location: str) -> bytes:
        """The same for a file that a client names. A file that is larger than new metadata may be is not read."""
        name = self._warehouse.blob_name(location, "metadata-location")
        for entry in await self._blobs.list(name, limit=1):
            if entry.name == name:
                check_size(entry.size, self.most_bytes)
        data = await self._get(location)
        try:
            text = await off_loop(_decompressed, location, data, self.most_bytes) if _is_large(data) else None
            text = text if text is not None else _decompressed(location, data, self.most_bytes)
        except TooLarge:
            raise BadRequest(
                f"metadata file {location} has more than {self.most_bytes:,} bytes when it is decompressed; that is "
                f"the limit (max_metadata_bytes)"
            ) from None
        check_size(len(text), self.most_bytes)
        return text

    async def _get(self, location: str) -> bytes:
        try:
            data = await self._blobs.get(self._warehouse.blob_name(location, "metadata-location"))
        except MemoryError:
            raise _out_of_memory(location, 0) from None
        if data is None:
            raise NotFound(f"Failed to open input stream for file: {location}. It is not in the warehouse")
        return data

    def most_bytes_after(self, base: MetadataFile | None) -> int:
        """How large the next version of a table may be. One that is larger than the limit already may still shrink."""
        return self.most_bytes if base is None else max(self.most_bytes, len(base.text))

    async def write(self, location: str, text: bytes, document: JsonObject, digest: str) -> bool:
        """Write a new version, durable on return. False if another version is there under this very name."""
        data = text
        if has_gzip_name(location):
            large = len(text) > LARGE_INPUT_BYTES
            data = await off_loop(gzip.compress, text, mtime=0) if large else gzip.compress(text, mtime=0)
        name = self._warehouse.blob_name(location)
        if not await self._blobs.put(name, data):
            return False
        self._remember(MetadataFile(location, name, text, document, digest))
        self._supersede(_predecessor(document))
        return True

    def _supersede(self, location: str | None) -> None:
        """Keep a version that was replaced for a while only, and within a small part of the memory.

        Its receipt and requests under way still need it; afterwards hardly anybody asks for it. Without this the memory
        of a server that commits fills up with such versions, and Python's garbage collector walks through all of them.
        """
        file = self._cached.get(location or "")
        if file is None or file.location in self._superseded:
            return
        self._superseded[file.location] = _weight(file)
        self._superseded_bytes += _weight(file)
        while self._superseded_bytes > self._cache_bytes // _SUPERSEDED_SHARE:
            self._forget(next(iter(self._superseded)))

    async def delete(self, location: str) -> None:
        self._forget(location)
        await self._blobs.delete(self._warehouse.blob_name(location))

    async def make_folders(self, *locations: str) -> None:
        for location in locations:
            await self._blobs.make_folder(self._warehouse.blob_name(location))

    async def _load(self, location: str, read: Callable[[object], JsonObject], *, look: bool) -> MetadataFile:
        cached = self._cached.get(location)
        if cached is not None:
            self._cached.move_to_end(location)
            if look and self._look_every_time and not await self._blobs.exists(cached.name):
                self._forget(location)
                raise MissingFile.at(location)
            self._on_cache(True)
            return cached
        self._on_cache(False)
        if not self._warehouse.holds(location):
            raise Unreadable(
                f"its metadata is at {location}, which is not inside warehouse {self._warehouse.name} "
                f"({self._warehouse.root}): the server's settings are those of another store or warehouse, or the "
                f"warehouse was moved. Set them as they were; `lakepact doctor` tells more"
            )
        try:
            data = await self._get(location)
        except NotFound:
            raise MissingFile.at(location) from None
        if _is_large(data):
            try:
                text, document, digest = await off_loop(_decoded, location, data, read)
            except MemoryError:
                raise _out_of_memory(location, len(data)) from None
        else:
            text, document, digest = _decoded(location, data, read)
        found = MetadataFile(location, self._warehouse.blob_name(location), text, document, digest)
        if look:
            self._remember(found)
        return found

    def _remember(self, file: MetadataFile) -> None:
        self._forget(file.location)
        if _weight(file) > self._cache_bytes:
            return
        self._cached[file.location] = file
        self._held_bytes += _weight(file)
        while self._held_bytes > self._cache_bytes:
            self._forget(next(iter(self._cached)))

    def _forget(self, location: str) -> None:
        self._superseded_bytes -= self._superseded.pop(location, 0)
        old = self._cached.pop(location, None)
        if old is not None:
            self._held_bytes -= _weight(old)


def digest_of(text: bytes) -> str:
    """What a metadata file is known by: the SHA-256 of its JSON, not compressed."""
    return hashlib.sha256(text).hexdigest()


def check_unaltered(file: MetadataFile, pointer: Pointer) -> None:
    """Raises `Unreadable` if this is not the file that the pointer was made for.

    A pointer of an older release has no digest. Whose table it is and where it lies must hold for those too: that is
    what its rights and its credentials go by.
    """
    check_digest(file, pointer.digest)
    uuid = "view-uuid" if pointer.kind is Kind.VIEW else "table-uuid"
    for name, known in ((uuid, pointer.id), ("location", pointer.location)):
        if file.document.get(name) != known:
            raise _altered(file, f"its {name} is another than {known}")


def check_digest(file: MetadataFile, digest: str | None) -> None:
    """The same for whoever knows only what the file is known by. None: nobody said."""
    if digest is not None and digest != file.digest:
        raise _altered(file, "its content is another")


def _altered(file: MetadataFile, what: str) -> Unreadable:
    return Unreadable(
        f"metadata file {file.location} was altered after the catalog took it: {what}. Nothing was changed. Restore "
        f"the file from a backup, or register an older version of the table; and see who can write there"
    )


def _predecessor(document: JsonObject) -> str | None:
    log = document.get("metadata-log")
    location = log[-1].get("metadata-file") if log else None
    return location if isinstance(location, str) else None


def _weight(file: MetadataFile) -> int:
    """About what a file takes in memory: its text, two answers made of it, and the document, some four times that."""
    return 7 * len(file.text)


def parsed(location: str, text: bytes) -> Any:
    """What a client asks to register, as JSON."""
    try:
        return parse_document(text)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"metadata file {location} is not JSON: {error}") from error
    except MemoryError:
        raise _out_of_memory(location, len(text)) from None


def referenced_only(file: MetadataFile) -> bytes:
    if file.referenced is None:
        file.referenced = orjson.dumps(tables.only_referenced(file.document))
    return file.referenced


def _decompressed(location: str, data: bytes, most_bytes: int) -> bytes:
    if not data.startswith(_GZIP_MAGIC):
        return data
    try:
        return gunzip(data, most_bytes, f"metadata file {location}", padded=True)
    except BadGzip as error:
        raise Unreadable(f"metadata file {location} is not valid gzip: {error}") from error
    except LimitExceeded as error:
        raise Unreadable(str(error)) from error


def _decoded(location: str, data: bytes, read: Callable[[object], JsonObject]) -> tuple[bytes, JsonObject, str]:
    """The text of a stored metadata file, its document and its digest."""
    try:
        text = _decompressed(location, data, _MOST_UNPACKED_BYTES)
        return text, read(parse_document(text)), digest_of(text)
    except TooLarge:
        raise Unreadable(
            f"metadata file {location} is larger than {_MOST_UNPACKED_BYTES:,} bytes when it is decompressed"
        ) from None
    except (orjson.JSONDecodeError, Unreadable) as error:
        raise Unreadable(
            f"metadata file {location} is damaged: {error}. Nothing was changed. Restore the file from a backup, "
            f"or register an older version of the table"
        ) from error
    except MemoryError:
        raise _out_of_memory(location, len(data)) from None


def _out_of_memory(location: str, size: int) -> OutOfMemory:
    return OutOfMemory(
        f"the server has not enough free memory to read metadata file {location} ({size:,} bytes). Nothing was "
        f"applied, and the file is not damaged; send the request again later, or give the server more memory"
    )


def _is_large(data: bytes) -> bool:
    """Whether it takes too long to decode this on the event loop. gzip may stand for a thousand times as much."""
    return len(data) > (LARGE_INPUT_BYTES if data.startswith(_GZIP_MAGIC) else LARGE_METADATA_BYTES)


def serialized(document: JsonObject) -> tuple[bytes, str]:
    """The JSON of a new metadata file, and its digest."""
    text = orjson.dumps(document)
    return text, digest_of(text)


def check_size(size: int, most_bytes: int) -> None:
    """Refuse new metadata that is too large."""
    if size > most_bytes:
        raise BadRequest(
            f"the metadata would have {size:,} bytes; the limit is {most_bytes:,} (max_metadata_bytes). Nothing was "
            f"applied. Expire snapshots, remove schemas, statistics and properties that are not needed, and send the "
            f"request again; or ask the operator to raise the setting"
        )
