"""What is asked wrongly is refused before Spark is asked."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.client import Conflict, Unavailable
from lakepact.errors import InvalidRequest
from lakepact.spark import TransactionUnfit, UnsupportedFormat
from lakepact.spark.errors import conflict_in, is_outage, root_message
from lakepact.spark.names import full_name
from lakepact.spark.statements import Fitness
from lakepact.spark.writers import Write, check_format


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("sales.orders", "`lake`.`sales`.`orders`"),
        ("lake.sales.orders", "`lake`.`sales`.`orders`"),
        ("other.sales.orders", "`lake`.`sales`.`orders`"),
        ("sales.eu.orders", "`lake`.`sales`.`eu`.`orders`"),
        (("sales", "a.b`c"), "`lake`.`sales`.`a.b``c`"),
        (("lake", "sales", "orders"), "`lake`.`lake`.`sales`.`orders`"),
        ("orders", "`orders`"),
    ],
)
def test_names_are_those_of_the_lake(name: Any, full: str) -> None:
    assert full_name(name, "lake", ["lake", "other"]) == full


@pytest.mark.parametrize("name", ["", "sales.", ()])
def test_an_empty_name_is_none(name: Any) -> None:
    with pytest.raises(ValueError, match="is no table"):
        full_name(name, "lake")


@pytest.mark.parametrize(
    ("wish", "why"),
    [
        ({"mode": "upsert"}, "append, overwrite"),
        ({"mode": "merge"}, "keys="),
        ({"keys": ["id"]}, "keys="),
        ({"partitioned_by": ["day"]}, "tables that are created"),
        ({"mode": "overwrite", "properties": {"a": "b"}}, "tables that are created"),
        ({"mode": "merge", "keys": ["id"], "options": {"a": "b"}}, "takes no options"),
    ],
)
def test_a_write_that_does_not_fit_together_is_refused(wish: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        Write(**wish).check("sales.orders")


def test_a_format_that_is_not_known_is_refused_by_name() -> None:
    check_format(None)
    check_format("Delta")
    with pytest.raises(UnsupportedFormat, match="delta or iceberg, not 'hudi'"):
        check_format("hudi")


def fail(error: BaseException) -> None:
    raise error


def test_the_first_failure_makes_a_transaction_unfit_for_good() -> None:
    fitness = Fitness("0198")
    assert fitness.guard("fine", lambda: 7) == 7
    first = RuntimeError("disk full")
    with pytest.raises(RuntimeError, match="disk full"):
        fitness.guard("INSERT  INTO\n t", lambda: fail(first))
    for _ in range(2):
        with pytest.raises(TransactionUnfit, match=r"0198.*INSERT INTO t") as caught:
            fitness.guard("SELECT 1", lambda: 7)
        assert caught.value.__cause__ is first


class Thrown:
    """As Java's exceptions look from Python."""

    def __init__(self, kind: str, message: str, cause: Thrown | None = None) -> None:
        self._kind, self._message, self._cause = kind, message, cause

    def getClass(self) -> Thrown:
        return self

    def getName(self) -> str:
        return self._kind

    def getSimpleName(self) -> str:
        return self._kind.rpartition(".")[2]

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> Thrown | None:
        return self._cause


class FromJava(Exception):
    def __init__(self, thrown: Thrown) -> None:
        self.java_exception = thrown


def test_a_conflict_is_known_through_what_it_caused() -> None:
    iceberg = "org.apache.iceberg.exceptions."
    failed = Thrown(iceberg + "CommitFailedException", "orders has moved")
    wrapped = Thrown("org.apache.spark.SparkException", "Writing job aborted", failed)
    unfit = TransactionUnfit("0198", "INSERT")
    unfit.__cause__ = FromJava(wrapped)
    for error in (Conflict("x"), FromJava(failed), FromJava(wrapped), unfit):
        assert conflict_in(error) is not None
    too_old = Thrown(iceberg + "AlreadyExistsException", "cell 'x' …; this store keeps no older state. Abort")
    found = conflict_in(FromJava(too_old))
    assert found is not None and found.server_type == "SnapshotTooOldException"
    for kind in ("AlreadyExistsException", "ValidationException"):
        assert conflict_in(FromJava(Thrown(iceberg + kind, "no"))) is None
    assert conflict_in(ValueError("no")) is None


def test_a_conflict_in_a_statement_has_one_name() -> None:
    thrown = FromJava(Thrown("org.apache.iceberg.exceptions.CommitFailedException", "orders has moved"))
    with pytest.raises(Conflict, match="orders has moved") as caught:
        Fitness("0198").guard("INSERT", lambda: fail(thrown))
    assert caught.value.__cause__ is thrown


def test_a_refused_connection_inside_an_exception_of_spark_is_an_outage() -> None:
    refused = Thrown("java.net.ConnectException", "Connection refused")
    wrapped = Thrown("org.apache.spark.SparkException", "Job aborted", refused)
    unfit = TransactionUnfit("0198", "INSERT")
    unfit.__cause__ = FromJava(wrapped)
    for error in (Unavailable("x"), FromJava(refused), FromJava(wrapped), unfit):
        assert is_outage(error)


def test_a_statement_that_is_wrong_is_no_outage() -> None:
    wrong = Thrown("org.apache.spark.sql.AnalysisException", "TABLE_OR_VIEW_NOT_FOUND")
    for error in (FromJava(wrong), FromJava(Thrown("org.apache.spark.SparkException", "Job aborted", wrong))):
        assert not is_outage(error)
    assert not is_outage(ValueError("no"))


def test_a_nested_java_exception_is_one_line_that_names_its_innermost_cause() -> None:
    stack = "\n".join(f"\tat org.apache.spark.Stage{number}.run(Stage.scala:{number})" for number in range(300))
    refused = Thrown("java.net.ConnectException", f"Connection refused\n{stack}")
    job = Thrown("org.apache.spark.SparkException", f"Job aborted\n{stack}", refused)
    assert root_message(FromJava(job)) == "ConnectException: Connection refused"
    silent = Thrown("java.lang.RuntimeException", "", Thrown("java.lang.Error", "  "))
    assert root_message(FromJava(Thrown("a.b.Outer", f"outer\n{stack}", silent))) == "Outer: outer"


def test_an_error_of_a_python_worker_is_the_last_line_of_its_traceback() -> None:
    traceback = 'Traceback (most recent call last):\n  File "udf.py", line 1, in f\nValueError: no such day\n'
    worker = Thrown("org.apache.spark.api.python.PythonException", f"{traceback}\n\tat org.apache.spark.Run.run(R:1)")
    assert root_message(FromJava(Thrown("a.SparkException", "Job aborted", worker))) == "ValueError: no such day"
