"""The pure rules, one claim each."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakepact.errors import Damaged, KeyReused, MissingRecord
from lakepact.kernel import decide
from lakepact.kernel.decide import Claim, Identity, Settled, Standing, Upkeep
from lakepact.kernel.documents import CellDocument, Lock, RecordDocument
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Read, State, Transaction, Write

A, B, C = key_of("a"), key_of("b"), key_of("c")
ID = uuid7(1_800_000_000_000, 7)
OTHER = uuid7(1_800_000_000_000, 8)
ME = Identity("me", now_ms=1_000, lease_ms=11_000)
PLAN = Transaction(ID, "hash", (Write(A, 3, {"n": 4}), Write(B, 0, {"n": 1})), (Read(C, 2),))


def record(**changes: object) -> RecordDocument:
    return replace(decide.preparing(PLAN, ME, 1), **changes)  # type: ignore[arg-type]


def cell(revision: int = 3, *, epoch: int | None = 1, owner: str = ID) -> CellDocument:
    lock = Lock(ID if owner == ID else OTHER, epoch) if epoch is not None else None
    return CellDocument(A, revision, 5, {"n": revision}, OTHER, lock)


def test_an_unlocked_cell_is_what_it_says() -> None:
    assert decide.resolve(cell(epoch=None), None).standing is Standing.FREE


def test_a_committed_lock_shows_the_planned_value() -> None:
    seen = decide.resolve(cell(), record(state=State.COMMITTED))
    assert seen.standing is Standing.COMMITTED
    assert (seen.cell.revision, seen.cell.value, seen.cell.writer) == (4, {"n": 4}, ID)


@pytest.mark.parametrize("state", [State.PREPARING, State.PREPARED])
def test_an_undecided_lock_shows_the_old_value(state: State) -> None:
    seen = decide.resolve(cell(), record(state=state))
    assert seen.standing is Standing.UNDECIDED
    assert seen.cell.revision == 3


@pytest.mark.parametrize("state", [State.FAILED, State.ABORTED, State.RETRYABLE, State.OPEN])
def test_a_lock_of_a_transaction_that_is_over_is_stale(state: State) -> None:
    assert decide.resolve(cell(), record(state=state)).standing is Standing.STALE


@pytest.mark.parametrize(
    ("document", "of"),
    [
        (cell(epoch=1), record(epoch=2)),
        (cell(epoch=1), record(epoch=2, state=State.COMMITTED)),
        (cell(revision=4), record(state=State.COMMITTED)),
        (cell(), record(plan={}, state=State.COMMITTED)),
        (cell(), decide.trimmed(record(state=State.COMMITTED))),
    ],
    ids=["older-epoch", "older-epoch-committed", "other-revision", "not-in-plan", "stub"],
)
def test_a_lock_that_does_not_count_is_stale(document: CellDocument, of: RecordDocument) -> None:
    seen = decide.resolve(document, of)
    assert seen.standing is Standing.STALE
    assert seen.cell == document.cell


def test_a_lock_seen_before_its_record_was_finalized_still_shows_the_planned_value() -> None:
    assert decide.resolve(cell(), record(state=State.COMMITTED, finalized=True)).cell.revision == 4


def test_a_lock_without_a_record_fails_closed() -> None:
    with pytest.raises(MissingRecord):
        decide.resolve(cell(), None)


def test_a_lock_beyond_its_records_epoch_is_damage() -> None:
    with pytest.raises(Damaged):
        decide.resolve(cell(epoch=2), record())


def test_readers_wait_only_for_reads_that_are_not_locked() -> None:
    assert decide.resolve(cell(), record()).blocks_readers
    assert not decide.resolve(cell(), record(reads_locked=True)).blocks_readers
    assert not decide.resolve(cell(), record(reads={})).blocks_readers


def test_settling_never_touches_a_newer_attempts_lock() -> None:
    assert decide.settled(cell(epoch=2), record(state=State.RETRYABLE)) is None
    assert decide.settled(cell(epoch=None), record(state=State.COMMITTED)) is None


def test_settling_a_committed_cell_applies_it_and_a_stale_one_only_clears() -> None:
    applied = decide.settled(cell(), record(state=State.COMMITTED))
    assert applied is not None
    assert (applied.revision, applied.value, applied.lock, applied.writes) == (4, {"n": 4}, None, 6)
    cleared = decide.settled(cell(), record(state=State.FAILED))
    assert cleared is not None
    assert (cleared.revision, cleared.writer, cleared.lock, cleared.writes) == (3, OTHER, None, 6)


def test_a_take_over_raises_the_epoch_and_forgets_no_touched_cell() -> None:
    smaller = Transaction(ID, "hash", (Write(A, 3, {"n": 9}),))
    taken = decide.taken_over(record(state=State.RETRYABLE), smaller, Identity("you", 2_000, 12_000))
    assert (taken.epoch, taken.owner, taken.state) == (2, "you", State.PREPARING)
    assert set(taken.plan) == {A}
    assert set(taken.touched) == {A, B, C}


def test_every_rewrite_raises_writes() -> None:
    before = record()
    after = [
        decide.taken_over(before, PLAN, ME),
        decide.stepped_back(before, ME),
        decide.prepared(before, 5),
        decide.committed(before, {}, 5),
        decide.failed(before, ME),
        decide.retryable(before, 5),
        decide.aborted(before, 5),
        decide.finalized(before),
        decide.trimmed(before),
        decide.renewed(before, 5),
    ]
    assert {document.writes for document in after} == {before.writes + 1}


@pytest.mark.parametrize(
    ("state", "now_ms", "expected"),
    [
        (State.COMMITTED, 0, Claim.REPLAY),
        (State.FAILED, 0, Claim.REPLAY),
        (State.ABORTED, 0, Claim.REPLAY),
        (State.RETRYABLE, 0, Claim.TAKE_OVER),
        (State.PREPARING, 10_999, Claim.WAIT),
        (State.PREPARING, 11_000, Claim.TAKE_OVER),
        (State.OPEN, 19_999, Claim.TAKE_OVER),
        (State.OPEN, 20_000, Claim.EXPIRE),
        (State.PREPARED, 19_999, Claim.COMMIT_PREPARED),
        (State.PREPARED, 20_000, Claim.EXPIRE),
    ],
)
def test_the_same_id_again(state: State, now_ms: int, expected: Claim) -> None:
    expires_ms = None if state is State.RETRYABLE else 20_000
    assert decide.claim(record(state=state, expires_ms=expires_ms), "hash", now_ms) is expected


@pytest.mark.parametrize("state", list(State))
def test_the_hash_is_compared_in_every_state(state: State) -> None:
    with pytest.raises(KeyReused, match="different request"):
        decide.claim(record(state=state), "another", 0)


@pytest.mark.parametrize(
    ("changes", "now_ms", "expected"),
    [
        ({"state": State.COMMITTED}, 0, Upkeep.FINISH),
        ({"state": State.COMMITTED, "finalized": True}, 0, Upkeep.NOTHING),
        ({"state": State.FAILED}, 0, Upkeep.FINISH),
        ({"state": State.PREPARING}, 10_999, Upkeep.NOTHING),
        ({"state": State.PREPARING}, 11_000, Upkeep.GIVE_UP),
        ({"state": State.RETRYABLE, "retry_until_ms": 50}, 49, Upkeep.RELEASE),
        ({"state": State.RETRYABLE, "retry_until_ms": 50}, 50, Upkeep.EXPIRE),
        ({"state": State.OPEN, "expires_ms": 50}, 50, Upkeep.EXPIRE),
        ({"state": State.PREPARED, "expires_ms": 50}, 49, Upkeep.NOTHING),
        ({"state": State.PREPARED, "expires_ms": 50}, 50, Upkeep.EXPIRE),
    ],
)
def test_upkeep(changes: dict[str, object], now_ms: int, expected: Upkeep) -> None:
    assert decide.upkeep(record(**changes), now_ms) is expected


def test_an_unknown_record_write_is_ours_only_with_our_owner_epoch_and_state() -> None:
    intended = decide.committed(record(), {}, 5)
    assert decide.settle_record(intended, intended, unchanged=False) is Settled.APPLIED
    assert decide.settle_record(intended, decide.finalized(intended), unchanged=False) is Settled.APPLIED
    assert decide.settle_record(intended, record(), unchanged=True) is Settled.NOT_YET
    assert decide.settle_record(intended, decide.retryable(record(), 5), unchanged=False) is Settled.LOST
    assert decide.settle_record(intended, replace(intended, owner="you"), unchanged=False) is Settled.LOST
    assert decide.settle_record(record(), None, unchanged=True) is Settled.NOT_YET


def test_an_unknown_lock_is_held_only_at_our_epoch() -> None:
    lock = Lock(ID, 1)
    assert decide.settle_lock(lock, cell(), unchanged=False) is Settled.APPLIED
    assert decide.settle_lock(lock, cell(epoch=None), unchanged=True) is Settled.NOT_YET
    assert decide.settle_lock(lock, cell(owner=OTHER), unchanged=False) is Settled.LOST
    assert decide.settle_lock(lock, cell(epoch=2), unchanged=False) is Settled.LOST
