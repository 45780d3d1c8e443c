"""The overview: which warehouses there are, what has happened in the first of them, and, for those who may read all of
it, how the server is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakepact.kernel.model import State
from lakepact.server.http import Request
from lakepact.server.ui import activity, text
from lakepact.server.ui.html import Child, Markup, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import ACCENT, BAD, GOOD, alert, badge, card, figures, grid, heading, mono
from lakepact.server.ui.rates import chart, per_second
from lakepact.server.ui.samples import Samples
from lakepact.server.ui.server_page import About
from lakepact.server.ui.transaction_lists import ended_list
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows

_LATEST: Final = 8


class HomePages:
    def __init__(self, windows: Windows, links: Links, samples: Samples, about: About) -> None:
        self._windows = windows
        self._links = links
        self._samples = samples
        self._about = about

    async def home(self, request: Request) -> Page:
        reason = await self._about.unready()
        found = await self._windows.readable(request.principal)
        first = self._windows.default_of(request.principal)
        window = next((one for one in found if one.warehouse == first), found[0])
        all_of_it = any(one.whole for one in found)
        body: list[Child] = [
            heading(
                "Overview",
                badge("ready", GOOD) if reason is None else badge("not ready", BAD),
                lead="Tables that move together: one commit changes many, every reader sees all of it or none.",
            )
        ]
        if reason is not None:
            body.append(alert("This server gets no traffic now", reason))
            return Page("Overview", body, warehouse=window.warehouse)
        under_way, more = await activity.undecided_records(window)
        ended = await activity.recent(window, states=(State.COMMITTED,), limit=_LATEST)
        there = self._links.transactions(window.warehouse)
        count = tag("a", f"{len(under_way):,}{'+' if more else ''}", href=there)
        body += [
            figures(
                (
                    *(self._numbers() if all_of_it else ()),
                    ("Under way" if window.sight.manages else "Under way, of yours", count),
                )
            ),
            card("Warehouses", self._warehouses(found), flush=True),
            card(
                "Commit rate",
                chart(self._samples.rates(), "Commits a second", lambda rate: rate.commits, text.short),
                note="commits a second",
            )
            if all_of_it
            else None,
            card(
                "Latest commits",
                ended_list(self._links, window, ended.ended),
                note=tag("a", "All transactions", href=there),
                flush=True,
            ),
        ]
        return Page("Overview", body, warehouse=window.warehouse)

    def _numbers(self) -> Sequence[tuple[str, Child]]:
        now = self._samples.take()
        return (
            ("Commits, last minute", per_second(self._samples.rates())),
            ("Commits since start", f"{now.applied:,.0f}"),
            ("Conflicts since start", f"{now.conflicts:,.0f}"),
        )

    def _warehouses(self, found: Sequence[Window]) -> Markup:
        rows = (
            (
                tag("a", name(one.warehouse), href=self._links.warehouse(one.warehouse), class_="named"),
                mono(name(one.root)),
                badge("default", ACCENT) if one.warehouse == self._windows.default else "",
            )
            for one in found
        )
        return grid(("Name", "Place", ""), rows, label="Warehouses")
