"""What a caller was shown inside an open transaction, and planned its writes on.

Calls of one transaction may come side by side, through different processes. A call that reads, plans and stages hands
back what it was shown, and staging compares: if another call has staged one of these cells in between, the plan is
out of date, and going on would lose the other call's change.

Values are compared as JSON text, the order of names included. Every store keeps that order, so a cell that is handed
back as it was shown compares equal; and two values that Python takes for equal (`1`, `1.0` and `True`) stay different.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from lakepact.errors import InvalidRequest, StagedMeanwhile
from lakepact.kernel.checks import check_keys, check_revision
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Value
from lakepact.kernel.settings import KernelSettings


@dataclass(frozen=True, slots=True)
class Seen:
    """One cell as it was shown: staged, with this value; or not staged, at this revision."""

    revision: int
    staged: bool
    text: str | None = None
    """The staged value as JSON; None for a tombstone, and for what was not staged: there the revision says it all."""

    def outdated(self, staged: bool, text: str | None) -> bool:
        """Whether the cell, as it is staged now (or not), is no longer what was shown."""
        return staged != self.staged or (staged and text != self.text)


def check_seen(
    transaction_id: TransactionId, cells: Mapping[Key, Cell] | None, settings: KernelSettings
) -> dict[Key, Seen]:
    """The cells as they will be compared. Only a staged cell names the open transaction itself as its writer."""
    cells = cells or {}
    check_keys(cells, settings)
    seen: dict[Key, Seen] = {}
    for key, cell in cells.items():
        if cell.key != key:
            raise InvalidRequest(
                f"cell {cell.key!r} was handed in under the key {key!r}; pass on what read_in returned"
            )
        check_revision(key, cell.revision)
        staged = cell.writer == transaction_id
        seen[key] = Seen(cell.revision, staged, json_text(key, cell.value) if staged else None)
    return seen


def json_text(key: Key, value: Value | None) -> str | None:
    if value is None:
        return None
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            f"cell {key!r} was never shown like this: {error}. Pass on what read_in returned"
        ) from None


def staged_meanwhile(transaction_id: TransactionId, key: str) -> StagedMeanwhile:
    return StagedMeanwhile(
        f"another call has staged cell {key!r} in transaction {transaction_id} since it was read. "
        f"Nothing was staged; read again and plan again"
    )


def never_shown(transaction_id: TransactionId, key: str, revision: int) -> InvalidRequest:
    return InvalidRequest(
        f"transaction {transaction_id} cannot have been shown cell {key!r} at revision {revision}. "
        f"Nothing was staged; pass on what read_in of this transaction returned"
    )
