"""A view as the body of its page: its SQL, schema and versions."""

from __future__ import annotations

from typing import Any

from lakepact.catalog.files import MetadataFile
from lakepact.server.ui import shapes, text
from lakepact.server.ui.html import NOTHING, Child, Markup, join, lines, name, tag
from lakepact.server.ui.parts import card, facts, grid, mono, properties


def body(file: MetadataFile) -> Markup:
    document = file.document
    found = document.get("versions") or ()
    version = shapes.current(found, "version-id", document.get("current-version-id"))
    schema = shapes.current(document.get("schemas"), "schema-id", version.get("schema-id"))
    statements = (
        card(f"SQL ({one.get('dialect')})", tag("pre", lines(str(one.get("sql"))), tabindex="0"))
        for one in version.get("representations") or ()
        if isinstance(one, dict)
    )
    history = (
        (str(one.get("version-id")), text.instant(one.get("timestamp-ms")), _words(one.get("summary")))
        for one in sorted(found, key=lambda one: text.number_of(one.get("version-id")) or 0, reverse=True)
    )
    return join(
        statements,
        card("Schema", shapes.schema(shapes.iceberg_columns(schema), {}), flush=True),
        card("Versions", grid(("Version", "Made", "By"), history, label="Versions"), flush=True),
        card("Properties", properties(document["properties"], label="Properties"), flush=True)
        if document.get("properties")
        else NOTHING,
        card(
            "Where it is",
            facts([("Location", mono(name(str(document.get("location"))))), ("Metadata", mono(name(file.location)))]),
        ),
    )


def _words(summary: Any) -> Child:
    if not isinstance(summary, dict):
        return "–"
    said = " ".join(str(summary[key]) for key in ("engine-name", "engine-version") if key in summary)
    return name(said or "–")
