"""The difference between what is there and what is needed, and its end.

1. Which tables are there. Only their folders are searched: a folder that is nobody's may be somebody's.
2. The files in them are listed, all of them, before anything else is asked.
3. What is needed is asked and read now. A file that came to be needed since it was listed is seen here.
4. What was listed, is old enough, is not needed, and lies in the folder of a table that was there before and is there
   now, is an orphan. Every one of them is written down, and then deleted, by executors.

The age must exceed the longest life of a transaction: a file is written before anything can lead to it. Nothing that
grows with the number of files comes to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeAlias

import orjson
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact.client import Lake
from lakepact.client.collection import Reachable
from lakepact.client.machine import ThisMachine, new_id
from lakepact.errors import InvalidRequest, Unreadable
from lakepact.iceberg.files import one_spelling
from lakepact.spark.jobs.orphans.listing import listing
from lakepact.spark.jobs.orphans.reaching import Needed, needed
from lakepact.spark.jobs.orphans.storage import Storage

_ATTEMPTS: Final = 3
_BATCH: Final = 1_000
_THREADS: Final = 16
_EXAMPLES: Final = 20
_PARTS_A_CORE: Final = 2
_WHY: Final = "no table, branch, tag, transaction or mirror leads to it"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Wish:
    older_than_s: float
    dry_run: bool = False
    unsafe_any_age: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    """Access to files, in the words of Iceberg's clients."""

    parts: int | None = None
    """Into how many tasks the work is cut; by default twice the cores."""


@dataclass(frozen=True, slots=True)
class TableOrphans:
    table: str
    files: int
    bytes: int
    failed: int


@dataclass(frozen=True, slots=True)
class Found:
    run_id: str
    dry_run: bool
    listed: int
    files: int
    bytes: int
    failed: int
    tables: tuple[TableOrphans, ...]
    examples: tuple[str, ...]
    report: str
    """The folder in the warehouse with all of them, as lines of JSON, written before anything was deleted."""


_Owner: TypeAlias = tuple[str, bool]
"""Whose a folder is, and whether it may be searched."""

_Tally: TypeAlias = tuple[int, int, int, tuple[str, ...]]


def search(spark: SparkSession, lake: Lake, wish: Wish, *, between: Callable[[], None] = lambda: None) -> Found:
    """Search the folders of all tables of a lake. `between` is called when the files are listed, for tests.

    Raises `InvalidRequest` for an age that is too short, and `Unreadable` if it cannot be said which files are needed:
    nothing is deleted then.
    """
    before = lake.collection.reachable()
    _check_age(wish, before)
    storage = Storage({**lake.place.properties, **wish.options})
    storage.check(before.root)
    parts = wish.parts or _PARTS_A_CORE * spark.sparkContext.defaultParallelism
    cutoff_ms = before.now_ms - int(wish.older_than_s * 1000)
    searched = {one_spelling(one.location): one.id for one in before.items if one.why == "live" and one.search}
    listed = listing(spark, storage, sorted(searched), parts)
    between()
    found, after = _needed(spark, storage, lake, keep_ms=int(wish.older_than_s * 1000), parts=parts)
    try:
        orphans = (
            listed.where(F.col("modified_ms") < F.lit(cutoff_ms))
            .join(found.files, "path", "left_anti")
            .repartition(parts, "path")
        )
        return _end(spark, storage, orphans, listed.count(), _owners(after, searched), after.root, wish)
    finally:
        found.forget()


def _check_age(wish: Wish, before: Reachable) -> None:
    least_s = before.longest_transaction_ms / 1000
    if wish.older_than_s < least_s and not wish.unsafe_any_age:
        raise InvalidRequest(
            f"an open transaction may live for {least_s:.0f} s (max_ttl_s), and what it has written looks like an "
            f"orphan until it is committed; search for files older than that"
        )


def _needed(spark: SparkSession, storage: Storage, lake: Lake, *, keep_ms: int, parts: int) -> tuple[Needed, Reachable]:
    errors: list[str] = []
    for _ in range(_ATTEMPTS):
        # A snapshot may be expired while it is read. Then the table has moved, and is read again as it is now.
        after = lake.collection.reachable()
        found = needed(spark, storage, after.items, lake.place, keep_ms=keep_ms, parts=parts)
        if not found.errors:
            return found, after
        errors = found.errors
        found.forget()
    raise Unreadable(
        f"it cannot be said which files are needed, so nothing was deleted: {'; '.join(errors)}. Repair or drop the "
        f"table"
    )


def _owners(after: Reachable, searched: Mapping[str, str]) -> dict[str, _Owner]:
    """Whose every folder is now. One that several have is searched only if all of them may be."""
    owners: dict[str, _Owner] = {}
    for one in after.items:
        if one.why in ("pinned", "mirrored"):
            # These are versions of something that has its own entry, or of something that has gone: see below.
            continue
        folder = one_spelling(one.location)
        live = one.why == "live" and one.search and searched.get(folder) == one.id
        # A transaction that has staged a version of a live table does not own its folder.
        staged = one.why == "staged" and searched.get(folder) == one.id
        name, may = owners.get(folder, (one.name or one.id, live or staged))
        owners[folder] = (name, may and (live or staged))
    live_now = {one_spelling(one.location) for one in after.items if one.why == "live"}
    return {folder: (name, may and folder in live_now) for folder, (name, may) in owners.items()}


def _end(
    spark: SparkSession,
    storage: Storage,
    orphans: DataFrame,
    listed: int,
    owners: Mapping[str, _Owner],
    root: str,
    wish: Wish,
) -> Found:
    run_id = new_id(ThisMachine())
    report = f"{root}/_catalog/collected/{datetime.now(UTC):%Y-%m-%d}/{run_id}"
    known = spark.sparkContext.broadcast(dict(owners))

    def take(part: int, rows: Iterable[Any]) -> Iterator[tuple[str, _Tally]]:
        yield from _take(part, rows, known.value, storage, root, report, dry_run=wish.dry_run)

    tallies = dict(orphans.rdd.mapPartitionsWithIndex(take).reduceByKey(_together).collect())
    known.unpersist()
    tables = tuple(TableOrphans(name, one[0], one[1], one[2]) for name, one in sorted(tallies.items()))
    examples = [path for _, one in sorted(tallies.items()) for path in one[3]][:_EXAMPLES]
    for table in tables:
        _log.info(
            "orphans",
            rule="orphans",
            table=table.table,
            files=table.files,
            bytes=table.bytes,
            failed=table.failed,
            why=_WHY,
            report=report,
            dry_run=wish.dry_run,
        )
    return Found(
        run_id,
        wish.dry_run,
        listed,
        sum(one.files for one in tables),
        sum(one.bytes for one in tables),
        sum(one.failed for one in tables),
        tables,
        tuple(examples),
        report,
    )


def _take(
    part: int,
    rows: Iterable[Any],
    owners: Mapping[str, _Owner],
    storage: Storage,
    root: str,
    report: str,
    *,
    dry_run: bool,
) -> Iterator[tuple[str, _Tally]]:
    """The end of one part: a batch is written down, then deleted."""
    ours = ((row, owner) for row in rows if (owner := owner_of(row.path, owners)) is not None)
    with ThreadPoolExecutor(_THREADS) as threads:
        for number, batch in enumerate(_batches(ours)):
            lines = [
                orjson.dumps(
                    {
                        "path": row.path,
                        "table": owner,
                        "bytes": row.size,
                        "modified-ms": row.modified_ms,
                        "rule": "orphans",
                        "why": _WHY,
                        "dry-run": dry_run,
                    }
                )
                for row, owner in batch
            ]
            storage.write(f"{report}/{part:05}-{number:05}.jsonl", b"\n".join((*lines, b"")))
            failures: list[str | None] = [None] * len(batch)
            if not dry_run:
                failures = list(threads.map(lambda one: _deleted(storage, root, one[0].raw), batch))
            failed = [
                orjson.dumps({"path": row.path, "error": why})
                for (row, _), why in zip(batch, failures, strict=True)
                if why is not None
            ]
            if failed:
                storage.write(f"{report}/{part:05}-{number:05}.failed.jsonl", b"\n".join((*failed, b"")))
            for (row, owner), why in zip(batch, failures, strict=True):
                yield owner, (1, row.size, int(why is not None), (row.path,))


def _batches(ours: Iterator[tuple[Any, str]]) -> Iterator[list[tuple[Any, str]]]:
    while batch := list(islice(ours, _BATCH)):
        yield batch


def _deleted(storage: Storage, root: str, raw: str) -> str | None:
    """Why not, or None."""
    try:
        storage.delete(root, raw)
    except OSError as error:
        return str(error)
    return None


def owner_of(path: str, owners: Mapping[str, _Owner]) -> str | None:
    """The table in whose folder a file lies, by the deepest folder that is anybody's; None: it is to be left alone."""
    place = path.rpartition("/")[0]
    while place:
        owner = owners.get(place)
        if owner is not None:
            name, may = owner
            return name if may else None
        place = place.rpartition("/")[0]
    return None


def _together(first: _Tally, second: _Tally) -> _Tally:
    return (
        first[0] + second[0],
        first[1] + second[1],
        first[2] + second[2],
        (*first[3], *second[3])[:_EXAMPLES],
    )
