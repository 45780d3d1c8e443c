"""A way to a server that a test can cut: bytes go through as they are, until one request is met."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

_CHUNK: Final = 1 << 16


class CuttingProxy:
    """Forwards to `upstream`, an address that may change. A request whose first line contains `met` is cut once.

    With `after_answer` the server is let answer first, and the answer is thrown away; else the request never gets
    there. `cut` is called in between, and may do to the server whatever it likes.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.met: str | None = None
        self.after_answer = True
        self.cut: Callable[[], None] = lambda: None
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        place = urlsplit(self.upstream)
        # A server that is away shows in the end of the connection.
        with client, suppress(OSError), socket.create_connection((place.hostname or "", place.port or 0)) as server:
            cutting = threading.Event()
            back = threading.Thread(target=self._answers, args=(client, server, cutting), daemon=True)
            back.start()
            self._requests(client, server, cutting)
            _hang_up(server)
            back.join()

    def _requests(self, client: socket.socket, server: socket.socket, cutting: threading.Event) -> None:
        while piece := client.recv(_CHUNK):
            if self.met is not None and self.met.encode() in piece.partition(b"\r\n")[0]:
                self.met, self.cuts = None, self.cuts + 1
                if not self.after_answer:
                    self.cut()
                    return
                cutting.set()
            server.sendall(piece)

    def _answers(self, client: socket.socket, server: socket.socket, cutting: threading.Event) -> None:
        with suppress(OSError):
            while (piece := server.recv(_CHUNK)) and not cutting.is_set():
                client.sendall(piece)
            if cutting.is_set():
                self.cut()
        _hang_up(client)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
