"""Mirrors: how far each engine has followed each Delta table. For those who may read all of the warehouse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakepact.delta.ports import MirrorRow, MirrorState
from lakepact.server.http import Request
from lakepact.server.ui import text
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import BAD, CALM, GOOD, WARN, badge, card, empty, figures, grid, heading
from lakepact.server.ui.versions import table_link
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows

_MIRRORS: Final = {
    MirrorState.ACTIVE: GOOD,
    MirrorState.RETRYING: WARN,
    MirrorState.CONFLICT: BAD,
    MirrorState.DEAD: BAD,
    MirrorState.OFF: CALM,
}
_MOST_MIRRORS: Final = 500


class MirrorPages:
    def __init__(self, windows: Windows, links: Links) -> None:
        self._windows = windows
        self._links = links

    async def mirrors(self, request: Request) -> Page:
        warehouse = request.params["warehouse"]
        window = await self._windows.window(warehouse, request.principal)
        found = await window.mirrors()
        behind = sum(
            one.current_version > one.mirrored_version and one.state is not MirrorState.OFF for _, one in found
        )
        ill = sum(one.state in (MirrorState.CONFLICT, MirrorState.DEAD) for _, one in found)
        body = (
            heading("Mirrors", lead="Copies of Delta tables in an engine's own form. They follow every commit."),
            figures((("Mirrors", f"{len(found):,}"), ("Behind", f"{behind:,}"), ("Need somebody", f"{ill:,}")))
            if found
            else NOTHING,
            card("Tables", self._grid(window, found), flush=True)
            if found
            else empty("No mirrors", "Delta tables appear here, with how far each engine has followed."),
        )
        return Page("Mirrors", body, section="mirrors", warehouse=warehouse)

    def _grid(self, window: Window, found: Sequence[tuple[str, MirrorRow]]) -> Markup:
        warehouse, now_ms = window.warehouse, window.now_ms()
        # Those that need somebody first, then those that are behind.
        ordered = sorted(
            found,
            key=lambda pair: (
                pair[1].state not in (MirrorState.CONFLICT, MirrorState.DEAD),
                pair[1].mirrored_version - pair[1].current_version,
                pair[0],
            ),
        )
        rows = (
            (
                table_link(self._links, warehouse, table),
                one.engine,
                badge(one.state.value, _MIRRORS[one.state]),
                f"{one.mirrored_version:,}",
                _lag(one),
                text.instant(one.last_sync_ms, now_ms=now_ms) if one.last_sync_ms else "never",
                _trouble(one),
            )
            for table, one in ordered[:_MOST_MIRRORS]
        )
        columns = ("Table", "Engine", "State", "Has version", "Behind by", "Last sync", "Trouble")
        more = len(ordered) - _MOST_MIRRORS
        return join(
            grid(columns, rows, label="Mirrors", numbers=(3, 4, 5)),
            tag("p", f"{more:,} more are in step or less far behind.", class_="muted end") if more > 0 else None,
        )


def _lag(one: MirrorRow) -> Child:
    behind = one.current_version - one.mirrored_version
    if behind <= 0 or one.state is MirrorState.OFF:
        return "–" if one.state is MirrorState.OFF else "in step"
    return badge(text.plural(behind, "version"), WARN)


def _trouble(one: MirrorRow) -> Child:
    if one.last_error is None or one.state is MirrorState.ACTIVE:
        return tag("span", "–", class_="muted")
    return tag("span", name(one.last_error[:300]))
