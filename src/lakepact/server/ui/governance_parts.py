"""What people say about a table or view, as parts of pages: a card, and the form that changes it. Pure, both ways.

A form shows every character to be seen, so what comes back of a field that nobody has touched may not be what is kept.
Such a field is recognised by what the form has shown, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from lakepact.errors import InvalidRequest
from lakepact.iceberg.fields import JsonObject
from lakepact.server.auth.sessions import CSRF_FIELD
from lakepact.server.ui.html import Child, Markup, join, name, tag, visible
from lakepact.server.ui.parts import WARN, badge, card, facts

SEEN_FIELD: Final = "seen"
"""How often it had changed when the form was made."""

Said = Mapping[str, Any]


def anything(said: Said) -> bool:
    return any(said.values())


def about(said: Said, change_at: str | None) -> Markup:
    """`change_at`: where it is changed, for those who may."""
    if not anything(said):
        return _nothing(change_at)
    tags = said.get("tags") or {}
    known: list[tuple[str, Child]] = [
        ("Description", _prose(said["description"]) if said.get("description") else None),
        ("Owner", name(said["owner"]) if said.get("owner") else None),
        ("Tags", [join(badge(name(_tag(*pair))), " ") for pair in sorted(tags.items())] if tags else None),
        ("Protected", "It can be neither dropped nor replaced." if said.get("protected") else None),
    ]
    return _card(facts(known), change_at)


@lru_cache(maxsize=1_000)
def _nothing(change_at: str | None) -> Markup:
    return _card(tag("p", "Nobody has said anything about it yet.", class_="muted"), change_at)


def _card(body: Markup, change_at: str | None) -> Markup:
    return card("What people say", body, note=tag("a", "Change", href=change_at) if change_at is not None else None)


def protection(said: Said) -> Child:
    return badge("protected", WARN) if said.get("protected") else None


def form(said: Said, revision: int, action: str, token: str, back: str) -> Markup:
    return tag(
        "form",
        tag("input", type="hidden", name=CSRF_FIELD, value=token),
        tag("input", type="hidden", name=SEEN_FIELD, value=revision),
        tag("label", "Owner", for_="owner"),
        tag("input", type="text", id="owner", name="owner", value=shown_in_form(said)["owner"], autocomplete="off"),
        tag("label", "Description", for_="description"),
        tag("textarea", "\n", shown_in_form(said)["description"], id="description", name="description", rows=5),
        tag("label", "Tags, one on each line, as name=value", for_="tags"),
        tag("textarea", "\n", shown_in_form(said)["tags"], id="tags", name="tags", rows=4, spellcheck="false"),
        tag(
            "label",
            tag("input", type="checkbox", name="protected", value="yes", checked=bool(said.get("protected"))),
            " Protected: nobody can drop or replace it",
            class_="check",
        ),
        tag(
            "div",
            tag("button", "Save", type="submit", class_="main"),
            tag("a", "Back, and change nothing", href=back),
            class_="step",
        ),
        method="post",
        action=action,
        class_="fields",
    )


def shown_in_form(said: Said) -> dict[str, str]:
    """The texts of the form's fields."""
    tags = said.get("tags") or {}
    return {
        "owner": visible(said.get("owner") or ""),
        "description": _by_line(said.get("description") or ""),
        "tags": "\n".join(visible(_tag(*pair)) for pair in sorted(tags.items())),
    }


def changes(fields: Mapping[str, str], said: Said) -> JsonObject:
    """What somebody has changed in the form, as governance takes it."""
    given: JsonObject = {}
    shown = shown_in_form(said)
    sent = {one: fields.get(one, "").replace("\r\n", "\n").strip() for one in shown}
    for one in ("owner", "description"):
        if sent[one] != shown[one].strip():
            given[one] = sent[one] or None
    if sent["tags"] != shown["tags"].strip():
        given["tags"] = _tags(sent["tags"])
    protected = fields.get("protected") == "yes"
    if protected != bool(said.get("protected")):
        given["protected"] = protected
    return given


def _prose(text: str) -> Markup:
    return tag("span", [join(name(line), "\n") for line in text.splitlines()], class_="prose")


def _tags(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.split("\n"))):
        key, _, value = (part.strip() for part in line.partition("="))
        if not key:
            raise InvalidRequest(f"the tag {line[:100]!r} has no name; write name=value, one on each line")
        if key in found:
            raise InvalidRequest(f"the tag {key[:100]!r} is there twice; a table has each of its tags once")
        found[key] = value
    return found


def _tag(key: str, value: str) -> str:
    return f"{key}={value}" if value else key


def _by_line(text: str) -> str:
    return "\n".join(visible(line) for line in text.splitlines())
