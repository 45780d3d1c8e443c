"""Documents as files: several real processes, SIGKILL, leftovers, and the order of flushes that power loss needs."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakepact.errors import InvalidRequest, StoreUnavailable
from lakepact.kernel.ports import Applied, DocumentStore, Refused, Unknown
from lakepact.stores import files_disk
from lakepact.stores.files import FileDocuments
from tests.support.counting_process import NAME
from tests.support.stores import Place, opened_documents, place_for
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
ONE, TWO = b'{"writes":1}', b'{"writes":2}'


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with place_for("file", tmp_path) as place:
        yield place


@pytest.fixture
def folder(place: Place) -> Path:
    assert place.folder is not None
    return place.folder


# --- several processes -----------------------------------------------------------------------------------------------


def start_counting(folder: Path, worker: str, target: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.counting_process", str(folder), worker, str(target)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_processes_lose_no_update_while_one_of_them_is_killed_again_and_again(folder: Path) -> None:
    target, kills, acknowledged = 150, 8, 0
    steady = [start_counting(folder, worker, target) for worker in ("first", "second", "third")]
    try:
        for _ in range(kills):
            victim = start_counting(folder, "victim", 10_000)
            assert victim.stdout is not None
            for _ in range(5):
                acknowledged = int(victim.stdout.readline())
            victim.kill()
            # What it managed to say before it died counts as well.
            acknowledged = max([acknowledged, *map(int, victim.stdout.read().split())])
            victim.wait()
            victim.stdout.close()
            counters = json.loads((folder / NAME).read_bytes())
            assert counters["victim"] in (acknowledged, acknowledged + 1)
        assert [process.wait(PATIENCE_S) for process in steady] == [0, 0, 0]
    finally:
        for process in steady:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    counters = json.loads((folder / NAME).read_bytes())
    assert {worker: counters[worker] for worker in ("first", "second", "third")} == dict.fromkeys(
        ("first", "second", "third"), target
    )
    assert counters["victim"] in (acknowledged, acknowledged + 1)


async def test_leftovers_of_killed_processes_are_never_seen_and_swept_when_old(place: Place, folder: Path) -> None:
    async with opened_documents(place) as documents:
        await documents.create("cells/a.json", ONE)
    old, young = folder / "@temporary" / "1-old.new", folder / "@temporary" / "1-young.new"
    old.write_bytes(b"half a docu")
    young.write_bytes(b"half a docu")
    yesterday = time.time() - 86_400
    os.utime(old, (yesterday, yesterday))

    async with opened_documents(place) as documents:
        assert [entry.name for entry in await documents.list("", None, 10)] == ["cells/a.json"]

    assert not old.exists()
    assert young.exists()  # its writer may be alive


async def test_nothing_is_left_behind_by_writers_that_lived(place: Place, folder: Path) -> None:
    async with opened_documents(place) as documents:
        outcome = await documents.create("cells/a.json", ONE)
        assert isinstance(outcome, Applied)
        await documents.create("cells/a.json", TWO)
        await documents.swap("cells/a.json", outcome.token, TWO)
        await documents.swap("cells/a.json", outcome.token, TWO)
        for number in range(100):
            await documents.create(f"cells/{number}.json", ONE)

    assert list((folder / "@temporary").iterdir()) == []
    assert len(list((folder / "@locks").iterdir())) == 64  # a fixed number, not one a document


# --- power loss ------------------------------------------------------------------------------------------------------


class Watched:
    """What the store asks of the operating system, in order, with paths relative to the store."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self._folder = folder
        monkeypatch.setattr(files_disk, "_flush", self._flush)
        for name in ("link", "rename", "unlink"):
            monkeypatch.setattr(os, name, self._wrapped(name, getattr(os, name)))

    def _flush(self, descriptor: int) -> None:
        os.fsync(descriptor)
        self.calls.append(f"flush {self._shown(os.readlink(f'/proc/self/fd/{descriptor}'))}")

    def _wrapped(self, name: str, original: Any) -> Any:
        def call(*paths: str | Path) -> None:
            original(*paths)
            self.calls.append(f"{name} {' '.join(self._shown(path) for path in paths)}")

        return call

    def _shown(self, path: str | Path) -> str:
        relative = Path(path).relative_to(self._folder)
        return f"temporary{relative.suffix}" if relative.parts[:1] == ("@temporary",) else str(relative)


async def test_a_created_document_is_flushed_before_it_is_visible_and_its_folder_before_it_is_acknowledged(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_documents(place) as documents:
        watched = Watched(folder, monkeypatch)

        await documents.create("cells/main/a.json", ONE)

    assert watched.calls == [
        "flush .",  # which holds the new folder `cells`
        "flush cells",  # which holds the new folder `main`
        "flush temporary.new",
        "link temporary.new cells/main/a.json",
        "flush cells/main",
        "unlink temporary.new",
    ]


async def test_a_swapped_document_is_flushed_before_it_is_visible_and_its_folder_before_it_is_acknowledged(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_documents(place) as documents:
        outcome = await documents.create("cells/a.json", ONE)
        assert isinstance(outcome, Applied)
        watched = Watched(folder, monkeypatch)

        await documents.swap("cells/a.json", outcome.token, TWO)

    assert watched.calls == [
        "flush temporary.new",
        "link temporary.new temporary.moving",
        "rename temporary.moving cells/a.json",
        "flush cells",
        "unlink temporary.new",
    ]


async def test_a_folder_that_another_process_made_is_flushed_before_it_is_relied_on(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_documents(place) as documents:
        (folder / "cells").mkdir()
        watched = Watched(folder, monkeypatch)

        await documents.create("cells/a.json", ONE)

    assert watched.calls[0] == "flush ."


async def test_a_reader_makes_durable_what_a_dead_writer_had_only_made_visible(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened_documents(place) as documents:
        await documents.create("cells/a.json", ONE)
        # Killed between link and flush: the temporary name is still there.
        os.link(folder / "cells/a.json", folder / "@temporary/9-dead.new")
        watched = Watched(folder, monkeypatch)

        document = await documents.get("cells/a.json")
        assert document is not None
        assert watched.calls == ["flush cells"]

        os.unlink(folder / "@temporary/9-dead.new")
        watched.calls.clear()
        await documents.get("cells/a.json")
        assert watched.calls == []


@pytest.mark.parametrize("failing", ["temporary", "folder"])
async def test_a_write_whose_flush_fails_is_unknown(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    async with opened_documents(place) as documents:
        outcome = await documents.create("cells/a.json", ONE)
        assert isinstance(outcome, Applied)

        def flush(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if ("@temporary" in path) == (failing == "temporary"):
                raise OSError(5, "Input/output error", path)

        monkeypatch.setattr(files_disk, "_flush", flush)
        assert isinstance(await documents.create("cells/b.json", ONE), Unknown)
        assert isinstance(await documents.swap("cells/a.json", outcome.token, TWO), Unknown)
        monkeypatch.undo()

        # If the folder could not be flushed the write is visible, and marked as perhaps not durable.
        assert ((folder / "cells/b.json").exists()) == (failing == "folder")
        if failing == "folder":
            assert os.stat(folder / "cells/a.json").st_nlink == 2


# --- what can go wrong with folders ----------------------------------------------------------------------------------


def hold_all_locks(folder: Path) -> Callable[[], None]:
    """As a stopped process would hold them. Returns what lets them go."""
    held = [os.open(path, os.O_RDWR) for path in (folder / "@locks").iterdir()]
    for lock in held:
        fcntl.flock(lock, fcntl.LOCK_EX)

    def release() -> None:
        for lock in held:
            os.close(lock)

    return release


async def test_a_swap_waits_only_so_long_for_a_lock_and_then_is_unknown(
    documents: DocumentStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = await documents.create("cells/a.json", ONE)
    assert isinstance(outcome, Applied)
    monkeypatch.setattr(files_disk, "_LOCK_WAIT_S", 0.05)
    release = hold_all_locks(folder)

    unknown = await documents.swap("cells/a.json", outcome.token, TWO)
    assert isinstance(unknown, Unknown)
    assert "is one of them stopped?" in unknown.reason
    with pytest.raises(StoreUnavailable, match="is one of them stopped"):
        await documents.delete("cells/a.json")
    # Readers and creators need no lock.
    assert await documents.get("cells/a.json") is not None
    assert isinstance(await documents.create("cells/b.json", ONE), Applied)
    assert list((folder / "@temporary").iterdir()) == []

    release()
    assert isinstance(await documents.swap("cells/a.json", outcome.token, TWO), Applied)


async def test_a_folder_that_vanished_is_an_error_and_not_an_empty_store(
    documents: DocumentStore, folder: Path
) -> None:
    await documents.create("cells/a.json", ONE)
    os.rename(folder, f"{folder}-unmounted")

    with pytest.raises(StoreUnavailable, match="Is its disk mounted"):
        await documents.get("cells/a.json")
    with pytest.raises(StoreUnavailable, match="Is its disk mounted"):
        await documents.list("cells/", None, 10)
    with pytest.raises(StoreUnavailable):
        await documents.delete("cells/a.json")
    assert isinstance(await documents.create("cells/b.json", ONE), Unknown)
    assert isinstance(await documents.swap("cells/a.json", "0", ONE), Unknown)
    assert not os.path.exists(folder)  # nothing was put in its place


async def test_no_name_is_a_folder_of_another(documents: DocumentStore) -> None:
    await documents.create("cells/a/b.json", ONE)

    assert await documents.get("cells/a") is None
    assert await documents.get("cells/a/b.json/c.json") is None
    assert await documents.swap("cells/a", "0", ONE) == Refused()
    with pytest.raises(InvalidRequest, match="is a folder of other names"):
        await documents.create("cells/a", ONE)
    with pytest.raises(InvalidRequest, match="one of its folders is a file"):
        await documents.create("cells/a/b.json/c.json", ONE)


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", "@temporary/a", "@locks/00", "s" * 256]
)
async def test_a_name_cannot_reach_outside_or_into_the_stores_own_folders(documents: DocumentStore, name: str) -> None:
    with pytest.raises(InvalidRequest):
        await documents.get(name)
    with pytest.raises(InvalidRequest):
        await documents.create(name, ONE)
    with pytest.raises(InvalidRequest):
        await documents.swap(name, "0", ONE)
    with pytest.raises(InvalidRequest):
        await documents.delete(name)


async def test_a_listing_cannot_reach_outside(documents: DocumentStore, folder: Path) -> None:
    (folder.parent / "secret.json").write_bytes(b"{}")

    assert await documents.list("../", None, 10) == []
    assert await documents.list("@temporary/", None, 10) == []


async def test_files_of_others_are_not_documents(documents: DocumentStore, folder: Path) -> None:
    await documents.create("cells/a.json", ONE)
    (folder / "cells/.DS_Store").write_bytes(b"")
    (folder / "README").write_bytes(b"")

    assert [entry.name for entry in await documents.list("", None, 10)] == ["cells/a.json"]


async def test_a_listing_reads_only_the_folders_it_needs(
    documents: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(1, 20):
        await documents.create(f"transactions/2026/01/{day:02d}/a.json", ONE)
    scanned: list[str] = []
    original = os.scandir

    def scandir(path: Any) -> Any:
        scanned.append(Path(path).name)
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)

    page = await documents.list("transactions/2026/01/", "transactions/2026/01/10/zzz", 2)

    assert [entry.name for entry in page] == ["transactions/2026/01/11/a.json", "transactions/2026/01/12/a.json"]
    assert scanned == ["01", "10", "11", "12"]


async def test_a_file_that_cannot_be_read_is_an_error_and_not_an_absence(
    documents: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await documents.create("cells/a.json", ONE)

    def refuse(*arguments: object, **options: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(StoreUnavailable, match="Permission denied"):
        await documents.get("cells/a.json")


async def test_many_stores_open_one_folder_at_once(folder: Path) -> None:
    stores = await asyncio.gather(*(FileDocuments.open(folder) for _ in range(8)))
    outcomes = await asyncio.gather(*(store.create("cells/a.json", ONE) for store in stores))
    for store in stores:
        await store.close()

    assert sum(isinstance(outcome, Applied) for outcome in outcomes) == 1
