"""Schemas: the text of a log and back, what a table may have, and how it may grow."""

from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from lakepact.delta import engine_types
from lakepact.delta import schema as schemas
from lakepact.delta.errors import BadSchema
from lakepact.delta.schema import Array, DataType, Field, Map, Primitive, Struct

LONG, TEXT = Primitive("long"), Primitive("string")
POINT = Struct((Field("x", Primitive("double")), Field("y", Primitive("double"), nullable=False)))
EVERYTHING = Struct(
    (
        *(Field(f"c_{name}", Primitive(name)) for name in sorted(schemas.PRIMITIVES)),
        Field("dec", Primitive("decimal(10,2)")),
        Field("point", POINT, metadata={"comment": "where"}),
        Field("tags", Array(TEXT, contains_null=False)),
        Field("by_name", Map(TEXT, Array(POINT), value_contains_null=False), nullable=False),
    )
)


def struct(**types: DataType | str) -> Struct:
    return Struct(tuple(Field(name, Primitive(t) if isinstance(t, str) else t) for name, t in types.items()))


def test_a_schema_survives_the_round_trip() -> None:
    assert schemas.parse(schemas.dump(EVERYTHING)) == EVERYTHING


def test_the_text_is_spelled_as_spark_spells_it() -> None:
    text = schemas.dump(Struct((Field("id", LONG, metadata={"comment": "é"}), Field("a", Array(LONG)))))
    assert text == (
        '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{"comment":"é"}},'
        '{"name":"a","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{}}]}'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('"long"', "expected a struct at the top"),
        ('{"type":"struct"}', "'fields' of a struct"),
        ('{"type":"struct","fields":[{"type":"long"}]}', "with a 'name'"),
        ('{"type":"struct","fields":[{"name":"a"}]}', "column 'a': 'type' is missing"),
        ('{"type":"struct","fields":[{"name":"a","type":"variant"}]}', "column 'a': the type 'variant' cannot be"),
        ('{"type":"struct","fields":[{"name":"a","type":"decimal(39,2)"}]}', "the precision is 1 to 38"),
        ('{"type":"struct","fields":[{"name":"a","type":"decimal(5,-2)"}]}', "the scale 0 to the precision"),
        ('{"type":"struct","fields":[{"name":"a","type":{"type":"udt"}}]}', "the type 'udt'"),
        ('{"type":"struct","fields":[{"name":"a","type":"long","nullable":1}]}', "'nullable' must be"),
    ],
)
def test_a_schema_that_cannot_be_read_says_where(text: str, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        schemas.parse(text)


def test_a_schema_that_nests_too_deep_is_refused() -> None:
    deep: object = "long"
    for _ in range(60):
        deep = {"type": "array", "elementType": deep}
    document = {"type": "struct", "fields": [{"name": "a", "type": deep}]}
    with pytest.raises(BadSchema, match="nested more than 50"):
        schemas.parse(orjson.dumps(document).decode())


@pytest.mark.parametrize(
    ("schema", "columns", "message"),
    [
        (Struct(()), [], "at least one column"),
        (struct(**{"a b": "long"}), [], "has ' '"),
        (struct(a=struct(**{"x=": "long"})), [], "has '='"),
        (struct(a="long", A="long"), [], "'a' and 'A' differ in case"),
        (struct(a="long", b="long"), ["c"], "'c' is not a column; there are a, b"),
        (struct(a="long", b=POINT), ["b"], "'b' is of type struct"),
        (struct(a="long", b="binary"), ["b"], "'b' is of type binary"),
        (struct(a="long", b="long"), ["b", "b"], "'b' is named twice"),
        (struct(a="long"), ["a"], "every column is a partition column"),
    ],
)
def test_what_no_table_of_ours_may_begin_with(schema: Struct, columns: list[str], message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        schemas.check_new(schema, columns)


def test_columns_are_added_at_the_end_and_may_be_null() -> None:
    wanted = Struct((Field("new", TEXT, nullable=False), Field("ID", LONG)))
    grown = schemas.evolve(struct(id="long", name="string"), wanted)
    assert grown == struct(id="long", name="string", new="string")
    schemas.check_evolution(struct(id="long", name="string"), grown)


def test_structs_grow_as_tables_do() -> None:
    grown = schemas.evolve(struct(p=struct(x="long")), struct(p=struct(y="long")))
    assert grown == struct(p=struct(x="long", y="long"))
    schemas.check_evolution(struct(p=struct(x="long")), grown)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (struct(a="long"), struct(a="string"), "column 'a' is long and cannot become string"),
        (struct(a="integer"), struct(a="long"), "column 'a' is integer and cannot become long"),
        (struct(a="long"), struct(a=POINT), "is of kind long and cannot become struct"),
        (struct(a=Array(LONG)), struct(a=Array(TEXT)), "column 'a': element is long"),
        (struct(a=Map(TEXT, LONG)), struct(a=Map(LONG, LONG)), "column 'a': key is string"),
        (struct(a=Array(struct(x="long"))), struct(a=Array(struct(x="long", y="long"))), "'y' is new"),
        (struct(p=struct(x="long")), struct(p=struct(x="string")), "column 'p': 'x' is long"),
    ],
)
def test_what_is_there_cannot_become_something_else(old: Struct, new: Struct, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        schemas.evolve(old, new)
    with pytest.raises(BadSchema, match=message):
        schemas.check_evolution(old, new)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (struct(a="long"), "column 'b' is gone"),
        (struct(a="long", B="string"), "column 'b' is gone"),
        (Struct((Field("a", LONG, nullable=False), Field("b", TEXT))), "'a' may be null in files"),
        (Struct((*struct(a="long", b="string").fields, Field("c", LONG, nullable=False))), "'c' is new and NOT NULL"),
        (struct(a="long", b="string", A="long"), "differ in case"),
    ],
)
def test_unsound_changes_of_a_schema_are_refused(new: Struct, message: str) -> None:
    with pytest.raises(BadSchema, match=message):
        schemas.check_evolution(struct(a="long", b="string"), new)


def test_what_must_not_be_null_may_become_so() -> None:
    schemas.check_evolution(Struct((Field("a", LONG, nullable=False),)), struct(a="long"))


def test_files_fit_a_table_if_it_knows_their_columns() -> None:
    table = Struct((Field("a", LONG, nullable=False), Field("b", TEXT)))
    schemas.check_rows_fit(table, Struct((Field("a", LONG, nullable=False),)))
    for written, message in [
        (struct(a="long"), "'a' may be null in what is written"),
        (struct(b="string"), "'a' must not be null in the table"),
        (Struct((Field("a", LONG, nullable=False), Field("c", LONG))), "'c' is not in the table"),
        (Struct((Field("a", LONG, nullable=False), Field("B", TEXT))), "'B' is spelled 'b'"),
        (Struct((Field("a", TEXT, nullable=False),)), "'a' is long and cannot become string"),
    ]:
        with pytest.raises(BadSchema, match=message):
            schemas.check_rows_fit(table, written)


def test_arrow_and_back() -> None:
    assert engine_types.from_arrow(engine_types.to_arrow(EVERYTHING)) == Struct(
        tuple(Field(one.name, one.type, one.nullable) for one in EVERYTHING.fields)
    )


@pytest.mark.parametrize(
    ("type_", "message"),
    [(pa.uint32(), "uint32"), (pa.timestamp("ns"), "microseconds"), (pa.time64("us"), "time64"), (pa.null(), "null")],
)
def test_what_delta_has_no_type_for_is_refused(type_: pa.DataType, message: str) -> None:
    with pytest.raises(BadSchema, match=f"column 'a': .*{message}"):
        engine_types.from_arrow(pa.schema([("a", type_)]))


def test_types_in_the_words_of_duckdb() -> None:
    names = {one.name: engine_types.duckdb_type(one.type) for one in EVERYTHING.fields}
    assert names["c_timestamp"] == "TIMESTAMP WITH TIME ZONE" and names["c_timestamp_ntz"] == "TIMESTAMP"
    assert names["dec"] == "DECIMAL(10,2)"
    assert names["by_name"] == 'MAP(VARCHAR, STRUCT("x" DOUBLE, "y" DOUBLE)[])'
    assert engine_types.duckdb_name('a"b') == '"a""b"'
