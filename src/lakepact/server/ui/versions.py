"""Versions of a table as a timeline: when, by whom, of what, checked or not, and with which transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakepact.catalog.changes import in_words
from lakepact.catalog.history import Entry, client_of, own_words, rows_text, source_text, version_number
from lakepact.delta.ports import VersionRow
from lakepact.iceberg.requests import Identifier
from lakepact.server.ui import text
from lakepact.server.ui.html import Child, Markup, join, name, tag
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import ACCENT, BAD, CALM, GOOD, WARN, badge, facts, joined, mono
from lakepact.server.ui.receipts import Document

_LINEAGE = {
    "verified": ("verified", "The server has seen these being loaded in the transaction"),
    "declared-unverified": ("declared, not verified", "What the writer says of itself"),
    "loaded": (
        "loaded in its transaction",
        "The transaction has loaded these tables; which of its tables was made of which is not recorded",
    ),
}
_QUALITY = {
    "passed": ("Passed", GOOD),
    "warned": ("Passed with warnings", WARN),
    "failed": ("Failed", BAD),
    "not-checked": ("Not checked", CALM),
}
_MOST_INPUTS = 12


def iceberg(entries: Sequence[Entry], links: Links, warehouse: str) -> Markup:
    return tag("ol", (_iceberg_entry(entry, links, warehouse) for entry in entries), class_="timeline")


def delta(
    rows: Sequence[VersionRow], receipts: Mapping[int, Document], current: int, links: Links, warehouse: str
) -> Markup:
    return tag(
        "ol",
        (_delta_entry(row, receipts.get(row.version), row.version == current, links, warehouse) for row in rows),
        class_="timeline",
    )


def _iceberg_entry(entry: Entry, links: Links, warehouse: str) -> Markup:
    number = version_number(entry.metadata_location)
    pairs: list[tuple[str, Child]] = [
        ("Source", _source(entry.source, entry.details, entry.transaction_id, links, warehouse)),
        ("In its words", _own_words(entry.details)),
        ("Lineage", _lineage(entry.lineage, entry.inputs, entry.details, links, warehouse)),
        ("Quality", quality(entry.quality, entry.checks)),
        ("Changed", joined([name(one) for one in in_words(entry.changed)], "; ")),
        ("Rows", rows_text(entry)),
        ("Snapshot", None if entry.snapshot_id is None else mono(str(entry.snapshot_id))),
        ("Transaction", _transaction(entry.transaction_id, entry.tables, links, warehouse)),
    ]
    return _entry(
        "version" if number is None else f"v{number}",
        entry.operation or "metadata",
        entry.timestamp_ms,
        entry.current,
        entry.details,
        pairs,
    )


def _delta_entry(row: VersionRow, receipt: Document | None, current: bool, links: Links, warehouse: str) -> Markup:
    receipt = receipt or {}
    source = receipt.get("source") or {}
    pairs: list[tuple[str, Child]] = [
        ("Source", _source(source_text(source), source, row.transaction_id, links, warehouse, format_="Delta")),
        ("In its words", _own_words(source)),
        (
            "Lineage",
            _lineage(str(receipt.get("lineage", "unknown")), receipt.get("inputs") or (), source, links, warehouse),
        ),
        ("Quality", quality(str(receipt.get("quality", "unknown")), receipt.get("checks") or ())),
        ("Files", f"{row.adds:,} added, {row.removes:,} removed"),
        (
            "Transaction",
            _transaction(row.transaction_id, text.number_of(receipt.get("transaction-tables")), links, warehouse),
        ),
    ]
    return _entry(f"v{row.version}", row.info.operation, row.info.timestamp_ms, current, source, pairs)


def _entry(
    version: str,
    operation: str,
    at_ms: int,
    current: bool,
    source: Mapping[str, Any],
    pairs: Sequence[tuple[str, Child]],
) -> Markup:
    by_pipeline = source.get("kind") == "pipeline"
    head = tag(
        "div",
        tag("span", version, class_="version"),
        badge("current", ACCENT) if current else None,
        badge(name(operation)),
        text.instant(at_ms),
        class_="entry-head",
    )
    return tag("li", head, facts(pairs), class_="by-pipeline" if by_pipeline else "by-others")


def quality(word: str, checks: Sequence[Mapping[str, Any]] = ()) -> Markup:
    shown, look = _QUALITY.get(word, ("Unknown", CALM))
    if word == "passed" and any(one.get("status") in ("warned", "dropped") for one in checks if isinstance(one, dict)):
        shown, look = "Passed with warnings", WARN
    return join(badge(shown, look), f" {text.plural(len(checks), 'check')}" if checks else None)


def table_link(links: Links, warehouse: str, full_name: str) -> Markup:
    """A table by its name with dots, as receipts write it."""
    *namespace, last = full_name.split(".")
    if not namespace:
        return mono(name(full_name))
    return tag("a", name(full_name), href=links.table(warehouse, Identifier(tuple(namespace), last)))


def _own_words(source: Mapping[str, Any]) -> Child:
    said = own_words(source)
    return name(said) if said else None


def _source(
    shown: str,
    source: Mapping[str, Any],
    transaction_id: str | None,
    links: Links,
    warehouse: str,
    format_: str = "Iceberg",
) -> Child:
    match source.get("kind"):
        case "pipeline" if transaction_id is not None and "pipeline" in source:
            run = tag("a", "run ", name(str(source.get("run-id"))), href=links.run(warehouse, transaction_id))
            return join(badge("Pipeline", ACCENT), " ", name(str(source["pipeline"])), ", ", run)
        case "pipeline":
            return join(badge("Pipeline", ACCENT), " ", name(shown))
        case "rest" | "grpc" as door:
            who = client_of(source)
            principal = source.get("principal")
            return join(
                badge("External"),
                f" {format_} REST API" if door == "rest" else " gRPC API",
                join(", ", name(who)) if who else None,
                join(", by ", name(str(principal))) if principal and principal != "anonymous" else None,
            )
        case None:
            return tag("span", name(shown), class_="muted")
        case _:
            return join(badge("External"), " ", name(shown))


def _lineage(
    word: str, inputs: Sequence[Mapping[str, Any]], source: Mapping[str, Any], links: Links, warehouse: str
) -> Child:
    read = [one for one in inputs if isinstance(one, dict) and isinstance(one.get("table"), str)]
    if not read:
        if source.get("kind") in ("rest", "grpc"):
            return tag("span", "Unknown (external write)", class_="muted")
        return tag("span", "Nothing was read" if word == "verified" else "Unknown", class_="muted")
    shown, title = _LINEAGE.get(word, (word, ""))
    tables = joined([_input(one, links, warehouse) for one in read[:_MOST_INPUTS]])
    more = f" and {len(read) - _MOST_INPUTS} more" if len(read) > _MOST_INPUTS else None
    return join(tables, more, " ", tag("span", badge(shown, GOOD if word == "verified" else CALM), title=title or None))


def _input(one: Mapping[str, Any], links: Links, warehouse: str) -> Markup:
    at = one.get("snapshot-id", one.get("version"))
    return join(
        table_link(links, warehouse, str(one["table"])),
        tag("span", "@", name(str(at)), class_="muted mono") if at is not None else None,
    )


def _transaction(transaction_id: str | None, tables: int | None, links: Links, warehouse: str) -> Child:
    if transaction_id is None:
        return None
    with_others = f" together with {text.plural(tables - 1, 'other')}" if tables is not None and tables > 1 else None
    link = tag("a", mono(name(transaction_id)), href=links.transaction(warehouse, transaction_id))
    return join(link, tag("span", with_others, class_="muted") if with_others else None)
