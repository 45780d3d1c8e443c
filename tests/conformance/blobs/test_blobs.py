"""Every sentence of the `BlobStore` contract, on every store."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import time
from pathlib import Path

import pytest

from lakepact.errors import InvalidRequest, StoreUnavailable
from lakepact.kernel.ports import BlobStore
from lakepact.stores import files_disk
from lakepact.stores.blobs import FileBlobs, LeadsOutside
from tests.support.stores import KINDS, Place, opened_blobs

NAME = "sales/orders/metadata/00001-0190a1b2.metadata.json"


async def test_a_blob_comes_back_as_it_went_in(blobs: BlobStore) -> None:
    assert await blobs.put(NAME, b'{"format-version":2}') is True

    assert await blobs.get(NAME) == b'{"format-version":2}'


async def test_a_name_never_written_has_no_blob(blobs: BlobStore) -> None:
    assert await blobs.get(NAME) is None


async def test_putting_the_same_bytes_twice_is_one_put(blobs: BlobStore) -> None:
    assert await blobs.put(NAME, b"same") is True
    assert await blobs.put(NAME, b"same") is True

    assert [entry.name for entry in await blobs.list("")] == [NAME]


async def test_other_bytes_under_the_same_name_are_turned_away(blobs: BlobStore) -> None:
    assert await blobs.put(NAME, b"first") is True

    assert await blobs.put(NAME, b"other") is False
    assert await blobs.put(NAME, b"") is False

    assert await blobs.get(NAME) == b"first"


async def test_many_are_put_at_once_and_what_is_there_stays(blobs: BlobStore) -> None:
    await blobs.put("day/2.json", b"first")
    many = {f"day/{number}.json": b"%d" % number for number in range(40)} | {"other/day/1.json": b""}

    await blobs.put_all(many)
    await blobs.put_all(many)
    await blobs.put_all({})

    stored = {entry.name: await blobs.get(entry.name) for entry in await blobs.list("")}
    assert stored == many | {"day/2.json": b"first"}


async def test_of_many_that_cannot_all_be_written_nothing_is_left_lying_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = await FileBlobs.open(tmp_path)
    flush, flushed = files_disk._flush, iter([True] * 3)

    def full(descriptor: int) -> None:
        if not next(flushed, False):
            raise OSError(errno.ENOSPC, "no space left on the device")
        flush(descriptor)

    await blobs.make_folder("day")
    monkeypatch.setattr(files_disk, "_flush", full)
    with pytest.raises(StoreUnavailable):
        await blobs.put_all({f"day/{number}": b"x" for number in range(10)})
    await blobs.close()
    assert list((tmp_path / files_disk.TEMPORARY).iterdir()) == []


async def test_many_are_written_by_a_process_that_may_open_few(tmp_path: Path) -> None:
    blobs = await FileBlobs.open(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest_free := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + 100, hard))
    try:
        await blobs.put_all({f"day/{number}": b"x" for number in range(500)})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(await blobs.list("day/", limit=1_000)) == 500
    await blobs.close()


async def test_a_folder_that_was_known_and_gives_place_to_a_link_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, private = tmp_path / "root", tmp_path / "private"
    blobs = await FileBlobs.open(root)
    assert await blobs.put("swapped/deep/a", b"a") and await blobs.get("swapped/deep/a") == b"a"
    (private / "deep").mkdir(parents=True)
    (private / "deep" / "a").write_bytes(b"secret")
    (root / "swapped").rename(tmp_path / "old")
    (root / "swapped").symlink_to(private)

    with pytest.raises(LeadsOutside):
        await blobs.get("swapped/deep/a")
    with pytest.raises(LeadsOutside):
        await blobs.put("swapped/deep/b", b"b")
    with pytest.raises(LeadsOutside):
        await blobs.put_all({"swapped/deep/c": b"c"})
    assert [one.name for one in (private / "deep").iterdir()] == ["a"]

    # The same folder, only elsewhere: that is noticed as soon as the whole way is looked at again.
    monkeypatch.setattr(files_disk, "_KNOWN_FOR_S", 0.0)
    assert await blobs.put("moved/deep/a", b"a") and await blobs.get("moved/deep/a") == b"a"
    (root / "moved").rename(tmp_path / "away")
    (root / "moved").symlink_to(tmp_path / "away")
    with pytest.raises(LeadsOutside):
        await blobs.get("moved/deep/a")
    await blobs.close()


async def test_a_deleted_blob_is_gone_and_its_name_is_free(blobs: BlobStore) -> None:
    await blobs.put(NAME, b"first")

    await blobs.delete(NAME)
    await blobs.delete(NAME)

    assert await blobs.get(NAME) is None
    assert await blobs.list("") == []
    assert await blobs.put(NAME, b"second") is True
    assert await blobs.get(NAME) == b"second"


@pytest.mark.parametrize("data", [b"", b"\x00\xff\r\n", b"0123456789abcdef" * 400_000], ids=["empty", "binary", "6-MB"])
async def test_any_bytes_of_any_size_fit(blobs: BlobStore, data: bytes) -> None:
    assert await blobs.put(NAME, data) is True
    assert await blobs.put(NAME, data) is True

    assert await blobs.get(NAME) == data
    assert [entry.size for entry in await blobs.list("sales/")] == [len(data)]


NAMES = sorted(
    [
        "Sales/Große Tabelle/metadata/v1.json",
        "a b/c+d/e&f=g.json",
        "a-b.json",
        "a.json",
        "a/b.json",
        "a/b/c.json",
        "a/b/d.json",
        "a0.json",
        "percent/100%25/x%2Fy.json",
        "receipts/2026/11/15/1.json",
        "receipts/2026/11/16/2.json",
        "表/🧊.json",
    ]
)


async def test_names_may_hold_any_text_and_list_in_bytewise_order(blobs: BlobStore) -> None:
    for name in NAMES:
        assert await blobs.put(name, name.encode()) is True

    assert [entry.name for entry in await blobs.list("")] == NAMES
    for name in NAMES:
        assert await blobs.get(name) == name.encode()
    for prefix in ("a", "a/", "a/b", "a/b/", "receipts/2026/11/1", "percent/100%", "表/", "none"):
        expected = [name for name in NAMES if name.startswith(prefix)]
        assert [entry.name for entry in await blobs.list(prefix)] == expected, prefix


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_pages_join_to_the_whole(blobs: BlobStore, limit: int) -> None:
    for name in NAMES:
        await blobs.put(name, b"x")

    seen: list[str] = []
    after: str | None = None
    while page := await blobs.list("", after, limit):
        assert len(page) <= limit
        seen += [entry.name for entry in page]
        after = page[-1].name

    assert seen == NAMES


async def test_a_listing_tells_size_and_age(place: Place, blobs: BlobStore) -> None:
    before_ms = time.time_ns() // 1_000_000
    await blobs.put(NAME, b"12345")
    after_ms = time.time_ns() // 1_000_000

    (entry,) = await blobs.list("sales/")

    assert (entry.name, entry.size) == (NAME, 5)
    # Clouds tell whole seconds.
    assert before_ms - 1_000 <= entry.modified_ms <= after_ms + 1_000


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b"])
@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "memory"], indirect=True)
async def test_a_name_that_is_no_path_is_refused(blobs: BlobStore, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await blobs.put(name, b"x")
    with pytest.raises(InvalidRequest):
        await blobs.get(name)


@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "memory"], indirect=True)
async def test_a_blob_is_there_when_the_store_is_opened_again(place: Place) -> None:
    async with opened_blobs(place) as blobs:
        await blobs.put(NAME, b"durable")

    async with opened_blobs(place) as blobs:
        assert await blobs.get(NAME) == b"durable"


async def test_many_writers_of_the_same_bytes_all_succeed(blobs: BlobStore) -> None:
    assert await asyncio.gather(*(blobs.put(NAME, b"same") for _ in range(16))) == [True] * 16

    assert await blobs.get(NAME) == b"same"


# moto checks and writes in two steps, so it cannot decide a race.
@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "s3-moto"], indirect=True)
async def test_of_many_writers_of_different_bytes_exactly_one_succeeds(blobs: BlobStore) -> None:
    bids = [b"%d" % number for number in range(16)]

    won = await asyncio.gather(*(blobs.put(NAME, data) for data in bids))

    assert won.count(True) == 1
    assert await blobs.get(NAME) == bids[won.index(True)]


async def test_whether_a_blob_is_there_can_be_asked(blobs: BlobStore) -> None:
    assert not await blobs.exists("a/b")
    await blobs.make_folder("a")
    assert not await blobs.exists("a")
    await blobs.put("a/b", b"1")
    assert await blobs.exists("a/b")
    await blobs.delete("a/b")
    assert not await blobs.exists("a/b")


# --- the few names that stand for what is newest ---

LATEST = "_transactions/latest"


async def test_a_blob_is_replaced_by_whoever_knows_what_is_there(blobs: BlobStore) -> None:
    assert await blobs.replace(LATEST, b"one", None) is True
    assert await blobs.replace(LATEST, b"two", b"one") is True

    assert await blobs.get(LATEST) == b"two"
    assert [entry.name for entry in await blobs.list("")] == [LATEST]


async def test_whoever_knows_only_what_was_there_replaces_nothing(blobs: BlobStore) -> None:
    assert await blobs.replace(LATEST, b"new", b"old") is False
    assert await blobs.get(LATEST) is None
    await blobs.put(LATEST, b"one")

    assert await blobs.replace(LATEST, b"three", b"two") is False
    assert await blobs.replace(LATEST, b"three", None) is False

    assert await blobs.get(LATEST) == b"one"


async def test_replacing_twice_by_the_same_bytes_is_one_replacement(blobs: BlobStore) -> None:
    await blobs.put(LATEST, b"one")
    assert await blobs.replace(LATEST, b"two", b"one") is True
    assert await blobs.replace(LATEST, b"two", b"one") is True
    assert await blobs.replace(LATEST, b"two", None) is True

    assert await blobs.get(LATEST) == b"two"


async def test_large_blobs_are_replaced_whole(blobs: BlobStore) -> None:
    one, two = b"1" * 7_000_000, b"2" * 6_000_000
    assert await blobs.replace(LATEST, one, None) is True
    assert await blobs.replace(LATEST, two, one) is True

    assert await blobs.get(LATEST) == two


# moto checks and writes in two steps, so it cannot decide a race.
@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "s3-moto"], indirect=True)
async def test_of_many_that_replace_the_same_exactly_one_succeeds(blobs: BlobStore) -> None:
    await blobs.put(LATEST, b"old")
    bids = [b"%d" % number for number in range(16)]

    won = await asyncio.gather(*(blobs.replace(LATEST, data, b"old") for data in bids))

    assert won.count(True) == 1
    assert await blobs.get(LATEST) == bids[won.index(True)]
