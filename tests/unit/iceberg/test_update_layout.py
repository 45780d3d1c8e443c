"""Schemas, partition specs and sort orders: reuse, ids, "-1", and what may not be removed."""

from __future__ import annotations

import pytest

from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from tests.unit.iceberg.tables import (
    BY_BUCKET,
    BY_DAY,
    ID,
    NAME,
    SCHEMA,
    TS,
    WIDER,
    after,
    create,
    field,
    fold,
    order,
    schema,
    spec,
    spec_field,
)


def add_schema(made: JsonObject) -> JsonObject:
    return {"action": "add-schema", "schema": made}


def set_schema(schema_id: int = -1) -> JsonObject:
    return {"action": "set-current-schema", "schema-id": schema_id}


def add_spec(made: JsonObject) -> JsonObject:
    return {"action": "add-spec", "spec": made}


def set_spec(spec_id: int = -1) -> JsonObject:
    return {"action": "set-default-spec", "spec-id": spec_id}


def add_order(made: JsonObject) -> JsonObject:
    return {"action": "add-sort-order", "sort-order": made}


def set_order(order_id: int = -1) -> JsonObject:
    return {"action": "set-default-sort-order", "sort-order-id": order_id}


# --- schemas ---


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_a_new_schema_gets_the_next_id_whatever_the_client_wrote(format_version: int) -> None:
    made = after(create(format_version), add_schema(WIDER | {"schema-id": 77}), set_schema())
    assert [one["schema-id"] for one in made["schemas"]] == [0, 1]
    assert (made["current-schema-id"], made["last-column-id"]) == (1, 4)
    if format_version == 1:
        assert made["schema"] == made["schemas"][1]


def test_an_equal_schema_is_reused() -> None:
    base = after(create(), add_schema(WIDER), set_schema())
    again = after(base, add_schema(SCHEMA | {"schema-id": 9}), set_schema(0))
    assert len(again["schemas"]) == 2
    assert again["current-schema-id"] == 0
    assert again["last-column-id"] == 4
    assert not fold(base, add_schema(WIDER)).changed


def test_equality_is_of_columns_and_identifier_and_not_of_spelling() -> None:
    base = create(schema=schema(ID, field(2, "d", "decimal(10, 2)")))
    assert not fold(base, add_schema(schema(ID, field(2, "d", "DECIMAL(10,2)", doc=None)))).changed
    assert not fold(
        base, add_schema(schema(ID, field(2, "d", "decimal(10, 2)"), **{"identifier-field-ids": []}))
    ).changed
    for other in (
        schema(ID, field(2, "d", "decimal(10, 2)", doc="money")),
        schema(ID, field(2, "d", "decimal(10, 2)", required=True)),
        schema(ID, field(2, "d", "decimal(10, 2)"), **{"identifier-field-ids": [1]}),
        schema(field(2, "d", "decimal(10, 2)"), ID),
        schema(ID, field(2, "d", "decimal(10, 2)", collation="de")),
    ):
        assert len(after(base, add_schema(other))["schemas"]) == 2


def test_the_highest_column_id_never_shrinks() -> None:
    base = after(create(), add_schema(WIDER), set_schema())
    made = after(base, add_schema(schema(ID, TS)), set_schema())
    assert made["last-column-id"] == 4


def test_minus_one_is_the_schema_this_request_added_last() -> None:
    other = schema(ID, TS)
    made = after(create(), add_schema(WIDER), add_schema(other), add_schema(WIDER), set_schema())
    assert made["current-schema-id"] == 1
    with pytest.raises(InvalidUpdate, match="Cannot set last added schema: no schema has been added"):
        fold(create(), set_schema())
    with pytest.raises(InvalidUpdate, match="no schema has been added"):
        fold(made, add_schema(other), set_schema())


def test_unknown_schemas_cannot_be_current_and_the_current_one_cannot_go() -> None:
    with pytest.raises(InvalidUpdate, match="there is no schema 5"):
        fold(create(), set_schema(5))
    base = after(create(), add_schema(WIDER), set_schema())
    with pytest.raises(InvalidUpdate, match="Cannot remove the current schema"):
        fold(base, {"action": "remove-schemas", "schema-ids": [0, 1]})
    made = after(base, {"action": "remove-schemas", "schema-ids": [0, 33]})
    assert [one["schema-id"] for one in made["schemas"]] == [1]
    assert not fold(base, {"action": "remove-schemas", "schema-ids": [33]}).changed
    assert not fold(base, {"action": "remove-schemas", "schema-ids": []}).changed


def test_types_of_a_later_format_are_refused_with_the_words_clients_compare() -> None:
    newer = schema(ID, field(2, "v", "variant"), field(3, "s", schema(field(4, "n", "timestamp_ns"))))
    with pytest.raises(InvalidUpdate) as refused:
        fold(create(2), add_schema(newer))
    assert str(refused.value) == (
        "Invalid schema for v2:\n"
        "- Invalid type for v: variant is not supported until v3\n"
        "- Invalid type for s.n: timestamp_ns is not supported until v3"
    )
    assert after(create(3), add_schema(newer))["last-column-id"] == 4


def test_initial_defaults_need_format_3() -> None:
    with_default = schema(ID, field(2, "n", "int", **{"initial-default": 7, "write-default": 7}))
    with pytest.raises(InvalidUpdate, match=r"Invalid initial default for n: non-null default \(7\) is not supported"):
        fold(create(2), add_schema(with_default))
    made = after(create(3), add_schema(with_default))
    assert made["schemas"][1]["fields"][1]["initial-default"] == 7


def test_a_column_must_not_take_the_name_of_a_partition_field() -> None:
    base = create(**{"partition-spec": BY_DAY})
    with pytest.raises(InvalidUpdate, match="partition field 'ts_day' is made from column 2, but column 4"):
        fold(base, add_schema(schema(ID, TS, NAME, field(4, "ts_day"))), set_schema())


def test_a_column_of_the_default_spec_or_order_cannot_be_dropped() -> None:
    with pytest.raises(InvalidUpdate, match="partition field 'ts_day': there is no column 2"):
        fold(create(**{"partition-spec": BY_DAY}), add_schema(schema(ID)), set_schema())
    with pytest.raises(InvalidUpdate, match="sort order: there is no column 2"):
        fold(create(**{"write-order": order((2, "identity"))}), add_schema(schema(ID)), set_schema())
    made = after(
        create(**{"partition-spec": BY_DAY}), add_schema(schema(ID)), set_schema(), add_spec(spec()), set_spec()
    )
    assert made["default-spec-id"] == 1


# --- partition specs ---


@pytest.mark.parametrize("action", ["add-spec", "add-partition-spec", "ADD-SPEC"])
def test_a_new_spec_gets_the_next_id(action: str) -> None:
    sent = {"action": action, "spec": spec(spec_field(1, "BUCKET[16]", "b", 1001)) | {"spec-id": 40}}
    made = after(create(**{"partition-spec": BY_DAY}), sent, set_spec())
    assert [one["spec-id"] for one in made["partition-specs"]] == [0, 1]
    assert made["partition-specs"][1]["fields"][0]["transform"] == "bucket[16]"
    assert (made["default-spec-id"], made["last-partition-id"]) == (1, 1001)


def test_a_spec_that_partitions_alike_is_reused_whatever_its_field_ids() -> None:
    base = create(**{"partition-spec": BY_DAY})
    assert not fold(base, add_spec(spec(spec_field(2, "Day", "ts_day", 1234)))).changed
    assert len(after(base, add_spec(spec(spec_field(2, "day", "other", 1000))))["partition-specs"]) == 2


def test_minus_one_is_the_spec_this_request_added_last() -> None:
    base = create(**{"partition-spec": BY_DAY})
    with pytest.raises(InvalidUpdate, match="Cannot set last added spec: no spec has been added"):
        fold(base, add_spec(BY_DAY), set_spec())
    made = after(base, add_spec(spec(spec_field(1, "bucket[16]", "b", 1001))), add_spec(BY_DAY), set_spec())
    assert made["default-spec-id"] == 0


@pytest.mark.parametrize("format_version", [1, 2])
def test_the_first_fields_without_ids_are_1000_and_on(format_version: int) -> None:
    made = after(create(format_version), add_spec(spec(spec_field(1, "bucket[16]", "b"), spec_field(2, "day", "d"))))
    assert [one["field-id"] for one in made["partition-specs"][1]["fields"]] == [1000, 1001]


def test_later_fields_without_ids_keep_the_id_of_the_same_field_or_get_a_new_one() -> None:
    base = create(**{"partition-spec": BY_DAY})
    made = after(base, add_spec(spec(spec_field(1, "bucket[16]", "b"), spec_field(2, "day", "renamed"))))
    assert [one["field-id"] for one in made["partition-specs"][1]["fields"]] == [1001, 1000]
    assert made["last-partition-id"] == 1001


def test_format_1_wants_sequential_ids() -> None:
    with pytest.raises(InvalidUpdate, match="in format 1 partition field ids go up by one from 1000"):
        fold(create(1), add_spec(spec(spec_field(1, "bucket[16]", "b", 1001))))
    assert after(create(2), add_spec(spec(spec_field(1, "bucket[16]", "b", 1001))))["last-partition-id"] == 1001


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (spec(spec_field(9, "identity", "x")), "there is no column 9"),
        (spec(spec_field(3, "hour", "x")), "which hour does not take"),
        (spec(spec_field(1, "identity", "name")), "column 3 has its name"),
        (spec(spec_field(4, "identity", "x")), "is not of a primitive type"),
        (spec(spec_field(5, "identity", "x")), "lies in a list or a map"),
    ],
)
def test_a_spec_must_fit_the_current_schema(made: JsonObject, message: str) -> None:
    numbers = {"type": "list", "element-id": 5, "element-required": False, "element": "long"}
    base = create(schema=schema(ID, TS, NAME, field(4, "numbers", numbers)))
    with pytest.raises(InvalidUpdate, match=message):
        fold(base, add_spec(made))


def test_void_fields_may_stand_for_columns_that_are_gone() -> None:
    made = after(create(1), add_spec(spec(spec_field(44, "void", "old", 1000))), set_spec())
    assert made["partition-spec"][0]["transform"] == "void"


def test_unknown_transforms_are_kept() -> None:
    made = after(create(), add_spec(spec(spec_field(1, "zorder[3]", "z", 1000))))
    assert made["partition-specs"][1]["fields"][0]["transform"] == "zorder[3]"


def test_unknown_specs_cannot_be_default_and_the_default_one_cannot_go() -> None:
    with pytest.raises(InvalidUpdate, match="there is no partition spec 5"):
        fold(create(), set_spec(5))
    base = after(create(), add_spec(BY_BUCKET), set_spec())
    with pytest.raises(InvalidUpdate, match="Cannot remove the default partition spec"):
        fold(base, {"action": "remove-partition-specs", "spec-ids": [1]})
    made = after(base, {"action": "remove-partition-specs", "spec-ids": [0]})
    assert [one["spec-id"] for one in made["partition-specs"]] == [1]
    assert made["last-partition-id"] == 1000
    assert not fold(made, set_spec(1)).changed


# --- sort orders ---


def test_a_new_order_gets_the_next_id_from_1() -> None:
    made = after(create(), add_order(order((1, "identity")) | {"order-id": 9}), set_order())
    assert [one["order-id"] for one in made["sort-orders"]] == [0, 1]
    assert made["default-sort-order-id"] == 1
    made = after(made, add_order(order((3, "truncate[2]"))), set_order())
    assert made["default-sort-order-id"] == 2


def test_unsorted_is_0_and_an_equal_order_is_reused() -> None:
    base = after(create(), add_order(order((1, "identity"))), set_order())
    assert not fold(base, add_order(order((1, "IDENTITY")))).changed
    back = after(base, add_order(order()), set_order(0))
    assert back["default-sort-order-id"] == 0
    assert len(back["sort-orders"]) == 2
    with pytest.raises(InvalidUpdate, match="Cannot set last added sort order: no sort order has been added"):
        fold(base, add_order(order()), set_order())
    made = after(base, add_order(order((2, "day"))), add_order(order()), set_order())
    assert made["default-sort-order-id"] == 0


def test_an_order_must_fit_the_current_schema() -> None:
    with pytest.raises(InvalidUpdate, match="there is no column 9"):
        fold(create(), add_order(order((9, "identity"))))
    with pytest.raises(InvalidUpdate, match="which day does not take"):
        fold(create(), add_order(order((1, "day"))))
    with pytest.raises(InvalidUpdate, match="there is no sort order 4"):
        fold(create(), set_order(4))
