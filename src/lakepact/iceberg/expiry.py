"""Which snapshots and refs a table lets go of, by its own properties. Pure.

    history.expire.max-snapshot-age-ms     five days, unless a branch says otherwise
    history.expire.min-snapshots-to-keep   one, unless a branch says otherwise
    history.expire.max-ref-age-ms          for ever, unless a branch or tag says otherwise; `main` never expires

A branch keeps its newest snapshots, as many as it must and all that are young enough. What no branch or tag leads to is
kept while it is young.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.metadata import properties, refs

MAX_SNAPSHOT_AGE: Final = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS: Final = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE: Final = "history.expire.max-ref-age-ms"

_MAIN: Final = "main"
_FIVE_DAYS_MS: Final = 5 * 86_400_000
_FOR_EVER: Final = 2**62


@dataclass(frozen=True, slots=True)
class Expired:
    snapshots: tuple[int, ...]
    refs: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.snapshots or self.refs)


def expired(metadata: JsonObject, now_ms: int, in_use: Collection[int] = ()) -> Expired:
    """`in_use` are snapshots that somebody looks at: they stay, and so do refs that lead to them."""
    said = properties(metadata)
    age_ms = _number(said, MAX_SNAPSHOT_AGE, _FIVE_DAYS_MS)
    fewest = max(1, _number(said, MIN_SNAPSHOTS, 1))
    ref_age_ms = _number(said, MAX_REF_AGE, _FOR_EVER)
    snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots") or ()}

    gone: list[str] = []
    kept: set[int] = set(in_use)
    led_to: set[int] = set()
    for name, ref in refs(metadata).items():
        at = snapshots.get(ref["snapshot-id"])
        too_old = at is None or now_ms - at["timestamp-ms"] > (ref.get("max-ref-age-ms") or ref_age_ms)
        if name != _MAIN and too_old and ref["snapshot-id"] not in in_use:
            gone.append(name)
            continue
        if at is None:
            continue
        if ref["type"] == "tag":
            led_to.add(ref["snapshot-id"])
            kept.add(ref["snapshot-id"])
            continue
        oldest_ms = now_ms - (ref.get("max-snapshot-age-ms") or age_ms)
        least = ref.get("min-snapshots-to-keep") or fewest
        keeps = True
        for number, one in enumerate(_ancestors(snapshots, ref["snapshot-id"])):
            led_to.add(one["snapshot-id"])
            keeps = keeps and (number < least or one["timestamp-ms"] >= oldest_ms)
            if keeps:
                kept.add(one["snapshot-id"])
    for snapshot_id, one in snapshots.items():
        if snapshot_id not in led_to and one["timestamp-ms"] >= now_ms - age_ms:
            kept.add(snapshot_id)
    return Expired(tuple(one for one in snapshots if one not in kept), tuple(gone))


def _ancestors(snapshots: dict[int, JsonObject], snapshot_id: int | None) -> Iterator[JsonObject]:
    seen: set[int] = set()
    while snapshot_id is not None and snapshot_id in snapshots and snapshot_id not in seen:
        seen.add(snapshot_id)
        yield snapshots[snapshot_id]
        snapshot_id = snapshots[snapshot_id].get("parent-snapshot-id")


def _number(said: dict[str, str], name: str, default: int) -> int:
    """A property that is no number counts as "for ever": nothing is deleted because of a slip of the pen."""
    try:
        return int(said[name]) if name in said else default
    except ValueError:
        return _FOR_EVER
