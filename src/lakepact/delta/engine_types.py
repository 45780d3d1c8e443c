"""A Delta schema in the words of Arrow and of DuckDB.

Spark needs no words of its own: a schemaString is its `StructType.json()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, assert_never

from lakepact.delta.errors import BadSchema
from lakepact.delta.schema import Array, DataType, Field, Map, Primitive, Struct

if TYPE_CHECKING:
    import pyarrow as pa

_DUCKDB: Final[Mapping[str, str]] = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}


def duckdb_type(type_: DataType) -> str:
    """The type as DuckDB writes it in a cast or a definition."""
    match type_:
        case Primitive():
            decimal = type_.decimal
            return _DUCKDB[type_.name] if decimal is None else f"DECIMAL({decimal[0]},{decimal[1]})"
        case Array():
            return f"{duckdb_type(type_.element)}[]"
        case Map():
            return f"MAP({duckdb_type(type_.key)}, {duckdb_type(type_.value)})"
        case Struct():
            inside = ", ".join(f"{duckdb_name(one.name)} {duckdb_type(one.type)}" for one in type_.fields)
            return f"STRUCT({inside})"
    assert_never(type_)


def duckdb_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def to_arrow(schema: Struct) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([_arrow_field(one) for one in schema.fields])


def from_arrow(schema: pa.Schema) -> Struct:
    """The Delta schema of Arrow data. What Delta has no type for is refused: nothing is rounded or cut on the way."""
    return Struct(tuple(_from_arrow_field(one, f"column {one.name!r}") for one in schema))


def _arrow_field(one: Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(one.name, arrow_type(one.type), one.nullable)


def arrow_type(type_: DataType) -> pa.DataType:
    import pyarrow as pa

    match type_:
        case Primitive():
            decimal = type_.decimal
            if decimal is not None:
                return pa.decimal128(*decimal)
            plain: Mapping[str, Callable[[], Any]] = {
                "string": pa.string,
                "long": pa.int64,
                "integer": pa.int32,
                "short": pa.int16,
                "byte": pa.int8,
                "float": pa.float32,
                "double": pa.float64,
                "boolean": pa.bool_,
                "binary": pa.binary,
                "date": pa.date32,
                "timestamp": lambda: pa.timestamp("us", "UTC"),
                "timestamp_ntz": lambda: pa.timestamp("us"),
            }
            return plain[type_.name]()
        case Array():
            return pa.list_(pa.field("element", arrow_type(type_.element), type_.contains_null))
        case Map():
            return pa.map_(arrow_type(type_.key), pa.field("value", arrow_type(type_.value), type_.value_contains_null))
        case Struct():
            return pa.struct([_arrow_field(one) for one in type_.fields])
    assert_never(type_)


def _from_arrow_field(one: pa.Field, where: str) -> Field:
    return Field(one.name, _from_arrow_type(one.type, where), one.nullable)


def _from_arrow_type(type_: pa.DataType, where: str) -> DataType:
    import pyarrow.types as is_

    simple: tuple[tuple[Callable[[Any], bool], str], ...] = (
        (is_.is_string, "string"),
        (is_.is_large_string, "string"),
        (is_.is_int64, "long"),
        (is_.is_int32, "integer"),
        (is_.is_int16, "short"),
        (is_.is_int8, "byte"),
        (is_.is_float32, "float"),
        (is_.is_float64, "double"),
        (is_.is_boolean, "boolean"),
        (is_.is_binary, "binary"),
        (is_.is_large_binary, "binary"),
        (is_.is_date32, "date"),
    )
    for fits, name in simple:
        if fits(type_):
            return Primitive(name)
    if is_.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= 38:
        return Primitive(f"decimal({type_.precision},{type_.scale})")
    if is_.is_timestamp(type_):
        if type_.unit == "ns":
            raise BadSchema(f"{where}: Delta keeps microseconds; cast {type_} to timestamp('us') first")
        return Primitive("timestamp_ntz" if type_.tz is None else "timestamp")
    if is_.is_list(type_) or is_.is_large_list(type_):
        value = type_.value_field
        return Array(_from_arrow_type(value.type, f"{where}: element"), value.nullable)
    if is_.is_map(type_):
        key = _from_arrow_type(type_.key_type, f"{where}: key")
        return Map(key, _from_arrow_type(type_.item_type, f"{where}: value"), type_.item_field.nullable)
    if is_.is_struct(type_):
        inside = [type_.field(number) for number in range(type_.num_fields)]
        return Struct(tuple(_from_arrow_field(one, f"{where}: {one.name!r}") for one in inside))
    raise BadSchema(f"{where}: Delta has no type for Arrow's {type_}; cast it first")
