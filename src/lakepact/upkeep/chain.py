"""The versions of an Iceberg table, newest first, by its metadata log.

The log inside a metadata file names the files before it with their times, some hundred of them: so where the receipts
of all these versions lie is known from one file. Beyond it the oldest file that can be read tells the rest.

The walk ends where this catalog's own files end. A registered table brings along the log of its former life, which left
its receipts elsewhere or none. Our files are told by their names: the unique part is a UUID of version 5, made from the
transaction, and engines make theirs by chance.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from lakepact.catalog.errors import BadRequest, NotFound
from lakepact.catalog.files import MetadataFiles
from lakepact.errors import Unreadable
from lakepact.iceberg.fields import JsonObject

_OURS: Final = re.compile(
    r"\d+-[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}(\.gz)?\.metadata\.json(\.gz)?"
)
_CANDIDATES: Final = 5
"""Files that are tried to find out what came before all that is known. Their logs overlap but for a few entries."""


@dataclass(frozen=True, slots=True)
class Version:
    location: str
    committed_ms: int | None
    """As the log has it; None if it does not say, or says something that is no time."""


@dataclass(slots=True)
class Chain:
    versions: list[Version] = field(default_factory=list)
    """Newest first."""

    met: bool = False
    """Whether it ends right above the version it should end at."""

    from_the_first: bool = False
    """Whether the last one is the first version that the table ever had."""

    deeper: bool = False
    """Whether the walk was ended by its bound, and there is more."""

    unreadable: dict[str, str] = field(default_factory=dict)
    """Files that should have told more, and why they did not."""


def is_ours(location: str) -> bool:
    """Whether a metadata file was written by a commit of Lakepact."""
    return _OURS.fullmatch(location.rpartition("/")[2]) is not None


async def chain_of(
    files: MetadataFiles, newest: Version, before: str | None, *, until: str | None, since_ms: int, most: int
) -> Chain:
    """The versions from the newest down to `until` (not among them), no older than `since_ms`, `most` at most.

    `before`: the one before the newest, by the pointer. It helps where the newest cannot be read.
    """
    chain, walk = Chain(), _Walk(until, since_ms, most)
    walk.take(newest.location, newest.committed_ms)
    tried: set[str] = set()
    while not walk.ended:
        log = await _log_beyond(files, walk, tried, chain)
        if log is None and before is not None and walk.take(before, None):
            continue
        if log is None:
            break
        if not log:
            chain.from_the_first = walk.last in tried
            break
        if not walk.take_all(log):
            break
    return walk.finish(chain)


class _Walk:
    """Goes down, and knows where to stop."""

    def __init__(self, until: str | None, since_ms: int, most: int) -> None:
        self._until = until
        self._since_ms = since_ms
        self._most = most
        self._seen: dict[str, int | None] = {}
        self.ended = self.met = self.deeper = False

    @property
    def last(self) -> str:
        return next(reversed(self._seen))

    @property
    def candidates(self) -> Sequence[str]:
        return list(reversed(self._seen))[:_CANDIDATES]

    def take(self, location: str, committed_ms: int | None) -> bool:
        """Go one further down. False if that was known already, or is where it ends."""
        if location in self._seen:
            return False
        if location == self._until:
            self.met = True
        elif len(self._seen) >= self._most:
            self.deeper = True
        elif is_ours(location) and (committed_ms is None or committed_ms >= self._since_ms):
            self._seen[location] = committed_ms
            return True
        self.ended = True
        return False

    def take_all(self, log: Sequence[tuple[str, int | None]]) -> bool:
        """Go down along a log: whether anything in it was new, and it goes on."""
        new = False
        for location, committed_ms in log:
            new |= self.take(location, committed_ms)
            if self.ended:
                return False
        return new

    def finish(self, chain: Chain) -> Chain:
        chain.versions = [Version(location, committed_ms) for location, committed_ms in self._seen.items()]
        chain.met, chain.deeper = self.met, self.deeper
        return chain


async def _log_beyond(
    files: MetadataFiles, walk: _Walk, tried: set[str], chain: Chain
) -> list[tuple[str, int | None]] | None:
    """The log of the oldest file that can be read, newest first. None if none of the oldest can be."""
    for location in walk.candidates:
        if location in tried:
            return None
        tried.add(location)
        try:
            document = (await files.table(location)).document
        except NotFound:
            # Old files may be deleted; whether a receipt needs this one is seen later.
            continue
        except (Unreadable, BadRequest) as error:
            chain.unreadable[location] = str(error)
            continue
        return [entry for one in reversed(document.get("metadata-log") or ()) if (entry := _entry(one)) is not None]
    return None


def _entry(entry: JsonObject) -> tuple[str, int | None] | None:
    location: Any = entry.get("metadata-file")
    committed_ms: Any = entry.get("timestamp-ms")
    if not isinstance(location, str):
        return None
    return location, committed_ms if isinstance(committed_ms, int) else None
