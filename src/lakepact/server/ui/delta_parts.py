"""A Delta table as parts of its pages: figures, growth, schema, mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from lakepact.catalog.delta_tables import DeltaTable
from lakepact.server.ui import shapes, text
from lakepact.server.ui.charts import Point, area
from lakepact.server.ui.html import NOTHING, Markup, join
from lakepact.server.ui.parts import badge, card, figures, grid, properties
from lakepact.server.ui.window import Sized


def shape(table: DeltaTable, sizes: Sequence[Sized]) -> Markup:
    """What it holds and what it looks like."""
    points = [Point(one.at_ms, float(one.bytes), text.instant_text(one.at_ms, seconds=False)) for one in sizes]
    return join(
        _figures(table),
        card("Size over time", area(points, title="Size", shown=text.size, steps=True, end=text.nice_size))
        if len(points) > 1
        else NOTHING,
        card(
            "Schema",
            shapes.schema(
                shapes.delta_columns(table.state.metadata.schema_string),
                dict.fromkeys(table.state.metadata.partition_columns, "partition"),
            ),
            flush=True,
        ),
    )


def details(table: DeltaTable, mirrors: Sequence[Any]) -> Markup:
    configuration = table.state.metadata.configuration
    return join(
        card("Mirrors", _mirrors(mirrors), flush=True),
        card("Properties", properties(configuration, label="Properties"), flush=True) if configuration else NOTHING,
    )


def _figures(table: DeltaTable) -> Markup:
    rows = [_records(add.stats) for add in table.state.files.values()]
    known = None if any(one is None for one in rows) else sum(one or 0 for one in rows)
    return figures(
        (
            ("Rows", text.count(known)),
            ("Size", text.size(table.state.size_bytes)),
            ("Files", f"{len(table.state.files):,}"),
            ("Versions", f"{table.state.version + 1:,}"),
            ("Last change", text.instant(table.timestamp_ms, seconds=False)),
        )
    )


def _mirrors(rows: Sequence[Any]) -> Markup:
    shown_rows = (
        (
            one.engine,
            badge(one.state.value),
            f"{one.mirrored_version:,}",
            f"{one.current_version - one.mirrored_version:,}",
        )
        for one in rows
    )
    return grid(("Engine", "State", "Has version", "Behind by"), shown_rows, label="Mirrors", numbers=(2, 3))


def _records(stats: Any) -> int | None:
    """How many rows a file's statistics say it has."""
    try:
        said = orjson.loads(stats) if isinstance(stats, str) else None
    except orjson.JSONDecodeError:
        return None
    return text.number_of(said.get("numRecords")) if isinstance(said, dict) else None
