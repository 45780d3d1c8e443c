"""An Iceberg table as parts of its pages: figures, growth, schema, layout, snapshots. From its metadata alone, so the
same for everybody who may read it, and for ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakepact.catalog.pointers import Pointer
from lakepact.server.ui import shapes, text
from lakepact.server.ui.charts import Point, area, nice, thinned
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.parts import ACCENT, badge, card, facts, figures, grid, mono, properties
from lakepact.server.ui.timeline import figures as grown


def shape(document: Mapping[str, Any]) -> Markup:
    """What it holds and what it looks like."""
    schema = shapes.current(document.get("schemas"), "schema-id", document.get("current-schema-id"))
    columns = shapes.names_by_id(schema)
    partition = shapes.partitioning(document, columns)
    order = shapes.sort_order(document, columns)
    marks = {column: "partition" for _, _, column in partition}
    became = grown(document)
    summary: Mapping[str, Any] = (became[-1].get("summary") or {}) if became else {}
    has = document.get("current-snapshot-id") not in (None, -1)
    return join(
        figures(
            (
                ("Rows", _figure(summary.get("total-records")) if has else "0"),
                ("Size", text.size(text.number_of(summary.get("total-files-size"))) if has else "0 B"),
                ("Data files", _figure(summary.get("total-data-files")) if has else "0"),
                ("Snapshots", f"{len(document.get('snapshots') or ()):,}"),
                ("Last change", text.instant(document.get("last-updated-ms"), seconds=False)),
            )
        ),
        _growth(became),
        card(
            "Schema",
            shapes.schema(shapes.iceberg_columns(schema), marks),
            note=f"schema {schema.get('schema-id')}",
            flush=True,
        ),
        tag(
            "div",
            card("Partitioning", _partitioning(partition), flush=bool(partition)),
            card("Sort order", _order(order), flush=bool(order)),
            class_="pair",
        ),
    )


def details(document: Mapping[str, Any], pointer: Pointer) -> Markup:
    """Branches and tags, properties, and where it is."""
    return join(
        card("Branches and tags", shapes.refs(document), flush=True) if document.get("refs") else NOTHING,
        card("Properties", properties(document["properties"], label="Properties"), flush=True)
        if document.get("properties")
        else NOTHING,
        card("Where it is", facts(places(pointer))),
    )


def places(pointer: Pointer) -> list[tuple[str, Child]]:
    return [
        ("Location", mono(name(pointer.location))),
        ("Metadata", mono(name(pointer.metadata_location))),
        ("Before that", mono(name(pointer.previous_metadata_location)) if pointer.previous_metadata_location else None),
        ("UUID", mono(name(pointer.id))),
    ]


def _growth(became: Sequence[Mapping[str, Any]]) -> Markup:
    """How it grew: in bytes if the writers say so, else in rows."""
    for field, title, shown_as, end in (
        ("total-files-size", "Size over time", text.size, text.nice_size),
        ("total-records", "Rows over time", text.short, nice),
    ):
        told = [
            (at_ms, value)
            for one in became
            if (value := text.number_of((one.get("summary") or {}).get(field))) is not None
            and isinstance(at_ms := one.get("timestamp-ms"), int)
        ]
        # Thinned first: to write down thousands of times takes longer than all the rest of the page.
        points = [Point(at, float(value), text.instant_text(at, seconds=False)) for at, value in thinned(told)]
        if len(points) > 1:
            return card(
                title, area(points, title=title, shown=shown_as, steps=True, end=end), note=f"{len(told):,} snapshots"
            )
    return NOTHING


def _partitioning(fields: Sequence[tuple[str, str, str]]) -> Child:
    if not fields:
        return tag("p", "Not partitioned.", class_="muted")
    rows = ((mono(name(field)), mono(name(transform)), mono(name(column))) for field, transform, column in fields)
    return grid(("Field", "Transform", "Of"), rows, label="Partitioning")


def _order(fields: Sequence[tuple[str, str, str]]) -> Child:
    if not fields:
        return tag("p", "Not sorted.", class_="muted")
    rows = ((mono(name(column)), mono(name(transform)), name(way)) for column, transform, way in fields)
    return grid(("Column", "Transform", "Direction"), rows, label="Sort order")


def snapshots(document: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Markup:
    refs: dict[Any, list[str]] = {}
    for ref, one in (document.get("refs") or {}).items():
        refs.setdefault(one.get("snapshot-id"), []).append(ref)

    def row(one: Mapping[str, Any]) -> Sequence[Child]:
        summary = one.get("summary") or {}
        return (
            join(
                mono(str(one.get("snapshot-id"))),
                (join(" ", badge(name(ref), ACCENT)) for ref in refs.get(one.get("snapshot-id"), ())),
            ),
            text.instant(one.get("timestamp-ms")),
            name(str(summary.get("operation", "–"))),
            _figure(summary.get("added-records")),
            _figure(summary.get("deleted-records")),
            _figure(summary.get("total-records")),
            text.size(text.number_of(summary.get("total-files-size"))),
        )

    columns = ("Snapshot", "Made", "Operation", "Rows added", "Deleted", "In all", "Size")
    return grid(columns, map(row, found), label="Snapshots", numbers=(3, 4, 5, 6))


def _figure(value: Any) -> str:
    return text.count(text.number_of(value))
