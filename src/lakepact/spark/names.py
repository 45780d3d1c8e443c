"""Names as Spark's SQL wants them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lakepact.client import Identifier, Name

_MOST_NAMES: Final = 10_000


def quoted(parts: Identifier) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def plain_name(name: Name, catalog: str, aliases: Collection[str] = ()) -> Identifier:
    """The table's namespace and name, without the catalog that may stand before them."""
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    return parts[1:] if isinstance(name, str) and len(parts) > 2 and parts[0] in {catalog, *aliases} else parts


def full_name(name: Name, catalog: str, aliases: Collection[str] = ()) -> str:
    """A table in SQL: `"sales.orders"`, `"lake.sales.orders"` or `("sales", "orders")`.

    Of a string with three parts or more the first is taken for the catalog if there is one of that name: a catalog must
    not be named like a namespace anyway, or Spark itself mistakes them. A single name is left to Spark, which looks in
    the namespace in use.
    """
    parts = tuple(name.split(".")) if isinstance(name, str) else tuple(name)
    if not parts or not all(parts):
        raise ValueError(
            f"{name!r} is no table: write 'sales.orders', or ('sales', 'orders') if a part has a dot in it"
        )
    if len(parts) == 1:
        return quoted(parts)
    if isinstance(name, str) and len(parts) > 2 and parts[0] in {catalog, *aliases}:
        parts = parts[1:]
    return quoted((catalog, *parts))


class DeltaNames:
    """Names that were Delta tables when they were last used. Safe to share between threads.

    A hint and no more: it decides in which format a table is looked for first.
    """

    def __init__(self) -> None:
        self._names: set[Identifier] = set()

    def __contains__(self, name: Identifier) -> bool:
        return name in self._names

    def add(self, name: Identifier) -> None:
        if len(self._names) >= _MOST_NAMES:
            self._names.clear()
        self._names.add(name)

    def discard(self, name: Identifier) -> None:
        self._names.discard(name)
