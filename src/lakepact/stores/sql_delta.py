"""What both SQL stores say about Delta rows, and how they read them back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, runtime_checkable
from typing import Protocol as TypedProtocol

import orjson

from lakepact.delta.actions import Action, DomainMetadata, Metadata, Protocol, Remove, Txn
from lakepact.delta.ports import (
    DeltaRows,
    ErrorRow,
    MirrorRow,
    MirrorState,
    Outgoing,
    TableChange,
    TableContents,
    TableLife,
    TableRow,
    Totals,
    VersionActions,
    VersionRow,
)
from lakepact.delta.rows import EncodedChange, action_of, commit_info_of, encode_change
from lakepact.errors import Damaged, FileNotLive, InvalidRequest, RowsGone
from lakepact.kernel.ports import CellStore

TABLE_COLUMNS: Final = (
    "table_id, warehouse, namespace, name, location, current_version, last_ict_ms, metadata_version, "
    "protocol_version, state"
)
VERSION_COLUMNS: Final = (
    "table_id, version, transaction_id, ict_ms, operation, operation_params, commit_info, adds, removes, digest"
)
MIRROR_COLUMNS: Final = (
    "m.table_id, m.mirror_engine, m.mirrored_version, t.current_version, m.state, m.attempts, m.next_attempt_ms, "
    "m.last_error, m.last_sync_ms, m.lease_owner, m.lease_until_ms"
)
ERROR_COLUMNS: Final = "txn_id, table_id, expected_version, actual_version, error_type, error_message"

LONGEST_ERROR: Final = 4_000
"""Characters of an error that are kept: enough to see what it was, whatever an engine says."""


@runtime_checkable
class KeepsRows(TypedProtocol):
    """A store in which rows move with cells."""

    @property
    def delta(self) -> DeltaRows: ...


def delta_rows(store: CellStore) -> DeltaRows | None:
    """The rows of Delta tables beside the cells of this store, or None if it keeps documents."""
    return store.delta if isinstance(store, KeepsRows) else None


class EndsMirrors(ABC):
    """How the turn of a mirror may end, beside success. What both databases mean by it."""

    async def mirror_failed(
        self, engine: str, owner: str, table_id: str, error: str, *, retry_at_ms: int | None
    ) -> bool:
        state = MirrorState.DEAD if retry_at_ms is None else MirrorState.RETRYING
        return await self._ended(engine, owner, table_id, shortened(error), state, retry_at_ms or 0)

    async def mirror_conflict(self, engine: str, owner: str, table_id: str, error: str) -> bool:
        return await self._ended(engine, owner, table_id, shortened(error), MirrorState.CONFLICT, 0)

    @abstractmethod
    async def _ended(
        self, engine: str, owner: str, table_id: str, error: str, state: MirrorState, next_attempt_ms: int
    ) -> bool:
        """Note it and end the lease, if the lease is still the owner's."""


# --- what is written ---


def encode_changes(transaction_id: str, changes: Iterable[TableChange]) -> list[EncodedChange]:
    encoded = [encode_change(transaction_id, one.table_id, one.version, one.actions) for one in changes]
    encoded.sort(key=lambda one: (one.table_id, one.version))
    places = {(one.table_id, one.version) for one in encoded}
    if len(places) < len(encoded):
        raise InvalidRequest(f"transaction {transaction_id} plans the same version of a Delta table twice")
    return encoded


def shortened(error: str) -> str:
    # NUL cannot be stored, and half a character of UTF-16 cannot be sent.
    return error[:LONGEST_ERROR].replace("\x00", " ").encode("utf-8", "replace").decode()


# --- what is read ---


def table_of(row: Sequence[Any]) -> TableRow:
    table_id, warehouse, namespace, name, location, version, ict_ms, metadata_version, protocol_version, state = row
    return TableRow(
        table_id,
        warehouse,
        namespace,
        name,
        location,
        version,
        ict_ms,
        metadata_version,
        protocol_version,
        TableLife(state),
    )


def version_of(row: Sequence[Any]) -> VersionRow:
    table_id, version, transaction_id, ict_ms, operation, operation_params, commit_info, adds, removes, digest = row
    info = commit_info_of(ict_ms, operation, operation_params, commit_info)
    return VersionRow(table_id, version, transaction_id, info, adds, removes, digest)


def mirror_of(row: Sequence[Any]) -> MirrorRow:
    table_id, engine, mirrored, current, state, *others = row
    return MirrorRow(table_id, engine, mirrored, current, MirrorState(state), *others)


def error_of(row: Sequence[Any]) -> ErrorRow:
    return ErrorRow(*row)


def outgoing_of(row: Sequence[Any]) -> Outgoing:
    number, transaction_id, ict_ms, tables = row
    return Outgoing(number, transaction_id, ict_ms, orjson.loads(tables))


def contents_of(table_id: str, version: int, rows: Mapping[str, Iterable[Sequence[Any]]]) -> TableContents:
    """From the newest rows of metadata and protocol, of each application and of each domain."""
    found: list[Action] = [action_of(table, row) for table, some in rows.items() for row in some]
    return TableContents(
        table_id,
        version,
        metadata=next((one for one in found if isinstance(one, Metadata)), None),
        protocol=next((one for one in found if isinstance(one, Protocol)), None),
        txns={one.app_id: one for one in found if isinstance(one, Txn)},
        domains={one.domain: one for one in found if isinstance(one, DomainMetadata) and not one.removed},
    )


def with_actions(
    versions: Iterable[Sequence[Any]], rows: Mapping[str, Iterable[Sequence[Any]]]
) -> tuple[VersionActions, ...]:
    """Versions with their actions; each row of actions begins with its version."""
    actions: dict[int, list[Action]] = {}
    for table, some in rows.items():
        for row in some:
            actions.setdefault(row[0], []).append(action_of(table, tuple(row)[1:]))
    found = [version_of(row) for row in versions]
    return tuple(VersionActions(row, tuple(actions.get(row.version, ()))) for row in found)


def totals_of(row: Sequence[Any]) -> Totals | None:
    """From whether all versions are there, files, bytes, records, and of how many files these are known."""
    there, files, size, records, known = row
    return Totals(files, size, (records or 0) if known == files else None) if there else None


def removes_of(rows: Iterable[Sequence[Any]]) -> list[Remove]:
    """Removes, each row beginning with its version."""
    found = (action_of("dl_remove_files", tuple(row)[1:]) for row in rows)
    return [one for one in found if isinstance(one, Remove)]


# --- what is said ---


def rows_gone(transaction_id: str, table_id: object, version: object) -> RowsGone:
    return RowsGone(
        f"transaction {transaction_id}: the rows of version {version} of Delta table {table_id} are not there as the "
        f"commit announces them. Nothing was applied; write them again and commit again"
    )


def not_live(table_id: str, version: int, path: str) -> FileNotLive:
    return FileNotLive(
        f"Delta table {table_id}: version {version} would remove {path!r}, which is not among the live files of the "
        f"version before. Nothing was written; read the table again and remove what is there"
    )


def contradiction(reason: str) -> Damaged:
    return Damaged(f"the rows of Delta tables contradict the cells: {reason}. Nothing was changed; a person must look")
