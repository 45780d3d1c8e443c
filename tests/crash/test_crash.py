"""P1, P2, P3, P5, P7, P9 when a process is killed with SIGKILL after every storage operation, one run each.

On files it is every other one, and each with LAKEPACT_LONG=1.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import pytest

from lakepact.kernel.identity import uuid7
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores import open_store
from tests.crash.proxy import KillingProxy
from tests.crash.scenario import ACTS, SETTINGS, Job, audit, seed
from tests.support.postgres import running_postgres
from tests.support.stores import place_for
from tests.support.waiting import wait_until_async

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("LAKEPACT_LONG"))
MORE_POINTS_THAN_ANY_COMMIT_HAS = 2_000


class Site(Protocol):
    """A store, and a way to have a victim killed at a chosen operation on it."""

    url: str
    options: Mapping[str, str]

    async def run(self, act: str, job: Job, at: int) -> int | None:
        """Run a victim. None if it was killed at operation `at`, else the number of operations it took."""
        ...


class Victims:
    """A process whose children are killed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator[Victims]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.crash.victim",
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        victims = cls(process)
        try:
            yield victims
        finally:
            victims._in.close()
            await process.wait()

    async def begin(self, place: Mapping[str, object], act: str, job: Job, trap: str, at: int) -> int:
        """A child that is ready to go on: its process id."""
        self._say(json.dumps({**place, "act": act, "id": job.id, "base": job.base, "trap": trap, "at": at}))
        word, pid = await self._heard()
        assert word == "ready", (word, pid)
        return int(pid)

    async def end(self) -> int | None:
        """Let it go on, to its end. None if it was killed, else the number of operations it took."""
        self._say("go")
        word, *rest = await self._heard()
        if word == "killed":
            return None
        assert word == "operations", (word, rest)
        assert await self._heard() == ["ended", "0"]
        return int(rest[0])

    def _say(self, text: str) -> None:
        self._in.write(text.encode() + b"\n")

    async def _heard(self) -> list[str]:
        words = (await self._out.readline()).decode().split()
        assert words, "the victims' process has ended; its reason is above"
        return words


class TrappedSite:
    """The victim counts its own operations."""

    def __init__(self, victims: Victims, url: str, trap: str, options: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.options = options or {}
        self._victims = victims
        self._trap = trap

    async def run(self, act: str, job: Job, at: int) -> int | None:
        await self._victims.begin({"url": self.url, "options": dict(self.options)}, act, job, self._trap, at)
        return await self._victims.end()


class ProxiedSite:
    """A proxy between the victim and its database counts what the victim sends, and kills it."""

    def __init__(self, victims: Victims, proxy: KillingProxy, direct_url: str, observer: Any) -> None:
        self.url = direct_url
        self.options: Mapping[str, str] = {}
        self._victims = victims
        self._proxy = proxy
        self._observer = observer

    async def run(self, act: str, job: Job, at: int) -> int | None:
        before = await self._sessions()
        ended = await self._run(act, job, at)

        async def has_no_session() -> bool:
            return not await self._sessions() - before

        # The database may still execute the last message of the victim: nobody reads before it is done with that.
        await wait_until_async(has_no_session, "a session of the victim does not end")
        return ended

    async def _sessions(self) -> set[int]:
        rows = await self._observer.fetch("SELECT pid FROM pg_stat_activity WHERE application_name = 'lakepact'")
        return {row[0] for row in rows}

    async def _run(self, act: str, job: Job, at: int) -> int | None:
        self._proxy.disarm()
        pid = await self._victims.begin({"url": self._proxy.url, "options": {}}, act, job, "proxy", 0)
        self._proxy.arm(pid, at)
        ended = await self._victims.end()
        return None if ended is None else self._proxy.messages


@asynccontextmanager
async def sqlite_site(folder: Path) -> AsyncIterator[Site]:
    async with Victims.running() as victims:
        yield TrappedSite(victims, f"sqlite:///{folder / 'cells.db'}", "sqlite")


@asynccontextmanager
async def files_site(folder: Path) -> AsyncIterator[Site]:
    with place_for("file", folder) as place:
        async with Victims.running() as victims:
            yield TrappedSite(victims, place.url, "files")


@asynccontextmanager
async def s3_site(folder: Path) -> AsyncIterator[Site]:
    with place_for("s3-strict", folder) as place:
        async with Victims.running() as victims:
            yield TrappedSite(victims, place.url, "documents", place.options)


@asynccontextmanager
async def postgres_site(_folder: Path) -> AsyncIterator[Site]:
    with running_postgres() as url:
        observer = await asyncpg.connect(url)
        async with KillingProxy.between(url) as proxy, Victims.running() as victims:
            yield ProxiedSite(victims, proxy, url, observer)
        await observer.close()


SITES = {"sqlite": sqlite_site, "postgres": postgres_site, "file": files_site, "s3": s3_site}


@pytest.mark.begins_first
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("store", SITES)
def test_a_process_killed_at_any_storage_operation_leaves_all_or_nothing(
    store: str, act: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    # Files have the most of them, several for each step of the protocol: every other one will do, unless there is time.
    every = 2 if store == "file" and not LONG else 1
    points, kills, happened = asyncio.run(_kill_at_points(SITES[store](tmp_path), act, every))
    record_property(
        "figure", f"{store}, {act}: killed at {kills} of {points} storage operations, {happened} after its commit"
    )
    assert points >= 2
    assert 0 < happened < kills, "some kills must fall before the commit point and some after it"


async def _kill_at_points(
    site_context: AbstractAsyncContextManager[Site], act: str, every: int
) -> tuple[int, int, int]:
    """How many there are, at how many it was killed, and how many of those were after the commit."""
    clock, rng = SystemClock(), SystemRng()
    async with site_context as site:
        store: CellStore = await open_store(site.url, SETTINGS, options=site.options)
        await seed(store, uuid7(clock.now_ms(), rng.bits(74)))
        happened = 0
        for kills, at in enumerate(range(1, MORE_POINTS_THAN_ANY_COMMIT_HAS, every)):
            job = Job(uuid7(clock.now_ms(), rng.bits(74)), base=1 + kills)
            survived = await site.run(act, job, at)
            before = await audit(store, job, ACTS[act])
            if survived is not None:
                assert before, "the victim lived and its transaction is not there"
                await store.close()
                return survived, kills, happened
            happened += before
        raise AssertionError("the victim never came to its end")
