"""Who made a version: the records of transactions, asked for a version's metadata location.

A record keeps its plan for a day, and its answer for as long as it is kept at all; both name the metadata files. An
answer may also name a file that it did not make, as that of a drop does: the name of the file tells who has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakepact.catalog.receipts import CommittedChange, changes_of, commit_key
from lakepact.catalog.work import unique_name
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.model import State, TransactionRecord
from lakepact.kernel.ports import CellStore

_PAGE: Final = 200
_MOST_PAGES: Final = 500
_MOST_REMEMBERED: Final = 50_000
_MOST_PLANS: Final = 64
_BEFORE_MS: Final = 25 * 60 * 60 * 1000
"""An id is made before its commit: by no more than an open transaction may live, unless a client has kept it longer."""

_AFTER_MS: Final = 60 * 60 * 1000
_ATTEMPTS: Final = tuple(f"{way}{number}" for way in ("", "publish/") for number in range(64))
"""How attempts are called, of a plain change and of an open transaction."""


@dataclass(frozen=True, slots=True)
class Witness:
    """What a record says of the transaction that made a change."""

    transaction_id: TransactionId
    answer: Mapping[str, Any]
    changes: tuple[CommittedChange, ...] = ()
    """All that it changed; empty if its record does not say any more."""

    @classmethod
    def of(cls, record: TransactionRecord, generation: int) -> Witness:
        return cls(record.id, record.answer or {}, changes_of(record.writes, generation))

    @property
    def locations(self) -> tuple[str, ...]:
        """The metadata files that its answer names."""
        return tuple(_locations(self.answer))

    def change(self, key: str) -> CommittedChange | None:
        """The one with this commit key."""
        return next((change for change in self.changes if change.commit_key == key), None)

    def made(self, location: str, table_id: str) -> bool:
        """Whether this transaction has made this metadata file."""
        if self.changes:
            return self.change(commit_key(location)) is not None
        return any(unique_name(self.transaction_id, table_id, attempt) in location for attempt in _ATTEMPTS)


class Witnesses:
    """Asked while one pass lasts. What is found on the way is remembered, some of it."""

    def __init__(self, store: CellStore, generation: int = 0) -> None:
        self._store = store
        self._generation = generation
        self._by_location: OrderedDict[bytes, tuple[TransactionId, ...]] = OrderedDict()
        """Transactions by the commit key of each metadata location that their answers name. Their records are read
        again when they are needed: those of a busy day would take hundreds of megabytes."""

        self._by_id: OrderedDict[TransactionId, Witness] = OrderedDict()
        self._searched: list[tuple[int, int]] = []

    async def by_id(self, transaction_id: TransactionId | None) -> Witness | None:
        if transaction_id is None:
            return None
        # Tables that were made together are asked for together, and each of them would have the whole plan read again.
        if (known := self._by_id.get(transaction_id)) is not None:
            self._by_id.move_to_end(transaction_id)
            return known
        record = await self._store.lookup(transaction_id)
        if record is None or record.state is not State.COMMITTED:
            return None
        witness = self._by_id[transaction_id] = Witness.of(record, self._generation)
        if len(self._by_id) > _MOST_PLANS:
            self._by_id.popitem(last=False)
        return witness

    async def by_location(self, location: str, table_id: str, committed_ms: int) -> Witness | None:
        """The transaction that made this metadata file, if a record of about that time says so."""
        since_ms, until_ms = committed_ms - _BEFORE_MS, committed_ms + _AFTER_MS
        witness = await self._among_known(location, table_id)
        if witness is None and not self._has_searched(since_ms, until_ms):
            await self._search(since_ms, until_ms)
            witness = await self._among_known(location, table_id)
        return witness

    async def _among_known(self, location: str, table_id: str) -> Witness | None:
        for transaction_id in self._by_location.get(bytes.fromhex(commit_key(location)), ()):
            witness = await self.by_id(transaction_id)
            if witness is not None and witness.made(location, table_id):
                return witness
        return None

    def _has_searched(self, since_ms: int, until_ms: int) -> bool:
        return any(since <= since_ms and until_ms <= until for since, until in self._searched)

    async def _search(self, since_ms: int, until_ms: int) -> None:
        # Neighbours are asked for next, newest first: a day more saves asking again for each of them.
        since_ms -= _BEFORE_MS
        after: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._store.transactions(
                [State.COMMITTED], made_since_ms=max(0, since_ms), after=after, limit=_PAGE
            )
            for record in page.transactions:
                self._remember(record)
            after = page.after
            if after is None or (page.transactions and timestamp_ms(page.transactions[-1].id) > until_ms):
                break
        self._searched.append((since_ms, until_ms))

    def _remember(self, record: TransactionRecord) -> None:
        for location in _locations(record.answer or {}):
            key = bytes.fromhex(commit_key(location))
            self._by_location[key] = (*self._by_location.get(key, ()), record.id)
            if len(self._by_location) > _MOST_REMEMBERED:
                self._by_location.popitem(last=False)


def _locations(answer: Mapping[str, Any]) -> Iterator[str]:
    """The metadata files that an answer names: of one table, or of several."""
    result = answer.get("result")
    for one in (result, *(result.get("results") or ())) if isinstance(result, Mapping) else ():
        location = one.get("metadata-location") if isinstance(one, Mapping) else None
        if isinstance(location, str):
            yield location
