"""A page of HTML taken apart, strictly: every element closed in its order, every attribute once, nothing foreign.

page = read(answer.body)
page.text, page.links, page.title, page.forms
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

_VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})
_ADDRESSES: Final = ("href", "src", "action", "srcset", "poster", "data", "xlink:href")


@dataclass(slots=True)
class Form:
    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Html:
    title: str = ""
    text: str = ""
    """All of it, as a reader sees it, spaces made one."""

    links: list[tuple[str, str]] = field(default_factory=list)
    """Addresses, and their texts."""

    forms: list[Form] = field(default_factory=list)
    headings: list[tuple[int, str]] = field(default_factory=list)
    landmarks: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    lang: str | None = None
    wrong: list[str] = field(default_factory=list)
    """What a strict reader objects to."""

    def link(self, text: str) -> str:
        """The address behind the first link with this text."""
        return next(href for href, shown in self.links if shown == text)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Html()
        self.open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        page, given = self.page, dict(attrs)
        if len(given) != len(attrs):
            page.wrong.append(f"<{tag}> has an attribute twice: {attrs}")
        if tag in ("script", "style", "iframe", "object", "embed", "base", "template"):
            page.wrong.append(f"<{tag}> is not for these pages")
        for name, value in attrs:
            if name.startswith("on") or name == "style":
                page.wrong.append(f"<{tag} {name}=…> is inline")
            if name in _ADDRESSES and re.match(r"\s*([a-z][a-z0-9+.-]*:|//)", value or "", re.IGNORECASE):
                page.wrong.append(f"<{tag} {name}={value!r}> leads elsewhere")
        if "id" in given:
            page.ids.append(given["id"] or "")
        if tag == "html":
            page.lang = given.get("lang")
        if tag in ("header", "nav", "main", "aside", "footer"):
            page.landmarks.append(tag)
        if tag == "form":
            page.forms.append(Form(given.get("action") or "", (given.get("method") or "get").lower()))
        unset = given.get("type") == "checkbox" and "checked" not in given
        if tag == "input" and page.forms and given.get("name") and not unset:
            page.forms[-1].fields[given["name"] or ""] = given.get("value") or ""
        if tag not in _VOID:
            self.open.append((tag, given, []))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1][0] != tag:
            self.page.wrong.append(f"</{tag}> closes {self.open[-1][0] if self.open else 'nothing'}")
            return
        _, given, parts = self.open.pop()
        text = re.sub(r"\s+", " ", "".join(parts)).strip()
        if tag == "a" and "href" in given:
            self.page.links.append((given["href"] or "", text))
        if tag == "textarea":
            # A browser leaves out the line end that comes first.
            self.page.forms[-1].fields[given["name"] or ""] = "".join(parts).removeprefix("\n")
        if tag in ("h1", "h2", "h3", "h4"):
            self.page.headings.append((int(tag[1]), text))
        if tag == "title" and len(self.open) == 2:
            self.page.title = text

    def handle_data(self, data: str) -> None:
        self.parts.append(data)
        for _, _, parts in self.open:
            parts.append(data)


def read(body: bytes) -> Html:
    reader = _Reader()
    text = body.decode()
    assert text.startswith("<!doctype html>"), text[:100]
    reader.feed(text.removeprefix("<!doctype html>"))
    reader.close()
    page = reader.page
    if reader.open:
        page.wrong.append(f"left open: {[tag for tag, _, _ in reader.open]}")
    page.text = re.sub(r"\s+", " ", " ".join(reader.parts)).strip()
    return page


def checked(body: bytes) -> Html:
    """The same, and everything that every page owes."""
    page = read(body)
    assert not page.wrong, page.wrong
    assert page.lang == "en"
    assert len(page.ids) == len(set(page.ids)), page.ids
    assert page.title.endswith("· Lakepact")
    assert [level for level, _ in page.headings].count(1) == 1, page.headings
    assert page.headings[0][0] == 1, page.headings
    steps = [after[0] - before[0] for before, after in zip(page.headings, page.headings[1:], strict=False)]
    assert all(step <= 1 for step in steps), page.headings
    assert page.landmarks.count("main") == 1 and page.landmarks.count("header") == 1
    return page
