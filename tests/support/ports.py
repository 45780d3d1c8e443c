"""Ports of the loopback address that are known before a server listens on them, or at which nothing listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


def reserved_port() -> int:
    """Return a port that nobody else is given for about a minute.

    A connection over the port is closed here first, so that the system remembers it (TIME_WAIT). Until it forgets, it
    chooses the port neither for a server without a port of its own nor for a client. A server that sets SO_REUSEADDR,
    as ours does, can listen on it.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        with socket.create_connection(address) as client:
            accepted, _ = listening.accept()
            accepted.close()
            # The end that closed first is the one that is remembered.
            assert client.recv(1) == b""
    port: int = address[1]
    return port


@contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections. Nobody else gets it before the block ends: it is bound and not listening."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        yield port
