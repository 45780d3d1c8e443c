"""Cookies of ours: for the browser alone, of this host alone, and only over https where the server is reached so."""

from __future__ import annotations

from typing import TypeAlias

from lakepact.server.http import Request

Header: TypeAlias = tuple[bytes, bytes]


class Cookie:
    def __init__(self, name: str, *, secure: bool) -> None:
        # A name with this prefix is refused by browsers unless the cookie is secure and of this host alone.
        self._name = f"__Host-{name}" if secure else name
        self._secure = "; Secure" if secure else ""

    def header(self, value: str, age_s: int) -> Header:
        text = f"{self._name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{self._secure}"
        return b"Set-Cookie", text.encode()

    def gone(self) -> Header:
        return self.header("", 0)

    def sent(self, cookies: bytes | None) -> str | None:
        """Its value, from what a request has as `Cookie`."""
        for part in (cookies or b"").decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name == self._name and value:
                return value
        return None


def cookies_of(request: Request) -> bytes | None:
    found = request.header("cookie")
    return None if found is None else found.encode("latin-1")
