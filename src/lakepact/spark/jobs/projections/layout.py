"""Where receipts lie: which days there are, which of them are packed, and what is to be read of each.

    _catalog/events/<date>/<format>/committed/<commit key>.json   one receipt
    _catalog/events/<date>/arrivals/<commit key>.json             a note: a receipt of some date was written late, today
    _catalog/segments/<date>/manifest.json                        the day is packed, into the segments it names

What the driver learns here grows with the number of days, and of segments, and not with that of receipts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakepact.spark.jobs.projections.checking import Checks
from lakepact.spark.jobs.projections.storage import Storage, escaped

_MANIFEST: Final = "date STRING, segments ARRAY<STRUCT<name: STRING, sha256: STRING>>, damaged ARRAY<STRING>"
_CLOSED_AFTER: Final = timedelta(hours=3)
"""A receipt is written within an hour of its commit, or leaves a note. The rest is for clocks that differ."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What a run reads."""

    segments: Sequence[str]
    loose: Sequence[str]
    """Folders of receipts, one file each."""

    notes: Sequence[str]
    """Folders of arrival notes."""

    unpacked: Sequence[str]
    """The days that were not packed when this was found out."""

    damaged: int
    """Receipts that could not be packed."""

    broken: Sequence[str] = ()
    """Segments and manifests that cannot be read. What lies loose of their days is read instead."""

    loose_of_broken: Sequence[str] = ()
    notes_of_broken: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        return not (self.segments or self.loose or self.notes or self.loose_of_broken or self.notes_of_broken)


@dataclass(frozen=True, slots=True)
class _Packed:
    """What a manifest says."""

    segments: Mapping[str, str]
    """The hashes of what is in them, by their paths."""

    damaged: int
    """How many receipts were, and were not packed."""


class Layout:
    def __init__(self, spark: SparkSession, storage: Storage, root: str) -> None:
        self._spark = spark
        self._storage = storage
        self._checks = Checks(spark, storage)
        self._own = f"{root}/_catalog"

    def sources(self, after: str | None) -> Sources:
        """Of all days, or of those after this one."""
        days = [day for day in self._days("events") if after is None or day > after]
        packed, unknown = self._packed([day for day in self._days("segments") if after is None or day > after])
        # Without a manifest, the segments that are there tell by their names what they should hold.
        packed |= {day: _Packed(self._named(day), 0) for day in unknown}
        broken = self._checks.broken({path: hash for day in packed.values() for path, hash in day.segments.items()})
        torn = {day for day, found in packed.items() if not broken.isdisjoint(found.segments)}.union(unknown)
        unpacked = [day for day in days if day not in packed]
        return Sources(
            segments=[path for day in packed.values() for path in day.segments if path not in broken],
            loose=[path for day in unpacked for path in self.committed(day)],
            notes=[path for day in unpacked for path in self._notes(day)],
            unpacked=unpacked,
            damaged=sum(day.damaged for day in packed.values()),
            broken=[*sorted(broken), *map(self._manifest, sorted(unknown))],
            loose_of_broken=[path for day in sorted(torn) for path in self.committed(day)],
            notes_of_broken=[path for day in sorted(torn) for path in self._notes(day)],
        )

    def committed(self, day: str) -> list[str]:
        """The folders of one day's receipts."""
        return self._storage.matching(f"{escaped(self._own)}/events/{escaped(day)}/*/committed")

    def _notes(self, day: str) -> list[str]:
        return self._storage.matching(f"{escaped(self._own)}/events/{escaped(day)}/arrivals")

    def packed_since(self, days: Sequence[str]) -> set[str]:
        """Which of these days are packed by now."""
        found = self._storage.existing([self._manifest(day) for day in days])
        return {path.split("/")[-2] for path in found}

    def _days(self, folder: str) -> list[str]:
        found = self._storage.matching(f"{escaped(self._own)}/{folder}/*")
        return [day for day in (path.rpartition("/")[2] for path in found) if is_day(day)]

    def _packed(self, days: Sequence[str]) -> tuple[dict[str, _Packed], set[str]]:
        """The packed ones of these days, and those whose manifests cannot be read."""
        manifests = self._storage.existing([self._manifest(day) for day in days])
        if not manifests:
            return {}, set()
        read = self._spark.read.schema(_MANIFEST).option("multiLine", "true").json(list(map(escaped, manifests)))
        rows = read.select("date", "segments.name", "segments.sha256", F.size("damaged").alias("damaged")).collect()
        found = {
            row["date"]: _Packed(
                {
                    f"{self._own}/segments/{row['date']}/{name}": hash
                    for name, hash in zip(row["name"], row["sha256"], strict=True)
                },
                max(0, row["damaged"]),
            )
            for row in rows
            if row["date"] is not None and row["name"] is not None
        }
        return found, {path.split("/")[-2] for path in manifests}.difference(found)

    def _named(self, day: str) -> dict[str, str]:
        """The segments that lie under this day, and the beginnings of their hashes."""
        found = self._storage.matching(f"{escaped(self._own)}/segments/{escaped(day)}/*.jsonl.gz")
        names = [path.rpartition("/")[2] for path in found]
        return {f"{self._own}/segments/{day}/{name}": name.partition(".")[0].rpartition("-")[2] for name in names}

    def _manifest(self, day: str) -> str:
        return f"{self._own}/segments/{day}/manifest.json"


def is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def last_closed(now_ms: int) -> str:
    """The last day to which nothing is added any more but with a note."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC) - _CLOSED_AFTER
    return (now.date() - timedelta(days=1)).isoformat()
