"""HTML that escapes by construction: whatever is not markup already is text.

`tag` makes an element. Its children are markup (kept), text and numbers (escaped), None (left out) or iterables of
these. Attributes go by keyword, `_` standing for `-`; None and False leave one out, True writes it without a value.
There is no way to get an unescaped text into a page but `Markup`, and only this package's own words are made of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

__all__ = ["NOTHING", "Child", "Markup", "escape", "join", "lines", "name", "tag", "visible"]


class Markup(str):
    """HTML that is right as it is."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | int | float | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"

NOTHING: Final = Markup("")
_VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})
_SPECIAL: Final = re.compile("[&<>\"']")
_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_INVISIBLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters and those that turn the direction of text: in a name they are there to deceive."""


def escape(text: str) -> Markup:
    if text.__class__ is Markup:
        return text
    if _SPECIAL.search(text) is None:
        return Markup(text)
    return Markup(_SPECIAL.sub(lambda found: _ESCAPES[found[0]], text))


def tag(element: str, *children: Child, **attributes: Attribute) -> Markup:
    parts = ["<", element]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = _spelled(key)
        parts.append(f" {spelled}" if value is True else f' {spelled}="{escape(str(value))}"')
    parts.append(">")
    if element in _VOID:
        return Markup("".join(parts))
    _add(parts, children)
    parts.append(f"</{element}>")
    return Markup("".join(parts))


@lru_cache(maxsize=256)
def _spelled(attribute: str) -> str:
    return attribute.rstrip("_").replace("_", "-")


def join(*children: Child) -> Markup:
    """Children without an element around them."""
    parts: list[str] = []
    _add(parts, children)
    return Markup("".join(parts))


def name(text: str) -> Markup:
    """A name that somebody else has chosen: apart from the direction of what is around it, and nothing hidden in it."""
    return tag("bdi", visible(text))


def lines(text: str) -> Markup:
    """Somebody else's text, line by line."""
    return tag("span", [join(name(line), "\n") for line in text.splitlines()], class_="lines")


def visible(text: str) -> str:
    """The text with every character to be seen: what has no picture is written as its number."""
    return _INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _add(parts: list[str], children: Iterable[Child]) -> None:
    for child in children:
        if child.__class__ is Markup:
            parts.append(child)
        elif child is None:
            continue
        elif isinstance(child, str):
            parts.append(escape(child))
        elif isinstance(child, int | float):
            parts.append(str(child))
        else:
            _add(parts, child)
