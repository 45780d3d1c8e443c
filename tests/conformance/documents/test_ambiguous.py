"""Answers that are lost, late or wrong: what is not certain is said to be unknown, and nothing is sent twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import Applied, Document, DocumentStore, Refused, Unknown, WriteOutcome
from tests.support.object_server import Fault, Kind, ObjectServer
from tests.support.stores import Place, opened_documents, place_for
from tests.support.waiting import wait_until_async

ONE, TWO, THREE = b'{"writes":1}', b'{"writes":2}', b'{"writes":3}'
NAME = "cells/a.json"


@pytest.fixture(params=["s3-strict", "gcs-strict"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_for(request.param, tmp_path) as place:
        yield place


@pytest.fixture
def server(place: Place) -> ObjectServer:
    assert place.server is not None
    return place.server


async def created(documents: DocumentStore) -> Document:
    """A document to swap. It also leaves an open connection behind, which the faults then break."""
    outcome = await documents.create(NAME, ONE)
    assert isinstance(outcome, Applied)
    return Document(ONE, outcome.token)


async def data_at(documents: DocumentStore, name: str = NAME) -> bytes | None:
    document = await documents.get(name)
    return document.data if document else None


NOT_APPLIED = [
    Fault(Kind.LOST),
    Fault(Kind.STATUS, status=400, code="RequestTimeout"),
    Fault(Kind.STATUS, status=401, code="AuthenticationRequired"),
    Fault(Kind.STATUS, status=403, code="AccessDenied"),
    Fault(Kind.STATUS, status=404, code="NoSuchBucket"),
    Fault(Kind.STATUS, status=408, code="RequestTimeout"),
    Fault(Kind.STATUS, status=409, code="ConditionalRequestConflict"),
    Fault(Kind.STATUS, status=409, code="OperationAborted"),
    Fault(Kind.STATUS, status=429, code="TooManyRequests"),
    Fault(Kind.STATUS, status=500, code="InternalError"),
    Fault(Kind.STATUS, status=502, code="BadGateway"),
    Fault(Kind.STATUS, status=503, code="SlowDown"),
    Fault(Kind.STATUS, status=504, code="GatewayTimeout"),
]
APPLIED = [
    Fault(Kind.ANSWER_LOST),
    Fault(Kind.STATUS_AFTER, status=409, code="ConditionalRequestConflict"),
    Fault(Kind.STATUS_AFTER, status=500, code="InternalError"),
    Fault(Kind.STATUS_AFTER, status=503, code="SlowDown"),
    Fault(Kind.STATUS_AFTER, status=504, code="GatewayTimeout"),
]


def fault_id(fault: Fault) -> str:
    suffix = f"-{fault.status}-{fault.code}" if fault.kind in (Kind.STATUS, Kind.STATUS_AFTER) else ""
    return fault.kind.name.lower() + suffix


@pytest.mark.parametrize("fault", NOT_APPLIED, ids=fault_id)
async def test_a_write_without_a_clean_answer_is_unknown_and_sent_once(
    documents: DocumentStore, server: ObjectServer, fault: Fault
) -> None:
    document = await created(documents)
    server.faults = [replace(fault, name="cells/")]
    server.requests.clear()
    assert isinstance(await documents.create("cells/new.json", ONE), Unknown)
    assert len(server.sent("PUT")) == 1
    assert await data_at(documents, "cells/new.json") is None

    server.faults = [replace(fault, name="cells/")]
    server.requests.clear()
    assert isinstance(await documents.swap(NAME, document.token, TWO), Unknown)
    assert len(server.sent("PUT")) == 1
    assert await documents.get(NAME) == document


@pytest.mark.parametrize("fault", APPLIED, ids=fault_id)
async def test_a_write_that_took_effect_without_saying_so_is_unknown_and_sent_once(
    documents: DocumentStore, server: ObjectServer, fault: Fault
) -> None:
    document = await created(documents)
    server.faults = [replace(fault, name="cells/")]
    server.requests.clear()
    assert isinstance(await documents.create("cells/new.json", ONE), Unknown)
    assert len(server.sent("PUT")) == 1
    assert await data_at(documents, "cells/new.json") == ONE

    server.faults = [replace(fault, name="cells/")]
    server.requests.clear()
    assert isinstance(await documents.swap(NAME, document.token, TWO), Unknown)
    assert len(server.sent("PUT")) == 1
    assert await data_at(documents) == TWO


async def send_late(server: ObjectServer, name: str, write: Callable[[], Awaitable[WriteOutcome]]) -> None:
    """Write until the server holds the request. A client whose time is up before it could send has sent nothing."""
    server.requests.clear()
    server.faults = [Fault(Kind.LATE, name=name, times=1_000)]

    async def is_held() -> bool:
        assert isinstance(await write(), Unknown)
        return bool(server.sent("PUT", name))

    await wait_until_async(is_held, "the server never got the request")
    server.faults = []


async def test_a_write_can_land_long_after_its_client_gave_up(place: Place, server: ObjectServer) -> None:
    impatient = replace(place, options={**place.options, "timeout": "300ms"})
    async with opened_documents(place) as documents, opened_documents(impatient) as gave_up:
        document = await created(documents)

        await send_late(server, NAME, lambda: gave_up.swap(NAME, document.token, TWO))
        await send_late(server, "cells/new.json", lambda: gave_up.create("cells/new.json", ONE))
        assert await documents.get(NAME) == document
        assert await data_at(documents, "cells/new.json") is None

        # One takes effect for each name, and a copy finds the name taken.
        statuses = [answer.status for answer in server.apply_late()]
        assert statuses.count(200) == 2 and set(statuses) <= {200, 412}
        assert await data_at(documents) == TWO
        assert await data_at(documents, "cells/new.json") == ONE


async def test_a_late_write_is_refused_by_the_server_if_somebody_was_faster(place: Place, server: ObjectServer) -> None:
    impatient = replace(place, options={**place.options, "timeout": "300ms"})
    async with opened_documents(place) as documents, opened_documents(impatient) as gave_up:
        document = await created(documents)
        await send_late(server, NAME, lambda: gave_up.swap(NAME, document.token, TWO))

        assert isinstance(await documents.swap(NAME, document.token, THREE), Applied)

        assert {answer.status for answer in server.apply_late()} == {412}
        assert await data_at(documents) == THREE


async def test_a_write_to_a_server_that_is_not_there_is_unknown(place: Place) -> None:
    nobody = replace(place, options={**place.options, "endpoint": "http://127.0.0.1:9", "connect_timeout": "1s"})
    async with opened_documents(nobody) as documents:
        assert isinstance(await documents.create(NAME, ONE), Unknown)
        assert isinstance(await documents.swap(NAME, "1", ONE), Unknown)


async def test_a_missing_bucket_is_never_taken_for_a_missing_document(place: Place) -> None:
    elsewhere = replace(place, url=place.url.replace("//lake/", "//gone/"))
    async with opened_documents(elsewhere) as documents:
        with pytest.raises(StoreUnavailable, match="Create the bucket, or correct its name"):
            await documents.get(NAME)
        with pytest.raises(StoreUnavailable, match="Create the bucket"):
            await documents.list("cells/", None, 10)
        with pytest.raises(StoreUnavailable, match="Create the bucket"):
            await documents.delete(NAME)
        assert isinstance(await documents.create(NAME, ONE), Unknown)
        assert isinstance(await documents.swap(NAME, "1", ONE), Unknown)


READ_FAULTS = [
    Fault(Kind.LOST, method="GET"),
    Fault(Kind.STATUS, method="GET", status=429),
    Fault(Kind.STATUS, method="GET", status=500),
    Fault(Kind.STATUS, method="GET", status=503),
    Fault(Kind.TRUNCATED, method="GET"),
]


@pytest.mark.parametrize("fault", READ_FAULTS, ids=fault_id)
async def test_a_read_is_tried_again(documents: DocumentStore, server: ObjectServer, fault: Fault) -> None:
    document = await created(documents)
    server.faults = [replace(fault)]

    assert await documents.get(NAME) == document

    assert len(server.sent("GET")) == 2


@pytest.mark.parametrize("fault", READ_FAULTS, ids=fault_id)
async def test_a_read_that_stays_without_an_answer_is_an_error_and_not_an_absence(
    documents: DocumentStore, server: ObjectServer, fault: Fault
) -> None:
    await created(documents)
    server.faults = [replace(fault, times=1_000)]

    with pytest.raises(StoreUnavailable, match=r"could not read .*cells/a\.json"):
        await documents.get(NAME)

    assert 2 <= len(server.sent("GET")) <= 5  # bounded


@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
async def test_a_read_refused_for_any_other_reason_is_an_error_and_not_an_absence(
    documents: DocumentStore, server: ObjectServer, status: int
) -> None:
    await created(documents)
    server.faults = [Fault(Kind.STATUS, method="GET", status=status, times=1_000)]

    with pytest.raises(StoreUnavailable):
        await documents.get(NAME)
    with pytest.raises(StoreUnavailable):
        await documents.list("cells/", None, 10)


async def test_a_listing_is_tried_again_and_then_an_error(documents: DocumentStore, server: ObjectServer) -> None:
    await created(documents)
    server.faults = [Fault(Kind.STATUS, method="GET")]
    assert [entry.name for entry in await documents.list("cells/", None, 10)] == [NAME]

    server.faults = [Fault(Kind.STATUS, method="GET", times=1_000)]
    with pytest.raises(StoreUnavailable, match="could not list"):
        await documents.list("cells/", None, 10)


async def test_a_listing_that_fails_on_its_second_page_is_an_error_and_not_a_short_list(
    documents: DocumentStore, server: ObjectServer
) -> None:
    names = [f"cells/{number}.json" for number in range(6)]
    for name in names:
        await documents.create(name, ONE)
    server.page_size = 3

    def fail_from_now_on() -> None:
        server.faults = [Fault(Kind.STATUS, method="GET", times=1_000)]

    server.faults = [Fault(Kind.PASSED, method="GET", then=fail_from_now_on)]
    with pytest.raises(StoreUnavailable):
        await documents.list("cells/", None, 100)


async def test_a_read_resumed_after_a_swap_is_never_a_mixture(documents: DocumentStore, server: ObjectServer) -> None:
    outcome = await documents.create(NAME, b"a" * 100_000)
    assert isinstance(outcome, Applied)
    key = next(iter(server.objects))

    def swap_meanwhile() -> None:
        request = server.sent("PUT")[0]
        server.store(replace(request, body=b"b" * 100_000), '"another"')

    server.faults = [Fault(Kind.TRUNCATED, method="GET", then=swap_meanwhile)]
    try:
        document = await documents.get(NAME)
    except StoreUnavailable:
        document = None

    assert server.objects[key].data == b"b" * 100_000
    assert document is None or len(set(document.data)) == 1


async def test_a_failed_delete_is_an_error_and_sent_once(documents: DocumentStore, server: ObjectServer) -> None:
    await created(documents)
    server.faults = [Fault(Kind.STATUS, method="DELETE", status=503)]

    with pytest.raises(StoreUnavailable, match="could not delete"):
        await documents.delete(NAME)

    assert len(server.sent("DELETE")) == 1
    assert await data_at(documents) == ONE


async def test_documents_are_never_cached_on_the_way(documents: DocumentStore, server: ObjectServer) -> None:
    document = await created(documents)
    await documents.swap(NAME, document.token, TWO)

    assert {request.headers["cache-control"] for request in server.sent("PUT")} == {"no-store"}


async def test_refusals_are_still_refusals_when_connections_are_old(
    documents: DocumentStore, server: ObjectServer
) -> None:
    document = await created(documents)
    server.faults = [Fault(Kind.LOST, name="cells/")]
    assert isinstance(await documents.swap(NAME, document.token, TWO), Unknown)

    assert await documents.create(NAME, TWO) == Refused()
    assert isinstance(await documents.swap(NAME, document.token, TWO), Applied)
    assert await documents.swap(NAME, document.token, THREE) == Refused()
