"""The audit trail: who asked for what, and what came of it. For those who manage the warehouse."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from lakepact.catalog.audit import AuditPage, Position, about, tables_in
from lakepact.catalog.trail import Outcome
from lakepact.server.http import Request
from lakepact.server.rest.audit import before_of, wanted_of
from lakepact.server.ui import text
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag, visible
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.lists import PAGE
from lakepact.server.ui.parts import BAD, CALM, GOOD, WARN, badge, card, empty, grid, heading, joined, mono, pager
from lakepact.server.ui.transaction_links import MOST_NAMED, short_id, transaction_link
from lakepact.server.ui.versions import table_link
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows

_FIELDS: Final = {"principal": "Who", "operation": "Operation", "table": "Table", "before": "Before (UTC)"}
_EXAMPLES: Final = {"operation": "dropTable", "table": "sales.orders", "before": "2026-01-31 12:00"}
_LOOKS: Final = {
    Outcome.APPLIED: GOOD,
    Outcome.STAGED: CALM,
    Outcome.DENIED: BAD,
    Outcome.REFUSED: CALM,
    Outcome.UNKNOWN: WARN,
}
_HAPPENED: Final = (Outcome.APPLIED, Outcome.STAGED, Outcome.UNKNOWN)
_MOST_WORDS: Final = 200


class AuditPages:
    def __init__(self, windows: Windows, links: Links) -> None:
        self._windows = windows
        self._links = links

    async def audit(self, request: Request) -> Page:
        window = await self._windows.window(request.params["warehouse"], request.principal)
        found = await window.audit(before_of(request), wanted_of(request), PAGE)
        asked = {one: request.query.get(one) or None for one in ("outcome", *_FIELDS)}
        body = (
            heading("Audit", lead="Who asked for what in this warehouse, and what came of it. The newest first."),
            card("Which", self._form(window, asked)),
            card("Lines", await self._lines(window, found, asked), self._pager(window, found, asked), flush=True),
        )
        return Page("Audit", body, section="audit", warehouse=window.warehouse)

    def _form(self, window: Window, asked: Mapping[str, str | None]) -> Markup:
        outcomes = (
            tag("option", one or "any", value=one, selected=one == (asked["outcome"] or ""))
            for one in ("", *(one.value for one in Outcome))
        )
        return tag(
            "form",
            (
                _labelled(
                    field,
                    shown,
                    tag(
                        "input",
                        type="text",
                        id=field,
                        name=field,
                        value=_kept(field, asked[field] or ""),
                        placeholder=_EXAMPLES.get(field),
                        maxlength=400,
                        autocomplete="off",
                        spellcheck="false",
                    ),
                )
                for field, shown in _FIELDS.items()
            ),
            _labelled("outcome", "Outcome", tag("select", outcomes, id="outcome", name="outcome")),
            tag(
                "div",
                tag("button", "Show", type="submit", class_="main"),
                tag("a", "All of them", href=self._links.audit(window.warehouse)) if any(asked.values()) else None,
                class_="step",
            ),
            method="get",
            action=self._links.audit(window.warehouse),
            class_="filters",
        )

    async def _lines(self, window: Window, found: AuditPage, asked: Mapping[str, str | None]) -> Markup:
        damaged = (
            tag("p", f"Left out, as nobody can read them: {text.plural(found.damaged, 'line')}.", class_="muted end")
            if found.damaged
            else NOTHING
        )
        if not found.lines:
            return join(_nothing(found, filtered=any(asked.values())), damaged)
        named = {one for line in found.lines for one in tables_in(line)[:MOST_NAMED]}
        there = await window.sight.visible_names(named)
        rows = (
            (
                text.instant(line["at-ms"]),
                name(line["principal"]) if line.get("principal") else "–",
                tag("span", name(line["operation"]), class_="word"),
                _outcome(line["outcome"]),
                self._about(window.warehouse, line, there),
                self._transaction(window.warehouse, line),
            )
            for line in found.lines
        )
        columns = ("At", "Who", "Operation", "Outcome", "About", "Transaction")
        return join(grid(columns, rows, label="Lines of the audit trail"), damaged)

    def _about(self, warehouse: str, line: Mapping[str, Any], there: Collection[str]) -> Child:
        tables = tables_in(line)
        shown: Child
        if tables:
            some = [
                table_link(self._links, warehouse, one) if one in there else name(one) for one in tables[:MOST_NAMED]
            ]
            shown = [joined(some), f" and {len(tables) - MOST_NAMED} more" if len(tables) > MOST_NAMED else None]
        else:
            shown = name(about(line)[:_MOST_WORDS]) if about(line) else "–"
        reason = line.get("reason")
        why = tag("div", name(str(reason)[:_MOST_WORDS]), class_="muted") if reason else None
        return tag("div", shown, why, class_="about")

    def _transaction(self, warehouse: str, line: Mapping[str, Any]) -> Child:
        transaction_id = line.get("transaction-id")
        if not transaction_id:
            return "–"
        # What was refused or denied has left no record to look at.
        if line["outcome"] in _HAPPENED:
            return transaction_link(self._links, warehouse, transaction_id)
        return mono(name(short_id(transaction_id)))

    def _pager(self, window: Window, found: AuditPage, asked: Mapping[str, str | None]) -> Markup:
        filters = {one: value for one, value in asked.items() if one != "before"}
        following = found.following
        return pager(
            first=self._links.audit(window.warehouse, **filters) if asked["before"] else None,
            following=following and self._links.audit(window.warehouse, **filters, before=following.token),
            what="Pages of the audit trail",
        )


def _labelled(field: str, shown: str, control: Markup) -> Markup:
    return tag("div", tag("label", shown, for_=field), control)


def _kept(field: str, asked: str) -> str | None:
    """What is in a field when the page is there. The place where a page begins is not for people to read."""
    return None if field == "before" and Position.is_token(asked) else visible(asked) or None


def _outcome(word: str) -> Markup:
    return badge(name(word[:40]), _LOOKS[Outcome(word)] if word in list(Outcome) else CALM)


def _nothing(found: AuditPage, *, filtered: bool) -> Markup:
    if found.following is not None:
        moment = text.instant(found.following.at_ms)
        return empty("None so far", "There is no such line back to ", moment, ". The next page looks further.")
    if filtered:
        return empty("None like that", "No line of the trail is as you ask.")
    return empty("Nothing yet", "Every change that somebody with a name asks for leaves a line here.")
