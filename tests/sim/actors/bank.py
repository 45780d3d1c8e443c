"""Bank and counters: sums that every cut must keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakepact.errors import TransactionClosed
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Committed, Conflict
from tests.sim.broken import PromiseBroken
from tests.sim.client import PASSING, Client

OPENING = 100


def _balance(cells: Mapping[Key, Cell], key: Key) -> int:
    return int((cells[key].value or {}).get("balance", OPENING))


def check_sum(cells: Mapping[Key, Cell]) -> None:
    """An account nobody has touched holds the opening balance."""
    total = sum(_balance(cells, key) for key in cells)
    if total != OPENING * len(cells):
        balances = {key: _balance(cells, key) for key in cells}
        raise PromiseBroken("P1", f"the bank holds {total} instead of {OPENING * len(cells)}: {balances}")


async def teller(client: Client, accounts: Sequence[Key], rounds: int) -> None:
    """Moves money between two to four accounts."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        chosen = client.random.sample(accounts, client.random.randint(2, min(4, len(accounts))))
        cells = await client.read(chosen)
        amount = client.random.randint(1, 10)
        values = {key: {"balance": _balance(cells, key) + amount} for key in chosen[1:]}
        values[chosen[0]] = {"balance": _balance(cells, chosen[0]) - amount * (len(chosen) - 1)}
        await client.submit(client.plan(cells, values))


async def auditor(client: Client, accounts: Sequence[Key], rounds: int) -> None:
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        check_sum(await client.read(accounts))


class Tally:
    """How often a counter was raised for certain."""

    def __init__(self) -> None:
        self.raised = 0


async def counter(client: Client, key: Key, rounds: int, tally: Tally) -> None:
    """Read, add one, write; on a conflict read again and keep the id."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        transaction_id = client.new_id()
        while True:
            cells = await client.read([key])
            value = {"count": int((cells[key].value or {}).get("count", 0)) + 1}
            transaction = client.plan(cells, {key: value}, transaction_id=transaction_id)
            try:
                result = await client.commit(transaction, settle_conflict=False)
            except TransactionClosed:
                break
            except PASSING:
                await client.pause()
                continue
            if isinstance(result, Committed):
                tally.raised += 1
                break
            if not isinstance(result, Conflict):
                await client.pause()


def check_count(cells: Mapping[Key, Cell], key: Key, tally: Tally) -> None:
    count = int((cells[key].value or {}).get("count", 0))
    if count != tally.raised:
        raise PromiseBroken("P3", f"{key} was raised {tally.raised} times and stands at {count}")
