"""Tables whose manifests, which whoever writes them has written, lead to files that are not theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.manifest import FileFormat

from lakepact.mirrors.duckdb_engine import FILE, DuckdbMirror, Made
from lakepact.upkeep.collection import CLASSES, Collector, Report
from lakepact.upkeep.collection.collector import CollectorSettings
from tests.support.manifests import SCHEMA, manifest, manifest_list, write_rows
from tests.wire.people import House, Person, house, on_namespace
from tests.wire.world import set_properties, snapshot, table_path


@dataclass(slots=True)
class Two:
    """A table that Bob may write, and one that he may not even see."""

    people: House
    own: str
    secret: str
    secret_file: str

    async def commit(self, list_place: str, person: Person | None = None, path: str = table_path("t", "pub")) -> None:
        updates = [
            {"action": "add-snapshot", "snapshot": {**snapshot(11), "manifest-list": list_place}},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 11},
        ]
        who = person or self.people.bob
        answer = await who.post(path, {"requirements": [], "updates": updates})
        assert answer.status == 200, answer.body

    async def lists(self, *data: str, **more: Any) -> None:
        """Bob commits a snapshot of these files."""
        one = manifest(f"{self.own}/metadata/m.avro", data, **more)
        await self.commit(manifest_list(f"{self.own}/metadata/l.avro", one))

    @property
    def around(self) -> str:
        """The file of the other table, by a path that begins as one of Bob's does."""
        return f"{self.own}/../../{self.secret_file.removeprefix(self.people.root.root)}"

    @property
    def catalog(self) -> Any:
        assert self.people.root.service is not None
        return self.people.root.service.catalogs["main"]

    async def mirrored(self) -> Made:
        return await DuckdbMirror(self.catalog, self.catalog.parts.rows, iceberg=True).follow()

    def shown(self) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(self.people.root.path_of(f"{self.people.root.root}/{FILE}")), read_only=True) as lake:
            return lake.execute("SELECT id FROM pub.t ORDER BY id").fetchall()

    async def collected(self) -> Report:
        report = Report()
        settings = CollectorSettings(drop_retention_s=0, abandoned_retention_s=0)
        await Collector(self.catalog, settings).run(CLASSES, report)
        return report


@pytest.fixture
def two(tmp_path: Path) -> AbstractAsyncContextManager[Two]:
    return _made(tmp_path)


@asynccontextmanager
async def _made(folder: Path) -> AsyncIterator[Two]:
    async with house(folder) as people:
        root = people.root
        for namespace in ("pub", "hidden"):
            await root.namespace(namespace)
        own = (await root.table("t", "pub", schema=SCHEMA))["metadata"]["location"]
        secret = (await root.table("secret", "hidden", schema=SCHEMA))["metadata"]["location"]
        await root.grant("user:bob", "manage", **on_namespace("pub"))
        yield Two(people, own, secret, write_rows(f"{secret}/data/salaries.parquet", 99_999))


async def test_the_mirror_shows_what_lies_in_the_tables_own_folders(two: Two) -> None:
    elsewhere = f"{two.people.root.root}/elsewhere"
    mine = [write_rows(f"{two.own}/data/a.parquet", 1), write_rows(f"{elsewhere}/b.parquet", 2)]
    asked = {"requirements": [], "updates": [set_properties(**{"write.data.path": elsewhere})]}
    assert (await two.people.bob.post(table_path("t", "pub"), asked)).status == 403
    assert (await two.people.root.post(table_path("t", "pub"), asked)).status == 200
    await two.lists(*mine)
    assert not (await two.mirrored()).left_out
    assert two.shown() == [(1,), (2,)]


@pytest.mark.parametrize("how", ["data", "not Parquet", "deletes", "outside", "another scheme", "a way around"])
async def test_t_path_6_the_mirror_follows_no_file_of_another_table(two: Two, tmp_path: Path, how: str) -> None:
    mine = write_rows(f"{two.own}/data/a.parquet", 1)
    outside = write_rows(f"file://{tmp_path}/outside.parquet", 7)
    match how:
        case "data":
            await two.lists(mine, two.secret_file)
        case "not Parquet":
            # What the mirror leaves to DuckDB's own extension is looked at before.
            await two.lists(mine, two.secret_file, formats={two.secret_file: FileFormat.ORC})
        case "deletes":
            await two.lists(mine, deletes=[two.secret_file])
        case "outside":
            await two.lists(mine, outside)
        case "another scheme":
            await two.lists(mine, "https://elsewhere.example/a.parquet")
        case _:
            await two.lists(mine, two.around)
    made = await two.mirrored()
    assert "which is not in a folder of its own" in made.left_out["pub.t"]
    with pytest.raises(duckdb.CatalogException):
        two.shown()


async def test_t_path_6_the_mirror_reads_no_manifest_of_another_table(two: Two) -> None:
    foreign = manifest(f"{two.secret}/metadata/m.avro", [two.secret_file])
    await two.commit(manifest_list(f"{two.own}/metadata/l.avro", foreign))
    assert f"leads to {two.secret}/metadata/m.avro" in (await two.mirrored()).left_out["pub.t"]


async def _purge(two: Two) -> None:
    assert (await two.people.bob.delete(f"{table_path('t', 'pub')}?purgeRequested=true")).status == 204


async def test_t_path_6_purging_a_table_deletes_nothing_of_another(two: Two) -> None:
    mine = write_rows(f"{two.own}/data/a.parquet", 1)
    assert two.people.root.path_of(mine).exists() and Path(two.around.removeprefix("file://")).exists()
    await two.lists(mine, two.secret_file, two.around, f"{two.own}//data/a.parquet")
    await _purge(two)
    assert not (await two.collected()).left
    assert [two.people.root.path_of(one).exists() for one in (mine, two.secret_file)] == [False, True]


async def test_t_path_6_a_table_with_broken_manifests_keeps_none_but_itself_from_collection(two: Two) -> None:
    broken = Path(f"{two.own}/metadata/l.avro".removeprefix("file://"))
    broken.parent.mkdir(parents=True, exist_ok=True)
    broken.write_bytes(b"nothing of the kind")
    await two.commit(f"{two.own}/metadata/l.avro")
    await _purge(two)
    root = two.people.root
    other = (await root.table("u", "pub", schema=SCHEMA))["metadata-location"]
    assert (await root.delete(f"{table_path('u', 'pub')}?purgeRequested=true")).status == 204
    [left] = (await two.collected()).left
    assert left.startswith("pub.t: ") and "is not an Avro file" in left
    assert broken.exists() and not root.path_of(other).exists()


async def test_a_file_stays_as_long_as_a_table_of_another_folder_shares_its_manifest(two: Two) -> None:
    root = two.people.root
    collector = Collector(two.catalog, CollectorSettings(drop_retention_s=0, abandoned_retention_s=0))

    async def purge(path: str) -> None:
        assert (await root.delete(f"{path}?purgeRequested=true")).status == 204
        await collector.run(CLASSES, Report())

    shared = manifest(f"{two.secret}/metadata/m.avro", [two.secret_file])
    place = manifest_list(f"{two.secret}/metadata/l.avro", shared)
    await two.commit(place, root, table_path("secret", "hidden"))
    # Something else is purged, and what the manifest leads to is remembered.
    await root.table("u", "pub", schema=SCHEMA)
    await purge(table_path("u", "pub"))
    await two.commit(place, root)
    await purge(table_path("secret", "hidden"))
    assert root.path_of(two.secret_file).exists()
