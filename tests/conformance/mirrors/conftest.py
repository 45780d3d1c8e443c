"""One suite for the mirrors, over both SQL stores and a folder of real files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path

import pytest

from tests.conformance.mirrors.lake import Lake
from tests.support.postgres import LazyPostgres
from tests.support.running import pytest_pyfunc_call  # noqa: F401  a hook: it runs the async tests here


@pytest.fixture(scope="session")
def postgres() -> Iterator[LazyPostgres]:
    with ExitStack() as stack:
        yield LazyPostgres(stack)


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres) -> AbstractAsyncContextManager[Lake]:
    return Lake.opened(tmp_path, postgres.url() if request.param == "postgres" else None)


@pytest.fixture
def sqlite_lake(tmp_path: Path) -> AbstractAsyncContextManager[Lake]:
    """Where the database does not matter."""
    return Lake.opened(tmp_path, None)
