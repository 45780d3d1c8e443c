"""Our answer to a request beside Java's: the same, but for the few things that are decided differently on purpose.

- A request that changes no value is no change, even if it sets a property to what it is; Java counts updates. Java
  also lets old versions of a view go with each of those.
- The last sequence number never goes back. Java's does when a snapshot without a parent brings a smaller one, and may
  then refuse the table it made itself.
- A partition field that is sent without an id gets one that no other field has; Java starts again at 1000.
- Ids to remove may be missing or doubled; Java miscounts some of them and fails on a negative size.
- Fields we do not know are kept, where Java drops them.
- A default that names no partition spec or sort order is refused where it is set. Java looks only at the end, so
  that a later default in the same request excuses it.
- Formats beyond the third are refused.
- A table is not created without a location.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from lakepact.iceberg import names
from lakepact.iceberg.fields import JsonObject
from tests.interop.oracle import Answer

_SAME: Final = "the same"
_BOTH_REFUSE: Final = "refused by both"
_ON_PURPOSE: Final = "different on purpose"
VERDICTS: Final = (_SAME, _BOTH_REFUSE, _ON_PURPOSE)

# Java expires the versions of a view whenever it builds one.
_EXPIRES_BY_ITSELF: Final = {"versions", "version-log"}


def verdict(base: JsonObject | None, request: Sequence[JsonObject], ours: Answer, java: Answer) -> str:
    """One of `VERDICTS`. Raises AssertionError if the answers differ in anything else."""
    if ours.error or java.error:
        return _verdict_on_refusals(base, request, ours, java)
    assert ours.result is not None and java.result is not None
    mine, theirs = _normal(ours.result), _normal(java.result)
    _take_our_time(mine, theirs, ours.result, java.result)
    ignored: set[str] = set()
    if not ours.changed:
        ignored |= {"metadata-log"} | (_EXPIRES_BY_ITSELF if "versions" in mine else set())
    else:
        assert java.changed, "changed by us, and not by Java"
    if base is None:
        ignored |= {"table-uuid"}  # Java draws its own
    if _lacks_field_ids(request):
        _forget_field_ids(mine)
        _forget_field_ids(theirs)
    if _goes_back(base, request):
        theirs["last-sequence-number"] = max(theirs["last-sequence-number"], mine["last-sequence-number"])
    different = {key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)} - ignored
    assert not different, "\n".join(
        f"{key}\n  ours {mine.get(key)!r}\n  Java {theirs.get(key)!r}" for key in sorted(different)
    )
    return _SAME if ours.changed == java.changed else _ON_PURPOSE


def _is_beyond(request: Sequence[JsonObject]) -> bool:
    return any(update.get("format-version", 0) > names.NEWEST_FORMAT for update in request)


def _verdict_on_refusals(base: JsonObject | None, request: Sequence[JsonObject], ours: Answer, java: Answer) -> str:
    if ours.error and java.error:
        # What is wrong in any case comes first. Java may meet what is only out of date before it looks at defaults, or
        # because it goes on to a format that we do not know.
        sooner = java.stale and (_lacks_default(ours.error) is not None or _is_beyond(request))
        assert ours.stale == java.stale or sooner, (
            f"refused as stale by one only: ours {ours.error}, Java's {java.error}"
        )
        return _BOTH_REFUSE
    if ours.error:
        beyond = _is_beyond(request)
        homeless = base is None and "must say the table's location" in ours.error
        missing = _lacks_default(ours.error)
        early = missing is not None and _count(missing, request) > 1
        assert beyond or homeless or early, f"refused by us only: {ours.error}"
    else:
        miscounted = "arraySize cannot be negative" in java.error
        gone_back = "greater than last sequence number" in java.error and _goes_back(base, request)
        # Its clock is years ahead of the time that these stories are given: what it notes by itself is out of order.
        untimely = "Expected sorted snapshot log entries" in java.error and _count(names.SET_SNAPSHOT_REF, request) > 0
        assert miscounted or gone_back or untimely, f"refused by Java only: {java.error}"
    return _ON_PURPOSE


def _lacks_default(error: str) -> str | None:
    """The update that names a default which is not there, if that is what was refused."""
    defaults = (names.SET_DEFAULT_SPEC, names.SET_DEFAULT_SORT_ORDER)
    return next((action for action in defaults if error.startswith(f"{action}: there is no ")), None)


def _normal(document: JsonObject) -> JsonObject:
    """Without the ways to write one thing twice: what is empty or zero may be left out, sets have no order."""
    made: JsonObject = _known(deepcopy(document))
    for key in ("statistics", "partition-statistics"):
        made[key] = sorted(made.get(key) or [], key=lambda file: file["snapshot-id"])
    for key in ("encryption-keys", "properties"):
        if not made.get(key):
            made.pop(key, None)
    for snapshot in made.get("snapshots") or ():
        if snapshot.get("sequence-number") == 0:
            del snapshot["sequence-number"]
        if "first-row-id" not in snapshot:
            snapshot.pop("added-rows", None)
    for schema in [*made["schemas"], *([made["schema"]] if "schema" in made else [])]:
        identifiers = sorted(schema.pop("identifier-field-ids", None) or [])
        if identifiers:
            schema["identifier-field-ids"] = identifiers
    return made


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(one) for key, one in value.items() if not key.startswith("x-")}
    return [_known(one) for one in value] if isinstance(value, list) else value


def _take_our_time(mine: JsonObject, theirs: JsonObject, ours: JsonObject, java: JsonObject) -> None:
    """Java reads its own clock: where it wrote that down, we should have written the time we were given."""
    if "version-log" in mine:
        for document in (mine, theirs):
            document["version-log"] = [entry["version-id"] for entry in document["version-log"]]
        return
    ours_ms, java_ms = ours["last-updated-ms"], java["last-updated-ms"]
    del mine["last-updated-ms"], theirs["last-updated-ms"]
    for entry in theirs.get("snapshot-log") or ():
        if entry["timestamp-ms"] == java_ms:
            entry["timestamp-ms"] = ours_ms


def _lacks_field_ids(request: Iterable[JsonObject]) -> bool:
    specs = (update["spec"] for update in request if update["action"] == names.ADD_SPEC)
    return any("field-id" not in field for spec in specs for field in spec["fields"])


def _forget_field_ids(document: JsonObject) -> None:
    document.pop("last-partition-id", None)
    for spec in document["partition-specs"]:
        for field in spec["fields"]:
            field.pop("field-id", None)
    for field in document.get("partition-spec") or ():
        field.pop("field-id", None)


def _goes_back(base: JsonObject | None, request: Iterable[JsonObject]) -> bool:
    """Whether a snapshot without a parent comes with a sequence number that was passed already."""
    last = (base or {}).get("last-sequence-number", 0)
    for snapshot in _added(request):
        number = snapshot.get("sequence-number", 0)
        if snapshot.get("parent-snapshot-id") is None and number < last:
            return True
        last = max(last, number)
    return False


def _count(action: str, request: Iterable[JsonObject]) -> int:
    return sum(update["action"] == action for update in request)


def _added(request: Iterable[JsonObject]) -> Iterator[Mapping[str, Any]]:
    return (update["snapshot"] for update in request if update["action"] == names.ADD_SNAPSHOT)
