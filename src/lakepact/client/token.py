"""What a client is recognised by: a bearer token, a file that has one, or a credential that gets one.

    token        lakepact_…          as it is
    token        @/run/secrets/lake  the content of a file, read again when the file has changed
    credential   id:secret           exchanged for an access token, and again before that one expires

A request that is answered with 401 is sent once more if there is a newer token by then: nothing has happened, so
nothing is repeated. No error here holds a token.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlencode

import orjson

from lakepact.client.errors import Unauthorized, Unavailable
from lakepact.client.http import Lost, NotSent, Transport
from lakepact.client.machine import Machine
from lakepact.errors import InvalidSetting

TOKEN_VARIABLE: Final = "LAKEPACT_TOKEN"
TOKEN_FILE_VARIABLE: Final = "LAKEPACT_TOKEN_FILE"
CREDENTIAL_VARIABLE: Final = "LAKEPACT_CREDENTIAL"
IN_FILE: Final = "@"

_MOST_BYTES: Final = 65_536
_EARLY: Final = 0.2
"""The part of a token's life that is left when the next one is fetched."""

_UNSAID_S: Final = 300.0


class TokenSource(Protocol):
    """Safe to use from several threads."""

    def current(self) -> str:
        """The token to send now. Raises `InvalidSetting`, `Unauthorized` or `Unavailable` if there is none."""
        ...

    def newer_than(self, used: str) -> str | None:
        """Another token than this one, which the server has refused. None: there is no other."""
        ...


class FixedToken:
    def __init__(self, text: str) -> None:
        self._text = _checked(text, "the token")

    def current(self) -> str:
        return self._text

    def newer_than(self, used: str) -> str | None:
        return None


class TokenInFile:
    """Whoever rotates the token writes the file anew; those who use it need not be restarted."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._read: tuple[tuple[int, int, int], str] | None = None

    def current(self) -> str:
        try:
            found = self._path.stat()
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if self._read is None or self._read[0] != seen:
                with self._path.open(encoding="utf-8") as file:
                    text = file.read(_MOST_BYTES).strip()
                self._read = (seen, _checked(text, f"the token in {self._path}"))
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidSetting(f"the token cannot be read from {self._path}: {_said(error)}") from None
        if not self._read[1]:
            raise InvalidSetting(f"there is no token in {self._path}")
        return self._read[1]

    def newer_than(self, used: str) -> str | None:
        text = self.current()
        return None if text == used else text


class Credential:
    """An OAuth client: its id and secret are exchanged for a token that lives for a while."""

    def __init__(
        self,
        credential: str,
        transport: Transport,
        target: str,
        machine: Machine,
        *,
        scope: str = "catalog",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`target` is the path of the token endpoint on the transport's host."""
        id, colon, secret = credential.partition(":")
        self._form = {
            "grant_type": "client_credentials",
            **({"client_id": id} if colon else {}),
            "client_secret": secret if colon else credential,
            "scope": scope,
        }
        self._transport = transport
        self._target = target
        self._machine = machine
        self._headers = dict(headers or {})
        self._lock = threading.Lock()
        self._token: str | None = None
        self._until_s = 0.0

    def current(self) -> str:
        with self._lock:
            if self._token is None or self._machine.monotonic_s() >= self._until_s:
                self._fetch()
            assert self._token is not None
            return self._token

    def newer_than(self, used: str) -> str | None:
        with self._lock:
            if self._token == used:
                self._fetch()
            return self._token

    def _fetch(self) -> None:
        headers = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        try:
            answer = self._transport.exchange("POST", self._target, headers, urlencode(self._form).encode())
        except (NotSent, Lost) as error:
            raise Unavailable(f"no access token could be had: {error}. Nothing happened; try again later") from None
        document = _document(answer.body)
        token, lives_s = document.get("access_token"), document.get("expires_in")
        if answer.status >= 400 or not isinstance(token, str):
            said = document.get("error_description") or document.get("error") or "without a word"
            text = f"no access token could be had: the server answered {answer.status}: {said}"
            if answer.status >= 500 or answer.status == 429:
                raise Unavailable(f"{text}. Nothing happened; try again later")
            raise Unauthorized(text, status=answer.status)
        lives = float(lives_s) if isinstance(lives_s, int | float) else _UNSAID_S
        self._token = token
        self._until_s = self._machine.monotonic_s() + lives * (1 - _EARLY)


def given_token(token: str | os.PathLike[str] | None) -> str | None:
    """The token that was given, or that the environment gives: a text, or `@` and the path of a file."""
    if token:
        return os.fspath(token) if isinstance(token, str) else IN_FILE + os.fspath(token)
    file = os.environ.get(TOKEN_FILE_VARIABLE)
    return os.environ.get(TOKEN_VARIABLE) or (IN_FILE + file if file else None)


def source_of(token: str) -> TokenSource:
    return TokenInFile(token.removeprefix(IN_FILE)) if token.startswith(IN_FILE) else FixedToken(token)


def text_of(token: str | None) -> str | None:
    """The token itself, for those who cannot read files."""
    return None if token is None else source_of(token).current()


def _checked(text: str, what: str) -> str:
    """A token that can be sent in a header. The rest of one that cannot is not shown."""
    for place, character in enumerate(text, 1):
        if not "!" <= character <= "~":
            raise InvalidSetting(
                f"{what} has a character that no token has: {character!r} at place {place} of {len(text)}. Copy "
                f"the whole token, as it was printed when it was made"
            )
    return text


def _document(body: bytes) -> dict[str, object]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def _said(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not text"
