"""What is needed: every file that a table, a transaction or a copy leads to, read by executors.

Metadata files name manifest lists, these name manifests, and these name files. All of them are immutable, so reading
one twice gives the same. One that cannot be read makes the whole search fail, since nobody knows what it names; but not
of a version that only an open transaction or a copy still shows, whose snapshots may have been expired.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import orjson
from pyspark import RDD, StorageLevel
from pyspark.sql import DataFrame, SparkSession

from lakepact.client import connect
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

FILE: Final = "file"
LIST: Final = "list"
MANIFEST: Final = "manifest"
ERROR: Final = "error"

_Found: TypeAlias = tuple[str, str, bool]
"""What it is, where it is (or what is wrong), and whether it may be gone."""


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
    tables: dict[str, bool] = {}
    delta: dict[str, str] = {}
    named: list[_Found] = []
    for one in items:
        if one.kind == "delta":
            delta[one.id] = one.location
        elif one.metadata_location is not None:
            named.append((FILE, one_spelling(one.metadata_location), False))
            if one.kind == "table":
                tables[one.metadata_location] = tables.get(one.metadata_location, True) and one.why in MAY_BE_GONE

    def keep(found: RDD[_Found]) -> RDD[_Found]:
        return found.persist(StorageLevel.MEMORY_AND_DISK)

    begun = context.parallelize(sorted(tables.items()), parts)
    metadata = keep(begun.mapPartitions(_step(storage, _of_metadata)))
    lists = keep(_distinct(metadata, LIST, parts).mapPartitions(_step(storage, _of_list)))
    both = context.union([metadata, lists])
    manifests = keep(_distinct(both, MANIFEST, parts).mapPartitions(_step(storage, _of_manifest)))
    of_delta = keep(context.parallelize(sorted(delta.items()), parts).mapPartitions(_of_delta(place, keep_ms)))
    everything = context.union([context.parallelize(named, parts), metadata, lists, manifests, of_delta])
    errors = [text for _, text, _ in everything.filter(_is(ERROR)).take(5)]
    files = everything.filter(_is(FILE)).map(_path)
    return Needed(
        spark.createDataFrame(files, "path string", verifySchema=False),
        errors,
        [metadata, lists, manifests, of_delta],
    )


def _of_metadata(data: bytes, location: str, gone: bool) -> Iterator[_Found]:
    document = orjson.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    for path in beside_metadata(location, document):
        yield FILE, one_spelling(path), gone
    for path in manifest_lists(document):
        yield FILE, one_spelling(path), gone
        yield LIST, path, gone
    for path in inline_manifests(document):
        yield FILE, one_spelling(path), gone
        yield MANIFEST, path, gone


def _of_list(data: bytes, location: str, gone: bool) -> Iterator[_Found]:
    for path in manifests_in(data, location):
        yield FILE, one_spelling(path), gone
        yield MANIFEST, path, gone


def _of_manifest(data: bytes, location: str, gone: bool) -> Iterator[_Found]:
    for path in files_in(data, location):
        yield FILE, one_spelling(path), gone


def _step(
    storage: Storage, read: Callable[[bytes, str, bool], Iterator[_Found]]
) -> Callable[[Iterable[tuple[str, bool]]], Iterator[_Found]]:
    def step(places: Iterable[tuple[str, bool]]) -> Iterator[_Found]:
        for location, gone in places:
            try:
                yield from read(storage.read(location), location, gone)
            except FileNotFoundError:
                if not gone:
                    yield ERROR, f"{location} is not there", gone
            except (LakepactError, OSError, ValueError, KeyError) as error:
                yield ERROR, f"{location}: {error}", gone

    return step


def _of_delta(place: Place, keep_ms: int) -> Callable[[Iterable[tuple[str, str]]], Iterator[_Found]]:
    def step(tables: Iterable[tuple[str, str]]) -> Iterator[_Found]:
        tables = list(tables)
        if not tables:
            return
        with connect(
            place.uri, place.warehouse, place.token, headers=place.headers, properties=place.properties
        ) as lake:
            for table_id, location in tables:
                try:
                    paths = lake.collection.files_of(table_id, keep_ms)
                except NotFound:
                    # Its rows have gone since: then it is not a live table any more, and its folder is left alone.
                    continue
                except LakepactError as error:
                    yield ERROR, f"Delta table {table_id}: {error}", False
                    continue
                for path in map(decode_path, paths):
                    absolute = path.startswith("/") or ":" in path.partition("/")[0]
                    yield FILE, one_spelling(path if absolute else f"{location}/{path}"), False

    return step


def _distinct(found: RDD[_Found], kind: str, parts: int) -> RDD[tuple[str, bool]]:
    """Each once; it may only be gone if it may for everybody who names it."""
    pairs: RDD[tuple[str, bool]] = found.filter(_is(kind)).map(_named)
    return pairs.reduceByKey(_both, parts)


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
