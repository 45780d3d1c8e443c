"""One suite over every document store. `place` is a fresh store's address; `documents` is that store, open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from lakepact.kernel.ports import DocumentStore
from tests.support.running import pytest_pyfunc_call  # noqa: F401  a hook: it runs the async tests here
from tests.support.stores import KINDS, Place, opened_documents, place_for


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_for(request.param, tmp_path) as place:
        yield place


@pytest.fixture
def documents(place: Place) -> AbstractAsyncContextManager[DocumentStore]:
    return opened_documents(place)
