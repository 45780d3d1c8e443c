"""What was asked of the catalog by whom, and what came of it: what goes into the audit trail, and under which names.

The name of a file says which time its lines are of, so that whoever looks for a moment finds it by listing, and names
sort as times do: `_catalog/audit/<yyyy-mm-dd>/<hhmmssmmm of the newest line>-<milliseconds it spans>-<who>.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from lakepact.catalog.warehouse import OWN_FOLDER
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier

AUDIT: Final = f"{OWN_FOLDER}/audit"
LONGEST_MS: Final = 60_000
"""Between the first and the last line of a file: as far beyond a moment lines from before it may lie."""

_NAME: Final = re.compile(rf"{AUDIT}/(\d{{4}}-\d\d-\d\d)/(\d{{9}})-(\d{{5}})-[^/]+\.jsonl")
_BEGAN: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Outcome(StrEnum):
    APPLIED = "applied"
    STAGED = "staged"
    """In an open transaction. What becomes of it is told where that is published or aborted, under the same id."""

    DENIED = "denied"
    """Whoever asked may not, or may not even know of it. Nothing happened."""

    REFUSED = "refused"
    """They may, but it could not be done. Nothing happened."""

    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    at_ms: int
    account: str
    principal: str | None
    operation: str
    outcome: Outcome
    tables: tuple[Identifier, ...] = ()
    """Tables, views and namespaces that the request names."""

    namespaces: tuple[tuple[str, ...], ...] = ()
    transaction_id: str | None = None
    reason: str | None = None
    client: str | None = None
    detail: JsonObject | None = None

    def to_json(self, warehouse: str) -> JsonObject:
        return {
            "format": 1,
            "at-ms": self.at_ms,
            "account": self.account,
            "warehouse": warehouse,
            "principal": self.principal,
            "operation": self.operation,
            "outcome": self.outcome,
            "tables": _dotted((*one.namespace, one.name) for one in self.tables),
            "namespaces": _dotted(self.namespaces),
            "transaction-id": self.transaction_id,
            "reason": self.reason,
            "client": self.client,
            "detail": None if self.detail is None else {name: str(value) for name, value in self.detail.items()},
        }


class Trail:
    """Where entries go. This one keeps none."""

    reads = False
    """Whether reads are kept too."""

    def note(self, warehouse: str, entry: Entry) -> None: ...

    async def flush(self, warehouse: str) -> None:
        """Write what this process still keeps, for somebody who is about to read it."""


def place_of(at_ms: int) -> str:
    """The names of files whose newest line is of this moment, or later, sort after this."""
    return f"{AUDIT}/{_at(at_ms):%Y-%m-%d/%H%M%S}{at_ms % 1000:03}"


def file_name(first_ms: int, last_ms: int, process: str, number: int) -> str:
    """`process`: a name that no other process has; `number`: one that no other file of it has."""
    assert 0 <= last_ms - first_ms <= LONGEST_MS, f"{first_ms} to {last_ms} is not for one file"
    return f"{place_of(last_ms)}-{last_ms - first_ms:05}-{process}-{number:06}.jsonl"


def process_of(name: str) -> str:
    """Who has written a file."""
    return name.split("-", 2)[-1].rpartition("-")[0]


def span_of(name: str) -> tuple[int, int] | None:
    """The moments of the first and the last line of a file. None: it is no file of the trail."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    day, time, spans_ms = found.groups()
    try:
        newest = datetime.strptime(f"{day} {time[:6]} +0000", "%Y-%m-%d %H%M%S %z")
    except ValueError:
        return None
    last_ms = (newest - _BEGAN) // timedelta(milliseconds=1) + int(time[6:])
    return last_ms - int(spans_ms), last_ms


def _at(at_ms: int) -> datetime:
    return _BEGAN + timedelta(milliseconds=at_ms)


def _dotted(names: Iterable[tuple[str, ...]]) -> list[str]:
    return [".".join(one) for one in names]
