"""`wire` is a server on SQLite and a folder; `anywhere` on each kind of store in turn, `on_sql` on those of SQL.
`issuer` is an identity provider, as good as new for each test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from tests.support.issuer import Issuer, running_issuer
from tests.support.postgres import LazyPostgres
from tests.support.running import pytest_pyfunc_call  # noqa: F401  a hook: it runs the async tests here
from tests.support.waiting import PATIENCE_S
from tests.wire.world import Wire


@pytest.fixture(scope="session")
def postgres() -> Iterator[LazyPostgres]:
    with ExitStack() as stack:
        yield LazyPostgres(stack)


@pytest.fixture(scope="session")
def one_issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def issuer(one_issuer: Issuer) -> Issuer:
    one_issuer.forget()
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
    match request.param:
        case "sqlite":
            return Wire.opened(tmp_path)
        case "memory":
            return Wire.opened(tmp_path, store="memory://", warehouse="memory://")
        case "file":
            return Wire.opened(tmp_path, store=f"file://{tmp_path}/cells")
        case _:
            return _on_postgres(tmp_path, postgres.url())


@asynccontextmanager
async def _on_postgres(folder: Path, url: str) -> AsyncIterator[Wire]:
    async with fresh_database(url) as store, Wire.opened(folder, store=store) as wire:
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
