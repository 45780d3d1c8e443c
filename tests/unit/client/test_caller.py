"""A request is repeated under one key until there is an outcome, and the outcome is never guessed."""

from __future__ import annotations

import socket

import pytest

from lakepact.client import Conflict, NotFound, Refused, Retry, Unauthorized, Unavailable, Unknown
from lakepact.client.caller import Caller
from lakepact.client.delta import DeltaTables
from lakepact.client.http import Answer, HttpTransport, NotSent
from lakepact.client.machine import ThisMachine
from lakepact.delta import MultiTableTransaction, StagedTable, TransactionConfig
from lakepact.delta.actions import Add
from tests.unit.client.script import BUSY, JSON, LOST, NOT_SENT, OK, Reply, Script, StillMachine, caller, refusal

WITHOUT_A_WORD = Answer(503)


def test_every_attempt_of_a_change_carries_the_same_key() -> None:
    script = Script([LOST, BUSY, Answer(504), NOT_SENT, OK])
    assert caller(script).change("POST", "{prefix}/namespaces", body={"namespace": ["a"]}) is OK
    assert len(script.sent) == 5
    assert len({sent.key for sent in script.sent}) == 1
    assert script.sent[0].key is not None
    assert {sent.target for sent in script.sent} == {"/v1/main/namespaces"}


def test_two_changes_have_two_keys() -> None:
    script = Script([OK, OK])
    calls = caller(script)
    calls.change("POST", "a")
    calls.change("POST", "a")
    assert script.sent[0].key != script.sent[1].key


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        ([NOT_SENT] * 3, Unavailable),
        ([BUSY] * 3, Unavailable),
        ([LOST] * 3, Unknown),
        ([Answer(504)] * 3, Unknown),
        ([Answer(500)] * 3, Unknown),
        # Somebody in between who does not say when to come back may have passed it on.
        ([WITHOUT_A_WORD] * 3, Unknown),
        # A proxy may send Retry-After for a request that it has passed on.
        ([Answer(503, b"<html>", {"retry-after": "2"})] * 3, Unknown),
        ([Answer(503, b"{}", {"retry-after": "2"})] * 3, Unknown),
        # What was certainly not heard says nothing about an attempt before.
        ([LOST, NOT_SENT, NOT_SENT], Unknown),
        ([NOT_SENT, BUSY, Answer(502)], Unknown),
        # A page for people, and the way to another one, come from somebody in between.
        ([Answer(200, b"<html>", {"content-type": "text/html; charset=utf-8"})] * 3, Unknown),
        ([Answer(302, b"", {"location": "https://login.test"})] * 3, Unknown),
    ],
)
def test_a_change_without_an_answer_is_unavailable_only_if_it_was_never_heard(
    replies: list[Reply], error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        caller(Script(replies), retry=Retry(attempts=3)).change("POST", "a", key="k")
    if isinstance(raised.value, Unknown):
        assert raised.value.transaction_id == "k"
        assert "lake.transactions.get('k')" in str(raised.value)


def test_a_read_has_no_outcome_that_could_be_unknown() -> None:
    with pytest.raises(Unavailable):
        caller(Script([LOST, Answer(504), LOST]), retry=Retry(attempts=3)).read("a")


def test_a_refusal_is_not_repeated() -> None:
    script = Script([refusal(404, "NoSuchTableException", "no table a.b")])
    with pytest.raises(NotFound, match=r"no table a\.b"):
        caller(script).read("a")
    assert len(script.sent) == 1


def test_a_refusal_of_who_asks_does_not_settle_what_was_heard_before() -> None:
    with pytest.raises(Unknown):
        caller(Script([LOST, refusal(401, "NotAuthorizedException")])).change("POST", "a")
    with pytest.raises(Unauthorized):
        caller(Script([NOT_SENT, refusal(401, "NotAuthorizedException")])).change("POST", "a")


def test_pauses_grow_are_bounded_and_are_as_long_as_the_server_asks() -> None:
    machine = StillMachine()
    retry = Retry(attempts=6, first_pause_s=1.0, longest_pause_s=5.0)
    caller(Script([NOT_SENT, NOT_SENT, NOT_SENT, NOT_SENT, BUSY, OK]), machine, retry).read("a")
    assert machine.pauses == [1.0, 2.0, 2.5, 2.5, 2.5]


def test_what_another_attempt_cannot_mend_is_not_tried_again() -> None:
    machine = StillMachine()
    with pytest.raises(Unavailable) as caught:
        caller(Script([NotSent("it does not speak TLS", for_good=True), OK]), machine).read("a")
    assert str(caught.value) == "GET /v1/a: it does not speak TLS. Nothing was changed"
    assert machine.pauses == []
    with pytest.raises(Unavailable, match=r"\? \(after 2 attempts\)\. Nothing was changed; try again later$"):
        caller(Script([NotSent("is it there?")] * 2), machine, Retry(attempts=2)).read("a")


def test_no_attempt_begins_after_the_deadline() -> None:
    machine = StillMachine()
    later = Answer(503, headers={"retry-after": "20"})
    with pytest.raises(Unavailable, match="after 3 attempts"):
        caller(Script([later] * 9), machine, Retry(attempts=9, deadline_s=50.0)).read("a")
    assert machine.pauses == [20.0, 20.0]


def test_a_server_that_says_500_is_not_asked_for_ever() -> None:
    script = Script([Answer(500)] * 9)
    with pytest.raises(Unavailable):
        caller(script).read("a")
    assert len(script.sent) == 3


def test_a_conflict_names_the_tables_that_had_moved() -> None:
    moved = [{"cell": "main/x", "identifier": {"namespace": ["a", "b"], "name": "t"}}, {"cell": "main/y"}]
    with pytest.raises(Conflict) as raised:
        caller(Script([refusal(409, "CommitFailedException", "moved", conflicts=moved)])).change("POST", "a")
    assert raised.value.tables == (("a", "b", "t"),)
    assert raised.value.server_type == "CommitFailedException"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, b"default backend - 404", {"content-type": "text/plain"}),
        Answer(404, b'{"message": "no route"}', JSON),
        Answer(413, b"<html>too large</html>", {"content-type": "text/html"}),
        Answer(202, b"", {"content-type": "text/html"}),
        Answer(200, b"<html>"),
        Answer(200, b"{", JSON),
        Answer(301, b"", {"location": "https://login.test/?token=s3cret"}),
    ],
)
def test_what_no_server_of_ours_says_is_no_answer_and_shown_as_it_is(answer: Answer) -> None:
    script = Script([LOST, *[answer] * 9])
    with pytest.raises(Unknown, match=f"not a Lakepact server answered: {answer.status}") as raised:
        caller(script).change("POST", "a")
    assert "s3cret" not in str(raised.value)
    assert len(script.sent) == 4, "it is not likely to get better"
    with pytest.raises(Unavailable, match="Correct the address"):
        caller(Script([answer] * 9)).read("a")


def test_a_gateway_may_say_who_may_not_ask_and_one_that_asks_for_existence_gets_no_words() -> None:
    for status in (401, 403):
        with pytest.raises(Refused, match="Jwt is expired"):
            caller(Script([Answer(status, b"Jwt is expired", {"content-type": "text/plain"})])).change("POST", "a")
    with pytest.raises(NotFound):
        caller(Script([Answer(404)])).read("a", method="HEAD")


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON ; charset=utf-8"])
def test_a_media_type_may_be_spelled_in_any_way(kind: str) -> None:
    assert caller(Script([Answer(200, b"{}", {"content-type": kind})])).read("a").json() == {}


def test_time_limit_bounds_attempts_pauses_and_answers() -> None:
    machine, script = StillMachine(), Script([BUSY] * 9)
    with pytest.raises(Unavailable):
        caller(script, machine).within(5.0).change("POST", "a", key="k")
    assert script.timeouts == [5.0, 3.0, 1.0], "each attempt is waited for as long as time is left"
    sent = [one.headers["X-Lakepact-Timeout-Ms"] for one in script.sent]
    assert sent == ["5000", "3000", "1000"], "and the server learns of it"
    assert machine.pauses == [2.0, 2.0]


def test_commit_of_delta_tables_waits_as_long_as_its_configuration_says() -> None:
    tx = MultiTableTransaction(TransactionConfig(timeout_secs=1))
    tx.stage_table("a", StagedTable("a", [Add("x.parquet", {}, 1, 1)], expected_version=0))
    for replies, error in (([BUSY] * 9, Unavailable), ([LOST] * 9, Unknown)):
        machine, script = StillMachine(), Script(list(replies))
        with pytest.raises(error):
            DeltaTables(caller(script, machine)).writer().commit(tx)
        assert sum(machine.pauses) <= 1.0
        assert all(timeout is not None and timeout <= 1.0 for timeout in script.timeouts)
        assert {sent.key for sent in script.sent} == {tx.transaction_id}


def test_answer_that_does_not_come_in_time_is_an_unknown_outcome() -> None:
    """Over a real socket that accepts and never answers. Without the limit the transport would wait for 600 s."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = HttpTransport(f"http://127.0.0.1:{silent.getsockname()[1]}", answer_s=600.0)
        try:
            with pytest.raises(Unknown) as raised:
                Caller(transport, ThisMachine(), prefix="main").within(0.2).change("POST", "a", key="k")
        finally:
            transport.close()
    assert raised.value.transaction_id == "k"


def test_a_token_that_cannot_be_fetched_says_nothing_about_an_earlier_attempt() -> None:
    script = Script([LOST, OK])
    calls = caller(script)
    calls._tokens = TokensForOneAttempt()
    with pytest.raises(Unknown) as unknown:
        calls.change("POST", "a")
    assert "Nothing happened" not in str(unknown.value)
    assert len(script.sent) == 1


class TokensForOneAttempt:
    """An issuer that is away after the first token."""

    def __init__(self) -> None:
        self._given = False

    def current(self) -> str:
        if self._given:
            raise Unavailable("the issuer did not answer. Nothing happened; try again later")
        self._given = True
        return "t"

    def newer_than(self, token: str) -> str | None:
        return None
