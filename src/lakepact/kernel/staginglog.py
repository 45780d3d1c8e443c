"""The staging log of an open transaction: what was staged and seen, folded from entries that are never rewritten.

Each entry has its place by number, and is written by creating the document of the next number. So the calls of all
processes have one order, the thousandth costs what the first did, and a call that is sent twice is recognised by its
operation id. Whoever loses a place learns which entry has it, and folds that one: the log is what is stored, never
what a process meant to store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from lakepact.errors import LakepactError
from lakepact.kernel.access import Access, Remembered
from lakepact.kernel.documents import StagedEntry, name_prefix_of_staged, sequence_of_staged_name
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, Read, Value, Write
from lakepact.kernel.seen import Seen, json_text, staged_meanwhile


@dataclass(slots=True)
class StagingLog:
    """The fold of a log up to `length`. Shared by all calls of a process, it grows while they wait."""

    length: int = 0
    sealed: bool = False
    isolation: Isolation | None = None
    """Remembered from the record, where it never changes."""

    seen: dict[Key, int] = field(default_factory=dict)
    bases: dict[Key, int] = field(default_factory=dict)
    staged: dict[Key, Value | None] = field(default_factory=dict)
    sizes: dict[Key, int] = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)

    def fold(self, entry: StagedEntry) -> None:
        """Take in the next entry. An operation that was staged already counts once; after the seal nothing does."""
        if entry.sequence != self.length + 1:
            return
        self.length = entry.sequence
        if self.sealed or entry.operation in self.operations:
            return
        self.operations.add(entry.operation)
        self.sealed = entry.sealed
        for key, revision in entry.reads.items():
            self.seen.setdefault(key, revision)
        for key, revision in entry.bases.items():
            self.bases.setdefault(key, revision)
        for key, value in entry.writes.items():
            self.staged[key] = value
            self.sizes[key] = 0 if value is None else len(orjson.dumps(value))

    def base(self, key: Key) -> int | None:
        """The revision a write of this cell is based on: what was read, else what it was when first written."""
        return self.seen.get(key, self.bases.get(key))

    def shown(self, transaction_id: TransactionId, key: Key) -> Cell:
        """A staged cell as it is seen from inside."""
        return Cell(key, (self.base(key) or 0) + 1, self.staged[key], transaction_id)

    def outdated(self, transaction_id: TransactionId, planned_on: Mapping[Key, Seen]) -> LakepactError | None:
        """What to say if one of these cells is no longer staged, or not staged, as it was shown."""
        for key, seen in planned_on.items():
            if seen.outdated(key in self.staged, json_text(key, self.staged.get(key))):
                return staged_meanwhile(transaction_id, key)
        return None

    def plan(self) -> tuple[tuple[Write, ...], tuple[Read, ...]]:
        """What it all comes to: the last value of each cell on its first base, and what was only read."""
        writes = tuple(Write(key, self.base(key) or 0, value) for key, value in self.staged.items())
        return writes, tuple(Read(key, revision) for key, revision in self.seen.items() if key not in self.staged)

    def count_with(self, keys: list[Key]) -> int:
        """How many cells the transaction names once these are among them."""
        return len(self.seen.keys() | self.staged.keys() | set(keys))

    def size_with(self, sizes: dict[Key, int]) -> int:
        """How large the staged values are once these are among them."""
        return sum(self.sizes.values()) - sum(self.sizes.get(key, 0) for key in sizes) + sum(sizes.values())


StagingLogs = Remembered[TransactionId, StagingLog]


class LogKeeper:
    """Reads and extends the logs of one store, remembering what it has folded."""

    def __init__(self, access: Access, logs: StagingLogs) -> None:
        self._access = access
        self._logs = logs

    async def remembered(self, transaction_id: TransactionId) -> StagingLog:
        """The log as this process knows it, read from the start if it does not. Others may have appended since."""
        log = self._logs.get(transaction_id)
        if log is None:
            log = StagingLog()
            await self._load(transaction_id, log)
            self._logs.put(transaction_id, log)
        return log

    async def refreshed(self, transaction_id: TransactionId) -> StagingLog:
        """The log up to now: what is remembered, and whatever any process has appended since."""
        log = await self.remembered(transaction_id)
        await self.look_on(transaction_id, log, log.length)
        return log

    async def look_on(self, transaction_id: TransactionId, log: StagingLog, length: int) -> bool:
        """Whether the log goes on beyond this length, of which the caller has taken account. What follows is folded in.

        The log is the caller's own: two calls that read it for the first time at the same time have two of them.
        """
        grown = log.length > length
        while not log.sealed:
            entry = await self._access.staged_entry(transaction_id, log.length + 1)
            if entry is None:
                break
            log.fold(entry)
            grown = True
        return grown

    async def append(self, log: StagingLog, entry: StagedEntry) -> bool:
        """Write the entry at its place, and fold what stands there now. Whether that is this operation."""
        stored = await self._access.append_staged(entry)
        log.fold(stored)
        return stored.operation == entry.operation

    def forget(self, transaction_id: TransactionId) -> None:
        self._logs.forget(transaction_id)

    async def _load(self, transaction_id: TransactionId, log: StagingLog) -> None:
        """Read a log from the start: the listing says how long it is, and its entries are read side by side."""
        after: str | None = None
        page = self._access.settings.max_page
        while True:
            entries = await self._access.list(name_prefix_of_staged(transaction_id), after, page)
            sequences = [sequence_of_staged_name(entry.name) for entry in entries]
            found = await self._access.tasks.all(
                [self._access.staged_entry(transaction_id, sequence) for sequence in sequences]
            )
            for entry in found:
                if entry is not None:
                    log.fold(entry)
            if len(entries) < page:
                return
            after = entries[-1].name
