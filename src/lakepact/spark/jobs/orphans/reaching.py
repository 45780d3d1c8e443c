"""What is needed: every file that a table, a transaction or a copy leads to, read by executors.

Metadata files name manifest lists, these name manifests, and these name files. All of them are immutable, so reading
one twice gives the same. One that cannot be read makes the whole search fail, since nobody knows what it names; but not
of a version that only an open transaction or a copy still shows, whose snapshots may have been expired.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

import orjson
from pyspark import RDD, StorageLevel
from pyspark.sql import DataFrame, SparkSession

from lakepact.client import Lake, connect
from lakepact.client.collection import Reached
from lakepact.client.errors import NotFound
from lakepact.client.place import Place
from lakepact.delta.paths import decode_path
from lakepact.errors import LakepactError
from lakepact.iceberg.files import (
    beside_metadata,
    files_in,
    inline_manifests,
    manifest_lists,
    manifests_in,
    one_spelling,
)
from lakepact.spark.jobs.orphans.storage import Storage

MAY_BE_GONE: Final = ("pinned", "mirrored", "staged")
_GZIP: Final = b"\x1f\x8b"
_THREADS: Final = 8
_MOST_ERRORS: Final = 5

FILE: Final = "file"
MANIFEST: Final = "manifest"
ERROR: Final = "error"

_Found: TypeAlias = tuple[str, str, bool]
"""What it is, where it is (or what is wrong), and whether it may be gone."""


@dataclass(slots=True)
class _Table:
    """What is known of a table, from all that lead to it."""

    kind: str
    id: str
    location: str
    versions: dict[str, bool] = field(default_factory=dict)
    """Metadata files, and whether what they name may be gone."""


@dataclass(slots=True)
class Needed:
    files: DataFrame
    """One column, `path`; the same path may come several times."""

    errors: list[str]
    """Some of the reasons why it is not complete."""

    _kept: list[RDD[_Found]]

    def forget(self) -> None:
        for one in self._kept:
            one.unpersist()


def needed(
    spark: SparkSession, storage: Storage, items: Iterable[Reached], place: Place, *, keep_ms: int, parts: int
) -> Needed:
    """The files that these lead to. `keep_ms`: how far back versions of Delta tables count."""
    context = spark.sparkContext
    tables = _tables(items)
    begun = context.parallelize(tables, max(1, min(parts, len(tables))))
    upper = begun.mapPartitions(_of_tables(storage, place, keep_ms)).persist(StorageLevel.MEMORY_AND_DISK)
    manifests: RDD[tuple[str, bool]] = upper.filter(_is(MANIFEST)).map(_named).reduceByKey(_both, parts)
    lower = manifests.mapPartitions(_of_manifests(storage)).persist(StorageLevel.MEMORY_AND_DISK)
    everything = context.union([upper, lower])
    errors = everything.mapPartitions(_first_errors).collect()[:_MOST_ERRORS]
    files = everything.filter(_is(FILE)).map(_path)
    return Needed(spark.createDataFrame(files, "path string", verifySchema=False), errors, [upper, lower])


def _tables(items: Iterable[Reached]) -> list[_Table]:
    """By table, so that what its versions share is read once."""
    tables: dict[tuple[str, str], _Table] = {}
    for one in items:
        table = tables.setdefault((one.kind, one.id), _Table(one.kind, one.id, one.location))
        if one.metadata_location is not None:
            gone = one.why in MAY_BE_GONE
            table.versions[one.metadata_location] = table.versions.get(one.metadata_location, True) and gone
    return list(tables.values())


# --- by executors ---


def _of_tables(storage: Storage, place: Place, keep_ms: int) -> Callable[[Iterable[_Table]], Iterator[_Found]]:
    def step(tables: Iterable[_Table]) -> Iterator[_Found]:
        lake: Lake | None = None
        with ThreadPoolExecutor(_THREADS) as threads:
            for table in tables:
                if table.kind == "delta":
                    lake = lake or _connected(place)
                    yield from _of_delta(lake, table, keep_ms)
                elif table.kind == "table":
                    yield from _of_table(storage, threads, table)
                else:
                    yield from ((FILE, one_spelling(location), False) for location in table.versions)
        if lake is not None:
            lake.close()

    return step


def _of_table(storage: Storage, threads: ThreadPoolExecutor, table: _Table) -> Iterator[_Found]:
    lists: dict[str, bool] = {}
    for location, gone in table.versions.items():
        yield FILE, one_spelling(location), gone
        data, error = _read(storage, location, gone)
        if error is not None:
            yield error
        if data is None:
            continue
        try:
            document = orjson.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
        except (ValueError, OSError) as wrong:
            yield ERROR, f"{location}: {wrong}", gone
            continue
        for path in beside_metadata(location, document):
            yield FILE, one_spelling(path), gone
        for path in inline_manifests(document):
            yield FILE, one_spelling(path), gone
            yield MANIFEST, path, gone
        for path in manifest_lists(document):
            yield FILE, one_spelling(path), gone
            lists[path] = lists.get(path, True) and gone
    for listed in threads.map(lambda one: _of_list(storage, *one), lists.items()):
        yield from listed


def _of_list(storage: Storage, location: str, gone: bool) -> list[_Found]:
    data, error = _read(storage, location, gone)
    if data is None:
        return [] if error is None else [error]
    try:
        manifests = manifests_in(data, location)
    except LakepactError as wrong:
        return [(ERROR, str(wrong), gone)]
    return [found for path in manifests for found in ((FILE, one_spelling(path), gone), (MANIFEST, path, gone))]


def _of_manifests(storage: Storage) -> Callable[[Iterable[tuple[str, bool]]], Iterator[_Found]]:
    def step(manifests: Iterable[tuple[str, bool]]) -> Iterator[_Found]:
        for location, gone in manifests:
            data, error = _read(storage, location, gone)
            if error is not None:
                yield error
            if data is None:
                continue
            try:
                for path in files_in(data, location):
                    yield FILE, one_spelling(path), gone
            except LakepactError as wrong:
                yield ERROR, str(wrong), gone

    return step


def _of_delta(lake: Lake, table: _Table, keep_ms: int) -> Iterator[_Found]:
    try:
        paths = lake.collection.files_of(table.id, keep_ms)
    except NotFound:
        # Its rows have gone since: then it is not a live table any more, and its folder is left alone.
        return
    except LakepactError as error:
        yield ERROR, f"Delta table {table.id}: {error}", False
        return
    for path in map(decode_path, paths):
        absolute = path.startswith("/") or ":" in path.partition("/")[0]
        yield FILE, one_spelling(path if absolute else f"{table.location}/{path}"), False


def _connected(place: Place) -> Lake:
    return connect(
        place.uri,
        place.warehouse,
        place.token,
        headers=place.headers,
        properties=place.properties,
        ca_bundle=place.ca_bundle,
    )


def _read(storage: Storage, location: str, gone: bool) -> tuple[bytes | None, _Found | None]:
    """The bytes; or nothing, if it may be gone and is; or why not."""
    try:
        return storage.read(location), None
    except FileNotFoundError:
        return None, None if gone else (ERROR, f"{location} is not there", gone)
    except (LakepactError, OSError) as error:
        return None, (ERROR, f"{location}: {error}", gone)


def _first_errors(found: Iterable[_Found]) -> Iterator[str]:
    return islice((text for kind, text, _ in found if kind == ERROR), _MOST_ERRORS)


def _is(kind: str) -> Callable[[_Found], bool]:
    def check(one: _Found) -> bool:
        return one[0] == kind

    return check


def _named(one: _Found) -> tuple[str, bool]:
    return one[1], one[2]


def _path(one: _Found) -> tuple[str]:
    return (one[1],)


def _both(first: bool, second: bool) -> bool:
    return first and second
