"""The two histories inside metadata: which snapshot was current when, and which files came before this one.

Readers trust both. A gap in the first makes time travel lie, a time out of order makes clients refuse the whole table.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import INT32_MAX, INT32_MIN, JsonObject
from lakepact.iceberg.names import PREVIOUS_VERSIONS_MAX

TOLERANCE_MS: Final = 60_000
"""By how much times in a log may go back: clients refuse to load a table whose logs go back further than this."""

CLOCK_SKEW_MS: Final = 600_000
"""By how much the clocks of writers and servers may disagree. The times in the logs are put in order within this."""

_PREVIOUS_VERSIONS: Final = 100


def rebuilt_snapshot_log(
    log: list[JsonObject], *, snapshots: Container[int], passed: set[int], removed: bool
) -> list[JsonObject]:
    """The log without snapshots that were never seen as current, and without history that has a hole in it.

    `passed` are snapshots this request made current and replaced again before anybody could see them. If snapshots
    were removed, everything before an entry of a missing one goes too: left in, the entry before it would seem to
    have been current until the entry after it.
    """
    if not passed and not removed:
        return log
    kept: list[JsonObject] = []
    for entry in log:
        if entry["snapshot-id"] in snapshots:
            if entry["snapshot-id"] not in passed:
                kept.append(entry)
        elif removed:
            kept.clear()
    return kept


def ordered_snapshot_log(log: list[JsonObject], *, known: int) -> list[JsonObject]:
    """Return the log with times that every client accepts; the log itself, if it has them.

    A snapshot carries the time of its writer's clock. If that is behind the clock of the writer before by more than
    clients accept, its entry in the log gets the time of the entry before it. The first `known` entries were checked
    before. Raises `InvalidUpdate` if the clocks disagree by more than `CLOCK_SKEW_MS`.
    """
    ordered = log
    for index in range(max(known, 1), len(log)):
        before, after = ordered[index - 1], log[index]
        if after["timestamp-ms"] >= before["timestamp-ms"] - TOLERANCE_MS:
            continue
        if after["timestamp-ms"] < before["timestamp-ms"] - CLOCK_SKEW_MS:
            raise InvalidUpdate(
                f"snapshot {after['snapshot-id']} is of {after['timestamp-ms']} ms, more than "
                f"{CLOCK_SKEW_MS // 60_000} minutes before the snapshot that was current until now "
                f"({before['timestamp-ms']} ms); set the clock of the writer"
            )
        if ordered is log:
            ordered = list(log)
        ordered[index] = {**after, "timestamp-ms": before["timestamp-ms"]}
    return ordered


def check_snapshot_log(log: list[JsonObject], *, current: int | None, must_end: bool, latest_ms: int) -> None:
    """Check what clients check when they load the table. No snapshot may have become current after `latest_ms`."""
    if must_end and current is not None and (not log or log[-1]["snapshot-id"] != current):
        raise InvalidUpdate(
            f"the current snapshot {current} would no longer be the last one in the snapshot log; set the branch "
            f"'main' in the same request"
        )
    if log and log[-1]["timestamp-ms"] > latest_ms:
        raise InvalidUpdate(
            f"snapshot {log[-1]['snapshot-id']} is of {log[-1]['timestamp-ms']} ms, more than "
            f"{CLOCK_SKEW_MS // 60_000} minutes ahead of the catalog's clock (at most {latest_ms} ms is accepted); set "
            f"the clock of the writer or of the server"
        )


def extended_metadata_log(
    log: list[JsonObject], *, previous_location: str, previous_ms: int, properties: JsonObject
) -> tuple[list[JsonObject], list[str]]:
    """The log with the previous file at its end, and the files for which there was no room any more.

    How many are kept is a property of the table, at least one; the new properties count.
    """
    entry = {"timestamp-ms": previous_ms, "metadata-file": previous_location}
    keep = max(1, integer_property(properties, PREVIOUS_VERSIONS_MAX, _PREVIOUS_VERSIONS))
    first = max(0, len(log) + 1 - keep)
    return [*log[first:], entry], [dropped["metadata-file"] for dropped in log[:first]]


def integer_property(properties: JsonObject, name: str, default: int) -> int:
    """A whole number from the properties of a table or view. Clients cannot load a table where it is something else."""
    value: Any = properties.get(name)
    if value is None:
        return default
    try:
        number = int(value)
    except ValueError:
        number = INT32_MAX + 1
    if not INT32_MIN <= number <= INT32_MAX or not str(value).lstrip("+-").isdecimal():
        raise InvalidUpdate(f"property {name!r} must be a whole number, not {str(value)[:60]!r}")
    return number
