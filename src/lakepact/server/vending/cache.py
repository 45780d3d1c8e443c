"""Credentials that were made before, until shortly before they expire. One request for each, however many ask.

A credential is shared by all who have the same right to the same table: it says nothing about who they are. What fails
is not remembered.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeAlias

from lakepact.kernel.ports import Clock
from lakepact.server.vending.scope import Credential, Right

_CHECKED_MS: Final = 3_600_000

Key: TypeAlias = tuple[str, str, Right, str | None]
"""Of which table, where, to do what; and in which open transaction, if only there."""

_MOST: Final = 10_000
_MARGIN_MS: Final = 600_000
"""Clients ask again some five minutes before the end; what they get then must have a longer life than that. One that
lives for less than twice as long is given for half its life: the cloud says how long that is, not the settings."""


class Credentials:
    def __init__(self, clock: Clock, *, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._held: OrderedDict[Key, tuple[Credential, int]] = OrderedDict()
        """Each with the moment from which another one is made."""

        self._coming: dict[Key, asyncio.Task[Credential]] = {}

    async def get(self, key: Key, mint: Callable[[], Awaitable[Credential]]) -> Credential:
        held = self._held.get(key)
        if held is not None and self._clock.now_ms() < held[1]:
            self._held.move_to_end(key)
            return held[0]
        coming = self._coming.get(key)
        if coming is None:
            coming = self._coming[key] = asyncio.create_task(self._fetch(key, mint))
            # If all have left, nobody else asks how it ended.
            coming.add_done_callback(lambda done: done.cancelled() or done.exception())
        # One who leaves does not take it away from the others.
        return await asyncio.shield(coming)

    async def _fetch(self, key: Key, mint: Callable[[], Awaitable[Credential]]) -> Credential:
        try:
            made = await mint()
        finally:
            del self._coming[key]
        life_ms = made.expires_ms - self._clock.now_ms()
        self._held[key] = made, made.expires_ms - min(_MARGIN_MS, life_ms // 2)
        self._held.move_to_end(key)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        return made


class Checked:
    """What was found to be so before, for an hour. What was refused is looked at again."""

    def __init__(self, clock: Clock, *, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        self._until_ms: OrderedDict[Hashable, int] = OrderedDict()

    async def once(self, key: Hashable, check: Callable[[], Awaitable[None]]) -> None:
        if self._clock.now_ms() < self._until_ms.get(key, 0):
            return
        await check()
        self._until_ms[key] = self._clock.now_ms() + _CHECKED_MS
        self._until_ms.move_to_end(key)
        while len(self._until_ms) > self._most:
            self._until_ms.popitem(last=False)
