"""The metadata with which a table that was changed step by step becomes visible: one version, one time.

Readers that travel by timestamp look at the snapshot log. What happened between two steps was never to be seen, so the
log gets one entry, and all tables of the transaction get the same time. Their new snapshots get it, too: `committed_at`
in the `snapshots` table is when a snapshot became visible, equal in all tables of a commit, and `TIMESTAMP AS OF` that
value finds it. No other file of a table repeats the timestamp of a snapshot, so nothing has to be written again for it.
"""

from __future__ import annotations

from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.logs import extended_metadata_log
from lakepact.iceberg.metadata import current_snapshot_id


def published(staged: JsonObject, *, base: JsonObject | None, base_location: str | None, now_ms: int) -> JsonObject:
    """The staged metadata as the successor of its base (None: the table is new), as of this instant."""
    document = {**staged, "last-updated-ms": now_ms}
    known = {snapshot["snapshot-id"] for snapshot in (base or {}).get("snapshots") or ()}
    if "snapshots" in staged:
        document["snapshots"] = [
            snapshot if snapshot["snapshot-id"] in known else {**snapshot, "timestamp-ms": now_ms}
            for snapshot in staged["snapshots"]
        ]
    before = current_snapshot_id(base) if base is not None else None
    current = current_snapshot_id(staged)
    log: list[JsonObject] = list((base or {}).get("snapshot-log") or ())
    if current is not None and current != before:
        log.append({"timestamp-ms": now_ms, "snapshot-id": current})
    document["snapshot-log"] = log
    document["metadata-log"] = []
    if base is not None and base_location is not None:
        document["metadata-log"], _ = extended_metadata_log(
            list(base.get("metadata-log") or ()),
            previous_location=base_location,
            previous_ms=base["last-updated-ms"],
            properties=staged.get("properties") or {},
        )
    return document
