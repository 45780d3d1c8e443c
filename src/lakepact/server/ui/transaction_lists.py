"""Transactions in lists: what is under way and what each waits for, and what has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lakepact.kernel.model import State
from lakepact.server.ui import activity, text
from lakepact.server.ui.activity import Activity, Ended
from lakepact.server.ui.html import Child, Markup, join, name, tag
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import BAD, WARN, badge, card, empty, grid, joined
from lakepact.server.ui.transaction_links import (
    MOST_NAMED,
    changed_link,
    state_badge,
    touched_link,
    transaction_link,
    who,
)
from lakepact.server.ui.window import Window

_WHO: Final = ("Who",)
"""A column for servers that ask for a name."""

_OF_RIGHTS: Final = ("addGrant", "removeGrant")
"""Who got what is in the audit trail: a right is between those who manage and whoever holds it."""


def under_way_card(links: Links, window: Window, found: Sequence[Activity], more: bool) -> Markup:
    if not found:
        return card("Under way", tag("p", "Nothing is under way.", class_="muted"))
    warehouse, now_ms = window.warehouse, window.now_ms()
    named = any(who(one.record) for one in found)
    rows = (
        (
            transaction_link(links, warehouse, one.record.id),
            state_badge(one.record.state),
            *([who(one.record) or "–"] if named else []),
            text.instant(one.record.created_ms, now_ms=now_ms),
            _tables(links, warehouse, one),
            _waits(links, warehouse, one, now_ms),
        )
        for one in found
    )
    return card(
        "Under way",
        grid(
            ("Transaction", "State", *_WHO[:named], "Begun", "Tables", "Waits for"),
            rows,
            label="Transactions under way",
        ),
        tag("p", f"Only the first {len(found)} are shown.", class_="muted end") if more else None,
        note=text.plural(len(found), "transaction"),
        flush=True,
    )


def _waits(links: Links, warehouse: str, one: Activity, now_ms: int) -> Child:
    conflicts = one.conflicts
    parts: list[Child] = [one.waits_for]
    if one.record.expires_ms is not None:
        parts.append(join(". Expires ", text.instant(one.record.expires_ms, now_ms=now_ms)))
    if one.held_by:
        holders = joined([transaction_link(links, warehouse, holder) for holder in one.held_by])
        parts.append(tag("div", badge("held", WARN), " by ", holders))
    if conflicts:
        named = ", ".join(dict.fromkeys(touched.name for touched in conflicts[:MOST_NAMED]))
        parts.append(tag("div", badge("will conflict", BAD), " ", name(named), " has moved since"))
    return tag("div", parts, class_="waits")


def _tables(links: Links, warehouse: str, one: Activity) -> Child:
    written = [touched for touched in one.touched if touched.written and touched.identifier and touched.what != "name"]
    if not written:
        return tag("span", "none yet", class_="muted")
    shown = joined([touched_link(links, warehouse, touched) for touched in written[:MOST_NAMED]])
    more = f" and {len(written) - MOST_NAMED} more" if len(written) > MOST_NAMED else None
    return join(shown, more)


def ended_list(links: Links, window: Window, found: Sequence[Ended]) -> Markup:
    if not found:
        return empty("None here", "What has ended in the last 30 days is shown here.")
    warehouse, now_ms = window.warehouse, window.now_ms()
    named = any(who(one.record) for one in found)
    rows = (
        (
            transaction_link(links, warehouse, one.record.id),
            state_badge(one.record.state),
            *([who(one.record) or "–"] if named else []),
            tag("span", name(str((one.record.answer or {}).get("operation") or "–")), class_="word"),
            _outcome(links, warehouse, one),
            text.instant(one.record.decided_ms or one.record.created_ms, now_ms=now_ms),
        )
        for one in found
    )
    columns = ("Transaction", "State", *_WHO[:named], "Operation", "What it moved", "Ended")
    return grid(columns, rows, label="Transactions that have ended", numbers=(len(columns) - 1,))


def _outcome(links: Links, warehouse: str, one: Ended) -> Child:
    record = one.record
    refusal = activity.conflict_of(record)
    if refusal is not None:
        return tag("span", name(str(refusal.get("message", ""))[:160]), class_="muted")
    if record.state is not State.COMMITTED:
        return tag("span", "nothing", class_="muted")
    changes = one.changes
    if not changes:
        about = "rights" if (record.answer or {}).get("operation") in _OF_RIGHTS else "no table"
        return tag("span", about, class_="muted")
    shown = joined([changed_link(links, warehouse, change) for change in changes[:MOST_NAMED]])
    more = f" and {len(changes) - MOST_NAMED} more" if len(changes) > MOST_NAMED else None
    return join(shown, more)
