"""One suite for the port `DeltaRows`, and for what moves beside cells, over both SQL stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import pytest

from tests.conformance.cells.world import SteeredClock, Surroundings
from tests.conformance.delta.lake import Lake
from tests.support.postgres import LazyPostgres
from tests.support.running import pytest_pyfunc_call  # noqa: F401  a hook: it runs the async tests here


@pytest.fixture(scope="session")
def postgres() -> Iterator[LazyPostgres]:
    with ExitStack() as stack:
        yield LazyPostgres(stack)


@pytest.fixture
def surroundings(tmp_path: Path, postgres: LazyPostgres) -> Surroundings:
    return Surroundings(tmp_path, SteeredClock(), postgres.url)


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, surroundings: Surroundings) -> AbstractAsyncContextManager[Lake]:
    return Lake.opened(request.param, surroundings)
