"""`wire` is a server on SQLite and a folder; `anywhere` on each kind of store in turn, `on_sql` on those of SQL.
`contended` is `anywhere` for tests in which requests compete with each other and must all succeed.
`issuer` is an identity provider, as good as new for each test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.issuer import Issuer, running_issuer
from tests.support.postgres import LazyPostgres
from tests.support.running import pytest_pyfunc_call  # noqa: F401  a hook: it runs the async tests here
from tests.support.waiting import PATIENCE_S
from tests.wire.world import CONTENDED, Wire


@pytest.fixture(scope="session")
def postgres() -> Iterator[LazyPostgres]:
    with ExitStack() as stack:
        yield LazyPostgres(stack)


@pytest.fixture(scope="session")
def one_issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(one_issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Issuer:
    one_issuer.forget()
    # It runs in the process of the tests, so it stands still when they do.
    monkeypatch.setattr("lakepact.server.auth.issuer._WITHIN_S", PATIENCE_S)
    monkeypatch.setattr("lakepact.server.auth.login._LONGEST_WAIT_S", PATIENCE_S)
    return one_issuer


@pytest.fixture
def wire(tmp_path: Path) -> AbstractAsyncContextManager[Wire]:
    return Wire.opened(tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def on_sql(request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres) -> AbstractAsyncContextManager[Wire]:
    return Wire.opened(tmp_path) if request.param == "sqlite" else _on_postgres(tmp_path, postgres.url())


@pytest.fixture(params=["sqlite", "memory", "file", "postgres"])
def anywhere(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres
) -> AbstractAsyncContextManager[Wire]:
    return _opened(request.param, tmp_path, postgres)


@pytest.fixture(params=["sqlite", "memory", "file", "postgres"])
def contended(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres
) -> AbstractAsyncContextManager[Wire]:
    return _opened(request.param, tmp_path, postgres, **CONTENDED)


def _opened(kind: str, folder: Path, postgres: LazyPostgres, **given: Any) -> AbstractAsyncContextManager[Wire]:
    match kind:
        case "sqlite":
            return Wire.opened(folder, **given)
        case "memory":
            return Wire.opened(folder, store="memory://", warehouse="memory://", **given)
        case "file":
            return Wire.opened(folder, store=f"file://{folder}/cells", **given)
        case _:
            return _on_postgres(folder, postgres.url(), **given)


@asynccontextmanager
async def _on_postgres(folder: Path, url: str, **given: Any) -> AsyncIterator[Wire]:
    async with fresh_database(url) as store, Wire.opened(folder, store=store, **given) as wire:
        yield wire


@asynccontextmanager
async def fresh_database(url: str) -> AsyncIterator[str]:
    """The URL of a database of its own. It is dropped in the end, if all went well."""
    database = f"wire_{random.getrandbits(64):016x}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE DATABASE {database}")
        yield url.replace("/postgres?", f"/{database}?")
        async with asyncio.timeout(PATIENCE_S):
            await connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
    finally:
        await connection.close()
