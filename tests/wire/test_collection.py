"""What a mirror still shows is not purged under its readers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet

from lakepact.catalog import Call, Catalog, CatalogSettings, Watch
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit
from lakepact.catalog.pointers import Kind
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Mirrored
from lakepact.cli.gc import collector_settings
from lakepact.delta.actions import Add
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.ports import CellStore
from lakepact.mirrors import Mirrors
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.settings import Settings
from lakepact.stores import delta_rows, open_blobs, open_store
from lakepact.upkeep.collection import CLASSES, Collector, Report

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
TABLE = Identifier(("db",), "d")


class _Shown(Watch):
    """Knows what mirrors show, and does not keep them in step."""

    mirrors: Mirrors

    async def mirrored(self, warehouse: str) -> Sequence[Mirrored]:
        return await self.mirrors.shown(warehouse)


@asynccontextmanager
async def unfollowed(settings: Settings, store: CellStore) -> AsyncIterator[dict[str, Catalog]]:
    """The catalog, with mirrors that follow when they are told to."""
    rows, tasks, watch = delta_rows(store), AsyncioTasks(), _Shown()
    assert rows is not None
    [(name, place)] = settings.places().items()
    blobs = await open_blobs(place.url, place.options)
    limits = CatalogSettings(mirrors=settings.mirrors_of(name), drop_retention_s=settings.drop_retention_s)
    where = Warehouse(name, place.url)
    catalog = Catalog(where, store, blobs, SystemClock(), SystemRng(), tasks, limits, rows=rows, watch=watch)
    watch.mirrors = Mirrors({name: catalog}, rows, SystemClock(), owner="watch")
    try:
        yield {name: catalog}
    finally:
        await tasks.drain()
        await blobs.close()


async def test_what_a_mirror_shows_is_purged_after_the_mirror_has_let_go(tmp_path: Path) -> None:
    settings = Settings.load(data=str(tmp_path), mirrors=["duckdb"], drop_retention_s=0)
    store = await open_store(settings.store, settings.kernel())
    rows = delta_rows(store)
    assert rows is not None
    try:
        async with unfollowed(settings, store) as catalogs:
            catalog = catalogs["main"]

            def call() -> Call:
                return Call(catalog.new_id(), "test")

            await catalog.create_namespace(call(), ("db",), {})
            await catalog.create_delta(call(), ("db",), CreateDelta("d", SCHEMA))
            location = (await catalog.load_delta(TABLE)).pointer.location
            data = Path(location.removeprefix("file://")) / "a.parquet"
            data.parent.mkdir(parents=True, exist_ok=True)
            pyarrow.parquet.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), data)
            await catalog.commit_delta(call(), [DeltaCommit(TABLE, (Add("a.parquet", {}, data.stat().st_size, 1),))])
            mirrors = Mirrors(catalogs, rows, SystemClock(), owner="test")
            while await mirrors.turn():
                pass
            await catalog.drop(call(), TABLE, Kind.DELTA, purge=True)

            collector, first, second = Collector(catalog, collector_settings(settings)), Report(), Report()
            await collector.run(CLASSES, first)
            assert first.left == ["db.d: a mirror still looks at it"] and not first.counts
            shown = tmp_path / "warehouse" / "_mirrors" / "lakepact.duckdb"
            with duckdb.connect(str(shown), read_only=True) as connection:
                assert connection.execute("SELECT sum(id) FROM db.d").fetchall() == [(3,)]

            mirrors = Mirrors(catalogs, rows, SystemClock(), owner="test")
            while await mirrors.turn():
                pass
            await collector.run(CLASSES, second)
            assert not second.left and not data.exists()
    finally:
        await store.close()
