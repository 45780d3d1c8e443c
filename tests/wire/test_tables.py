"""Tables: created, staged, listed, loaded, committed to, renamed, dropped, registered.

One file for the whole life of a table, in the order in which it is lived.
"""

from __future__ import annotations

import asyncio
import gzip
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from lakepact.catalog.keys import Keys
from lakepact.stores import open_store
from lakepact.stores.blobs import FileBlobs
from tests.wire.world import (
    SCHEMA,
    WIDER,
    Json,
    Wire,
    append,
    change,
    creation,
    new_key,
    segment,
    set_properties,
    table_path,
)

LARGE = 9_007_199_254_740_993
"""An id that a 64-bit float cannot tell from its neighbour."""


async def test_a_table_is_created_and_loads_as_it_was_answered(anywhere: Wire) -> None:
    await anywhere.namespace()
    answer = await anywhere.create("t", properties={"owner": "ada"})
    assert answer.status == 200
    made = answer.json()
    metadata = made["metadata"]
    assert metadata["format-version"] == 2
    assert metadata["properties"]["owner"] == "ada"
    assert metadata["location"].startswith(anywhere.root.rstrip("/"))
    assert made["metadata-location"].startswith(f"{metadata['location']}/metadata/00000-")
    assert made["config"] == {}
    loaded = await anywhere.get(table_path())
    assert loaded.json() == made
    assert loaded.header("ETag") == answer.header("ETag")
    assert (await anywhere.head(table_path())).status == 204


async def test_the_metadata_file_is_what_was_answered(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    assert orjson.loads(wire.path_of(made["metadata-location"]).read_bytes()) == made["metadata"]


async def test_a_table_is_created_once(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    again = await anywhere.create()
    assert again.refusal == (409, "AlreadyExistsException")
    assert again.error["message"] == "Table already exists: db.t"
    assert await anywhere.tables() == ["t"]


async def test_of_many_that_create_the_same_table_one_succeeds(contended: Wire) -> None:
    await contended.namespace()
    answers = await asyncio.gather(*(contended.create() for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    [won] = [answer.json() for answer in answers if answer.status == 200]
    assert await contended.load() == won


async def test_what_does_not_exist_is_404(wire: Wire) -> None:
    await wire.namespace()
    for answer in (
        await wire.get(table_path()),
        await wire.delete(table_path()),
        await wire.commit([set_properties(a="b")]),
        await wire.post(f"{table_path()}/unregister"),
        await wire.get(table_path("t", "nope")),
        await wire.get(table_path("files", "db", "t")),
    ):
        assert answer.refusal == (404, "NoSuchTableException")
        assert answer.error["message"].startswith("Table does not exist: ")
    missing = await wire.head(table_path())
    assert (missing.status, missing.body) == (404, b"")


async def test_tables_are_listed_without_views_in_pages_or_whole(anywhere: Wire) -> None:
    await anywhere.namespace()
    names = [f"t{number:02d}" for number in range(11)]
    for name in names:
        await anywhere.table(name)
        await anywhere.view(f"v{name}")
    assert sorted(await anywhere.tables()) == names
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = (await anywhere.get(f"/namespaces/db/tables?pageToken={segment(token)}&pageSize=3")).json()
        found += [one["name"] for one in page["identifiers"]]
        token = page["next-page-token"]
    assert sorted(found) == names


# --- staged creation ---


async def test_a_staged_table_is_not_there_until_it_is_committed(anywhere: Wire) -> None:
    await anywhere.namespace()
    staged = await anywhere.create("t", **{"stage-create": True})
    assert staged.status == 200
    assert "metadata-location" not in staged.json()
    assert (await anywhere.head(table_path())).status == 404
    metadata = staged.json()["metadata"]
    body = creation(
        updates=[
            {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
            {"action": "set-location", "location": metadata["location"]},
            *append(1),
        ]
    )
    committed = await anywhere.post(table_path(), body)
    assert committed.status == 200
    made = (await anywhere.load())["metadata"]
    assert made["table-uuid"] == metadata["table-uuid"]
    assert made["location"] == metadata["location"]
    assert made["current-snapshot-id"] == 1


async def test_staging_over_a_table_or_a_view_is_refused(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    await wire.view()
    assert (await wire.create("t", **{"stage-create": True})).refusal == (409, "AlreadyExistsException")
    assert (await wire.create("v", **{"stage-create": True})).refusal == (409, "AlreadyExistsException")


async def test_a_staged_table_has_its_folders_so_that_engines_can_write(wire: Wire) -> None:
    await wire.namespace()
    location = (await wire.create("t", **{"stage-create": True})).json()["metadata"]["location"]
    assert {path.name for path in wire.path_of(location).iterdir()} == {"metadata", "data"}


async def test_of_two_staged_creations_the_second_is_409_and_changes_nothing(wire: Wire) -> None:
    await wire.namespace()
    assert (await wire.post(table_path(), creation(updates=append(1)))).status == 200
    before = await wire.load()
    refused = await wire.post(table_path(), creation(updates=append(2)))
    assert refused.refusal == (409, "CommitFailedException")
    assert "Requirement failed: table already exists" in refused.error["message"]
    assert await wire.load() == before


async def test_the_same_staged_creation_sent_twice_is_one(wire: Wire) -> None:
    await wire.namespace()
    staged = (await wire.create("t", **{"stage-create": True})).json()["metadata"]
    body = creation(updates=[{"action": "assign-uuid", "uuid": staged["table-uuid"]}, *append(1)])
    first = await wire.post(table_path(), body)
    again = await wire.post(table_path(), body)
    assert (first.status, again.status) == (200, 200)
    assert again.json() == first.json()


async def test_another_creation_under_the_same_uuid_is_not_taken_for_the_first_one(wire: Wire) -> None:
    """Its snapshot is not in the table, so saying yes would lose it."""
    await wire.namespace()
    staged = (await wire.create("t", **{"stage-create": True})).json()["metadata"]
    uuid = {"action": "assign-uuid", "uuid": staged["table-uuid"]}
    assert (await wire.post(table_path(), creation(updates=[uuid, *append(1)]))).status == 200
    refused = await wire.post(table_path(), creation(updates=[uuid, *append(2)]))
    assert refused.refusal == (409, "CommitFailedException")


# --- loading ---


async def test_the_tag_of_a_version_is_spelled_as_clients_look_for_it(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    for answer in (await wire.get(table_path()), await wire.commit([set_properties(a="b")])):
        assert [name for name, _ in answer.headers if name.lower() == "etag"] == ["ETag"]


async def test_who_has_seen_this_version_gets_304_and_no_body(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    tag = (await wire.get(table_path())).header("ETag") or ""
    for seen in (tag, f'"other", {tag}', f"W/{tag}", "*"):
        unchanged = await wire.get(table_path(), headers={"If-None-Match": seen})
        assert (unchanged.status, unchanged.body) == (304, b""), seen
        assert unchanged.header("ETag") == tag
    assert (await wire.get(table_path(), headers={"If-None-Match": '"other"'})).status == 200
    await wire.commit([set_properties(a="b")])
    changed = await wire.get(table_path(), headers={"If-None-Match": tag})
    assert changed.status == 200
    assert changed.header("ETag") != tag


async def test_the_tag_of_a_commit_is_the_one_of_the_next_load(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    committed = await wire.commit([set_properties(a="b")])
    tag = committed.header("ETag") or ""
    assert (await wire.get(table_path(), headers={"If-None-Match": tag})).status == 304


async def test_loading_with_refs_shows_only_snapshots_that_a_branch_or_tag_names(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    assert (await anywhere.commit(append(1))).status == 200
    assert (await anywhere.commit(append(2, 2, 1))).status == 200
    tag = {"action": "set-snapshot-ref", "ref-name": "kept", "type": "tag", "snapshot-id": 2}
    assert (await anywhere.commit([tag, *append(3, 3, 2)])).status == 200

    whole, some = await anywhere.get(table_path()), await anywhere.get(f"{table_path()}?snapshots=refs")
    assert [one["snapshot-id"] for one in whole.json()["metadata"]["snapshots"]] == [1, 2, 3]
    assert [one["snapshot-id"] for one in some.json()["metadata"]["snapshots"]] == [2, 3]
    assert some.json()["metadata-location"] == whole.json()["metadata-location"]
    assert some.json()["metadata"]["refs"] == whole.json()["metadata"]["refs"]
    assert some.header("ETag") != whole.header("ETag")
    seen = {"If-None-Match": some.header("ETag") or ""}
    assert (await anywhere.get(table_path(), headers=seen)).status == 200
    assert (await anywhere.get(f"{table_path()}?snapshots=refs", headers=seen)).status == 304
    assert (await anywhere.get(f"{table_path()}?snapshots=some")).refusal == (400, "BadRequestException")


# --- committing ---


async def test_a_commit_makes_the_next_version(anywhere: Wire) -> None:
    await anywhere.namespace()
    made = await anywhere.table()
    uuid = {"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]}
    answer = await anywhere.commit([set_properties(a="b")], [uuid])
    assert answer.status == 200
    committed = answer.json()
    assert set(committed) == {"metadata-location", "metadata"}
    assert "/00001-" in committed["metadata-location"]
    assert committed["metadata"]["properties"]["a"] == "b"
    assert [entry["metadata-file"] for entry in committed["metadata"]["metadata-log"]] == [made["metadata-location"]]
    assert {**await anywhere.load(), "config": None} == {**committed, "config": None}


async def test_a_commit_that_changes_nothing_makes_no_version(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    first = (await anywhere.commit([set_properties(a="b")])).json()
    for updates in ([], [set_properties(a="b")], [{"action": "remove-properties", "removals": ["never"]}]):
        for key in (None, new_key()):
            again = await anywhere.commit(updates, key=key)
            assert again.status == 200
            assert again.json() == first


async def test_a_requirement_that_fails_is_409_and_says_what_is_there(anywhere: Wire) -> None:
    await anywhere.namespace()
    made = await anywhere.table()
    requirements: list[Json] = [
        {"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]},
        {"type": "assert-current-schema-id", "current-schema-id": 7},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": LARGE},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
    ]
    answer = await anywhere.commit([set_properties(a="b")], requirements)
    assert answer.refusal == (409, "CommitFailedException")
    assert answer.error["message"].startswith("Requirement failed: current schema changed")
    failed = answer.error["failed-requirements"]
    assert [one["requirement"] for one in failed] == requirements[1:3]
    assert [one["actual"] for one in failed] == [{"current-schema-id": 0}, {"ref": "main", "snapshot-id": None}]
    assert all(one["identifier"] == {"namespace": ["db"], "name": "t"} for one in failed)
    assert await anywhere.load() == made


async def test_a_stale_sequence_number_is_409_so_that_clients_try_again(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    assert (await wire.commit(append(1))).status == 200
    assert (await wire.commit(append(2, 1, 1))).refusal == (409, "CommitFailedException")


async def test_a_snapshot_of_a_clock_that_is_90_seconds_ahead_is_committed(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    ahead_ms = time.time_ns() // 1_000_000 + 90_000
    answer = await anywhere.commit(append(1, **{"timestamp-ms": ahead_ms}))
    assert answer.status == 200, answer.body
    [committed] = (await anywhere.load())["metadata"]["snapshots"]
    assert committed["timestamp-ms"] == ahead_ms
    # The next writer has the time of the server.
    assert (await anywhere.commit(append(2, 2, 1))).status == 200
    assert (await anywhere.load())["metadata"]["current-snapshot-id"] == 2


async def test_concurrent_commits_whose_requirements_hold_all_succeed(contended: Wire) -> None:
    await contended.namespace()
    made = await contended.table()
    uuid = {"type": "assert-table-uuid", "uuid": made["metadata"]["table-uuid"]}
    count = 24
    answers = await asyncio.gather(
        *(contended.commit([set_properties(**{f"p{number}": str(number)})], [uuid]) for number in range(count))
    )
    assert [answer.status for answer in answers] == [200] * count
    after = await contended.load()
    assert {name for name in after["metadata"]["properties"] if name.startswith("p")} == {
        f"p{number}" for number in range(count)
    }
    assert f"/{count:05d}-" in after["metadata-location"]
    assert len({answer.json()["metadata-location"] for answer in answers}) == count


async def test_of_concurrent_appends_to_one_branch_one_succeeds(contended: Wire) -> None:
    await contended.namespace()
    await contended.table()
    empty = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    answers = await asyncio.gather(*(contended.commit(append(number), [empty]) for number in range(1, 9)))
    assert sorted(answer.status for answer in answers) == [200] + [409] * 7
    [won] = [number for number, answer in enumerate(answers, 1) if answer.status == 200]
    metadata = (await contended.load())["metadata"]
    assert metadata["current-snapshot-id"] == won
    assert [one["snapshot-id"] for one in metadata["snapshots"]] == [won]


async def test_the_identifier_of_the_body_must_be_the_one_of_the_path(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    for name, status in (("t", 200), ("u", 400)):
        body = {
            "identifier": {"namespace": ["db"], "name": name},
            "requirements": [],
            "updates": [set_properties(a="b")],
        }
        assert (await wire.post(table_path(), body)).status == status


async def test_add_partition_spec_is_another_word_for_add_spec(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    spec = {"spec-id": 1, "fields": [{"source-id": 1, "transform": "bucket[4]", "name": "b"}]}
    updates: list[Json] = [
        {"action": "add-partition-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": -1},
    ]
    metadata = (await wire.commit(updates)).json()["metadata"]
    assert metadata["default-spec-id"] == 1


async def test_ids_of_64_bits_come_back_exactly(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    assert (await anywhere.commit(append(LARGE))).status == 200
    assert (await anywhere.load())["metadata"]["current-snapshot-id"] == LARGE
    near = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": LARGE - 1}
    refused = await anywhere.commit([set_properties(a="b")], [near])
    assert refused.error["failed-requirements"][0]["actual"] == {"ref": "main", "snapshot-id": LARGE}


# --- metadata files ---


async def test_metadata_is_compressed_when_the_table_asks_for_it(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table("t", properties={"write.metadata.compression-codec": "gzip"})
    assert made["metadata-location"].endswith(".gz.metadata.json")
    stored = wire.path_of(made["metadata-location"]).read_bytes()
    assert orjson.loads(gzip.decompress(stored)) == made["metadata"]
    assert await wire.load() == made
    plain = (await wire.commit([set_properties(**{"write.metadata.compression-codec": "none"})])).json()
    assert not plain["metadata-location"].endswith(".gz.metadata.json")
    assert (await wire.commit([set_properties(**{"write.metadata.compression-codec": "lzma"})])).status == 400


async def test_the_metadata_log_is_as_long_as_the_table_asks(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table("t", properties={"write.metadata.previous-versions-max": "2"})
    locations = [made["metadata-location"]]
    for number in range(5):
        committed = (await wire.commit([set_properties(a=str(number))])).json()
        locations.append(committed["metadata-location"])
    log = [entry["metadata-file"] for entry in committed["metadata"]["metadata-log"]]
    assert log == locations[-3:-1]
    assert all(wire.path_of(location).is_file() for location in locations)


async def test_old_metadata_is_deleted_after_the_commit_if_the_table_asks_for_it(tmp_path: Path) -> None:
    properties = {
        "write.metadata.previous-versions-max": "2",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table("t", properties=properties)
        locations = [made["metadata-location"]]
        for number in range(5):
            locations.append((await wire.commit([set_properties(a=str(number))])).json()["metadata-location"])
    # Once everything that goes on after answers has ended.
    assert [wire.path_of(location).is_file() for location in locations] == [False] * 3 + [True] * 3


async def test_old_metadata_stays_while_a_transaction_is_open(tmp_path: Path) -> None:
    properties = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table("t", properties=properties)
        store = await open_store(wire.settings.store)
        try:
            await store.begin(new_key())  # type: ignore[arg-type]
            for number in range(3):
                assert (await wire.commit([set_properties(a=str(number))])).status == 200
        finally:
            await store.close()
    assert wire.path_of(made["metadata-location"]).is_file()


async def test_a_replayed_commit_is_answered_even_if_its_metadata_file_has_been_deleted_since(tmp_path: Path) -> None:
    """Anything of 4xx would tell the client that it did not happen, and the client would delete its files."""
    properties = {
        "write.metadata.previous-versions-max": "1",
        "write.metadata.delete-after-commit.enabled": "true",
    }
    key, sent = new_key(), append(1)
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table("t", properties=properties)
        first = (await wire.commit(sent, key=key)).json()
        for number in range(3):
            assert (await wire.commit([set_properties(a=str(number))])).status == 200
    assert not wire.path_of(first["metadata-location"]).exists()
    async with Wire.opened(tmp_path) as wire:
        again = await wire.commit(sent, key=key)
        assert again.status == 200 or again.status >= 500, again.body
        assert (await wire.load())["metadata"]["current-snapshot-id"] == 1
        assert (await wire.delete(table_path())).status == 204
        gone = await wire.commit(sent, key=key)
        assert gone.status == 200 or gone.status >= 500, gone.body


async def test_a_missing_metadata_file_is_404_in_the_words_that_clients_expect(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    tag = (await wire.get(table_path())).header("ETag") or ""
    wire.damaged.add("db.t")
    path = wire.path_of(made["metadata-location"])
    path.rename(path.with_suffix(".away"))
    for answer in (
        await wire.get(table_path()),
        await wire.get(f"{table_path()}?snapshots=refs"),
        await wire.get(table_path(), headers={"If-None-Match": tag}),
    ):
        assert answer.refusal == (404, "NotFoundException")
        expected = f"Failed to open input stream for file: {made['metadata-location']}"
        assert expected in answer.error["message"]
    path.with_suffix(".away").rename(path)
    assert await wire.load() == made


async def test_a_change_that_meets_a_missing_metadata_file_is_500_and_is_done_once_the_file_is_back(
    wire: Wire,
) -> None:
    """A client gives up on a 4xx for good, and the storage may only have lost the file for a moment."""
    await wire.namespace()
    made = await wire.table()
    wire.damaged.add("db.t")
    key, together = new_key(), new_key()
    path = wire.path_of(made["metadata-location"])
    path.rename(path.with_suffix(".away"))
    changes = change("t", [set_properties(c="d")])
    for answer in (
        await wire.commit([set_properties(a="b")], key=key),
        await wire.commit([set_properties(a="b")]),
        await wire.commit_all(changes, key=together),
    ):
        assert answer.refusal == (500, "InternalServerError")
        assert f"Failed to open input stream for file: {made['metadata-location']}" in answer.error["message"]
    path.with_suffix(".away").rename(path)
    assert (await wire.commit([set_properties(a="b")], key=key)).status == 200
    assert (await wire.commit_all(changes, key=together)).status == 204
    loaded = (await wire.load())["metadata"]["properties"]
    assert (loaded["a"], loaded["c"]) == ("b", "d")


async def test_a_publish_that_meets_a_missing_metadata_file_is_500_and_can_be_sent_again(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    wire.damaged.add("db.t")
    begun = (await wire.post("/transactions", {})).json()["transaction-id"]
    inside = f"/v1/main@{begun}{table_path()}"
    staged = await wire.client.send("POST", inside, json={"requirements": [], "updates": [set_properties(a="b")]})
    assert staged.status == 200, staged.body
    path = wire.path_of(made["metadata-location"])
    path.rename(path.with_suffix(".away"))
    assert (await wire.post(f"/transactions/{begun}/commit", body=b"")).status == 500
    path.with_suffix(".away").rename(path)
    assert (await wire.post(f"/transactions/{begun}/commit", body=b"")).status == 200
    assert (await wire.load())["metadata"]["properties"]["a"] == "b"


async def test_a_registration_whose_file_is_not_there_yet_is_404_and_not_kept(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    assert (await wire.delete(table_path())).status == 204
    path = wire.path_of(made["metadata-location"])
    path.rename(path.with_suffix(".away"))
    body, key = {"name": "t", "metadata-location": made["metadata-location"]}, new_key()
    assert (await wire.post("/namespaces/db/register", body, key)).refusal == (404, "NotFoundException")
    path.with_suffix(".away").rename(path)
    assert (await wire.post("/namespaces/db/register", body, key)).status == 200


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format-version": 2}', b"\x1f\x8bnot gzip", b"null"])
async def test_a_damaged_metadata_file_is_a_clear_500_and_nothing_is_changed(tmp_path: Path, damage: bytes) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        await wire.table("u")
    path = wire.path_of(made["metadata-location"])
    whole = path.read_bytes()
    path.write_bytes(damage)
    async with Wire.opened(tmp_path) as wire:
        wire.damaged.add("db.t")
        changes: list[Json] = [
            {"identifier": {"namespace": ["db"], "name": name}, "requirements": [], "updates": [set_properties(a="b")]}
            for name in ("u", "t")
        ]
        for answer in (
            await wire.get(table_path()),
            await wire.commit([set_properties(a="b")]),
            await wire.commit_all(*changes),
            await wire.post(f"{table_path()}/unregister"),
        ):
            assert answer.status == 500, answer.body
            assert made["metadata-location"] in answer.error["message"]
            assert "Traceback" not in answer.error["message"]
        assert await wire.tables() == ["t", "u"]
        assert "a" not in (await wire.load("u"))["metadata"]["properties"]
        path.write_bytes(whole)
        assert await wire.load() == made


@pytest.mark.parametrize("step", ["read", "parse"])
async def test_too_little_memory_for_a_metadata_file_is_503_and_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
    text, loads = wire.path_of(made["metadata-location"]).read_bytes(), orjson.loads

    async def read(blobs: FileBlobs, name: str) -> bytes | None:
        raise MemoryError

    def parse(data: Any) -> Any:
        if data == text:
            # The words of orjson for a failed allocation.
            raise orjson.JSONDecodeError("Not enough memory to allocate buffer for parsing", "", 0)
        return loads(data)

    # Another server: nothing is cached.
    async with Wire.opened(tmp_path) as wire:
        with monkeypatch.context() as patched:
            if step == "read":
                patched.setattr(FileBlobs, "get", read)
            else:
                patched.setattr(orjson, "loads", parse)
            for answer in (await wire.get(table_path()), await wire.commit([set_properties(a="b")])):
                assert answer.refusal == (503, "ServiceUnavailableException"), answer.body
                assert made["metadata-location"] in answer.error["message"]
                assert "not enough free memory" in answer.error["message"]
                assert "is damaged" not in answer.error["message"]
        assert await wire.load() == made


# --- dropping, renaming ---


async def test_a_dropped_table_is_gone_and_its_files_stay(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    assert (await wire.delete(table_path())).status == 204
    assert (await wire.head(table_path())).status == 404
    assert await wire.tables() == []
    assert wire.path_of(made["metadata-location"]).is_file()
    assert (await wire.delete(table_path())).refusal == (404, "NoSuchTableException")
    assert (await wire.table())["metadata"]["table-uuid"] != made["metadata"]["table-uuid"]


@pytest.mark.parametrize(
    ("query", "purge"), [("", False), ("?purgeRequested=false", False), ("?purgeRequested=True", True)]
)
async def test_purge_is_a_mark_and_deletes_nothing_in_the_request(tmp_path: Path, query: str, purge: bool) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        assert (await wire.delete(table_path() + query)).status == 204
    assert wire.path_of(made["metadata-location"]).is_file()
    assert (await _tombstone(wire, made))["purge"] is purge


async def test_a_table_that_is_registered_again_is_not_marked_for_collection_any_more(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        assert (await wire.delete(f"{table_path()}?purgeRequested=true")).status == 204
        body = {"name": "back", "metadata-location": made["metadata-location"]}
        assert (await wire.post("/namespaces/db/register", body)).status == 200
    assert await _tombstone(wire, made) is None


async def test_a_purge_that_is_neither_true_nor_false_is_400(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    assert (await wire.delete(f"{table_path()}?purgeRequested=maybe")).refusal == (400, "BadRequestException")
    assert await wire.tables() == ["t"]


async def test_a_table_is_renamed_across_namespaces_and_keeps_everything(anywhere: Wire) -> None:
    await anywhere.namespace("db")
    await anywhere.namespace("a")
    await anywhere.namespace("a", "b")
    made = await anywhere.table()
    answer = await anywhere.post("/tables/rename", _rename(["db"], "t", ["a", "b"], "u"))
    assert (answer.status, answer.body) == (204, b"")
    assert await anywhere.load("u", "a", "b") == made
    assert (await anywhere.get(table_path())).refusal == (404, "NoSuchTableException")
    await anywhere.table()
    assert await anywhere.load() != made


async def test_a_rename_is_refused_when_source_target_or_namespace_do_not_fit(wire: Wire) -> None:
    await wire.namespace()
    await wire.table("t")
    await wire.table("u")
    await wire.view("v")
    for target, message in (("u", "Table already exists"), ("v", "View already exists")):
        answer = await wire.post("/tables/rename", _rename(["db"], "t", ["db"], target))
        assert answer.refusal == (409, "AlreadyExistsException")
        assert answer.error["message"] == f"Cannot rename db.t to db.{target}. {message}"
    missing = await wire.post("/tables/rename", _rename(["db"], "never", ["db"], "x"))
    assert missing.refusal == (404, "NoSuchTableException")
    assert (await wire.post("/tables/rename", _rename(["db"], "v", ["db"], "x"))).status == 404
    nowhere = await wire.post("/tables/rename", _rename(["db"], "t", ["nope"], "x"))
    assert nowhere.refusal == (404, "NoSuchNamespaceException")
    assert (await wire.post("/tables/rename", _rename(["db"], "t", ["db"], "t"))).status == 204
    assert await wire.tables() == ["t", "u"]


async def test_a_commit_that_meets_a_rename_reaches_the_table_or_is_404(contended: Wire) -> None:
    await contended.namespace()
    await contended.table()
    for number in range(10):
        names = ("t", "u") if number % 2 == 0 else ("u", "t")
        committed, renamed, loaded, dropped = await asyncio.gather(
            contended.commit([set_properties(**{f"p{number}": "x"})], name=names[0]),
            contended.post("/tables/rename", _rename(["db"], names[0], ["db"], names[1])),
            contended.get(table_path(names[0])),
            contended.head(table_path(names[1])),
        )
        assert renamed.status == 204
        assert committed.status in (200, 404)
        assert loaded.status in (200, 404)
        assert dropped.status in (204, 404)
        properties = (await contended.load(names[1]))["metadata"]["properties"]
        assert (f"p{number}" in properties) == (committed.status == 200)


async def test_loads_and_commits_that_race_drops_are_never_a_server_error(contended: Wire) -> None:
    await contended.namespace()
    for _ in range(8):
        await contended.table()
        await contended.load()
        answers = await asyncio.gather(
            contended.delete(table_path()),
            *(contended.get(table_path()) for _ in range(6)),
            *(contended.commit([set_properties(a="b")]) for _ in range(3)),
            contended.create(),
            contended.delete(table_path()),
        )
        assert all(answer.status < 500 for answer in answers), [answer.body for answer in answers]
        await contended.delete(table_path())


# --- registering ---


async def test_an_unregistered_table_is_given_back_and_can_be_registered_again(anywhere: Wire) -> None:
    await anywhere.namespace()
    await anywhere.table()
    committed = (await anywhere.commit([set_properties(a="b")])).json()
    answer = await anywhere.post(f"{table_path()}/unregister")
    assert answer.status == 200
    assert answer.json() == committed
    assert (await anywhere.commit([set_properties(c="d")])).refusal == (404, "NoSuchTableException")
    body = {"name": "again", "metadata-location": committed["metadata-location"]}
    registered = await anywhere.post("/namespaces/db/register", body)
    assert registered.status == 200
    assert registered.json() == {**committed, "config": {}}
    assert registered.header("ETag") is not None
    assert (await anywhere.commit([set_properties(c="d")], name="again")).status == 200


async def test_registering_over_a_table_needs_overwrite(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    newer = (await wire.commit([set_properties(a="b")])).json()
    body: Json = {"name": "t", "metadata-location": made["metadata-location"]}
    refused = await wire.post("/namespaces/db/register", body)
    assert refused.refusal == (409, "AlreadyExistsException")
    assert (await wire.load())["metadata-location"] == newer["metadata-location"]
    back = await wire.post("/namespaces/db/register", {**body, "overwrite": True})
    assert back.status == 200
    assert await wire.load() == made


async def test_another_table_takes_the_place_of_the_one_it_overwrites(wire: Wire) -> None:
    await wire.namespace()
    await wire.table("old")
    new = await wire.table("new")
    assert (await wire.post(f"{table_path('new')}/unregister")).status == 200
    body = {"name": "old", "metadata-location": new["metadata-location"], "overwrite": True}
    assert (await wire.post("/namespaces/db/register", body)).status == 200
    assert await wire.load("old") == new


async def test_a_table_is_not_registered_under_two_names(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    body = {"name": "twin", "metadata-location": made["metadata-location"]}
    assert (await wire.post("/namespaces/db/register", body)).refusal == (409, "AlreadyExistsException")
    assert (await wire.post("/namespaces/db/register", {**body, "overwrite": True})).status == 409
    assert await wire.tables() == ["t"]


async def test_a_view_is_not_overwritten_by_a_table(wire: Wire) -> None:
    await wire.namespace()
    await wire.view()
    made = await wire.table()
    await wire.post(f"{table_path()}/unregister")
    for overwrite in (False, True):
        body = {"name": "v", "metadata-location": made["metadata-location"], "overwrite": overwrite}
        answer = await wire.post("/namespaces/db/register", body)
        assert answer.refusal == (409, "AlreadyExistsException")
        assert answer.error["message"] == "View with same name already exists: db.v"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"format-version": "two"}',
        b'{"format-version": 99}',
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03garbage that is no deflate",
        gzip.compress(b"{}", mtime=0)[:-4],
        b"\xff\xfe",
        b"[" * 900 + b"]" * 900,
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
)
async def test_a_file_that_is_no_metadata_is_not_registered(wire: Wire, content: bytes) -> None:
    await wire.namespace()
    path = wire.path_of(f"{wire.root}/elsewhere/x.metadata.json")
    path.parent.mkdir()
    path.write_bytes(content)
    for kind in ("register", "register-view"):
        body = {"name": "t", "metadata-location": f"{wire.root}/elsewhere/x.metadata.json"}
        assert (await wire.post(f"/namespaces/db/{kind}", body)).refusal == (400, "BadRequestException")
    assert await wire.tables() == []


async def test_metadata_with_one_part_exchanged_is_registered_or_refused_but_never_breaks_the_server(
    wire: Wire,
) -> None:
    await wire.namespace()
    await wire.table()
    await wire.commit(append(1))
    good = (await wire.post(f"{table_path()}/unregister")).json()["metadata"]
    junk: list[Any] = [None, 3, "text", [3], {"a": 3}, [{"a": []}], -1, True]
    for number, (name, bad) in enumerate((name, bad) for name in good for bad in junk):
        location = f"{good['location']}/metadata/x{number}.metadata.json"
        wire.path_of(location).write_bytes(orjson.dumps({**good, name: bad}))
        answer = await wire.post("/namespaces/db/register", {"name": "u", "metadata-location": location})
        assert answer.status in (200, 400), (name, bad, answer.body)
        if answer.status == 200:
            assert (await wire.get(table_path("u"))).status == 200, (name, bad)
            assert (await wire.commit([set_properties(a="b")], name="u")).status in (200, 400), (name, bad)
            assert (await wire.delete(table_path("u"))).status == 204


async def test_a_file_that_is_not_there_or_a_folder_is_404(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    for location in (f"{wire.root}/nothing.metadata.json", f"{made['metadata']['location']}/metadata"):
        body = {"name": "u", "metadata-location": location}
        assert (await wire.post("/namespaces/db/register", body)).refusal == (404, "NotFoundException")


# --- metrics ---


async def test_reports_are_welcome_also_for_tables_that_have_gone(wire: Wire) -> None:
    await wire.namespace()
    report = {"report-type": "scan-report", "table-name": "db.t", "snapshot-id": LARGE}
    for name in ("t", "never"):
        assert (await wire.post(f"{table_path(name)}/metrics", report)).status == 204
    assert (await wire.post(f"{table_path()}/metrics", [])).status == 400
    other = await wire.client.send("POST", "/v1/other/namespaces/db/tables/t/metrics", json=report)
    assert other.refusal == (404, "NoSuchWarehouseException")


async def test_schemas_evolve_and_an_unchanged_schema_is_not_added_again(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    updates: list[Json] = [{"action": "add-schema", "schema": WIDER}, {"action": "set-current-schema", "schema-id": -1}]
    wider = (await wire.commit(updates)).json()["metadata"]
    assert (wider["current-schema-id"], wider["last-column-id"]) == (1, 4)
    back: list[Json] = [{"action": "add-schema", "schema": SCHEMA}, {"action": "set-current-schema", "schema-id": 0}]
    assert len((await wire.commit(back)).json()["metadata"]["schemas"]) == 2


async def _tombstone(wire: Wire, made: Json) -> Any:
    key = Keys("main").dropped(made["metadata"]["table-uuid"])
    store = await open_store(wire.settings.store)
    try:
        return (await store.read([key]))[key].value
    finally:
        await store.close()


def _rename(source: list[str], name: str, target: list[str], new_name: str) -> Json:
    return {
        "source": {"namespace": source, "name": name},
        "destination": {"namespace": target, "name": new_name},
    }
