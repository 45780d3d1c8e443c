"""Where the catalog's cells are. Every key begins with the warehouse, so a transaction stays in one.

    <warehouse>/namespaces/<parent>/<level>   a namespace and its properties
    <warehouse>/names/<namespace>/<name>      what a name stands for: {kind, id}
    <warehouse>/tables/<uuid>                 a table's pointer
    <warehouse>/views/<uuid>                  a view's pointer
    <warehouse>/delta/<uuid>                  a Delta table's pointer
    <warehouse>/locations/<digest>            who owns a location: no two tables share one
    <warehouse>/staged/<transaction>/<digest> a location that an open transaction has begun to use, for collection
    <warehouse>/dropped/<uuid>                what a dropped table has left behind, for collection
    <warehouse>/state/<name>                  a small document of a user
    <warehouse>/governance/<uuid>             owner, description, tags and protection of a table or view
    <warehouse>/grants/index                  at which revision each bucket of grants is
    <warehouse>/grants/<bucket>               who may do what, for some of the namespaces, tables and views
    lakepact/grants/<account>/index           at which revision the grants of each warehouse, and of the account, are
    lakepact/grants/<account>/everywhere      who may do what in all warehouses of an account
    <warehouse>/answers/<bucket>              answers of keyed calls, inside an open transaction only
    <warehouse>/rows-read/<uuid>              never there: an open transaction that has looked at it has read the rows
                                              of this Delta table
    <warehouse>/head-read/<uuid>              never there: an open transaction that has looked at it has loaded this
                                              Delta table, with its files or without

A namespace of several levels is one segment here, `.a.b`: so the cells below a prefix are exactly its direct children.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key, key_of, segments_of


class Keys:
    def __init__(self, warehouse: str) -> None:
        self._warehouse = warehouse

    def namespace(self, namespace: Sequence[str]) -> Key:
        return key_of(self._warehouse, "namespaces", _path(namespace[:-1]), namespace[-1])

    def namespaces_in(self, parent: Sequence[str]) -> Key:
        """What the keys of all direct children begin with."""
        return key_of(self._warehouse, "namespaces", _path(parent))

    def name(self, identifier: Identifier) -> Key:
        return key_of(self._warehouse, "names", _path(identifier.namespace), identifier.name)

    def names_in(self, namespace: Sequence[str]) -> Key:
        return key_of(self._warehouse, "names", _path(namespace))

    def table(self, uuid: str) -> Key:
        return key_of(self._warehouse, "tables", uuid)

    def view(self, uuid: str) -> Key:
        return key_of(self._warehouse, "views", uuid)

    def delta(self, uuid: str) -> Key:
        return key_of(self._warehouse, "delta", uuid)

    def of_any_kind(self, uuid: str) -> dict[str, Key]:
        """Where the pointer with this id may be, by the family of each kind."""
        return {"tables": self.table(uuid), "views": self.view(uuid), "delta": self.delta(uuid)}

    def location(self, location: str) -> Key:
        return key_of(self._warehouse, "locations", hashlib.sha256(location.encode()).hexdigest())

    def parent(self, key: Key) -> Key | None:
        """The cell of the namespace that a name or a namespace lies in. None: in none, or it is something else."""
        _, family, *rest = segments_of(key)
        if family not in ("names", "namespaces") or rest[0] == ".":
            return None
        return self.namespace(levels_of(rest[0]))

    def state(self, name: str) -> Key:
        return key_of(self._warehouse, "state", name)

    def answers(self, bucket: str) -> Key:
        return key_of(self._warehouse, "answers", bucket)

    def rows_read(self, uuid: str) -> Key:
        return key_of(self._warehouse, "rows-read", uuid)

    def head_read(self, uuid: str) -> Key:
        """Marks, in the read set of a transaction, that a Delta table was loaded, with its files or without."""
        return key_of(self._warehouse, "head-read", uuid)

    def governance(self, uuid: str) -> Key:
        return key_of(self._warehouse, "governance", uuid)

    def grants_index(self) -> Key:
        return key_of(self._warehouse, "grants", "index")

    def grants_bucket(self, bucket: str) -> Key:
        return key_of(self._warehouse, "grants", bucket)

    def staged_location(self, transaction_id: str, location: str) -> Key:
        return key_of(self._warehouse, "staged", transaction_id, hashlib.sha256(location.encode()).hexdigest())

    def dropped(self, uuid: str) -> Key:
        return key_of(self._warehouse, "dropped", uuid)

    def all_dropped(self) -> Key:
        return key_of(self._warehouse, "dropped")

    def all_locations(self) -> Key:
        return key_of(self._warehouse, "locations")

    def all_staged_locations(self) -> Key:
        return key_of(self._warehouse, "staged")

    def all_pointers(self, family: str) -> Key:
        """What the keys of all `tables`, `views` or `delta` tables begin with."""
        return key_of(self._warehouse, family)


def account_grants(account: str) -> Key:
    """Where the grants on a whole account are. No warehouse has this name."""
    return key_of("lakepact", "grants", account, "everywhere")


def account_grants_index(account: str) -> Key:
    return key_of("lakepact", "grants", account, "index")


CHANGEABLE: Final = frozenset({"namespaces", "tables", "views", "delta"})
"""The families whose cells are what users change. The others follow from them."""


INSIDE_ONLY: Final = frozenset({"answers", "rows-read", "head-read"})
"""The families that mean something inside an open transaction only. They are no part of what it publishes."""


def family_of(key: Key) -> str:
    """Which of the families above a key belongs to."""
    return key.split("/", 2)[1]


def levels_of(path: str) -> list[str]:
    """The levels of a namespace, from the one segment that it is in a key."""
    return [level.replace("~1", ".").replace("~0", "~") for level in path[1:].split(".")]


def namespace_of(key: Key) -> tuple[str, ...]:
    """The namespace whose cell this is."""
    _, _, parent, name = segments_of(key)
    return (name,) if parent == "." else (*levels_of(parent), name)


def last_segment(key: Key) -> str:
    """The name of a namespace, table or view, from its key."""
    return segments_of(key)[-1]


def _path(namespace: Sequence[str]) -> str:
    # A dot is the separator, so a dot inside a level is written `~1`.
    return "." + ".".join(level.replace("~", "~0").replace(".", "~1") for level in namespace)
