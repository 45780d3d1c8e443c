"""How far the projections have come: a small document, compared and written in the transaction of the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakepact.client.state import Document
from lakepact.errors import InvalidRequest
from lakepact.spark.jobs.projections.tables import FORMAT

NAME: Final = "lakepact.projections"


@dataclass(frozen=True, slots=True)
class Position:
    through: str | None = None
    """Every receipt and every note of the days up to this one is projected or waits. None: nothing was ever read."""

    read_ms: int | None = None
    """When the last run began to read."""

    runs: int = 0
    """How many have moved it."""

    receipts: int = 0
    """How many they have projected; a full run counts anew."""

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "through": self.through,
            "read-ms": self.read_ms,
            "runs": self.runs,
            "receipts": self.receipts,
        }

    @classmethod
    def of(cls, document: Document, *, full: bool) -> Position:
        """Raises `InvalidRequest` if the tables are not those of this release."""
        value: Mapping[str, Any] | None = document.value
        if value is None:
            return cls()
        if value.get("format") != FORMAT and not full:
            raise InvalidRequest(
                f"the projections are of format {value.get('format')}, and this release makes format {FORMAT}. "
                f"Drop the tables of namespace lakepact and run `lakepact project --full`"
            )
        return cls(value.get("through"), value.get("read-ms"), value.get("runs", 0), value.get("receipts", 0))
