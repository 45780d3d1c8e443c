"""What people say about a table or view: owner, description, tags; and whether it may be dropped.

It is kept in a cell of its own, by the id of the table, and never in the Iceberg metadata: no engine can change it, and
it goes with the table when that is renamed. The owner is a word for people. It grants nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakepact.catalog.errors import BadRequest, Protected
from lakepact.catalog.keys import Keys
from lakepact.catalog.pointers import Kind, Pointer, identifier_json, shown
from lakepact.catalog.work import Draft
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.model import Cell, Value

FIELDS: Final = ("owner", "description", "tags", "protected")
EMPTY: Final[JsonObject] = {"owner": None, "description": None, "tags": {}, "protected": False}

_MOST_TEXT: Final = {"owner": 300, "description": 20_000}
_MOST_TAGS: Final = 100
_MOST_TAG: Final = 500


def shown_of(cell: Cell) -> JsonObject:
    """The fields, as an answer gives them."""
    value = cell.value or {}
    return {name: value.get(name, default) for name, default in EMPTY.items()}


def parse(body: JsonObject) -> JsonObject:
    """The fields that are given. One that is null goes back to what it was at first."""
    unknown = sorted(set(body) - set(FIELDS))
    if unknown:
        raise BadRequest(f"there is no field {unknown[0][:40]!r}; governance has {', '.join(FIELDS)}")
    given: JsonObject = {}
    for name, value in body.items():
        given[name] = EMPTY[name] if value is None else _checked(name, value)
    return given


def change(draft: Draft, keys: Keys, pointer: Pointer, cell: Cell, given: Mapping[str, Any]) -> JsonObject:
    """Plan: set these fields and leave the others."""
    before = shown_of(cell)
    after = {**before, **given}
    if after != before:
        about = {"kind": pointer.kind, **identifier_json(pointer.identifier), "changed-ms": draft.now_ms}
        draft.write(keys.governance(pointer.id), {**about, **after})
    return after


def refuse_protected(pointer: Pointer, governance: Value | None) -> None:
    if governance is not None and governance.get("protected"):
        name = shown(pointer.identifier)
        what = "View" if pointer.kind is Kind.VIEW else "Table"
        raise Protected(
            f"{what} {name} is protected: it can be neither dropped nor replaced. Take the protection away first: "
            f"lakepact tables govern {name} --unprotect"
        )


def _checked(name: str, value: object) -> object:
    match name:
        case "protected":
            if not isinstance(value, bool):
                raise BadRequest("governance: 'protected' is true or false")
        case "tags":
            if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
                raise BadRequest("governance: 'tags' is an object of texts")
            if len(value) > _MOST_TAGS or any(len(one) + len(text) > _MOST_TAG for one, text in value.items()):
                raise BadRequest(f"governance: at most {_MOST_TAGS} tags, each of at most {_MOST_TAG} characters")
        case _:
            if not isinstance(value, str):
                raise BadRequest(f"governance: {name!r} is a text")
            if len(value) > _MOST_TEXT[name]:
                raise BadRequest(f"governance: {name!r} has more than {_MOST_TEXT[name]:,} characters; shorten it")
    return value
