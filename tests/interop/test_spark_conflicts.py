"""Spark beside other writers, and Spark that does not hear its answers: every write happens once, and no file is lost.

After each of them every live table is read in full: a client deletes its files when it takes an answer for a refusal.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.spark import Lake, path_of, refused
from tests.support.waiting import wait_until
from tests.support.witness import Witness

# The first of them starts Spark, and the first of all fetches the runtime.


# --- two writers ---


def test_writers_in_two_threads_lose_nothing(lake: Lake, db: str) -> None:
    table, each = f"{db}.t", 4
    lake.fill(table)

    def write(catalog: str, first: int) -> None:
        for number in range(first, first + each):
            lake.sql(f"INSERT INTO {catalog}.{table} VALUES ({number}, '{catalog}')")

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, "lake", 0), pool.submit(write, "other", each)]:
            done.result()
    assert lake.ids(f"other.{table}") == list(range(2 * each))
    assert lake.scan_everything() == {table: 2 * each}
    assert len(lake.metadata(table)["snapshots"]) == 2 * each


def test_an_insert_that_comes_second_is_made_again_on_top_of_the_first(lake: Lake, db: str, witness: Witness) -> None:
    table = f"{db}.t"
    lake.fill(table, 1)
    witness.let_happen_before(
        f"/{db}/tables/t", lambda: lake.sql(f"INSERT INTO other.{table} VALUES (2, 'in between')")
    )
    lake.sql(f"INSERT INTO witnessed.{table} VALUES (3, 'second')")

    refused_one, made = witness.posts(f"/{db}/tables/t")
    assert (refused_one.status, made.status) == (409, 200)
    assert "branch main" in refused_one.json()["error"]["message"]
    assert refused_one.key != made.key
    assert lake.scan_everything() == {table: 3}
    assert lake.ids(f"other.{table}") == [1, 2, 3]


def test_changes_that_do_not_touch_each_other_both_happen_at_the_first_try(
    lake: Lake, db: str, witness: Witness
) -> None:
    table = f"{db}.t"
    lake.fill(table, 1)
    witness.let_happen_before(
        f"/{db}/tables/t", lambda: lake.sql(f"INSERT INTO other.{table} VALUES (2, 'in between')")
    )
    lake.sql(f"ALTER TABLE witnessed.{table} SET TBLPROPERTIES ('a' = '1')")
    assert [one.status for one in witness.posts(f"/{db}/tables/t")] == [200]
    assert lake.metadata(table)["properties"]["a"] == "1"
    assert lake.scan_everything() == {table: 2}


def test_a_merge_that_would_undo_somebody_elses_update_fails_and_takes_only_its_own_files(
    lake: Lake, db: str, witness: Witness
) -> None:
    table = f"{db}.t"
    lake.fill(table, 1, 2)
    witness.let_happen_before(
        f"/{db}/tables/t", lambda: lake.sql(f"UPDATE other.{table} SET name = 'theirs' WHERE id = 1")
    )
    with refused("ValidationException", "conflicting"):
        lake.sql(
            f"MERGE INTO witnessed.{table} t USING (SELECT 1L AS id) s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET name = 'ours'"
        )
    assert [one.status for one in witness.posts(f"/{db}/tables/t")] == [409]
    assert lake.scan_everything() == {table: 2}
    assert lake.sql(f"SELECT * FROM other.{table} ORDER BY id") == [(1, "theirs"), (2, "n2")]


# --- lost answers ---


@pytest.mark.parametrize("told", [500, 502, 503, 504])
def test_an_insert_whose_answer_is_lost_is_sent_again_under_its_key_and_happens_once(
    lake: Lake, db: str, witness: Witness, told: int
) -> None:
    table = f"{db}.t"
    lake.fill(table, 1)
    witness.lose_answers(f"/{db}/tables/t", told=told)
    lake.sql(f"INSERT INTO witnessed.{table} VALUES (2, 'n2')")

    first, again = witness.posts(f"/{db}/tables/t")
    assert first.key is not None and first.key == again.key
    assert (first.status, first.answer) == (again.status, again.answer)
    assert len(lake.metadata(table)["snapshots"]) == 2
    assert lake.scan_everything() == {table: 2}


def test_an_insert_whose_answers_are_all_lost_is_found_to_have_happened(lake: Lake, db: str, witness: Witness) -> None:
    table = f"{db}.t"
    lake.fill(table, 1)
    witness.lose_answers(f"/{db}/tables/t", told=504, times=2)
    lake.sql(f"INSERT INTO hasty.{table} VALUES (2, 'n2')")
    assert [one.status for one in witness.posts(f"/{db}/tables/t")] == [200, 200]
    assert lake.scan_everything() == {table: 2}


def test_a_table_whose_creation_is_in_doubt_is_there_with_all_its_files(lake: Lake, db: str, witness: Witness) -> None:
    witness.lose_answers(f"/{db}/tables/t", told=504, times=2)
    with refused("CommitStateUnknownException", "504"):
        lake.sql(f"CREATE TABLE hasty.{db}.t AS SELECT id FROM range(5)")
    assert lake.scan_everything() == {f"{db}.t": 5}


def test_an_insert_that_is_asked_about_when_its_version_has_been_deleted_is_not_taken_for_a_failure(
    lake: Lake, db: str, witness: Witness
) -> None:
    # While a transaction is open, old versions stay; another test may have left one behind.
    for left in lake.rest("GET", "transactions?state=open").body["transactions"]:
        lake.rest("POST", f"transactions/{left['transaction-id']}/abort")
    table, posted = f"{db}.t", f"/{db}/tables/t"
    forgetful = "'write.metadata.delete-after-commit.enabled' = 'true', 'write.metadata.previous-versions-max' = '1'"
    lake.fill(table, options=f"TBLPROPERTIES ({forgetful})")

    def go_on_without_it() -> None:
        for number in (2, 3):
            lake.sql(f"INSERT INTO other.{table} VALUES ({number}, 'later')")
        [made] = witness.posts(posted)
        wait_until(lambda: not path_of(made.json()["metadata-location"]).exists())

    witness.lose_answers(posted, told=503)
    witness.let_happen_before(posted, go_on_without_it)
    lake.sql(f"INSERT INTO hasty.{table} VALUES (1, 'first')")
    made, asked_again = witness.posts(posted)
    assert made.key == asked_again.key
    assert (made.status, asked_again.status // 100) == (200, 5)
    assert lake.scan_everything() == {table: 3}


def test_a_live_file_that_is_gone_is_noticed(lake: Lake, db: str) -> None:
    """The check that other tests rely on: also files that only older snapshots need."""
    table = f"{db}.t"
    lake.fill(table, 1)
    [[file]] = lake.sql(f"SELECT file_path FROM {table}.files")
    lake.sql(f"DELETE FROM {table} WHERE id = 1")
    path_of(file).unlink()
    with pytest.raises(AssertionError, match="has lost"):
        lake.scan_everything()
