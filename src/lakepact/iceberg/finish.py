"""The end of a fold: what must hold of the result, and the fields that only the end can say.

Everything checked here is checked again by every client that loads the table. Metadata that breaks one of these rules
would lock them out, so the commit is refused instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakepact.iceberg import logs, orders, specs
from lakepact.iceberg.draft import Draft
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.limits import TABLE_PROPERTIES

_LAYOUT: Final = (
    "schemas",
    "current-schema-id",
    "partition-specs",
    "default-spec-id",
    "sort-orders",
    "default-sort-order-id",
)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a fold came to."""

    metadata: JsonObject
    changed: bool
    """False: nothing is different. `metadata` is the base, and no new version is to be written."""

    dropped_files: tuple[str, ...] = ()
    """Metadata files that no longer have a place in the metadata log. Whether they go is for the table to say."""


def finish(draft: Draft) -> Applied:
    if draft.base is not None and draft.document == draft.base:
        return Applied(draft.base, changed=False)
    document = draft.document
    if draft.base is None:
        _complete_creation(draft)
    _check_layout(draft)
    count, before = (len((one or {}).get("properties") or ()) for one in (document, draft.base))
    if count > before:
        # A table that has too many already can still be changed otherwise.
        TABLE_PROPERTIES.check(count, "properties of the table")
    _finish_snapshot_log(draft)
    # Written anew, since formats write "no snapshot" differently and other writers leave it out.
    draft.current_snapshot_id = draft.current_snapshot_id
    document["last-updated-ms"] = draft.updated_ms
    dropped: list[str] = []
    if draft.base is not None and draft.context.previous_location is not None:
        log, dropped = logs.extended_metadata_log(
            draft.seen("metadata-log"),
            previous_location=draft.context.previous_location,
            previous_ms=draft.base["last-updated-ms"],
            properties=document.get("properties") or {},
        )
        draft.replace("metadata-log", log)
    if draft.format_version == 1:
        _write_for_old_readers(document)
    return Applied(document, changed=True, dropped_files=tuple(dropped))


def _complete_creation(draft: Draft) -> None:
    document = draft.document
    for name, value in (("table-uuid", draft.context.new_uuid), ("location", draft.context.new_location)):
        if document.get(name) is None:
            if value is None:
                raise InvalidUpdate(f"the updates of a creation must say the table's {name}")
            document[name] = value


def _check_layout(draft: Draft) -> None:
    """The current schema, the default spec and the default order exist and fit each other."""
    document = draft.document
    if draft.base is not None and all(document[name] is draft.base[name] for name in _LAYOUT):
        return
    columns = draft.columns()
    spec_id, order_id = document["default-spec-id"], document["default-sort-order-id"]
    spec = next((spec for spec in draft.seen("partition-specs") if spec["spec-id"] == spec_id), None)
    if spec is None:
        raise InvalidUpdate(f"there is no partition spec {spec_id}, the default one; add it and make it the default")
    order = next((order for order in draft.seen("sort-orders") if order["order-id"] == order_id), None)
    if order is None:
        raise InvalidUpdate(f"there is no sort order {order_id}, the default one; add it and make it the default")
    specs.check_compatible(spec, columns)
    orders.check_compatible(order, columns)


def _finish_snapshot_log(draft: Draft) -> None:
    base_log = [] if draft.base is None else draft.base.get("snapshot-log") or []
    log = draft.seen("snapshot-log")
    current = draft.current_snapshot_id
    passed = {snapshot_id for snapshot_id in draft.passed_main if snapshot_id != current}
    rebuilt = log
    if passed or draft.removed_snapshots:
        rebuilt = logs.rebuilt_snapshot_log(
            log, snapshots=draft.snapshots, passed=passed, removed=draft.removed_snapshots
        )
    if rebuilt is base_log:
        return
    ordered = logs.ordered_snapshot_log(rebuilt, known=len(rebuilt) - (len(log) - len(base_log)))
    base_ms = 0 if draft.base is None else draft.base["last-updated-ms"]
    logs.check_snapshot_log(
        ordered,
        current=current,
        must_end=rebuilt is not log,
        latest_ms=max(base_ms, draft.context.now_ms + logs.CLOCK_SKEW_MS),
    )
    if ordered:
        # The writer's clock may be ahead of this server's. The metadata must not be older than its newest snapshot.
        draft.updated_ms = max(draft.updated_ms, ordered[-1]["timestamp-ms"])
    if ordered is not log:
        draft.replace("snapshot-log", ordered)


def _write_for_old_readers(document: JsonObject) -> None:
    """Readers from before format 2 know one schema and one spec, each in a field of its own."""
    schema_id, spec_id = document["current-schema-id"], document["default-spec-id"]
    document["schema"] = next(schema for schema in document["schemas"] if schema.get("schema-id", 0) == schema_id)
    document["partition-spec"] = next(
        spec["fields"] for spec in document["partition-specs"] if spec["spec-id"] == spec_id
    )
