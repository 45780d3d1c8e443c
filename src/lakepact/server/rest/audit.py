"""The audit trail: who asked for what, and what came of it, for those who manage the warehouse."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from lakepact.access.rules import RULES
from lakepact.catalog.audit import Position, Wanted
from lakepact.catalog.trail import Outcome
from lakepact.errors import InvalidRequest
from lakepact.server.http import Request, Response, json_response
from lakepact.server.openapi.operations import OPERATIONS
from lakepact.server.rest.door import Door, number

_PAGE: Final = 100
_KNOWN: Final = sorted(RULES.keys() | OPERATIONS.keys())


class AuditHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def list(self, request: Request) -> Response:
        if self._door.transaction(request) is not None:
            raise InvalidRequest("the audit trail is outside of transactions; send it without one")
        limit = number(request, "limit") or _PAGE
        page = await self._door.catalog(request).audit_page(before_of(request), wanted_of(request), limit)
        return json_response(
            {
                "lines": page.lines,
                "damaged": page.damaged,
                "next-page-token": None if page.following is None else page.following.token,
            }
        )


def wanted_of(request: Request) -> Wanted:
    """Which lines a request asks for. What is left empty, as a form does, is not asked for."""
    asked, outcome = request.query, request.query.get("outcome") or None
    if outcome is not None and outcome not in list(Outcome):
        raise InvalidRequest(f"outcome is {', '.join(Outcome)}, not {outcome[:40]!r}")
    operation = asked.get("operation") or None
    if operation is not None and operation not in _KNOWN:
        [meant, *_] = [*get_close_matches(operation, _KNOWN, 1), None]
        raise InvalidRequest(
            f"there is no operation {operation[:40]!r}; "
            + (f"did you mean {meant}?" if meant else "docs/access.md has the list of them")
        )
    return Wanted(
        principal=asked.get("principal") or None,
        operation=operation,
        outcome=None if outcome is None else Outcome(outcome),
        table=asked.get("table") or None,
    )


def before_of(request: Request) -> Position | None:
    """The moment, or the page before, from which on a request looks back."""
    asked = request.query.get("before")
    return Position.parse(asked) if asked else None
