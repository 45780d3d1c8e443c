"""When all is over: does the store agree with every answer that was ever given?"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakepact.demo.bank import Bank, balance_of, settle
from lakepact.demo.director import Run
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, State, TransactionRecord
from lakepact.kernel.ports import CellStore, Clock

LOOKUPS_AT_ONCE = 64
MOST_PASSES = 100


@dataclass(frozen=True, slots=True)
class Check:
    """One claim, whether it holds, and the promise of `docs/protocol.md` it belongs to."""

    claim: str
    promise: str
    problems: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return not self.problems


@dataclass(frozen=True, slots=True)
class Summary:
    """What was tried, what became of it, and whether anything was lost."""

    store: str
    seconds: float
    movers: int
    accounts: int
    total: int
    tried: int
    committed: int
    conflicted: int
    killed: int
    in_doubt: int
    were_committed: int
    were_not: int
    finished_late: int
    cuts: int
    checks: tuple[Check, ...]

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)


async def settle_the_rest(store: CellStore, clock: Clock, run: Run) -> None:
    """The last victims were never restarted, or not for long enough: settle their doubts for them."""
    for answers in run.answers:
        for transfer in answers.in_doubt:
            settled = await settle(store, clock, transfer)
            answers.settled(transfer.id, was=settled.was_committed, committed=settled.is_committed)


async def judge(store: CellStore, run: Run, store_name: str, seconds: float) -> Summary:
    await recover_all(store)
    intended = {id for answers in run.answers for id in answers.intended}
    committed = {id for answers in run.answers for id in answers.committed}
    conflicted = {id for answers in run.answers for id in answers.conflicted}
    cells = await store.read(run.bank.keys)
    records = await looked_up(store, [run.bank.opening().id, *sorted(intended)])
    await recover_all(store)
    cells_after = await store.read(run.bank.keys)
    applied = {id for id, record in records.items() if record.state is State.COMMITTED}
    checks = (
        Check("the processes ended only when killed or asked to", "", tuple(run.misfortunes)),
        Check("every audited cut added up", "P1", cuts_added_up(run)),
        Check("the final total is the opening total", "P2", total_is_kept(run.bank, cells)),
        Check(
            "every acknowledged transfer is in the store",
            "P5",
            tuple(f"{id} was acknowledged and is not committed" for id in sorted(committed - applied)),
        ),
        Check("every acknowledged transfer happened exactly once", "P3", happened_once(run.bank, cells, records)),
        Check("the balances are those the acknowledged transfers make", "P3", balances_follow(run, cells, committed)),
        Check(
            "every refused transfer left no trace",
            "P9",
            tuple(f"{id} was refused and is committed" for id in sorted(conflicted & applied)),
        ),
        Check("every doubt was settled", "P9", tuple(f"{id} is in doubt" for id in intended - committed - conflicted)),
        Check(
            "nothing is left unfinished",
            "P6",
            tuple(f"{id} is {record.state}" for id, record in records.items() if not is_finished(record)),
        ),
        Check(
            "recovering once more changes nothing",
            "P7",
            tuple(f"{key} changed" for key in run.bank.keys if cells[key] != cells_after[key]),
        ),
    )
    return Summary(
        store=store_name,
        seconds=round(seconds, 1),
        movers=len(run.movers),
        accounts=run.bank.accounts,
        total=run.bank.total,
        tried=len(intended),
        committed=len(committed),
        conflicted=len(conflicted),
        killed=sum(worker.kills for worker in run.movers),
        in_doubt=sum(answers.were_committed + answers.were_not for answers in run.answers),
        were_committed=sum(answers.were_committed for answers in run.answers),
        were_not=sum(answers.were_not for answers in run.answers),
        finished_late=sum(answers.finished_late for answers in run.answers),
        cuts=run.cuts.audited,
        checks=checks,
    )


async def recover_all(store: CellStore) -> None:
    for _ in range(MOST_PASSES):
        if not (await store.recover()).more:
            return


def is_finished(record: TransactionRecord) -> bool:
    return record.state.final and record.finalized


async def looked_up(store: CellStore, ids: Iterable[TransactionId]) -> dict[TransactionId, TransactionRecord]:
    waiting = list(ids)
    found: dict[TransactionId, TransactionRecord] = {}
    while waiting:
        some, waiting = waiting[:LOOKUPS_AT_ONCE], waiting[LOOKUPS_AT_ONCE:]
        records = await asyncio.gather(*(store.lookup(id) for id in some))
        found.update({record.id: record for record in records if record is not None})
    return found


def cuts_added_up(run: Run) -> tuple[str, ...]:
    return tuple(run.cuts.wrong) if run.cuts.audited else ("the auditor never got a cut",)


def total_is_kept(bank: Bank, cells: Mapping[Key, Cell]) -> tuple[str, ...]:
    total = sum(balance_of(cell) for cell in cells.values())
    return () if total == bank.total else (f"the total is {total:,}; it was {bank.total:,}",)


def happened_once(
    bank: Bank, cells: Mapping[Key, Cell], records: Mapping[TransactionId, TransactionRecord]
) -> tuple[str, ...]:
    """Every revision of every account has exactly one author among the committed transactions we know.

    Revisions grow by one with every change, so a transfer applied twice, or by nobody, leaves a gap or a double.
    """
    authors: dict[tuple[Key, int], list[TransactionId]] = defaultdict(list)
    for record in records.values():
        if record.state is State.COMMITTED:
            for write in record.writes:
                authors[write.key, write.revision + 1].append(record.id)
    problems = []
    for key in bank.keys:
        for revision in range(1, cells[key].revision + 1):
            found = authors.pop((key, revision), [])
            if len(found) != 1:
                problems.append(f"revision {revision} of {key} was written by {found or 'nobody we know'}")
            elif revision == cells[key].revision and cells[key].writer != found[0]:
                problems.append(f"{key} names {cells[key].writer} as its writer, not {found[0]}")
    problems += [f"revision {revision} of {key}, by {ids}, is not there" for (key, revision), ids in authors.items()]
    return tuple(problems)


def balances_follow(run: Run, cells: Mapping[Key, Cell], committed: set[TransactionId]) -> tuple[str, ...]:
    """The journals alone, without any record of the store, lead to the same balances."""
    expected = dict(run.bank.opening().legs)
    for answers in run.answers:
        for id, transfer in answers.intended.items():
            if id in committed:
                for key, amount in transfer.legs.items():
                    expected[key] += amount
    return tuple(
        f"{key} holds {balance_of(cells[key]):,}; the journals say {expected[key]:,}"
        for key in run.bank.keys
        if balance_of(cells[key]) != expected[key]
    )
