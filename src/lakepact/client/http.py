"""One request, one answer, over a kept-alive connection of the standard library.

A dependency would buy little: the client speaks to one host, in JSON, and decides itself what may be repeated. What
matters here is to tell apart a request that certainly was not heard (`NotSent`) from one that may have been (`Lost`).
"""

from __future__ import annotations

import http.client
import os
import ssl
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import orjson

from lakepact.errors import InvalidSetting

CA_BUNDLE_VARIABLE: Final = "LAKEPACT_CA_BUNDLE"

_MOST_IDLE: Final = 16
_MOST_BYTES: Final = 1 << 30


_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
"""What OpenSSL says of an answer in plain text."""


def trusting(ca_bundle: str) -> ssl.SSLContext:
    """What to check a server's certificate with, if those in this file are the ones to vouch for it."""
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except (OSError, ValueError) as error:
        why = "there is no certificate in it" if isinstance(error, ssl.SSLError) else error
        raise InvalidSetting(
            f"the authorities in {ca_bundle} cannot be read: {why}; correct {CA_BUNDLE_VARIABLE}"
        ) from None


class NotSent(Exception):
    """Nobody heard the request: there was no connection to send it over."""

    def __init__(self, message: str, *, for_good: bool = False) -> None:
        super().__init__(message)
        self.for_good = for_good
        """Whether the next attempt will fare no better: somebody must correct something first."""


class Lost(Exception):
    """The request may have been heard, and no whole answer came back."""


@dataclass(slots=True)
class Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""

    _document: Any = field(default=None, init=False, repr=False, compare=False)

    def json(self) -> Any:
        """The body as a document, taken apart once."""
        if self._document is None:
            self._document = orjson.loads(self.body)
        return self._document

    @property
    def kind(self) -> str:
        """The media type, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Transport(Protocol):
    """The way to the server. Safe to use from several threads."""

    def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float | None = None,
    ) -> Answer:
        """Send one request and read its answer, whatever its status. Raises `NotSent` or `Lost`.

        `timeout_s` shortens the transport's own timeouts.
        """
        ...

    def close(self) -> None: ...


class HttpTransport:
    """A transport over HTTP/1.1. Connections are kept for the next request; each serves one thread at a time."""

    def __init__(
        self, uri: str, *, connect_s: float = 10.0, answer_s: float = 30.0, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        place = urlsplit(uri)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"{uri!r} is not the address of a server: write http://host:8181 or https://host/catalog")
        self._host = place.hostname
        self._port = place.port
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._tls = (ssl_context or ssl.create_default_context()) if place.scheme == "https" else None
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._lock = threading.Lock()
        self._process = os.getpid()

    def exchange(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout_s: float | None = None,
    ) -> Answer:
        connection = self._take()
        answer_s = self._answer_s if timeout_s is None else min(timeout_s, self._answer_s)
        if connection is not None:
            try:
                return self._over(connection, method, target, headers, body, answer_s)
            except Lost as lost:
                if isinstance(lost.__cause__, TimeoutError):
                    # The connection is in order, and the server takes longer than the caller waits.
                    raise
                # Most likely the server closed it while it was idle, and then the others are no better. Repeating is
                # safe, but from now on "not sent" would be a lie.
                self.close()
                try:
                    return self._over(self._connect(timeout_s), method, target, headers, body, answer_s)
                except NotSent as error:
                    raise Lost(f"{lost}; then {error}") from error
        return self._over(self._connect(timeout_s), method, target, headers, body, answer_s)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():
                # A child process must not speak over its parent's connections, nor end them.
                self._process, self._idle = os.getpid(), deque()
            return self._idle.pop() if self._idle else None

    def _connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        connect_s = self._connect_s if timeout_s is None else min(timeout_s, self._connect_s)
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=connect_s)
            if self._tls is None
            else http.client.HTTPSConnection(self._host, self._port, timeout=connect_s, context=self._tls)
        )
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            running = "; is a server running there?" if isinstance(error, ConnectionRefusedError) else ""
            raise NotSent(
                f"no connection to {self._host}:{connection.port}: {_said(error)}{running}",
                for_good=_is_for_good(error),
            ) from error
        return connection

    def _over(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None,
        answer_s: float,
    ) -> Answer:
        try:
            connection.sock.settimeout(answer_s)
            connection.request(method, target, body, dict(headers))
            response = connection.getresponse()
            content = response.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Lost(f"the connection to {self._host}:{connection.port} was lost: {_said(error)}") from error
        except BaseException:
            connection.close()
            raise
        cut = _why_not_whole(response, content)
        if cut is not None:
            connection.close()
            raise Lost(f"the answer of {self._host}:{connection.port}, {response.status}, {cut}")
        if response.will_close:
            connection.close()
        else:
            self._put_back(connection)
        return Answer(response.status, content, {name.lower(): value for name, value in response.getheaders()})

    def _put_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()


def _why_not_whole(response: http.client.HTTPResponse, content: bytes) -> str | None:
    """`http.client` takes the end of a connection for the end of the headers, and of a body that is read up to a limit.
    But a server that was killed while it answered has not said all of it."""
    if len(content) >= _MOST_BYTES:
        return f"has {_MOST_BYTES:,} bytes or more"
    if response.chunked:
        return None
    if response.length is None:
        if _is_object(content):
            # Some proxies end every answer by closing. A part of an object is none.
            return None
        said = content[:200].decode(errors="replace")
        return f"does not say where it ends, so nobody can tell whether all of it has come: {said!r}"
    return "was cut short" if response.length else None


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(orjson.loads(content), dict)
    except orjson.JSONDecodeError:
        return False


def _is_for_good(error: OSError) -> bool:
    """Neither does a server begin to speak TLS by itself, nor does a certificate become one to be trusted."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError) and error.reason in _NO_TLS
    )


def _said(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = f"{CA_BUNDLE_VARIABLE} names the file of an authority of your own"
        return f"its certificate is not to be trusted ({error.verify_message}); {hint}"
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        return "it does not speak TLS; if it is a server over http, its address begins with http://"
    said = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    # Whoever answers may speak something else than HTTP.
    return said if said.isprintable() else f"{said!r} is no HTTP; is this the port of something else, such as gRPC?"
