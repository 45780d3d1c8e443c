"""Tables to create: columns nested in columns, under ids in any order, as requests and as updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from lakepact.iceberg.fields import JsonObject
from tests.property.iceberg.strategies import table_updates
from tests.unit.iceberg.tables import UUID, add_snapshot, numbered, order, set_ref, spec, spec_field

_COMMON = ["int", "long", "string", "timestamptz", "date", "decimal(9, 2)", "double", "uuid", "fixed[4]", "binary"]
_primitives = st.sampled_from([*_COMMON * 3, "variant", "timestamp_ns"])
_transforms = st.sampled_from(["identity", "identity", "bucket[4]", "void", "day", "truncate[3]", "from-the-future"])
_formats = st.sampled_from([1, 2, 3, 3, 3])
_DEEPEST = 3


def _type(draw: st.DrawFn, ids: Iterator[int], depth: int) -> Any:
    match draw(st.integers(0, 5)) if depth < _DEEPEST else 0:
        case 3:
            number, required = next(ids), draw(st.booleans())
            element = _type(draw, ids, depth + 1)
            return {"type": "list", "element-id": number, "element": element, "element-required": required}
        case 4:
            key_id, value_id, required = next(ids), next(ids), draw(st.booleans())
            return {
                "type": "map",
                "key-id": key_id,
                "key": _type(draw, ids, depth + 1),
                "value-id": value_id,
                "value": _type(draw, ids, depth + 1),
                "value-required": required,
            }
        case 5:
            return {"type": "struct", "fields": _fields(draw, ids, depth + 1)}
        case _:
            return draw(_primitives)


def _fields(draw: st.DrawFn, ids: Iterator[int], depth: int) -> list[JsonObject]:
    made = []
    for number in range(draw(st.integers(1, 3))):
        kind = _type(draw, ids, depth)
        column: JsonObject = {"id": next(ids), "name": f"n{number}", "required": draw(st.booleans()), "type": kind}
        if draw(st.booleans()):
            column["doc"] = "d"
        if kind in ("int", "long") and draw(st.integers(0, 12)) == 0:
            column |= {"initial-default": 5, "write-default": 5}
        made.append(column)
    return made


@st.composite
def schemas(draw: st.DrawFn) -> JsonObject:
    # Three levels of three columns, each at most a map: never more than these.
    ids = iter(draw(st.permutations(range(1, 120))))
    made: JsonObject = {"type": "struct", "schema-id": draw(st.integers(0, 3)), "fields": _fields(draw, ids, 0)}
    if draw(st.integers(0, 3)) == 0:
        able = [one["id"] for one in made["fields"] if one["required"] and one["type"] in ("int", "long", "string")]
        made["identifier-field-ids"] = able or [made["fields"][0]["id"]]
    return made


def _sources(schema: JsonObject) -> st.SearchStrategy[int]:
    """Columns that can be partitioned by, mostly."""
    plain = [one["id"] for one in schema["fields"] if isinstance(one["type"], str)]
    return st.sampled_from((plain or [one["id"] for one in schema["fields"]]) * 6 + [1])


@st.composite
def requests(draw: st.DrawFn) -> JsonObject:
    schema = draw(schemas())
    sources = _sources(schema)
    partition_names = st.sampled_from(["p", "q", "n0", "n1.n0"])
    fields = [
        spec_field(draw(sources), draw(_transforms), draw(partition_names)) for _ in range(draw(st.integers(0, 2)))
    ]
    return {
        "name": "t",
        "schema": schema,
        "partition-spec": spec(*fields),
        "write-order": order(*draw(st.lists(st.tuples(sources, _transforms), max_size=2))),
        "properties": {"format-version": str(draw(_formats)), "owner": "x", "uuid": "reserved"},
        "location": draw(st.sampled_from(["s3://a/b/", "s3://c"])),
    }


@st.composite
def updates(draw: st.DrawFn) -> list[JsonObject]:
    """A creation by commit: what a client sends, sometimes without one of it or with something more."""
    schema, version = draw(schemas()), draw(_formats)
    sources = _sources(schema)
    transforms = st.sampled_from(["bucket[2]", "identity", "void"])
    fields = [spec_field(draw(sources), draw(transforms), "p", 1000)] if draw(st.booleans()) else []
    keys = [(draw(sources), "identity")] if draw(st.booleans()) else []
    made: list[JsonObject] = [
        {"action": "assign-uuid", "uuid": UUID},
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": draw(st.sampled_from([-1, -1, 0]))},
        {"action": "add-spec", "spec": spec(*fields)},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": order(*keys)},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": "s3://x/y/"},
    ]
    if draw(st.booleans()):
        made += [add_snapshot(numbered(version, 1)), set_ref(1)]
    if draw(st.integers(0, 2)) == 0:
        made.pop(draw(st.integers(2, len(made) - 1)))
    if draw(st.integers(0, 2)) == 0:
        made.append(draw(table_updates))
    return made
