"""The server's own signing keys: in one cell, made when they are first needed, shared by all replicas, rotated.

A new key waits before it signs, so that every replica has seen it by then; an old one goes on verifying until nothing
that it signed can still be valid. Whoever can read the store could sign for the server: `auth_secret`, if it is set, is
mixed into every key, and then a copy of the store alone is not enough.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

from lakepact.access.signed import SigningKey, key_id_of, sign, verify
from lakepact.errors import Contended, Unreadable
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Cell, Transaction, Write
from lakepact.kernel.ports import CellStore, Clock, Rng

CELL: Final = key_of("lakepact", "signing-keys")

ROTATE_AFTER_S: Final = 30 * 86_400.0
"""How old a key becomes before another takes its place. It verifies for as long again."""

_SIGNS_AFTER_S: Final = 300.0
_LOOK_EVERY_S: Final = 60.0
"""How long a replica goes by what it has seen. Shorter than a new key waits."""

_LOOK_AGAIN_S: Final = 1.0
"""After a key that nobody knows: whoever makes up names of keys does not keep the store busy."""

_FORMAT: Final = 1
_ATTEMPTS: Final = 5


class SigningKeys:
    def __init__(self, store: CellStore, clock: Clock, rng: Rng, *, secret: str = "") -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._mixed_in = secret.encode()
        self._known: list[tuple[int, SigningKey]] = []
        """When each was made, and the key. The newest first."""

        self._looked_s: float | None = None

    async def sign(self, purpose: str, statement: Mapping[str, Any]) -> str:
        return sign(await self._current(), purpose, statement)

    async def verified(self, purpose: str, text: str) -> dict[str, Any] | None:
        """What the statement says, if this server, or another replica, has signed it for this purpose."""
        key = await self._key_of(purpose, text)
        return None if key is None else verify(key, purpose, text)

    async def behind(self, purpose: str, text: str) -> bytes | None:
        """A secret that goes with this statement alone, and that nobody can tell who has only the statement."""
        key = await self._key_of(purpose, text)
        if key is None or verify(key, purpose, text) is None:
            return None
        return hmac.digest(key.for_purpose(f"behind {purpose}"), text.encode(), hashlib.sha256)

    async def derived(self, purpose: str) -> list[bytes]:
        """Secrets of this purpose, the current one first."""
        await self._current()
        return [key.for_purpose(purpose) for _, key in self._known]

    async def _key_of(self, purpose: str, text: str) -> SigningKey | None:
        """The key that the statement says it is signed with."""
        key_id = key_id_of(text, purpose)
        if key_id is None:
            return None
        key = self._named(key_id)
        if key is None and self._not_looked_for(_LOOK_AGAIN_S):
            await self._look()
            key = self._named(key_id)
        return key

    def _named(self, key_id: str) -> SigningKey | None:
        return next((key for _, key in self._known if key.id == key_id), None)

    async def _current(self) -> SigningKey:
        now_ms = self._clock.now_ms()
        if not self._known or self._not_looked_for(_LOOK_EVERY_S):
            await self._look()
        if not self._known or now_ms - self._known[0][0] > ROTATE_AFTER_S * 1000:
            await self._add()
        seen = [key for made_ms, key in self._known if now_ms - made_ms >= _SIGNS_AFTER_S * 1000]
        return seen[0] if seen else self._known[-1][1]

    def _not_looked_for(self, seconds: float) -> bool:
        return self._looked_s is None or self._clock.monotonic_s() - self._looked_s >= seconds

    async def _look(self) -> Cell:
        self._looked_s = self._clock.monotonic_s()
        cell = (await self._store.read([CELL]))[CELL]
        self._known = [(made_ms, self._key(id, secret)) for id, secret, made_ms in _kept(cell)]
        return cell

    async def _add(self) -> None:
        """Make a key if there is none that is young enough. Several replicas may try; one of them does."""
        for _ in range(_ATTEMPTS):
            cell = await self._look()
            now_ms = self._clock.now_ms()
            kept = _kept(cell)
            if kept and now_ms - kept[0][2] <= ROTATE_AFTER_S * 1000:
                return
            made = (f"{self._rng.bits(64):016x}", self._rng.bits(256).to_bytes(32, "big"), now_ms)
            young = [one for one in kept if now_ms - one[2] <= 2 * ROTATE_AFTER_S * 1000]
            value = {"format": _FORMAT, "keys": [_document(*one) for one in (made, *young)]}
            id = uuid7(now_ms, self._rng.bits(74))
            # Whoever was faster has made one: look again, whatever the answer is.
            await self._store.commit(Transaction(id, "", (Write(CELL, cell.revision, value),)))
        if not self._known:
            raise Contended("the server's signing key could not be made, others are at it; try again")

    def _key(self, id: str, secret: bytes) -> SigningKey:
        return SigningKey(id, hmac.digest(secret, self._mixed_in, hashlib.sha256))


def _document(id: str, secret: bytes, made_ms: int) -> dict[str, Any]:
    return {"id": id, "secret": base64.b64encode(secret).decode(), "made_ms": made_ms}


def _kept(cell: Cell) -> list[tuple[str, bytes, int]]:
    if cell.value is None:
        return []
    try:
        if cell.value["format"] != _FORMAT:
            raise ValueError("its format is another")
        return [(one["id"], base64.b64decode(one["secret"]), int(one["made_ms"])) for one in cell.value["keys"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"the signing keys in cell {CELL} cannot be understood ({error}); restore the cell") from None
