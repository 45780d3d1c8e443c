"""What is asked for about an account itself, such as its tokens, in the audit trail.

An account has no files of its own, so the lines are in the trail of one of its warehouses: the default one, or else the
first. Where it has none, or nobody is asked for a name, there is no line. No line holds any part of a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lakepact.access.principal import Principal
from lakepact.access.secrets import Given
from lakepact.catalog.guard import outcome_of
from lakepact.catalog.trail import Entry, Outcome, Trail
from lakepact.errors import Contended, StoreUnavailable
from lakepact.server.auth.errors import NotAllowed
from lakepact.server.http import Request

_MOST_REASON = 500


@dataclass(slots=True)
class Note:
    """What is known by now of a request."""

    detail: dict[str, Any] = field(default_factory=dict)
    transaction_id: str | None = None

    def tells(self, token: Given, transaction_id: str) -> None:
        self.transaction_id = transaction_id
        self.detail |= {"id": token.id, "name": token.name, "groups": ",".join(sorted(token.groups))}
        self.detail |= {"admin": token.admin, "expires-at-ms": token.expires_ms}


class AccountTrail:
    def __init__(
        self,
        trail: Trail,
        home: Callable[[Principal], str | None],
        now_ms: Callable[[], int],
    ) -> None:
        """`home`: the warehouse that the trail of this one's account is in."""
        self._trail = trail
        self._home = home
        self._now_ms = now_ms

    @contextmanager
    def noting(self, request: Request, operation: str, detail: Mapping[str, Any] | None = None) -> Iterator[Note]:
        """Note who asks for this and what comes of it."""
        note = Note(dict(detail or {}))
        try:
            yield note
        except (Contended, StoreUnavailable):
            # Nothing has happened yet, and the client sends it again.
            raise
        except Exception as error:
            outcome = Outcome.DENIED if isinstance(error, NotAllowed) else outcome_of(error)
            self._write(request, operation, outcome, note, str(error)[:_MOST_REASON])
            raise
        self._write(request, operation, Outcome.APPLIED, note, None)

    def note_read(self, request: Request, operation: str) -> None:
        if self._trail.reads:
            self._write(request, operation, Outcome.APPLIED, Note(), None)

    def _write(self, request: Request, operation: str, outcome: Outcome, note: Note, reason: str | None) -> None:
        who = request.principal
        warehouse = None if who.name is None else self._home(who)
        if warehouse is None:
            return
        entry = Entry(
            at_ms=self._now_ms(),
            account=who.account,
            principal=who.name,
            operation=operation,
            outcome=outcome,
            transaction_id=note.transaction_id,
            reason=reason,
            client=request.header("x-client-version") or request.header("user-agent"),
            detail={name: value for name, value in note.detail.items() if value is not None} or None,
        )
        self._trail.note(warehouse, entry)
