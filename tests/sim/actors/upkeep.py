"""Those who finish what others left, those who forget, and those who make things go wrong."""

from __future__ import annotations

from collections.abc import Sequence

from lakepact.errors import InvalidTransactionId, TransactionClosed
from lakepact.kernel.model import Busy, Transaction
from tests.sim.client import PASSING, Client


async def recoverer(client: Client, rounds: int, pause_s: float) -> None:
    for _ in range(rounds):
        await client.wait(pause_s * client.random.random())
        if not client.running:
            return
        try:
            await client.call("recover", lambda cells: cells.recover(limit=200))
        except PASSING:
            continue


async def collector(client: Client, rounds: int, pause_s: float) -> None:
    for _ in range(rounds):
        await client.wait(pause_s * client.random.random())
        if not client.running:
            return
        try:
            await client.call("collect", lambda cells: cells.collect(limit=200))
        except PASSING:
            continue


async def late_retrier(client: Client, sent: Sequence[Transaction], rounds: int) -> None:
    """Sends old requests again, days later: the stored answer, or a refusal for age, but never a second effect."""
    for _ in range(rounds):
        await client.pause()
        if not client.running or not sent:
            return
        transaction = client.random.choice(sent)
        try:
            result = await client.commit(transaction)
        except (*PASSING, InvalidTransactionId, TransactionClosed):
            continue
        if isinstance(result, Busy):
            await client.pause()
