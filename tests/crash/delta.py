"""What the victim does to two Delta tables, and what the auditor must find afterwards.

The victim writes the rows of the next version of both, has them planned for a later version and back again, and
commits. Version n of the left table adds `n-0` and `n-1` and removes `<n-1>-0`, so a row that is lost, left over or
counted twice shows in the files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

from lakepact.delta.actions import Action, Add, Remove, Txn
from lakepact.delta.beside import DeltaChanges, NewTable, NewVersion
from lakepact.delta.ports import DeltaRows, Swept, TableChange
from lakepact.errors import RowsGone, WrongState
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Committed, Prepared, State, Transaction, Write
from lakepact.kernel.ports import CellStore
from lakepact.stores import delta_rows
from tests.crash.scenario import Job

LEFT, RIGHT = "left", "right"


def rows_of(store: CellStore) -> DeltaRows:
    rows = delta_rows(store)
    assert rows is not None
    return rows


def cell_of(table: str) -> Key:
    return key_of("crash", "delta", table)


def actions(table: str, version: int) -> list[Action]:
    if table == RIGHT:
        return [Add(f"{version}", {}, 1, 1), Txn("victim", version)]
    gone: list[Action] = [Remove(f"{version - 1}-0", 1)] if version > 1 else []
    return [Add(f"{version}-0", {}, 1, 1), Add(f"{version}-1", {}, 1, 1), *gone]


def live(table: str, version: int) -> set[str]:
    if table == RIGHT:
        return {f"{number}" for number in range(1, version + 1)}
    return {f"{version}-0"} | {f"{number}-1" for number in range(1, version + 1)} if version else set()


def transaction(job: Job) -> Transaction:
    """Version n of a table is revision n + 1 of its cell; the job is planned on revision `base`."""
    said = {table: actions(table, job.base) for table in (LEFT, RIGHT)}
    versions = tuple(
        NewVersion(
            table,
            job.base,
            job.base + 1,
            "WRITE",
            sum(isinstance(action, Add) for action in said[table]),
            sum(isinstance(action, Remove) for action in said[table]),
        )
        for table in said
    )
    writes = tuple(Write(cell_of(table), job.base, {"version": job.base}) for table in said)
    beside = DeltaChanges("crash", versions=versions).document()
    return Transaction(job.id, hash_of(job), writes, answer={"ok": True}, beside=beside)


def hash_of(job: Job) -> str:
    return f"hash {job.base}"


async def seed(store: CellStore, transaction_id: TransactionId) -> None:
    tables = (LEFT, RIGHT)
    changes = DeltaChanges(
        "crash",
        create=tuple(NewTable(table, ".", table, f"file:///{table}") for table in tables),
        versions=tuple(NewVersion(table, 0, 1, "CREATE") for table in tables),
        mirrors=dict.fromkeys(tables, ("delta_log",)),
    )
    await rows_of(store).put(transaction_id, [TableChange(table, 0, []) for table in tables], request_hash="seed")
    writes = tuple(Write(cell_of(table), 0, {"version": 0}) for table in tables)
    made = await store.commit(Transaction(transaction_id, "seed", writes, beside=changes.document()))
    assert isinstance(made, Committed)


async def _put(store: CellStore, job: Job) -> None:
    rows, request_hash = rows_of(store), hash_of(job)
    changes = [TableChange(table, job.base, actions(table, job.base)) for table in (LEFT, RIGHT)]
    await rows.put(job.id, changes, request_hash=request_hash)
    # Published already if the crash came after the commit: then there is nothing to move.
    with suppress(RowsGone):
        await rows.move(job.id, RIGHT, job.base, job.base + 7, request_hash=request_hash)
        await rows.move(job.id, RIGHT, job.base + 7, job.base, request_hash=request_hash)


async def publish_at_once(store: CellStore, job: Job) -> None:
    await _put(store, job)
    assert isinstance(await store.commit(transaction(job)), Committed)
    # One more thing to be killed at: the commit has been answered.
    await rows_of(store).table(LEFT)


async def publish_in_steps(store: CellStore, job: Job) -> None:
    plan = transaction(job)
    await store.begin(job.id, request_hash=plan.request_hash)
    with suppress(WrongState):
        await rows_of(store).stage(job.id, LEFT, "1", "[]")
        await store.stage(job.id, "1", {write.key: write.value for write in plan.writes})
    await _put(store, job)
    sealed = replace(await store.seal(job.id, plan.answer), beside=plan.beside)
    assert isinstance(await store.prepare(sealed), Prepared | Committed)
    assert isinstance(await store.commit(sealed), Committed)
    await rows_of(store).table(LEFT)


Act = Callable[[CellStore, Job], Awaitable[None]]
DELTA_ACTS: dict[str, Act] = {"delta-at-once": publish_at_once, "delta-in-steps": publish_in_steps}


async def audit(store: CellStore, job: Job, act: Act) -> bool:
    """Check what a crash has left, then finish the job. Whether it had happened before the crash."""
    before = await _version(store)
    record = await store.lookup(job.id)
    happened = before == job.base
    assert happened or before == job.base - 1, f"P2: version {before}, planned for {job.base}"
    assert (record is not None and record.state is State.COMMITTED) == happened, f"P9: {record}, visible={happened}"
    await act(store, job)
    assert await _version(store) == job.base, "P3"
    rows = rows_of(store)
    assert await rows.sweep(grace_s=-3_600) == Swept(), "something was left over that nobody will publish"
    assert await rows.staged(job.id) == {}
    assert len(await rows.outgoing("crash")) == job.base + 1
    return happened


async def _version(store: CellStore) -> int:
    """The version both tables are at, by their cells, their rows and their files alike."""
    rows = rows_of(store)
    cells = await store.read([cell_of(table) for table in (LEFT, RIGHT)])
    found = {cell.value["version"] for cell in cells.values() if cell.value is not None}
    assert len(found) == 1, f"P1: half of a transaction is visible: {cells}"
    version: int = found.pop()
    for table in (LEFT, RIGHT):
        row = await rows.table(table)
        assert row is not None and row.current_version == version, f"P1: cells say {version}, rows say {row}"
        paths = [file.path for file in await rows.files(table, version)]
        assert len(paths) == len(set(paths)) and set(paths) == live(table, version), f"{table}: {paths}"
        for earlier in {max(0, version - 1), version // 2}:
            assert {file.path for file in await rows.files(table, earlier)} == live(table, earlier)
    return version
