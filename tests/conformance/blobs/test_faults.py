"""Blobs on a store that loses requests and answers: a put may be repeated, and its own earlier attempt is a success."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import BlobStore
from tests.support.object_server import Fault, Kind, ObjectServer
from tests.support.stores import Place, opened_blobs, place_for

NAME = "sales/orders/metadata/00001.metadata.json"


@pytest.fixture(params=["s3-strict", "gcs-strict"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_for(request.param, tmp_path) as place:
        yield place


@pytest.fixture
def server(place: Place) -> ObjectServer:
    assert place.server is not None
    return place.server


PASSING = [
    Fault(Kind.LOST),
    Fault(Kind.ANSWER_LOST),
    Fault(Kind.STATUS, status=409, code="ConditionalRequestConflict"),
    Fault(Kind.STATUS, status=503),
    Fault(Kind.STATUS_AFTER, status=500),
    Fault(Kind.STATUS_AFTER, status=503),
]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind.name}-{fault.status}")
async def test_a_put_survives_a_passing_fault(blobs: BlobStore, server: ObjectServer, fault: Fault) -> None:
    server.faults = [replace(fault)]

    assert await blobs.put(NAME, b"mine") is True

    assert [stored.data for stored in server.objects.values()] == [b"mine"]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind.name}-{fault.status}")
async def test_many_puts_survive_a_passing_fault(blobs: BlobStore, server: ObjectServer, fault: Fault) -> None:
    server.faults = [replace(fault)]

    await blobs.put_all({"a": b"1", "b": b"2", "c": b"3"})

    assert sorted(stored.data for stored in server.objects.values()) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("fault", PASSING, ids=lambda fault: f"{fault.kind.name}-{fault.status}")
async def test_a_replacement_survives_a_passing_fault(blobs: BlobStore, server: ObjectServer, fault: Fault) -> None:
    await blobs.put(NAME, b"old")
    server.faults = [replace(fault, method="PUT")]

    assert await blobs.replace(NAME, b"mine", b"old") is True

    assert [stored.data for stored in server.objects.values()] == [b"mine"]


async def test_a_put_that_never_gets_through_is_an_error(blobs: BlobStore, server: ObjectServer) -> None:
    server.faults = [Fault(Kind.STATUS, status=403, code="AccessDenied", times=1_000)]

    with pytest.raises(StoreUnavailable, match="could not write"):
        await blobs.put(NAME, b"mine")


async def test_a_put_whose_outcome_cannot_be_read_is_an_error(blobs: BlobStore, server: ObjectServer) -> None:
    server.faults = [
        Fault(Kind.STATUS, method="PUT", times=1_000),
        Fault(Kind.STATUS, method="GET", times=1_000),
    ]

    with pytest.raises(StoreUnavailable):
        await blobs.put(NAME, b"mine")


async def test_an_unanswered_read_is_an_error_and_not_an_absence(blobs: BlobStore, server: ObjectServer) -> None:
    await blobs.put(NAME, b"mine")
    server.faults = [Fault(Kind.STATUS, method="GET", times=1_000)]

    with pytest.raises(StoreUnavailable, match="could not read"):
        await blobs.get(NAME)


async def test_a_failed_delete_is_an_error(blobs: BlobStore, server: ObjectServer) -> None:
    await blobs.put(NAME, b"mine")
    server.faults = [Fault(Kind.STATUS, method="DELETE", status=403, code="AccessDenied", times=1_000)]

    with pytest.raises(StoreUnavailable, match="could not delete"):
        await blobs.delete(NAME)


async def test_temporary_files_are_no_blobs(tmp_path: Path) -> None:
    with place_for("file", tmp_path) as place:
        assert place.folder is not None
        async with opened_blobs(place) as blobs:
            await blobs.put(NAME, b"mine")
            os.link(place.folder / NAME, place.folder / "@temporary" / "9-dead.new")

            assert [entry.name for entry in await blobs.list("")] == [NAME]
