"""A run stores the states of tables, and never uses one from before a write after it. No Spark session is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from lakepact import pipelines as dp
from lakepact.client import DeltaTable, NotFound
from lakepact.pipelines.errors import UndeclaredInput
from lakepact.pipelines.positions import Progress
from lakepact.pipelines.stage import Work
from lakepact.pipelines.tables import DeltaState

WRITTEN = "shop.orders"
READER = "shop.daily"


@dataclass
class Tables:
    """The tables of a transaction, all of them Delta tables. `statements` counts the writes of each."""

    statements: dict[str, int] = field(default_factory=dict)
    loads: int = 0
    before_answer: Callable[[], None] = lambda: None
    """Called once when a load has read the table and has not returned it yet."""

    @property
    def plain(self) -> Tables:
        return self

    @property
    def delta(self) -> Tables:
        return self

    @property
    def tables(self) -> Any:
        return Tables()

    def is_delta(self, name: str) -> bool:
        return name in self.statements

    def load(self, name: str) -> DeltaTable:
        if name not in self.statements:
            raise NotFound(name)
        self.loads += 1
        loaded = DeltaTable(tuple(name.split(".")), f"id-{name}", "s3://b/t", 3, 0, {}, {}, {}, self.statements[name])
        before_answer, self.before_answer = self.before_answer, lambda: None
        before_answer()
        return loaded


def run_of(tables: Tables) -> Work:
    """A run of two stages that no edge orders."""
    with dp.Pipeline("shop", namespace="shop") as pipeline:
        dp.table(name="orders", format="delta", sql="SELECT 1 AS id")
        dp.materialized_view(name="daily", sql="SELECT 1 AS n")
    # The session is used by queries only.
    session = cast(Any, None)
    return Work(cast(Any, tables), session, pipeline.graph(), "shop", {}, Progress.from_json(None))


def statements_of(work: Work, name: str = WRITTEN) -> int:
    state = work.table(name)
    assert isinstance(state, DeltaState)
    return state.table.statements


def test_a_state_is_loaded_once_between_two_writes() -> None:
    tables = Tables({WRITTEN: 0})
    work = run_of(tables)
    assert [statements_of(work), statements_of(work)] == [0, 0]
    assert tables.loads == 1
    with work.writes(WRITTEN):
        tables.statements[WRITTEN] = 1
    assert [statements_of(work), statements_of(work)] == [1, 1]
    assert tables.loads == 2


def test_a_state_that_is_loaded_during_a_write_is_not_used_after_it() -> None:
    tables = Tables({WRITTEN: 0})
    work = run_of(tables)
    with work.writes(WRITTEN):
        assert statements_of(work) == 0
        tables.statements[WRITTEN] = 1
        # Nor by the next load during the same write.
        assert statements_of(work) == 1
    tables.statements[WRITTEN] = 2
    assert statements_of(work) == 2


@pytest.mark.parametrize("begins", ["before the write", "during the write"])
def test_a_load_that_ends_after_the_write_stores_nothing(begins: str) -> None:
    tables = Tables({WRITTEN: 0})
    work = run_of(tables)
    write = work.writes(WRITTEN)
    if begins == "during the write":
        write.__enter__()

    def finish_the_write() -> None:
        if begins == "before the write":
            write.__enter__()
        tables.statements[WRITTEN] = 1
        write.__exit__(None, None, None)

    tables.before_answer = finish_the_write
    assert statements_of(work) == 0
    assert statements_of(work) == 1


def test_a_late_load_does_not_replace_the_state_of_the_stage() -> None:
    tables = Tables({WRITTEN: 0})
    work = run_of(tables)

    def write_and_load() -> None:
        with work.writes(WRITTEN):
            tables.statements[WRITTEN] = 1
        assert statements_of(work) == 1

    tables.before_answer = write_and_load
    assert statements_of(work) == 0
    assert statements_of(work) == 1


def test_a_write_that_fails_leaves_no_state_behind() -> None:
    tables = Tables({WRITTEN: 0})
    work = run_of(tables)
    with pytest.raises(RuntimeError), work.writes(WRITTEN):
        assert statements_of(work) == 0
        raise RuntimeError
    tables.statements[WRITTEN] = 1
    assert statements_of(work) == 1
    assert WRITTEN in work.writing and not work.under_write


@pytest.mark.parametrize("ask", [False, True])
@pytest.mark.parametrize("when", ["before the stage", "after its first load", "during its write", "after its write"])
def test_a_delta_table_of_the_run_that_is_not_complete_is_refused_with_the_fix(when: str, ask: bool) -> None:
    tables = Tables({WRITTEN: 0})
    work = run_of(tables)
    if when == "after its first load":
        work.table(WRITTEN)
    write = work.writes(WRITTEN)
    if "write" in when:
        write.__enter__()
    if when == "after its write":
        write.__exit__(None, None, None)
        work.table(WRITTEN)
    loads = tables.loads
    with pytest.raises(UndeclaredInput, match=r"shop\.daily reads shop\.orders.*inputs=\['shop\.orders'\]") as refused:
        work.delta_state(READER, WRITTEN, ask=ask)
    assert (refused.value.stage, refused.value.name) == (READER, WRITTEN)
    assert tables.loads == loads


def test_a_table_that_the_run_has_not_created_yet_is_refused_when_the_server_would_be_asked_for_it() -> None:
    work = run_of(Tables())
    assert work.delta_state(READER, WRITTEN) is None
    with pytest.raises(UndeclaredInput):
        work.delta_state(READER, WRITTEN, ask=True)


def test_a_complete_table_the_own_table_and_tables_of_others_are_read() -> None:
    tables = Tables({WRITTEN: 0, "raw.orders": 5})
    work = run_of(tables)
    own = work.delta_state(WRITTEN, WRITTEN)
    assert own is not None and own.table.statements == 0
    with work.writes(WRITTEN):
        tables.statements[WRITTEN] = 1
    work.complete[WRITTEN] = work.table(WRITTEN)
    assert work.delta_state(READER, WRITTEN) == work.complete[WRITTEN]
    external = work.delta_state(READER, "raw.orders")
    assert external is not None and external.table.statements == 5
