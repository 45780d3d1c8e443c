"""P1, P2, P3, P5, P7, P9 when a process is killed with SIGKILL after every storage operation, one run each."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import pytest

from lakepact.kernel.identity import uuid7
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores import open_store
from tests.crash.proxy import KillingProxy
from tests.crash.scenario import ACTS, SETTINGS, Job, audit, seed
from tests.support.postgres import running_postgres
from tests.support.stores import place_for

ROOT = Path(__file__).parents[2]
MORE_POINTS_THAN_ANY_COMMIT_HAS = 2_000


class Site(Protocol):
    """A store, and a way to have a victim killed at a chosen operation on it."""

    url: str
    options: Mapping[str, str]

    async def run(self, act: str, job: Job, at: int) -> int | None:
        """Run a victim. None if it was killed at operation `at`, else the number of operations it took."""
        ...


class TrappedSite:
    """The victim counts its own operations."""

    def __init__(self, url: str, trap: str, options: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.options = options or {}
        self._trap = trap

    async def run(self, act: str, job: Job, at: int) -> int | None:
        process = await _start_victim(self.url, self.options, act, job, self._trap, at)
        return await _end_of(process)


class ProxiedSite:
    """A proxy between the victim and its database counts what the victim sends, and kills it."""

    def __init__(self, proxy: KillingProxy, direct_url: str) -> None:
        self.url = direct_url
        self.options: Mapping[str, str] = {}
        self._proxy = proxy

    async def run(self, act: str, job: Job, at: int) -> int | None:
        self._proxy.disarm()
        process = await _start_victim(self._proxy.url, {}, act, job, "proxy", 0)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n", await process.communicate()
        self._proxy.arm(process.pid, at)
        ended = await _end_of(process)
        return None if ended is None else self._proxy.messages


async def _start_victim(
    url: str, options: Mapping[str, str], act: str, job: Job, trap: str, at: int
) -> asyncio.subprocess.Process:
    arguments = [url, json.dumps(dict(options)), act, job.id, str(job.base), trap, str(at)]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.crash.victim",
        *arguments,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


async def _end_of(process: asyncio.subprocess.Process) -> int | None:
    out, err = await process.communicate(b"go\n")
    if process.returncode == -signal.SIGKILL:
        return None
    assert process.returncode == 0, err.decode()
    return int(out.split()[-1])


@asynccontextmanager
async def sqlite_site(folder: Path) -> AsyncIterator[Site]:
    yield TrappedSite(f"sqlite:///{folder / 'cells.db'}", "sqlite")


@asynccontextmanager
async def files_site(folder: Path) -> AsyncIterator[Site]:
    with place_for("file", folder) as place:
        yield TrappedSite(place.url, "files")


@asynccontextmanager
async def s3_site(folder: Path) -> AsyncIterator[Site]:
    with place_for("s3-strict", folder) as place:
        yield TrappedSite(place.url, "documents", place.options)


@asynccontextmanager
async def postgres_site(_folder: Path) -> AsyncIterator[Site]:
    with running_postgres() as url:
        async with KillingProxy.between(url) as proxy:
            yield ProxiedSite(proxy, url)


SITES = {"sqlite": sqlite_site, "postgres": postgres_site, "file": files_site, "s3": s3_site}


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("store", SITES)
def test_a_process_killed_at_any_storage_operation_leaves_all_or_nothing(
    store: str, act: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    points, happened = asyncio.run(_kill_at_every_point(SITES[store](tmp_path), act))
    record_property(
        "figure", f"{store}, {act}: killed at each of {points} storage operations, {happened} after its commit"
    )
    assert points >= 2
    assert 0 < happened < points, "some kills must fall before the commit point and some after it"


async def _kill_at_every_point(site_context: AbstractAsyncContextManager[Site], act: str) -> tuple[int, int]:
    clock, rng = SystemClock(), SystemRng()
    async with site_context as site:
        store: CellStore = await open_store(site.url, SETTINGS, options=site.options)
        await seed(store, uuid7(clock.now_ms(), rng.bits(74)))
        happened = 0
        for at in range(1, MORE_POINTS_THAN_ANY_COMMIT_HAS):
            job = Job(uuid7(clock.now_ms(), rng.bits(74)), base=at)
            survived = await site.run(act, job, at)
            before = await audit(store, job, ACTS[act])
            if survived is not None:
                assert before, "the victim lived and its transaction is not there"
                await store.close()
                return at - 1, happened
            happened += before
        raise AssertionError("the victim never came to its end")
