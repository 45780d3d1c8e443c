"""What pages are put together from: titles, cards, facts, tables, badges, pagers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag

GOOD, BAD, WARN, CALM, ACCENT = "good", "bad", "warn", "calm", "accent"

_ICONS: Final = {
    "namespace": "M2.5 4.5a1 1 0 0 1 1-1h3l1.5 1.7h4.5a1 1 0 0 1 1 1v5.3a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1z",
    "table": "M2.5 4a1 1 0 0 1 1-1h9a1 1 0 0 1 1 1v8a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1zM2.5 6.5h11M6.2 6.5V13",
    "view": "M1.5 8s2.4-4 6.5-4 6.5 4 6.5 4-2.4 4-6.5 4-6.5-4-6.5-4zM8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6z",
    "delta": "M8 3 14 13H2z",
}
KINDS: Final = {"table": "Iceberg table", "view": "view", "delta": "Delta table", "namespace": "namespace"}


@lru_cache(maxsize=16)
def icon(kind: str) -> Markup:
    return tag(
        "svg",
        tag("path", d=_ICONS.get(kind, _ICONS["table"])),
        viewBox="0 0 16 16",
        width="16",
        height="16",
        aria_hidden="true",
        class_=f"icon {kind}",
    )


def badge(text: Child, look: str = CALM) -> Markup:
    return tag("span", text, class_=f"badge {look}")


def mono(text: Child) -> Markup:
    return tag("code", text)


def heading(title: Child, *beside: Child, lead: Child = None) -> Markup:
    """The title of a page, with what is worth knowing at a glance."""
    return tag(
        "div",
        tag("div", tag("h1", title), tag("div", beside, class_="beside") if beside else None, class_="title"),
        tag("p", lead, class_="lead") if lead is not None else None,
        class_="heading",
    )


def card(title: str, *body: Child, note: Child = None, flush: bool = False, id: str | None = None) -> Markup:
    """A part of a page. `flush`: its body has its own edges, as a table has."""
    return tag(
        "section",
        tag("div", tag("h2", title), tag("div", note, class_="note") if note is not None else None, class_="card-head"),
        tag("div", body, class_="card-body flush" if flush else "card-body"),
        class_="card",
        id=id,
    )


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Names and values. Those without a value are left out."""
    return tag(
        "dl",
        (tag("div", tag("dt", key), tag("dd", value)) for key, value in pairs if value is not None and value != ""),
        class_="facts",
    )


def figures(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """A few large figures in a row."""
    return tag("dl", (tag("div", tag("dt", key), tag("dd", value)) for key, value in pairs), class_="figures")


def grid(columns: Sequence[str], rows: Iterable[Sequence[Child]], *, label: str, numbers: Iterable[int] = ()) -> Markup:
    """A table. `numbers`: the columns that are aligned to the right. Where there is no room for columns, every row
    becomes a list of its cells, each under its own label; for that a cell repeats what is in the head."""
    right = set(numbers)
    looks = ["number" if at in right else None for at in range(len(columns))]
    head = tag("tr", (tag("th", text, scope="col", class_=look) for text, look in zip(columns, looks, strict=True)))
    body = (
        tag(
            "tr",
            (
                tag("td", cell, class_=look, data_label=text or None)
                for cell, text, look in zip(row, columns, looks, strict=True)
            ),
        )
        for row in rows
    )
    table = tag("table", tag("thead", head), tag("tbody", body))
    return tag("div", table, class_="scroll", tabindex="0", role="group", aria_label=label)


def properties(values: Mapping[str, object], *, label: str) -> Markup:
    rows = ((mono(name(key)), mono(name(str(value)))) for key, value in sorted(values.items()))
    return grid(("Property", "Value"), rows, label=label)


def pager(*, first: str | None, following: str | None, what: str = "Pages", note: Child = None) -> Markup:
    """Ways to other pages of a long list: `first` if this is not the first, `following` if it is not the last."""
    if first is None and following is None:
        return NOTHING
    return tag(
        "nav",
        tag("a", "← First page", href=first) if first is not None else None,
        tag("span", note, class_="muted") if note is not None else None,
        tag("a", "Next page →", href=following, rel="next") if following is not None else None,
        class_="pager",
        aria_label=what,
    )


def tabs(entries: Iterable[tuple[str, str, bool]], *, label: str) -> Markup:
    """Texts, which are words of ours and plain, addresses, and which one is shown."""
    return _tabs(tuple(entries), label)


@lru_cache(maxsize=1_000)
def _tabs(entries: tuple[tuple[str, str, bool], ...], label: str) -> Markup:
    return tag(
        "nav",
        tag(
            "ul",
            (tag("li", tag("a", text, href=href, aria_current="page" if on else None)) for text, href, on in entries),
        ),
        class_="tabs",
        aria_label=label,
    )


def empty(title: str, *text: Child) -> Markup:
    return tag("div", tag("p", title, class_="empty-title"), tag("p", text) if text else None, class_="empty")


def alert(title: str, *text: Child, look: str = BAD) -> Markup:
    return tag("div", tag("p", title, class_="alert-title"), tag("p", text), class_=f"alert {look}", role="note")


def joined(parts: Sequence[Child], between: str = ", ") -> Markup:
    """The parts with a text between each two."""
    found: list[Child] = []
    for number, part in enumerate(parts):
        found += [between, part] if number else [part]
    return join(found)
