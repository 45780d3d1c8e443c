"""The history of a table is read from few files, is bounded, and ends where the catalog's own files end."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import orjson
import pytest

from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.warehouse import Warehouse
from lakepact.iceberg.metadata import create_metadata
from lakepact.stores.memory import MemoryBlobs
from lakepact.upkeep.chain import Chain, Version, chain_of, is_ours
from tests.support.upkeep import Watched
from tests.wire.world import SCHEMA

ROOT = "memory://w"
TABLE = "0b64b0d0-6a4f-4d62-8d63-3b9d3f3a1c55"
FOLDER = f"{ROOT}/t/metadata"
SPACE = uuid.UUID(TABLE)
FIELDS: Any = {"fields": []}
BEGAN_MS = 1_767_225_600_000


def location(number: int, version: int = 5) -> str:
    name = uuid.uuid5(SPACE, str(number)) if version == 5 else uuid.UUID(int=uuid.uuid5(SPACE, "x").int, version=4)
    return f"{FOLDER}/{number:05d}-{name}.metadata.json"


class History:
    """A table with many versions, each of which knows the `log` before it."""

    def __init__(self, versions: int, log: int, foreign: int = 0) -> None:
        self.blobs = Watched(MemoryBlobs())
        self.versions = versions
        self._log = log
        self._foreign = foreign
        self._metadata = create_metadata(
            schema=SCHEMA, spec=FIELDS, order=FIELDS, properties={}, location=f"{ROOT}/t", uuid=TABLE, now_ms=BEGAN_MS
        )

    def location(self, number: int) -> str:
        return location(number, 4 if number < self._foreign else 5)

    async def written(self, only: Iterable[int] | None = None) -> History:
        for number in range(self.versions) if only is None else only:
            before = range(max(0, number - self._log), number)
            log = [{"timestamp-ms": BEGAN_MS + one, "metadata-file": self.location(one)} for one in before]
            document = {**self._metadata, "last-updated-ms": BEGAN_MS + number, "metadata-log": log}
            await self.blobs.put(self.name(number), orjson.dumps(document))
        return self

    def name(self, number: int) -> str:
        return self.location(number).removeprefix(f"{ROOT}/")

    async def break_(self, *numbers: int) -> None:
        for number in numbers:
            await self.blobs.delete(self.name(number))
            await self.blobs.put(self.name(number), b'{"format-version"')

    async def chain(self, *, until: int | None = None, since_ms: int = 0, most: int = 100_000) -> Chain:
        self.blobs.read.clear()
        newest = self.versions - 1
        files = MetadataFiles(Warehouse("w", ROOT), self.blobs, 0, look_every_time=False)
        return await chain_of(
            files,
            Version(self.location(newest), BEGAN_MS + newest),
            self.location(newest - 1) if newest else None,
            until=None if until is None else self.location(until),
            since_ms=since_ms,
            most=most,
        )

    def expected(self, last: int = 0) -> list[Version]:
        return [Version(self.location(number), BEGAN_MS + number) for number in range(self.versions - 1, last - 1, -1)]


async def test_all_versions_are_found_by_reading_one_file_for_each_log() -> None:
    history = await History(versions=501, log=100).written()
    chain = await history.chain()
    assert chain.versions == history.expected()
    assert chain.from_the_first and not chain.deeper and not chain.unreadable
    assert history.blobs.read.total() == 6, "one for each hundred, and the first"


async def test_a_walk_over_five_thousand_versions_is_bounded_by_its_depth() -> None:
    history = await History(versions=5_001, log=5_000).written(only=(0, 1, 5_000))
    whole = await history.chain()
    assert len(whole.versions) == 5_001 and whole.from_the_first
    assert history.blobs.read.total() == 2
    some = await history.chain(most=1_000)
    assert some.versions == history.expected(4_001)
    assert some.deeper and not some.from_the_first
    assert history.blobs.read.total() == 1


async def test_it_ends_right_above_the_version_it_shall_end_at() -> None:
    history = await History(versions=301, log=100).written()
    chain = await history.chain(until=250)
    assert chain.versions == history.expected(251)
    assert chain.met and not chain.from_the_first
    assert history.blobs.read.total() == 1
    nothing = await history.chain(until=300)
    assert nothing.met and not nothing.versions
    assert not history.blobs.read


async def test_it_ends_where_receipts_are_too_old_to_be_kept() -> None:
    history = await History(versions=50, log=100).written()
    chain = await history.chain(since_ms=BEGAN_MS + 30)
    assert chain.versions == history.expected(30)


@pytest.mark.parametrize("broken", [(5,), (100, 250), (200,), (199, 200), (300,), (0,)])
async def test_files_in_the_middle_that_cannot_be_read_do_not_end_it(broken: tuple[int, ...]) -> None:
    history = await History(versions=301, log=100).written()
    await history.break_(*broken)
    chain = await history.chain()
    times = {version.location: version.committed_ms for version in chain.versions}
    assert list(times) == [version.location for version in history.expected()]
    assert set(chain.unreadable) <= {history.location(number) for number in broken}


async def test_the_log_of_a_former_life_is_not_followed() -> None:
    history = await History(versions=20, log=100, foreign=8).written()
    chain = await history.chain()
    assert chain.versions == history.expected(8)
    assert not chain.from_the_first


async def test_files_that_were_deleted_end_it_quietly() -> None:
    history = await History(versions=150, log=10).written()
    for number in range(100):
        await history.blobs.delete(history.name(number))
    chain = await history.chain()
    assert chain.versions == history.expected(90), "the log of version 100 still names ten"
    assert not chain.unreadable and not chain.from_the_first


def test_our_files_are_told_by_their_names() -> None:
    assert is_ours(location(7))
    assert is_ours(location(7).replace(".metadata.json", ".gz.metadata.json"))
    assert not is_ours(location(7, version=4))
    assert not is_ours(f"{FOLDER}/v7.metadata.json")
