"""Blobs in S3, Google Cloud Storage or Azure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import obstore

from lakepact.kernel.ports import BlobEntry
from lakepact.stores.objects_answers import is_missing_object, unavailable
from lakepact.stores.objects_client import Bucket, Cloud, open_bucket
from lakepact.stores.objects_listing import list_objects

_TIMEOUT_S: Final = 120.0
"""Metadata files can be tens of megabytes."""

_ATTEMPTS: Final = 3

# Caches must not keep what may be replaced.
_REPLACED: Final = {"Cache-Control": "no-store"}


class ObjectBlobs:
    """The `BlobStore` port over a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @classmethod
    def open(cls, cloud: Cloud, name: str, prefix: str, options: Mapping[str, str] | None = None) -> ObjectBlobs:
        return cls(open_bucket(cloud, name, prefix, options, timeout_s=_TIMEOUT_S))

    async def put(self, name: str, data: bytes) -> bool:
        path = self._bucket.path(name)
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                async with self._bucket.turns:
                    await obstore.put_async(self._bucket.reading, path, data, mode="create")
                return True
            except Exception as error:
                # Refused or unknown, what is there decides. If nothing is, an attempt may still land late, and then
                # it lands with these same bytes: putting them again is safe.
                there = await self.get(name)
                if there is not None:
                    return there == data
                if not attempts_left:
                    raise unavailable(f"write {self._bucket.url}{name}", error) from error
        raise AssertionError("the last attempt returns or raises")

    async def put_all(self, blobs: Mapping[str, bytes]) -> None:
        puts = await asyncio.gather(*(self.put(name, data) for name, data in blobs.items()), return_exceptions=True)
        for put in puts:
            if isinstance(put, BaseException):
                raise put

    async def replace(self, name: str, data: bytes, was: bytes | None) -> bool:
        if was is None:
            return await self.put(name, data)
        path = self._bucket.path(name)
        failed: Exception | None = None
        for _ in range(_ATTEMPTS):
            there, condition = await self._get(name)
            if there != was:
                # Not ours to replace, unless an attempt has landed whose answer was lost.
                return there == data
            try:
                async with self._bucket.turns:
                    await obstore.put_async(
                        self._bucket.reading, path, data, mode=condition, attributes=dict(_REPLACED)
                    )
                return True
            except Exception as error:
                failed = error
        assert failed is not None
        raise unavailable(f"replace {self._bucket.url}{name}", failed) from failed

    async def get(self, name: str) -> bytes | None:
        return (await self._get(name))[0]

    async def _get(self, name: str) -> tuple[bytes | None, Any]:
        """The bytes, and the condition that they are still there."""
        path = self._bucket.path(name)
        try:
            async with self._bucket.turns:
                result = await obstore.get_async(self._bucket.reading, path)
                data = bytes(await result.bytes_async())
        except Exception as error:
            if is_missing_object(error):
                return None, None
            raise unavailable(f"read {self._bucket.url}{name}", error) from error
        # What the provider compares: see `objects`.
        field = "version" if self._bucket.cloud is Cloud.GCS else "e_tag"
        return data, {field: result.meta[field]}  # type: ignore[literal-required]

    async def exists(self, name: str) -> bool:
        path = self._bucket.path(name)
        try:
            async with self._bucket.turns:
                # The answer to a HEAD has no body, and so cannot say whether the object is missing or its bucket.
                await obstore.get_async(self._bucket.reading, path)
                return True
        except Exception as error:
            if is_missing_object(error):
                return False
            raise unavailable(f"look for {self._bucket.url}{name}", error) from error

    async def make_folder(self, name: str) -> None:
        """Folders are only names here."""

    async def list(self, prefix: str, after: str | None = None, limit: int = 1_000) -> Sequence[BlobEntry]:
        found = await list_objects(self._bucket, prefix, after, limit)
        return [BlobEntry(name, meta["size"], round(meta["last_modified"].timestamp() * 1_000)) for name, meta in found]

    async def delete(self, name: str) -> None:
        path = self._bucket.path(name)
        try:
            async with self._bucket.turns:
                await obstore.delete_async(self._bucket.reading, path)
        except Exception as error:
            if not is_missing_object(error):
                raise unavailable(f"delete {self._bucket.url}{name}", error) from error

    async def close(self) -> None:
        """obstore's connections close with the last reference to them."""
