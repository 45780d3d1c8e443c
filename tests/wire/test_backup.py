"""Backup and restore: from any store into any other, as of one instant, whole or not at all."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from lakepact.errors import InvalidRequest, StoreUnsuitable, Unreadable
from lakepact.kernel.ports import CellStore
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores import delta_rows, open_store
from lakepact.upkeep import restore
from lakepact.upkeep.backup import Contents, SavedCell, SavedRecord, contents, read, save
from tests.support.postgres import LazyPostgres
from tests.wire.world import Wire, append, change, new_key, set_properties

CLOCK, RNG = SystemClock(), SystemRng()


@asynccontextmanager
async def store_url(kind: str, folder: Path, postgres: LazyPostgres) -> AsyncIterator[str]:
    name = f"{kind}_{random.getrandbits(64):016x}"
    if kind == "sqlite":
        yield f"sqlite:////{str(folder).lstrip('/')}/{name}.db"
    elif kind == "file":
        yield f"file://{folder}/{name}"
    else:
        connection = await asyncpg.connect(postgres.url())
        try:
            await connection.execute(f"CREATE DATABASE {name}")
            yield postgres.url().replace("/postgres?", f"/{name}?")
            await connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        finally:
            await connection.close()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[CellStore]:
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def saved(url: str, path: Path, **more: Any) -> Contents:
    async with opened(url) as store:
        return await save(store, path, CLOCK, RNG, shows_the_past=delta_rows(store) is not None, **more)


async def restored(url: str, path: Path, settings: KernelSettings | None = None) -> Contents:
    async with opened(url) as store:
        return await restore.load(store, path, settings or KernelSettings(), CLOCK, RNG)


async def fill(wire: Wire, key: str) -> dict[str, Any]:
    """A small catalog with something of everything; what is in it."""
    await wire.namespace("db", owner="me")
    await wire.namespace("ö/ x")
    await wire.table("t")
    await wire.create("odd + name/ü", "ö/ x")
    await wire.view("v")
    assert (await wire.commit_all(change("t", append(7)), change("t", []), key=key)).status in (204, 400)
    assert (await wire.commit(append(7), key=new_key())).status == 200
    await wire.table("gone")
    assert (await wire.delete("/namespaces/db/tables/gone")).status == 204
    return await what_is_there(wire)


async def what_is_there(wire: Wire) -> dict[str, Any]:
    return {
        "namespaces": sorted((await wire.get("/namespaces")).json()["namespaces"]),
        "tables": sorted(await wire.tables("db")),
        "others": await wire.tables("ö/ x"),
        "t": await wire.load("t"),
        "odd": await wire.load("odd + name/ü", "ö/ x"),
        "view": (await wire.get("/namespaces/db/views/v")).json(),
        "owner": (await wire.get("/namespaces/db")).json()["properties"],
    }


@pytest.mark.parametrize(
    ("source", "target"), [("sqlite", "postgres"), ("postgres", "file"), ("file", "sqlite"), ("sqlite", "sqlite")]
)
async def test_a_catalog_moves_from_any_store_to_any_other(
    source: str, target: str, tmp_path: Path, postgres: LazyPostgres
) -> None:
    key, body = new_key(), {"requirements": [], "updates": append(9, 2, 7)}
    async with store_url(source, tmp_path, postgres) as old, store_url(target, tmp_path, postgres) as new:
        async with Wire.opened(tmp_path, store=old) as wire:
            await fill(wire, new_key())
            first = await wire.post("/namespaces/db/tables/t", body, key)
            refused = await wire.post("/namespaces/db/tables", {"name": "t", "schema": {}}, (bad := new_key()))
            assert first.status == 200 and refused.status >= 400
            before = await what_is_there(wire)
            # Beside a running server, and beside what has not happened yet.
            begun = (await wire.post("/transactions", json={})).json()
            inside = f"/v1/{begun['prefix']}/namespaces/db/tables/t"
            await wire.client.send("POST", inside, json={"requirements": [], "updates": [set_properties(a="b")]})
            made = await saved(old, tmp_path / "backup.gz")
            assert made == contents(tmp_path / "backup.gz")
            # What comes afterwards is not in it.
            await wire.commit(append(11, 3, 9), key=new_key())
        assert (tmp_path / "backup.gz").stat().st_mode & 0o077 == 0
        done = await restored(new, tmp_path / "backup.gz")
        assert (done.cells, done.records) == (made.cells, made.records)
        async with Wire.opened(tmp_path, store=new) as wire:
            assert await what_is_there(wire) == before
            # A request that was done is not done again, and one that was refused is refused.
            again = await wire.post("/namespaces/db/tables/t", body, key)
            assert again.status == 200 and again.json()["metadata-location"] == first.json()["metadata-location"]
            assert (await wire.post("/namespaces/db/tables", {"name": "t", "schema": {}}, bad)).body == refused.body
            assert (await wire.get(f"/transactions/{begun['transaction-id']}")).status == 404
            # And life goes on.
            assert (await wire.commit(append(13, 3, 9), key=new_key())).status == 200
            assert (await wire.delete("/namespaces/db/tables/t")).status == 204


async def test_nothing_is_overwritten_and_nothing_is_mixed(tmp_path: Path, postgres: LazyPostgres) -> None:
    backup = tmp_path / "backup.gz"
    async with store_url("sqlite", tmp_path, postgres) as url, store_url("sqlite", tmp_path, postgres) as other:
        async with Wire.opened(tmp_path, store=url) as wire:
            await wire.namespace()
        await saved(url, backup)
        with pytest.raises(InvalidRequest, match="overwrites nothing"):
            await saved(url, backup)
        with pytest.raises(InvalidRequest, match="not empty"):
            await restored(url, backup)
        await restored(other, backup)
        with pytest.raises(InvalidRequest, match="restored from backup"):
            await restored(other, backup)


async def test_a_restore_that_was_ended_in_the_middle_goes_on_and_is_not_served_before(
    tmp_path: Path, postgres: LazyPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup, small = tmp_path / "backup.gz", KernelSettings(max_cells=3)
    async with store_url("file", tmp_path, postgres) as url, store_url("sqlite", tmp_path, postgres) as new:
        async with Wire.opened(tmp_path, store=url) as wire:
            before = await fill(wire, new_key())
        await saved(url, backup)
        put, puts = restore._put, 0

        async def failing(*given: Any) -> Any:
            nonlocal puts
            puts += 1
            if puts == 4:
                raise ConnectionError("the power is out")
            return await put(*given)

        monkeypatch.setattr(restore, "_put", failing)
        with pytest.raises(ConnectionError):
            await restored(new, backup, small)
        with pytest.raises(StoreUnsuitable, match="has not ended"):
            async with Wire.opened(tmp_path, store=new):
                pass
        await restored(new, backup, small)
        async with Wire.opened(tmp_path, store=new) as wire:
            assert await what_is_there(wire) == before


@pytest.mark.parametrize("kind", ["sqlite", "file", "postgres"])
async def test_a_backup_is_of_one_instant(kind: str, tmp_path: Path, postgres: LazyPostgres) -> None:
    """Two tables that always move together are never apart in a backup."""
    async with store_url(kind, tmp_path, postgres) as url, Wire.opened(tmp_path, store=url) as wire:
        await wire.namespace()
        await wire.table("a")
        await wire.table("z")
        for number in range(30):
            await wire.table(f"n{number}")
        ended, readings = False, 0

        def note_reading(message: str) -> None:
            nonlocal readings
            readings += "reading again" in message

        async def move() -> int:
            number = 0
            while not ended:
                if readings >= 3:
                    # A store of documents is read until nothing has moved, and only so many times.
                    await asyncio.sleep(0.01)
                    continue
                number += 1
                updates = [set_properties(counter=str(number))]
                assert (await wire.commit_all(change("a", updates), change("z", updates))).status == 204
                await asyncio.sleep(0.05 if kind == "file" else 0)
            return number

        moving = asyncio.create_task(move())
        try:
            for number in range(3):
                path, readings = tmp_path / f"{number}.gz", 0
                await saved(url, path, say=note_reading)
                lines = list(read(path))
                cells = {one.value.get("name"): one for one in lines if isinstance(one, SavedCell)}
                assert cells["a"].revision == cells["z"].revision
                # Every record in it is of something that is in it.
                writers = [one for one in lines if isinstance(one, SavedRecord) and "results" in str(one.answer)]
                assert len(writers) == cells["a"].revision - 1
        finally:
            ended = True
            assert await moving > 0


SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def added(path: str) -> dict[str, Any]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}}


async def mirrored(wire: Wire, *table_ids: str) -> None:
    answer = await wire.post("/delta-tables/mirror", {"tables": list(table_ids)})
    assert all(one["success"] for results in answer.json()["results"].values() for one in results), answer.body


async def test_delta_tables_are_refused_or_left_out_by_name(wire: Wire, tmp_path: Path) -> None:
    await wire.namespace()
    await wire.table("t")
    await wire.post("/namespaces/db/delta-tables", {"name": "d", "schema": SCHEMA})
    location = (await wire.get("/namespaces/db/delta-tables/d")).json()["location"]
    await wire.post("/namespaces/db/delta-tables", {"name": "gone", "schema": SCHEMA})
    assert (await wire.delete("/namespaces/db/delta-tables/gone")).status == 204
    with pytest.raises(InvalidRequest, match="--without-delta"):
        await saved(wire.settings.store, tmp_path / "no.gz")
    assert not list(tmp_path.glob("*no.gz*"))
    done = await saved(wire.settings.store, tmp_path / "yes.gz", without_delta=True)
    assert [(one.table, one.warehouse, one.dropped) for one in done.left_out] == [
        ("db.d", "main", False),
        ("db.gone", "main", True),
    ]
    assert done.left_out[0].location == location
    assert done == contents(tmp_path / "yes.gz")
    url = f"sqlite:////{str(tmp_path).lstrip('/')}/new.db"
    assert (await restored(url, tmp_path / "yes.gz")).left_out == done.left_out
    async with Wire.opened(tmp_path, store=url) as other:
        assert await other.tables() == ["t"]
        assert (await other.get("/namespaces/db/delta-tables")).json()["identifiers"] == []
        assert (await other.get("/dropped")).json()["dropped"] == []
        assert (await other.post("/namespaces/db/delta-tables", {"name": "d", "schema": SCHEMA})).status == 200


async def test_a_delta_table_that_was_left_out_comes_back_from_its_log(wire: Wire, tmp_path: Path) -> None:
    """All its versions, files and what is said of them; and life goes on, in the table and in its log."""
    await wire.namespace()
    made = (await wire.post("/namespaces/db/delta-tables", {"name": "d", "schema": SCHEMA})).json()
    for number in range(12):
        changed = await wire.post("/namespaces/db/delta-tables/d", {"actions": [added(f"{number}.parquet")]})
        assert changed.status == 200, changed.body
    await mirrored(wire, made["table-id"])
    before = (await wire.get("/namespaces/db/delta-tables/d?files=true")).json()
    backup, url = tmp_path / "backup.gz", f"sqlite:////{str(tmp_path).lstrip('/')}/new.db"
    [left_out] = (await saved(wire.settings.store, backup, without_delta=True)).left_out
    await restored(url, backup)
    where = "/namespaces/db/delta-tables/d"
    async with Wire.opened(tmp_path, store=url) as other:
        refused = await other.post(f"{where}/import", {"location": left_out.location, "take-over": True})
        assert (refused.status, "--recover" in refused.json()["error"]["message"]) == (400, True)
        assert (await other.get(where)).status == 404
        done = await other.post(f"{where}/import", {"location": left_out.location, "recover": True})
        assert done.status == 200, done.body
        told = done.json()
        assert (told["read-only"], told["version"], told["parity"]["equal"]) == (False, 13, True), told
        after = (await other.get(f"{where}?files=true")).json()
        assert (after["files"], after["metadata"]) == (before["files"], before["metadata"])
        assert (await other.get(f"{where}?version=5&files=true")).json()["version"] == 5
        history = (await other.get(f"{where}/history")).json()["versions"]
        assert [one["operation"] for one in history][:2] == ["RECOVER", "WRITE"]
        assert (await other.post(where, {"actions": [added("new.parquet")]})).json()["version"] == 14
        await mirrored(other, after["table-id"])
        parity = (await other.get(f"{where}/verify")).json()
        assert (parity["equal"], parity["log-version"], parity["behind"]) == (True, 14, 0), parity
        # Sent again, as after a lost answer, it is done already.
        again = (await other.post(f"{where}/import", {"location": left_out.location, "recover": True})).json()
        assert (again["version"], again["read-only"], again["versions"]) == (14, False, 0)


async def test_a_file_that_is_not_whole_is_refused_before_anything_is_written(wire: Wire, tmp_path: Path) -> None:
    await wire.namespace()
    await wire.table()
    await saved(wire.settings.store, tmp_path / "good.gz")
    lines = gzip.decompress((tmp_path / "good.gz").read_bytes()).splitlines(keepends=True)
    broken = {
        "cut off": lines[:-1],
        "a line less": [*lines[:1], *lines[2:]],
        "another word": [lines[0], lines[1].replace(b"db", b"DB"), *lines[2:]],
        "more": [*lines, lines[1]],
        "another format": [json.dumps({"lakepact-backup": 99}).encode() + b"\n", *lines[1:]],
        "no json": [b"hello\n"],
        "nothing": [],
    }
    for what, text in broken.items():
        path = tmp_path / f"{what}.gz"
        path.write_bytes(gzip.compress(b"".join(text)))
        with pytest.raises(Unreadable):
            await restored(f"sqlite:////{str(tmp_path).lstrip('/')}/{what}.db", path)
    (tmp_path / "torn.gz").write_bytes((tmp_path / "good.gz").read_bytes()[:-20])
    with pytest.raises(Unreadable):
        contents(tmp_path / "torn.gz")
    whole = (tmp_path / "good.gz").read_bytes()
    (tmp_path / "flipped.gz").write_bytes(whole[:40] + bytes(one ^ 0xFF for one in whole[40:60]) + whole[60:])
    with pytest.raises(Unreadable, match="Use another backup"):
        contents(tmp_path / "flipped.gz")
    with pytest.raises(InvalidRequest, match="there is no file"):
        contents(tmp_path / "missing.gz")
    with pytest.raises(InvalidRequest, match="is a folder"):
        contents(tmp_path)
    (tmp_path / "letter.txt").write_text("hello")
    with pytest.raises(InvalidRequest, match="name a file that `lakepact backup` has made"):
        contents(tmp_path / "letter.txt")
