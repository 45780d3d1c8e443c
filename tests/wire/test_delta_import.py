"""Delta tables that delta-rs has written become tables of the catalog, and are compared with their logs.

One file, as import, comparison and take-over are looked at on the same logs.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lakepact.catalog.delta_import import DeltaImport
from lakepact.catalog.operations import Parts
from lakepact.catalog.work import Done
from lakepact.kernel.model import Transaction
from tests.support.asgi_client import Answer
from tests.wire.world import Json, Wire, new_key

deltalake = pytest.importorskip("deltalake")
pa = pytest.importorskip("pyarrow")

TABLES = "/namespaces/db/delta-tables"
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


@pytest.fixture
def w(on_sql: AbstractAsyncContextManager[Wire]) -> AbstractAsyncContextManager[Wire]:
    return on_sql


def folder_of(wire: Wire, name: str = "source") -> Path:
    folder = wire.path_of(f"{wire.root}/{name}")
    folder.mkdir(parents=True)
    return folder


def rows(*ids: int, **more: list[Any]) -> Any:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": [f"2026-01-0{one % 3 + 1}" for one in ids], **more})


def write(folder: Path, table: Any, mode: str = "append", **more: Any) -> None:
    deltalake.write_deltalake(str(folder), table, mode=mode, **more)


def a_life(folder: Path) -> Any:
    """Partitions, a removal, a new column, an application transaction: versions 0 to 4."""
    write(folder, rows(1, 2, 3), partition_by=["day"])
    write(folder, rows(4, 5))
    write(folder, rows(6, label=["x"]), schema_mode="merge")
    table = deltalake.DeltaTable(str(folder))
    table.delete("id = 2")
    properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("loader", 7)])
    write(folder, rows(7, label=["y"]), commit_properties=properties)
    return deltalake.DeltaTable(str(folder))


def long_life(folder: Path, versions: int = 12) -> None:
    write(folder, rows(0), partition_by=["day"])
    for one in range(1, versions):
        write(folder, rows(one), mode="overwrite" if one == 5 else "append")


def log_of(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020}.json"


async def send(wire: Wire, location: str, name: str = "t", key: str | None = None, **options: bool) -> Answer:
    body = {"location": location, **{key.replace("_", "-"): value for key, value in options.items()}}
    return await wire.post(f"{TABLES}/{name}/import", body, key=key)


async def imported(wire: Wire, location: str, name: str = "t", **options: bool) -> Json:
    answer = await send(wire, location, name, None, **options)
    assert answer.status == 200, answer.body
    done: Json = answer.json()
    return done


async def verified(wire: Wire, name: str = "t") -> Json:
    answer = await wire.get(f"{TABLES}/{name}/verify")
    assert answer.status == 200, answer.body
    found: Json = answer.json()
    return found


async def live(wire: Wire, version: int | None = None) -> set[str]:
    at = "" if version is None else f"&version={version}"
    answer = await wire.get(f"{TABLES}/t?files=true{at}")
    assert answer.status == 200, answer.body
    return {one["add"]["path"] for one in answer.json()["files"]}


def real_files(folder: Path, version: int | None = None) -> set[str]:
    table = deltalake.DeltaTable(str(folder), version=version)
    return {Path(one).relative_to(folder).as_posix() for one in (_path(uri) for uri in table.file_uris())}


def _path(uri: str) -> str:
    return uri.removeprefix("file://")


# --- equal ---


async def test_every_version_is_what_delta_rs_says_it_is(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    table = a_life(folder)
    done = await imported(w, f"{w.root}/source")
    assert (done["version"], done["versions"], done["first-version"]) == (table.version(), 5, 0)
    assert (done["rows"], done["files"]) == (6, len(table.file_uris()))
    assert done["read-only"] is True
    assert done["parity"]["equal"] is True, done["parity"]
    for version in range(5):
        assert await live(w, version) == real_files(folder, version)
    loaded = (await w.get(f"{TABLES}/t")).json()
    assert loaded["transactions"] == {"loader": 7}
    assert [one["name"] for one in json.loads(loaded["metadata"]["schemaString"])["fields"]] == ["id", "day", "label"]
    history = (await w.get(f"{TABLES}/t/history")).json()["versions"]
    times = [one["timestamp-ms"] for one in history]
    assert [one["version"] for one in history] == [4, 3, 2, 1, 0]
    assert times == sorted(set(times), reverse=True)
    assert history[1]["operation"] == "DELETE"
    assert (await verified(w))["equal"] is True


async def test_a_log_that_begins_with_a_checkpoint(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    long_life(folder, 8)
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    for version in range(7):
        log_of(folder, version).unlink()
    write(folder, rows(8))
    deltalake.DeltaTable(str(folder)).delete("id = 6")
    done = await imported(w, f"{w.root}/source")
    assert (done["first-version"], done["version"], done["versions"]) == (7, 9, 3)
    assert done["parity"]["equal"] is True, done["parity"]
    assert await live(w) == real_files(folder)
    assert await live(w, 7) == real_files(folder, 7)
    assert (await w.get(f"{TABLES}/t?version=6")).status == 404


async def test_a_log_that_forgets_its_beginning_after_the_import_is_still_equal(
    w: Wire,
) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    long_life(folder, 6)
    await imported(w, f"{w.root}/source")
    deltalake.DeltaTable(str(folder)).create_checkpoint()
    for version in range(5):
        log_of(folder, version).unlink()
    found = await verified(w)
    assert (found["equal"], found["first-version"]) == (True, 5), found


async def test_versions_that_say_more_than_they_must(w: Wire) -> None:
    """A file that is removed and was not there, and one that is added again: legal, and seen."""
    await w.namespace("db")
    folder = folder_of(w)
    write(folder, rows(1), partition_by=["day"])
    write(folder, rows(2))
    [again] = [json.loads(line) for line in log_of(folder, 1).read_text().splitlines() if "add" in json.loads(line)]
    again["add"] |= {"dataChange": False, "tags": {"seen": "twice"}}
    ghost = {"remove": {"path": "ghost.parquet", "deletionTimestamp": 1, "dataChange": True}}
    log_of(folder, 2).write_text("\n".join(json.dumps(line) for line in (ghost, again)))
    write(folder, rows(3))
    done = await imported(w, f"{w.root}/source")
    assert (done["version"], done["files"], done["parity"]["equal"]) == (3, 3, True), done
    for version in range(4):
        assert await live(w, version) == real_files(folder, version)


# --- tampered ---


async def test_a_tampered_log_is_found(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    a_life(folder)
    await imported(w, f"{w.root}/source")
    path = log_of(folder, 1)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    added = next(line["add"] for line in lines if "add" in line)
    added["size"] += 1
    path.write_text("\n".join(json.dumps(line) for line in lines))
    found = await verified(w)
    assert found["equal"] is False
    assert any("version 1: add" in one and "size is" in one for one in found["differences"]), found
    assert any("state at version 4: live file" in one and "size is" in one for one in found["differences"]), found
    added["size"] -= 1
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    found = await verified(w)
    assert found["difference-count"] == 1
    assert "other bytes, the same actions" in found["differences"][0]


async def test_a_log_that_goes_on_is_a_difference_until_it_is_imported_again(
    w: Wire,
) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    a_life(folder)
    first = await imported(w, f"{w.root}/source")
    write(folder, rows(8, label=["z"]))
    deltalake.DeltaTable(str(folder)).delete("id = 1")
    found = await verified(w)
    assert (found["equal"], found["version"], found["log-version"]) == (False, 4, 6)
    again = await imported(w, f"{w.root}/source")
    assert (again["table-id"], again["first-version"], again["versions"]) == (first["table-id"], 5, 2)
    assert again["parity"]["equal"] is True
    assert await live(w) == real_files(folder)
    assert (await imported(w, f"{w.root}/source"))["versions"] == 0


async def test_a_log_that_was_made_anew_is_not_gone_on_with(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    write(folder, rows(1))
    await imported(w, f"{w.root}/source")
    for file in (folder / "_delta_log").iterdir():
        file.unlink()
    write(folder, rows(2))
    write(folder, rows(3))
    answer = await send(w, f"{w.root}/source")
    assert (answer.status, "made anew" in answer.json()["error"]["message"]) == (400, True), answer.body
    assert (await w.get(f"{TABLES}/t")).json()["version"] == 0


async def test_a_log_that_cannot_be_read_is_a_difference(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    a_life(folder)
    await imported(w, f"{w.root}/source")
    log_of(folder, 2).write_text("{ not json")
    found = await verified(w)
    assert found["equal"] is False
    assert "cannot be read" in found["differences"][0], found
    log_of(folder, 2).unlink()
    assert (await verified(w))["equal"] is False


async def test_rows_that_somebody_has_changed_are_found(wire: Wire) -> None:
    await wire.namespace("db")
    a_life(folder_of(wire))
    done = await imported(wire, f"{wire.root}/source")
    database = sqlite3.connect(Path(wire.settings.data) / "lakepact.db", isolation_level=None)
    for statement, told in (
        ("UPDATE dl_txn_actions SET app_version = 8", "state at version 4: txn loader: version is 7 in the log, 8 in"),
        ("UPDATE dl_protocol_updates SET min_writer_version = 4", "state at version 4: protocol: minWriterVersion"),
        ("UPDATE dl_metadata_updates SET meta_id = 'x'", "state at version 4: metaData: id is"),
        (
            "UPDATE dl_add_files SET partition_values = '{\"day\":null}'",
            "state at version 4: live file .*: partitionValues is",
        ),
        ("UPDATE dl_add_files SET removed_version = 4 WHERE version = 0", "in the log and not in the table"),
        ("DELETE FROM dl_table_versions WHERE version = 1", "version 1: the log has it and the table has not"),
    ):
        assert database.execute(f"{statement}").rowcount
        found = await verified(wire)
        assert any(re.match(f".*{told}", one) for one in found["differences"]), (told, found["differences"])
        assert found["table-id"] == done["table-id"]
    database.close()


async def test_of_two_imports_at_once_one_makes_the_table(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    a_life(folder)
    answers = await asyncio.gather(*(send(w, f"{w.root}/source") for _ in range(3)))
    statuses = sorted(answer.status for answer in answers)
    assert statuses[0] == 200
    assert set(statuses) <= {200, 409}
    found = await verified(w)
    assert (found["equal"], found["version"]) == (True, 4)


@pytest.mark.parametrize("other", ["source/inner", "."])
async def test_table_is_not_imported_into_an_overlap(w: Wire, other: str) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    a_life(folder)
    location = f"{w.root}/source"
    if other == ".":
        # The folder above: the table to import lies one level deeper.
        folder.rename(folder.with_name("moved"))
        (folder / "deep").parent.mkdir()
        folder.with_name("moved").rename(folder / "deep")
        await w.table("other", location=location)
        location = f"{location}/deep"
    else:
        await w.table("other", location=f"{w.root}/{other}")
    refused = await send(w, location)
    assert refused.status == 400 and "overlaps" in refused.error["message"], refused.body


# --- exactly once ---


@pytest.mark.parametrize("take_over", [False, True])
async def test_the_same_key_is_told_the_same_and_imports_once(w: Wire, take_over: bool) -> None:
    await w.namespace("db")
    folder, key, place = folder_of(w), new_key(), f"{w.root}/source"
    a_life(folder)
    first = await send(w, place, key=key, take_over=take_over)
    assert first.status == 200, first.body
    assert first.header("X-Lakepact-Transaction") == key
    assert (first.json()["version"], first.json()["read-only"]) == (5 if take_over else 4, not take_over)
    again = await send(w, place, key=key, take_over=take_over)
    assert without_parity(again.json()) == without_parity(first.json())
    assert again.json()["parity"]["equal"] is True
    if not take_over:
        # What has been written since is not a part of that import.
        write(folder, rows(9, label=["z"]))
        late = await send(w, place, key=key, take_over=False)
        assert without_parity(late.json()) == without_parity(first.json())
        assert (await w.get(f"{TABLES}/t")).json()["version"] == 4
    other = await send(w, place, key=key, take_over=not take_over)
    assert (other.status, "different request" in other.json()["error"]["message"]) == (409, True)
    assert (await w.delete(f"{TABLES}/t")).status == 204
    late = await send(w, place, key=key, take_over=take_over)
    assert (late.status, late.json()["parity"]) == (200, None)
    assert without_parity(late.json()) == without_parity(first.json())
    assert (await w.get(f"{TABLES}/t")).status == 404


async def test_an_import_that_finds_nothing_to_do_keeps_its_answer_too(w: Wire) -> None:
    await w.namespace("db")
    folder, key, place = folder_of(w), new_key(), f"{w.root}/source"
    a_life(folder)
    await imported(w, place)
    first = await send(w, place, key=key)
    assert (first.json()["versions"], first.json()["version"]) == (0, 4)
    write(folder, rows(9, label=["z"]))
    assert without_parity((await send(w, place, key=key)).json()) == without_parity(first.json())
    assert (await w.get(f"{TABLES}/t")).json()["version"] == 4


async def test_a_refused_import_is_refused_again_under_its_key(w: Wire) -> None:
    await w.namespace("db")
    folder, key, place = folder_of(w), new_key(), f"{w.root}/source"
    write(folder, rows(1, 2), configuration={"delta.enableChangeDataFeed": "true"})
    first = await send(w, place, key=key, take_over=True)
    assert (first.status, "changeDataFeed" in first.json()["error"]["message"]) == (400, True)
    again = await send(w, place, key=key, take_over=True)
    assert (again.status, again.json()) == (first.status, first.json())


async def test_of_many_under_one_key_all_hear_of_one_import(w: Wire) -> None:
    await w.namespace("db")
    folder, key = folder_of(w), new_key()
    a_life(folder)
    answers = await asyncio.gather(*(send(w, f"{w.root}/source", key=key) for _ in range(4)))
    assert all(answer.status in (200, 409, 503) for answer in answers), [answer.body for answer in answers]
    done = await send(w, f"{w.root}/source", key=key)
    assert (done.status, done.json()["version"], done.json()["versions"]) == (200, 4, 5)
    assert all(without_parity(one.json()) == without_parity(done.json()) for one in answers if one.status == 200)


def without_parity(answer: Json) -> Json:
    return {name: value for name, value in answer.items() if name != "parity"}


# --- dry run, refusals ---


async def test_a_dry_run_says_what_would_be_and_changes_nothing(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    write(folder, rows(1, 2), configuration={"delta.enableChangeDataFeed": "true"})
    done = await imported(w, f"{w.root}/source", dry_run=True, take_over=True)
    assert (done["dry-run"], done["version"], done["versions"], done["rows"]) == (True, 0, 1, 2)
    assert done["problems"] == []
    assert "changeDataFeed" in done["take-over-problems"][0]
    assert (await w.get(f"{TABLES}/t")).status == 404
    assert (await w.get(TABLES)).json()["identifiers"] == []
    refused = await send(w, f"{w.root}/source", take_over=True)
    assert (refused.status, "changeDataFeed" in refused.json()["error"]["message"]) == (400, True)
    assert (await w.get(f"{TABLES}/t")).status == 404


async def test_what_cannot_be_imported_is_refused(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    write(folder, rows(1))
    assert (await send(w, f"{w.root}/nothing")).status == 400
    assert (await send(w, "file:///etc")).status == 400
    assert (await w.post(f"{TABLES}/t/import", {"location": f"{w.root}/source", "dry-run": 1})).status == 400
    assert (await w.post("/namespaces/other/delta-tables/t/import", {"location": f"{w.root}/source"})).status == 404
    missing = await imported(w, f"{w.root}/nothing", dry_run=True)
    assert "not a Delta log" in missing["problems"][0]
    await w.table("iceberg")
    assert (await send(w, f"{w.root}/source", "iceberg")).status == 409
    await imported(w, f"{w.root}/source")
    assert (await send(w, f"{w.root}/source", "second")).status == 400
    assert (await w.get(f"{TABLES}/second/verify")).status == 404


def as_of_a_lakepact_catalog(folder: Path) -> None:
    """Give the first version of a log our protocol, as if a catalog had mirrored it there."""
    path = log_of(folder, 0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            features = ["appendOnly", "invariants", "inCommitTimestamp", "x-lakepact-managed"]
            line["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    path.write_text("\n".join(json.dumps(line) for line in lines))


async def test_the_mirror_of_a_lakepact_catalog_is_refused_unless_that_is_lost(w: Wire) -> None:
    await w.namespace("db")
    folder, place = folder_of(w), f"{w.root}/source"
    write(folder, rows(1))
    as_of_a_lakepact_catalog(folder)
    answer = await send(w, place)
    message = answer.json()["error"]["message"]
    assert (answer.status, "Lakepact catalog manages" in message, "--recover" in message) == (400, True, True)
    would = await imported(w, place, recover=True, dry_run=True)
    assert (would["problems"], would["take-over-problems"]) == ([], [])
    assert (await w.get(f"{TABLES}/t")).status == 404
    done = await imported(w, place, recover=True)
    assert (done["version"], done["read-only"]) == (1, False)


async def test_only_what_a_lakepact_catalog_managed_is_recovered(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    write(folder, rows(1))
    answer = await send(w, f"{w.root}/source", recover=True)
    assert (answer.status, "without --recover" in answer.json()["error"]["message"]) == (400, True)
    assert (await w.get(f"{TABLES}/t")).status == 404
    assert (await w.post(f"{TABLES}/t/import", {"location": f"{w.root}/source", "recover": 1})).status == 400


async def test_a_table_of_this_catalog_is_not_recovered_under_another_name(w: Wire) -> None:
    await w.namespace("db")
    assert (await w.post(TABLES, {"name": "t", "schema": SCHEMA})).status == 200
    location = (await w.get(f"{TABLES}/t")).json()["location"]
    answer = await send(w, location, "second", recover=True)
    assert (answer.status, "another table of this catalog" in answer.json()["error"]["message"]) == (400, True)


async def test_logs_are_outside_of_transactions(w: Wire) -> None:
    await w.namespace("db")
    inside = f"/v1/main@{new_key()}{TABLES}/t"
    asked = await w.client.send("POST", f"{inside}/import", json={"location": f"{w.root}/source"})
    assert (asked.status, "outside of transactions" in asked.json()["error"]["message"]) == (400, True)
    assert (await w.client.send("GET", f"{inside}/verify")).status == 400


async def test_a_store_of_documents_has_no_delta_tables(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, store="memory://") as documents:
        await documents.namespace("db")
        assert (await send(documents, f"{documents.root}/source", dry_run=True)).status == 406
        assert (await documents.get(f"{TABLES}/t/verify")).status == 406


# --- read-only, taken over ---

ADD = {
    "add": {
        "path": "day=2026-01-01/new.parquet",
        "partitionValues": {"day": "2026-01-01"},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
}


async def test_an_import_is_read_only_until_it_is_taken_over(w: Wire) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    a_life(folder)
    await imported(w, f"{w.root}/source")
    refused = await w.post(f"{TABLES}/t", {"actions": [ADD]})
    assert (refused.status, "read-only" in refused.json()["error"]["message"]) == (400, True)
    done = await imported(w, f"{w.root}/source", take_over=True)
    assert (done["read-only"], done["version"]) == (False, 5)
    changed = await w.post(f"{TABLES}/t", {"actions": [ADD], "expected-version": 5})
    assert changed.status == 200, changed.body
    assert "day=2026-01-01/new.parquet" in await live(w)
    protocol = (await w.get(f"{TABLES}/t")).json()["protocol"]
    assert "x-lakepact-managed" in protocol["writerFeatures"]
    # Sent again, as after a lost answer, it is done already; without the take-over it is somebody's table.
    assert (await imported(w, f"{w.root}/source", take_over=True))["version"] == 6
    assert (await send(w, f"{w.root}/source")).status == 409
    found = await verified(w)
    assert found["equal"] is True, found


# --- in several transactions ---


class Crash(Exception):
    pass


class Mortal(DeltaImport):
    """Imports a few versions at a time, and dies before its second commit."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts, most_versions=5)
        self._commits = 0

    async def _commit(self, transaction: Transaction) -> Done | None:
        self._commits += 1
        if self._commits == 2:
            raise Crash
        return await super()._commit(transaction)


async def test_a_long_import_that_dies_shows_a_prefix_and_is_gone_on_with(
    w: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.namespace("db")
    folder = folder_of(w)
    long_life(folder, 12)
    key = new_key()
    monkeypatch.setattr("lakepact.catalog.catalog.DeltaImport", Mortal)
    assert (await send(w, f"{w.root}/source", key=key)).status == 500
    assert (await w.get(f"{TABLES}/t")).json()["version"] == 4
    assert await live(w) == real_files(folder, 4)
    monkeypatch.setattr("lakepact.catalog.catalog.DeltaImport", partial(DeltaImport, most_versions=5))
    done = (await send(w, f"{w.root}/source", key=key)).json()
    assert (done["first-version"], done["version"], done["versions"]) == (5, 11, 7)
    assert (await send(w, f"{w.root}/source", key=key)).json() == done
    assert done["parity"]["equal"] is True, done["parity"]
    for version in (4, 5, 9, 11):
        assert await live(w, version) == real_files(folder, version)


async def test_a_recovery_that_dies_is_nobodys_to_change_until_it_is_gone_on_with(
    w: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await w.namespace("db")
    folder, place = folder_of(w), f"{w.root}/source"
    long_life(folder, 12)
    as_of_a_lakepact_catalog(folder)
    monkeypatch.setattr("lakepact.catalog.catalog.DeltaImport", Mortal)
    assert (await send(w, place, recover=True)).status == 500
    assert (await w.get(f"{TABLES}/t")).json()["version"] == 4
    refused = await w.post(f"{TABLES}/t", {"actions": [ADD]})
    assert (refused.status, "being recovered" in refused.json()["error"]["message"]) == (400, True)
    # Versions that are still to come need files that those that are there do not name.
    assert await is_searched_for_orphans(w, place) is False
    monkeypatch.setattr("lakepact.catalog.catalog.DeltaImport", partial(DeltaImport, most_versions=5))
    done = await imported(w, place, recover=True)
    assert (done["first-version"], done["version"], done["read-only"]) == (5, 12, False)
    assert done["parity"]["equal"] is True, done["parity"]
    assert await live(w) == real_files(folder, 11)
    assert await is_searched_for_orphans(w, place) is True
    assert (await w.post(f"{TABLES}/t", {"actions": [ADD], "expected-version": 12})).status == 200


async def is_searched_for_orphans(wire: Wire, location: str) -> bool:
    token: str | None = ""
    while token is not None:
        page = (await wire.get(f"/reachable?pageToken={token}")).json()
        for one in page["reachable"]:
            if one["location"] == location:
                return bool(one["search"])
        token = page["next-page-token"]
    raise AssertionError(f"nothing is known of {location}")


async def test_of_many_creations_of_one_name_at_one_location_one_wins(w: Wire) -> None:
    """A request that reads the name before another one commits, and the location after it, is not a bad request."""
    await w.namespace("db")
    for number in range(5):
        body = {"name": f"t{number}", "schema": SCHEMA, "location": f"{w.root}/chosen-{number}"}
        keys = [new_key() for _ in range(6)]
        answers = await asyncio.gather(*(w.post(TABLES, body, key) for key in keys))
        assert sorted(answer.status for answer in answers) == [200, 409, 409, 409, 409, 409]
        again = [await w.post(TABLES, body, key) for key in keys]
        assert [answer.status for answer in again] == [answer.status for answer in answers]
