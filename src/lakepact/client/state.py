"""Small documents of users: JSON objects under names, which change together with the tables of a transaction.

A pipeline keeps its position in one: read it, process what came since, write the new position. Either the position and
the outputs are committed, or neither is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakepact.client.caller import Caller
from lakepact.client.errors import NotFound
from lakepact.client.names import segment


@dataclass(frozen=True, slots=True)
class Document:
    """A state document as it was read: `tx.state.get("orders-import")`."""

    name: str
    """Under which it is stored."""

    revision: int
    """How often it was written. 0: never."""

    value: Mapping[str, Any] | None
    """None: there is none, or no longer."""


class States:
    """State documents as they are committed. They are changed inside transactions only: `tx.state`.

    lake.state["orders-import"]  # {"offset": 7}
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def get(self, name: str) -> Document | None:
        """Return the document with its revision, or None if it was never written.

        lake.state.get("orders-import")
        """
        try:
            return _document(self._caller.read(f"{{prefix}}/state/{segment(name)}").json())
        except NotFound:
            return None

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        found = self.get(name)
        if found is None or found.value is None:
            raise KeyError(name)
        return found.value

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None


class TransactionStates:
    """Documents as one transaction sees and stages them.

    state["position"]                          the value, or KeyError
    state["position"] = {"offset": 7}          whatever it was before
    state.put("position", {...}, revision=3)   only if it is at this revision, else `Conflict`
    """

    def __init__(self, caller: Caller, transaction_id: str) -> None:
        self._caller = caller
        self._path = f"{{prefix}}/transactions/{segment(transaction_id)}/state/"

    def get(self, name: str) -> Document:
        """Return the document with its revision, which is 0 if it was never written. The transaction depends on it.

        tx.state.get("orders-import").revision
        """
        return _document(self._caller.read(self._path + segment(name)).json())

    def put(self, name: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        """Stage a value, which is a JSON object, and return the revision it will have.

            tx.state.put("orders-import", {"offset": 7}, revision=3)

        Raises `Conflict` if the document is not at `revision` now, `TypeError` for a value that is no mapping.
        """
        if not isinstance(value, Mapping):
            raise TypeError(
                f"state document {name!r} must be a JSON object, not {type(value).__name__}: "
                f"write {{'value': {value!r}}}"
            )
        return self._put(name, dict(value), revision)

    def remove(self, name: str, *, revision: int | None = None) -> int:
        """Stage the removal of a document and return the revision it will have.

        tx.state.remove("orders-import")
        """
        return self._put(name, None, revision)

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        value = self.get(name).value
        if value is None:
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: Mapping[str, Any]) -> None:
        self.put(name, value)

    def __delitem__(self, name: str) -> None:
        self.remove(name)

    def __contains__(self, name: str) -> bool:
        return self.get(name).value is not None

    def _put(self, name: str, value: dict[str, Any] | None, revision: int | None) -> int:
        body = {"value": value, **({} if revision is None else {"revision": revision})}
        return int(self._caller.change("PUT", self._path + segment(name), body=body).json()["revision"])


def _document(answer: Mapping[str, Any]) -> Document:
    return Document(answer["name"], answer["revision"], answer["value"])
