"""`SparkLake.run`: an unknown commit is settled, and no change outside of the transaction is repeated in doubt."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self

import pytest

from lakepact.client import Unavailable, Unknown
from lakepact.spark import SparkLake, SparkTransaction, TransactionUnfit
from tests.unit.client.script import (
    BUSY,
    LOST,
    NOT_SENT,
    Reply,
    Script,
    Sent,
    StillMachine,
    document,
    lake,
    transaction,
)

DONE = document({"state": "committed", "results": []})
REST = "org.apache.iceberg.exceptions.RESTException"
COMMIT_UNKNOWN = "org.apache.iceberg.exceptions.CommitStateUnknownException"
REFUSED = "java.net.ConnectException"
SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app", appName="test"), version="4.0.0")


class WithoutSession(SparkTransaction):
    """A transaction whose statements are never run, so that it needs no session inside."""

    def begin(self) -> Self:
        self._plain.begin()
        return self


class LakeWithoutSession(SparkLake):
    def transaction(self, **options: Any) -> SparkTransaction:
        return WithoutSession(self.plain.transaction(), self.spark, ())


class Server:
    """A server that answers commits in this order, and then applies them."""

    def __init__(self, *commits: Reply) -> None:
        self.commits = list(commits)
        self.begun: list[str] = []
        self.works: list[str] = []
        self.lake = LakeWithoutSession(SPARK, lake(Script(reply=self.answer), StillMachine()), ())

    def answer(self, sent: Sent) -> Reply:
        step = sent.target.partition("?")[0].rpartition("/")[2]
        if step == "transactions":
            self.begun.append(sent.key or "")
            return document(transaction(sent.key or ""))
        if step == "commit":
            return self.commits.pop(0) if self.commits else DONE
        return document(transaction("x"))

    def run(self, error: BaseException | None = None) -> str:
        """Run work that raises this error the first time."""

        def work(tx: SparkTransaction) -> str:
            self.works.append(tx.id)
            if error is not None and len(self.works) == 1:
                raise error
            return f"result of {tx.id}"

        return self.lake.run(work)


@dataclass
class Thrown:
    """A Java exception, as Py4J shows it."""

    name: str
    message: str
    cause: Thrown | None = None

    def getClass(self) -> Any:
        return SimpleNamespace(getName=lambda: self.name, getSimpleName=lambda: self.name.rpartition(".")[2])

    def getMessage(self) -> str:
        return self.message

    def getCause(self) -> Thrown | None:
        return self.cause


class SparkError(Exception):
    def __init__(self, *thrown: tuple[str, str]) -> None:
        super().__init__(thrown[0][1])
        self.java_exception: Thrown | None = None
        for name, message in reversed(thrown):
            self.java_exception = Thrown(name, message, self.java_exception)


def test_an_unknown_commit_that_the_server_applies_later_is_returned_and_work_runs_once() -> None:
    server = Server(*[LOST] * 8, *[BUSY] * 8, DONE)
    assert server.run() == f"result of {server.begun[0]}"
    assert server.works == server.begun and len(server.works) == 1


@pytest.mark.parametrize("answer", [BUSY, NOT_SENT])
def test_an_unknown_commit_whose_repetitions_are_not_processed_is_unknown(answer: Reply) -> None:
    server = Server(*[LOST] * 8, *[answer] * 100)
    with pytest.raises(Unknown) as raised:
        server.run()
    assert raised.value.transaction_id == server.begun[0]
    assert "othing happened" not in str(raised.value)
    assert len(server.works) == 1


def test_an_unknown_outcome_of_another_transaction_is_raised_and_work_is_not_repeated() -> None:
    server, other = Server(), Unknown("commit", "the connection was lost", "another id")
    with pytest.raises(Unknown) as raised:
        server.run(other)
    assert raised.value is other
    assert len(server.works) == 1


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


READ_LOST = SparkError((REST, "Error occurred while processing GET request"), (REFUSED, "Connection refused"))
WRITE_LOST = SparkError((REST, "Error occurred while processing POST request"), (REFUSED, "Connection refused"))
COMMIT_LOST = SparkError((COMMIT_UNKNOWN, "Service failed: 504"))
DATABASE_AWAY = SparkError(("org.postgresql.util.PSQLException", "Connection refused"), (REFUSED, "Connection refused"))


@pytest.mark.parametrize(
    "error",
    [
        READ_LOST,
        SparkError((REFUSED, "Connect to http://lake.test [lake.test/10.0.0.1] failed: Connection refused")),
        caused(Unavailable("the server did not answer"), WRITE_LOST),
        caused(Unavailable("the server did not answer"), COMMIT_LOST),
        caused(TransactionUnfit("x", "INSERT INTO t"), WRITE_LOST),
    ],
)
def test_an_outage_of_the_lake_repeats_the_work(error: Exception) -> None:
    server = Server()
    assert server.run(error) == f"result of {server.begun[1]}"
    assert len(server.works) == 2


@pytest.mark.parametrize(
    "error", [DATABASE_AWAY, caused(Unavailable("the server did not answer"), DATABASE_AWAY), WRITE_LOST, COMMIT_LOST]
)
def test_an_outage_of_another_server_or_of_a_write_outside_is_raised(error: Exception) -> None:
    server = Server()
    with pytest.raises(type(error)):
        server.run(error)
    assert len(server.works) == 1
