"""The demo's own judgement is worth something: transfers keep the total, and every kind of loss is noticed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lakepact.demo.bank import OPENING_BALANCE, Bank, Transfer, balance_of, fresh_id, plan_transfer, send, settle
from lakepact.demo.director import Answers, Cuts
from lakepact.demo.journal import Follower, Journal, in_doubt
from lakepact.demo.verdict import happened_once, looked_up, total_is_kept
from lakepact.kernel.model import Cell, Committed, Conflict
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores import open_store

CLOCK, RNG = SystemClock(), SystemRng()


def a_bank() -> Bank:
    return Bank(str(fresh_id(CLOCK, RNG)), accounts=4)


async def opened(bank: Bank) -> CellStore:
    store = await open_store("memory://")
    assert isinstance(await send(store, CLOCK, bank.opening()), Committed)
    return store


async def a_transfer(store: CellStore, bank: Bank, seed: int = 1) -> Transfer:
    chance = random.Random(seed)
    keys = chance.sample(bank.keys, 3)
    cells = await store.read(keys)
    planned = plan_transfer(fresh_id(CLOCK, RNG), [cells[key] for key in keys], chance)
    assert planned is not None
    return planned


@pytest.mark.parametrize("seed", range(50))
def test_a_transfer_moves_and_never_makes_or_overdraws(seed: int) -> None:
    chance = random.Random(seed)
    cells = [Cell(key, 1, {"balance": chance.randint(0, 150)}) for key in a_bank().keys[:3]]
    planned = plan_transfer(fresh_id(CLOCK, RNG), cells, chance)
    if planned is None:
        assert balance_of(cells[0]) == 0
        return
    assert sum(planned.legs.values()) == 0
    assert all(write.value is not None and write.value["balance"] >= 0 for write in planned.plan)
    assert Transfer.from_json(planned.to_json()) == planned


async def test_a_doubt_is_settled_by_id_whether_the_transfer_happened_or_not() -> None:
    bank = a_bank()
    store = await opened(bank)
    happened = await a_transfer(store, bank)
    assert isinstance(await send(store, CLOCK, happened), Committed)
    assert (await settle(store, CLOCK, happened)).was_committed

    not_yet = await a_transfer(store, bank)
    settled = await settle(store, CLOCK, not_yet)
    assert (settled.was_committed, settled.is_committed) == (False, True)

    overtaken, faster = await a_transfer(store, bank), await a_transfer(store, bank)
    assert isinstance(await send(store, CLOCK, faster), Committed)
    settled = await settle(store, CLOCK, overtaken)
    assert (settled.was_committed, settled.is_committed) == (False, False)
    assert isinstance(await send(store, CLOCK, overtaken), Conflict)
    await store.close()


def test_a_journal_tells_what_was_begun_and_never_ended_even_if_its_last_line_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    bank = a_bank()
    ended, begun = bank.opening(), a_bank().opening()
    journal = Journal(path)
    journal.note("intent", transfer=ended.to_json())
    journal.note("outcome", id=ended.id, committed=True)
    journal.note("intent", transfer=begun.to_json())
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"event": "outco')
    follower = Follower(path)
    assert len(list(follower.new_entries())) == 3
    successor = Journal(path)
    assert [transfer.id for transfer in in_doubt(path)] == [begun.id]
    successor.note("settled", id=begun.id, was=True, committed=True)
    assert [entry["event"] for entry in follower.new_entries()] == ["settled"]
    assert in_doubt(path) == []


def test_answers_add_up() -> None:
    answers = Answers()
    one, other = a_bank().opening(), a_bank().opening()
    for transfer in (one, other):
        answers.learn({"event": "intent", "transfer": transfer.to_json()})
    answers.learn({"event": "outcome", "id": one.id, "committed": True})
    assert [transfer.id for transfer in answers.in_doubt] == [other.id]
    answers.learn({"event": "settled", "id": other.id, "was": False, "committed": False})
    assert (answers.committed, answers.conflicted, answers.were_not) == ({one.id}, {other.id}, 1)


def test_a_cut_that_does_not_add_up_or_goes_back_in_time_is_noticed() -> None:
    cuts = Cuts()
    cuts.learn({"event": "cut", "total": 10, "backwards": []}, total=10)
    assert not cuts.wrong
    cuts.learn({"event": "cut", "total": 9, "backwards": []}, total=10)
    cuts.learn({"event": "cut", "total": 10, "backwards": ["a"]}, total=10)
    assert (cuts.audited, len(cuts.wrong)) == (3, 2)


async def test_a_lost_a_doubled_and_a_forged_change_are_noticed() -> None:
    bank = a_bank()
    store = await opened(bank)
    transfer = await a_transfer(store, bank)
    await send(store, CLOCK, transfer)
    cells = dict(await store.read(bank.keys))
    records = await looked_up(store, [bank.opening().id, transfer.id])
    assert happened_once(bank, cells, records) == ()
    assert total_is_kept(bank, cells) == ()

    key = transfer.plan[0].key
    lost = {**cells, key: Cell(key, 1, {"balance": OPENING_BALANCE}, bank.opening().id)}
    assert happened_once(bank, lost, records)
    assert total_is_kept(bank, lost)
    doubled = {**cells, key: Cell(key, 3, cells[key].value, transfer.id)}
    assert happened_once(bank, doubled, records)
    forged = {**cells, key: Cell(key, 2, cells[key].value, bank.opening().id)}
    assert happened_once(bank, forged, records)
    await store.close()
