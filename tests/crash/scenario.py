"""What the victim does, and what the auditor must find afterwards.

The victim commits one transaction that writes two cells and depends on a third. It is killed at some point of that.
Whatever the point, the auditor must find all of it or none of it, the record must agree, and the same transaction sent
again must have happened exactly once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from lakepact.errors import TransactionNotFound, WrongState
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Committed, Prepared, Read, State, Transaction, Write
from lakepact.kernel.ports import CellStore
from lakepact.kernel.settings import KernelSettings

LEFT, RIGHT, SIDE = key_of("crash", "left"), key_of("crash", "right"), key_of("crash", "side")
ANSWER = {"answer": "it happened"}
SETTINGS = KernelSettings(lease_s=0.1, open_ttl_s=60.0, backoff_s=0.01, max_backoff_s=0.05)


@dataclass(frozen=True)
class Job:
    """One transaction, planned on the revision both cells have."""

    id: TransactionId
    base: int

    @property
    def transaction(self) -> Transaction:
        return Transaction(
            self.id,
            f"hash {self.base}",
            (Write(LEFT, self.base, self.value), Write(RIGHT, self.base, self.value)),
            (Read(SIDE, 1),),
            ANSWER,
        )

    @property
    def value(self) -> dict[str, object]:
        return {"n": self.base + 1, "by": self.id}


Act = Callable[[CellStore, Job], Awaitable[None]]


async def seed(store: CellStore, transaction_id: TransactionId) -> None:
    cells = (Write(LEFT, 0, {"n": 1}), Write(RIGHT, 0, {"n": 1}), Write(SIDE, 0, {"n": 1}))
    assert isinstance(await store.commit(Transaction(transaction_id, "seed", cells)), Committed)


async def commit_at_once(store: CellStore, job: Job) -> None:
    assert isinstance(await store.commit(job.transaction), Committed)


async def commit_in_steps(store: CellStore, job: Job) -> None:
    """Begin, read, stage twice, prepare, commit: every step may be repeated with the same ids after a crash."""
    await store.begin(job.id, request_hash=job.transaction.request_hash)
    with suppress(WrongState):
        # Unless it was sealed before the crash: then all of it is staged already.
        await store.read_in(job.id, [LEFT, SIDE])
        await store.stage(job.id, "left", {LEFT: job.value})
        await store.stage(job.id, "right", {RIGHT: job.value})
    sealed = await store.seal(job.id, ANSWER)
    assert isinstance(await store.prepare(sealed), Prepared | Committed)
    assert isinstance(await store.commit(sealed), Committed)


ACTS: dict[str, Act] = {"at-once": commit_at_once, "in-steps": commit_in_steps}


async def audit(store: CellStore, job: Job, act: Act) -> bool:
    """Check what a crash has left, then finish the job. Whether it had happened before the crash."""
    record = await store.lookup(job.id)
    cut = await store.read([LEFT, RIGHT, SIDE])
    revisions = {cut[LEFT].revision, cut[RIGHT].revision}
    assert len(revisions) == 1, f"P1: half of transaction {job.id} is visible: {cut}"
    happened = revisions == {job.base + 1}
    assert happened or revisions == {job.base}, f"P2: unexpected revisions {revisions}, planned on {job.base}"
    after = await store.lookup(job.id)
    assert (after is not None and after.state is State.COMMITTED) == happened, f"P9: {after} but visible={happened}"
    if record is not None and record.state is State.COMMITTED:
        assert happened, f"P5: the record said committed and the cells do not show it: {cut}"

    await _again(store, job, act)
    final = await store.read([LEFT, RIGHT])
    for key in (LEFT, RIGHT):
        assert final[key].revision == job.base + 1, f"P3: {key} is at {final[key].revision}, not {job.base + 1}"
        assert final[key].value == job.value
        assert final[key].writer == job.id
    replayed = await store.commit(job.transaction) if act is commit_at_once else None
    assert replayed is None or (isinstance(replayed, Committed) and replayed.replayed and replayed.answer == ANSWER)

    while (await store.recover()).more:
        pass
    settled = await store.recover()
    assert (settled.finished, settled.given_up, settled.expired, settled.left) == (0, 0, 0, 0), f"P7: {settled}"
    return happened


async def _again(store: CellStore, job: Job, act: Act) -> None:
    try:
        await act(store, job)
    except TransactionNotFound as error:
        raise AssertionError(f"P3: the record of {job.id} is gone: {error}") from error
