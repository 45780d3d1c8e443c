"""Transactions: what is under way, what has ended, and one of them with all it moved; and the forms that end one."""

from __future__ import annotations

from typing import Final

from lakepact.errors import InvalidRequest
from lakepact.kernel.identity import TransactionId, parse_transaction_id
from lakepact.kernel.model import State, TransactionRecord
from lakepact.server.auth.sessions import Sessions
from lakepact.server.http import Request, Response
from lakepact.server.ui import activity, transaction_parts
from lakepact.server.ui.account_page import form_fields
from lakepact.server.ui.html import NOTHING, tag
from lakepact.server.ui.layout import GUARDS, Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.movers import movers
from lakepact.server.ui.parts import ACCENT, badge, card, facts, heading, pager, tabs
from lakepact.server.ui.transaction_links import state_badge
from lakepact.server.ui.transaction_lists import ended_list, under_way_card
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows

_FILTERS: Final = (("All", ""), ("Committed", "committed"), ("Refused", "failed"), ("Aborted", "aborted"))
_PART: Final = "Your own ones, and of those of others what is committed and has changed something that you may read."


class TransactionPages:
    def __init__(self, windows: Windows, links: Links, sessions: Sessions) -> None:
        self._windows = windows
        self._links = links
        self._sessions = sessions

    async def overview(self, request: Request) -> Page:
        window = await self._windows.window(request.params["warehouse"], request.principal)
        warehouse, state, before = window.warehouse, _state(request), _before(request)
        under_way, more = await activity.undecided(window) if before is None else ([], False)
        ended = await activity.recent(window, states=[state] if state else activity.DECIDED, before=before)
        following = ended.following and self._links.transactions(warehouse, state=state, before=ended.following)
        menu = tabs(
            [
                (shown, self._links.transactions(warehouse, state=one or None), one == (state or ""))
                for shown, one in _FILTERS
            ],
            label="Which ones",
        )
        lead = "What is under way in this warehouse, and what has ended." if window.whole else _PART
        body = (
            heading("Transactions", lead=lead),
            under_way_card(self._links, window, under_way, more) if before is None else NOTHING,
            card(
                "Ended",
                menu,
                ended_list(self._links, window, ended.ended),
                pager(
                    first=self._links.transactions(warehouse, state=state) if before else None,
                    following=following or None,
                    what="Pages of transactions",
                ),
                flush=True,
            ),
        )
        return Page("Transactions", body, section="transactions", warehouse=warehouse)

    async def show(self, request: Request) -> Page:
        window, record = await self._asked(request)
        warehouse, links = window.warehouse, self._links
        looked = await activity.look_into(window, record)
        token = await self._sessions.csrf(request)
        changes = (await window.sight.moved([record]))[record.id]
        faster = await movers(window, self._windows.timeline, record)
        aborted_by = await window.transactions.aborted_by(record)
        several = badge(f"{len(changes)} moved together", ACCENT) if len(changes) > 1 else None
        body = (
            heading(tag("span", record.id, class_="mono small"), state_badge(record.state), several),
            transaction_parts.notice(window, looked),
            transaction_parts.steps(links, warehouse, record, token) if not record.state.final else NOTHING,
            transaction_parts.moved_together(links, window, changes) if changes else NOTHING,
            transaction_parts.refusal_of(links, warehouse, record, faster),
            transaction_parts.touches(links, warehouse, record, looked),
            card("About it", facts(transaction_parts.facts_of(links, window, record, aborted_by))),
        )
        return Page(
            f"Transaction {record.id}",
            body,
            section="transactions",
            warehouse=warehouse,
            trail=(("Transactions", links.transactions(warehouse)),),
        )

    async def confirm_abort(self, request: Request) -> Page:
        """A page that asks before a transaction is aborted. It works without scripts."""
        window, record = await self._asked(request)
        warehouse, links = window.warehouse, self._links
        looked = await activity.look_into(window, record)
        token = await self._sessions.csrf(request)
        body = (
            heading(f"Abort transaction {record.id}?", state_badge(record.state)),
            transaction_parts.abort_form(links, warehouse, looked, token)
            if not record.state.final
            else card(
                "It has ended",
                tag("p", f"The transaction is {record.state.value} and cannot be aborted any more."),
                tag("a", "Back to the transaction", href=links.transaction(warehouse, record.id)),
            ),
        )
        trail = (
            ("Transactions", links.transactions(warehouse)),
            (str(record.id), links.transaction(warehouse, record.id)),
        )
        return Page("Abort a transaction", body, section="transactions", warehouse=warehouse, trail=trail)

    async def abort(self, request: Request) -> Response:
        window, record = await self._asked(request)
        await window.transactions.abort(record.id)
        return self._back(window, record)

    async def renew(self, request: Request) -> Response:
        window, record = await self._asked(request)
        seconds = form_fields(request).get("seconds", "")
        if not seconds.isascii() or not seconds.isdecimal() or not 0 < int(seconds[:9]) <= 86_400:
            raise InvalidRequest("say for how many seconds, at most a day")
        await window.transactions.renew(record.id, float(seconds))
        return self._back(window, record)

    async def _asked(self, request: Request) -> tuple[Window, TransactionRecord]:
        window = await self._windows.window(request.params["warehouse"], request.principal)
        return window, await activity.transaction(window, parse_transaction_id(request.params["transaction"]))

    def _back(self, window: Window, record: TransactionRecord) -> Response:
        place = self._links.transaction(window.warehouse, record.id)
        return Response(303, b"", ((b"Location", place.encode()), *GUARDS))


def _state(request: Request) -> State | None:
    asked, known = request.query.get("state", ""), [one.value for one in activity.DECIDED]
    if asked and asked not in known:
        raise InvalidRequest(
            f"no transaction ends as {asked[:100]!r}; ask for one of {', '.join(sorted(known))}, or none"
        )
    return State(asked) if asked else None


def _before(request: Request) -> TransactionId | None:
    asked = request.query.get("before", "")
    return parse_transaction_id(asked) if asked else None
