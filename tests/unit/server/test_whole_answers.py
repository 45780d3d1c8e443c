"""The head of an answer waits for its body, and for nothing else."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lakepact.server.whole_answers import PatientTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.sent


@pytest.fixture
def below() -> Transport:
    return Transport()


@pytest.fixture
def above(below: Transport) -> PatientTransport:
    return PatientTransport(cast("Any", below))


def test_head_and_body_leave_in_one_piece(above: PatientTransport, below: Transport) -> None:
    for _ in range(2):
        above.write(HEAD)
        above.write(b"{}")
    assert below.sent == [HEAD + b"{}"] * 2


def test_a_large_body_is_not_copied(above: PatientTransport, below: Transport) -> None:
    body = b"x" * 100_000
    above.write(HEAD)
    above.write(body)
    assert below.sent[0] == HEAD
    assert below.sent[1] is body


def test_an_empty_body_leaves_nothing_behind(above: PatientTransport, below: Transport) -> None:
    above.write(HEAD)
    above.write(b"")
    assert below.sent == [HEAD]


def test_more_of_a_body_follows_as_it_comes(above: PatientTransport, below: Transport) -> None:
    for part in (HEAD, b"2\r\n{}\r\n", b"0\r\n\r\n"):
        above.write(part)
    assert below.sent == [HEAD + b"2\r\n{}\r\n", b"0\r\n\r\n"]


def test_an_answer_without_a_body_leaves_at_its_end(above: PatientTransport, below: Transport) -> None:
    above.write(HEAD)
    assert below.sent == []
    above.flush()
    above.flush()
    assert below.sent == [HEAD]


def test_a_head_leaves_before_the_connection_ends(above: PatientTransport, below: Transport) -> None:
    above.write(HEAD)
    above.close()
    assert below.sent == [HEAD, "closed"]
    assert above.is_closing()


def test_a_client_that_waits_to_be_told_to_go_on_is_told(above: PatientTransport, below: Transport) -> None:
    above.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert below.sent == [b"HTTP/1.1 100 Continue\r\n\r\n"]
