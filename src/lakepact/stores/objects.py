"""Documents in S3, Google Cloud Storage or Azure: nothing but the bucket is needed.

A conditional put is sent once and its answer is taken literally (`objects_answers`). The token is what the provider
compares: the ETag on S3 and Azure, the generation on Google. S3 ETags hash the content, so they may repeat; the other
two never do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import obstore

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import Applied, Document, DocumentEntry, StoreTime, Unknown, WriteOutcome
from lakepact.stores.objects_answers import is_missing_object, refusal_of, unavailable
from lakepact.stores.objects_client import Bucket, Cloud, open_bucket
from lakepact.stores.objects_listing import list_objects

# Google lets caches keep publicly readable objects for an hour unless told otherwise; a read must never be stale.
_ATTRIBUTES: Final = {"Cache-Control": "no-store", "Content-Type": "application/json"}

_CLOCK: Final = "clock.json"
"""An object without content, written only to learn the provider's time."""


class ObjectDocuments:
    """The `DocumentStore` port over a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    @classmethod
    def open(cls, cloud: Cloud, name: str, prefix: str, options: Mapping[str, str] | None = None) -> ObjectDocuments:
        return cls(open_bucket(cloud, name, prefix, options))

    async def get(self, name: str) -> Document | None:
        path = self._bucket.path(name)
        try:
            async with self._bucket.turns:
                result = await obstore.get_async(self._bucket.reading, path)
                data = bytes(await result.bytes_async())
        except Exception as error:
            if is_missing_object(error):
                return None
            raise unavailable(f"read {self._bucket.url}{name}", error) from error
        token = self._token(result.meta)
        if token is None:
            raise StoreUnavailable(f"{self._bucket.url}{name} was read, but the answer had no version token")
        return Document(data, token)

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        return await self._put(name, data, "create")

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        field = "version" if self._bucket.cloud is Cloud.GCS else "e_tag"
        return await self._put(name, data, {field: token})

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        found = await list_objects(self._bucket, prefix, after, limit)
        return [DocumentEntry(name, self._token(meta)) for name, meta in found]

    async def delete(self, name: str) -> None:
        path = self._bucket.path(name)
        try:
            async with self._bucket.turns:
                await obstore.delete_async(self._bucket.writing, path)
        except Exception as error:
            if not is_missing_object(error):
                raise unavailable(f"delete {self._bucket.url}{name}", error) from error

    async def time(self) -> StoreTime:
        """The provider's time: when it says that an object was written which is written now."""
        path = self._bucket.path(_CLOCK)
        try:
            async with self._bucket.turns:
                await obstore.put_async(self._bucket.writing, path, b"{}", attributes=dict(_ATTRIBUTES))
                meta = await obstore.head_async(self._bucket.reading, path)
        except Exception as error:
            raise unavailable(f"read the time of {self._bucket.url}{_CLOCK}", error) from error
        return StoreTime(int(meta["last_modified"].timestamp() * 1000), independent=True)

    async def close(self) -> None:
        """obstore's connections close with the last reference to them."""

    async def _put(self, name: str, data: bytes, mode: Any) -> WriteOutcome:
        path = self._bucket.path(name)
        try:
            async with self._bucket.turns:
                result = await obstore.put_async(
                    self._bucket.writing, path, data, mode=mode, attributes=dict(_ATTRIBUTES)
                )
        except Exception as error:
            return refusal_of(error, creating=mode == "create")
        token = self._token(result)
        if token is None:
            return Unknown(f"{self._bucket.url}{name} was written, but the answer had no version token")
        return Applied(token)

    def _token(self, meta: Any) -> str | None:
        if self._bucket.cloud is Cloud.GCS:
            # Google's listings give no generation here; the port allows a listing without tokens.
            version: str | None = meta["version"]
            return version
        e_tag: str | None = meta["e_tag"]
        if e_tag is not None and self._bucket.cloud is Cloud.AZURE and not e_tag.startswith('"'):
            # Azure's listings leave out the quotes that its headers have, and that If-Match needs.
            return f'"{e_tag}"'
        return e_tag
