"""Names and namespaces, as the catalog keeps them: two names and a pointer move together, or not at all.

A name cell says which pointer it stands for; a pointer cell says by which name it is known. Creating below a
namespace depends on having read it; dropping one marks it, looks for children, and then drops or unmarks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Cell, Committed, Value
from tests.sim.broken import PromiseBroken
from tests.sim.client import Client
from tests.sim.counters import Counters
from tests.sim.oracle import Effect, Invariant, Oracle


def check_directory(cells: Mapping[Key, Cell], names: Sequence[Key], pointers: Sequence[Key]) -> None:
    """Every live name has its pointer, which knows it by that name, and the other way round."""
    named = {key: value["pointer"] for key in names if (value := cells[key].value) is not None}
    known = {key: value["name"] for key in pointers if (value := cells[key].value) is not None}
    if {pointer: name for name, pointer in named.items()} != known:
        raise PromiseBroken("P1", f"names say {named}, pointers say {known}")


async def clerk(client: Client, names: Sequence[Key], pointers: Sequence[Key], rounds: int) -> None:
    """Creates, drops, creates again and renames."""
    everything = [*names, *pointers]
    for number in range(rounds):
        await client.pause()
        if not client.running:
            return
        cells = await client.read(everything)
        check_directory(cells, names, pointers)
        free_names = [key for key in names if cells[key].value is None]
        free_pointers = [key for key in pointers if cells[key].value is None]
        taken = [key for key in names if cells[key].value is not None]
        act = client.random.random()
        if taken and free_names and act < 0.4:
            await _rename(client, cells, client.random.choice(taken), client.random.choice(free_names))
        elif taken and act < 0.7:
            name = client.random.choice(taken)
            await client.submit(client.plan(cells, {name: None, _pointer(cells, name): None}))
        elif free_names and free_pointers:
            name, pointer = client.random.choice(free_names), client.random.choice(free_pointers)
            values: dict[Key, Value] = {name: {"pointer": pointer}, pointer: {"name": name, "made": number}}
            await client.submit(client.plan(cells, values))


async def _rename(client: Client, cells: Mapping[Key, Cell], old: Key, new: Key) -> None:
    pointer = _pointer(cells, old)
    values = {old: None, new: {"pointer": pointer}, pointer: {**(cells[pointer].value or {}), "name": new}}
    await client.submit(client.plan(cells, values))


def _pointer(cells: Mapping[Key, Cell], name: Key) -> Key:
    return Key((cells[name].value or {})["pointer"])


async def directory_reader(client: Client, names: Sequence[Key], pointers: Sequence[Key], rounds: int) -> None:
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        check_directory(await client.read([*names, *pointers]), names, pointers)


# --- namespaces ---


def children_prefix(parent: Key) -> str:
    return key_of("w", "names", parent.rpartition("/")[2])


def no_orphans(parents: Sequence[Key]) -> Invariant:
    """No live child below a parent that is not there."""

    def check(oracle: Oracle, effect: Effect) -> None:
        for parent in parents:
            if oracle.current(parent)[1] is not None:
                continue
            below = children_prefix(parent) + "/"
            for key, history in oracle.versions.items():
                if key.startswith(below) and history[-1].value is not None:
                    raise PromiseBroken("P4", f"{key} lives, but {parent} does not, after {effect.id}")

    return check


async def founder(client: Client, parents: Sequence[Key], rounds: int) -> None:
    """Creates namespaces, and children below them on the strength of having read them."""
    for number in range(rounds):
        await client.pause()
        if not client.running:
            return
        parent = client.random.choice(parents)
        child = Key(f"{children_prefix(parent)}/c{client.random.randint(0, 2)}")
        cells = await client.read([parent, child])
        value = cells[parent].value
        if value is None:
            await client.submit(client.plan(cells, {parent: {"made": number}}))
        elif cells[child].value is not None:
            await client.submit(client.plan(cells, {child: None}, reads=[parent]))
        elif "marked" not in value:
            await client.submit(client.plan(cells, {child: {"made": number}}, reads=[parent]))


async def demolisher(client: Client, parents: Sequence[Key], rounds: int, counters: Counters) -> None:
    """Drops namespaces: mark it, look for children, then drop or unmark. It finishes what it began."""
    for _ in range(rounds):
        await client.pause()
        if not client.running:
            return
        parent = client.random.choice(parents)
        cells = await client.read([parent])
        if cells[parent].value is None:
            continue
        marked = await client.submit(client.plan(cells, {parent: {"marked": client.new_id()}}))
        if not isinstance(marked, Committed):
            continue
        children = (await client.scan(children_prefix(parent))).cells
        cells = await client.read([parent])
        if (cells[parent].value or {}).get("marked") is None or cells[parent].writer != marked.id:
            # Somebody else has marked it anew, dropped it or unmarked it: the children we saw prove nothing now.
            continue
        dropped = await client.submit(client.plan(cells, {parent: {"unmarked": 1} if children else None}))
        if isinstance(dropped, Committed):
            counters["namespace drop refused" if children else "namespace dropped"] += 1
