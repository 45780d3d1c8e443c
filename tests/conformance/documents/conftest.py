"""One suite over every document store. `place` is a fresh store's address; `documents` is that store, open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from lakepact.kernel.ports import DocumentStore
from lakepact.stores import files_disk
from tests.support.running import pytest_pyfunc_call  # noqa: F401  a hook: it runs the async tests here
from tests.support.stores import KINDS, Place, opened_documents, place_for
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def patient_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a writer of files wait for its lock: a slow holder is not a stuck one."""
    monkeypatch.setattr(files_disk, "_LOCK_WAIT_S", PATIENCE_S)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with place_for(request.param, tmp_path) as place:
        yield place


@pytest.fixture
def documents(place: Place) -> AbstractAsyncContextManager[DocumentStore]:
    return opened_documents(place)
