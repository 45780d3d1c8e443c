"""What a request needs, and whether whoever asks has it.

Every need names what it is about. What one may not see is missing, in the very words that the catalog has for what is
not there; what one may see and not do is forbidden. Needs are looked at against the cells that the change itself is
planned on, so a name that comes to stand for another table is another decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from lakepact.access import Principal, Rights, Role, Scope
from lakepact.access.rules import higher
from lakepact.catalog.cells import a_look_each
from lakepact.catalog.errors import Forbidden, NoSuchNamespace, NoSuchTable
from lakepact.catalog.grants import Grants, pointer_key
from lakepact.catalog.keys import Keys
from lakepact.catalog.names import Names, Reads, missing
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, scope_of, shown
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell
from lakepact.kernel.ports import CellStore


class Look:
    """Cells, and along with them the grants: one look at the store for both, and grants that are never older than what
    is judged by them. Else a table that comes to have a name a moment after a right went would be shown by that right.
    """

    __slots__ = ("_cells", "_found", "_grants", "_principal", "_together")

    def __init__(self, cells: Reads, grants: Grants, principal: Principal, *, together: bool) -> None:
        """`together`: the cells are those of the store itself. An open transaction has cells of an earlier instant, and
        grants count as they are now."""
        self._cells = cells
        self._grants = grants
        self._principal = principal
        self._together = together and not principal.admin
        self._found: Cell | None = None

    async def read(self, *keys: Key) -> list[Cell]:
        if not self._together:
            return await self._cells.read(*keys)
        found = await self._cells.read(*keys, self._grants.key)
        self._found = found.pop()
        return found

    async def read_again(self, *keys: Key) -> list[Cell]:
        if not self._together:
            return await self._cells.read_again(*keys)
        found = await self._cells.read_again(*keys, self._grants.key)
        self._found = found.pop()
        return found

    @property
    def grants_revision(self) -> int | None:
        """Of the grants that were read last. None: they are not read along with the cells."""
        return None if self._found is None else self._found.revision

    def rights_at_hand(self) -> Rights | None:
        """The same as `rights`, if there is nothing to wait for."""
        return self._grants.at_hand(self._principal, self._found)

    async def rights(self) -> Rights:
        return self.rights_at_hand() or await self._grants.rights(self._principal, self._found)


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, where, and what they may do there."""

    principal: Principal
    rights: Rights
    keys: Keys
    names: Names
    store: CellStore
    warehouse: str
    left: Mapping[str, Identifier] = field(default_factory=dict)
    """What an earlier answer to the same request is about, by scope, and under which name: it may have lost that since.
    """

    let_go: frozenset[Identifier] = frozenset()
    """The names that this earlier request has taken away."""

    inside: bool = False
    """Whether they ask from inside an open transaction."""

    def forbidden(self, role: Role, what: str) -> Forbidden:
        return Forbidden(
            f"{self.principal.name} may not do this: it needs the role {role.word} on {what}. Whoever manages that can "
            f"give it with lakepact grants add"
        )

    async def role_on(self, pointer: Pointer, enough: Role = Role.MANAGE) -> Role | None:
        """A transaction goes on seeing things where they were when it began. Rights are those of now, and so is the
        place that they come from; where that is need not be known by who has `enough` everywhere."""
        namespace, everywhere = pointer.identifier.namespace, self.rights.everywhere
        if self.inside and (everywhere is None or everywhere < enough):
            namespace = await namespace_now(self.store, self.keys, pointer)
        return self.rights.on_thing(namespace, scope_of(pointer))

    def sees(self, pointer: Pointer) -> bool:
        """Whether the principal may see this table or view, where it is for everybody."""
        return self.rights.on_thing(pointer.identifier.namespace, scope_of(pointer)) is not None

    async def sees_namespace(self, levels: tuple[str, ...]) -> bool:
        """Whether anything in it may be seen."""
        rights = self.rights
        if rights.on_namespace(levels) is not None or any(one[: len(levels)] == levels for one in rights.namespaces):
            return True
        return any(one[: len(levels)] == levels for one in await self.namespaces_of_things())

    async def namespaces_of_things(self) -> set[tuple[str, ...]]:
        """Where the tables and views are on which something is granted. They may have been renamed, so it is read."""
        found: set[tuple[str, ...]] = set()
        keys = [pointer_key(self.keys, Scope(text)) for text in self.rights.things]
        for some in a_look_each(keys):
            for cell in (await self.store.read(some)).values():
                if cell.value is not None:
                    found.add(tuple(cell.value["namespace"]))
        return found


async def namespace_now(store: CellStore, keys: Keys, pointer: Pointer) -> tuple[str, ...]:
    """Where it is for everybody; if it is not there for everybody, where whoever asks has found it."""
    key = pointer_key(keys, scope_of(pointer))
    now = Pointer.of((await store.read([key]))[key])
    return (now or pointer).identifier.namespace


class Need(Protocol):
    async def check(self, cells: Reads, asking: Asking) -> None:
        """Raises `Forbidden`, or what says that there is no such thing."""
        ...


@dataclass(frozen=True, slots=True)
class OnThing:
    """A table or view by its name."""

    identifier: Identifier
    kind: Kind
    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        pointer = await asking.names.find(cells, self.identifier)
        if pointer is None:
            role = asking.rights.on_namespace(self.identifier.namespace)
        else:
            role = await asking.role_on(pointer, self.role)
        for text, was in asking.left.items():
            # The name by which it was asked for: what was renamed by the request is left under its new one.
            if was == self.identifier or self.identifier in asking.let_go:
                role = higher(role, asking.rights.on_thing(was.namespace, Scope(text)))
        if role is None:
            raise missing(self.identifier, self.kind)
        # If it is not there, and they see its namespace, the plan tells them so.
        if role < self.role and (pointer is not None or asking.left):
            raise asking.forbidden(self.role, f"{self.kind} {shown(self.identifier)}")


@dataclass(frozen=True, slots=True)
class OnId:
    """A table by its id."""

    kind: Kind
    id: str
    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        scope = Scope.thing(FAMILIES[self.kind], self.id)
        [cell] = await cells.read(pointer_key(asking.keys, scope))
        pointer = Pointer.of(cell)
        role = None if pointer is None else await asking.role_on(pointer, self.role)
        if role is None or pointer is None:
            raise _no_id(self.kind, self.id)
        if role < self.role:
            raise asking.forbidden(self.role, f"{self.kind} {shown(pointer.identifier)}")


def _no_id(kind: Kind, id: str) -> NoSuchTable:
    # Each in the words that the plans have for it.
    if kind is Kind.DELTA:
        return NoSuchTable(f"there is no Delta table with id {id}")
    return NoSuchTable(f"Table does not exist: {id}")


@dataclass(frozen=True, slots=True)
class InNamespace:
    """Something in, or of, a namespace. The empty one is the warehouse itself."""

    namespace: tuple[str, ...]
    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        role = asking.rights.on_namespace(self.namespace)
        if role is not None and role >= self.role:
            return
        if self.namespace and not await asking.sees_namespace(self.namespace):
            raise NoSuchNamespace.named(self.namespace)
        on = f"namespace {'.'.join(self.namespace)}" if self.namespace else f"warehouse {asking.warehouse}"
        raise asking.forbidden(self.role, on)


@dataclass(frozen=True, slots=True)
class MissingParents:
    """The namespaces above a new one that do not exist, and are created with it."""

    namespace: tuple[str, ...]
    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        above = [self.namespace[:depth] for depth in range(1, len(self.namespace))]
        # A grant may outlive the namespace it is on: it gives no right to create that namespace again.
        for levels, cell in zip(above, await cells.read(*map(asking.keys.namespace, above)), strict=True):
            if not cell.exists:
                await InNamespace(levels[:-1], self.role).check(cells, asking)


@dataclass(frozen=True, slots=True)
class OnWarehouse:
    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        if asking.rights.everywhere is None or asking.rights.everywhere < self.role:
            raise asking.forbidden(self.role, f"warehouse {asking.warehouse}")


@dataclass(frozen=True, slots=True)
class Anything:
    """Some role on anything at all in the warehouse."""

    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        highest = asking.rights.highest
        if highest is None or highest < self.role:
            raise asking.forbidden(self.role, f"anything in warehouse {asking.warehouse}")


@dataclass(frozen=True, slots=True)
class OnDocument:
    """A small document of a user. It is their own, and everybody's who has the role on the warehouse."""

    name: str
    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        if asking.rights.everywhere is not None and asking.rights.everywhere >= self.role:
            return
        [cell] = await cells.read(asking.keys.state(self.name))
        if cell.value is None:
            await Anything(self.role).check(cells, asking)
        elif cell.value.get("principal") != asking.principal.name:
            raise asking.forbidden(self.role, f"warehouse {asking.warehouse}, or the document to be one's own")


Needs: TypeAlias = Sequence[Need]


def names_in(needs: Iterable[Need]) -> list[Identifier]:
    return [need.identifier for need in needs if isinstance(need, OnThing)]


async def check_all(needs: Needs, cells: Reads, asking: Asking) -> None:
    """Every need. What is missing goes before what is forbidden: whoever may not see a table learns of none."""
    denied: Forbidden | None = None
    for need in needs:
        try:
            await need.check(cells, asking)
        except Forbidden as error:
            denied = denied or error
    if denied is not None:
        raise denied
