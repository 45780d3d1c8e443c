"""An answer is whole or it is lost, wherever the server was killed while it answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakepact.client.http import HttpTransport, Lost, NotSent
from tests.support.ports import refusing_port
from tests.support.waiting import PATIENCE_S

BODY = b'{"results": []}'
WITH_LENGTH = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n" + BODY
IN_CHUNKS = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n"
    + BODY[:8]
    + b"\r\n7\r\n"
    + BODY[8:]
    + b"\r\n0\r\n\r\n"
)
WITHOUT_END = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + BODY
A_PAGE = b"HTTP/1.0 403 Forbidden\r\ncontent-type: text/plain\r\n\r\ndenied by policy"


@contextmanager
def answering(answers: list[bytes]) -> Iterator[HttpTransport]:
    """The way to a server that gives each connection one of these answers, and then is gone."""

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        transport = HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}", answer_s=PATIENCE_S)
        yield transport
        transport.close()
        server.join(PATIENCE_S)


@pytest.mark.parametrize("answer", [WITH_LENGTH, IN_CHUNKS], ids=["with-length", "in-chunks"])
def test_an_answer_that_is_cut_anywhere_is_lost(answer: bytes) -> None:
    whole = answer.removesuffix(b"\r\n\r\n")  # After its last chunk, which is the empty one, nothing is missing.
    with answering([whole[:end] for end in range(len(whole))]) as transport:
        for _ in whole:
            with pytest.raises(Lost):
                transport.exchange("POST", "/", {}, None)


@pytest.mark.parametrize("answer", [WITH_LENGTH, IN_CHUNKS], ids=["with-length", "in-chunks"])
def test_a_whole_answer_is_one_though_the_server_is_gone_after_it(answer: bytes) -> None:
    with answering([answer]) as transport:
        assert transport.exchange("POST", "/", {}, None).body == BODY


def test_an_answer_without_an_end_is_whole_if_it_is_a_document() -> None:
    cuts = [WITHOUT_END[:end] for end in range(len(WITHOUT_END))]
    with answering([*cuts, WITHOUT_END]) as transport:
        for _ in cuts:
            with pytest.raises(Lost):
                transport.exchange("GET", "/", {}, None)
        assert transport.exchange("GET", "/", {}, None).body == BODY


def test_a_page_without_an_end_is_lost_and_shown() -> None:
    with answering([A_PAGE]) as transport, pytest.raises(Lost, match=r"403, does not say .* 'denied by policy'"):
        transport.exchange("GET", "/", {}, None)


def test_an_answer_without_a_body_needs_no_length() -> None:
    with answering([b"HTTP/1.1 204 No Content\r\n\r\n"]) as transport:
        assert transport.exchange("POST", "/", {}, None).status == 204


def test_a_server_that_speaks_no_tls_will_not_learn_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(A_PAGE)

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        transport = HttpTransport(f"https://127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(NotSent, match="its address begins with http://") as caught:
            transport.exchange("GET", "/", {}, None)
        server.join(PATIENCE_S)
    assert caught.value.for_good
    with refusing_port() as port:
        transport = HttpTransport(f"https://127.0.0.1:{port}")
        with pytest.raises(NotSent, match="Connection refused; is a server running there") as caught:
            transport.exchange("GET", "/", {}, None)
    assert not caught.value.for_good
