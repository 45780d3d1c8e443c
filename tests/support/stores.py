"""Every kind of document and blob store, each reachable by one URL: what conformance, crash tests and benches share.

    with place_for("s3-strict", folder) as place:
        async with opened_documents(place) as documents: ...
        store = await open_store(place.url, options=place.options)

A place is fresh and empty, and gone afterwards. The strict servers are started anew for each place, so that scripted
faults and request counts belong to one test. moto and Azurite take longer to start and are shared within the process.
"""

from __future__ import annotations

import atexit
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from lakepact.kernel.ports import BlobStore, DocumentStore
from lakepact.stores import open_blobs, open_documents
from tests.support import azurite, moto_s3
from tests.support.gcs_strict import GcsServer
from tests.support.object_server import ObjectServer
from tests.support.s3_strict import S3Server

BUCKET: Final = "lake"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is kept, and what may be expected of it."""

    kind: str
    url: str
    options: Mapping[str, str] = field(default_factory=dict)

    server: ObjectServer | None = None
    """The strict server behind it, to script faults and count requests."""

    folder: Path | None = None
    """The folder behind it, to look at what is on disk."""

    atomic: bool = True
    """Whether conditional writes are decided one at a time."""

    tokens_repeat: bool = True
    """Whether equal bytes have equal tokens, so that an old token can become valid again."""


@contextmanager
def memory(folder: Path) -> Iterator[Place]:
    yield Place("memory", "memory://")


@contextmanager
def files(folder: Path) -> Iterator[Place]:
    root = folder / f"store-{secrets.token_hex(4)}"
    yield Place("file", f"file://{root}", folder=root)


@contextmanager
def s3_strict(folder: Path, **extra_options: str) -> Iterator[Place]:
    with S3Server(buckets=(BUCKET,)).running() as server:
        yield s3_place("s3-strict", server.url, server, **extra_options)


@contextmanager
def s3_moto(folder: Path) -> Iterator[Place]:
    place = s3_place("s3-moto", _moto())
    yield Place(place.kind, place.url, place.options, atomic=False)


@contextmanager
def gcs_strict(folder: Path, **extra_options: str) -> Iterator[Place]:
    with GcsServer(buckets=(BUCKET,)).running() as server:
        # A bearer token of our own keeps obstore from asking the machine's metadata service for one.
        options = {"endpoint": server.url, "bearer_token": "stub", **extra_options}
        yield Place("gcs-strict", f"gs://{BUCKET}/{_prefix()}", options, server, tokens_repeat=False)


@contextmanager
def azure(folder: Path) -> Iterator[Place]:
    server = _azurite()
    options = {"endpoint": server.endpoint, "account_name": azurite.ACCOUNT, "account_key": server.account_key}
    yield Place("azurite", f"az://{BUCKET}/{_prefix()}", options, tokens_repeat=False)


KINDS: Final[Mapping[str, Callable[[Path], AbstractContextManager[Place]]]] = {
    "memory": memory,
    "file": files,
    "s3-moto": s3_moto,
    "s3-strict": s3_strict,
    "gcs-strict": gcs_strict,
    "azurite": azure,
}


def place_for(kind: str, folder: Path) -> AbstractContextManager[Place]:
    """A fresh place of this kind; `folder` is used by those that need a disk."""
    return KINDS[kind](folder)


def s3_place(kind: str, endpoint: str, server: ObjectServer | None = None, **extra_options: str) -> Place:
    options = {
        "endpoint": endpoint,
        "region": "us-east-1",
        "access_key_id": "stub",
        "secret_access_key": "stub",
        **extra_options,
    }
    return Place(kind, f"s3://{BUCKET}/{_prefix()}", options, server)


@asynccontextmanager
async def opened_documents(place: Place) -> AsyncIterator[DocumentStore]:
    documents = await open_documents(place.url, place.options)
    try:
        yield documents
    finally:
        await documents.close()


@asynccontextmanager
async def opened_blobs(place: Place) -> AsyncIterator[BlobStore]:
    blobs = await open_blobs(place.url, place.options)
    try:
        yield blobs
    finally:
        await blobs.close()


def _prefix() -> str:
    return f"run-{secrets.token_hex(8)}"


_shared = ExitStack()
atexit.register(_shared.close)


@cache
def _moto() -> str:
    return _shared.enter_context(moto_s3.running(BUCKET))


@cache
def _azurite() -> azurite.Azurite:
    server = _shared.enter_context(azurite.running())
    server.create_container(BUCKET)
    return server
