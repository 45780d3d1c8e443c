"""API tokens in the store: each a cell of its own, so that every replica sees what was changed at its next look.

A token's text is returned by the call that makes it and is nowhere afterwards: the cell has its hash, and the record of
the transaction has what the cell has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from lakepact.access.secrets import (
    ID_BITS,
    SECRET_BITS,
    Given,
    Secret,
    TokenId,
    checked_groups,
    checked_name,
    hash_of,
    key_of_token,
    new_id,
    new_secret,
    text_of,
)
from lakepact.errors import Contended, InvalidRequest
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import segments_of
from lakepact.kernel.model import Cell, Committed, Transaction, Value, Write
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.server.auth.errors import NoSuchToken

_BELOW: Final = "lakepact/tokens"
_ATTEMPTS: Final = 5
_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Shown:
    """A token at the one moment at which its text is known."""

    token: Given
    secret: str = field(repr=False)
    transaction_id: TransactionId

    @property
    def text(self) -> str:
        return text_of(self.token.id, self.secret)


class Tokens:
    def __init__(self, store: CellStore, clock: Clock, rng: Rng) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng

    async def load(self, id: TokenId) -> Given | None:
        return _given(id, await self._cell(id))

    async def all(self, account: str | None = None) -> list[Given]:
        """Every token of this account (None: of all), oldest first."""
        found = [token async for token in self._scanned() if account is None or token.account == account]
        return sorted(found, key=lambda token: (token.created_ms, token.id))

    async def create(
        self,
        name: str,
        *,
        account: str = "default",
        groups: frozenset[str] = frozenset(),
        admin: bool = False,
        expires_in_s: float | None = None,
    ) -> Shown:
        now_ms = self._clock.now_ms()
        secret = new_secret(self._rng.bits(SECRET_BITS))
        token = Given(
            id=new_id(self._rng.bits(ID_BITS)),
            name=checked_name("the name of a principal", name),
            account=checked_name("the name of an account", account),
            groups=checked_groups(groups),
            admin=admin,
            created_ms=now_ms,
            expires_ms=None if expires_in_s is None else now_ms + _milliseconds("a lifetime", expires_in_s),
            secrets=(Secret(1, hash_of(secret)),),
        )
        return Shown(token, secret, await self._write(token.id, 0, token.to_json()))

    async def rotate(self, id: TokenId, *, grace_s: float, account: str | None = None) -> Shown:
        """A new secret. The one before counts for the time of grace."""
        secret = new_secret(self._rng.bits(SECRET_BITS))
        grace_ms = _milliseconds("a time of grace", grace_s, zero=True)
        now_ms = self._clock.now_ms()

        def rotated(token: Given) -> Given:
            return token.rotated(hash_of(secret), now_ms, grace_ms)

        token, transaction_id = await self._changed(id, account, rotated)
        assert token is not None
        return Shown(token, secret, transaction_id)

    async def revoke(self, id: TokenId, *, account: str | None = None) -> TransactionId:
        """Nobody is recognised by it any more, nor by anything that was given out for it."""
        _, transaction_id = await self._changed(id, account, lambda _: None)
        return transaction_id

    async def _changed(
        self, id: TokenId, account: str | None, change: Callable[[Given], Given | None]
    ) -> tuple[Given | None, TransactionId]:
        for _ in range(_ATTEMPTS):
            cell = await self._cell(id)
            token = _given(id, cell)
            # Another account's token does not exist for this one.
            if token is None or (account is not None and token.account != account):
                raise NoSuchToken(f"there is no token {id}; `lakepact tokens list` shows those there are")
            changed = change(token)
            try:
                value = None if changed is None else changed.to_json()
                return changed, await self._write(id, cell.revision, value)
            except Contended:
                continue
        raise Contended(f"token {id} is being changed by others; try again")

    async def _cell(self, id: TokenId) -> Cell:
        key = key_of_token(id)
        return (await self._store.read([key]))[key]

    async def _write(self, id: TokenId, revision: int, value: Value | None) -> TransactionId:
        transaction_id = uuid7(self._clock.now_ms(), self._rng.bits(74))
        transaction = Transaction(transaction_id, "", (Write(key_of_token(id), revision, value),))
        if isinstance(await self._store.commit(transaction), Committed):
            return transaction_id
        raise Contended(f"token {id} was changed by somebody else at the same time; try again")

    async def _scanned(self) -> AsyncIterator[Given]:
        after: str | None = None
        while True:
            page = await self._store.scan(_BELOW, after, _PAGE)
            for cell in page.cells:
                found = _given(TokenId(segments_of(cell.key)[-1]), cell)
                if found is not None:
                    yield found
            after = page.after
            if after is None:
                return


def _given(id: TokenId, cell: Cell) -> Given | None:
    return None if cell.value is None else Given.of(id, cell.value)


def _milliseconds(what: str, seconds: float, *, zero: bool = False) -> int:
    # A hundred years, and no number that is none.
    if not (0 <= seconds <= 3.2e9) or (seconds == 0 and not zero):
        raise InvalidRequest(f"{what} is a number of seconds{'' if zero else ' above 0'}, not {seconds}")
    return int(seconds * 1000)
