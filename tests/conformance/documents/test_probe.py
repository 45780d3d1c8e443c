"""The start-up probe: suitable stores pass and are left as they were; others are refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakepact.errors import StoreUnavailable, StoreUnsuitable
from lakepact.kernel.ports import DocumentStore
from lakepact.runtime import SystemRng
from lakepact.stores import open_store
from lakepact.stores.probe import probe
from tests.support.object_server import Fault, Kind
from tests.support.stores import Place, place_for


async def test_every_shipped_store_is_suitable_and_left_empty(documents: DocumentStore) -> None:
    await probe(documents, SystemRng())

    assert await documents.list("", None, 10) == []


IGNORED = {
    "s3-strict": [
        ("if-none-match", "a second create of the same name was let through: the store ignores If-None-Match"),
        ("if-match", "a swap with an outdated token was let through: the store ignores If-Match"),
    ],
    "gcs-strict": [("x-goog-if-generation-match", "a second create of the same name was let through")],
}


@pytest.fixture(params=IGNORED)
def strict(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_for(request.param, tmp_path) as place:
        yield place


async def test_a_store_that_ignores_conditions_is_refused_and_left_empty(strict: Place) -> None:
    assert strict.server is not None
    for header, message in IGNORED[strict.kind]:
        strict.server.ignored_conditions = {header}

        with pytest.raises(StoreUnsuitable, match=message):
            await open_store(strict.url, options=strict.options)

        assert strict.server.objects == {}


async def test_a_store_that_does_not_answer_is_unavailable_and_not_unsuitable(strict: Place) -> None:
    assert strict.server is not None
    strict.server.faults = [Fault(Kind.STATUS, method="PUT", status=403, code="AccessDenied", times=1_000)]

    with pytest.raises(StoreUnavailable, match="AccessDenied"):
        await open_store(strict.url, options=strict.options)


async def test_a_store_that_cannot_tell_a_missing_document_from_a_forbidden_one_is_unavailable(strict: Place) -> None:
    assert strict.server is not None
    strict.server.faults = [Fault(Kind.STATUS, method="GET", status=403, code="AccessDenied", times=1_000)]

    with pytest.raises(StoreUnavailable, match="s3:ListBucket"):
        await open_store(strict.url, options=strict.options)


async def test_a_probe_that_fails_in_the_middle_still_cleans_up(strict: Place) -> None:
    assert strict.server is not None
    strict.server.faults = [
        Fault(Kind.PASSED, method="PUT"),
        Fault(Kind.STATUS_AFTER, method="PUT", status=500, times=1),
    ]

    with pytest.raises(StoreUnavailable):
        await open_store(strict.url, options=strict.options)

    assert strict.server.objects == {}


async def test_a_suitable_store_opens(strict: Place) -> None:
    store = await open_store(strict.url, options=strict.options)
    await store.close()
