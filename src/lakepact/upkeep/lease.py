"""A lease in a cell: at most one process believes to hold it, give or take the difference of clocks.

It saves work and is no lock: two that both believe to hold it do no harm, since every job may be done by anyone, any
number of times. Taking and renewing are ordinary commits, each under a fresh id, so two that reach for a lease at the
same time cannot both be told yes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lakepact.errors import LakepactError
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Cell, Committed, Transaction, Write
from lakepact.kernel.ports import CellStore, Clock, Rng

UPKEEP: Final = key_of("lakepact", "upkeep", "lease")


class Lease:
    def __init__(
        self, store: CellStore, clock: Clock, rng: Rng, *, owner: str, lease_s: float, key: Key = UPKEEP
    ) -> None:
        """`owner` names this holder, and must be no other's name."""
        self._store = store
        self._clock = clock
        self._rng = rng
        self._owner = owner
        self._lease_s = lease_s
        self._key = key
        self.note: Callable[[], Mapping[str, object]] = dict
        """What the holder has to say to others: written with the lease, whenever that is written anyway."""

    async def hold(self) -> bool:
        """Take the lease or renew it: whether it is held from now on.

        A lease that has expired may be taken by anyone, and so may one whose cell cannot be understood. If it is not
        known whether the commit happened, the lease is not held; if it was taken all the same, the next call says so.
        """
        cell = await self._cell()
        holder, until_ms = _content(cell)
        now_ms = self._clock.now_ms()
        whole_ms = int(self._lease_s * 1000)
        if holder != self._owner and until_ms > now_ms:
            return False
        if holder == self._owner and until_ms - now_ms > whole_ms // 2:
            # Every renewal leaves a record in the store; one for half a lease is enough.
            return True
        return await self._write(cell, {**self.note(), "owner": self._owner, "until_ms": now_ms + whole_ms})

    async def release(self) -> None:
        """Let go of the lease if it is held, so that another need not wait for its end."""
        cell = await self._cell()
        if _content(cell)[0] == self._owner:
            await self._write(cell, {**self.note(), "owner": self._owner, "until_ms": 0})

    async def _cell(self) -> Cell:
        return (await self._store.read([self._key]))[self._key]

    async def _write(self, cell: Cell, value: dict[str, object]) -> bool:
        id = uuid7(self._clock.now_ms(), self._rng.bits(74))
        transaction = Transaction(id, "", (Write(self._key, cell.revision, value),))
        try:
            return isinstance(await self._store.commit(transaction), Committed)
        except LakepactError:
            return False


def _content(cell: Cell) -> tuple[str, int]:
    value = cell.value or {}
    owner, until_ms = value.get("owner"), value.get("until_ms")
    if isinstance(owner, str) and isinstance(until_ms, int):
        return owner, until_ms
    return "", 0
