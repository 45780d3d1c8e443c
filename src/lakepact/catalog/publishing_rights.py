"""What it takes to publish a transaction: read from the cells it writes, so nothing that it holds can be forgotten.

Rights are those of now, and so are the places that they come from. But a refusal calls things by the names that the
transaction has for them: where they are by now may be out of sight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakepact.access import Role, Scope
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.grants import pointer_key
from lakepact.catalog.guard import Guard
from lakepact.catalog.keys import family_of, levels_of, namespace_of
from lakepact.catalog.namespaces import MARK
from lakepact.catalog.needs import Asking, InNamespace, Need, OnDocument, OnWarehouse, check_all
from lakepact.catalog.places import Places
from lakepact.catalog.pointers import FAMILIES, Change, Kind, Pointer, scope_of, shown
from lakepact.catalog.staged import STAGED
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, State, Write

_KINDS: Final = {family: kind for kind, family in FAMILIES.items()}


class PublishingRights:
    """Of whoever publishes, as they were found when it was asked for: a `Judge`."""

    def __init__(self, guard: Guard, asking: Asking, *, is_owner: bool) -> None:
        parts = guard.catalog.parts
        self._catalog = guard.catalog
        self._asking = asking
        self._rights = asking.rights
        self._places = Places(parts.warehouse, parts.keys, asking)
        self._is_owner = is_owner

    def check_table(self, pointer: Pointer, before: JsonObject | None, after: JsonObject) -> None:
        if self._rights.everywhere is not Role.MANAGE:
            self._places.check_published(pointer, before, after)

    def sees(self, pointer: Pointer) -> bool:
        """The refusal is kept for the owner too, whoever else has published it."""
        return self._is_owner and self._rights.on_thing(pointer.identifier.namespace, scope_of(pointer)) is not None

    async def check_held(self, keys: Sequence[Key]) -> None:
        """Check that the principal may change what a prepared transaction holds, also where it was only read.

        A read lock keeps others from changing the cell as a write lock does. So holding a table takes the role `write`
        on it, holding a name that is free or a namespace the role `create` there, and holding a document what it takes
        to write it (ADR 0026).
        """
        if self._rights.everywhere is Role.MANAGE:
            return
        looked = [key for key in keys if family_of(key) in (*_KINDS, "names", "namespaces", "state")]
        now = await self._catalog.parts.store.read(looked)
        for key in looked:
            await self._check_may_hold(key, now[key])

    async def _check_may_hold(self, key: Key, cell: Cell) -> None:
        _, family, *rest = segments_of(key)
        rights = self._asking.rights
        if family in _KINDS:
            if (pointer := Pointer.of(cell)) is not None:
                role = rights.on_thing(pointer.identifier.namespace, scope_of(pointer))
                # Renamed out of sight since it was read: its new name is not told.
                what = f"{pointer.kind} {shown(pointer.identifier) if role is not None else pointer.id}"
                self._check_hold(role, Role.WRITE, what)
        elif family == "names":
            identifier = Identifier(tuple(levels_of(rest[0])), rest[1])
            role, needed = rights.on_namespace(identifier.namespace), Role.CREATE
            if cell.value is not None:
                scope = Scope.thing(FAMILIES[Kind(cell.value["kind"])], str(cell.value["id"]))
                on_it = rights.on_thing(identifier.namespace, scope)
                # Nobody learns from the refusal whether a name stands for something hidden.
                role, needed = on_it, Role.WRITE if on_it is not None else Role.CREATE
            self._check_hold(role, needed, f"the name {shown(identifier)}")
        elif family == "namespaces":
            levels = namespace_of(key)
            held = levels if cell.value is not None else levels[:-1]
            self._check_hold(rights.on_namespace(held), Role.CREATE, f"namespace {'.'.join(levels)}")
        else:
            await OnDocument(rest[0], Role.WRITE).check(self._catalog.cells, self._asking)

    def _check_hold(self, role: Role | None, needed: Role, what: str) -> None:
        if role is not None and role >= needed:
            return
        raise Forbidden(
            f"the transaction has read {what}, and preparing it would keep others from changing that. This takes the "
            f"role {needed.word} there, which {self._asking.principal.name} does not have. Nothing is held. Commit the "
            f"transaction without preparing it, or begin it with isolation snapshot"
        )


async def publishing_rights(guard: Guard, writes: Sequence[Write], state: State, *, is_owner: bool) -> PublishingRights:
    """Whoever asks may make these changes visible. Raises `Forbidden` otherwise, or what says that a namespace is not
    there for them."""
    catalog = guard.catalog
    store, keys = catalog.parts.store, catalog.parts.keys
    looked = [write.key for write in writes if family_of(write.key) in (*_KINDS, "namespaces", "governance")]
    governed = {
        write.key: [pointer_key(keys, Scope.thing(family, segments_of(write.key)[-1])) for family in _KINDS]
        for write in writes
        if family_of(write.key) == "governance"
    }
    now = await store.read([*looked, *(key for some in governed.values() for key in some)])
    asking = await guard.now(catalog)
    needs = [need for write in writes for need in _of_write(write, now)]
    # What has happened lies where it lies.
    if state is not State.COMMITTED and any(_chooses_a_place(write, now) for write in writes):
        needs.append(OnWarehouse(Role.MANAGE))
    await check_all(needs, catalog.cells, asking)
    names = _names_in(writes)
    for write in writes:
        family, id = family_of(write.key), segments_of(write.key)[-1]
        if family in _KINDS:
            _check_pointer(write, now[write.key], names.get(id, id), asking)
        elif family == "governance":
            for key in governed[write.key]:
                if (pointer := Pointer.of(now[key])) is not None:
                    _check_role(pointer, Role.MANAGE, names.get(id, id), asking)
    rights = PublishingRights(guard, asking, is_owner=is_owner)
    if state is State.PREPARED and asking.rights.everywhere is not Role.MANAGE:
        await _check_prepared(guard, rights, writes, now)
    return rights


async def _check_prepared(
    guard: Guard, rights: PublishingRights, writes: Sequence[Write], now: Mapping[Key, Cell]
) -> None:
    """Its next versions are written, and nothing has moved since."""
    files = guard.catalog.parts.files
    for write in writes:
        if family_of(write.key) != FAMILIES[Kind.TABLE] or write.value is None:
            continue
        pointer, there = Pointer.from_json(write.value), Pointer.of(now[write.key])
        before = None if there is None else (await files.of(there)).document
        rights.check_table(pointer, before, (await files.of(pointer)).document)


def _names_in(writes: Sequence[Write]) -> dict[str, str]:
    """What the transaction calls the things that it changes, by their ids. Of what it drops it has a note."""
    told = ("dropped", "governance", *_KINDS)
    return {
        segments_of(write.key)[-1]: shown(Identifier(tuple(write.value["namespace"]), str(write.value["name"])))
        for family in told
        for write in writes
        if family_of(write.key) == family and write.value is not None
    }


def _of_write(write: Write, now: Mapping[Key, Cell]) -> list[Need]:
    _, family, *rest = segments_of(write.key)
    match family:
        case "names" if write.value is not None:
            return [InNamespace(tuple(levels_of(rest[0])), Role.CREATE)]
        case "namespaces":
            namespace, current = namespace_of(write.key), now[write.key].value
            if current is None:
                return [InNamespace(namespace[:-1], Role.CREATE)] if write.value is not None else []
            if write.value is not None and _unmarked(write.value) == _unmarked(current):
                return []
            return [InNamespace(namespace, Role.MANAGE)]
        case "state":
            return [OnDocument(rest[0], Role.WRITE)]
        case _:
            return []


def _chooses_a_place(write: Write, now: Mapping[Key, Cell]) -> bool:
    """Whether files lie where somebody has put them, and not the catalog. Only who manages the warehouse may."""
    family, value = family_of(write.key), write.value
    if value is None or (family in (*_KINDS, "namespaces") and now[write.key].revision != write.revision):
        # It goes, or has moved since: then it is a conflict, or is judged once it is planned again.
        return False
    if family == "namespaces":
        before = now[write.key].value or {}
        return bool(_location_of(value) != _location_of(before))
    if family not in _KINDS:
        return False
    pointer, there = Pointer.from_json(value), Pointer.of(now[write.key])
    if there is not None:
        return pointer.location != there.location
    # What is new has a folder of its own, which its id is in. It may have been renamed since.
    registered = pointer.change is Change.REGISTER or (value.get(STAGED) or {}).get("base") is not None
    return registered or not pointer.location.endswith(f"-{pointer.id}")


def _location_of(namespace: Mapping[str, Any]) -> str | None:
    properties: Mapping[str, str] = namespace.get("properties") or {}
    return properties.get("location")


def _check_pointer(write: Write, cell: Cell, name: str, asking: Asking) -> None:
    before = Pointer.of(cell)
    if before is None:
        # New: its name says in which namespace, and that was looked at. Or gone: then the commit is a conflict.
        return
    # If it has moved since, somebody else may have renamed it: then that is a conflict.
    there = write.value is not None and write.revision == cell.revision
    renamed = there and Pointer.from_json(write.value or {}).identifier != before.identifier
    _check_role(before, Role.MANAGE if write.value is None or renamed else Role.WRITE, name, asking)


def _check_role(pointer: Pointer, needed: Role, name: str, asking: Asking) -> None:
    role = asking.rights.on_thing(pointer.identifier.namespace, scope_of(pointer))
    if role is None or role < needed:
        raise asking.forbidden(needed, f"{pointer.kind} {name}")


def _unmarked(value: Mapping[str, object]) -> dict[str, object]:
    return {name: one for name, one in value.items() if name not in (MARK, "changed")}
