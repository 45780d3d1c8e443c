"""Whether a file from elsewhere is table metadata that every client can load. Asked once, when it is registered.

A commit trusts the metadata it starts from. So what another catalog wrote is looked at in full before it becomes that.
"""

from __future__ import annotations

from lakepact.errors import Unreadable
from lakepact.iceberg import logs, metadata, orders, specs
from lakepact.iceberg.bodies import (
    check_encryption_key,
    check_partition_statistics,
    check_ref,
    check_snapshot,
    check_statistics,
)
from lakepact.iceberg.columns import columns_of
from lakepact.iceberg.errors import InvalidIceberg, InvalidMetadata, Malformed
from lakepact.iceberg.fields import JsonObject, check_depth, int64, json_list, json_object, text, text_map
from lakepact.iceberg.names import MAIN
from lakepact.iceberg.orders import check_order
from lakepact.iceberg.schemas import check_format, check_schema
from lakepact.iceberg.specs import check_spec


def check_table_metadata(document: object) -> JsonObject:
    """The metadata as the fold needs it. Raises `InvalidMetadata` with the first thing that is wrong."""
    try:
        check_depth(document, "table metadata")
        _check_parts(document)
        found = metadata.read(document)
        _check_layout(found)
        _check_snapshots(found)
        _check_logs(found)
    except (InvalidIceberg, Unreadable) as error:
        raise InvalidMetadata(f"the file is not valid table metadata: {error}") from error
    return found


def _check_parts(document: object) -> None:
    """What `read` already relies on where format 1 leaves things out."""
    parts = json_object(document, "table metadata")
    for spec in json_list(parts.get("partition-specs") or [], "partition-specs"):
        check_spec(spec, "partition-specs")
    if parts.get("partition-spec") is not None:
        check_spec({"fields": parts["partition-spec"]}, "partition-spec")
    if parts.get("schema") is not None:
        check_schema(parts["schema"], "schema")


def _check_layout(found: JsonObject) -> None:
    for schema in found["schemas"]:
        check_schema(schema, "schemas")
    for order in found["sort-orders"]:
        check_order(order, "sort-orders")
        if "order-id" not in order:
            raise Malformed("sort-orders: 'order-id' is missing")
    for spec in found["partition-specs"]:
        if "spec-id" not in spec:
            raise Malformed("partition-specs: 'spec-id' is missing")
    for name, key in (("schemas", "schema-id"), ("partition-specs", "spec-id"), ("sort-orders", "order-id")):
        ids = [one.get(key, 0) for one in found[name]]
        if len(set(ids)) < len(ids):
            raise Malformed(f"{name}: a {key} is used twice")
    schema = metadata.current_schema(found)
    check_format(schema, found["format-version"])
    columns = columns_of(schema)
    for spec in found["partition-specs"]:
        specs.check_names(spec, columns)
    specs.check_compatible(metadata.default_spec(found), columns)
    orders.check_compatible(metadata.default_order(found), columns)
    if found.get("properties") is not None:
        text_map(found, "properties", "table metadata")


def _check_snapshots(found: JsonObject) -> None:
    ids: set[int] = set()
    last = found.get("last-sequence-number", 0)
    for snapshot in found.get("snapshots") or ():
        check_snapshot(snapshot, "snapshot")
        if snapshot["snapshot-id"] in ids:
            raise Malformed(f"snapshot {snapshot['snapshot-id']}: the id is used twice")
        if (snapshot.get("sequence-number") or 0) > last:
            raise Malformed(f"snapshot {snapshot['snapshot-id']}: its sequence number is beyond the table's, {last}")
        ids.add(snapshot["snapshot-id"])
    current = metadata.current_snapshot_id(found)
    if current is not None and current not in ids:
        raise Malformed(f"the current snapshot {current} does not exist")
    for name, ref in metadata.refs(found).items():
        check_ref(json_object(ref, f"refs: {name}"), f"refs: {name}")
        if ref["snapshot-id"] not in ids:
            raise Malformed(f"refs: {name}: snapshot {ref['snapshot-id']} does not exist")
        if name == MAIN and ref["snapshot-id"] != current:
            raise Malformed(f"the branch 'main' is at {ref['snapshot-id']}, the current snapshot is {current}")
    for file in found.get("statistics") or ():
        check_statistics(file, "statistics")
    for file in found.get("partition-statistics") or ():
        check_partition_statistics(json_object(file, "partition-statistics"), "partition-statistics")
    for key in found.get("encryption-keys") or ():
        check_encryption_key(key, "encryption-keys")


def _check_logs(found: JsonObject) -> None:
    last_ms: int = found["last-updated-ms"]
    for name in ("snapshot-log", "metadata-log"):
        before: int | None = None
        for entry in found.get(name) or ():
            at_ms = int64(json_object(entry, name), "timestamp-ms", name)
            if before is not None and at_ms < before - logs.TOLERANCE_MS:
                raise Malformed(f"{name}: the times are not in order")
            if name == "snapshot-log":
                int64(entry, "snapshot-id", name)
            else:
                text(entry, "metadata-file", name)
            before = at_ms
        if before is not None and last_ms < before - logs.TOLERANCE_MS:
            raise Malformed(f"{name}: its last entry is later than 'last-updated-ms'")
