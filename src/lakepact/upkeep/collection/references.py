"""The files that tables lead to, read through the warehouse.

A manifest never changes, so what was read once of it is kept: of other tables only the few paths that lie outside of
their own folders, which for nearly all tables is none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lakepact.catalog.errors import NotFound, Refusal
from lakepact.catalog.operations import Parts
from lakepact.catalog.pointers import Kind
from lakepact.catalog.reachable import Reached, Why
from lakepact.delta.paths import decode_path
from lakepact.errors import LakepactError, Unreadable
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.files import (
    beside_metadata,
    files_in,
    inline_manifests,
    is_inside,
    manifest_lists,
    manifests_in,
    one_spelling,
)

K = TypeVar("K")

_MOST_REMEMBERED: Final = 500_000
_AT_ONCE: Final = 16

_MARGIN_MS: Final = 3_600_000
"""How far times of files, which storage gives, may disagree."""

_MAY_BE_GONE: Final = (Why.PINNED, Why.MIRRORED, Why.STAGED)
"""Of a version that only few still look at, snapshots may have been expired and their files deleted."""


class CannotJudge(LakepactError):
    """A table cannot be read, so it is not known which files it needs."""

    type = "cannot-judge"

    def __init__(self, message: str, changed_ms: int | None = None) -> None:
        """`changed_ms`: when its metadata was written. It refers to no file that was written later. None: not known."""
        super().__init__(message)
        self.changed_ms = changed_ms

    def may_need(self, written_ms: int) -> bool:
        """Whether the table may refer to a file that was written then, by the clock of the storage."""
        return self.changed_ms is None or written_ms <= self.changed_ms + _MARGIN_MS


@dataclass(slots=True)
class TableFiles:
    """All that a table leads to, from the data up to its metadata: in the order in which it can be deleted."""

    data: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    metadata: set[str] = field(default_factory=set)
    """Manifest lists, statistics, earlier metadata files; not the current one."""


@dataclass(slots=True)
class Needed:
    """What others need of some folders."""

    paths: set[str] = field(default_factory=set)
    unreadable: list[CannotJudge] = field(default_factory=list)
    """One for each table that cannot be read: it may need files of any of the folders."""


class References:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._foreign: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()
        """By manifest and folder: what it names outside of it. Tables of several folders may share a manifest."""

        self._manifests: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        """By manifest list."""

    async def of_table(self, location: str, document: JsonObject) -> TableFiles:
        """What this version leads to, as far as it can be read: what has gone already leads nowhere."""
        found = TableFiles(metadata=beside_metadata(location, document) | manifest_lists(document))
        found.metadata.discard(location)
        found.manifests = inline_manifests(document)
        for data in await self._read_there(sorted(manifest_lists(document))):
            found.manifests.update(manifests_in(*data))
        for data in await self._read_there(sorted(found.manifests)):
            found.data.update(files_in(*data))
        return found

    async def needed_by_others(self, others: Iterable[Reached], folders: Collection[str]) -> Needed:
        """Return the files below these folders that others refer to. All in `one_spelling`."""
        found = Needed()
        for one in others:
            try:
                paths = await self._leads_outside(one)
            except CannotJudge as error:
                found.unreadable.append(error)
                continue
            for path in paths:
                if any(is_inside(path, folder) for folder in folders):
                    found.paths.add(path)
        return found

    # --- how ---

    async def _leads_outside(self, one: Reached) -> list[str]:
        """What a table needs outside of its own folder."""
        own = one_spelling(one.location)
        if one.kind is Kind.VIEW or one.metadata_location is None:
            return []
        if one.kind is Kind.DELTA:
            return await self._delta_leads_outside(one, own)
        try:
            document = (await self._parts.files.table(one.metadata_location)).document
            paths = beside_metadata(one.metadata_location, document) | manifest_lists(document)
            manifests = inline_manifests(document)
            for list_location in manifest_lists(document):
                manifests.update(await self._listed(list_location, one))
            found = {path for path in map(one_spelling, paths | manifests) if not is_inside(path, own)}
            for manifest in manifests:
                found.update(await self._outside(manifest, own, one))
        except (NotFound, Unreadable, Refusal) as error:
            if one.why in _MAY_BE_GONE:
                return []
            raise CannotJudge(
                f"{one.name} cannot be read, so it is not known which files it needs: {error}. Repair it or drop it",
                await self._changed_ms(one.metadata_location),
            ) from error
        return sorted(found)

    async def _changed_ms(self, metadata_location: str) -> int | None:
        """When this file was written; None if it is not there."""
        try:
            name = self._parts.warehouse.blob_name(metadata_location)
        except Refusal:
            return None
        entries = await self._parts.blobs.list(name, None, 1)
        return entries[0].modified_ms if entries and entries[0].name == name else None

    async def _delta_leads_outside(self, one: Reached, own: str) -> list[str]:
        if self._parts.rows is None or one.version is None:
            return []
        found: list[str] = []
        for add in await self._parts.rows.files(one.id, one.version):
            path = decode_path(add.path)
            if ":" in path.partition("/")[0] or path.startswith("/"):
                found.append(one_spelling(path))
        return [path for path in found if not is_inside(path, own)]

    async def _listed(self, location: str, one: Reached) -> tuple[str, ...]:
        known = self._manifests.get(location)
        if known is None:
            data = await self._bytes(location, one)
            known = () if data is None else tuple(manifests_in(data, location))
            _remember(self._manifests, location, known)
        return known

    async def _outside(self, manifest: str, own: str, one: Reached) -> tuple[str, ...]:
        known = self._foreign.get((manifest, own))
        if known is None:
            data = await self._bytes(manifest, one)
            paths = () if data is None else map(one_spelling, files_in(data, manifest))
            known = tuple(path for path in paths if not is_inside(path, own))
            _remember(self._foreign, (manifest, own), known)
        return known

    async def _bytes(self, location: str, one: Reached) -> bytes | None:
        """None: it has gone, and may have."""
        data = await self._parts.blobs.get(self._parts.warehouse.blob_name(location))
        if data is None and one.why not in _MAY_BE_GONE:
            raise NotFound(f"{location} is not in the warehouse")
        return data

    async def _read_there(self, locations: list[str]) -> list[tuple[bytes, str]]:
        """The bytes of those that are there and inside the warehouse, each with its name."""
        found: list[tuple[bytes, str]] = []
        for start in range(0, len(locations), _AT_ONCE):
            inside: list[tuple[str, str]] = []
            for location in locations[start : start + _AT_ONCE]:
                try:
                    inside.append((location, self._parts.warehouse.blob_name(location)))
                except Refusal:
                    continue
            read = await self._parts.tasks.all([self._parts.blobs.get(name) for _, name in inside])
            found += [(data, location) for (location, _), data in zip(inside, read, strict=True) if data is not None]
        return found


def _remember(memory: OrderedDict[K, tuple[str, ...]], key: K, value: tuple[str, ...]) -> None:
    memory[key] = value
    if len(memory) > _MOST_REMEMBERED:
        memory.popitem(last=False)
