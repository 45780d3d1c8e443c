"""The demo from beginning to end."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console

from lakepact.demo.bank import Bank, fresh_id, send
from lakepact.demo.director import Run, running
from lakepact.demo.show import conclusion, introduction, showing
from lakepact.demo.verdict import Summary, judge, settle_the_rest
from lakepact.demo.worker import opened
from lakepact.errors import InvalidSetting
from lakepact.kernel.model import Committed
from lakepact.runtime import SystemClock, SystemRng
from lakepact.settings import Settings, without_password

ACCOUNTS = 20
LEASE_S = 2.0
"""Shorter than usual, so that a killed process's accounts are free again while people watch."""


def play(settings: Settings, console: Console, *, seconds: float, movers: int, own_store: bool) -> Summary:
    """Run the demo and show it. With `own_store` it keeps its data in a folder of its own, removed afterwards."""
    if urlsplit(settings.store).scheme == "memory":
        raise InvalidSetting("the demo runs in several processes, which cannot share memory://; give it another store")
    folder = Path(tempfile.mkdtemp(prefix="lakepact-demo-"))
    if own_store:
        settings = settings.model_copy(update={"store": f"sqlite:///{folder / 'bank.db'}", "store_options": {}})
    settings = settings.model_copy(update={"lease_s": LEASE_S})
    name = "SQLite" if own_store else without_password(settings.store)
    bank = Bank(run=fresh_id(SystemClock(), SystemRng()), accounts=ACCOUNTS)
    introduction(console, store=name, movers=movers, accounts=bank.accounts, total=bank.total, seconds=seconds)

    asyncio.run(_open_accounts(settings, bank))
    with running(bank, settings, folder, movers) as run:
        began = time.monotonic()
        # An interrupt ends the action early; what was done is judged all the same.
        with showing(console, seconds) as show, suppress(KeyboardInterrupt):
            run.await_start()
            began = time.monotonic()
            run.act(seconds, random.Random(), show)
        action_s = time.monotonic() - began
        run.stop()
    summary = asyncio.run(_verdict(settings, run, name, action_s))
    conclusion(console, summary)
    if summary.holds:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"The journals and logs of all processes are in {folder}.", soft_wrap=True)
    return summary


async def _open_accounts(settings: Settings, bank: Bank) -> None:
    async with opened(settings) as store:
        result = await send(store, SystemClock(), bank.opening())
        assert isinstance(result, Committed), result


async def _verdict(settings: Settings, run: Run, name: str, seconds: float) -> Summary:
    async with opened(settings) as store:
        await settle_the_rest(store, SystemClock(), run)
        return await judge(store, run, name, seconds)
