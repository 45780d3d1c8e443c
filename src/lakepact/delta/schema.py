"""The schema of a Delta table: `schemaString` to values and back, what a table may have, and how it may change.

A schemaString is Spark's `StructType` as JSON, so a DataFrame's `schema.json()` is one. A schema can only grow, by
columns that may be null: files written before have nothing for them, and nothing is what null says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias, assert_never

import orjson

from lakepact.delta.errors import BadSchema
from lakepact.limits import LAYOUT_FIELDS

MAX_DEPTH: Final = 50
PRIMITIVES: Final = frozenset(
    [
        "string",
        "long",
        "integer",
        "short",
        "byte",
        "float",
        "double",
        "boolean",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
)
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),\s*(-?\d{1,2})\)")
_NAMED_IN_ERRORS: Final = 20
_BAD_IN_NAMES: Final = " ,;{}()\n\t="
"""Parquet readers and Spark refuse them in names of columns (without column mapping, which is not carried)."""


@dataclass(frozen=True, slots=True)
class Primitive:
    """`long`, `string`, `decimal(10,2)`…: by its name in a schemaString."""

    name: str

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale, if it is a decimal."""
        found = _DECIMAL.fullmatch(self.name)
        return None if found is None else (int(found[1]), int(found[2]))


@dataclass(frozen=True, slots=True)
class Array:
    element: DataType
    contains_null: bool = True


@dataclass(frozen=True, slots=True)
class Map:
    key: DataType
    value: DataType
    value_contains_null: bool = True


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: DataType
    nullable: bool = True
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Struct:
    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.fields)

    def find(self, name: str) -> Field | None:
        """A field by its name, whatever its case: Delta keeps the case and compares without it."""
        wanted = name.lower()
        return next((one for one in self.fields if one.name.lower() == wanted), None)

    def by_name(self) -> dict[str, Field]:
        """The fields by their names in lower case: for those who look for many of them."""
        # Of two whose names differ in case only, `find` takes the first.
        return {one.name.lower(): one for one in reversed(self.fields)}


DataType: TypeAlias = Primitive | Array | Map | Struct


# --- JSON ---


@lru_cache(maxsize=8)
def parse(schema_string: str) -> Struct:
    """A schemaString, of any writer. Checks of one commit ask for the same few again and again."""
    try:
        document = orjson.loads(schema_string)
    except orjson.JSONDecodeError as error:
        raise BadSchema(f"schemaString is not JSON: {error}") from error
    found = _parse_type(document, "schema", 0)
    if not isinstance(found, Struct):
        raise BadSchema("schemaString: expected a struct at the top")
    return found


def dump(schema: Struct) -> str:
    """The schemaString, as Spark spells it: the same schema is the same text."""
    return orjson.dumps(_json(schema)).decode()


def _parse_type(document: object, where: str, depth: int) -> DataType:
    if depth > MAX_DEPTH:
        raise BadSchema(f"{where}: nested more than {MAX_DEPTH} levels deep")
    if isinstance(document, str):
        return _parse_primitive(document, where)
    if not isinstance(document, dict):
        raise BadSchema(f"{where}: expected the name of a type or an object, found {type(document).__name__}")
    match document.get("type"):
        case "struct":
            listed = document.get("fields")
            if not isinstance(listed, list):
                raise BadSchema(f"{where}: 'fields' of a struct must be an array")
            return Struct(tuple(_parse_field(one, where, depth) for one in listed))
        case "array":
            element = _parse_type(document.get("elementType"), f"{where}.element", depth + 1)
            return Array(element, _flag(document, "containsNull", where))
        case "map":
            key = _parse_type(document.get("keyType"), f"{where}.key", depth + 1)
            value = _parse_type(document.get("valueType"), f"{where}.value", depth + 1)
            return Map(key, value, _flag(document, "valueContainsNull", where))
        case other:
            raise BadSchema(f"{where}: a Delta table cannot have the type {str(other)[:80]!r}")


def _parse_primitive(name: str, where: str) -> Primitive:
    if name in PRIMITIVES:
        return Primitive(name)
    found = _DECIMAL.fullmatch(name)
    if found is not None:
        precision, scale = int(found[1]), int(found[2])
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise BadSchema(f"{where}: {name!r}: the precision is 1 to 38, the scale 0 to the precision")
        return Primitive(f"decimal({precision},{scale})")
    raise BadSchema(
        f"{where}: the type {name[:80]!r} cannot be carried; known are {', '.join(sorted(PRIMITIVES))}, decimal(p,s), "
        f"struct, array and map"
    )


def _parse_field(document: object, where: str, depth: int) -> Field:
    if not isinstance(document, dict) or not isinstance(document.get("name"), str):
        raise BadSchema(f"{where}: a field must be an object with a 'name'")
    name = document["name"]
    here = f"{where}.{name}" if where != "schema" else f"column {name!r}"
    metadata = document.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadSchema(f"{here}: 'metadata' must be an object")
    if "type" not in document:
        raise BadSchema(f"{here}: 'type' is missing")
    return Field(name, _parse_type(document["type"], here, depth + 1), _flag(document, "nullable", here), metadata)


def _flag(document: Mapping[str, Any], name: str, where: str) -> bool:
    value = document.get(name, True)
    if not isinstance(value, bool):
        raise BadSchema(f"{where}: {name!r} must be true or false")
    return value


def _json(type_: DataType) -> Any:
    match type_:
        case Primitive():
            return type_.name
        case Array():
            return {"type": "array", "elementType": _json(type_.element), "containsNull": type_.contains_null}
        case Map():
            return {
                "type": "map",
                "keyType": _json(type_.key),
                "valueType": _json(type_.value),
                "valueContainsNull": type_.value_contains_null,
            }
        case Struct():
            return {"type": "struct", "fields": [_field_json(one) for one in type_.fields]}
    assert_never(type_)


def _field_json(one: Field) -> dict[str, Any]:
    metadata = {name: one.metadata[name] for name in sorted(one.metadata)}
    return {"name": one.name, "type": _json(one.type), "nullable": one.nullable, "metadata": metadata}


# --- what a table may have ---


def check_new(schema: Struct, partition_columns: Sequence[str] = ()) -> None:
    """Whether a table of ours may begin with this."""
    if not schema.fields:
        raise BadSchema("a table needs at least one column")
    for where, struct in _structs(schema, "schema"):
        _check_names(struct, where)
    check_partition_columns(schema, partition_columns)


def check_partition_columns(schema: Struct, columns: Sequence[str]) -> None:
    LAYOUT_FIELDS.check(len(columns), "partition columns")
    seen: set[str] = set()
    known = {one.name: one for one in reversed(schema.fields)}
    for name in columns:
        column = known.get(name)
        if column is None:
            raise BadSchema(f"partition column {name[:80]!r} is not a column; there are {_listed(schema.names)}")
        if not isinstance(column.type, Primitive) or column.type.name == "binary":
            kind = column.type.name if isinstance(column.type, Primitive) else type(column.type).__name__.lower()
            raise BadSchema(f"partition column {name!r} is of type {kind}; its values cannot be spelled in a path")
        if name in seen:
            raise BadSchema(f"partition column {name!r} is named twice")
        seen.add(name)
    if seen and len(seen) == len(schema.fields):
        raise BadSchema("every column is a partition column; at least one must be in the files")


def _listed(names: Sequence[str]) -> str:
    """The first of these names, for an error."""
    more = f" and {len(names) - _NAMED_IN_ERRORS:,} more" if len(names) > _NAMED_IN_ERRORS else ""
    return ", ".join(name[:80] for name in names[:_NAMED_IN_ERRORS]) + more


def uses_timestamp_ntz(schema: Struct) -> bool:
    return any(type_ == Primitive("timestamp_ntz") for _, type_ in _types(schema, "schema"))


def column_metadata(schema: Struct) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The metadata of every field at every depth, with its place."""
    for where, struct in _structs(schema, "schema"):
        for one in struct.fields:
            yield f"{where}.{one.name}", one.metadata


def _check_names(struct: Struct, where: str) -> None:
    seen: dict[str, str] = {}
    for one in struct.fields:
        if not one.name:
            raise BadSchema(f"{where}: a column needs a name")
        bad = next((character for character in one.name if character in _BAD_IN_NAMES), None)
        if bad:
            raise BadSchema(f"{where}: the name {one.name!r} has {bad!r}, which Parquet readers refuse")
        other = seen.setdefault(one.name.lower(), one.name)
        if other is not one.name:
            raise BadSchema(f"{where}: {other!r} and {one.name!r} differ in case at most; engines take them for one")


def _types(type_: DataType, where: str) -> Iterator[tuple[str, DataType]]:
    yield where, type_
    match type_:
        case Struct():
            for one in type_.fields:
                yield from _types(one.type, f"{where}.{one.name}")
        case Array():
            yield from _types(type_.element, f"{where}.element")
        case Map():
            yield from _types(type_.key, f"{where}.key")
            yield from _types(type_.value, f"{where}.value")
        case Primitive():
            pass


def _structs(schema: Struct, where: str) -> Iterator[tuple[str, Struct]]:
    return ((place, type_) for place, type_ in _types(schema, where) if isinstance(type_, Struct))


# --- how it may change ---


def evolve(current: Struct, wanted: Struct) -> Struct:
    """`current` with the columns that only `wanted` has, at the end, in its order.

    What both have must be of one type. `wanted` may lack columns: what is written then has nulls there.
    """
    return _merge(current, wanted, "column")


def check_evolution(old: Struct, new: Struct, partition_columns: Sequence[str] = ()) -> None:
    """Whether a table may change from one schema to the other: every old column stays as it is, new ones may be
    null."""
    for where, struct in _structs(new, "schema"):
        _check_names(struct, where)
    _check_grown(old, new, "column")
    check_partition_columns(new, partition_columns)


def check_rows_fit(table: Struct, written: Struct) -> None:
    """Whether files of this schema can be files of the table: nothing it does not know, nothing it must have
    missing."""
    columns, files = table.by_name(), written.by_name()
    for one in written.fields:
        known = columns.get(one.name.lower())
        if known is None:
            raise BadSchema(f"column {one.name!r} is not in the table; add it first, by evolving the schema")
        if known.name != one.name:
            raise BadSchema(f"column {one.name!r} is spelled {known.name!r} in the table")
        _same_shape(known.type, one.type, f"column {one.name!r}")
        if one.nullable and not known.nullable:
            raise BadSchema(f"column {one.name!r} may be null in what is written and must not be in the table")
    missing = [one.name for one in table.fields if not one.nullable and one.name.lower() not in files]
    if missing:
        raise BadSchema(f"column {missing[0]!r} must not be null in the table, and is not in what is written")


def _merge(current: Struct, wanted: Struct, where: str) -> Struct:
    merged: list[Field] = []
    named, known = wanted.by_name(), current.by_name()
    for old in current.fields:
        new = named.get(old.name.lower())
        if new is None:
            merged.append(old)
        elif isinstance(old.type, Struct) and isinstance(new.type, Struct):
            merged.append(replace(old, type=_merge(old.type, new.type, f"{where} {old.name!r}:")))
        else:
            _same_shape(old.type, new.type, f"{where} {old.name!r}")
            merged.append(old)
    # A column is added for files that have it and files that have not.
    added = [replace(one, nullable=True) for one in wanted.fields if one.name.lower() not in known]
    grown = Struct((*merged, *added))
    _check_names(grown, where)
    return grown


def _same_shape(old: DataType, new: DataType, where: str) -> None:
    """Equal but for what may be null: a column that never is can stand for one that may be."""
    match old, new:
        case Primitive(), Primitive():
            if old.name != new.name:
                raise BadSchema(
                    f"{where} is {old.name} and cannot become {new.name}: files with {old.name} are in the table. "
                    f"Cast what is written, or add a column with another name"
                )
        case Array(), Array():
            _same_shape(old.element, new.element, f"{where}: element")
        case Map(), Map():
            _same_shape(old.key, new.key, f"{where}: key")
            _same_shape(old.value, new.value, f"{where}: value")
        case Struct(), Struct():
            columns = old.by_name()
            for one in new.fields:
                known = columns.get(one.name.lower())
                if known is None:
                    raise BadSchema(
                        f"{where}: {one.name!r} is new; only columns of the table and of its structs can be"
                    )
                _same_shape(known.type, one.type, f"{where}: {one.name!r}")
        case _:
            raise BadSchema(f"{where} is of kind {_kind(old)} and cannot become {_kind(new)}")


def _check_grown(old: Struct, new: Struct, where: str) -> None:
    named, known = {one.name: one for one in reversed(new.fields)}, old.by_name()
    for before in old.fields:
        after = named.get(before.name)
        if after is None:
            raise BadSchema(f"{where} {before.name!r} is gone; columns can be added, not dropped or renamed")
        # To tighten it, every file would have to be read. To loosen it is sound.
        if before.nullable and not after.nullable:
            raise BadSchema(f"{where} {before.name!r} may be null in files that are there; it cannot be NOT NULL")
        if isinstance(before.type, Struct) and isinstance(after.type, Struct):
            _check_grown(before.type, after.type, f"{where} {before.name!r}:")
        elif before.type != after.type:
            _same_shape(before.type, after.type, f"{where} {before.name!r}")
            raise BadSchema(f"{where} {before.name!r} changes what may be null inside of it, which cannot change")
    for one in new.fields:
        if one.name.lower() not in known and not one.nullable:
            raise BadSchema(f"{where} {one.name!r} is new and NOT NULL; files that are there have nothing for it")


def _kind(type_: DataType) -> str:
    return type_.name if isinstance(type_, Primitive) else type(type_).__name__.lower()
