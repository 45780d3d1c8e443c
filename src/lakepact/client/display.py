"""HTML of client objects for notebooks. Every value is escaped: names and properties are written by other people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """A title and a table with one row for each fact. Facts that are None or empty are left out."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value not in (None, "", ())
    )
    return f"<div><strong>{escape(title)}</strong><table>{rows}</table></div>"


def html_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A title and a table with these columns."""
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{escape('' if value is None else str(value))}</td>" for value in row)
        + "</tr>"
        for row in rows
    )
    return (
        f"<div><strong>{escape(title)}</strong><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
