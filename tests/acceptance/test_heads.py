"""What comes before a request is one, from anybody who reaches the port: bounded in size and in time."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S, wait_until

LIMIT = 8_192


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a deadline that no test reaches."""
    env = {"LAKEPACT_MAX_HEAD_BYTES": str(LIMIT), "LAKEPACT_REQUEST_DEADLINE_S": "600"}
    with running_server(tmp_path_factory.mktemp("heads"), env=env) as running:
        yield running


@pytest.fixture(scope="module")
def hasty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a short deadline, for requests that must miss it."""
    with running_server(tmp_path_factory.mktemp("hasty"), env={"LAKEPACT_REQUEST_DEADLINE_S": "1"}) as running:
        yield running


def connected(server: Server) -> socket.socket:
    place = urlsplit(server.url)
    assert place.hostname is not None and place.port is not None
    return socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)


def until_closed(connection: socket.socket) -> bytes:
    found = b""
    try:
        while more := connection.recv(65_536):
            found += more
    except ConnectionResetError:
        # It did not read what was sent behind the part it has answered.
        pass
    return found


def status_of(connection: socket.socket) -> int:
    """Of the next answer, which is read whole."""
    answer = http.client.HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def head(*headers: bytes, path: bytes = b"/v1/config") -> bytes:
    return b"\r\n".join([b"GET " + path + b" HTTP/1.1", b"Host: here", *headers, b"", b""])


def test_t_limit_2_a_head_that_is_too_large_is_431_in_one_piece(server: Server) -> None:
    for large in (
        head(b"X-Large: " + b"x" * LIMIT),
        head(*(b"X-%d: x" % number for number in range(2_000))),
        head(path=b"/v1/config?x=" + b"x" * LIMIT),
    ):
        with connected(server) as connection:
            connection.sendall(large)
            answer = until_closed(connection)
            assert answer.startswith(b"HTTP/1.1 431 "), answer[:200]
            assert b"max_head_bytes" in answer and b"\r\nconnection: close\r\n" in answer
    with connected(server) as connection:
        connection.sendall(head(b"X-Large: " + b"x" * (LIMIT - 200)))
        assert status_of(connection) == 200


@pytest.mark.parametrize("begun", [b"GET /", b"GET / HTTP/1.1\r\nX-Endless: ", b"GET / HTTP/1.1\r\n", b"\r\n"])
def test_t_limit_2_a_head_without_an_end_is_not_kept(server: Server, begun: bytes) -> None:
    line = b"a: b\r\n" if begun.endswith(b"1.1\r\n") else begun if begun == b"\r\n" else b"x"
    with connected(server) as connection:
        connection.sendall(begun)
        sent = 0
        try:
            while sent < 64 << 20:
                connection.sendall(line * 10_000)
                sent += 10_000 * len(line)
        except OSError:
            pass
        # What fits into buffers on the way, and no more.
        assert sent < 64 << 20


def test_t_limit_2_a_head_that_does_not_arrive_is_408_and_a_request_before_it_was_answered(
    hasty_server: Server,
) -> None:
    with connected(hasty_server) as connection:
        connection.sendall(head()[:-2])
        assert until_closed(connection).startswith(b"HTTP/1.1 408 ")

    def late_after_an_answered_request() -> bytes | None:
        """Return the response to an incomplete head. None: the complete request before it missed the deadline."""
        with connected(hasty_server) as connection:
            connection.sendall(head())
            if status_of(connection) != 200:
                return None
            connection.sendall(head()[:20])
            return until_closed(connection)

    late = wait_until(late_after_an_answered_request, "the complete request is never answered with 200")
    assert late is not None
    assert late.startswith(b"HTTP/1.1 408 ") and b"request_deadline_s" in late


def test_a_head_in_pieces_and_a_long_body_are_no_offence(server: Server) -> None:
    with connected(server) as connection:
        for byte in head():
            connection.sendall(bytes([byte]))
        assert status_of(connection) == 200
        body = b'{"namespace": ["n"], "properties": {"a": "' + b"x" * 10 * LIMIT + b'"}}'
        sent = head(b"Content-Length: %d" % len(body), path=b"/v1/main/namespaces").replace(b"GET", b"POST") + body
        connection.sendall(sent)
        assert status_of(connection) == 200
        connection.sendall(head())
        assert status_of(connection) == 200


def test_other_connections_do_not_notice(server: Server) -> None:
    with connected(server) as good, connected(server) as slow:
        slow.sendall(b"GET /v1/conf")
        for _ in range(3):
            good.sendall(head())
            assert status_of(good) == 200
