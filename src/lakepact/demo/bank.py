"""Accounts are cells, a transfer is a transaction over two or three of them, and the total never changes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import rfc8785

from lakepact.errors import Contended, LakepactError, OutcomeUnknown, StoreUnavailable
from lakepact.kernel.identity import TransactionId, parse_transaction_id, uuid7
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Busy, Cell, Committed, Conflict, Failed, State, Transaction, Write
from lakepact.kernel.ports import CellStore, Clock, Rng

OPENING_BALANCE = 1_000
LARGEST_AMOUNT = 100
GIVE_UP_AFTER_S = 20.0


@dataclass(frozen=True, slots=True)
class Bank:
    """The accounts of one run. Every run has its own key prefix, so runs can share a store."""

    run: str
    accounts: int

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key_of("demo", self.run, "accounts", f"{number:02d}") for number in range(self.accounts))

    @property
    def total(self) -> int:
        return self.accounts * OPENING_BALANCE

    def opening(self) -> Transfer:
        """The one transaction that creates every account."""
        return Transfer(
            id=parse_transaction_id(self.run),
            legs=dict.fromkeys(self.keys, OPENING_BALANCE),
            plan=tuple(Write(key, 0, {"balance": OPENING_BALANCE}) for key in self.keys),
        )


@dataclass(frozen=True, slots=True)
class Transfer:
    """An intention, complete enough to be sent again word for word by another process."""

    id: TransactionId
    legs: Mapping[Key, int]
    plan: tuple[Write, ...]

    def transaction(self) -> Transaction:
        digest = hashlib.sha256(rfc8785.dumps(self.to_json())).hexdigest()
        return Transaction(id=self.id, request_hash=digest, writes=self.plan, answer={"moved": dict(self.legs)})

    def to_json(self) -> dict[str, Any]:
        plan = [[write.key, write.revision, dict(write.value or {})] for write in self.plan]
        return {"id": str(self.id), "legs": dict(self.legs), "plan": plan}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        return cls(
            id=parse_transaction_id(document["id"]),
            legs={Key(key): amount for key, amount in document["legs"].items()},
            plan=tuple(Write(Key(key), revision, value) for key, revision, value in document["plan"]),
        )


def fresh_id(clock: Clock, rng: Rng) -> TransactionId:
    return uuid7(clock.now_ms(), rng.bits(74))


def plan_transfer(transaction_id: TransactionId, cells: Sequence[Cell], chance: random.Random) -> Transfer | None:
    """Move something from the first of these accounts to the others; None if it is empty."""
    source, *targets = cells
    legs: dict[Key, int] = {}
    left = balance_of(source)
    for target in targets:
        amount = chance.randint(1, min(LARGEST_AMOUNT, left)) if left else 0
        legs[target.key] = amount
        left -= amount
    moved = sum(legs.values())
    if not moved:
        return None
    legs[source.key] = -moved
    plan = tuple(
        Write(cell.key, cell.revision, {"balance": balance_of(cell) + legs[cell.key]})
        for cell in sorted(cells, key=lambda cell: cell.key)
        if legs[cell.key]
    )
    return Transfer(transaction_id, {write.key: legs[write.key] for write in plan}, plan)


def balance_of(cell: Cell) -> int:
    return int(cell.value["balance"]) if cell.value is not None else 0


async def send(store: CellStore, clock: Clock, transfer: Transfer) -> Committed | Conflict | Failed:
    """Commit the transfer, however often it takes. Sending again is safe: the same id takes effect once."""
    give_up_s = clock.monotonic_s() + GIVE_UP_AFTER_S
    while True:
        pause_s = 0.05
        try:
            result = await store.commit(transfer.transaction())
        except (Contended, OutcomeUnknown, StoreUnavailable) as error:
            if clock.monotonic_s() > give_up_s:
                raise
            pause_s = getattr(error, "retry_after_s", pause_s)
        else:
            if not isinstance(result, Busy):
                return result
            pause_s = result.retry_after_s
            if clock.monotonic_s() > give_up_s:
                raise LakepactError(f"transfer {transfer.id} found its accounts busy for {GIVE_UP_AFTER_S} s")
        await clock.sleep(pause_s)


@dataclass(frozen=True, slots=True)
class Settled:
    """How a doubt ended: what had become of the transfer before anybody asked, and what became of it."""

    was_committed: bool
    is_committed: bool


async def settle(store: CellStore, clock: Clock, transfer: Transfer) -> Settled:
    """Find out by its id whether the transfer of a dead process happened, and finish it if it did not."""
    record = await store.lookup(transfer.id)
    if record is not None and record.state is State.COMMITTED:
        return Settled(was_committed=True, is_committed=True)
    # Not committed when we looked. Sending the same request under the same id either finishes it or refuses it for
    # good; were the dead process's last request still on its way, this would find it and give back its answer.
    result = await send(store, clock, transfer)
    if isinstance(result, Committed):
        return Settled(was_committed=result.replayed, is_committed=True)
    return Settled(was_committed=False, is_committed=False)
