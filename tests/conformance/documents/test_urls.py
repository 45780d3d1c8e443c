"""URLs: which store they name, and what is said about the ones that name none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lakepact.errors import InvalidSetting
from lakepact.extras import how_to_install
from lakepact.kernel.ports import Applied
from lakepact.stores import open_blobs, open_documents, open_store
from lakepact.stores.blobs import FileBlobs
from lakepact.stores.blobs_objects import ObjectBlobs
from lakepact.stores.files import FileDocuments
from lakepact.stores.memory import MemoryBlobs, MemoryDocuments
from lakepact.stores.objects import ObjectDocuments
from lakepact.stores.urls import file_path, object_place, sqlite_path
from tests.support.waiting import PATIENCE_S

OPTIONS = {
    "s3": {"region": "eu-west-1", "access_key_id": "stub", "secret_access_key": "stub"},
    "gs": {"bearer_token": "stub"},
    "az": {"account_name": "stub", "account_key": "c3R1Yg=="},
}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "lake",
        "/var/lake",
        "ftp://host/lake",
        "memory://shared",
        "sqlite://",
        "sqlite:///",
        "sqlite://host/lake.db",
        "file://",
        "file:///",
        "file://relative/lake",
        "file:///lake?mode=ro",
        "s3://",
        "s3:///prefix",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "s3://bucket/prefix?region=eu-west-1",
        "s3://key:secret@bucket/prefix",
    ],
)
async def test_a_url_that_names_no_store_is_refused_with_the_forms_that_do(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"Use one of: memory://.*file:///absolute/folder.*s3://bucket/prefix"):
        await open_store(url)


async def test_an_error_never_repeats_what_may_be_a_secret() -> None:
    with pytest.raises(InvalidSetting) as refused:
        await open_store("s3://key:secret@bucket/prefix")

    assert "secret" not in str(refused.value)


async def test_sql_urls_are_no_place_for_blobs_or_documents() -> None:
    with pytest.raises(InvalidSetting, match="memory://"):
        await open_blobs("sqlite:///lake.db")
    with pytest.raises(InvalidSetting, match="memory://"):
        await open_documents("postgresql://localhost/lake")


def test_three_slashes_are_relative_for_sqlite_and_four_absolute() -> None:
    assert sqlite_path("sqlite:///lake.db") == Path("lake.db")
    assert sqlite_path("sqlite:///data/my%20lake.db") == Path("data/my lake.db")
    assert sqlite_path("sqlite:////var/lake.db") == Path("/var/lake.db")
    assert file_path("file:///var/my%20lake") == Path("/var/my lake")


def test_object_urls_are_a_bucket_and_a_prefix() -> None:
    for url, bucket, prefix in [
        ("s3://bucket", "bucket", ""),
        ("s3://bucket/", "bucket", ""),
        ("gs://bucket/a/b", "bucket", "a/b"),
        ("az://container/a/b/", "container", "a/b"),
    ]:
        place = object_place(url)
        assert (place.bucket, place.prefix) == (bucket, prefix)


async def test_every_document_url_opens_its_store(tmp_path: Path) -> None:
    opened = [
        (await open_documents("memory://"), MemoryDocuments),
        (await open_documents(f"file://{tmp_path}/documents"), FileDocuments),
        *[(await open_documents(f"{scheme}://lake/prefix", OPTIONS[scheme]), ObjectDocuments) for scheme in OPTIONS],
    ]
    for store, kind in opened:
        assert isinstance(store, kind)
        await store.close()


async def test_every_blob_url_opens_its_store(tmp_path: Path) -> None:
    opened = [
        (await open_blobs("memory://"), MemoryBlobs),
        (await open_blobs(f"file://{tmp_path}/blobs"), FileBlobs),
        *[(await open_blobs(f"{scheme}://lake/prefix", OPTIONS[scheme]), ObjectBlobs) for scheme in OPTIONS],
    ]
    for store, kind in opened:
        assert isinstance(store, kind)
        await store.close()


async def test_memory_opened_twice_is_two_stores() -> None:
    first, second = await open_documents("memory://"), await open_documents("memory://")

    assert isinstance(await first.create("cells/a.json", b"{}"), Applied)

    assert await second.get("cells/a.json") is None
    assert await open_store("memory://") is not await open_store("memory://")


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://lake", {"no_such_option": "1"}),
        ("s3://lake", {"region": "eu-west-1", "timeout": "soon"}),
        ("s3://lake", {"region": "eu-west-1", "allow_http": "perhaps"}),
        ("gs://lake", {"no_such_option": "1"}),
        ("az://lake", {"account_name": "stub", "account_key": "not base64"}),
        ("az://lake", {"account_key": "c3R1Yg=="}),
    ],
)
async def test_a_wrong_option_is_refused_with_examples_of_right_ones(
    url: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(InvalidSetting, match="Options are obstore's names, such as"):
        await open_documents(url, options)


async def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(Exception, match=r"the folder .*file/lake did not answer"):
        await open_documents(f"file://{tmp_path}/file/lake")


@pytest.mark.parametrize(
    ("module", "url", "extra"), [("obstore", "s3://lake", "objects"), ("asyncpg", "postgresql://localhost", "postgres")]
)
def test_a_missing_extra_is_said_with_the_command_that_installs_it(module: str, url: str, extra: str) -> None:
    script = (
        f"import asyncio, sys; sys.modules[{module!r}] = None\n"
        f"from lakepact.stores import open_store\n"
        f"from lakepact.errors import InvalidSetting\n"
        f"try: asyncio.run(open_store({url!r}))\n"
        f"except InvalidSetting as error: print(error)\n"
    )
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)

    assert how_to_install(extra) in outcome.stdout, outcome.stderr
