"""The guide's shape: stage, commit, mirror; limits that name their setting; and the six lines of its log."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from lakepact.delta import (
    BadAction,
    LimitExceeded,
    MirrorResult,
    MultiTableTransaction,
    MultiTableWriter,
    StagedTable,
    TransactionConfig,
    TransactionError,
    VersionConflict,
)
from tests.unit.delta.tables import add, remove


@dataclass
class Tables:
    """A backend in memory: versions that are compared, and an engine that fails when it is told to."""

    versions: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[list[str], str, float]] = field(default_factory=list)
    failing: str | None = None

    def commit(self, changes: Sequence[StagedTable], transaction_id: str, timeout_secs: float) -> Mapping[str, int]:
        self.asked.append(([change.table_id for change in changes], transaction_id, timeout_secs))
        for change in changes:
            actual = self.versions.get(change.table_id, -1)
            if actual != change.expected_version:
                raise VersionConflict(change.table_id, change.expected_version, actual)
        self.versions |= {change.table_id: change.expected_version + 1 for change in changes}
        return self.versions

    def mirror(
        self, versions: Mapping[str, int], transaction_id: str, timeout_secs: float
    ) -> Mapping[str, Sequence[MirrorResult]]:
        del transaction_id, timeout_secs
        engines = ("delta_log", "duckdb")
        error = "disk full"
        return {
            table: [MirrorResult(one, one != self.failing, error if one == self.failing else None) for one in engines]
            for table in versions
        }


def staged(table: str, version: int, files: int = 1) -> StagedTable:
    return StagedTable(table, [add(f"f{number}") for number in range(files)], version)


def a_transaction(*tables: StagedTable, config: TransactionConfig | None = None) -> MultiTableTransaction:
    tx = MultiTableTransaction(config)
    for table in tables:
        tx.stage_table(table.table_id, table)
    return tx


def test_all_tables_move_by_one() -> None:
    tables = Tables({"features": 41, "labels": 7})
    tx = a_transaction(staged("labels", 7), staged("features", 41))
    assert tx.table_count() == 2
    result = MultiTableWriter(tables).commit(tx)
    assert result.versions == {"features": 42, "labels": 8}
    assert tables.asked == [(["features", "labels"], tx.transaction_id, 60)]
    assert uuid.UUID(tx.transaction_id).version == 7


def test_a_conflict_names_table_expected_and_actual_and_moves_nothing() -> None:
    tables = Tables({"a": 3, "b": 5})
    with pytest.raises(TransactionError, match="table b: expected version 4, it is at version 5") as caught:
        MultiTableWriter(tables).commit(a_transaction(staged("a", 3), staged("b", 4)))
    assert isinstance(caught.value, VersionConflict)
    assert (caught.value.table_id, caught.value.expected, caught.value.actual) == ("b", 4, 5)
    assert tables.versions == {"a": 3, "b": 5}


def test_the_configuration_has_the_defaults_of_the_guide() -> None:
    config = TransactionConfig()
    assert (config.max_tables, config.max_files_per_table, config.timeout_secs) == (10, 1000, 60)
    assert MultiTableTransaction.with_config(TransactionConfig(max_tables=5)).config.max_tables == 5
    with pytest.raises(BadAction, match="max_tables must be more than 0"):
        TransactionConfig(max_tables=0)


def test_more_files_than_the_limit_are_refused_with_the_setting_named() -> None:
    config = TransactionConfig(max_files_per_table=2)
    many = StagedTable("a", [add("x"), add("y"), remove("z")], 0)
    with pytest.raises(LimitExceeded, match="3 files are more than max_files_per_table=2") as caught:
        a_transaction(many, config=config)
    assert (caught.value.setting, caught.value.limit, caught.value.found) == ("max_files_per_table", 2, 3)
    assert a_transaction(staged("a", 0, files=2), config=config).table_count() == 1


def test_more_tables_than_the_limit_are_refused_with_the_setting_named() -> None:
    tx = a_transaction(staged("a", 0), config=TransactionConfig(max_tables=1))
    with pytest.raises(LimitExceeded, match="2 tables are more than max_tables=1"):
        tx.stage_table("b", staged("b", 0))
    assert tx.table_count() == 1


def test_what_cannot_be_staged() -> None:
    tx = a_transaction(staged("a", 0))
    with pytest.raises(TransactionError, match="staged already"):
        tx.stage_table("a", staged("a", 0))
    with pytest.raises(BadAction, match="is for table c"):
        tx.stage_table("b", staged("c", 0))
    with pytest.raises(BadAction, match="no actions"):
        tx.stage_table("b", StagedTable("b", [], 0))
    with pytest.raises(BadAction, match="at most one add"):
        tx.stage_table("b", StagedTable("b", [add("x"), add("x")], 0))
    with pytest.raises(TransactionError, match="has no tables"):
        MultiTableWriter(Tables()).commit(MultiTableTransaction())


def test_locks_are_taken_in_one_order() -> None:
    assert MultiTableWriter.lock_order(["zebra", "apple", "banana"]) == ["apple", "banana", "zebra"]


def test_a_mirror_that_fails_is_told_and_undoes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    tables = Tables({"a": 0}, failing="duckdb")
    writer = MultiTableWriter(tables)
    result = writer.commit(a_transaction(staged("a", 0)))
    results = writer.mirror_all_tables_after_commit(result)
    assert results == {"a": [("delta_log", True, None), ("duckdb", False, "disk full")]}
    assert tables.versions == {"a": 1}
    assert "Mirror failed for table a in duckdb: disk full" in caplog.text


def test_the_six_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lakepact.delta")
    tx = a_transaction(staged("b", 42, files=3), staged("a", 0))
    MultiTableWriter(Tables({"a": 0, "b": 42})).commit(tx)
    found = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "lakepact.delta"]
    assert found[0] == ("INFO", f"Beginning multi-table transaction {tx.transaction_id} with 2 tables")
    assert found[-1] == ("INFO", f"Multi-table transaction {tx.transaction_id} committed successfully with 2 tables")
    assert ("DEBUG", "Locking table b") in found
    assert ("DEBUG", "Table b locked at version 42") in found
    assert ("DEBUG", "Inserting 3 actions for table b") in found
    assert ("DEBUG", "Updated versions for 2 tables") in found
    assert [message for _, message in found if message.startswith("Locking")] == ["Locking table a", "Locking table b"]
