"""The columns of a schema, nested ones too, by id and by name.

A nested column's name is its path joined by dots: `points.element.x`. Where it collides with nothing, the path may
leave out the `element` of a list of structs and the `value` of a map of structs: `points.x`. Java resolves names this
way, and the names of partition fields must not collide with any of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import JsonObject


@dataclass(frozen=True, slots=True)
class Column:
    id: int
    name: str
    """The whole path."""

    type: str | JsonObject
    required: bool
    parent: int | None
    """The column it lies in; None at the top."""

    short_name: str
    field: JsonObject | None
    """The struct field; None for the element of a list and the key or value of a map, which have no object."""

    @property
    def is_struct(self) -> bool:
        return isinstance(self.type, dict) and self.type["type"] == "struct"


@dataclass(frozen=True, slots=True)
class Columns:
    by_id: dict[int, Column]
    id_by_name: dict[str, int]

    def named(self, name: str) -> Column | None:
        found = self.id_by_name.get(name)
        return None if found is None else self.by_id[found]

    def ancestors(self, column: Column) -> Iterator[Column]:
        """From the inside out."""
        parent = column.parent
        while parent is not None:
            above = self.by_id[parent]
            yield above
            parent = above.parent

    @property
    def highest_id(self) -> int:
        return max(self.by_id, default=0)


def columns_of(schema: JsonObject) -> Columns:
    """Index a checked schema. Two columns with one id or one name are refused."""
    by_id: dict[int, Column] = {}
    id_by_name: dict[str, int] = {}
    short: dict[str, int] = {}
    for column in _walk_struct(schema, "", "", None):
        other = id_by_name.setdefault(column.name, column.id)
        if other != column.id:
            raise Malformed(f"schema: there are two columns named {column.name!r}, with ids {other} and {column.id}")
        if column.id in by_id:
            raise Malformed(
                f"schema: id {column.id} is used twice, by {by_id[column.id].name!r} and {column.name!r}; "
                f"every column needs an id of its own"
            )
        by_id[column.id] = column
        short.setdefault(column.short_name, column.id)
    for name, column_id in short.items():
        id_by_name.setdefault(name, column_id)
    return Columns(by_id, id_by_name)


def _walk_struct(struct: JsonObject, path: str, short_path: str, parent: int | None) -> Iterator[Column]:
    for field in struct["fields"]:
        name, short_name = path + field["name"], short_path + field["name"]
        yield Column(field["id"], name, field["type"], field["required"], parent, short_name, field)
        yield from _walk_type(field["type"], name, short_name, field["id"])


def _walk_type(type_: str | JsonObject, path: str, short_path: str, parent: int) -> Iterator[Column]:
    if isinstance(type_, str):
        return
    match type_["type"]:
        case "struct":
            yield from _walk_struct(type_, f"{path}.", f"{short_path}.", parent)
        case "list":
            yield from _walk_part(type_, "element", type_["element-required"], path, short_path, parent)
        case "map":
            yield from _walk_part(type_, "key", True, path, short_path, parent)
            yield from _walk_part(type_, "value", type_["value-required"], path, short_path, parent)


def _walk_part(
    type_: JsonObject, part: str, required: bool, path: str, short_path: str, parent: int
) -> Iterator[Column]:
    column = Column(type_[f"{part}-id"], f"{path}.{part}", type_[part], required, parent, f"{short_path}.{part}", None)
    yield column
    # Only the fields of a struct inside a list or the value of a map have the shorter name.
    below = short_path if column.is_struct and part != "key" else column.short_name
    yield from _walk_type(column.type, column.name, below, column.id)
