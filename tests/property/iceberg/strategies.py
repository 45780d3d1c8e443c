"""Requests that are well formed, whether or not they fit the table they are sent to."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from lakepact.iceberg.fields import JsonObject
from tests.unit.iceberg.tables import BORN_MS, UUID, field, order, schema, spec, spec_field

names = st.sampled_from(["a", "b", "c", "ts_day", "other"])
snapshot_ids = st.integers(1, 8)
small = st.integers(0, 4)
ids = st.integers(-1, 4)
unknown = st.dictionaries(
    st.sampled_from(["x-one", "x-two"]), st.none() | small | st.lists(st.text(max_size=3), max_size=2), max_size=2
)
types = st.sampled_from(["int", "long", "string", "timestamptz", "date", "decimal(9, 2)", "variant"])


@st.composite
def schemas(draw: st.DrawFn) -> JsonObject:
    count = draw(st.integers(1, 4))
    used = draw(st.lists(names, min_size=count, max_size=count, unique=True))
    numbers = draw(st.lists(st.integers(1, 6), min_size=count, max_size=count, unique=True))
    columns = [field(number, name, draw(types)) for number, name in zip(numbers, used, strict=True)]
    return schema(*columns, **draw(unknown))


@st.composite
def specs(draw: st.DrawFn) -> JsonObject:
    transforms = st.sampled_from(["identity", "day", "bucket[4]", "void"])
    with_ids = draw(st.booleans())
    fields = [
        spec_field(draw(st.integers(1, 6)), draw(transforms), f"p{number}", 1000 + number if with_ids else None)
        for number in range(draw(st.integers(0, 2)))
    ]
    return spec(*fields)


@st.composite
def orders(draw: st.DrawFn) -> JsonObject:
    return order(*draw(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["identity", "day"])), max_size=2)))


@st.composite
def snapshots(draw: st.DrawFn) -> JsonObject:
    snapshot_id = draw(snapshot_ids)
    made: JsonObject = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": BORN_MS + draw(st.integers(0, 120_000)),
        "manifest-list": f"snap-{snapshot_id}",
        "summary": {"operation": "append"},
        **draw(unknown),
    }
    if draw(st.booleans()):
        made["sequence-number"] = draw(st.integers(0, 12))
    if draw(st.booleans()):
        made |= {"first-row-id": draw(st.integers(0, 60)), "added-rows": draw(st.integers(0, 10))}
    if draw(st.booleans()):
        made["parent-snapshot-id"] = draw(snapshot_ids)
    return made


def _action(action: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[JsonObject]:
    named = {name.replace("_", "-"): strategy for name, strategy in fields.items()}
    return st.fixed_dictionaries({"action": st.just(action), **named})


refs = _action(
    "set-snapshot-ref",
    ref_name=st.sampled_from(["main", "main", "audit", "v1"]),
    type=st.sampled_from(["branch", "branch", "tag"]),
    snapshot_id=snapshot_ids,
)
statistics = st.builds(
    lambda snapshot_id, path: {
        "snapshot-id": snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": 1,
        "file-footer-size-in-bytes": 1,
        "blob-metadata": [],
    },
    snapshot_ids,
    st.sampled_from(["p", "q"]),
)
partition_statistics = st.builds(
    lambda snapshot_id, path: {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 1},
    snapshot_ids,
    st.sampled_from(["p", "q"]),
)
properties = st.dictionaries(
    st.sampled_from(["owner", "comment", "write.metadata.previous-versions-max"]),
    st.sampled_from(["1", "3", "7"]),
    max_size=2,
)

table_updates: st.SearchStrategy[JsonObject] = st.one_of(
    _action("add-snapshot", snapshot=snapshots()),
    refs,
    refs,
    _action("remove-snapshots", snapshot_ids=st.lists(snapshot_ids, max_size=3)),
    _action("remove-snapshot-ref", ref_name=st.sampled_from(["main", "audit", "v1"])),
    _action("add-schema", schema=schemas()),
    _action("set-current-schema", schema_id=ids),
    _action("remove-schemas", schema_ids=st.lists(small, max_size=2)),
    _action("add-spec", spec=specs()),
    _action("set-default-spec", spec_id=ids),
    _action("remove-partition-specs", spec_ids=st.lists(small, max_size=2)),
    _action("add-sort-order", sort_order=orders()),
    _action("set-default-sort-order", sort_order_id=ids),
    _action("set-properties", updates=properties),
    _action("remove-properties", removals=st.lists(st.sampled_from(["owner", "comment"]), max_size=2)),
    _action("set-location", location=st.sampled_from(["s3://a/b", "s3://a/b/", "s3://c"])),
    _action("set-statistics", statistics=statistics),
    _action("remove-statistics", snapshot_id=snapshot_ids),
    _action("set-partition-statistics", partition_statistics=partition_statistics),
    _action("remove-partition-statistics", snapshot_id=snapshot_ids),
    _action("upgrade-format-version", format_version=st.integers(1, 4)),
    _action("assign-uuid", uuid=st.just(UUID)),
    _action(
        "add-encryption-key",
        encryption_key=st.builds(
            lambda key, by: {"key-id": key, "encrypted-key-metadata": "AAAA", "encrypted-by-id": by},
            st.sampled_from(["k1", "k2"]),
            st.none() | st.just("root"),
        ),
    ),
    _action("remove-encryption-key", key_id=st.sampled_from(["k1", "k2"])),
)

versions = st.builds(
    lambda number, schema_id, sql, dialects: {
        "version-id": number,
        "timestamp-ms": BORN_MS + number,
        "schema-id": schema_id,
        "summary": {},
        "representations": [{"type": "sql", "sql": sql, "dialect": dialect} for dialect in dialects],
        "default-namespace": ["db"],
    },
    st.integers(1, 20),
    ids,
    st.sampled_from(["1", "2", "3", "4", "5"]),
    st.lists(st.sampled_from(["spark", "trino"]), min_size=1, max_size=2),
)
view_updates: st.SearchStrategy[JsonObject] = st.one_of(
    _action("add-view-version", view_version=versions),
    _action("add-view-version", view_version=versions),
    _action("set-current-view-version", view_version_id=st.integers(-1, 8)),
    _action("add-schema", schema=schemas()),
    _action(
        "set-properties",
        updates=st.dictionaries(
            st.sampled_from(["version.history.num-entries", "replace.drop-dialect.allowed"]),
            st.sampled_from(["1", "2", "true"]),
        ),
    ),
    _action("remove-properties", removals=st.just(["replace.drop-dialect.allowed"])),
    _action("set-location", location=st.sampled_from(["s3://a", "s3://b"])),
    _action("assign-uuid", uuid=st.just(UUID)),
    _action("upgrade-format-version", format_version=st.integers(1, 2)),
)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
