"""What one may see of a warehouse, for whoever shows many things at once: lists, searches, histories, pictures.

A guarded catalog answers for one thing at a time. A page is full of names that come from elsewhere: from receipts,
reports and the records of commits. This tells which of them may be shown to one who asks, by the rights that they had
when they asked:

    a table or view   by its id, where it is now: it goes with its grants, whatever it was called in an old record
    a namespace       if it may be read, or anything in it
    a written name    if it stands, now, for something that may be seen

What it costs grows with what may be seen or is asked about, never with what else there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Self

from lakepact.access import Principal, Rights, Role, Scope
from lakepact.catalog.catalog import Catalog
from lakepact.catalog.cells import a_look_each
from lakepact.catalog.grants import pointer_key
from lakepact.catalog.guarded_transactions import owner_of
from lakepact.catalog.keys import family_of, levels_of
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, scope_of
from lakepact.catalog.receipts import GOVERNANCE, NAMESPACE, CommittedChange, changes_of
from lakepact.errors import IllegalKey
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, State, TransactionRecord, Value

_POINTERS: Final = frozenset(FAMILIES.values())


class Visibility:
    """One principal in front of one warehouse, for as long as one request takes."""

    def __init__(self, catalog: Catalog, principal: Principal, rights: Rights) -> None:
        self._catalog = catalog
        self._principal = principal
        self.rights = rights
        self._pointers: dict[str, Pointer | None] = {}
        """Of tables and views that were looked at, by the text of their scope."""

        self._granted: dict[str, Pointer] | None = None
        self._ways: frozenset[tuple[str, ...]] | None = None
        self._moved: dict[TransactionId, tuple[CommittedChange, ...]] = {}
        """Of commits that were looked at: whoever looks for the newest ones meets the same again and again."""

    @classmethod
    async def of(cls, catalog: Catalog, principal: Principal) -> Self:
        return cls(catalog, principal, await catalog.grants.rights(principal))

    @property
    def whole(self) -> bool:
        """Whether all of it may be seen."""
        return self.rights.everywhere is not None

    @property
    def manages(self) -> bool:
        return self.rights.everywhere is Role.MANAGE

    @property
    def anything(self) -> bool:
        return self.rights.highest is not None

    # --- namespaces, and what is granted by itself ---

    def all_in(self, levels: Sequence[str]) -> bool:
        """Whether everything in this namespace may be seen. The empty one is the warehouse."""
        return self.rights.on_namespace(levels) is not None

    async def sees_namespace(self, levels: Sequence[str]) -> bool:
        return self.all_in(levels) or tuple(levels) in await self.ways()

    async def below(self, parent: Sequence[str]) -> list[str]:
        """The namespaces right below one that is not seen as a whole, as far as something in them may be seen."""
        depth = len(parent)
        ways = await self.ways()
        return sorted({one[depth] for one in ways if len(one) == depth + 1 and one[:depth] == tuple(parent)})

    async def granted(self) -> Mapping[str, Pointer]:
        """The tables and views that something is granted on for themselves, as they are now."""
        if self._granted is None:
            scopes = [Scope(text) for text in self.rights.things]
            await self._know(scopes)
            found = ((one.text, self._pointers[one.text]) for one in scopes)
            self._granted = {text: pointer for text, pointer in found if pointer is not None}
        return self._granted

    async def ways(self) -> frozenset[tuple[str, ...]]:
        """Every namespace on the way to something that may be seen, down to its own."""
        if self._ways is None:
            places = {*self.rights.namespaces, *(one.identifier.namespace for one in (await self.granted()).values())}
            self._ways = frozenset(one[:depth] for one in places for depth in range(1, len(one) + 1))
        return self._ways

    # --- names that somebody has written down ---

    async def visible_names(self, names: Iterable[str]) -> dict[str, Kind]:
        """Those of these names, written with dots, that tables and views have now which may be seen."""
        identifiers = {one: Identifier(tuple(one.split(".")[:-1]), one.split(".")[-1]) for one in names}
        keys = {
            one: self._catalog.parts.keys.name(identifier)
            for one, identifier in identifiers.items()
            if identifier.namespace and all((*identifier.namespace, identifier.name))
        }
        cells = await self._read(list(dict.fromkeys(keys.values())))
        visible: dict[str, Kind] = {}
        for one, key in keys.items():
            value = cells[key].value if key in cells else None
            if value is None:
                continue
            kind = Kind(value["kind"])
            scope = Scope.thing(FAMILIES[kind], str(value["id"]))
            if self.rights.on_thing(identifiers[one].namespace, scope) is not None:
                visible[one] = kind
        return visible

    # --- transactions ---

    def owns(self, record: TransactionRecord) -> bool:
        return self.is_me(owner_of(record))

    def is_me(self, name: object) -> bool:
        return self._principal.name is not None and name == self._principal.name

    async def shown(self, records: Sequence[TransactionRecord]) -> list[TransactionRecord]:
        """Those of these that may be looked at: one's own, those that are committed, as far as they moved something
        that may be seen, and all of them for those who manage the warehouse."""
        if self.manages:
            return list(records)
        others = [one for one in records if one.state is State.COMMITTED and not self.owns(one)]
        moved = {} if self.whole else await self.moved(others)
        committed = {one.id for one in others if self.whole or moved[one.id]}
        return [one for one in records if self.owns(one) or one.id in committed]

    async def moved(self, records: Iterable[TransactionRecord]) -> dict[TransactionId, tuple[CommittedChange, ...]]:
        """What each of these commits has moved together, as far as it may be seen, under names that may be."""
        found = {one.id: one for one in records}
        away = [one for id, one in found.items() if id not in self._moved]
        told = {one.id: changes_of(one.writes) if one.state is State.COMMITTED else () for one in away}
        self._moved |= told if self.whole else await self._in_sight(told)
        return {id: self._moved[id] for id in found}

    async def _in_sight(
        self, told: Mapping[TransactionId, tuple[CommittedChange, ...]]
    ) -> dict[TransactionId, tuple[CommittedChange, ...]]:
        ways = await self.ways()
        await self._know(scope for changes in told.values() for one in changes for scope in _scopes(one))
        return {
            id: tuple(self._renamed(one) for one in changes if self._sees(one, ways)) for id, changes in told.items()
        }

    async def cells(self, cells: Mapping[Key, Value | None]) -> frozenset[Key]:
        """Which of these cells, with what a transaction has of them, tell of something that may be seen."""
        if self.whole:
            return frozenset(cells)
        ways = await self.ways()
        await self._know(_scope_of_cell(key) for key in cells if family_of(key) in _POINTERS)
        named = {pointer.identifier for pointer in (await self.granted()).values()}
        found: set[Key] = set()
        for key, value in cells.items():
            _, family, *rest = segments_of(key)
            match family:
                case "tables" | "views" | "delta":
                    seen = self._sees_thing(_scope_of_cell(key), tuple((value or {}).get("namespace", ())))
                case "names":
                    namespace = tuple(levels_of(rest[0]))
                    seen = self.all_in(namespace) or Identifier(namespace, rest[-1]) in named
                case "namespaces":
                    levels = (*(levels_of(rest[0]) if rest[0] != "." else ()), rest[-1])
                    seen = self.all_in(levels) or levels in ways
                case _:
                    seen = False
            if seen:
                found.add(key)
        return frozenset(found)

    def _sees(self, change: CommittedChange, ways: frozenset[tuple[str, ...]]) -> bool:
        if change.kind == NAMESPACE:
            return self.all_in(change.namespace) or change.namespace in ways
        # Of the kinds that it may be of, the one it is of counts.
        there = [scope for scope in _scopes(change) if self._pointers[scope.text] is not None]
        return any(self._sees_thing(scope, change.namespace) for scope in there or _scopes(change))

    def _sees_thing(self, scope: Scope, was_in: tuple[str, ...]) -> bool:
        pointer = self._pointers[scope.text]
        if pointer is None:
            # It is gone, or was never there: then it counts where it was.
            return bool(was_in) and self.all_in(was_in)
        return self.rights.on_thing(pointer.identifier.namespace, scope) is not None

    def _renamed(self, change: CommittedChange) -> CommittedChange:
        """Under the name it had then, if that is in a namespace they may read; else under the one it has now."""
        if change.identifier is None or self.all_in(change.namespace):
            return change
        now = next((one for scope in _scopes(change) if (one := self._pointers[scope.text]) is not None), None)
        assert now is not None, "what is gone is seen by its namespace alone"
        return replace(change, identifier=now.identifier, namespace=now.identifier.namespace)

    # --- cells ---

    async def _know(self, scopes: Iterable[Scope]) -> None:
        """Look at the pointers of these, as far as nobody has in this request."""
        keys = {
            one.text: pointer_key(self._catalog.parts.keys, one) for one in scopes if one.text not in self._pointers
        }
        cells = await self._read(list(keys.values()))
        self._pointers |= {text: Pointer.of(cells[key]) if key in cells else None for text, key in keys.items()}

    async def _read(self, keys: Sequence[Key]) -> dict[Key, Cell]:
        """These cells, as far as they can be: somebody's document may name what cannot exist."""
        store = self._catalog.parts.store
        found: dict[Key, Cell] = {}
        for some in a_look_each(keys):
            try:
                found |= await store.read(some)
            except IllegalKey:
                for key in some:
                    try:
                        found |= await store.read([key])
                    except IllegalKey:
                        continue
        return found


def _scopes(change: CommittedChange) -> list[Scope]:
    """What a change is about. What people say about something does not tell of which kind that is."""
    if change.kind == NAMESPACE:
        return []
    if change.kind == GOVERNANCE:
        return [Scope.thing(family, change.id) for family in FAMILIES.values()]
    return [scope_of(change.pointer)] if change.pointer is not None else []


def _scope_of_cell(key: Key) -> Scope:
    return Scope.thing(family_of(key), segments_of(key)[-1])
