"""The versions of a table, in pages, each with its receipt.

A receipt's place follows from the version's location and time, and the metadata lists both for the versions before it:
so a page of versions is a page of receipts, without a listing. Where the log of the newest metadata ends, the oldest
file it names goes on, as long as it is there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact.catalog.files import MetadataFile
from lakepact.catalog.history import Entry, Version, timeline, version_number, versions_of
from lakepact.catalog.pointers import Pointer
from lakepact.catalog.receipts import cell_commit_key
from lakepact.delta.ports import VersionRow
from lakepact.errors import LakepactError
from lakepact.server.ui.receipts import Document, Documents
from lakepact.server.ui.told import receipts_for
from lakepact.server.ui.window import Window

PAGE: Final = 50
_MOST_RENAMES: Final = 4


@dataclass(frozen=True, slots=True)
class Start:
    """Where a page begins."""

    file: str
    """The metadata file whose log is followed."""

    version: str
    """The version in it, by its location."""


@dataclass(frozen=True, slots=True)
class Versions:
    """A page of the timeline, the newest first."""

    entries: Sequence[Entry]
    following: Start | None
    """Where the next page begins."""

    complete: bool
    """Whether every version has its receipt: then it will never look different."""

    receipts: Mapping[str, Document]
    """By the metadata location they are of."""


class Timeline:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def page(
        self, window: Window, pointer: Pointer, file: MetadataFile, start: Start | None = None, limit: int = PAGE
    ) -> Versions:
        """From the newest version on, or from `start`, which an earlier page has named."""
        source: MetadataFile | None = file
        if start is not None and start.file != file.location:
            source = await self._older(window, pointer, start.file)
        versions = versions_of(source.location, source.document) if source is not None else []
        at = 0 if start is None else _index(versions, start.version)
        wanted: list[Version] = []
        following: Start | None = None
        while source is not None and at is not None:
            room = limit - len(wanted)
            wanted += versions[at : at + room]
            at += room
            if at < len(versions):
                following = Start(source.location, versions[at].metadata_location)
                break
            # The log ends here, the table's history perhaps not: the oldest file knows what came before it.
            source = await self._before(window, pointer, versions)
            versions, at = versions_of(source.location, source.document)[1:] if source is not None else [], 0
            if source is None or not versions:
                break
            if len(wanted) >= limit:
                following = Start(source.location, versions[0].metadata_location)
                break
        receipts = await self.receipts(window, wanted)
        entries = timeline(pointer.metadata_location, file.document, receipts, wanted)
        return Versions(entries, following, len(receipts) == len(wanted), receipts)

    async def receipts(self, window: Window, versions: Sequence[Version]) -> dict[str, Document]:
        """By metadata location."""
        names = {_receipt_name(version): version.metadata_location for version in versions}
        found = await self._documents.read(window.inside, (name for name in names if name is not None))
        return await receipts_for(window, {names[name]: document for name, document in found.items()})

    async def delta(
        self, window: Window, pointer: Pointer, revision: int, rows: Sequence[VersionRow]
    ) -> dict[int, Document]:
        """Receipts of versions of a Delta table, by version.

        They go by the revision of the table's cell, which grows with every version and with every renaming: the
        transaction tells whether it is the right one.
        """
        current, generation = int(pointer.summary.get("version") or 0), window.inside.settings.generation
        places = {
            (row.version, back): _delta_name(pointer.id, revision - (current - row.version) - back, generation, row)
            for row in rows
            for back in range(_MOST_RENAMES)
        }
        found: dict[int, Document] = {}
        for back in range(_MOST_RENAMES):
            missing = {place: row for row in rows if row.version not in found and (place := places[row.version, back])}
            documents = await self._documents.read(window.inside, missing)
            for place, document in documents.items():
                if document.get("transaction-id") == missing[place].transaction_id:
                    found[missing[place].version] = document
            if len(found) == len(rows):
                break
        return await receipts_for(window, found)

    async def _before(self, window: Window, pointer: Pointer, versions: Sequence[Version]) -> MetadataFile | None:
        """The oldest of these versions, if anything was before it."""
        if not versions or version_number(versions[-1].metadata_location) == 0:
            return None
        return await self._older(window, pointer, versions[-1].metadata_location)

    async def _older(self, window: Window, pointer: Pointer, location: str) -> MetadataFile | None:
        """An earlier version of this very table, if it is still there."""
        try:
            file = await window.inside.table_file(location)
        except LakepactError:
            return None
        return file if file.document.get("table-uuid") == pointer.id else None


def _index(versions: Sequence[Version], location: str) -> int | None:
    return next((at for at, one in enumerate(versions) if one.metadata_location == location), None)


def _receipt_name(version: Version) -> str | None:
    try:
        return version.receipt_name
    except (OverflowError, OSError, ValueError, TypeError):
        # A time that has no date: whoever wrote it left no receipt.
        return None


def _delta_name(table_id: str, revision: int, generation: int, row: VersionRow) -> str | None:
    if revision < 1:
        return None
    at = _receipt_name(Version("", row.info.timestamp_ms))
    if at is None:
        return None
    day = at.split("/")[2]
    return f"_catalog/events/{day}/delta/committed/{cell_commit_key(table_id, revision, generation)}.json"


def figures(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The snapshots of a table in the order in which they became current."""
    snapshots = {one.get("snapshot-id"): one for one in document.get("snapshots") or ()}
    log = document.get("snapshot-log") or ()
    became = [snapshots[one["snapshot-id"]] for one in log if one.get("snapshot-id") in snapshots]
    return became or sorted(snapshots.values(), key=lambda one: one.get("timestamp-ms") or 0)
