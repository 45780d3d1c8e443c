"""Who did what: the audit trail of a warehouse, for those who manage it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from lakepact.client.caller import Caller
from lakepact.client.names import Name, table_name

_MOST_PAGES: Final = 100
"""Requests, before the search for rare lines ends for now."""


@dataclass(frozen=True, slots=True)
class AuditLines:
    """A part of the trail."""

    lines: tuple[dict[str, Any], ...]
    """The newest first: `at-ms`, `principal`, `operation`, `outcome`, `tables` and what else the server has written."""

    damaged: int
    """How many lines among them cannot be read, and are left out."""

    following: str | None
    """What to give as `before` for older ones. None: there are none."""


def audit_lines(
    caller: Caller,
    principal: str | None,
    operation: str | None,
    outcome: str | None,
    table: Name | None,
    before: str | datetime | None,
    limit: int,
) -> AuditLines:
    if limit < 1:
        raise ValueError(f"limit is 1 or more, not {limit}")
    asked: Mapping[str, str | None] = {
        "principal": principal,
        "operation": operation,
        "outcome": outcome,
        "table": None if table is None else ".".join(table_name(table)),
    }
    query = {name: value for name, value in asked.items() if value is not None}
    following = before.astimezone(UTC).isoformat() if isinstance(before, datetime) else before
    lines: list[dict[str, Any]] = []
    damaged = 0
    for _ in range(_MOST_PAGES):
        query["limit"] = str(limit - len(lines))
        if following is not None:
            query["before"] = following
        page = caller.read("{prefix}/audit", query=query).json()
        lines += page["lines"]
        damaged += page["damaged"]
        following = page["next-page-token"]
        if following is None or len(lines) >= limit:
            break
    return AuditLines(tuple(lines), damaged, following)
