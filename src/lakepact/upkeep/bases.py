"""The version before the one that a change has made: what it did not have is what the change has added."""

from __future__ import annotations

from lakepact.catalog.errors import NotFound, Refusal
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.pointers import Kind
from lakepact.catalog.receipts import CommittedChange
from lakepact.errors import Unreadable
from lakepact.iceberg.fields import JsonObject


async def base_of(change: CommittedChange, files: MetadataFiles) -> JsonObject | None:
    """None: there was none, or its file is gone. Right after a commit it is at hand, since the commit has read it."""
    location = change.pointer.previous_metadata_location if change.pointer is not None else None
    if location is None or change.kind != Kind.TABLE or not change.made_its_metadata:
        return None
    try:
        return (await files.table(location, look=False)).document
    except (Refusal, NotFound, Unreadable):
        return None
