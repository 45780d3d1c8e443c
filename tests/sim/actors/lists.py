"""List-append: every commit appends one element of its own to the list in each cell it writes.

A list tells its whole past, so a lost, doubled or half-done commit shows in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakepact.errors import KeyReused, TransactionClosed, WrongState
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Busy, Cell, Committed, Conflict, Failed, Transaction
from tests.sim.broken import PromiseBroken
from tests.sim.client import PASSING, Client, Ended
from tests.sim.oracle import Effect, Oracle
from tests.sim.scheduler import Scheduler


def appended(cells: Mapping[Key, Cell], keys: Sequence[Key], element: str) -> dict[Key, dict[str, Any]]:
    return {key: {"items": [*((cells[key].value or {}).get("items", ())), element]} for key in keys}


def lists_grow_by_one(oracle: Oracle, effect: Effect) -> None:
    """Each new list is the one it replaces and one element more: nothing overwritten, nothing doubled."""
    for key, (revision, value) in effect.writes.items():
        if value is None or "items" not in value:
            continue
        before = (oracle.versions[key][revision].value or {}).get("items", [])
        items = value["items"]
        if items[:-1] != before or items[-1] in before:
            raise PromiseBroken("P2", f"{key} revision {revision + 1} is {items}, and before it was {before}")


async def appender(client: Client, keys: Sequence[Key], rounds: int, *, most: int = 4) -> None:
    """Appends to one to four cells; a conflict means reading again and a new id."""
    for _ in range(rounds):
        await client.pause()
        chosen = client.some(keys, most)
        for _ in range(3):
            if not client.running:
                return
            cells = await client.read(chosen)
            transaction_id = client.new_id()
            values = appended(cells, chosen, transaction_id[-12:])
            result = await client.submit(client.plan(cells, values, transaction_id=transaction_id))
            if not isinstance(result, Conflict):
                break


async def quitter(client: Client, keys: Sequence[Key], rounds: int) -> None:
    """Asks once and never again: what it leaves behind is for others to end."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        chosen = client.some(keys, len(keys))
        cells = await client.read(chosen)
        transaction_id = client.new_id()
        values = appended(cells, chosen, transaction_id[-12:])
        try:
            await client.commit(client.plan(cells, values, transaction_id=transaction_id))
        except (*PASSING, TransactionClosed):
            continue


async def replanner(client: Client, keys: Sequence[Key], rounds: int, *, most: int = 3) -> None:
    """Keeps one id through conflicts and lost answers, each time with a new plan, perhaps for other cells."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        await _replan_until_done(client, keys, most)


async def _replan_until_done(client: Client, keys: Sequence[Key], most: int) -> Committed | Failed | None:
    transaction_id = client.new_id()
    chosen = client.some(keys, most)
    for attempt in range(1_000):
        if attempt and client.random.random() < 0.3:
            chosen = client.some(keys, most)
        cells = await client.read(chosen)
        values = appended(cells, chosen, transaction_id[-12:])
        transaction = client.plan(cells, values, transaction_id=transaction_id)
        try:
            result = await client.commit(transaction, settle_conflict=False)
        except TransactionClosed:
            return None
        except PASSING:
            await client.pause()
            continue
        if isinstance(result, Committed | Failed):
            return result
        if isinstance(result, Conflict) and (result.final or client.random.random() < 0.2):
            try:
                return await client.fail(transaction)
            except WrongState:
                return None
        if isinstance(result, Busy):
            await client.pause()
    raise PromiseBroken("P6", f"{transaction_id} was not decided in a thousand attempts")


async def reader(client: Client, keys: Sequence[Key], rounds: int) -> None:
    """Reads cuts of any size. The judge of answers does the rest."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        await client.read(client.some(keys, len(keys)))


async def scanner(client: Client, prefix: str, rounds: int) -> None:
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        await client.scan(prefix)


async def loner(client: Client, key: Key, rounds: int, *, store_is_faultless: bool) -> None:
    """Writes a cell that nobody else touches: nobody else may ever be in its way."""
    mine: set[str] = set()
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        cells = await client.read([key])
        transaction_id = client.new_id()
        mine.add(transaction_id)
        transaction = client.plan(cells, appended(cells, [key], transaction_id[-12:]), transaction_id=transaction_id)
        while True:
            try:
                result = await client.commit(transaction)
            except PASSING:
                await client.pause()
                continue
            except TransactionClosed:
                break
            if isinstance(result, Busy):
                if (result.owner is None and store_is_faultless) or (result.owner and result.owner not in mine):
                    raise PromiseBroken("P10", f"{transaction_id} on {key} alone was answered with {result}")
                await client.pause()
                continue
            if isinstance(result, Conflict):
                raise PromiseBroken("P10", f"{transaction_id} on {key} alone was answered with {result}")
            break


async def key_reuser(client: Client, keys: Sequence[Key], rounds: int) -> None:
    """Sends two different requests under one id: at most one of them may ever take effect."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        transaction_id = client.new_id()
        chosen = client.some(keys, 2)
        cells = await client.read(chosen)
        values = appended(cells, chosen, transaction_id[-12:])
        first = client.plan(cells, values, transaction_id=transaction_id, request="first")
        second = client.plan(cells, {chosen[0]: values[chosen[0]]}, transaction_id=transaction_id, request="second")
        await client.submit(first)
        for _ in range(3):
            try:
                result = await client.commit(second)
            except PASSING:
                await client.pause()
                continue
            except KeyReused:
                break
            if isinstance(result, Busy):
                await client.pause()
                continue
            raise PromiseBroken("P3", f"two requests under the id {transaction_id}, and the second got {result}")


async def refuser(client: Client, scheduler: Scheduler, keys: Sequence[Key], rounds: int) -> None:
    """Commits and fails the same id at the same time, on two processes: one answer for both, and for ever."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        chosen = client.some(keys, 2)
        cells = await client.read(chosen)
        transaction_id = client.new_id()
        transaction = client.plan(cells, appended(cells, chosen, transaction_id[-12:]), transaction_id=transaction_id)
        first, second = await scheduler.all([client.submit(transaction), _failed(client, transaction)])
        third = await client.submit(transaction)
        kinds = {type(answer) for answer in (first, second, third) if answer is not None}
        if len(kinds) > 1:
            raise PromiseBroken("P9", f"{transaction_id} was answered with {first}, {second} and {third}")


async def _failed(client: Client, transaction: Transaction) -> Ended:
    try:
        return await client.fail(transaction)
    except WrongState:
        # It has failed already, with a conflict, or was given up; the judge of answers knows whether that is true.
        return None
