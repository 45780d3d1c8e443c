"""The server's certificate and key: checked before anything listens, and read again when the files change.

Those who renew certificates write the files anew, one after the other. A pair that does not fit together, or cannot be
read, changes nothing: what was there goes on to be used, the log says why, and the next look finds the rest. Open
connections stay as they are; new ones get what is newest.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from lakepact.errors import InvalidSetting
from lakepact.server.certificate_end import ends_at_s
from lakepact.settings import Settings

LOOK_EVERY_S: Final = 10.0
_MOST_BYTES: Final = 1024 * 1024

_log = structlog.get_logger(__name__)


class Certificate:
    def __init__(self, certificate: str, key: str) -> None:
        """Raises `InvalidSetting` if the two cannot be used."""
        self._paths = Path(certificate), Path(key)
        self._seen = self._look()
        self.chain, self.key, self._newest = self._loaded()
        self.context = _context(*self._paths)
        """For a server's socket. Each handshake is made with what is newest."""

        self.context.sni_callback = self._chosen
        self._told: Callable[[float], None] = lambda _: None

    @classmethod
    def of(cls, settings: Settings) -> Certificate | None:
        return cls(settings.tls_cert, settings.tls_key) if settings.tls_cert else None

    @property
    def ends_at_s(self) -> float | None:
        """When it is no longer good, in seconds since 1970. None: it cannot be told."""
        return ends_at_s(self.chain)

    def tell(self, told: Callable[[float], None]) -> None:
        """Let this know when the one in use ends, now and whenever there is another."""
        self._told = told
        self._told(self.ends_at_s or 0)

    def read_again(self) -> None:
        """Use what is in the files now, if it can be used."""
        self._seen = self._look()
        try:
            chain, key, context = self._loaded()
        except InvalidSetting as error:
            _log.error("the certificate cannot be read again; the one before is used on", error=str(error))
            return
        if (chain, key) != (self.chain, self.key):
            self.chain, self.key, self._newest = chain, key, context
            _log.warning("the certificate has changed", file=str(self._paths[0]))
            self._told(self.ends_at_s or 0)

    async def watch(self) -> None:
        """Look at the files for as long as the server runs."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if self._look() != self._seen:
                self.read_again()

    def _chosen(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._newest

    def _look(self) -> list[tuple[int, int, int] | None]:
        """What tells a file that was written anew, through links too. None: it is not there."""
        return [_signature(path) for path in self._paths]

    def _loaded(self) -> tuple[bytes, bytes, ssl.SSLContext]:
        before = self._read()
        context = _context(*self._paths)
        if self._read() != before:
            raise InvalidSetting(f"{self._paths[0]} and {self._paths[1]} are being written; try again")
        return *before, context

    def _read(self) -> tuple[bytes, bytes]:
        return _content(self._paths[0], "tls_cert"), _content(self._paths[1], "tls_key")


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A password: else an encrypted key would have OpenSSL ask for one at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise InvalidSetting(_explained(certificate, key, error)) from None
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"{certificate} and {key} cannot be read: {error}; correct tls_cert and tls_key") from None
    return context


def _explained(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key} is not the key of the certificate in {certificate}; correct tls_cert or tls_key"
    if b"ENCRYPTED" in _content(key, "tls_key"):
        return f"{key} is encrypted, and there is nobody to ask for its password; set tls_key to a key that is not"
    return (
        f"{certificate} and {key} are no certificate and key in PEM ({error.reason or 'not understood'}): the first "
        f"has the server's certificate and then those above it, the second its private key; correct tls_cert or tls_key"
    )


def _content(path: Path, setting: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise InvalidSetting(f"{setting} = {path}: {error.strerror or error}; correct it, or who may read it") from None


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
