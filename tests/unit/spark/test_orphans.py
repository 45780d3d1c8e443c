"""The parts of the search for orphans that need no Spark."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakepact.client.collection import Reachable, Reached
from lakepact.errors import InvalidSetting
from lakepact.spark.jobs.orphans.listing import is_hidden
from lakepact.spark.jobs.orphans.search import _owners, owner_of
from lakepact.spark.jobs.orphans.storage import Storage
from tests.support import moto_s3


def reached(why: str, id: str, location: str, *, search: bool = True) -> Reached:
    return Reached(why, "table", id, f"db.{id}", location, None, search)


def owners(*items: Reached, before: dict[str, str]) -> dict[str, tuple[str, bool]]:
    return _owners(Reachable("file:///w", 0, 0, items), before)


def test_a_file_belongs_to_the_deepest_folder_that_is_anybodys() -> None:
    found = owners(
        reached("live", "a", "file:/w/a"),
        reached("dropped", "b", "file:///w/a/b"),
        reached("released", "c", "file:///w/a/c"),
        reached("live", "v", "file:///w/a/v", search=False),
        before={"file:///w/a": "a", "file:///w/a/v": "v"},
    )
    assert owner_of("file:///w/a/data/x", found) == "db.a"
    for path in ("a/b/x", "a/c/data/x", "a/v/x", "elsewhere/x", "ab/x"):
        assert owner_of(f"file:///w/{path}", found) is None


def test_only_a_table_that_was_there_before_and_is_there_now_is_searched() -> None:
    before = {"file:///w/a": "a", "file:///w/b": "b", "file:///w/c": "c", "file:///w/d": "d"}
    found = owners(
        reached("live", "a", "file:///w/a"),
        reached("staged", "a", "file:///w/a"),
        # Dropped since, and another one came in its place.
        reached("live", "other", "file:///w/b"),
        reached("live", "new", "file:///w/new"),
        # Its folder is what a table once was that nobody asked to purge.
        reached("live", "c", "file:///w/c"),
        reached("released", "older", "file:///w/c"),
        # Gone; a transaction still sees it.
        reached("pinned", "d", "file:///w/d"),
        before=before,
    )
    searched = {folder for folder in (*before, "file:///w/new") if owner_of(f"{folder}/x", found) is not None}
    assert searched == {"file:///w/a"}


@pytest.mark.parametrize("below", ["/_delta_log/0.json", "/data/.x.crc", "/_temporary/x", "/.hidden/x"])
def test_what_engines_keep_for_themselves_is_hidden(below: str) -> None:
    assert is_hidden(below)


@pytest.mark.parametrize("below", ["/data/x.parquet", "/_p=1/x.parquet", "/x_y.z"])
def test_everything_else_is_not(below: str) -> None:
    assert not is_hidden(below)


def exercise(storage: Storage, root: str) -> None:
    storage = pickle.loads(pickle.dumps(storage))
    names = ["t/data/a b=1/x%20y.parquet", "t/data/z.parquet", "t/metadata/m.json"]
    for name in names:
        storage.write(f"{root}/{name}", name.encode())
    assert list(storage.list(f"{root}/nothing", recursive=True)) == []
    found = {one.place: one for one in storage.list(f"{root}/t", recursive=True) if not one.is_folder}
    assert sorted(found) == sorted(f"{root}/{name}" for name in names)
    assert all(one.modified_ms > 1_600_000_000_000 and one.size for one in found.values())
    shallow = [one.place for one in storage.list(f"{root}/t", recursive=False) if one.is_folder]
    assert sorted(shallow) == [f"{root}/t/data", f"{root}/t/metadata"]
    assert storage.read(f"{root}/{names[0]}") == names[0].encode()
    first = found[f"{root}/{names[0]}"]
    for _ in range(2):
        storage.delete(root, first.raw)
    with pytest.raises(FileNotFoundError):
        storage.read(first.place)
    assert len([one for one in storage.list(f"{root}/t", recursive=True) if not one.is_folder]) == 2


def test_local_files(tmp_path: Path) -> None:
    exercise(Storage({}), f"file://{tmp_path}")


def test_s3() -> None:
    with moto_s3.running("lake") as endpoint:
        options = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "test",
            "s3.secret-access-key": "test",
            "s3.region": "us-east-1",
        }
        exercise(Storage(options), "s3://lake/warehouse")


def test_other_storage_is_refused_before_anything_is_done() -> None:
    with pytest.raises(InvalidSetting, match="local files and S3"):
        Storage({}).check("gs://bucket/x")
