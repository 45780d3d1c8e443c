"""Names of namespaces and tables: `"sales.orders"`, or `("sales", "orders")` where a part has a dot in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import quote

Identifier: TypeAlias = tuple[str, ...]
"""The levels of a namespace, and for a table its own name last."""

Name: TypeAlias = str | tuple[str, ...]
"""What callers may write. A string is split at its dots; a tuple is taken as it is."""

UNIT_SEPARATOR: Final = "%1F"


def namespace_name(name: Name) -> Identifier:
    """The levels of a namespace. Raises `ValueError` for a name with an empty level."""
    levels = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if not levels or not all(levels):
        raise ValueError(f"{name!r} is not a name: write 'sales.eu', or ('sales', 'eu') if a level has a dot in it")
    return levels


def table_name(name: Name) -> Identifier:
    """A table with its namespace. Raises `ValueError` for a name without one."""
    levels = namespace_name(name)
    if len(levels) < 2:
        raise ValueError(f"{name!r} has no namespace: write 'sales.orders', or ('sales', 'orders')")
    return levels


def shown(identifier: Identifier) -> str:
    """As people read it. A level that has a dot in it is quoted."""
    return ".".join(f'"{level}"' if "." in level else level for level in identifier)


def identifier_of(document: Mapping[str, Any]) -> Identifier:
    return (*document["namespace"], document["name"])


def document_of(identifier: Identifier) -> dict[str, Any]:
    return {"namespace": list(identifier[:-1]), "name": identifier[-1]}


def segment(text: str) -> str:
    """One segment of a path."""
    return quote(text, safe="")


def levels_segment(levels: Identifier) -> str:
    """A namespace as one segment of a path."""
    return UNIT_SEPARATOR.join(segment(level) for level in levels)
