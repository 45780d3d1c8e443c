"""What open transactions still look at, and nobody outside may take away from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakepact.catalog.errors import CommitFailed, NotFound
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlay import belongs_to
from lakepact.catalog.pointers import Pointer, shown
from lakepact.errors import TransactionError
from lakepact.iceberg import names as words
from lakepact.iceberg.metadata import current_snapshot_id, refs
from lakepact.iceberg.requests import Commit
from lakepact.kernel.keys import Key
from lakepact.kernel.model import State, TransactionRecord

_PAGE: Final = 100


async def refuse_removal_of_pinned(parts: Parts, pointer: Pointer, key: Key, commits: Sequence[Commit]) -> None:
    """Engines delete a snapshot's files right after its removal is committed, so it is refused while one is in use.

    In use is what a branch or tag, or the table itself, is at, as an open transaction sees it.
    """
    removed = {
        snapshot_id
        for commit in commits
        for update in commit.updates
        if update.action == words.REMOVE_SNAPSHOTS
        for snapshot_id in update.body["snapshot-ids"]
    }
    if not removed:
        return
    after: str | None = None
    while True:
        page = await parts.store.transactions([State.OPEN, State.PREPARED], after=after, limit=_PAGE)
        for record in page.transactions:
            if belongs_to(record, parts.warehouse.name):
                in_use = removed & await _in_use(parts, record, key)
                if in_use:
                    raise CommitFailed(
                        f"snapshot {min(in_use)} of {shown(pointer.identifier)} is in use by open transaction "
                        f"{record.id}. Expire it once that has ended"
                    )
        if page.after is None:
            return
        after = page.after


def removes_snapshots(commit: Commit) -> bool:
    return any(update.action == words.REMOVE_SNAPSHOTS for update in commit.updates)


async def _in_use(parts: Parts, record: TransactionRecord, key: Key) -> set[int]:
    try:
        cell = (await parts.store.read_in(record.id, [key], note=False))[key]
        pointer = Pointer.of(cell)
        if pointer is None:
            return set()
        document = (await parts.files.table(pointer.metadata_location)).document
    except (TransactionError, NotFound):
        # It has ended, or it can read this table no more: it will not look at it again.
        return set()
    current = current_snapshot_id(document)
    return {ref["snapshot-id"] for ref in refs(document).values()} | ({current} if current is not None else set())
