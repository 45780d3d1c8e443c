"""Documents and blobs in this process: for tests, trials and embedding. Nothing here survives the process.

Tokens are hashes of the content, like the ETags of S3. So a document that goes from A to B and back to A has its old
token again, and code that relies on tokens never repeating is caught here before it meets S3.

No method awaits anything, so each one is a single step as far as other tasks can tell. One event loop at a time.
"""

from __future__ import annotations

import bisect
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence

from lakepact.kernel.ports import Applied, BlobEntry, Document, DocumentEntry, Refused, WriteOutcome


class MemoryDocuments:
    """The `DocumentStore` port over a dictionary."""

    def __init__(self) -> None:
        self._documents: dict[str, Document] = {}
        self._names: list[str] = []

    async def get(self, name: str) -> Document | None:
        return self._documents.get(name)

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        if name in self._documents:
            return Refused()
        bisect.insort(self._names, name)
        return self._write(name, data)

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        current = self._documents.get(name)
        if current is None or current.token != token:
            return Refused()
        return self._write(name, data)

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        names = _page(self._names, prefix, after, limit)
        return [DocumentEntry(name, self._documents[name].token) for name in names]

    async def delete(self, name: str) -> None:
        if self._documents.pop(name, None) is not None:
            del self._names[bisect.bisect_left(self._names, name)]

    async def time(self) -> None:
        """There is no other clock than that of this process."""

    async def close(self) -> None:
        """Nothing to let go of: the documents stay readable until the object is collected."""

    def _write(self, name: str, data: bytes) -> Applied:
        # `bytes` copies a bytearray or memoryview, so that the caller cannot change a stored document.
        document = Document(bytes(data), hashlib.sha256(data).hexdigest())
        self._documents[name] = document
        return Applied(document.token)


class MemoryBlobs:
    """The `BlobStore` port over a dictionary."""

    def __init__(self) -> None:
        self._blobs: dict[str, tuple[bytes, int]] = {}
        self._names: list[str] = []

    async def put(self, name: str, data: bytes) -> bool:
        there = self._blobs.get(name)
        if there is not None:
            return there[0] == data
        bisect.insort(self._names, name)
        self._blobs[name] = (bytes(data), time.time_ns() // 1_000_000)
        return True

    async def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            await self.put(name, data)

    async def replace(self, name: str, data: bytes, was: bytes | None) -> bool:
        if was is None:
            return await self.put(name, data)
        there = self._blobs.get(name)
        if there is None or there[0] != was:
            return there is not None and there[0] == data
        self._blobs[name] = (bytes(data), time.time_ns() // 1_000_000)
        return True

    async def get(self, name: str) -> bytes | None:
        there = self._blobs.get(name)
        return None if there is None else there[0]

    async def exists(self, name: str) -> bool:
        return name in self._blobs

    async def make_folder(self, name: str) -> None:
        """Folders are only names here."""

    async def list(self, prefix: str, after: str | None = None, limit: int = 1_000) -> Sequence[BlobEntry]:
        names = _page(self._names, prefix, after, limit)
        return [BlobEntry(name, len(self._blobs[name][0]), self._blobs[name][1]) for name in names]

    async def delete(self, name: str) -> None:
        if self._blobs.pop(name, None) is not None:
            del self._names[bisect.bisect_left(self._names, name)]

    async def close(self) -> None:
        """Nothing to let go of."""


def _page(names: Sequence[str], prefix: str, after: str | None, limit: int) -> Iterator[str]:
    # Code points sort as their UTF-8 bytes do, so sorted strings are in the bytewise order the ports ask for.
    start = bisect.bisect_left(names, prefix)
    if after is not None:
        start = max(start, bisect.bisect_right(names, after))
    for name in names[start : start + max(limit, 0)]:
        if not name.startswith(prefix):
            return
        yield name
