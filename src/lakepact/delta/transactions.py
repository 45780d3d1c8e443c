"""Transactions over several Delta tables, in the shape of the guide: stage a table's actions, commit them all, mirror
them.

    tx = MultiTableTransaction(TransactionConfig(max_tables=5))
    tx.stage_table(features, StagedTable(features, feature_actions, expected_version=41))
    tx.stage_table(labels, StagedTable(labels, label_actions, expected_version=7))
    result = MultiTableWriter(backend).commit(tx)
    result.versions        # {features: 42, labels: 8}

Nothing is written before `commit`, and then all tables move or none. Who really commits is a `Backend`: this module
knows no client and no catalog.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from lakepact.delta.actions import Action, Add, Remove
from lakepact.delta.codec import sorted_actions
from lakepact.delta.errors import BadAction, LimitExceeded
from lakepact.errors import TransactionError

_LOG: Final = logging.getLogger("lakepact.delta")


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    max_tables: int = 10
    max_files_per_table: int = 1000
    """Files that are added or removed."""
    timeout_secs: float = 60
    """How long `commit` waits in all, retries included, and how long mirroring waits. A commit that gives up raises
    `Unavailable` if nothing was applied, or `Unknown` if the server had not answered: commit the same transaction
    again to learn its outcome. The server knows the limit, and gives the commit up before it."""

    def __post_init__(self) -> None:
        for name in ("max_tables", "max_files_per_table", "timeout_secs"):
            if getattr(self, name) <= 0:
                raise BadAction(f"TransactionConfig: {name} must be more than 0, found {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class StagedTable:
    """What is to become the next version of a table that is at `expected_version` (-1: it has none yet)."""

    table_id: str
    actions: Sequence[Action]
    expected_version: int

    @property
    def file_count(self) -> int:
        return sum(isinstance(action, Add | Remove) for action in self.actions)


class MirrorResult(NamedTuple):
    """How one engine's copy of a table came along. What failed is tried again in the background."""

    engine: str
    success: bool
    error: str | None


@dataclass(frozen=True, slots=True)
class CommitResult:
    transaction_id: str
    versions: Mapping[str, int]
    """The version each table is at now."""
    timeout_secs: float = field(default=60, compare=False)


class Backend(Protocol):
    """Where transactions are committed and mirrored."""

    def commit(self, changes: Sequence[StagedTable], transaction_id: str, timeout_secs: float) -> Mapping[str, int]:
        """Make every change the next version of its table, all of them or none; the new version of each table.

        The changes are in lock order. Raises `VersionConflict` if a table has moved and the change may not go on past
        what happened. The same transaction id again takes effect once and gives the same answer.
        """
        ...

    def mirror(
        self, versions: Mapping[str, int], transaction_id: str, timeout_secs: float
    ) -> Mapping[str, Sequence[MirrorResult]]:
        """Bring the copies of these tables up to these versions now. What fails is in the answer, not raised."""
        ...


class MultiTableTransaction:
    """Tables and what is to become of them. It can be committed again under the same id: it takes effect once."""

    def __init__(self, config: TransactionConfig | None = None, *, transaction_id: str | None = None) -> None:
        self.config = TransactionConfig() if config is None else config
        self.transaction_id = _new_id() if transaction_id is None else transaction_id
        self._staged: dict[str, StagedTable] = {}

    @classmethod
    def with_config(cls, config: TransactionConfig) -> MultiTableTransaction:
        return cls(config)

    def stage_table(self, table_id: str, staged: StagedTable) -> None:
        if staged.table_id != table_id:
            raise BadAction(f"table {table_id}: what is staged is for table {staged.table_id}")
        if table_id in self._staged:
            raise TransactionError(
                f"table {table_id} is staged already in {self.transaction_id}; stage all its actions at once"
            )
        limit, tables = self.config.max_tables, len(self._staged) + 1
        if tables > limit:
            raise LimitExceeded(
                f"transaction {self.transaction_id}: {tables} tables are more than max_tables={limit}; "
                f"raise max_tables in TransactionConfig, or commit fewer tables",
                setting="max_tables",
                limit=limit,
                found=tables,
            )
        limit, files = self.config.max_files_per_table, staged.file_count
        if files > limit:
            raise LimitExceeded(
                f"table {table_id}: {files} files are more than max_files_per_table={limit}; "
                f"raise max_files_per_table in TransactionConfig, or write fewer and larger files",
                setting="max_files_per_table",
                limit=limit,
                found=files,
            )
        if not staged.actions:
            raise BadAction(f"table {table_id}: no actions are staged; leave the table out")
        sorted_actions(staged.actions)
        self._staged[table_id] = staged

    def table_count(self) -> int:
        return len(self._staged)

    @property
    def tables(self) -> Mapping[str, StagedTable]:
        return dict(self._staged)


class MultiTableWriter:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @staticmethod
    def lock_order(table_ids: Iterable[str]) -> list[str]:
        """The order in which everybody takes the locks, so that nobody waits in a circle."""
        return sorted(table_ids)

    def commit(self, tx: MultiTableTransaction) -> CommitResult:
        """All tables of the transaction, or none. Raises `VersionConflict` if one of them has moved."""
        staged = tx.tables
        if not staged:
            raise TransactionError(f"transaction {tx.transaction_id} has no tables; stage one with stage_table")
        order = self.lock_order(staged)
        _LOG.info("Beginning multi-table transaction %s with %d tables", tx.transaction_id, len(order))
        for table_id in order:
            _LOG.debug("Locking table %s", table_id)
            _LOG.debug("Inserting %d actions for table %s", len(staged[table_id].actions), table_id)
        changes = [staged[table_id] for table_id in order]
        versions = self._backend.commit(changes, tx.transaction_id, tx.config.timeout_secs)
        for table_id in order:
            # Known only now: a change may have gone on past versions that came since it was planned.
            _LOG.debug("Table %s locked at version %d", table_id, versions[table_id] - 1)
        _LOG.debug("Updated versions for %d tables", len(order))
        _LOG.info("Multi-table transaction %s committed successfully with %d tables", tx.transaction_id, len(order))
        return CommitResult(tx.transaction_id, {one: versions[one] for one in order}, tx.config.timeout_secs)

    def mirror_all_tables_after_commit(self, result: CommitResult) -> dict[str, list[MirrorResult]]:
        """Bring the copies of the committed tables up to date. A failure is told and retried, and undoes nothing."""
        answers = self._backend.mirror(result.versions, result.transaction_id, result.timeout_secs)
        for table_id, results in answers.items():
            for one in results:
                if not one.success:
                    _LOG.warning("Mirror failed for table %s in %s: %s", table_id, one.engine, one.error)
        return {table_id: list(results) for table_id, results in answers.items()}


def _new_id() -> str:
    """A UUIDv7: the date of a transaction is in its id."""
    bits = int.from_bytes(os.urandom(10)) & ((1 << 74) - 1)
    number = (
        (time.time_ns() // 1_000_000) << 80 | 0x7 << 76 | (bits >> 62) << 64 | 0b10 << 62 | (bits & ((1 << 62) - 1))
    )
    return str(uuid.UUID(int=number))
