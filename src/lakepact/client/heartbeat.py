"""Renewal in the background: a transaction lives for as long as the block that works in it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from lakepact.client.errors import Refused
from lakepact.client.machine import Machine
from lakepact.errors import LakepactError

_log = logging.getLogger(__name__)


class Heartbeat:
    """Calls `beat` every `every_s` seconds until it is stopped, or until the answer is that there is nothing to renew.

    A beat that is not answered is made up for by the next one, so that only a server which is away for most of the
    transaction's life lets it expire. The thread dies with the process.
    """

    def __init__(self, beat: Callable[[], None], every_s: float, machine: Machine, name: str) -> None:
        self._beat = beat
        self._every_s = every_s
        self._machine = machine
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lakepact-renew-{name}", daemon=True)
        self.refusal: Refused | None = None
        """Why it gave up, if it did: the transaction has ended."""

    def start(self) -> None:
        self._thread.start()

    def stop(self, within_s: float = 1.0) -> None:
        """No beat begins after this. One that is under way is waited for, but not for long: it does no harm."""
        self._stopping.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(within_s)

    def _run(self) -> None:
        while not self._machine.wait(self._stopping, self._every_s):
            try:
                self._beat()
            except Refused as refusal:
                if not self._stopping.is_set():
                    self.refusal = refusal
                    _log.warning("the transaction is no longer renewed: %s", refusal)
                return
            except LakepactError as error:
                _log.info("renewal was not answered; the next one will do: %s", error)
