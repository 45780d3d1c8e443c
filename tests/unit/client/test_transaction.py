"""A block commits at its end and aborts on an error, however the answers get lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from lakepact.client import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Lake,
    Transaction,
    TransactionClosed,
    Unavailable,
    Unknown,
)
from lakepact.client.http import Answer
from tests.support.waiting import PATIENCE_S
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

RESULTS = {"results": [{"identifier": {"namespace": ["a"], "name": "t"}, "metadata-location": "m1"}]}
CONFLICT = refusal(409, "CommitFailedException", "a.t changed", conflicts=[])


class Room:
    """A server with one transaction, whose commits are answered as the test says."""

    def __init__(self, *commits: Reply | str) -> None:
        self.commits = list(commits)
        self.state = "open"
        self.begun: list[str | None] = []
        self.steps: list[str] = []
        self.script = Script(reply=self.reply)
        self.machine = StillMachine()
        self.lake: Lake = lake(self.script, self.machine)
        self.begin_replies: list[Reply] = []
        self.abort_replies: list[Reply] = []

    def reply(self, sent: Sent) -> Reply:
        step = sent.target.rpartition("/")[2]
        if sent.method == "POST" and step == "transactions":
            self.begun.append(sent.key)
            return self.begin_replies.pop(0) if self.begin_replies else document(transaction(sent.key or ""))
        if step == "renew":
            return document(transaction("x"))
        self.steps.append(step if sent.method == "POST" else "get")
        if step == "commit":
            return self.commit()
        if step == "abort":
            if self.abort_replies:
                return self.abort_replies.pop(0)
            self.state = "aborted"
        outcome: dict[str, Any] = {"result": RESULTS} if self.state == "committed" else {}
        if self.state == "failed":
            outcome = {"error": {"message": "a.t changed", "type": "CommitFailedException", "code": 409}}
        return document(transaction("x", self.state, **outcome))

    def commit(self) -> Reply:
        """The next answer; a word means that this happened, and the answer was lost."""
        answer = self.commits.pop(0)
        if isinstance(answer, str):
            self.state = answer
            return LOST
        return answer

    def run(self, work: Callable[[Transaction], object] = lambda tx: None) -> Transaction:
        with self.lake.transaction() as tx:
            work(tx)
        return tx


def renewers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("lakepact-renew")]


@pytest.fixture(autouse=True)
def nobody_is_left_behind() -> Any:
    yield
    assert not renewers()


DONE = document({"state": "committed", **RESULTS})


def test_a_clean_block_commits_once_and_knows_what_it_published() -> None:
    room = Room(DONE)
    tx = room.run()
    assert room.steps == ["commit"]
    assert tx.outcome == "committed"
    assert [one.identifier for one in tx.results] == [("a", "t")]
    assert tx.warehouse == f"main@{tx.id}"
    assert tx.commit() == tx.results
    assert room.steps == ["commit"]


def test_an_error_in_the_block_aborts_and_comes_through() -> None:
    room = Room()
    with pytest.raises(ZeroDivisionError):
        room.run(lambda tx: 1 // 0)
    assert room.steps == ["abort"]


def test_an_abort_that_is_not_answered_does_not_hide_the_error() -> None:
    room = Room()
    room.abort_replies = [NOT_SENT] * 20
    with pytest.raises(ZeroDivisionError) as raised:
        room.run(lambda tx: 1 // 0)
    assert any("could not be aborted" in note for note in raised.value.__notes__)


def test_an_abort_that_comes_too_late_says_what_became_of_it() -> None:
    room = Room()
    room.state = "committed"
    room.abort_replies = [refusal(400, "BadRequestException", "it is committed")]
    with pytest.raises(ZeroDivisionError) as raised:
        room.run(lambda tx: 1 // 0)
    [note] = raised.value.__notes__
    assert "had ended before: it is committed" in note


def test_however_often_begin_is_sent_it_has_one_key() -> None:
    room = Room(DONE)
    room.begin_replies = [LOST, BUSY, Answer(504)]
    tx = room.run()
    assert set(room.begun) == {tx.id}
    assert len(room.begun) == 4


@pytest.mark.parametrize(
    ("commits", "steps"),
    [
        (["committed"], ["commit", "get"]),
        ([LOST, DONE], ["commit", "get", "commit"]),
        ([BUSY, NOT_SENT, DONE], ["commit", "commit", "commit"]),
        ([Answer(504), "committed"], ["commit", "get", "commit", "get"]),
    ],
)
def test_a_commit_whose_answer_is_lost_is_settled_by_asking(commits: list[Reply | str], steps: list[str]) -> None:
    room = Room(*commits)
    tx = room.run()
    assert tx.outcome == "committed"
    assert [one.identifier for one in tx.results] == [("a", "t")]
    assert room.steps == steps


def test_a_lost_refusal_is_still_a_conflict() -> None:
    room = Room("failed")
    with pytest.raises(Conflict, match=r"a\.t changed"):
        room.run()
    assert "abort" not in room.steps


def test_a_lost_end_of_any_other_kind_is_said_too() -> None:
    with pytest.raises(TransactionClosed) as raised:
        Room("aborted").run()
    assert raised.value.state == "aborted"


def test_a_transaction_that_expired_is_closed_and_says_so() -> None:
    room = Room(refusal(400, "BadRequestException", "it has expired"))
    room.state = "aborted"
    with pytest.raises(TransactionClosed, match="expired"):
        room.run()


def test_what_nobody_can_say_is_unknown_and_never_aborted() -> None:
    room = Room(*[LOST] * 20)
    with pytest.raises(Unknown) as raised:
        room.run()
    assert raised.value.transaction_id == room.begun[0]
    assert "abort" not in room.steps


UNAUTHORIZED = refusal(401, "NotAuthorizedException", "the token has expired")
FORBIDDEN = refusal(403, "ForbiddenException", "ann may not commit")
NO_TRANSACTION = refusal(404, "NoSuchTransactionException", "no such transaction")
TAKEN = refusal(409, "AlreadyExistsException", "a.t exists")


def unsettled(*settling: Reply | str) -> tuple[Room, Transaction]:
    """A transaction whose commit had no answer; these are the answers to the commits that settle it."""
    room = Room(*[LOST] * 8, *settling)
    tx = room.lake.transaction().begin()
    with pytest.raises(Unknown):
        tx.commit()
    return room, tx


@pytest.mark.parametrize("answer", [BUSY, NOT_SENT, UNAUTHORIZED, FORBIDDEN, NO_TRANSACTION, TAKEN])
def test_an_unknown_commit_stays_unknown_whatever_its_repetition_meets(answer: Reply) -> None:
    room, tx = unsettled(*[answer] * 8)
    with pytest.raises(Unknown) as raised:
        tx.settle()
    assert raised.value.transaction_id == tx.id
    assert "othing happened" not in str(raised.value)
    assert tx.outcome == "unknown"
    room.commits = [DONE]
    assert [one.identifier for one in tx.settle()] == [("a", "t")]
    assert tx.outcome == "committed"


@pytest.mark.parametrize("state", ["prepared", "retryable"])
def test_an_unknown_commit_stays_unknown_while_its_transaction_has_not_ended(state: str) -> None:
    room, tx = unsettled(refusal(400, "BadRequestException"))
    room.state = state
    with pytest.raises(Unknown):
        tx.settle()
    assert tx.outcome == "unknown"


@pytest.mark.parametrize("answer", [TAKEN, refusal(400, "BadRequestException")])
def test_a_refused_repetition_of_an_applied_commit_returns_what_was_published(answer: Reply) -> None:
    room, tx = unsettled(answer)
    room.state = "committed"
    assert [one.identifier for one in tx.settle()] == [("a", "t")]
    assert tx.outcome == "committed"


@pytest.mark.parametrize(
    ("answer", "state", "error"),
    [
        (CONFLICT, "failed", Conflict),
        (TAKEN, "failed", AlreadyExists),
        (refusal(400, "BadRequestException"), "aborted", TransactionClosed),
    ],
)
def test_an_unknown_commit_is_refused_once_the_server_proves_that_nothing_was_applied(
    answer: Reply, state: str, error: type[Exception]
) -> None:
    room, tx = unsettled(answer)
    room.state = state
    with pytest.raises(error):
        tx.settle()
    assert tx.outcome == state


def test_a_commit_that_was_never_heard_may_be_called_again() -> None:
    room = Room(*[NOT_SENT] * 8, DONE)
    tx = room.lake.transaction().begin()
    with pytest.raises(Unavailable):
        tx.commit()
    assert tx.outcome == "open"
    assert tx.commit()
    with pytest.raises(TransactionClosed):
        tx.abort()


def test_committing_or_aborting_inside_the_block_is_enough() -> None:
    room = Room(DONE)
    room.run(lambda tx: tx.commit())
    assert room.steps == ["commit"]
    room = Room()
    room.run(lambda tx: tx.abort())
    assert room.steps == ["abort"]


def test_a_key_whose_transaction_has_ended_is_not_begun_again() -> None:
    room = Room()
    room.begin_replies = [document(transaction("k", "committed"))]
    with pytest.raises(TransactionClosed) as raised, room.lake.transaction(key="k"):
        pytest.fail("the block must not run")
    assert raised.value.state == "committed"


def test_who_joins_a_transaction_leaves_its_end_to_others() -> None:
    room = Room()
    with room.lake.join("x") as tx:
        assert tx.id == "x"
    with pytest.raises(ZeroDivisionError), room.lake.join("x"):
        _ = 1 // 0
    assert room.steps == ["get", "get"]


def test_a_block_is_renewed_while_it_runs_and_no_longer() -> None:
    beats = threading.Event()
    room = Room(DONE)
    answer = room.script.reply
    assert answer is not None

    def reply(sent: Sent) -> Reply:
        if sent.target.endswith("/renew"):
            beats.set()
        return answer(sent)

    room.script.reply = reply
    room.run(lambda tx: None if beats.wait(PATIENCE_S) else pytest.fail("it was not renewed"))


def test_renewal_ends_when_there_is_nothing_to_renew() -> None:
    room = Room(DONE)
    answer = room.script.reply
    assert answer is not None
    room.script.reply = lambda sent: (
        refusal(400, "BadRequestException", "closed") if sent.target.endswith("/renew") else answer(sent)
    )

    def until_it_gives_up(tx: Transaction) -> None:
        for thread in threading.enumerate():
            if thread.name.startswith("lakepact-renew"):
                thread.join(PATIENCE_S)
        assert not renewers()

    room.run(until_it_gives_up)


# --- run ---


def test_run_does_everything_again_in_a_fresh_transaction_on_a_conflict() -> None:
    room = Room(CONFLICT, CONFLICT, DONE)
    ids = []

    def work(tx: Transaction) -> int:
        ids.append(tx.id)
        return len(ids)

    assert room.lake.run(work) == 3
    assert len(set(ids)) == 3
    assert len(room.machine.pauses) == 2
    assert 0 < room.machine.pauses[0] < room.machine.pauses[1]


def test_run_gives_up_with_the_conflict_after_its_last_attempt() -> None:
    moved = [{"identifier": {"namespace": ["a"], "name": "t"}}]
    room = Room(*[refusal(409, "CommitFailedException", "moved", conflicts=moved)] * 2)
    with pytest.raises(Conflict, match=r"2 attempts of a\.t") as raised:
        room.lake.run(lambda tx: None, attempts=2)
    assert raised.value.tables == (("a", "t"),)


def test_run_repeats_conflicts_and_nothing_else() -> None:
    room = Room(*[LOST] * 100)
    with pytest.raises(Unknown):
        room.lake.run(lambda tx: None)
    assert len(room.begun) == 1
    # One commit, and five that settle it, of eight attempts each.
    assert room.steps.count("commit") == 48
    room = Room()
    with pytest.raises(BadRequest):
        room.lake.run(lambda tx: _raise(BadRequest("no")))
    assert len(room.begun) == 1


def test_run_never_repeats_what_it_has_committed() -> None:
    room = Room(DONE)

    def work(tx: Transaction) -> None:
        tx.commit()
        raise Conflict("of something else")

    with pytest.raises(Conflict, match="something else"):
        room.lake.run(work)
    assert len(room.begun) == 1


def _raise(error: Exception) -> None:
    raise error
