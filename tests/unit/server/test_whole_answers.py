"""The head of an answer waits for its body, and for nothing else."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lakepact.server.whole_answers import HeadWaits

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.sent.append(b"".join(parts))

    def close(self) -> None:
        self.sent.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.sent


@pytest.fixture
def below() -> Transport:
    return Transport()


@pytest.fixture
def above(below: Transport) -> HeadWaits:
    return HeadWaits(cast("Any", below))


def test_head_and_body_leave_in_one_piece(above: HeadWaits, below: Transport) -> None:
    for _ in range(2):
        above.write(HEAD)
        above.write(b"{}")
    assert below.sent == [HEAD + b"{}"] * 2


def test_more_of_a_body_follows_as_it_comes(above: HeadWaits, below: Transport) -> None:
    for part in (HEAD, b"2\r\n{}\r\n", b"0\r\n\r\n"):
        above.write(part)
    assert below.sent == [HEAD + b"2\r\n{}\r\n", b"0\r\n\r\n"]


def test_an_answer_without_a_body_leaves_at_its_end(above: HeadWaits, below: Transport) -> None:
    above.write(HEAD)
    assert below.sent == []
    above.flush()
    above.flush()
    assert below.sent == [HEAD]


def test_a_head_leaves_before_the_connection_ends(above: HeadWaits, below: Transport) -> None:
    above.write(HEAD)
    above.close()
    assert below.sent == [HEAD, "closed"]
    assert above.is_closing()


def test_a_client_that_waits_to_be_told_to_go_on_is_told(above: HeadWaits, below: Transport) -> None:
    above.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert below.sent == [b"HTTP/1.1 100 Continue\r\n\r\n"]
