"""The rows of Delta tables: what was written is read back, at every version, and nothing else is."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.delta.actions import Action, Add, Cdc, DeletionVector, DomainMetadata, Metadata, Remove, Txn
from lakepact.delta.actions import Protocol as TableProtocol
from lakepact.delta.beside import DeltaChanges, NewTable, NewVersion, Renamed
from lakepact.delta.errors import BadAction
from lakepact.delta.ports import ErrorRow, Swept, TableChange, TableLife, Totals
from lakepact.errors import FileNotLive, InvalidRequest, RowsGone
from lakepact.kernel.model import Committed, Transaction, Write
from tests.conformance.delta.lake import PROTOCOL, SCHEMA, WAREHOUSE, Change, Lake, add, adds, remove

VECTOR = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
INLINE = DeletionVector("i", "x" * 5_000, None, 4_000, 900)

EVERY_KIND = (
    Add("p=1/a%20b.parquet", {"p": "1", "q": None}, 2**40, 1_700_000_000_000, False, '{"numRecords":3}', {"t": None}),
    Add("dv.parquet", {}, 1, 2, True, None, None, VECTOR, 7, 8),
    Add("inline.parquet", {}, 1, 2, True, None, None, INLINE),
    Metadata("id", SCHEMA, ("p", "q"), {"delta.appendOnly": "false"}, "name", "words", 99, "parquet"),
    TableProtocol(3, 7, ("deletionVectors",), ("deletionVectors", "appendOnly")),
    Txn("app", 2**60, 5),
    Txn("other", 1),
    DomainMetadata("d", '{"x":1}'),
    Cdc("_change_data/c.parquet", {"p": None}, 12),
)


async def test_every_kind_of_action_comes_back_as_it_was_written(lake: Lake) -> None:
    await lake.create("t")
    made = await lake.write("t", 1, *EVERY_KIND)
    found = await lake.rows.actions("t", 1)
    assert found is not None
    assert sorted(map(repr, found.actions)) == sorted(map(repr, EVERY_KIND))
    assert (found.row.transaction_id, found.row.adds, found.row.removes) == (made, 3, 0)
    assert found.row.info.timestamp_ms == 2_000
    assert found.row.info.operation_parameters == {"mode": "Append"}
    assert found.row.info.more == {"engine": "tests", "zahl": 2**53 + 1}
    removal = (
        Remove("dv.parquet", 5, False, {"p": "1"}, 9, VECTOR),
        Remove("inline.parquet", 5, deletion_vector=INLINE),
        DomainMetadata("d", "", removed=True),
    )
    await lake.write("t", 2, *removal)
    found = await lake.rows.actions("t", 2)
    assert found is not None and sorted(map(repr, found.actions)) == sorted(map(repr, removal))
    assert await lake.paths("t", 2) == ["p=1/a%20b.parquet"]
    assert await lake.rows.actions("t", 3) is None


async def test_the_live_files_of_every_version_are_there_for_ever(lake: Lake) -> None:
    await lake.create("t", "other")
    await lake.write("other", 1, *adds("x"))
    await lake.write("t", 1, *adds("a", "b"))
    await lake.write("t", 2, remove("a"), add("c"))
    await lake.write("t", 3)
    await lake.write("t", 4, add("a"))
    await lake.write("t", 5, remove("a"), remove("b"), remove("c"))
    expected = {0: [], 1: ["a", "b"], 2: ["b", "c"], 3: ["b", "c"], 4: ["a", "b", "c"], 5: []}
    assert {version: await lake.paths("t", version) for version in expected} == expected
    assert await lake.paths("t", 6) == [] and await lake.paths("nobody", 0) == []
    files = await lake.rows.files("t", 2)
    assert len(files) == len(files.rows) == 2 and files[0] in list(files) and len(files[:1]) == 1


async def test_a_file_added_again_takes_the_place_of_the_one_before(lake: Lake) -> None:
    """The newest action for a file wins: statistics that were computed later, or tags."""
    await lake.create("t")
    await lake.write("t", 1, add("a"), add("b"))
    await lake.write("t", 2, add("a", stats='{"numRecords":1}'))
    assert [(file.path, file.stats) for file in sorted(await lake.rows.files("t", 2), key=lambda one: one.path)] == [
        ("a", '{"numRecords":1}'),
        ("b", None),
    ]
    assert [file.stats for file in await lake.rows.files("t", 1)] == [None, None]
    await lake.write("t", 3, remove("a"))
    assert await lake.paths("t", 3) == ["b"]


async def test_a_file_with_another_deletion_vector_is_another_file(lake: Lake) -> None:
    await lake.create("t")
    await lake.write("t", 1, add("a"))
    await lake.write("t", 2, remove("a"), add("a", deletion_vector=VECTOR))
    (file,) = await lake.rows.files("t", 2)
    assert file.deletion_vector == VECTOR
    with pytest.raises(FileNotLive):
        await lake.put_rows(lake.id(), [Change("t", 3, [remove("a")])])
    await lake.write("t", 3, remove("a", deletion_vector=VECTOR))
    assert await lake.paths("t", 3) == []


async def test_contents_are_the_newest_word_on_each_thing_as_of_a_version(lake: Lake) -> None:
    await lake.create("t")
    await lake.write("t", 1, Txn("a", 1), Txn("b", 1), DomainMetadata("d", "one"), DomainMetadata("e", "one"))
    await lake.write("t", 2, Txn("a", 2), DomainMetadata("d", "", removed=True))
    await lake.write("t", 3, Metadata("t", "new", ("p",)), TableProtocol(3, 7, (), ()))
    first, second, third = [await lake.rows.contents("t", version) for version in (1, 2, 3)]
    assert {app: one.version for app, one in first.txns.items()} == {"a": 1, "b": 1}
    assert {app: one.version for app, one in second.txns.items()} == {"a": 2, "b": 1}
    assert (set(first.domains), set(second.domains)) == ({"d", "e"}, {"e"})
    assert second.metadata == Metadata("t", SCHEMA) and second.protocol == PROTOCOL
    assert third.metadata == Metadata("t", "new", ("p",)) and third.protocol == TableProtocol(3, 7, (), ())
    row = await lake.rows.table("t")
    assert row is not None and (row.metadata_version, row.protocol_version) == (3, 3)
    nothing = await lake.rows.contents("nobody", 1)
    assert (nothing.metadata, nothing.protocol, nothing.txns) == (None, None, {})


async def test_history_and_time_travel(lake: Lake) -> None:
    await lake.create("t")
    for version in range(1, 6):
        await lake.write("t", version, add(f"{version}"))
    assert [row.version for row in await lake.rows.versions("t", limit=3)] == [5, 4, 3]
    assert [row.version for row in await lake.rows.versions("t", before=2)] == [1, 0]
    assert [await lake.rows.version_at("t", at) for at in (999, 1_000, 1_999, 2_000, 9_999)] == [None, 0, 0, 1, 5]
    said = await lake.rows.since("t", 2, 4)
    assert [(one.row.version, [action.path for action in one.actions if isinstance(action, Add)]) for one in said] == [
        (3, ["3"]),
        (4, ["4"]),
    ]
    assert [one.row.version for one in await lake.rows.since("t", 4, 99)] == [5]
    assert list(await lake.rows.since("t", 5, 5)) == []
    await lake.write("t", 6, remove("3"))
    await lake.write("t", 7, remove("1"), add("3"))
    assert [one.path for one in await lake.rows.removed("t", 0, 7)] == ["3", "1"]
    assert [one.path for one in await lake.rows.removed("t", 6, 9)] == ["1"]


# --- rows that nobody has published ---


async def test_rows_are_invisible_until_they_are_published(lake: Lake) -> None:
    await lake.create("t")
    loser, winner = lake.id(), lake.id()
    await lake.put_rows(loser, [Change("t", 1, [*adds("lost"), Txn("a", 9), Metadata("t", "lost")])])
    await lake.put_rows(winner, [Change("t", 1, adds("won"))])
    assert await lake.paths("t", 1) == []
    assert isinstance(await lake.store.commit(lake.plan([Change("t", 1, adds("won"))], id=winner)), Committed)
    for _ in range(2):
        assert await lake.paths("t", 1) == ["won"]
        assert (await lake.rows.contents("t", 1)).txns == {}
        assert [len(one.actions) for one in await lake.rows.since("t", 0, 9)] == [1]
        await lake.rows.discard(loser)
    with pytest.raises(RowsGone, match=r"version 2 of Delta table t .* Nothing was applied"):
        await lake.store.commit(lake.plan([Change("t", 2, adds("lost"))], id=loser))


async def test_put_again_replaces_what_the_transaction_had_put(lake: Lake) -> None:
    await lake.create("t")
    plan = lake.plan([Change("t", 1, adds("b"))])
    await lake.put_rows(plan.id, [Change("t", 1, [*adds("a", "b", "c"), Txn("x", 1), Cdc("z", {}, 1)])])
    for _ in range(2):
        await lake.put_rows(plan.id, [Change("t", 1, adds("b"))])
    await lake.store.commit(plan)
    found = await lake.rows.actions("t", 1)
    assert found is not None and [action.path for action in found.actions if isinstance(action, Add)] == ["b"]
    assert len(found.actions) == 1


async def test_put_after_the_commit_leaves_what_is_published_alone(lake: Lake) -> None:
    await lake.create("t")
    await lake.write("t", 1, add("a"))
    made = await lake.write("t", 2, add("b"))
    await lake.put_rows(made, [Change("t", 2, adds("b", "intruder"))])
    await lake.put_rows(made, [Change("t", 1, adds("intruder"))])
    await lake.rows.move(made, "t", 1, 2)
    await lake.rows.move(made, "t", 7, 2)
    await lake.rows.discard(made)
    await lake.rows.sweep()
    assert await lake.paths("t", 2) == ["a", "b"]


async def test_rows_move_to_the_version_that_is_free(lake: Lake) -> None:
    await lake.create("t")
    slow = lake.id()
    await lake.put_rows(slow, [Change("t", 1, [*adds("slow", "same"), Txn("s", 1), DomainMetadata("d", "x")])])
    await lake.write("t", 1, add("quick"), add("same"))
    for _ in range(2):
        await lake.rows.move(slow, "t", 1, 2)
    result = await lake.store.commit(lake.plan([Change("t", 2, adds("slow", "same"))], id=slow))
    assert isinstance(result, Committed)
    assert await lake.paths("t", 1) == ["quick", "same"]
    # `same` was added by both: the newer one has taken its place, and it is not there twice.
    assert await lake.paths("t", 2) == ["quick", "same", "slow"]
    assert set((await lake.rows.contents("t", 2)).txns) == {"s"}
    assert set((await lake.rows.contents("t", 1)).txns) == set()
    with pytest.raises(RowsGone):
        await lake.rows.move(lake.id(), "t", 1, 2)
    with pytest.raises(RowsGone):
        await lake.rows.move(slow, "t", 1, 3)


async def test_rows_that_move_take_the_place_of_what_an_earlier_attempt_has_left_there(lake: Lake) -> None:
    await lake.create("t")
    await lake.write("t", 1, add("a"))
    plan = lake.plan([Change("t", 2, adds("new"))])
    await lake.put_rows(plan.id, [Change("t", 2, [*adds("old", "older"), Txn("old", 1)])])
    await lake.put_rows(plan.id, [Change("t", 1, adds("new"))])
    await lake.rows.move(plan.id, "t", 1, 2)
    assert isinstance(await lake.store.commit(plan), Committed)
    assert await lake.paths("t", 2) == ["a", "new"]
    assert (await lake.rows.contents("t", 2)).txns == {}
    assert await lake.rows.sweep() == Swept()


async def test_a_removal_cannot_move_past_the_same_removal(lake: Lake) -> None:
    await lake.create("t")
    await lake.write("t", 1, add("a"), add("b"))
    slow = lake.id()
    await lake.put_rows(slow, [Change("t", 2, [remove("a")])])
    await lake.write("t", 2, remove("a"))
    with pytest.raises(FileNotLive, match="version 3 would remove 'a'"):
        await lake.rows.move(slow, "t", 2, 3)
    other = lake.id()
    await lake.put_rows(other, [Change("t", 2, [remove("b")])])
    await lake.rows.move(other, "t", 2, 3)
    assert isinstance(await lake.store.commit(lake.plan([Change("t", 3, [remove("b")])], id=other)), Committed)
    assert await lake.paths("t", 3) == []


async def test_a_file_that_is_not_live_cannot_be_removed(lake: Lake) -> None:
    await lake.create("t")
    await lake.write("t", 1, add("a"))
    transaction_id = lake.id()
    with pytest.raises(FileNotLive, match="'ghost', which is not among the live files"):
        await lake.put_rows(transaction_id, [Change("t", 2, [remove("a"), remove("ghost"), add("new")])])
    # Nothing was written: not even the claim of the version.
    with pytest.raises(RowsGone):
        await lake.rows.move(transaction_id, "t", 2, 3)


async def test_what_cannot_stand_in_one_version_is_refused(lake: Lake) -> None:
    wrong: tuple[list[Action], ...] = (
        [add("a"), add("a")],
        [remove("a"), remove("a")],
        [add("a"), remove("a")],
        [Txn("a", 1), Txn("a", 2)],
        [PROTOCOL, PROTOCOL],
        [Metadata("a", "b"), Metadata("a", "b")],
        [DomainMetadata("d", ""), DomainMetadata("d", "")],
        [add("x" * 2_001)],
    )
    for actions in wrong:
        with pytest.raises(BadAction):
            await lake.put_rows(lake.id(), [Change("t", 0, actions)])
    with pytest.raises(BadAction, match="begin at 0"):
        await lake.put_rows(lake.id(), [Change("t", -1, [])])
    with pytest.raises(InvalidRequest, match="twice"):
        await lake.put_rows(lake.id(), [Change("t", 1, []), Change("t", 1, [])])
    with pytest.raises(InvalidRequest, match="cannot"):
        await lake.put_rows(lake.id(), [Change("t", 0, [add("a\ud800")])])
    with pytest.raises(InvalidRequest, match="cannot"):
        await lake.put_rows(lake.id(), [Change("t", 0, [Add("a", {}, 2**63, 0)])])


async def test_a_sweep_takes_what_has_no_future_and_nothing_else(lake: Lake) -> None:
    await lake.create("t")
    failed, fresh, opened, forgotten = lake.id(), lake.id(), await lake.begin(ttl_s=50_000), lake.id()
    await lake.put_rows(forgotten, [Change("t", 1, adds("forgotten"))])
    lake.clock.advance(3_700)
    for transaction_id in (failed, fresh, opened):
        await lake.put_rows(transaction_id, [Change("t", 1, adds(transaction_id))])
        await lake.rows.stage(transaction_id, "t", "1", "[]")
    await lake.store.fail(failed, "hash", {"no": 1})
    assert (await lake.rows.sweep()).transactions == 2
    assert [bool(await lake.rows.staged(one)) for one in (failed, fresh, opened)] == [False, True, True]
    for gone in (failed, forgotten):
        with pytest.raises(RowsGone):
            await lake.rows.move(gone, "t", 1, 2)
    # A record that is open is not final, however old the rows are; one that was never made is waited for.
    lake.clock.advance(3_700)
    assert (await lake.rows.sweep()).transactions == 1
    with pytest.raises(RowsGone):
        await lake.rows.move(fresh, "t", 1, 2)
    await lake.rows.move(opened, "t", 1, 2)
    await lake.store.abort(opened)
    assert (await lake.rows.sweep()).transactions == 1
    assert await lake.rows.staged(opened) == {}
    assert await lake.rows.sweep() == Swept()


async def test_a_sweep_is_bounded_and_says_if_there_is_more(lake: Lake) -> None:
    await lake.create("t")
    for _ in range(3):
        await lake.put_rows(lake.id(), [Change("t", 1, adds("a"))])
    lake.clock.advance(10)
    assert await lake.rows.sweep(2, grace_s=1) == Swept(2, more=True)
    assert await lake.rows.sweep(2, grace_s=1) == Swept(1)


# --- open transactions ---


async def test_statements_are_kept_once_and_in_order(lake: Lake) -> None:
    opened = await lake.begin()
    for statement, table in (("z", "t"), ("a", "u"), ("b", "t"), ("z", "t")):
        await lake.rows.stage(opened, table, statement, f"[{statement!r}]")
    await lake.rows.stage(opened, "t", "z", "[2]")
    found = await lake.rows.staged(opened)
    assert {table: list(statements.items()) for table, statements in found.items()} == {
        "t": [("z", "['z']"), ("b", "['b']")],
        "u": [("a", "['a']")],
    }
    assert await lake.rows.staged(lake.id()) == {}
    with pytest.raises(InvalidRequest):
        await lake.rows.stage(opened, "t", "x\x00", "[]")
    await lake.store.abort(opened)
    await lake.rows.discard(opened)
    await lake.rows.stage(opened, "t", "late", "[]")
    assert await lake.rows.staged(opened) == {}


# --- tables ---


async def test_tables_are_listed_renamed_dropped_and_purged(lake: Lake) -> None:
    await lake.create("a", "b", "c")
    await lake.write("b", 1, *adds(*"xyz"))
    await lake.write("b", 2, remove("x"), Txn("t", 1))

    async def commit(changes: DeltaChanges, table_id: str, revision: int) -> None:
        write = Write(lake.key(table_id), revision, {"n": revision})
        plan = Transaction(lake.id(), "hash", (write,), beside=changes.document())
        assert isinstance(await lake.store.commit(plan), Committed)

    await commit(DeltaChanges(WAREHOUSE, rename=(Renamed("a", ".elsewhere", "new"),)), "a", 1)
    await commit(DeltaChanges(WAREHOUSE, drop=("b",)), "b", 3)
    found = await lake.rows.tables(WAREHOUSE)
    assert [(row.table_id, row.namespace, row.name, row.state) for row in found] == [
        ("a", ".elsewhere", "new", TableLife.LIVE),
        ("c", ".ns", "c", TableLife.LIVE),
    ]
    assert [row.table_id for row in await lake.rows.tables(WAREHOUSE, after="a", limit=1)] == ["c"]
    assert [row.table_id for row in await lake.rows.tables(WAREHOUSE, dropped=True)] == ["b"]
    assert list(await lake.rows.tables("another")) == []
    # A dropped table can still be read, and its place is free for another.
    assert await lake.paths("b", 1) == ["x", "y", "z"]
    again = NewTable("b2", ".ns", "b", "file:///b")
    await commit(DeltaChanges(WAREHOUSE, create=(again,)), "b2", 0)
    assert not await lake.rows.purge("a") and await lake.rows.table("a") is not None
    passes = 1
    while await lake.rows.purge("b", 2):
        passes += 1
    assert passes > 1
    assert await lake.rows.table("b") is None and list(await lake.rows.versions("b")) == []
    assert await lake.rows.table("b2") is not None


async def test_an_imported_log_may_begin_at_a_checkpoint_and_bring_many_versions(lake: Lake) -> None:
    """Versions of one transaction build on each other; a checkpoint has tombstones of files nobody knows any more."""
    history = [
        Change("t", 40, [Metadata("t", SCHEMA), PROTOCOL, *adds("a", "b"), remove("long gone")]),
        Change("t", 41, [remove("a"), add("c")]),
        Change("t", 42, [add("a"), add("b")]),
        Change("t", 43, [remove("a")]),
    ]
    transaction_id = lake.id()
    with pytest.raises(FileNotLive):
        await lake.put_rows(transaction_id, history)
    changes = [TableChange(*_parts(one)) for one in history]
    await lake.rows.put(transaction_id, changes, request_hash="hash", tombstones=True)
    versions = tuple(
        NewVersion(
            "t",
            one.version,
            one.version,
            "IMPORT",
            sum(isinstance(action, Add) for action in one.actions),
            sum(isinstance(action, Remove) for action in one.actions),
            tombstones=one.version == 40,
        )
        for one in history
    )
    table = NewTable("t", ".ns", "t", "file:///t", base_version=39)
    beside = DeltaChanges(WAREHOUSE, create=(table,), versions=versions).document()
    plan = Transaction(transaction_id, "hash", (Write(lake.key("t"), 0, {"version": 43}),), beside=beside)
    assert isinstance(await lake.store.commit(plan), Committed)
    assert [await lake.paths("t", version) for version in range(39, 44)] == [
        [],
        ["a", "b"],
        ["b", "c"],
        ["a", "b", "c"],
        ["b", "c"],
    ]
    assert await lake.current("t") == 43
    assert [one.tables for one in await lake.rows.outgoing(WAREHOUSE)] == [{"t": 43}]


def _parts(change: Change) -> tuple[str, int, Any]:
    return change.table_id, change.version, change.actions


# --- what was refused ---


async def test_the_log_of_errors_keeps_the_newest(lake: Lake) -> None:
    def row(number: int, table_id: str = "t") -> ErrorRow:
        return ErrorRow(f"x{number}", table_id, number, None, "VersionConflict", f"no\x00 {number}", 1_700_000_000_123)

    await lake.rows.log_errors([row(number) for number in range(8)])
    await lake.rows.log_errors([row(8, "u"), row(9)], keep=5)
    assert [one.txn_id for one in await lake.rows.errors()] == ["x9", "x8", "x7", "x6", "x5"]
    (one,) = await lake.rows.errors(table_id="u")
    assert one == ErrorRow("x8", "u", 8, None, "VersionConflict", "no  8", 1_700_000_000_123)
    assert len(await lake.rows.errors(2)) == 2
    await lake.rows.log_errors([])


async def test_totals_are_those_of_the_live_files_at_every_version(lake: Lake) -> None:
    def sized(path: str, records: int | None, **more: Any) -> Add:
        return add(path, stats=None if records is None else f'{{"numRecords":{records},"minValues":{{}}}}', **more)

    await lake.create("t")
    await lake.write("t", 1, sized("a", 5), sized("b", 7))
    await lake.write("t", 2, sized("c", 1))
    await lake.write("t", 3, remove("a"), sized("a", 5, deletion_vector=VECTOR))
    await lake.write("t", 4, sized("c", 2))
    await lake.write("t", 5, sized("d", None))
    await lake.write("t", 6, remove("d"), remove("b"))
    await lake.write("t", 7, add("e", stats="no JSON"), add("f", stats='{"numRecords":"many"}'))
    expected = {
        0: Totals(0, 0, 0),
        1: Totals(2, 20, 12),
        2: Totals(3, 30, 13),
        3: Totals(3, 30, 13 - VECTOR.cardinality),
        4: Totals(3, 30, 14 - VECTOR.cardinality),
        5: Totals(4, 40, None),
        6: Totals(2, 20, 7 - VECTOR.cardinality),
        7: Totals(4, 40, None),
    }
    for version, totals in expected.items():
        assert await lake.rows.totals("t", version) == totals
        files = list(await lake.rows.files("t", version))
        assert (totals.files, totals.bytes) == (len(files), sum(file.size for file in files))
    assert await lake.rows.totals("t", 8) is None and await lake.rows.totals("nobody", 0) is None


async def test_growth_is_told_only_where_nothing_was_taken_away(lake: Lake) -> None:
    await lake.create("t")
    await lake.write("t", 1, add("a", stats='{"numRecords":5}'))
    await lake.write("t", 2, add("b"), add("c"))
    await lake.write("t", 3)
    await lake.write("t", 4, remove("a"))
    await lake.write("t", 5, add("b", stats='{"numRecords":1}'))
    assert await lake.rows.growth("t", 0, 1) == Totals(1, 10, 5)
    assert await lake.rows.growth("t", 0, 3) == Totals(3, 30, None)
    assert await lake.rows.growth("t", 2, 3) == await lake.rows.growth("t", 5, 5) == Totals(0, 0, 0)
    assert await lake.rows.growth("t", 3, 4) is None, "a file is removed"
    assert await lake.rows.growth("t", 4, 5) is None, "a file is replaced"
    assert await lake.rows.growth("t", 5, 6) is None, "there is no such version"
