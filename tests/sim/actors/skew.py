"""Pairs that write skew would break: each transaction reads two cells and writes one of them."""

from __future__ import annotations

from collections.abc import Sequence

from lakepact.kernel.keys import Key
from lakepact.kernel.model import Value
from tests.sim.broken import PromiseBroken
from tests.sim.client import Client
from tests.sim.oracle import Effect, Invariant, Oracle

Pair = tuple[Key, Key]


def _on(value: Value | None) -> bool:
    """A cell that was never written is on duty."""
    return value is None or bool(value.get("on"))


def never_both_off(pairs: Sequence[Pair]) -> Invariant:
    def check(oracle: Oracle, effect: Effect) -> None:
        for one, other in pairs:
            if not _on(oracle.current(one)[1]) and not _on(oracle.current(other)[1]):
                raise PromiseBroken("P4", f"{one} and {other} are both off after {effect.id}: write skew")

    return check


async def on_duty(client: Client, pairs: Sequence[Pair], rounds: int) -> None:
    """Goes off duty only if the other one is on, and depends on having read that; goes on duty without looking."""
    for number in range(rounds):
        await client.pause()
        if not client.running:
            return
        mine, other = pair = client.random.choice(pairs)
        if client.random.random() < 0.5:
            mine, other = other, mine
        cells = await client.read(pair)
        mark = f"{number}"
        if _on(cells[mine].value) and _on(cells[other].value):
            plan = client.plan(cells, {mine: {"on": False, "mark": mark}}, reads=[other])
        else:
            plan = client.plan(cells, {mine: {"on": True, "mark": mark}})
        await client.submit(plan)


async def dependent(client: Client, keys: Sequence[Key], rounds: int) -> None:
    """Writes one cell on the strength of others it only reads, and writes others blindly in between."""
    for number in range(rounds):
        await client.pause()
        if not client.running:
            return
        chosen = client.random.sample(keys, min(len(keys), client.random.randint(1, 3)))
        cells = await client.read(chosen)
        value = {"seen": {key: cells[key].revision for key in chosen[1:]}, "mark": f"{number}"}
        await client.submit(client.plan(cells, {chosen[0]: value}, reads=chosen[1:]))


async def follower(client: Client, leader: Key, mine: Key, rounds: int) -> None:
    """Writes down in a cell of its own what it has read in another: whoever sees both must see them in that order."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        cells = await client.read([leader, mine])
        await client.submit(client.plan(cells, {mine: {"seen": cells[leader].revision}}, reads=[leader]))
