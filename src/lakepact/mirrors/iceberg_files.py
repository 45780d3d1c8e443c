"""The files of an Iceberg table's current snapshot, as its manifests list them.

The manifests are read through the warehouse's own blob store, with its credentials, and decoded by PyIceberg, which
is an extra. A manifest never changes, so it is read once.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from lakepact.catalog.warehouse import Warehouse
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.ports import BlobStore
from lakepact.mirrors.views import CannotShow

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

_MOST_ENTRIES: Final = 500_000
"""Files that are remembered."""


@dataclass(frozen=True, slots=True)
class _Entry:
    content: int
    """0 data, 1 position deletes, 2 equality deletes."""

    format: str
    path: str


@dataclass(frozen=True, slots=True)
class SnapshotFiles:
    data: tuple[str, ...]
    position_deletes: tuple[str, ...]
    other_deletes: bool
    """Whether rows are deleted in a way that a list of files cannot say."""

    all_parquet: bool


class IcebergFiles:
    def __init__(self, warehouse: Warehouse, blobs: BlobStore) -> None:
        self._warehouse = warehouse
        self._blobs = blobs
        self._manifests: OrderedDict[str, tuple[_Entry, ...]] = OrderedDict()
        self._entries = 0

    async def current(self, metadata: JsonObject) -> SnapshotFiles | None:
        """The files of the current snapshot; None if the table has none yet. Raises `CannotShow`, and
        `ModuleNotFoundError` without PyIceberg."""
        snapshot_id = metadata.get("current-snapshot-id")
        snapshot = next((one for one in metadata.get("snapshots") or () if one["snapshot-id"] == snapshot_id), None)
        if snapshot is None:
            return None
        if "manifest-list" not in snapshot:
            raise CannotShow("its snapshot has no manifest list")
        from pyiceberg.manifest import read_manifest_list

        manifests = list(read_manifest_list(await self._opened(snapshot["manifest-list"])))
        entries = [entry for manifest in manifests for entry in await self._manifest(manifest)]
        return SnapshotFiles(
            data=tuple(one.path for one in entries if one.content == 0),
            position_deletes=tuple(one.path for one in entries if one.content == 1 and one.format == "PARQUET"),
            other_deletes=any(one.content == 2 or (one.content == 1 and one.format != "PARQUET") for one in entries),
            all_parquet=all(one.format == "PARQUET" for one in entries if one.content == 0),
        )

    async def _manifest(self, manifest: ManifestFile) -> tuple[_Entry, ...]:
        path = manifest.manifest_path
        known = self._manifests.get(path)
        if known is not None:
            self._manifests.move_to_end(path)
            return known
        opened = await self._opened(path)
        entries = tuple(
            _Entry(int(entry.data_file.content), str(entry.data_file.file_format.value), entry.data_file.file_path)
            for entry in manifest.fetch_manifest_entry(_only(opened))
        )
        self._manifests[path] = entries
        self._entries += len(entries) + 1
        while self._entries > _MOST_ENTRIES and len(self._manifests) > 1:
            _, old = self._manifests.popitem(last=False)
            self._entries -= len(old) + 1
        return entries

    async def _opened(self, location: str) -> Any:
        data = await self._blobs.get(self._warehouse.blob_name(location, "manifest"))
        if data is None:
            raise CannotShow(f"its manifest {location} is not there")
        return _input(location, data)


def _input(location: str, data: bytes) -> Any:
    from pyiceberg.io import InputFile

    class InMemory(InputFile):
        def __len__(self) -> int:
            return len(data)

        def exists(self) -> bool:
            return True

        def open(self, seekable: bool = True) -> Any:
            return io.BytesIO(data)

    return InMemory(location)


def _only(file: Any) -> Any:
    """As much of a `FileIO` as reading one manifest takes."""
    return SimpleNamespace(new_input=lambda location: file)
