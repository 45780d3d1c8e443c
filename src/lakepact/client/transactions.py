"""Transactions by their ids: begun, looked at, listed, prepared, committed, aborted, renewed.

`lake.transaction()` is what most programs want. This is what it is made of, and the way to settle an unknown outcome.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import orjson

from lakepact.client.caller import Caller
from lakepact.client.errors import BadRequest, Conflict, NotFound, Refused, TransactionClosed, Unavailable, refused
from lakepact.client.http import Answer
from lakepact.client.names import Identifier, identifier_of, segment
from lakepact.kernel.identity import parse_transaction_id, timestamp_ms

Isolation: TypeAlias = Literal["serializable", "snapshot"]

COMMITTED: Final = "committed"
FAILED: Final = "failed"
ABORTED: Final = "aborted"

_ALL: Final = "{prefix}/transactions"
_PAGE: Final = 100
_LOOKS_BACK_MS: Final = [minutes * 60_000 for minutes in (1, 60, 24 * 60, 30 * 24 * 60)]


@dataclass(frozen=True, slots=True)
class Published:
    """A table or view as a transaction has left it."""

    identifier: Identifier
    metadata_location: str


@dataclass(frozen=True, slots=True)
class Change:
    """A cell that a transaction writes or depends on."""

    cell: str
    access: Literal["write", "read"]
    base: int
    """The revision it was planned on."""

    revision: int
    table: Identifier | None = None
    metadata_location: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction as the server sees it."""

    id: str
    state: str
    """`open`, `preparing`, `prepared`, `retryable`, and at the end `committed`, `failed` or `aborted`."""

    isolation: str
    read_only: bool
    warehouse: str
    """What an engine is given as its warehouse to work inside the transaction: `main@<id>`."""

    prefix: str
    created_at: datetime
    expires_at: datetime | None
    decided_at: datetime | None
    properties: Mapping[str, str]
    changes: tuple[Change, ...] = ()
    """What it has staged and read by now. Listings leave this out."""

    results: tuple[Published, ...] = ()
    """What it has published, once it is committed."""

    error: Refused | None = None
    """Why it failed, if it did."""

    principal: str | None = None
    """Whose it is, where the server asks for names."""

    @property
    def ended(self) -> bool:
        return self.state in (COMMITTED, FAILED, ABORTED)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TransactionInfo:
        error = document.get("error")
        return cls(
            document["transaction-id"],
            document["state"],
            document["isolation"],
            bool(document.get("read-only")),
            document["warehouse"],
            document["prefix"],
            datetime.fromisoformat(document["created-at"]),
            _instant(document.get("expires-at")),
            _instant(document.get("decided-at")),
            dict(document.get("properties") or {}),
            tuple(_change(one) for one in document.get("changes") or ()),
            published_of(document.get("result") or {}),
            None if error is None else refused(int(error.get("code", 409)), error),
            document.get("principal"),
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """What a transaction is begun with."""

    ttl_s: float | None = None
    isolation: Isolation | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False

    def to_json(self) -> dict[str, Any]:
        # What only reads is never in anybody's way: as of one instant it is right whatever has moved since.
        isolation = self.isolation or ("snapshot" if self.read_only else "serializable")
        body: dict[str, Any] = {
            "isolation": isolation,
            "properties": dict(self.properties),
            "read-only": self.read_only,
        }
        return body if self.ttl_s is None else {**body, "ttl-seconds": self.ttl_s}


class Transactions:
    """Transactions by their ids: `lake.transactions`. Most programs use `lake.transaction()` instead.

    lake.transactions.list("open")
    lake.transactions.get(transaction_id).state
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def begin(
        self,
        *,
        ttl: float | None = None,
        isolation: Isolation | None = None,
        properties: Mapping[str, str] | None = None,
        read_only: bool = False,
        key: str | None = None,
    ) -> TransactionInfo:
        """Begin a transaction that is not renewed. `key`, a UUIDv7, becomes its id: the same key begins it once.

        lake.transactions.begin(ttl=600).id
        """
        wish = Wish(ttl, isolation, properties or {}, read_only)
        return TransactionInfo.from_json(self._caller.change("POST", _ALL, body=wish.to_json(), key=key).json())

    def get(self, transaction_id: str) -> TransactionInfo:
        """Return the transaction as it stands. This settles an unknown outcome. Raises `NotFound`.

        lake.transactions.get(error.transaction_id).state
        """
        return TransactionInfo.from_json(self._caller.read(_one(transaction_id)).json())

    def list(self, states: str | Iterable[str] = (), *, limit: int = 1_000) -> tuple[TransactionInfo, ...]:
        """List transactions in these states (all if none is named), oldest first.

        lake.transactions.list(["open", "prepared"])
        """
        found: list[TransactionInfo] = []
        for page in self._pages(_asked(states), min(limit, _PAGE)):
            found += map(TransactionInfo.from_json, page)
            if len(found) >= limit:
                break
        return tuple(found[:limit])

    def newest(
        self, states: str | Iterable[str] = (), *, limit: int = 100, before: str | None = None
    ) -> tuple[tuple[TransactionInfo, ...], bool]:
        """Return the newest, newest first, that were begun before the one with this id; and whether there are more.

        latest, more = lake.transactions.newest("committed", limit=20)
        """
        states = _asked(states)
        until_ms = self._caller.machine.now_ms() if before is None else timestamp_ms(parse_transaction_id(before))
        found: Sequence[Mapping[str, Any]] = ()
        # Servers list the oldest first, and there may be very many: look no farther back than for what is wanted.
        for back_ms in (*_LOOKS_BACK_MS, None):
            found = self._last(states, limit + 1, before, None if back_ms is None else until_ms - back_ms)
            if len(found) > limit:
                break
        return tuple(map(TransactionInfo.from_json, [*reversed(found)][:limit])), len(found) > limit

    def _last(
        self, states: Sequence[str], count: int, before: str | None, since_ms: int | None
    ) -> Sequence[Mapping[str, Any]]:
        """The last so many of those begun since then and before this one, oldest first."""
        kept: deque[Mapping[str, Any]] = deque(maxlen=count)
        for page in self._pages(states, _PAGE, since_ms):
            # Ids begin with their time, and are listed in their order.
            earlier = [one for one in page if before is None or one["transaction-id"] < before]
            kept.extend(earlier)
            if len(earlier) < len(page):
                break
        return kept

    def _pages(
        self, states: Sequence[str], size: int, since_ms: int | None = None
    ) -> Iterator[Sequence[Mapping[str, Any]]]:
        query = {"pageSize": str(size), "pageToken": "", **({"state": ",".join(states)} if states else {})}
        if since_ms is not None:
            query["since"] = str(max(since_ms, 0))
        while True:
            page = self._caller.read(_ALL, query=query).json()
            yield page["transactions"]
            if not page.get("next-page-token"):
                return
            query["pageToken"] = page["next-page-token"]

    def commit(self, transaction_id: str, source: Mapping[str, Any] | None = None) -> tuple[Published, ...]:
        """Make all of it visible at one instant. `source` goes into the receipts of its tables.

            lake.transactions.commit(transaction_id)

        May be repeated: once committed, the answer is the same. Raises `Conflict`, with the tables that had moved;
        `TransactionClosed`, if it was aborted or has expired; `Unavailable`; or `Unknown`, if not even asking helped.
        """
        body = None if source is None else {"source": dict(source)}
        path = _one(transaction_id) + "/commit"
        try:
            answer = self._caller.settle(
                "POST", path, transaction_id, body=body, ask=lambda: self._outcome(transaction_id)
            )
        except BadRequest as error:
            raise self._closed(transaction_id, error) from None
        return published_of(answer.json())

    def prepare(self, transaction_id: str) -> TransactionInfo:
        """Make sure that the commit will succeed: everything it needs is held until then, or until it expires.

        lake.transactions.prepare(transaction_id).state  # "prepared"
        """
        return self._step(transaction_id, "prepare")

    def renew(self, transaction_id: str, ttl: float | None = None) -> TransactionInfo:
        """Extend its lifetime to `ttl` seconds from now, if it would end earlier.

        lake.transactions.renew(transaction_id, ttl=600)
        """
        return self._step(transaction_id, "renew", None if ttl is None else {"ttl-seconds": ttl})

    def abort(self, transaction_id: str) -> TransactionInfo:
        """Discard it: nothing of it will ever be visible. Aborting twice is fine; a committed one is refused.

        lake.transactions.abort(transaction_id)
        """
        return self._step(transaction_id, "abort")

    def report(self, transaction_id: str, report: Mapping[str, Any]) -> None:
        """Store a pipeline's report of its run at the server. One attempt, and it is stored once.

        lake.transactions.report(transaction_id, {"pipeline": "shop", "state": "committed"})
        """
        self._caller.try_once("PUT", _one(transaction_id) + "/report", body=dict(report))

    def beat(self, transaction_id: str, ttl: float | None) -> None:
        """Make one attempt at renewing it, for a heartbeat that comes again anyway.

        lake.transactions.beat(transaction_id, ttl=None)
        """
        self._caller.try_once(
            "POST", _one(transaction_id) + "/renew", body=None if ttl is None else {"ttl-seconds": ttl}
        )

    def _step(self, transaction_id: str, step: str, body: Any = None) -> TransactionInfo:
        try:
            answer = self._caller.settle("POST", f"{_one(transaction_id)}/{step}", transaction_id, body=body)
        except BadRequest as error:
            raise self._closed(transaction_id, error) from None
        return TransactionInfo.from_json(answer.json())

    def _outcome(self, transaction_id: str) -> Answer | None:
        """What became of a commit whose answer was lost. None while it has not ended, or cannot be seen."""
        try:
            answer = self._caller.try_once("GET", _one(transaction_id))
        except Refused:
            # It was begun, so it cannot be missing: whatever this answer means, it is no outcome.
            return None
        info = TransactionInfo.from_json(answer.json())
        match info.state:
            case "committed":
                return Answer(200, orjson.dumps(answer.json().get("result") or {}))
            case "failed":
                raise info.error or Conflict(f"transaction {transaction_id} failed: nothing of it was applied")
            case "aborted":
                raise _ended_as(info)
            case _:
                return None

    def _closed(self, transaction_id: str, error: BadRequest) -> BadRequest:
        """The same refusal, with how the transaction ended, if that is the reason."""
        try:
            info = self.get(transaction_id)
        except (NotFound, BadRequest, Unavailable):
            return error
        if info.state == "open":
            return error
        return TransactionClosed(
            str(error),
            transaction_id=transaction_id,
            state=info.state,
            status=error.status,
            server_type=error.server_type,
            details=error.details,
        )


def published_of(result: Mapping[str, Any]) -> tuple[Published, ...]:
    return tuple(
        Published(identifier_of(one["identifier"]), one["metadata-location"]) for one in result.get("results") or ()
    )


def _ended_as(info: TransactionInfo) -> TransactionClosed:
    return TransactionClosed(
        f"transaction {info.id} was aborted or has expired: nothing of it was applied. Begin a new one",
        transaction_id=info.id,
        state=info.state,
    )


def _asked(states: str | Iterable[str]) -> list[str]:
    return [states] if isinstance(states, str) else list(states)


def _one(transaction_id: str) -> str:
    return f"{_ALL}/{segment(transaction_id)}"


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _change(document: Mapping[str, Any]) -> Change:
    identifier = document.get("identifier")
    return Change(
        document["cell"],
        document["access"],
        document["base"],
        document["revision"],
        None if identifier is None else identifier_of(identifier),
        document.get("metadata-location"),
    )
