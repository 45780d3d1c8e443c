"""Java's `RESTCatalog.commitTransaction` over several tables: all of them change or none, once, whatever is lost.

The reference client speaks for itself, inside Spark's JVM. The rows are real: Spark writes them into a table of their
own, and the transaction appends their files elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import parse_transaction_id
from tests.support.spark import WAREHOUSE, Lake, refused
from tests.support.witness import Exchange, Witness

COMMIT: Final = "/transactions/commit"
TABLES: Final = ("a", "b", "c")


class Java:
    """The reference client, asked through Spark's gateway to the JVM."""

    def __init__(self, lake: Lake, url: str) -> None:
        assert lake.spark._jvm is not None
        self._jvm: Any = lake.spark._jvm
        self._catalog = self._jvm.org.apache.iceberg.rest.RESTCatalog()
        self._catalog.initialize("java", {"uri": url, "warehouse": WAREHOUSE, "rest.client.max-retries": "1"})

    def close(self) -> None:
        self._catalog.close()

    def begin(self, table: str) -> Transaction:
        identifier = self._jvm.org.apache.iceberg.catalog.TableIdentifier.parse(table)
        return Transaction(self._jvm, identifier, self._catalog.loadTable(identifier))

    def commit(self, *transactions: Transaction) -> None:
        self._catalog.commitTransaction([one.to_commit() for one in transactions])


class Transaction:
    """Changes of one table that are not committed yet."""

    def __init__(self, jvm: Any, identifier: Any, table: Any) -> None:
        self._jvm = jvm
        self._identifier = identifier
        self._table = table
        self._changes = table.newTransaction()

    def append_files_of(self, source: Transaction, note: str = "") -> Transaction:
        append = self._changes.newAppend().set("note", note)
        tasks = source._table.newScan().planFiles().iterator()
        while tasks.hasNext():
            append.appendFile(tasks.next().file())
        append.commit()
        return self

    def delete_everything(self) -> Transaction:
        every_row = self._jvm.org.apache.iceberg.expressions.Expressions.alwaysTrue()
        self._changes.newDelete().deleteFromRowFilter(every_row).commit()
        return self

    def add_column(self, name: str) -> Transaction:
        kind = getattr(self._jvm.org.apache.iceberg.types, "Types$LongType").get()
        self._changes.updateSchema().addColumn(name, kind).commit()
        return self

    def set_property(self, name: str, value: str) -> Transaction:
        self._changes.updateProperties().set(name, value).commit()
        return self

    def to_commit(self) -> Any:
        create = self._jvm.org.apache.iceberg.catalog.TableCommit.create
        return create(self._identifier, self._changes.startMetadata(), self._changes.currentMetadata())


@pytest.fixture
def java(lake: Lake, witness: Witness) -> Iterator[Java]:
    client = Java(lake, witness.url)
    yield client
    client.close()


@pytest.fixture
def tables(lake: Lake, db: str) -> list[str]:
    """Three tables of one row each, and in `rows` two more rows that wait to be appended."""
    for name in TABLES:
        lake.sql(f"CREATE TABLE {db}.{name} AS SELECT 0L AS id")
    lake.sql(f"CREATE TABLE {db}.rows AS SELECT /*+ COALESCE(1) */ id + 1 AS id FROM range(2)")
    return [f"{db}.{name}" for name in TABLES]


@pytest.fixture
def appended(java: Java, db: str) -> Callable[[str], Transaction]:
    """The two rows, appended to this table, and not committed."""
    return lambda table: java.begin(table).append_files_of(java.begin(f"{db}.rows"))


def commit_until_it_goes_through(java: Java, make: Callable[[], list[Transaction]], attempts: int = 20) -> None:
    """As a client does whose requirements failed: look again, make the changes again."""
    for _ in range(attempts):
        try:
            return java.commit(*make())
        except Py4JJavaError as error:
            assert "CommitFailedException" in str(error.java_exception), str(error)
    raise AssertionError(f"others came first {attempts} times")


def commits(witness: Witness, since: int) -> list[Exchange]:
    return [one for one in witness.exchanges[since:] if one.path.endswith(COMMIT)]


def record(lake: Lake, key: str | None) -> JsonObject:
    """What the server knows of a transaction."""
    answer = lake.rest("GET", f"transactions/{key}")
    assert answer.status == 200, answer
    return dict(answer.body)


def locations(lake: Lake, tables: list[str]) -> list[str]:
    return [lake.loaded(table)["metadata-location"] for table in tables]


def test_several_tables_change_in_one_commit(lake: Lake, java: Java, witness: Witness, tables: list[str]) -> None:
    a, b, c = tables
    since, before = len(witness.exchanges), locations(lake, tables)
    rows = java.begin(a.replace(".a", ".rows"))
    java.commit(
        java.begin(a).append_files_of(rows).set_property("moved", "yes"),
        java.begin(b).delete_everything(),
        java.begin(c).add_column("late").append_files_of(rows),
    )

    [sent] = commits(witness, since)
    assert sent.status == 204
    assert lake.scan_everything() == {a: 3, b: 0, c: 3, a.replace(".a", ".rows"): 2}
    assert lake.sql(f"SELECT id, late FROM other.{c} ORDER BY id") == [(0, None), (1, None), (2, None)]
    assert lake.metadata(a)["properties"]["moved"] == "yes"

    known = record(lake, sent.key)
    assert (known["state"], known["operation"]) == ("committed", "commitTransaction")
    changed = {change["identifier"]["name"]: change["metadata-location"] for change in known["changes"]}
    assert changed == dict(zip(TABLES, locations(lake, tables), strict=True))
    assert not set(changed.values()) & set(before)


def test_a_requirement_that_fails_for_one_table_leaves_every_table_as_it_was(
    lake: Lake, java: Java, witness: Witness, tables: list[str], appended: Callable[[str], Transaction]
) -> None:
    since, b = len(witness.exchanges), tables[1]
    changes = [appended(table) for table in tables]
    lake.sql(f"INSERT INTO other.{b} VALUES (7)")
    before = locations(lake, tables)
    with refused("CommitFailedException"):
        java.commit(*changes)

    assert locations(lake, tables) == before
    [sent] = commits(witness, since)
    assert sent.status == 409
    [failure] = sent.json()["error"]["failed-requirements"]
    assert failure["identifier"]["name"] == "b"
    assert failure["requirement"]["type"] == "assert-ref-snapshot-id"
    assert failure["actual"]["snapshot-id"] == lake.metadata(b)["current-snapshot-id"]
    assert record(lake, sent.key)["state"] == "failed"
    rows = lake.scan_everything()
    assert [rows[table] for table in tables] == [1, 2, 1]

    # Made again on what is there now, it goes through.
    java.commit(*(appended(table) for table in tables))
    rows = lake.scan_everything()
    assert [rows[table] for table in tables] == [3, 4, 3]


def test_a_table_that_is_gone_leaves_every_other_table_as_it_was(
    lake: Lake, java: Java, tables: list[str], appended: Callable[[str], Transaction]
) -> None:
    changes = [appended(table) for table in tables]
    lake.sql(f"DROP TABLE {tables[2]}")
    before = locations(lake, tables[:2])
    with refused("NoSuchTableException"):
        java.commit(*changes)
    assert locations(lake, tables[:2]) == before
    assert set(lake.scan_everything().values()) == {1, 2}


def test_transactions_of_two_clients_over_the_same_tables_happen_one_after_the_other(
    lake: Lake, witness: Witness, tables: list[str], db: str
) -> None:
    each, since = 3, len(witness.exchanges)

    def work(client: str, order: list[str]) -> None:
        java = Java(lake, witness.url)
        rows = java.begin(f"{db}.rows")

        def noted(note: str) -> list[Transaction]:
            return [java.begin(table).append_files_of(rows, note) for table in order]

        for number in range(each):
            commit_until_it_goes_through(java, partial(noted, f"{client}{number}"))
        java.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(work, "x", tables), pool.submit(work, "y", tables[::-1])]:
            done.result()

    # Every table tells the same story.
    stories = [[one["summary"].get("note") for one in lake.metadata(table)["snapshots"]] for table in tables]
    assert stories[0] == stories[1] == stories[2]
    assert sorted(stories[0][1:]) == sorted(f"{client}{number}" for client in "xy" for number in range(each))
    assert {one.status for one in commits(witness, since)} <= {204, 409}
    rows = lake.scan_everything()
    assert [rows[table] for table in tables] == [1 + 2 * each * 2] * 3


def test_every_commit_of_java_has_a_key_of_its_own_that_can_be_asked_about(
    lake: Lake, java: Java, witness: Witness, tables: list[str]
) -> None:
    """The client sends keys since 1.11, if the server says that it knows them."""
    since, position = len(witness.exchanges), lake.log_position()
    for number in range(2):
        java.commit(*(java.begin(table).set_property("number", str(number)) for table in tables))
    first, second = [one.key for one in commits(witness, since)]
    assert first is not None and second is not None and first != second
    assert parse_transaction_id(first) == first
    # The key is the transaction's id in the log and in the records.
    logged = [line["transaction_id"] for line in lake.requests(position) if line["operation"] == "commitTransaction"]
    assert logged == [first, second]
    assert [len(record(lake, key)["changes"]) for key in (first, second)] == [3, 3]


def test_a_transaction_whose_answer_is_lost_is_sent_again_under_its_key_and_happens_once(
    lake: Lake, java: Java, witness: Witness, tables: list[str], appended: Callable[[str], Transaction]
) -> None:
    since = len(witness.exchanges)
    witness.lose_answers(COMMIT, told=503)
    java.commit(*(appended(table) for table in tables))

    first, again = commits(witness, since)
    assert (first.status, again.status) == (204, 204)
    assert first.key is not None and first.key == again.key
    rows = lake.scan_everything()
    assert [rows[table] for table in tables] == [3, 3, 3]
    assert [len(lake.metadata(table)["snapshots"]) for table in tables] == [2, 2, 2]


def test_a_refusal_whose_answer_is_lost_is_given_again_though_its_reason_has_gone(
    lake: Lake, java: Java, witness: Witness, tables: list[str], appended: Callable[[str], Transaction]
) -> None:
    since, b = len(witness.exchanges), tables[1]
    changes = [appended(table) for table in tables]
    old = lake.metadata(b)["current-snapshot-id"]
    lake.sql(f"INSERT INTO other.{b} VALUES (7)")
    witness.lose_answers(COMMIT, told=503)
    witness.let_happen_before(COMMIT, lambda: lake.sql(f"CALL other.system.rollback_to_snapshot('{b}', {old})"))
    with refused("CommitFailedException"):
        java.commit(*changes)

    first, again = commits(witness, since)
    assert (first.status, again.status) == (409, 409)
    assert first.key == again.key and first.json() == again.json()
    rows = lake.scan_everything()
    assert [rows[table] for table in tables] == [1, 1, 1]


def test_a_transaction_in_doubt_can_be_asked_about_and_its_client_deletes_nothing(
    lake: Lake, java: Java, witness: Witness, tables: list[str], appended: Callable[[str], Transaction]
) -> None:
    since = len(witness.exchanges)
    witness.lose_answers(COMMIT, told=504, times=2)
    with refused("CommitStateUnknownException"):
        java.commit(*(appended(table) for table in tables))

    first, again = commits(witness, since)
    assert first.key == again.key and record(lake, first.key)["state"] == "committed"
    rows = lake.scan_everything()
    assert [rows[table] for table in tables] == [3, 3, 3]
