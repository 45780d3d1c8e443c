"""What Delta tables ask of a SQL store, as a contract in prose.

The rows of a version are written first (`put`) and become visible with the commit whose `beside` names them (`beside`).
Until then they belong to their transaction alone. What is published never changes again: every reading method below
answers the same for ever for a version that exists, so a reader takes the versions of all its tables from one cut of
cells, and needs no further snapshot.

Calls are safe to repeat. `StoreUnavailable` and `Contended` mean that nothing was done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lakepact.delta.actions import Action, CommitInfo, DomainMetadata, Metadata, Remove, Txn
from lakepact.delta.actions import Protocol as TableProtocol
from lakepact.delta.rows import Files


@dataclass(frozen=True, slots=True)
class TableChange:
    """The actions of one version of one table, and the version they are planned for."""

    table_id: str
    version: int
    actions: Sequence[Action]


@dataclass(frozen=True, slots=True)
class TableRow:
    table_id: str
    warehouse: str
    namespace: str
    name: str
    location: str
    current_version: int
    last_ict_ms: int | None
    metadata_version: int | None
    protocol_version: int | None
    state: TableLife


class TableLife(StrEnum):
    LIVE = "live"
    DROPPED = "dropped"
    """Its rows are still there, until `purge`."""


@dataclass(frozen=True, slots=True)
class VersionRow:
    """One version, without its actions."""

    table_id: str
    version: int
    transaction_id: str
    info: CommitInfo
    adds: int
    removes: int
    digest: str


@dataclass(frozen=True, slots=True)
class VersionActions:
    """One version with all its actions, in no particular order."""

    row: VersionRow
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """How large a table is, or how much larger it has become."""

    files: int
    bytes: int
    records: int | None
    """Without those that deletion vectors take away; None if a file does not say how many it has."""

    def plus(self, other: Totals) -> Totals:
        known = self.records is not None and other.records is not None
        records = (self.records or 0) + (other.records or 0) if known else None
        return Totals(self.files + other.files, self.bytes + other.bytes, records)


@dataclass(frozen=True, slots=True)
class TableContents:
    """All of a table at a version but its files."""

    table_id: str
    version: int
    metadata: Metadata | None
    protocol: TableProtocol | None
    txns: Mapping[str, Txn]
    """By application id."""

    domains: Mapping[str, DomainMetadata]
    """By name; removed ones are left out."""


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """What became of a transaction that was refused, for those who look for reasons later."""

    txn_id: str
    table_id: str
    expected_version: int | None
    actual_version: int | None
    error_type: str
    error_message: str
    timestamp_ms: int


class MirrorState(StrEnum):
    ACTIVE = "active"
    """In step, or about to be."""

    RETRYING = "retrying"
    """Has failed, and is tried again at `next_attempt_ms`."""

    CONFLICT = "conflict"
    """Somebody else has written where the mirror writes. A person must look, then `retry`."""

    DEAD = "dead"
    """Given up until `retry`."""

    OFF = "off"
    """No longer wanted for this table."""


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """How far one engine has followed one table."""

    table_id: str
    engine: str
    mirrored_version: int
    current_version: int
    state: MirrorState
    attempts: int
    next_attempt_ms: int
    last_error: str | None
    last_sync_ms: int | None
    lease_owner: str | None
    lease_until_ms: int | None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One commit, as mirrors publish it.

    Numbers have no gaps, and no commit has a smaller one than a commit that had ended before it began.
    """

    number: int
    transaction_id: str
    ict_ms: int | None
    tables: Mapping[str, int | None]
    """The version each table has reached by it; None for a table that was renamed, dropped or has no version yet."""


@dataclass(frozen=True, slots=True)
class Swept:
    transactions: int = 0
    """Transactions of which unpublished rows or staged documents were deleted."""

    more: bool = False


class DeltaRows(Protocol):
    """The `dl_*` tables. See `docs/format.md` for the columns."""

    # --- writing: rows first ---

    async def put(
        self,
        transaction_id: str,
        changes: Sequence[TableChange],
        *,
        request_hash: str = "",
        tombstones: bool = False,
    ) -> None:
        """Write the rows of these versions, invisible, replacing what this transaction has put for the same versions.

        They are the rows of one request: only a commit with the same id and the same `request_hash` publishes them, any
        other is refused with `RowsGone`. Requests that are equal by hash must put equal rows.

        The planned version is the one after the version the change is based on. Every file that is removed must be
        live there: else `FileNotLive`, and nothing is written. Every version that the commit will name needs a `put`,
        even without actions. Rows this transaction has published already are left alone. Not durable by itself: the
        commit that publishes the rows makes them so.

        With `tombstones` removes may name files that are not there, as in a checkpoint that is imported:
        `NewVersion.tombstones` must say so too, for the versions in which they do.
        """
        ...

    async def move(
        self, transaction_id: str, table_id: str, version: int, to_version: int, *, request_hash: str = ""
    ) -> None:
        """Plan the rows put for `version` for `to_version` instead, in place of what this transaction has put there.

        `RowsGone` if there are neither: rows that are there already have been moved before. `RowsGone` as well if they
        are those of another request. What this transaction has published there is left alone.

        Whether the change may go on past the versions in between is the caller's to judge, except for removed files: if
        one is no longer live, `FileNotLive`, and the rows stay where they were.
        """
        ...

    async def discard(self, transaction_id: str) -> None:
        """Delete what this transaction has put and not published, and what it has staged.

        For a refusal that is known. It can never touch what is published; a commit of the same id that is still under
        way would be refused with `RowsGone`.
        """
        ...

    async def sweep(self, limit: int = 100, *, grace_s: float = 3_600.0) -> Swept:
        """Discard for transactions that have ended, and for those without a record once their rows are older than
        the grace. At most `limit` transactions."""
        ...

    async def purge(self, table_id: str, limit: int = 10_000) -> bool:
        """Delete rows of a dropped table for good, some `limit` at a time. Whether there are more. A live one is left
        alone."""
        ...

    # --- open transactions ---

    async def stage(self, transaction_id: str, table_id: str, statement_id: str, actions: str) -> None:
        """Keep the actions of one statement of an open transaction. What is kept under this id already stays.

        For a transaction that has ended nothing is kept; staging the table's cell then says that it has.
        """
        ...

    async def staged(self, transaction_id: str) -> Mapping[str, Mapping[str, str]]:
        """By table and statement, in the order of staging."""
        ...

    # --- reading ---

    async def files(self, table_id: str, version: int) -> Files:
        """The files that are live at this version, in no particular order. Empty for a version that does not exist."""
        ...

    async def totals(self, table_id: str, version: int) -> Totals | None:
        """Of the files that are live at this version, all of which are looked at. None: there is no such version."""
        ...

    async def growth(self, table_id: str, after: int, until: int) -> Totals | None:
        """What the versions beyond `after` up to `until` have added, at the cost of what they have added. None: one of
        them has taken something away as well, or is not there."""
        ...

    async def contents(self, table_id: str, version: int) -> TableContents:
        """Metadata, protocol, application transactions and domains as of this version."""
        ...

    async def since(self, table_id: str, after: int, until: int) -> Sequence[VersionActions]:
        """What every version beyond `after` up to `until` said, oldest first."""
        ...

    async def removed(self, table_id: str, after: int, until: int) -> Sequence[Remove]:
        """What versions beyond `after` up to `until` have removed, oldest first, whether or not it came back."""
        ...

    async def actions(self, table_id: str, version: int) -> VersionActions | None:
        """Everything one version said; None if there is no such version."""
        ...

    async def versions(self, table_id: str, before: int | None = None, limit: int = 100) -> Sequence[VersionRow]:
        """History, newest first, of versions below `before`."""
        ...

    async def version_at(self, table_id: str, timestamp_ms: int) -> int | None:
        """The newest version whose in-commit timestamp is not later; None if all are."""
        ...

    async def table(self, table_id: str) -> TableRow | None: ...

    async def tables(
        self, warehouse: str, *, after: str = "", limit: int = 10_000, dropped: bool = False
    ) -> Sequence[TableRow]:
        """Live tables (or dropped ones) by id, all of one instant."""
        ...

    # --- what was refused ---

    async def log_errors(self, rows: Sequence[ErrorRow], *, keep: int = 10_000) -> None:
        """Add to the log of errors, in a database transaction of its own, and keep only the newest `keep`."""
        ...

    async def errors(self, limit: int = 100, *, table_id: str | None = None) -> Sequence[ErrorRow]:
        """Newest first."""
        ...

    # --- mirrors ---

    async def set_mirrors(self, table_id: str, engines: Iterable[str]) -> None:
        """Let exactly these engines follow the table. Others are switched off; one switched on again goes on where it
        was."""
        ...

    async def claim(
        self,
        engine: str,
        owner: str,
        lease_s: float,
        limit: int = 100,
        *,
        tables: Iterable[str] | None = None,
        warehouse: str | None = None,
    ) -> Sequence[MirrorRow]:
        """Take, for `lease_s`, tables that this engine has not followed to their current version.

        Nobody else gets them while the lease lasts; `owner` gets them again. Tables that others hold, that wait for
        their next attempt, or that are in conflict, dead or off, are not among them. With `tables` only these, with
        `warehouse` only those in it.
        """
        ...

    async def hold(self, engine: str, owner: str, lease_s: float) -> int:
        """Prolong all leases of this owner that have not run out. How many."""
        ...

    async def mirrored(self, engine: str, owner: str, versions: Mapping[str, int]) -> Sequence[str]:
        """Note that the tables are mirrored up to these versions, and end the leases.

        Answers the tables for which the lease was still the owner's; for the others nothing was noted (or it was, and
        the answer was lost on the way: claim again to see).
        """
        ...

    async def mirror_failed(
        self, engine: str, owner: str, table_id: str, error: str, *, retry_at_ms: int | None
    ) -> bool:
        """Note a failure and end the lease. Without a time to retry at, the mirror is dead. False: no lease."""
        ...

    async def mirror_conflict(self, engine: str, owner: str, table_id: str, error: str) -> bool:
        """Note that the place is not ours alone, and end the lease. False: the lease was lost."""
        ...

    async def retry(self, *, table_id: str | None = None, engine: str | None = None) -> int:
        """Let mirrors that failed, are dead or in conflict be claimed at once. How many."""
        ...

    async def mirror_status(self, *, table_id: str | None = None, limit: int = 10_000) -> Sequence[MirrorRow]:
        """Live tables and the engines that follow them, those switched off too."""
        ...

    async def outgoing(self, warehouse: str, limit: int = 1_000) -> Sequence[Outgoing]:
        """Commits whose cut has not been published, in order. A prefix of them is a consistent cut."""
        ...

    async def sent(self, warehouse: str, number: int) -> None:
        """The cuts up to this number are published: forget them."""
        ...
