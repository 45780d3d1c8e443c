"""One transaction, in parts of its page: what it waits for, what it moved, why it was refused, what it depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakepact.catalog.history import own_words, source_text
from lakepact.catalog.pointers import Kind
from lakepact.catalog.receipts import CommittedChange
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import State, TransactionRecord
from lakepact.server.auth.sessions import CSRF_FIELD
from lakepact.server.ui import activity, movers, text
from lakepact.server.ui.activity import Activity, Touched
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import BAD, CALM, alert, badge, card, facts, grid, mono
from lakepact.server.ui.told import limited_source
from lakepact.server.ui.transaction_links import MOST_NAMED, changed_link, touched_link, transaction_link, who
from lakepact.server.ui.window import Window

_MINUTES: Final = (("10 minutes", 600), ("1 hour", 3_600), ("6 hours", 21_600))


def notice(window: Window, looked: Activity) -> Markup:
    record = looked.record
    if record.state.final:
        return NOTHING
    expires = (
        None
        if record.expires_ms is None
        else join(" It expires ", text.instant(record.expires_ms, now_ms=window.now_ms()), ".")
    )
    first, _, rest = looked.waits_for.partition(". ")
    waiting = alert(f"It waits for {first}", f"{rest}." if rest else None, expires, look=CALM)
    if not looked.conflicts:
        return waiting
    named = ", ".join(dict.fromkeys(one.name for one in looked.conflicts[:MOST_NAMED]))
    moved = alert(
        "Its commit would be refused",
        name(named),
        " moved after this transaction had looked. Abort it, and do the work again on what is there now.",
    )
    return join(waiting, moved)


def steps(links: Links, warehouse: str, record: TransactionRecord, token: str) -> Markup:
    renew = tag(
        "form",
        tag("input", type="hidden", name=CSRF_FIELD, value=token),
        tag("label", "Let it live for", for_="seconds"),
        tag("select", (tag("option", shown, value=value) for shown, value in _MINUTES), id="seconds", name="seconds"),
        tag("button", "Renew", type="submit"),
        method="post",
        action=links.transaction(warehouse, record.id, "renew"),
        class_="step",
    )
    # The page behind it asks before anything happens.
    abort = tag(
        "form",
        tag("button", "Abort…", type="submit", class_="danger"),
        tag("span", "Nothing it has staged will become visible.", class_="muted"),
        method="get",
        action=links.transaction(warehouse, record.id, "abort"),
        class_="step",
    )
    return card("Renew or abort", renew if record.state in (State.OPEN, State.PREPARED) else NOTHING, abort)


def abort_form(links: Links, warehouse: str, looked: Activity, token: str) -> Markup:
    """The question before an abort: what is lost, whose it is, and the two answers."""
    record = looked.record
    changes = [one.name for one in looked.touched if one.written and one.what != "name"]
    named = ", ".join(changes[:MOST_NAMED]) + (
        f" and {len(changes) - MOST_NAMED} more" if len(changes) > MOST_NAMED else ""
    )
    return card(
        "Abort",
        tag("p", "All changes that it has staged are discarded. This cannot be undone."),
        facts(
            [
                ("Begun by", who(record)),
                ("Begun", text.instant(record.created_ms)),
                ("Changes", name(named) if changes else "none yet"),
            ]
        ),
        tag(
            "form",
            tag("input", type="hidden", name=CSRF_FIELD, value=token),
            tag("button", "Abort the transaction", type="submit", class_="danger"),
            tag("a", "Keep it", href=links.transaction(warehouse, record.id)),
            method="post",
            action=links.transaction(warehouse, record.id, "abort"),
            class_="step",
        ),
    )


def moved_together(links: Links, window: Window, changes: Sequence[CommittedChange]) -> Markup:
    """The tables of one commit, side by side: everybody saw all of it at once. Those out of sight are neither named nor
    counted; whether there are any is not said either."""
    items = (
        tag(
            "li",
            tag("div", changed_link(links, window.warehouse, one), badge(one.change.value), class_="moved-head"),
            facts(
                [
                    ("Revision", None if one.revision is None else f"{one.revision - 1} → {one.revision}"),
                    ("Snapshot", _snapshot(one)),
                    ("Version", _delta_version(one)),
                ]
            ),
        )
        for one in changes
    )
    count = text.plural(len(changes), "change")
    title = "Moved together" if len(changes) > 1 else "Moved"
    note = f"{count}, at one instant" if len(changes) > 1 else None
    part = None if window.whole else tag("p", "Of a commit you see the tables that you may read.", class_="muted")
    return card(title, tag("ul", items, class_="moved"), part, note=note)


def refusal_of(
    links: Links, warehouse: str, record: TransactionRecord, moved_by: Mapping[Identifier, str] | None = None
) -> Markup:
    """`moved_by`: the commits that were faster, by table."""
    refusal = activity.conflict_of(record)
    if refusal is None:
        return NOTHING
    faster = moved_by or {}
    details = [("Type", mono(name(str(refusal.get("type"))))), ("Status", str(refusal.get("code")))]
    requirements = movers.unmet(record)
    rows = (
        (
            name(_identifier_text(one.get("identifier"))),
            name(_requirement(one.get("requirement"))),
            mono(name(_value(one.get("expected")))),
            mono(name(_value(one.get("actual")))),
            *([_mover(links, warehouse, faster.get(table) if table else None)] if faster else []),
        )
        for one, table in ((one, movers.table_of(one)) for one in requirements)
    )
    columns = ("Table", "Requirement", "Expected", "Found", *(["Moved by"] if faster else []))
    unmet = grid(columns, rows, label="Requirements that did not hold") if requirements else NOTHING
    return join(
        alert("Refused: nothing of it was applied", name(str(refusal.get("message", ""))[:2_000])),
        card("What did not hold", unmet, flush=True) if requirements else NOTHING,
        card("The answer it got", facts(details)),
    )


def touches(links: Links, warehouse: str, record: TransactionRecord, looked: Activity) -> Markup:
    live = not record.state.final
    tables = {one.identifier for one in looked.touched if one.what != "name"}
    # That a table still goes by its name is no news beside the table; what a commit has moved is shown above.
    told = [one for one in looked.touched if one.what != "name" or one.identifier not in tables or one.moved]
    told = [one for one in told if live or not one.written]
    if not told:
        return NOTHING
    rows = (
        (
            touched_link(links, warehouse, one),
            one.what,
            "changes" if one.written else "read",
            f"{one.base:,}",
            *([_now(one)] if live else []),
        )
        for one in told
    )
    columns = ("What", "Kind", "It", "At revision", *(["Now"] if live else []))
    title = "Reads and changes" if live else "What it depended on"
    return card(title, grid(columns, rows, label=title, numbers=(3, 4)), flush=True)


def facts_of(
    links: Links, window: Window, record: TransactionRecord, aborted_by: str | None = None
) -> list[tuple[str, Child]]:
    answer = record.answer or {}
    source: Any = answer.get("source") or {}
    shown = {key: value for key, value in record.properties.items() if not key.startswith("lakepact")}
    owned = window.whole or window.sight.owns(record)
    if not owned:
        # Whoever began it wrote them for themselves.
        shown = {}
    said = own_words(source if owned else limited_source(source)) if isinstance(source, dict) else ""
    took = None if record.decided_ms is None else (record.decided_ms - record.created_ms) / 1000
    return [
        ("Who", who(record)),
        ("Operation", name(str(answer["operation"])) if answer.get("operation") else None),
        ("Begun", text.instant(record.created_ms)),
        ("Ended", None if record.decided_ms is None else text.instant(record.decided_ms)),
        ("Aborted by", name(aborted_by) if aborted_by else None),
        ("Took", None if took is None else text.duration(max(took, 0))),
        ("Isolation", record.isolation.value),
        ("Source", name(_source(source)) if source else None),
        ("In its words", name(said) if said else None),
        ("Run", _run_link(links, window.warehouse, record)),
        (
            "Properties",
            name(", ".join(f"{key}={value}" for key, value in sorted(shown.items()))) if shown else None,
        ),
    ]


def _mover(links: Links, warehouse: str, transaction_id: str | None) -> Child:
    return "–" if transaction_id is None else transaction_link(links, warehouse, transaction_id)


def _run_link(links: Links, warehouse: str, record: TransactionRecord) -> Child:
    if "pipeline" not in record.properties:
        return None
    shown = f"{record.properties['pipeline']}, run {record.properties.get('run-id', '')}"
    return tag("a", name(shown), href=links.run(warehouse, record.id))


def _snapshot(one: CommittedChange) -> Child:
    found = one.pointer.summary.get("current-snapshot-id") if one.pointer is not None else None
    return None if found in (None, -1) else mono(str(found))


def _delta_version(one: CommittedChange) -> Child:
    if one.kind != Kind.DELTA or one.pointer is None:
        return None
    return str(one.pointer.summary.get("version"))


def _now(one: Touched) -> Child:
    if one.actual is None:
        return "–"
    return join(f"{one.actual:,}", join(" ", badge("moved", BAD)) if one.moved else None)


def _source(source: Any) -> str:
    return source_text(source) if isinstance(source, dict) else str(source)


def _identifier_text(identifier: Any) -> str:
    if isinstance(identifier, dict):
        return ".".join((*map(str, identifier.get("namespace") or ()), str(identifier.get("name", ""))))
    return str(identifier or "–")


def _value(value: Any) -> str:
    """One side of a requirement: what it is about is said beside it."""
    if isinstance(value, dict):
        told = {key: one for key, one in value.items() if key != "ref"}
        return ", ".join(_value(one) if len(told) == 1 else f"{key}: {_value(one)}" for key, one in told.items())
    return "nothing" if value is None else str(value)


def _requirement(requirement: Any) -> str:
    if isinstance(requirement, dict):
        ref = requirement.get("ref")
        return f"{requirement.get('type')}{f' of {ref}' if ref else ''}"
    return "revision"
