"""The files of an Iceberg table's current snapshot, as its manifests list them.

The manifests are read through the warehouse's own blob store, with its credentials. Whoever writes a table writes its
manifests, so their word is taken for the table's own folders alone: what leads out of them is shown to nobody. A
manifest never changes, so it is read once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lakepact.catalog.errors import Refusal
from lakepact.catalog.warehouse import Warehouse
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.files import ListedFile, listed_files, manifests_in
from lakepact.kernel.ports import BlobStore
from lakepact.mirrors.views import CannotShow, LeadsElsewhere

_MOST_ENTRIES: Final = 500_000
"""Files that are remembered."""

Places: TypeAlias = tuple[str, ...]
"""The folders of one table, as `Warehouse.places_of` names them."""


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
        self._manifests: OrderedDict[tuple[str, Places], tuple[ListedFile, ...]] = OrderedDict()
        """By manifest and the folders in which all that it lists was found to lie."""

        self._entries = 0

    async def current(self, location: str, metadata: JsonObject) -> SnapshotFiles | None:
        """The files of the current snapshot, all of them in the table's own folders; None if the table has none yet.
        `location`: where the table lies. Raises `LeadsElsewhere`, `CannotShow` and `Unreadable`."""
        snapshot_id = metadata.get("current-snapshot-id")
        snapshot = next((one for one in metadata.get("snapshots") or () if one["snapshot-id"] == snapshot_id), None)
        if snapshot is None:
            return None
        properties: Mapping[str, Any] = metadata.get("properties") or {}
        own = self._warehouse.places_of(location, properties)
        manifests = await self._listed(snapshot, own)
        entries = [entry for manifest in manifests for entry in await self._manifest(manifest, own)]
        return SnapshotFiles(
            data=tuple(one.path for one in entries if one.content == 0),
            position_deletes=tuple(one.path for one in entries if one.content == 1 and one.format == "PARQUET"),
            other_deletes=any(one.content == 2 or (one.content == 1 and one.format != "PARQUET") for one in entries),
            all_parquet=all(one.format == "PARQUET" for one in entries if one.content == 0),
        )

    async def _listed(self, snapshot: JsonObject, own: Places) -> list[str]:
        if "manifest-list" not in snapshot:
            return list(snapshot.get("manifests") or ())
        location = snapshot["manifest-list"]
        return manifests_in(await self._opened(location, own), location)

    async def _manifest(self, path: str, own: Places) -> tuple[ListedFile, ...]:
        known = self._manifests.get((path, own))
        if known is not None:
            self._manifests.move_to_end((path, own))
            return known
        entries = tuple(listed_files(await self._opened(path, own), path))
        self._check((one.path for one in entries), own)
        self._manifests[path, own] = entries
        self._entries += len(entries) + 1
        while self._entries > _MOST_ENTRIES and len(self._manifests) > 1:
            _, old = self._manifests.popitem(last=False)
            self._entries -= len(old) + 1
        return entries

    async def _opened(self, location: str, own: Places) -> bytes:
        self._check([location], own)
        data = await self._blobs.get(self._warehouse.blob_name(location, "manifest"))
        if data is None:
            raise CannotShow(f"its manifest {location} is not there")
        return data

    def _check(self, paths: Iterable[str], own: Places) -> None:
        for path in paths:
            try:
                inside = self._warehouse.lies_in(path, own)
            except Refusal:
                inside = False
            if not inside:
                raise LeadsElsewhere(
                    f"it leads to {path[:300]}, which is not in a folder of its own. Copy the file to where the table "
                    f"lies, or have who manages the warehouse set write.data.path"
                )
