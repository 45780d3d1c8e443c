"""The page on which people say something about a table or view: owner, description, tags, protection."""

from __future__ import annotations

from typing import Final

from lakepact.catalog.errors import CommitFailed
from lakepact.catalog.governance import parse
from lakepact.catalog.pointers import Pointer, shown
from lakepact.server.auth.sessions import Sessions
from lakepact.server.http import Request, Response
from lakepact.server.ui import governance_parts as parts
from lakepact.server.ui.account_page import form_fields
from lakepact.server.ui.layout import GUARDS, Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import card
from lakepact.server.ui.table_page import GOVERN, TablePages
from lakepact.server.ui.window import Window

_MOST_BYTES: Final = 1 << 20
"""Of a form. A description may be long, and what is not ASCII takes three times its bytes in a form."""


class GovernancePages:
    def __init__(self, links: Links, tables: TablePages, sessions: Sessions) -> None:
        self._links = links
        self._tables = tables
        self._sessions = sessions

    async def form(self, request: Request) -> Page:
        window, pointer = await self._tables.asked(request)
        window.need_to_govern(pointer)
        said, revision = await window.governance(pointer)
        back = self._links.table(window.warehouse, pointer.identifier)
        body = parts.form(said, revision, self._place(window, pointer), await self._sessions.csrf(request), back)
        return await self._tables.page(window, pointer, GOVERN, card("What people say", body), said)

    async def submit(self, request: Request) -> Response:
        window, pointer = await self._tables.asked(request)
        window.need_to_govern(pointer)
        said, revision = await window.governance(pointer)
        fields = form_fields(request, _MOST_BYTES)
        if fields.get(parts.SEEN_FIELD) != str(revision):
            raise CommitFailed(
                f"somebody else has said something about {shown(pointer.identifier)} since this form was made. Nothing "
                f"was changed; go back, load the page again, and write it once more"
            )
        given = parse(parts.changes(fields, said))
        if given:
            await window.govern(pointer, given)
        place = self._links.table(window.warehouse, pointer.identifier)
        return Response(303, b"", ((b"Location", place.encode()), *GUARDS))

    def _place(self, window: Window, pointer: Pointer) -> str:
        return self._links.table(window.warehouse, pointer.identifier, GOVERN)
