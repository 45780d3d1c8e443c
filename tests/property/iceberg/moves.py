"""Requests that a client of this very table could send: appends, rollbacks, evolution, expiry, replacement."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.metadata import current_schema, current_snapshot_id
from tests.property.iceberg.strategies import table_updates, unknown
from tests.unit.iceberg.tables import add_snapshot, field, order, set_ref, spec, spec_field

BRANCHES = ["main", "main", "main", "audit", "v1"]


def requests_for(table: JsonObject, now_ms: int) -> st.SearchStrategy[list[JsonObject]]:
    """One request: a few moves that fit, and sometimes something that may not."""
    moves: list[Callable[[JsonObject, int], st.SearchStrategy[list[JsonObject]]]] = [
        append,
        append,
        append,
        point,
        forget,
        evolve,
        repartition,
        resort,
    ]
    fitting = st.one_of(*(move(table, now_ms) for move in moves))
    anything = st.lists(table_updates, min_size=1, max_size=2)
    several = st.lists(fitting, min_size=1, max_size=2).map(lambda lists: [update for one in lists for update in one])
    return st.one_of(fitting, fitting, several, st.builds(lambda a, b: a + b, fitting, anything), anything)


@st.composite
def append(draw: st.DrawFn, table: JsonObject, now_ms: int) -> list[JsonObject]:
    """New snapshots on top of a branch, or without a parent, as when a table is replaced."""
    sent: list[JsonObject] = []
    parent = current_snapshot_id(table) if draw(st.integers(0, 5)) else None
    sequence, row = table.get("last-sequence-number", 0), table.get("next-row-id", 0)
    if parent is None:
        sent.append({"action": "remove-snapshot-ref", "ref-name": "main"})
    for _ in range(draw(st.integers(1, 3))):
        snapshot_id = draw(st.integers(1, 10**6))
        made: JsonObject = {
            "snapshot-id": snapshot_id,
            "timestamp-ms": now_ms - draw(st.integers(0, 500)),
            "manifest-list": f"snap-{snapshot_id}",
            "summary": {"operation": "append"},
            **draw(unknown),
        }
        if parent is not None:
            made["parent-snapshot-id"] = parent
        if table["format-version"] >= 2:
            sequence += 1
            made["sequence-number"] = sequence
        if table["format-version"] >= 3:
            made |= {"first-row-id": row, "added-rows": draw(st.integers(0, 9))}
            row += made["added-rows"]
        sent.append(add_snapshot(made))
        if draw(st.integers(0, 3)):
            sent.append(set_ref(snapshot_id, draw(st.sampled_from(BRANCHES))))
            parent = snapshot_id
    return sent


@st.composite
def point(draw: st.DrawFn, table: JsonObject, _now_ms: int) -> list[JsonObject]:
    """A branch or tag on a snapshot that is there; `main` too: a rollback."""
    there = [one["snapshot-id"] for one in table["snapshots"]] or [1]
    name = draw(st.sampled_from([*BRANCHES, "new"]))
    kind = draw(st.sampled_from(["branch", "tag"])) if name != "main" else "branch"
    more = {"max-ref-age-ms": draw(st.integers(1, 3))} if draw(st.booleans()) else {}
    return [set_ref(draw(st.sampled_from(there)), name, kind, **more)]


@st.composite
def forget(draw: st.DrawFn, table: JsonObject, _now_ms: int) -> list[JsonObject]:
    there = [one["snapshot-id"] for one in table["snapshots"]]
    gone = draw(st.lists(st.sampled_from(there), max_size=4)) if there else []
    return [{"action": "remove-snapshots", "snapshot-ids": gone}]


@st.composite
def evolve(draw: st.DrawFn, table: JsonObject, _now_ms: int) -> list[JsonObject]:
    """A column more or less, or a schema from before."""
    known = [one["schema-id"] for one in table["schemas"]]
    if draw(st.integers(0, 3)) == 0:
        return [{"action": "set-current-schema", "schema-id": draw(st.sampled_from(known))}]
    schema = current_schema(table)
    columns = list(schema["fields"])
    if draw(st.booleans()) or len(columns) < 2:
        number = table["last-column-id"] + 1
        columns.append(field(number, f"c{number}", draw(st.sampled_from(["int", "string", "timestamptz"]))))
    else:
        columns.pop(draw(st.integers(0, len(columns) - 1)))
    sent: list[JsonObject] = [{"action": "add-schema", "schema": {**schema, "fields": columns}}]
    if draw(st.booleans()):
        sent.append({"action": "set-current-schema", "schema-id": -1})
    return sent


@st.composite
def repartition(draw: st.DrawFn, table: JsonObject, _now_ms: int) -> list[JsonObject]:
    columns = [column["id"] for column in current_schema(table)["fields"]]
    chosen = draw(st.lists(st.sampled_from(columns), max_size=2, unique=True)) if columns else []
    width = draw(st.sampled_from(["bucket[2]", "bucket[4]"]))
    fields = [spec_field(column, width, f"p{column}_{width[7]}") for column in chosen]
    sent: list[JsonObject] = [{"action": "add-spec", "spec": spec(*fields)}]
    if draw(st.booleans()):
        sent.append({"action": "set-default-spec", "spec-id": -1})
    elif draw(st.booleans()):
        known = [one["spec-id"] for one in table["partition-specs"]]
        sent.append({"action": "remove-partition-specs", "spec-ids": [draw(st.sampled_from(known))]})
    return sent


@st.composite
def resort(draw: st.DrawFn, table: JsonObject, _now_ms: int) -> list[JsonObject]:
    columns = [column["id"] for column in current_schema(table)["fields"]]
    chosen = draw(st.lists(st.sampled_from(columns), max_size=2)) if columns else []
    made = order(*((column, "identity") for column in chosen))
    return [
        {"action": "add-sort-order", "sort-order": made},
        {"action": "set-default-sort-order", "sort-order-id": -1 if chosen else 0},
    ]
