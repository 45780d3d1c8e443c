from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from lakepact.cli.options import Json, Limit, StoreUrl, with_store
from lakepact.cli.output import print_json, say
from lakepact.kernel.model import Collection, Recovery
from lakepact.kernel.ports import CellStore
from lakepact.settings import Settings

MOST_PASSES = 10_000
"""A pass that always leaves more would otherwise never end."""


def recover(store: StoreUrl = None, limit: Limit = 1_000, json: Json = False) -> None:
    """Finish what crashed processes left unfinished. Safe at any time, by anyone, any number of times."""
    done = with_store(Settings.load(store=store), _all_recoveries(limit))
    if json:
        print_json(done)
        return
    say(f"{done.finished} finished, {done.given_up} given up, {done.expired} expired, {done.left} left for later")
    if done.left:
        say("What is left belongs to transactions that are still alive, or could not be reached. Run it again.")


def collect(store: StoreUrl = None, limit: Limit = 1_000, json: Json = False) -> None:
    """Trim the records of finished transactions, and delete those beyond the horizon."""
    done = with_store(Settings.load(store=store), _all_collections(limit), deletes=True)
    if json:
        print_json(done)
        return
    say(f"{done.trimmed} trimmed, {done.deleted} deleted")


def _all_recoveries(limit: int) -> Callable[[CellStore], Awaitable[Recovery]]:
    async def work(store: CellStore) -> Recovery:
        total = Recovery()
        for _ in range(MOST_PASSES):
            done = await store.recover(limit)
            total = Recovery(
                finished=total.finished + done.finished,
                given_up=total.given_up + done.given_up,
                expired=total.expired + done.expired,
                left=total.left + done.left,
                more=done.more,
            )
            if not done.more:
                break
        return total

    return work


def _all_collections(limit: int) -> Callable[[CellStore], Awaitable[Collection]]:
    async def work(store: CellStore) -> Collection:
        total = Collection()
        for _ in range(MOST_PASSES):
            done = await store.collect(limit)
            total = replace(done, trimmed=total.trimmed + done.trimmed, deleted=total.deleted + done.deleted)
            if not done.more:
                break
        return total

    return work
