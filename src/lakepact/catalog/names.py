"""From names to pointers, and the children of a namespace.

A pointer repeats the name it goes by, and both change in one transaction. So a pointer that says the name that was
asked for is the right one, without a look at the name's own cell: tables that are used again and again cost one cell.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lakepact.catalog.errors import NoSuchNamespace, NoSuchTable, NoSuchView, Refusal
from lakepact.catalog.keys import Keys, last_segment
from lakepact.catalog.pointers import DIGEST, Kind, Pointer, shown
from lakepact.errors import Contended
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Value

_MOST_REMEMBERED: Final = 100_000
_MOST_POINTERS: Final = 1_000
"""As many as a store keeps the values of."""

_ATTEMPTS: Final = 10


class Reads(Protocol):
    """Whatever shows cells: a draft, or the catalog's own."""

    async def read(self, *keys: Key) -> list[Cell]: ...

    async def read_again(self, *keys: Key) -> list[Cell]: ...


@dataclass(frozen=True, slots=True)
class TableAt:
    """Where a table's metadata is."""

    id: str
    location: str
    digest: str | None
    """What that file is known by."""


class Names:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._known: OrderedDict[Identifier, Key] = OrderedDict()
        """The pointers that names stood for when somebody last looked."""

        self._pointers: dict[Key, tuple[Value, Pointer]] = {}
        """What the values were that were seen last, and what they say."""

    async def find(self, cells: Reads, identifier: Identifier) -> Pointer | None:
        """What this name stands for, a table or a view."""
        known = self._known.get(identifier)
        if known is not None:
            [cell] = await cells.read(known)
            pointer = self._pointer_in(cell)
            if pointer is not None and pointer.identifier == identifier:
                # While the cell was read, others may have found that the name has moved on.
                if identifier in self._known:
                    self._known.move_to_end(identifier)
                return pointer
            self._known.pop(identifier, None)
        read = cells.read
        for _ in range(_ATTEMPTS):
            [name] = await read(self._keys.name(identifier))
            if name.value is None:
                return None
            key = self._pointer_key(Kind(name.value["kind"]), str(name.value["id"]))
            [cell] = await read(key)
            pointer = self._pointer_in(cell)
            if pointer is not None and pointer.identifier == identifier:
                self._remember(identifier, key)
                return pointer
            # It was renamed or dropped between the two looks.
            read = cells.read_again
        raise Contended(f"{shown(identifier)} keeps being renamed; send the request again")

    async def find_kind(self, cells: Reads, identifier: Identifier, kind: Kind) -> Pointer | None:
        pointer = await self.find(cells, identifier)
        return pointer if pointer is not None and pointer.kind is kind else None

    async def table(self, cells: Reads, identifier: Identifier) -> Pointer:
        pointer = await self.find_kind(cells, identifier, Kind.TABLE)
        if pointer is None:
            raise missing(identifier, Kind.TABLE)
        return pointer

    async def view(self, cells: Reads, identifier: Identifier) -> Pointer:
        pointer = await self.find_kind(cells, identifier, Kind.VIEW)
        if pointer is None:
            raise missing(identifier, Kind.VIEW)
        return pointer

    async def all_tables(self, cells: Reads, identifiers: Sequence[Identifier]) -> list[TableAt | None]:
        """Where these tables' metadata is, in one cut; None for those that were not there just before it.

        Of each pointer only this much is looked at: they may be many.
        """
        wanted = list(dict.fromkeys(identifiers))
        for _ in range(_ATTEMPTS):
            unknown = [one for one in wanted if one not in self._known]
            absent = await self._learn(cells, unknown) if unknown else set[Identifier]()
            there = [one for one in wanted if one not in absent]
            keys = [key for one in there if (key := self._known.get(one)) is not None]
            if len(keys) < len(there):
                # Others have found just now that a name has moved on.
                continue
            found = dict(zip(there, await cells.read_again(*keys), strict=True))
            moved = [one for one, cell in found.items() if not _goes_by(cell, one)]
            if not moved:
                at = {
                    one: TableAt(last_segment(cell.key), str(cell.value["metadata-location"]), cell.value.get(DIGEST))
                    for one, cell in found.items()
                    if cell.value
                }
                return [at.get(one) for one in identifiers]
            for one in moved:
                self._known.pop(one, None)
        raise Contended("the tables keep being renamed; send the request again")

    async def _learn(self, cells: Reads, identifiers: Sequence[Identifier]) -> set[Identifier]:
        """Find out which tables these names stand for. Those that stand for none are returned."""
        names = await cells.read_again(*(self._keys.name(one) for one in identifiers))
        absent: set[Identifier] = set()
        for identifier, cell in zip(identifiers, names, strict=True):
            if cell.value is None or cell.value["kind"] != Kind.TABLE:
                absent.add(identifier)
            else:
                self._remember(identifier, self._keys.table(str(cell.value["id"])))
        return absent

    async def namespace(self, cells: Reads, namespace: Sequence[str]) -> dict[str, Any]:
        """The value of a namespace's cell."""
        [cell] = await cells.read(self._keys.namespace(namespace))
        if cell.value is None:
            raise NoSuchNamespace.named(namespace)
        return dict(cell.value)

    def likely_key(self, identifier: Identifier) -> Key | None:
        """The pointer that this name stood for when somebody last looked. It may have moved on."""
        return self._known.get(identifier)

    def pointer_key(self, pointer: Pointer) -> Key:
        return self._pointer_key(pointer.kind, pointer.id)

    def _pointer_key(self, kind: Kind, uuid: str) -> Key:
        match kind:
            case Kind.TABLE:
                return self._keys.table(uuid)
            case Kind.VIEW:
                return self._keys.view(uuid)
            case Kind.DELTA:
                return self._keys.delta(uuid)

    def _pointer_in(self, cell: Cell) -> Pointer | None:
        """A store may show the same value again and again: then it is the same pointer."""
        if cell.value is None:
            return None
        seen = self._pointers.get(cell.key)
        if seen is not None and seen[0] is cell.value:
            return seen[1]
        pointer = Pointer.from_json(cell.value)
        if seen is None and len(self._pointers) >= _MOST_POINTERS:
            del self._pointers[next(iter(self._pointers))]
        self._pointers[cell.key] = cell.value, pointer
        return pointer

    def _remember(self, identifier: Identifier, key: Key) -> None:
        self._known[identifier] = key
        if len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)


def _goes_by(cell: Cell, identifier: Identifier) -> bool:
    """Whether this cell holds a table's pointer, and it says this name."""
    value = cell.value
    if value is None or value["kind"] != Kind.TABLE:
        return False
    return value["name"] == identifier.name and tuple(value["namespace"]) == identifier.namespace


def all_there(identifiers: Sequence[Identifier], found: Sequence[TableAt | None]) -> list[TableAt]:
    """All of them, or the first that is not there is refused."""
    for identifier, one in zip(identifiers, found, strict=True):
        if one is None:
            raise missing(identifier, Kind.TABLE)
    return [one for one in found if one is not None]


def missing(identifier: Identifier, kind: Kind) -> Refusal:
    match kind:
        case Kind.TABLE:
            return NoSuchTable(f"Table does not exist: {shown(identifier)}")
        case Kind.VIEW:
            return NoSuchView(f"View does not exist: {shown(identifier)}")
        case Kind.DELTA:
            return NoSuchTable(f"Delta table does not exist: {shown(identifier)}")
