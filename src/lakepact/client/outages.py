"""Waiting for a server that does not answer, such as during its restart.

One request is repeated for some seconds (`caller.py`). A job of many requests survives more than that: it waits until
the server answers again, and then repeats what the outage has interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from lakepact.client.errors import Conflict, TransactionClosed, Unavailable, Unknown
from lakepact.client.machine import Machine
from lakepact.client.transactions import ABORTED, COMMITTED, FAILED
from lakepact.errors import LakepactError

LONGEST_S: Final = 60.0
"""A job waits at most this long for a server that does not answer."""

UNKNOWN: Final = "unknown"
"""The outcome of a transaction whose commit had no answer."""

_MOST: Final = 5
"""Outages that one job waits for."""

_PAUSE_S: Final = 0.5
_DEEPEST: Final = 20
_CONNECTION_ERRORS: Final = ("ConnectionError", "ConnectTimeout", "ReadTimeout", "ServiceUnavailableError")
"""Errors of PyIceberg, and of the HTTP client inside it, for a server that is away. Neither need be installed."""
_READING: Final = ("GET", "HEAD")
_TOKENS: Final = "/v1/oauth/tokens"
_PORTS: Final = {"http": 80, "https": 443}


class Interrupted(Protocol):
    """A transaction that an outage has interrupted."""

    @property
    def id(self) -> str: ...

    @property
    def outcome(self) -> str: ...

    def settle(self) -> object:
        """Send the commit again whose answer was lost. Raises `Unknown` for as long as nothing is certain."""
        ...


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, what caused it, and so on."""
    cause: BaseException | None = error
    for _ in range(_DEEPEST):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def is_outage(error: BaseException, uri: str, transaction_id: str) -> bool:
    """Return whether this error is, or was caused by, a server that did not answer: the one at `uri`.

    PyIceberg's connection errors name the request. It must have been sent to this server, and inside the transaction;
    outside of it only if it changes nothing. A change outside may have been applied, so it is no outage to repeat it
    after. An error without a request is none either: it may be of any server.
    """
    chain = list(causes(error))
    if any(isinstance(cause, Unavailable | Unknown) for cause in chain):
        return True
    if not any(_is_connection_error(type(cause)) for cause in chain):
        return False
    requests = [request for cause in chain if (request := getattr(cause, "request", None)) is not None]
    return any(_may_be_repeated(request, uri, transaction_id) for request in requests)


def raise_unknown_elsewhere(error: BaseException, transaction_id: str) -> None:
    """Raise if this error is, or was caused by, an `Unknown` of another transaction than this one.

    That one may have been applied, so whatever has sent it must not be repeated. Raises the error itself, or the
    `Unknown` if the error is one of the client's: all others of them say that nothing happened.
    """
    for cause in causes(error):
        if isinstance(cause, Unknown) and cause.transaction_id != transaction_id:
            raise cause if isinstance(error, LakepactError) else error


def _is_connection_error(kind: type[BaseException]) -> bool:
    package = kind.__module__.partition(".")[0]
    return package in ("requests", "pyiceberg") and kind.__name__ in _CONNECTION_ERRORS


def _may_be_repeated(request: Any, uri: str, transaction_id: str) -> bool:
    """Return whether this request of PyIceberg's HTTP client went to the server, and changes nothing outside."""
    url = str(getattr(request, "url", None) or "")
    if _address(url) != _address(uri):
        return False
    path = urlsplit(url).path
    return getattr(request, "method", None) in _READING or transaction_id in path or path.endswith(_TOKENS)


def _address(uri: str) -> tuple[str | None, int | None]:
    parts = urlsplit(uri)
    return parts.hostname, parts.port or _PORTS.get(parts.scheme)


class Outages:
    """The outages that one job has met. `probe` is a request that changes nothing."""

    def __init__(self, probe: Callable[[], object], machine: Machine) -> None:
        self._probe = probe
        self.machine = machine
        self._count = 0

    def wait(self) -> bool:
        """Return True once the server answers again, False if it does not within a minute, or has failed too often.

        If the server answers at once, the job pauses all the same, longer each time: the outage may be of another
        server, or of a part of this one that the probe does not need.
        """
        if self._count >= _MOST:
            return False
        self._count += 1
        deadline_s = self.machine.monotonic_s() + LONGEST_S
        waited = False
        while True:
            try:
                self._probe()
            except (Unavailable, Unknown):
                if self.machine.monotonic_s() > deadline_s:
                    return False
                self.machine.pause(_PAUSE_S)
                waited = True
                continue
            if not waited:
                self.machine.pause(_PAUSE_S * (1 << (self._count - 1)))
            return True

    def committed(self, transaction: Interrupted, error: Exception) -> bool:
        """Wait for the server, and return whether the interrupted transaction was committed.

        A commit without an answer is sent again, which is safe: it is idempotent. This is repeated after another wait
        for as long as the outcome is unknown, within the limits of `wait`. False means that nothing of the transaction
        is visible, or ever will be.

        Raises `Unknown` if the outcome is still unknown then, `error` if the server stays away from a transaction that
        was not sent to be committed, and whatever else the commit raises.
        """
        while self._answers(transaction, error):
            if transaction.outcome != UNKNOWN:
                return transaction.outcome == COMMITTED
            try:
                transaction.settle()
            except Conflict:
                return False
            except TransactionClosed as closed:
                if closed.state not in (ABORTED, FAILED):
                    raise
                return False
            except (Unavailable, Unknown) as again:
                error = again
                continue
            return True
        raise _in_doubt(transaction, error)

    def _answers(self, transaction: Interrupted, error: Exception) -> bool:
        try:
            return self.wait()
        except LakepactError as refusal:
            # The probe was refused, such as for a token that has expired. That says nothing about the commit.
            if transaction.outcome != UNKNOWN:
                raise
            raise _in_doubt(transaction, error) from refusal


def _in_doubt(transaction: Interrupted, error: Exception) -> Exception:
    """Return the error that says what is known of the transaction: never that nothing happened while it is unknown."""
    if transaction.outcome != UNKNOWN or (isinstance(error, Unknown) and error.transaction_id == transaction.id):
        return error
    return Unknown(
        f"commit of transaction {transaction.id}", "it had no answer, and the server does not tell", transaction.id
    )
