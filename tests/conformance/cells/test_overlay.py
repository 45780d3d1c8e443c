"""Open transactions as an overlay: looking without a trace, scanning, and staging on what was shown.

A store that keeps no history may refuse what lies in the past with `SnapshotTooOld`; what it shows is never torn.

One file, as it is one contract: the docstrings of `read_in`, `scan_in`, `stage` and `contents`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lakepact.errors import (
    IllegalKey,
    InvalidRequest,
    SnapshotTooOld,
    StagedMeanwhile,
    TooManyCells,
    TransactionClosed,
    TransactionNotFound,
    WrongState,
)
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Cell, Committed, Conflict, Isolation, Prepared, State, Transaction
from lakepact.kernel.ports import CellStore
from tests.conformance.cells.world import SETTINGS, A, B, C, D, World, keys

TABLES = "main/tables"
HISTORY = ("sqlite", "postgres")
"""The stores that show an open transaction everything as of its beginning."""


def _writes(plan: Transaction) -> dict[str, tuple[int, object]]:
    return {write.key: (write.revision, write.value) for write in plan.writes}


def _reads(plan: Transaction) -> dict[str, int]:
    return {read.key: read.revision for read in plan.reads}


async def _look(store: CellStore, transaction_id: TransactionId, *wanted: Key) -> dict[Key, Cell]:
    return dict(await store.read_in(transaction_id, wanted, note=False))


async def _scan_all(store: CellStore, transaction_id: TransactionId, prefix: str, limit: int = 100) -> list[Cell]:
    found: list[Cell] = []
    after = None
    for _ in range(200):
        page = await store.scan_in(transaction_id, prefix, after, limit)
        found += page.cells
        after = page.after
        if after is None:
            return found
    raise AssertionError("the scan does not end")


# --- looking without a trace ---


async def test_looking_shows_what_reading_shows_and_notes_nothing(world: World) -> None:
    first = await world.put({A: {"n": 1}, B: {"n": 1}, D: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 2}, C: {"n": 2}, D: None})
    looked = await _look(world.store, transaction_id, A, B, C, D)
    assert looked == {
        A: Cell(A, 2, {"n": 2}, transaction_id),
        B: Cell(B, 1, {"n": 1}, first),
        C: Cell(C, 1, {"n": 2}, transaction_id),
        D: Cell(D, 2, None, transaction_id),
    }
    assert await _look(await world.open(), transaction_id, A, B, C, D) == looked
    assert await _look(world.store, transaction_id) == {}
    await world.put({B: {"n": 2}})
    assert isinstance(await world.store.commit(await world.store.seal(transaction_id)), Committed)


async def test_p1_looking_is_of_one_instant_with_everything_noted(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [A])
    await world.put({A: {"n": 2}, B: {"n": 2}})
    try:
        cells = await _look(world.store, transaction_id, B)
    except SnapshotTooOld:
        return
    assert cells[B].value == {"n": 1}


async def test_p1_one_look_is_never_torn(world: World) -> None:
    await world.put({A: {"n": 0}, B: {"n": 0}})
    transaction_id = await world.begin()
    done = asyncio.Event()

    async def move() -> None:
        for number in range(1, 15):
            await world.put({A: {"n": number}, B: {"n": number}})
        done.set()

    async def look() -> None:
        other = await world.open()
        while not done.is_set():
            cells = await _look(other, transaction_id, A, B)
            assert cells[A].value == cells[B].value

    await asyncio.gather(move(), look())


async def test_what_another_process_has_staged_is_seen_at_once(world: World) -> None:
    transaction_id = await world.begin()
    other = await world.open()
    for number in range(3):
        await world.store.stage(transaction_id, str(number), {A: {"n": number}})
        assert (await _look(other, transaction_id, A))[A] == Cell(A, 1, {"n": number}, transaction_id)
        assert (await other.scan_in(transaction_id, TABLES)).cells == (Cell(A, 1, {"n": number}, transaction_id),)


async def test_a_sealed_and_a_prepared_transaction_can_still_be_looked_at(world: World) -> None:
    first = await world.put({A: {"n": 1}, B: {"n": 1}, D: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [B])
    await world.store.stage(transaction_id, "1", {A: None, C: {"n": 2}})
    expected = {
        A: Cell(A, 2, None, transaction_id),
        B: Cell(B, 1, {"n": 1}, first),
        C: Cell(C, 1, {"n": 2}, transaction_id),
    }
    plan = await world.store.seal(transaction_id)
    for _ in range(2):
        for store in (world.store, await world.open()):
            assert await _look(store, transaction_id, A, B, C) == expected
            assert {cell.key for cell in await _scan_all(store, transaction_id, TABLES)} == {B, C, D}
            with pytest.raises(WrongState):
                await store.read_in(transaction_id, [D])
        assert isinstance(await world.store.prepare(plan), Prepared)
        # The past of a prepared transaction is kept where there is one.
        await world.put({D: {"n": 2}})
        await world.put({D: {"n": 3}})
        await world.store.recover()
    assert (await _look(world.store, transaction_id, D))[D].value == {"n": 1 if world.kind in HISTORY else 3}
    assert isinstance(await world.store.commit(plan), Committed)


async def test_a_transaction_that_was_never_open_has_no_inside(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})})
    await world.store.prepare(plan)
    for call in _looks(world.store, plan.id):
        with pytest.raises(WrongState):
            await call()
    await world.store.abort(plan.id)


async def test_nobody_looks_into_a_transaction_that_has_ended(world: World) -> None:
    world.clock.stop()
    aborted, expired, committed = [await world.begin(ttl_s=30) for _ in range(3)]
    for transaction_id in (aborted, expired, committed):
        await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    await world.store.abort(aborted)
    await world.store.commit(await world.store.seal(committed))
    world.clock.advance(60)
    for transaction_id in (aborted, expired, committed):
        for call in _looks(world.store, transaction_id):
            with pytest.raises(TransactionClosed):
                await call()
    assert (await world.record(expired)).state is State.ABORTED
    for call in _looks(world.store, world.id()):
        with pytest.raises(TransactionNotFound):
            await call()


def _looks(store: CellStore, transaction_id: TransactionId) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: store.read_in(transaction_id, [A], note=False),
        lambda: store.read_in(transaction_id, [A, B], note=False),
        lambda: store.scan_in(transaction_id, TABLES),
        lambda: store.scan_in(transaction_id, "nothing/here"),
    ]


# --- scanning ---


async def test_a_scan_inside_shows_what_is_staged_in_place_of_what_is_there(world: World) -> None:
    first = await world.put({A: {"n": 1}, B: {"n": 1}, key_of("main", "tablesother", "x"): {"n": 1}})
    transaction_id = await world.begin()
    assert {cell.key for cell in await _scan_all(world.store, transaction_id, TABLES)} == {A, B}
    await world.store.stage(transaction_id, "1", {A: None, B: {"n": 2}, C: {"n": 2}, D: None})
    await world.store.stage(transaction_id, "2", {key_of("main", "tables", "deep", "e"): {"n": 2}})
    await world.store.stage(transaction_id, "3", {key_of("other", "tables", "a"): {"n": 2}})
    shown = {cell.key: cell for cell in await _scan_all(world.store, transaction_id, TABLES)}
    assert shown == {
        B: Cell(B, 2, {"n": 2}, transaction_id),
        C: Cell(C, 1, {"n": 2}, transaction_id),
        key_of("main", "tables", "deep", "e"): Cell(key_of("main", "tables", "deep", "e"), 1, {"n": 2}, transaction_id),
    }
    outside = (await world.store.scan(TABLES)).cells
    assert {cell.key: cell.writer for cell in outside} == {A: first, B: first}
    everything = await _scan_all(world.store, transaction_id, "")
    assert len({cell.key for cell in everything}) == len(everything) == 5


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
async def test_pages_of_any_size_show_every_cell_once(world: World, limit: int) -> None:
    there, staged = keys(24), keys(30)[12:]
    dropped, gone = there[::5], there[1::6]
    await world.put({key: {"n": 1} for key in there})
    await world.put(dict.fromkeys(gone))
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {key: {"n": 2} for key in staged})
    await world.store.stage(transaction_id, "2", dict.fromkeys(dropped))
    found = await _scan_all(world.store, transaction_id, "main/cells", limit)
    expected = (set(there) - set(gone) | set(staged)) - set(dropped)
    assert len(found) == len(expected)
    assert {cell.key: cell.value for cell in found} == {
        key: {"n": 2} if key in staged else {"n": 1} for key in expected
    }


async def test_what_is_staged_between_two_pages_hides_nothing(world: World) -> None:
    everything = keys(9)
    await world.put({key: {"n": 1} for key in everything})
    transaction_id = await world.begin()
    page = await world.store.scan_in(transaction_id, "main/cells", None, 3)
    await world.store.stage(transaction_id, "1", {key: {"n": 2} for key in everything})
    found = [cell.key for cell in page.cells]
    while page.after is not None:
        page = await world.store.scan_in(transaction_id, "main/cells", page.after, 3)
        found += [cell.key for cell in page.cells]
    assert sorted(found) == everything


async def test_a_scan_is_of_the_transactions_instant_where_there_is_history(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    await _look(world.store, transaction_id, A)
    await world.put({A: {"n": 2}, B: None, C: {"n": 2}})
    await world.put({A: {"n": 3}, C: {"n": 3}})
    shown = {cell.key: cell.value for cell in await _scan_all(world.store, transaction_id, TABLES)}
    if world.kind in HISTORY:
        assert shown == {A: {"n": 1}, B: {"n": 1}}
    else:
        assert shown == {A: {"n": 3}, C: {"n": 3}}


@pytest.mark.parametrize("change", [{"n": 2}, None])
async def test_p1_a_scan_never_contradicts_what_was_noted(world: World, change: dict[str, int] | None) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [A, C])
    await world.put({A: change, C: {"n": 1}})
    try:
        shown = {cell.key: cell.value for cell in await _scan_all(world.store, transaction_id, TABLES)}
    except SnapshotTooOld:
        return
    assert shown == {A: {"n": 1}, B: {"n": 1}}


async def test_a_scan_notes_nothing(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.scan_in(transaction_id, TABLES)
    await world.store.stage(transaction_id, "1", {C: {"n": 1}})
    await world.put({A: {"n": 2}})
    plan = await world.store.seal(transaction_id)
    assert plan.reads == ()
    assert isinstance(await world.store.commit(plan), Committed)


async def test_bad_scans_are_refused(world: World) -> None:
    transaction_id = await world.begin()
    with pytest.raises(IllegalKey):
        await world.store.scan_in(transaction_id, "main//x")
    for limit in (0, SETTINGS.max_page + 1):
        with pytest.raises(InvalidRequest):
            await world.store.scan_in(transaction_id, TABLES, None, limit)
    with pytest.raises(InvalidRequest):
        await world.store.scan_in(TransactionId("nonsense"), TABLES)


# --- staging on what was shown ---


async def test_what_was_shown_is_noted_and_is_the_base(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    await world.put({B: {"n": 2}})
    transaction_id = await world.begin()
    seen = await _look(world.store, transaction_id, A, B, C, D)
    await world.store.stage(transaction_id, "1", {A: {"n": 2}, C: {"n": 2}}, seen=seen)
    plan = await world.store.seal(transaction_id)
    assert _writes(plan) == {A: (1, {"n": 2}), C: (0, {"n": 2})}
    assert _reads(plan) == {B: 2, D: 0}
    assert isinstance(await world.store.commit(plan), Committed)


async def test_p4_what_was_shown_and_has_moved_by_the_commit_is_a_conflict(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    for moving in (A, B, C):
        transaction_id = await world.begin()
        seen = await _look(world.store, transaction_id, A, B, C)
        await world.store.stage(transaction_id, "1", {A: {"n": 2}}, seen=seen)
        await world.put({moving: {"n": 9}})
        result = await world.store.commit(await world.store.seal(transaction_id))
        assert isinstance(result, Conflict)
        assert [moved.key for moved in result.moved] == [moving]


async def test_p4_what_has_moved_between_the_look_and_the_staging_never_commits(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    seen = await _look(world.store, transaction_id, A, B)
    await world.put({B: {"n": 2}})
    try:
        await world.store.stage(transaction_id, "1", {A: {"n": 2}}, seen=seen)
    except SnapshotTooOld:
        return
    assert isinstance(await world.store.commit(await world.store.seal(transaction_id)), Conflict)


async def test_p1_two_looks_of_two_instants_are_never_committed_together(world: World) -> None:
    for isolation in Isolation:
        await world.put({A: {"n": 1}, B: {"n": 1}})
        transaction_id = await world.begin(isolation=isolation)
        seen = await _look(world.store, transaction_id, A)
        await world.put({A: {"n": 2}, B: {"n": 2}})
        seen |= await _look(world.store, transaction_id, B)
        if seen[A].value == seen[B].value:
            # One instant, by history. Snapshot isolation may commit on it.
            await world.store.stage(transaction_id, "1", {C: {"n": 1}}, seen=seen)
            continue
        try:
            await world.store.stage(transaction_id, "1", {C: {"n": 1}}, seen=seen)
        except SnapshotTooOld:
            continue
        assert isolation is Isolation.SERIALIZABLE
        assert isinstance(await world.store.commit(await world.store.seal(transaction_id)), Conflict)


async def test_under_snapshot_isolation_the_plan_has_no_reads_whatever_was_shown(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin(isolation=Isolation.SNAPSHOT)
    seen = await _look(world.store, transaction_id, A, B)
    await world.store.stage(transaction_id, "1", {A: {"n": 2}}, seen=seen)
    await world.put({B: {"n": 2}})
    plan = await world.store.seal(transaction_id)
    assert (_writes(plan), _reads(plan)) == ({A: (1, {"n": 2})}, {})
    assert isinstance(await world.store.commit(plan), Committed)


async def test_p2_a_plan_on_a_cell_that_was_staged_meanwhile_is_refused(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    other = await world.open()
    for number, value in enumerate(({"n": 5}, {"n": 6}, None, {"n": 7})):
        before = await _look(world.store, transaction_id, A, B)
        await other.stage(transaction_id, f"theirs {number}", {A: value})
        for store in (world.store, other, await world.open()):
            with pytest.raises(StagedMeanwhile, match="read again"):
                await store.stage(transaction_id, f"mine {number}", {B: {"n": 0}, C: {"n": 0}}, seen=before)
        assert (await _look(world.store, transaction_id, A, B))[A].value == value
    # Nothing of the refused calls was staged or noted; their ids are as good as new.
    assert _writes(await world.store.contents(transaction_id)) == {A: (1, {"n": 7})}
    assert _reads(await world.store.contents(transaction_id)) == {}
    now = await _look(world.store, transaction_id, A, B)
    await world.store.stage(transaction_id, "mine 0", {B: {"n": 0}}, seen=now)
    assert _writes(await world.store.contents(transaction_id)) == {A: (1, {"n": 7}), B: (1, {"n": 0})}


async def test_what_is_staged_meanwhile_beside_the_plan_does_not_matter(world: World) -> None:
    await world.put({A: {"n": 1}})
    transaction_id = await world.begin()
    other = await world.open()
    seen = await _look(world.store, transaction_id, A)
    await other.stage(transaction_id, "theirs", {B: {"n": 5}})
    await other.read_in(transaction_id, [C])
    await world.store.stage(transaction_id, "mine", {A: {"n": 2}}, seen=seen)
    contents = await other.contents(transaction_id)
    assert _writes(contents) == {A: (1, {"n": 2}), B: (0, {"n": 5})}
    assert _reads(contents) == {C: 0}


async def test_a_cell_staged_again_with_an_equal_value_is_as_it_was_shown(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"x": 1, "y": [1.5, "ü\u0000"]}, B: None})
    seen = await _look(world.store, transaction_id, A, B)
    await (await world.open()).stage(transaction_id, "2", {A: {"x": 1, "y": [1.5, "ü\u0000"]}, B: None})
    await world.store.stage(transaction_id, "3", {C: {"n": 1}}, seen=seen)
    again = await _look(world.store, transaction_id, A)
    await world.store.stage(transaction_id, "4", {A: {"x": True, "y": []}})
    with pytest.raises(StagedMeanwhile):
        await world.store.stage(transaction_id, "5", {C: {"n": 2}}, seen=again)


async def test_p3_an_operation_that_is_staged_is_acknowledged_whatever_has_changed_since(world: World) -> None:
    transaction_id = await world.begin()
    other = await world.open()
    seen = await _look(world.store, transaction_id, A)
    await other.contents(transaction_id)
    await world.store.stage(transaction_id, "mine", {A: {"n": 1}}, seen=seen)
    await world.store.stage(transaction_id, "theirs", {A: {"n": 2}})
    for store in (world.store, other, await world.open()):
        await store.stage(transaction_id, "mine", {A: {"n": 1}}, seen=seen)
    await world.store.seal(transaction_id)
    for store in (world.store, other, await world.open()):
        await store.stage(transaction_id, "mine", {A: {"n": 1}}, seen=seen)
    assert _writes(await other.contents(transaction_id)) == {A: (0, {"n": 2})}


async def test_what_was_shown_may_be_noted_without_any_write(world: World) -> None:
    await world.put({A: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {}, seen=await _look(world.store, transaction_id, A, B))
    assert _reads(await world.store.seal(transaction_id)) == {A: 1, B: 0}


async def test_p2_increments_staged_side_by_side_are_all_counted_once(world: World) -> None:
    """Read, add one, stage: from several processes at once, each call sent twice."""
    await world.put({A: {"n": 100}})
    transaction_id = await world.begin()
    handles = [await world.open() for _ in range(3)]

    async def increment(store: CellStore, operation: str) -> None:
        for _ in range(200):
            seen = await _look(store, transaction_id, A)
            value = seen[A].value
            assert value is not None
            try:
                await store.stage(transaction_id, operation, {A: {"n": value["n"] + 1}}, seen=seen)
                await handles[0].stage(transaction_id, operation, {A: {"n": value["n"] + 1}}, seen=seen)
                return
            except StagedMeanwhile:
                continue
        raise AssertionError("never got through")

    await asyncio.gather(*(increment(handles[n % 3], f"op {n}") for n in range(9)))
    plan = await world.store.seal(transaction_id)
    assert _writes(plan) == {A: (1, {"n": 109})}
    assert isinstance(await world.store.commit(plan), Committed)


async def test_a_revision_that_cannot_have_been_shown_is_refused_or_never_commits(world: World) -> None:
    await world.put({A: {"n": 1}})
    for noted in (False, True):
        transaction_id = await world.begin()
        if noted:
            await world.store.read_in(transaction_id, [A])
        wrong = {A: Cell(A, 7, {"n": 7}, world.id())}
        try:
            await world.store.stage(transaction_id, "1", {B: {"n": 1}}, seen=wrong)
        except (InvalidRequest, SnapshotTooOld):
            assert _writes(await world.store.contents(transaction_id)) == {}
            continue
        assert world.kind not in HISTORY
        assert isinstance(await world.store.commit(await world.store.seal(transaction_id)), Conflict)


async def test_bad_cells_are_refused_before_anything_is_staged(world: World) -> None:
    transaction_id = await world.begin()
    bad: list[dict[Key, Cell]] = [
        {A: Cell(B)},
        {A: Cell(A, -1)},
        {A: Cell(A, 2**70)},
        {Key("main//a"): Cell(Key("main//a"))},
        {A: Cell(A, 1, {"n": object()}, transaction_id)},
    ]
    for seen in bad:
        with pytest.raises(InvalidRequest):
            await world.store.stage(transaction_id, "1", {A: {"n": 1}}, seen=seen)
    assert _writes(await world.store.contents(transaction_id)) == {}


async def test_cells_that_were_shown_count_towards_the_limit(world: World) -> None:
    transaction_id = await world.begin()
    many = keys(SETTINGS.max_cells)
    await world.store.stage(transaction_id, "1", {}, seen=await _look(world.store, transaction_id, *many[:100]))
    await world.store.stage(transaction_id, "2", {many[0]: {"n": 1}, many[100]: {"n": 1}})
    with pytest.raises(TooManyCells):
        await world.store.stage(
            transaction_id, "3", {A: {"n": 1}, B: {"n": 1}}, seen=await _look(world.store, transaction_id, *many[90:])
        )
    await world.store.stage(transaction_id, "4", {}, seen=await _look(world.store, transaction_id, *many[90:]))
    with pytest.raises(TooManyCells):
        await world.store.stage(transaction_id, "5", {A: {"n": 1}})
    plan = await world.store.seal(transaction_id)
    assert len(plan.writes) + len(plan.reads) == SETTINGS.max_cells


# --- contents ---


async def test_the_contents_of_an_open_transaction_are_the_plan_it_would_have(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    assert await world.store.contents(transaction_id) == world.transaction(id=transaction_id, hash="")
    await world.store.read_in(transaction_id, [B])
    await world.store.stage(transaction_id, "1", {A: None, C: {"n": 2}})
    for store in (world.store, await world.open()):
        contents = await store.contents(transaction_id)
        assert (_writes(contents), _reads(contents)) == ({A: (1, None), C: (0, {"n": 2})}, {B: 1})
        assert not contents.sealed
    # It was not sealed by that.
    with pytest.raises(WrongState):
        await world.store.commit(contents)
    await world.store.stage(transaction_id, "2", {D: {"n": 1}})
    plan = await world.store.seal(transaction_id, {"done": True})
    contents = await (await world.open()).contents(transaction_id)
    assert (_writes(contents), _reads(contents), contents.sealed) == (_writes(plan), _reads(plan), True)


async def test_the_contents_of_a_transaction_that_is_no_longer_open_are_what_its_record_says(world: World) -> None:
    prepared = await world.begin()
    await world.store.stage(prepared, "1", {A: {"n": 1}})
    plan = await world.store.seal(prepared, {"done": True})
    await world.store.prepare(plan)
    assert _writes(await world.store.contents(prepared)) == {A: (0, {"n": 1})}
    await world.store.commit(plan)
    contents = await world.store.contents(prepared)
    assert (_writes(contents), contents.answer, contents.sealed) == ({A: (0, {"n": 1})}, {"done": True}, True)
    aborted = await world.begin()
    await world.store.stage(aborted, "1", {A: {"n": 2}})
    await world.store.abort(aborted)
    assert _writes(await world.store.contents(aborted)) == {}
    with pytest.raises(TransactionNotFound):
        await world.store.contents(world.id())
