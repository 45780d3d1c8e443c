"""Markup that is the same for ever, since what it was made of never changes."""

from __future__ import annotations

from collections import OrderedDict

from lakepact.server.ui.html import Markup


class Remembered:
    """Markup by what it was made of, bounded."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held = 0
        self._found: OrderedDict[tuple[str, ...], Markup] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> Markup | None:
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def put(self, key: tuple[str, ...], body: Markup) -> None:
        if key in self._found:
            return
        self._found[key] = body
        self._held += len(body)
        while self._held > self._most_bytes:
            _, old = self._found.popitem(last=False)
            self._held -= len(old)
