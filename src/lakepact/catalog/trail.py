"""What was asked of the catalog by whom, and what came of it: what goes into the audit trail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier


class Outcome(StrEnum):
    APPLIED = "applied"
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


def _dotted(names: Iterable[tuple[str, ...]]) -> list[str]:
    return [".".join(one) for one in names]
