"""What a set of updates means to do, and whether a table shows that it was done already.

Clients without an idempotency key send a commit again when its answer was lost. Refusing the second one makes them
delete files that the first one committed, so it must be recognised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakepact.iceberg import names
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.parse import Update

_ABOUT_SNAPSHOTS: Final = frozenset(
    {names.ADD_SNAPSHOT, names.REMOVE_SNAPSHOTS, names.SET_SNAPSHOT_REF, names.REMOVE_SNAPSHOT_REF}
)


def is_metadata_only(updates: Iterable[Update]) -> bool:
    """Whether the content of the table stays: no snapshot comes or goes, and no branch or tag moves.

    Such updates mean the same on a newer table. A snapshot does not: its manifests carry numbers that depend on what
    was there before.
    """
    return all(update.action not in _ABOUT_SNAPSHOTS for update in updates)


def adds_snapshots(updates: Iterable[Update]) -> tuple[int, ...]:
    """The ids of the snapshots these updates add, in order."""
    return tuple(snapshot["snapshot-id"] for snapshot in _added(updates))


def has_snapshots(metadata: JsonObject, updates: Iterable[Update]) -> bool:
    """Whether the updates add snapshots and all of these very snapshots are in the table.

    Snapshot ids are random, and the manifest list is compared too, so this can only be the same commit: it took
    effect, whatever was done to the branches since. Whoever answers "refused" now lets the client delete its files.
    """
    wanted = {snapshot["snapshot-id"]: _files(snapshot) for snapshot in _added(updates)}
    if not wanted:
        return False
    there = {
        snapshot["snapshot-id"]: _files(snapshot)
        for snapshot in metadata.get("snapshots") or ()
        if snapshot["snapshot-id"] in wanted
    }
    return there == wanted


def already_applied(metadata: JsonObject, updates: Iterable[Update]) -> bool:
    """Whether the table has the snapshots these updates add, and its branches and tags are where they put them.

    A branch that others have built upon since is in place too: what it was set to is an ancestor of what it is at.
    """
    updates = tuple(updates)
    if not has_snapshots(metadata, updates):
        return False
    # What a reference was set to last is what the commit left behind.
    targets: dict[str, int | None] = {}
    for update in updates:
        if update.action == names.SET_SNAPSHOT_REF:
            targets[update.body["ref-name"]] = update.body["ref"]["snapshot-id"]
        elif update.action == names.REMOVE_SNAPSHOT_REF:
            targets[update.body["ref-name"]] = None
    refs = metadata.get("refs") or {}
    parents = {snapshot["snapshot-id"]: snapshot.get("parent-snapshot-id") for snapshot in metadata["snapshots"]}
    for name, target in targets.items():
        at = refs[name]["snapshot-id"] if name in refs else None
        if at != target and (at is None or target is None or not _descends(at, target, parents)):
            return False
    return True


def _added(updates: Iterable[Update]) -> list[JsonObject]:
    return [update.body["snapshot"] for update in updates if update.action == names.ADD_SNAPSHOT]


def _files(snapshot: JsonObject) -> object:
    return snapshot.get("manifest-list") or snapshot.get("manifests")


def _descends(snapshot_id: int, ancestor: int, parents: dict[int, int | None]) -> bool:
    at: int | None = snapshot_id
    for _ in range(len(parents) + 1):
        if at == ancestor:
            return True
        if at is None:
            return False
        at = parents.get(at)
    return False
