"""One suite for the port `CellStore`, over every store. `world` is a fresh, empty store of each kind in turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import pytest

from lakepact.stores import postgres_session, postgres_staging
from tests.conformance.cells.world import OPENERS, SteeredClock, Surroundings, World
from tests.support.postgres import LazyPostgres
from tests.support.running import pytest_pyfunc_call  # noqa: F401  a hook: it runs the async tests here
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="session")
def postgres() -> Iterator[LazyPostgres]:
    with ExitStack() as stack:
        yield LazyPostgres(stack)


@pytest.fixture
def surroundings(tmp_path: Path, postgres: LazyPostgres) -> Surroundings:
    return Surroundings(tmp_path, SteeredClock(), postgres.url)


@pytest.fixture(autouse=True)
def patient_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PostgreSQL wait for a lock as long as the call may take: a slow holder is not a stuck one."""
    for module in (postgres_session, postgres_staging):
        monkeypatch.setattr(module, "LONGEST_LOCK_WAIT_S", PATIENCE_S)


@pytest.fixture(params=OPENERS)
def world(request: pytest.FixtureRequest, surroundings: Surroundings) -> AbstractAsyncContextManager[World]:
    return World.opened(request.param, surroundings)
