"""What open transactions still look at, and nobody outside may take away from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeAlias

from lakepact.catalog.errors import CommitFailed, NotFound, StillInUse
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlay import belongs_to
from lakepact.catalog.pointers import Pointer, shown
from lakepact.catalog.work import Draft, PlanGuard
from lakepact.errors import TransactionError
from lakepact.iceberg import names as words
from lakepact.iceberg.metadata import current_snapshot_id, refs
from lakepact.iceberg.requests import Commit
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import State, TransactionRecord

_PAGE: Final = 100

Removals: TypeAlias = "dict[Key, tuple[Pointer, Sequence[Commit]]]"
"""Tables that snapshots are removed from, and by what."""


def removed_by(commits: Sequence[Commit]) -> set[int]:
    return {
        snapshot_id
        for commit in commits
        for update in commit.updates
        if update.action == words.REMOVE_SNAPSHOTS
        for snapshot_id in update.body["snapshot-ids"]
    }


async def in_use(parts: Parts, key: Key) -> AsyncIterator[tuple[TransactionRecord, set[int]]]:
    """The snapshots of a table that open transactions look at.

    That is what a branch or tag, or the table itself, is at, as an open transaction sees it.
    """
    after: str | None = None
    while True:
        page = await parts.store.transactions([State.OPEN, State.PREPARED], after=after, limit=_PAGE)
        for record in page.transactions:
            if belongs_to(record, parts.warehouse.name):
                yield record, await _in_use(parts, record, key)
        if page.after is None:
            return
        after = page.after


class SparingPinned:
    """Looks at what a plan removes, after whoever else looks at the plan: what may not be seen is in use by nobody."""

    def __init__(self, parts: Parts, rights: PlanGuard | None) -> None:
        self._parts = parts
        self._rights = rights
        self.removals: Removals = {}
        """Of the last plan."""

    async def before(self, draft: Draft) -> None:
        if self._rights is not None:
            await self._rights.before(draft)

    async def after(self, draft: Draft) -> None:
        if self._rights is not None:
            await self._rights.after(draft)
        self.removals = {
            key: (Pointer.from_json(after), commits)
            for key, commits in draft.commits.items()
            if removed_by(commits) and (after := draft.writes[key]) is not None
        }
        for key, (pointer, commits) in self.removals.items():
            await _refuse_removal_of_pinned(self._parts, pointer, key, commits)


async def _refuse_removal_of_pinned(parts: Parts, pointer: Pointer, key: Key, commits: Sequence[Commit]) -> None:
    """Engines delete a snapshot's files right after its removal is committed, so it is refused while one is in use.

    A transaction may begin right after this look: see `check_nobody_came`.
    """
    removed = removed_by(commits)
    async for record, used in in_use(parts, key):
        if removed & used:
            raise CommitFailed(
                f"snapshot {min(removed & used)} of {shown(pointer.identifier)} is in use by open transaction "
                f"{record.id}. Expire it once that has ended"
            )


async def check_nobody_came(
    parts: Parts, transaction_id: TransactionId, pointer: Pointer, key: Key, commits: Sequence[Commit]
) -> None:
    """After the removal: whether a transaction has begun between the first look and the commit. Raises `StillInUse`.

    Whoever begins after the commit does not see the snapshots any more, and whoever began before it is listed by now: a
    transaction is listed before it gets its instant. So what is not found here is in use by nobody, and an answer that
    lets the engine delete files is only given then. What is found keeps its files until the search for orphans.
    """
    removed = removed_by(commits)
    async for record, used in in_use(parts, key):
        if removed & used:
            raise StillInUse(transaction_id, shown(pointer.identifier), min(removed & used), record.id)


def removes_snapshots(commit: Commit) -> bool:
    return any(update.action == words.REMOVE_SNAPSHOTS for update in commit.updates)


async def _in_use(parts: Parts, record: TransactionRecord, key: Key) -> set[int]:
    try:
        cell = (await parts.store.read_in(record.id, [key], note=False))[key]
        pointer = Pointer.of(cell)
        if pointer is None:
            return set()
        document = (await parts.files.of(pointer)).document
    except (TransactionError, NotFound):
        # It has ended, or it can read this table no more: it will not look at it again.
        return set()
    current = current_snapshot_id(document)
    return {ref["snapshot-id"] for ref in refs(document).values()} | ({current} if current is not None else set())
