"""What a table looks like, as parts of a page: schema, partitioning, order, branches. Pure, from Iceberg's or Delta's
documents, which somebody else may have written: whatever does not fit is shown as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lakepact.server.ui import text
from lakepact.server.ui.html import Child, Markup, name, tag
from lakepact.server.ui.parts import CALM, badge, grid, mono

_DEEPEST: Final = 12
_MOST_COLUMNS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Column:
    depth: int
    name: str
    type: str
    required: bool
    id: int | None = None
    doc: str = ""


def iceberg_columns(schema: Mapping[str, Any]) -> list[Column]:
    return [column for column, _ in zip(_iceberg(schema.get("fields"), 0), range(_MOST_COLUMNS), strict=False)]


def delta_columns(schema_string: str) -> list[Column]:
    try:
        schema = orjson.loads(schema_string)
    except orjson.JSONDecodeError:
        return []
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [column for column, _ in zip(_delta(fields, 0), range(_MOST_COLUMNS), strict=False)]


def schema(columns: Sequence[Column], marks: Mapping[str, str]) -> Markup:
    """`marks`: a word beside a column of the top level, such as "partition"."""
    rows = (
        (
            tag(
                "span",
                mono(name(one.name)),
                badge(marks[one.name], CALM) if one.depth == 0 and one.name in marks else None,
                class_=f"depth-{min(one.depth, 6)}",
            ),
            mono(name(one.type)),
            "required" if one.required else tag("span", "optional", class_="muted"),
            name(one.doc) if one.doc else tag("span", "–", class_="muted"),
        )
        for one in columns
    )
    return grid(("Column", "Type", "Presence", "Comment"), rows, label="Schema")


def current(documents: Any, id_field: str, id: Any) -> Mapping[str, Any]:
    """The schema, spec or order that counts now."""
    found = (one for one in documents or () if isinstance(one, dict) and one.get(id_field) == id)
    return next(found, {})


def partitioning(metadata: Mapping[str, Any], columns: Mapping[Any, str]) -> list[tuple[str, str, str]]:
    """Name, transform and column of every field of the default spec."""
    spec = current(metadata.get("partition-specs"), "spec-id", metadata.get("default-spec-id"))
    return [
        (str(one.get("name")), str(one.get("transform")), _column(columns, one)) for one in spec.get("fields") or ()
    ]


def sort_order(metadata: Mapping[str, Any], columns: Mapping[Any, str]) -> list[tuple[str, str, str]]:
    """Column, transform, and direction with where nulls go."""
    order = current(metadata.get("sort-orders"), "order-id", metadata.get("default-sort-order-id"))
    return [
        (_column(columns, one), str(one.get("transform")), f"{one.get('direction')}, {one.get('null-order')}")
        for one in order.get("fields") or ()
    ]


def refs(metadata: Mapping[str, Any]) -> Markup:
    """Branches and tags."""
    found: Mapping[str, Any] = metadata.get("refs") or {}
    snapshots = {one.get("snapshot-id"): one for one in metadata.get("snapshots") or ()}

    def row(ref: str, one: Mapping[str, Any]) -> Sequence[Child]:
        snapshot = snapshots.get(one.get("snapshot-id")) or {}
        kept = one.get("max-ref-age-ms")
        return (
            mono(name(ref)),
            str(one.get("type")),
            mono(str(one.get("snapshot-id"))),
            text.instant(snapshot.get("timestamp-ms")),
            "for ever" if kept is None else text.duration((text.number_of(kept) or 0) / 1000),
        )

    rows = (row(ref, one) for ref, one in sorted(found.items(), key=lambda pair: (pair[0] != "main", pair[0])))
    return grid(("Name", "Kind", "Snapshot", "Made", "Kept"), rows, label="Branches and tags")


def names_by_id(schema_document: Mapping[str, Any]) -> dict[Any, str]:
    """Full names of columns by their ids."""
    found: dict[Any, str] = {}
    path: list[str] = []
    for column in _iceberg(schema_document.get("fields"), 0):
        path = [*path[: column.depth], column.name]
        found[column.id] = ".".join(path)
    return found


def _column(columns: Mapping[Any, str], field: Mapping[str, Any]) -> str:
    ids = field.get("source-ids") or [field.get("source-id")]
    return ", ".join(columns.get(one, f"column {one}") for one in ids)


def _iceberg(fields: Any, depth: int) -> Iterator[Column]:
    if depth > _DEEPEST:
        return
    for field in fields or ():
        if not isinstance(field, dict):
            continue
        kind = field.get("type")
        yield Column(
            depth,
            str(field.get("name")),
            _type(kind),
            field.get("required") is True,
            field.get("id"),
            str(field.get("doc") or ""),
        )
        yield from _iceberg(_inside(kind), depth + 1)


def _inside(kind: Any) -> list[Mapping[str, Any]]:
    """The columns below a nested type."""
    if not isinstance(kind, dict):
        return []
    match kind.get("type"):
        case "struct":
            return list(kind.get("fields") or ())
        case "list":
            return [
                {
                    "id": kind.get("element-id"),
                    "name": "element",
                    "type": kind.get("element"),
                    "required": kind.get("element-required"),
                }
            ]
        case "map":
            return [
                {"id": kind.get("key-id"), "name": "key", "type": kind.get("key"), "required": True},
                {
                    "id": kind.get("value-id"),
                    "name": "value",
                    "type": kind.get("value"),
                    "required": kind.get("value-required"),
                },
            ]
        case _:
            return []


def _type(kind: Any) -> str:
    return str(kind.get("type")) if isinstance(kind, dict) else str(kind)


def _delta(fields: Any, depth: int) -> Iterator[Column]:
    if depth > _DEEPEST:
        return
    for field in fields or ():
        if not isinstance(field, dict):
            continue
        kind = field.get("type")
        doc = (field.get("metadata") or {}).get("comment") or ""
        yield Column(depth, str(field.get("name")), _type(kind), field.get("nullable") is False, None, str(doc))
        yield from _delta(_inside_delta(kind), depth + 1)


def _inside_delta(kind: Any) -> list[Mapping[str, Any]]:
    if not isinstance(kind, dict):
        return []
    match kind.get("type"):
        case "struct":
            return list(kind.get("fields") or ())
        case "array":
            return [{"name": "element", "type": kind.get("elementType"), "nullable": kind.get("containsNull")}]
        case "map":
            return [
                {"name": "key", "type": kind.get("keyType"), "nullable": False},
                {"name": "value", "type": kind.get("valueType"), "nullable": kind.get("valueContainsNull")},
            ]
        case _:
            return []
