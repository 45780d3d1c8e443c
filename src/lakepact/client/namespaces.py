"""Namespaces, on main or inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from lakepact.client.caller import Caller
from lakepact.client.errors import AlreadyExists, Forbidden, NotFound
from lakepact.client.names import Identifier, Name, levels_segment, namespace_name

_ALL: Final = "{prefix}/namespaces"


class Namespaces:
    """Namespaces, on main (`lake.namespaces`) or inside a transaction (`tx.namespaces`).

    lake.namespaces.create("sales", exist_ok=True)
    lake.namespaces.list()  # (("sales",),)
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def list(self, parent: Name | None = None) -> tuple[Identifier, ...]:
        """List the namespaces directly below `parent`, or at the top.

        lake.namespaces.list("sales")
        """
        # The separator of levels is a control character, which goes into a query as it goes into a path.
        query = {} if parent is None else {"parent": "\x1f".join(namespace_name(parent))}
        answer = self._caller.read(_ALL, query=query).json()
        return tuple(tuple(levels) for levels in answer["namespaces"])

    def walk(self, parent: Name | None = None) -> Iterator[Identifier]:
        """Iterate over all namespaces below `parent`, or over all; each before those in it. Raises `NotFound`.

        list(lake.namespaces.walk())
        """
        for one in self.list(parent):
            yield one
            # It may have gone since it was listed.
            with suppress(NotFound):
                yield from self.walk(one)

    def create(self, name: Name, properties: Mapping[str, str] | None = None, *, exist_ok: bool = False) -> None:
        """Create a namespace. With `exist_ok` an existing one is left as it is, also if the caller may not create any.

        lake.namespaces.create("sales", {"owner": "ann"}, exist_ok=True)
        """
        body = {"namespace": list(namespace_name(name)), "properties": dict(properties or {})}
        try:
            self._caller.change("POST", _ALL, body=body)
        except AlreadyExists:
            if not exist_ok:
                raise
        except Forbidden:
            if not exist_ok or not self.exists(name):
                raise

    def load(self, name: Name) -> dict[str, str]:
        """Return the properties of a namespace. Raises `NotFound`.

        lake.namespaces.load("sales")  # {"owner": "ann"}
        """
        answer = self._caller.read(_one(name)).json()
        return dict(answer.get("properties") or {})

    def exists(self, name: Name) -> bool:
        """Return whether there is a namespace of this name.

        lake.namespaces.exists("sales")
        """
        try:
            self._caller.read(_one(name), method="HEAD")
        except NotFound:
            return False
        return True

    def update(self, name: Name, updates: Mapping[str, str] | None = None, removals: Iterable[str] = ()) -> None:
        """Set and remove properties of a namespace. Raises `NotFound`.

        lake.namespaces.update("sales", {"owner": "ann"}, removals=["comment"])
        """
        body = {"updates": dict(updates or {}), "removals": list(removals)}
        self._caller.change("POST", _one(name) + "/properties", body=body)

    def drop(self, name: Name) -> None:
        """Drop an empty namespace. Raises `NotEmpty` and `NotFound`.

        lake.namespaces.drop("sales")
        """
        self._caller.change("DELETE", _one(name))


def _one(name: Name) -> str:
    return f"{_ALL}/{levels_segment(namespace_name(name))}"
