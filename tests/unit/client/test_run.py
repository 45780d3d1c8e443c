"""`lake.run`: a server that is away is waited for, and nothing is committed twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import requests
from pyiceberg.exceptions import ServiceUnavailableError

from lakepact.client import Lake, Transaction, Unavailable, Unknown
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
    refusal,
    transaction,
)

ATTEMPTS = 8
"""Of one request."""

DONE = document({"state": "committed", "results": []})
CONFIG = document({"defaults": {}, "overrides": {}})


class Restarting:
    """A server that is away at one step of the first transaction, for longer than one request is repeated."""

    def __init__(self, step: str, reply: Reply, *, away_s: float = 30.0) -> None:
        self.step = step
        self.reply = reply
        self.away_s = away_s
        self.down_until: float | None = None
        self.begun: list[str | None] = []
        self.commits: list[str] = []
        self.works: list[str] = []
        self.machine = StillMachine()
        self.lake: Lake = lake(Script(reply=self.answer), self.machine)

    def answer(self, sent: Sent) -> Reply:
        step = sent.target.partition("?")[0].rpartition("/")[2]
        if step == self.step and self.down_until is None:
            self.down_until = self.machine.now + self.away_s
            return self.reply
        if self.down_until is not None and self.machine.now < self.down_until:
            return NOT_SENT
        if step == "transactions" and sent.method == "POST":
            self.begun.append(sent.key)
            return document(transaction(sent.key or ""))
        if step == "commit":
            self.commits.append(sent.target.split("/")[-2])
            return DONE
        if step == "config":
            return CONFIG
        return document(transaction("x"))

    def run(self) -> str:
        return self.lake.run(self.work)

    def work(self, tx: Transaction) -> str:
        self.works.append(tx.id)
        tx.namespaces.load("sales")
        return f"result of {tx.id}"


def test_a_run_survives_a_server_that_is_away_while_it_works() -> None:
    server = Restarting("sales", NOT_SENT)
    result = server.run()
    first, second = server.works
    # The first transaction is never asked to commit; it was aborted, or ends when it expires.
    assert server.commits == [second] and first != second
    assert result == f"result of {second}"


def test_a_run_whose_transaction_cannot_begin_waits_for_the_server() -> None:
    server = Restarting("transactions", NOT_SENT)
    assert server.run() == f"result of {server.works[0]}"
    assert len(server.works) == len(server.commits) == 1


def test_a_commit_without_an_answer_is_sent_again_and_the_work_is_not_repeated() -> None:
    server = Restarting("commit", LOST)
    result = server.run()
    [only] = server.works
    assert server.commits == [only]
    assert result == f"result of {only}"


def test_a_server_that_stays_away_ends_the_run() -> None:
    server = Restarting("sales", NOT_SENT, away_s=3600.0)
    with pytest.raises(Unavailable, match="no connection"):
        server.run()
    assert server.commits == []


# --- a commit in doubt ---

UNAUTHORIZED = refusal(401, "NotAuthorizedException", "the token has expired")
FORBIDDEN = refusal(403, "ForbiddenException", "ann may not commit")


class Doubtful:
    """A server that answers the commits of the first transaction in this order, and applies all others.

    With `expires`, the first transaction has expired once these answers are given.
    """

    def __init__(self, *commits: Reply, expires: bool = False, config: Reply = CONFIG) -> None:
        self.commits = list(commits)
        self.expires = expires
        self.config = config
        self.begun: list[str] = []
        self.works: list[str] = []
        self.machine = StillMachine()
        self.lake: Lake = lake(Script(reply=self.answer), self.machine)

    def answer(self, sent: Sent) -> Reply:
        step = sent.target.partition("?")[0].rpartition("/")[2]
        if step == "transactions":
            self.begun.append(sent.key or "")
            return document(transaction(sent.key or ""))
        if step == "commit":
            return self.commits.pop(0) if self.commits and self.begun[0] in sent.target else DONE
        if step == "config":
            return self.config
        expired = self.expires and not self.commits
        return document(transaction(self.begun[0], "aborted" if expired else "open"))

    def work(self, tx: Transaction) -> str:
        self.works.append(tx.id)
        return f"result of {tx.id}"


@pytest.mark.parametrize("answer", [BUSY, NOT_SENT, UNAUTHORIZED, FORBIDDEN])
def test_an_unknown_commit_whose_repetitions_are_not_processed_is_unknown_and_work_runs_once(answer: Reply) -> None:
    server = Doubtful(*[LOST] * 8, *[answer] * 100)
    with pytest.raises(Unknown) as raised:
        server.lake.run(server.work)
    assert raised.value.transaction_id == server.begun[0]
    assert "othing happened" not in str(raised.value)
    assert server.works == server.begun and len(server.works) == 1


@pytest.mark.parametrize("answers", [[BUSY] * 8, [NOT_SENT] * 8, [UNAUTHORIZED], [FORBIDDEN], [LOST] * 8, []])
def test_an_unknown_commit_is_settled_once_the_server_processes_it_again(answers: list[Reply]) -> None:
    server = Doubtful(*[LOST] * 8, *answers, DONE)
    assert server.lake.run(server.work) == f"result of {server.begun[0]}"
    assert server.works == server.begun and len(server.works) == 1


def test_an_unknown_commit_stays_unknown_if_the_probe_is_refused() -> None:
    server = Doubtful(*[LOST] * 8, config=UNAUTHORIZED)
    with pytest.raises(Unknown) as raised:
        server.lake.run(server.work)
    assert raised.value.transaction_id == server.begun[0]


def test_an_unknown_commit_is_not_hidden_by_a_later_outage() -> None:
    server = Doubtful(*[LOST] * 100)

    def work(tx: Transaction) -> None:
        server.work(tx)
        with pytest.raises(Unknown):
            tx.commit()
        raise Unavailable("GET /v1/main: no connection. Nothing was changed")

    with pytest.raises(Unknown):
        server.lake.run(work)
    assert len(server.works) == 1


def test_work_is_repeated_after_an_unknown_commit_that_was_certainly_not_applied() -> None:
    server = Doubtful(*[LOST] * 8, refusal(400, "BadRequestException", "it has expired"), expires=True)
    assert server.lake.run(server.work) == f"result of {server.begun[1]}"
    assert server.works == server.begun and len(server.works) == 2


# --- changes outside of the transaction ---


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_unknown_outcome_of_another_transaction_is_raised_and_work_is_not_repeated(wrapped: bool) -> None:
    server = Doubtful()
    other = Unknown("commit", "the connection was lost", "another id")

    def work(tx: Transaction) -> None:
        server.work(tx)
        if wrapped:
            raise Unavailable("stage: the server did not answer") from other
        raise other

    with pytest.raises(Unknown) as raised:
        server.lake.run(work)
    assert raised.value is other
    assert len(server.works) == 1


def test_an_error_of_the_programs_own_about_another_transaction_is_raised_as_it_is() -> None:
    server = Doubtful()

    def work(tx: Transaction) -> None:
        server.work(tx)
        raise ValueError("the import failed") from Unknown("commit", "the connection was lost", "another id")

    with pytest.raises(ValueError, match="the import failed"):
        server.lake.run(work)
    assert len(server.works) == 1


def test_a_nested_run_whose_commit_is_unknown_ends_the_outer_one() -> None:
    outer, inner = Doubtful(), Doubtful(*[LOST] * 100)

    def work(tx: Transaction) -> None:
        outer.work(tx)
        inner.lake.run(inner.work)

    # Both count their random bits from 1, so that their first ids would be equal.
    inner.machine.bits(74)
    with pytest.raises(Unknown) as raised:
        outer.lake.run(work)
    assert raised.value.transaction_id == inner.begun[0] != outer.begun[0]
    assert len(outer.works) == len(inner.works) == 1


def connection_error(method: str, url: str) -> Exception:
    return requests.ConnectionError("reset", request=requests.Request(method, url).prepare())


def unavailable_error(method: str, url: str) -> Exception:
    error = ServiceUnavailableError("503")
    error.__cause__ = requests.HTTPError("503", request=requests.Request(method, url).prepare())
    return error


@pytest.mark.parametrize("error", [connection_error, unavailable_error])
@pytest.mark.parametrize(
    ("method", "url", "repeated"),
    [
        ("POST", "http://lake.test/v1/main%40{id}/namespaces/a/tables/t", True),
        ("POST", "http://lake.test:80/v1/main@{id}/namespaces/a/tables/t", True),
        ("GET", "http://lake.test/v1/main/namespaces/a/tables/t", True),
        ("POST", "http://lake.test/v1/oauth/tokens", True),
        ("POST", "http://lake.test/v1/main/namespaces/a/tables/t", False),
        ("GET", "http://lake.test:8080/v1/main/namespaces/a/tables/t", False),
        ("GET", "https://api.example.com/orders", False),
    ],
)
def test_a_connection_error_is_an_outage_only_if_nothing_outside_is_in_doubt(
    error: Callable[[str, str], Exception], method: str, url: str, repeated: bool
) -> None:
    server = Doubtful()

    def work(tx: Transaction) -> str:
        server.work(tx)
        if len(server.works) == 1:
            raise error(method, url.format(id=tx.id))
        return "done"

    if repeated:
        assert server.lake.run(work) == "done"
        assert len(server.works) == 2
    else:
        with pytest.raises((requests.ConnectionError, ServiceUnavailableError)):
            server.lake.run(work)
        assert len(server.works) == 1


def test_outages_that_the_probe_does_not_see_are_repeated_a_few_times_with_growing_pauses() -> None:
    server = Doubtful()

    def work(tx: Transaction) -> None:
        server.work(tx)
        raise Unavailable("GET /v1/main: held. Nothing was changed")

    with pytest.raises(Unavailable):
        server.lake.run(work)
    assert len(server.works) == 6
    assert server.machine.pauses == [0.5, 1.0, 2.0, 4.0, 8.0]
