"""Updates of a table's content: snapshots, and the branches and tags that name them."""

from __future__ import annotations

from lakepact.iceberg.bodies import same_ref
from lakepact.iceberg.draft import Draft
from lakepact.iceberg.errors import InvalidUpdate, StaleUpdate
from lakepact.iceberg.fields import INT64_MAX, JsonObject
from lakepact.iceberg.names import BRANCH, MAIN
from lakepact.iceberg.update_table import remove_files


def add_snapshot(draft: Draft, body: JsonObject) -> None:
    snapshot = body["snapshot"]
    snapshot_id = snapshot["snapshot-id"]
    for name, what in (("schemas", "schema"), ("partition-specs", "partition spec"), ("sort-orders", "sort order")):
        if not draft.seen(name):
            raise InvalidUpdate(f"add-snapshot: the table has no {what} yet; add one before the first snapshot")
    if snapshot_id in draft.snapshots:
        raise InvalidUpdate(f"add-snapshot: there is a snapshot with id {snapshot_id} already")
    snapshot = _numbered(draft, snapshot)
    if draft.format_version >= 3:
        _take_row_ids(draft, snapshot)
    draft.snapshots[snapshot_id] = snapshot
    draft.owned("snapshots").append(snapshot)
    draft.added_snapshot_ids.add(snapshot_id)


def _numbered(draft: Draft, snapshot: JsonObject) -> JsonObject:
    """Return the snapshot with its sequence number, and make that the table's last one.

    A client may leave the number out; then it is the next one of the table. Clients that number their snapshots find
    out by the number that somebody else was faster. Without one that shows by the parent: it must be what a branch or
    tag points to, or come from the same request.

    A snapshot with a parent comes after everything that was committed before it.

    One without a parent starts a new history, as a replaced table does. It and what follows it in the same request may
    have been numbered beside a commit that came first. The table's last number never goes back even then, for the next
    writer counts on from it.
    """
    if draft.format_version == 1:
        if number := snapshot.get("sequence-number", 0):
            raise InvalidUpdate(f"add-snapshot: format 1 has no sequence numbers, found {number}")
        return snapshot
    last = draft.sequence_number
    if snapshot.get("sequence-number") is None:
        _check_parent(draft, snapshot)
        # After everything that the table has, also where this request has begun a new history.
        number = max(last, draft.document["last-sequence-number"]) + 1
        draft.sequence_number = draft.document["last-sequence-number"] = number
        return {**snapshot, "sequence-number": number}
    number = snapshot["sequence-number"]
    if number <= last and "parent-snapshot-id" in snapshot:
        raise StaleUpdate(
            f"Validation failed, please retry: snapshot {snapshot['snapshot-id']} has sequence number {number}, but "
            f"the table is at {last} already",
            field="sequence-number",
            sent=number,
            actual=last,
        )
    draft.sequence_number = number
    draft.document["last-sequence-number"] = max(draft.document["last-sequence-number"], number)
    return snapshot


def _check_parent(draft: Draft, snapshot: JsonObject) -> None:
    parent = snapshot.get("parent-snapshot-id")
    heads = {ref["snapshot-id"] for ref in (draft.document.get("refs") or {}).values()} | draft.added_snapshot_ids
    if parent is None or parent in heads or parent == draft.current_snapshot_id:
        return
    raise StaleUpdate(
        f"Validation failed, please retry: the parent {parent} of snapshot {snapshot['snapshot-id']} is not what a "
        f"branch or tag points to (any more)",
        field="parent-snapshot-id",
        sent=parent,
        actual=draft.current_snapshot_id or 0,
    )


def _take_row_ids(draft: Draft, snapshot: JsonObject) -> None:
    first, next_row_id = snapshot.get("first-row-id"), draft.document["next-row-id"]
    if first is None:
        raise InvalidUpdate("add-snapshot: in format 3 a snapshot needs 'first-row-id' and 'added-rows'")
    if first < next_row_id:
        raise StaleUpdate(
            f"Validation failed, please retry: snapshot {snapshot['snapshot-id']} has first-row-id {first}, but the "
            f"table's next-row-id is {next_row_id} already",
            field="first-row-id",
            sent=first,
            actual=next_row_id,
        )
    if next_row_id + snapshot["added-rows"] > INT64_MAX:
        raise InvalidUpdate("add-snapshot: 'added-rows' is larger than the row ids that are left")
    draft.document["next-row-id"] = next_row_id + snapshot["added-rows"]


def remove_snapshots(draft: Draft, body: JsonObject) -> None:
    """Their statistics go with them, and so does every reference to one. Ids that are not there are ignored."""
    gone = {snapshot_id for snapshot_id in body["snapshot-ids"] if snapshot_id in draft.snapshots}
    if not gone:
        return
    draft.replace("snapshots", [kept for kept in draft.seen("snapshots") if kept["snapshot-id"] not in gone])
    for snapshot_id in gone:
        del draft.snapshots[snapshot_id]
    draft.removed_snapshots = True
    remove_files(draft, "statistics", gone)
    remove_files(draft, "partition-statistics", gone)
    refs: JsonObject = draft.document.get("refs") or {}
    for name in [name for name, ref in refs.items() if ref["snapshot-id"] not in draft.snapshots]:
        _remove_ref(draft, name)
    if draft.current_snapshot_id in gone:
        draft.current_snapshot_id = None


def set_snapshot_ref(draft: Draft, body: JsonObject) -> None:
    name, ref = body["ref-name"], body["ref"]
    old = (draft.document.get("refs") or {}).get(name)
    if old is not None and same_ref(old, ref):
        return
    snapshot_id = ref["snapshot-id"]
    snapshot = draft.snapshots.get(snapshot_id)
    if snapshot is None:
        raise InvalidUpdate(f"set-snapshot-ref: {name!r} cannot point to snapshot {snapshot_id}: there is none")
    if name == MAIN:
        if ref["type"] != BRANCH:
            raise InvalidUpdate(f"set-snapshot-ref: {MAIN!r} is a branch and cannot become a tag")
        draft.current_snapshot_id = snapshot_id
        added = snapshot_id in draft.added_snapshot_ids
        if added:
            draft.passed_main.append(snapshot_id)
        # Going back to an older snapshot happens now, not when that snapshot was made.
        changed_ms = snapshot["timestamp-ms"] if added else draft.updated_ms
        draft.owned("snapshot-log").append({"timestamp-ms": changed_ms, "snapshot-id": snapshot_id})
    draft.owned_object("refs")[name] = ref


def remove_snapshot_ref(draft: Draft, body: JsonObject) -> None:
    """Removing what is not there is fine. Without `main` the table is empty; its history stays."""
    _remove_ref(draft, body["ref-name"])


def _remove_ref(draft: Draft, name: str) -> None:
    if name == MAIN and draft.current_snapshot_id is not None:
        draft.current_snapshot_id = None
    if name in (draft.document.get("refs") or {}):
        del draft.owned_object("refs")[name]
