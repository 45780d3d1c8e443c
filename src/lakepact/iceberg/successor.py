"""Whether one whole metadata document can follow another one: the same table, later, with nothing lost on the way.

Somebody who hands in a document instead of updates has folded the updates already. What the fold would have refused is
refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lakepact.iceberg import orders, specs
from lakepact.iceberg.errors import InvalidUpdate, StaleUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.logs import TOLERANCE_MS
from lakepact.iceberg.schemas import same_schema

_GROWING: Final = ("last-sequence-number", "last-column-id", "last-partition-id", "next-row-id")
"""Counters of a table. Ids that were given out once are never given out again."""

_LAYOUT: Final[tuple[tuple[str, str, Callable[[JsonObject, JsonObject], bool]], ...]] = (
    ("schemas", "schema-id", same_schema),
    ("partition-specs", "spec-id", specs.same_fields),
    ("sort-orders", "order-id", orders.same_fields),
)


def check_successor(base: JsonObject, document: JsonObject) -> None:
    """Raises `InvalidUpdate` if it can follow no version of this table, `StaleUpdate` if it follows an older one."""
    if str(document.get("table-uuid")).lower() != str(base.get("table-uuid")).lower():
        raise InvalidUpdate(f"its table-uuid is {document.get('table-uuid')}, the table's is {base.get('table-uuid')}")
    if document["format-version"] < base["format-version"]:
        raise InvalidUpdate(f"its format version is {document['format-version']}, the table's is higher")
    for name in _GROWING:
        _check_grown(name, document.get(name) or 0, base.get(name) or 0)
    _check_grown("last-updated-ms", document["last-updated-ms"] + TOLERANCE_MS, base["last-updated-ms"])
    _check_snapshots(base, document)
    for name, key, same in _LAYOUT:
        there = {one.get(key, 0): one for one in document[name]}
        for one in base[name]:
            if (new := there.get(one.get(key, 0))) is not None and not same(one, new):
                raise InvalidUpdate(f"{name}: {key} {one.get(key, 0)} means something else than before")


def _check_snapshots(base: JsonObject, document: JsonObject) -> None:
    last = base.get("last-sequence-number") or 0
    before = {snapshot["snapshot-id"]: snapshot for snapshot in base.get("snapshots") or ()}
    now = {snapshot["snapshot-id"]: snapshot for snapshot in document.get("snapshots") or ()}
    for snapshot_id, snapshot in before.items():
        if snapshot_id not in now:
            raise InvalidUpdate(f"snapshot {snapshot_id} is missing. Expire snapshots outside of a transaction")
        if _files(snapshot) != _files(now[snapshot_id]):
            raise InvalidUpdate(f"snapshot {snapshot_id} names other manifests than before")
    for snapshot_id, snapshot in now.items():
        if snapshot_id not in before and document["format-version"] > 1:
            _check_grown(f"snapshot {snapshot_id}: sequence-number", snapshot.get("sequence-number") or 0, last + 1)


def _check_grown(name: str, sent: int, least: int) -> None:
    if sent < least:
        raise StaleUpdate(
            f"{name} is {sent}, and must be {least} or more: the document follows an older version of the table",
            field=name,
            sent=sent,
            actual=least,
        )


def _files(snapshot: JsonObject) -> object:
    return snapshot.get("manifest-list") or snapshot.get("manifests")
