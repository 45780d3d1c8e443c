"""Who may do what: roles on the account, the warehouse, a namespace, a table or view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakepact.client.caller import Caller
from lakepact.client.names import Name, document_of, namespace_name, table_name

_ALL: Final = "{prefix}/grants"


@dataclass(frozen=True, slots=True)
class On:
    """What a role is held on."""

    document: Mapping[str, Any]

    @classmethod
    def account(cls) -> On:
        """All warehouses of the account."""
        return cls({"on": "account"})

    @classmethod
    def warehouse(cls) -> On:
        return cls({"on": "warehouse"})

    @classmethod
    def namespace(cls, name: Name) -> On:
        """A namespace and all below it."""
        return cls({"on": "namespace", "namespace": list(namespace_name(name))})

    @classmethod
    def table(cls, name: Name) -> On:
        """One table or view, of whatever format."""
        return cls({"on": "table", **document_of(table_name(name))})


class Grants:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def list(self, holder: str | None = None) -> tuple[dict[str, Any], ...]:
        """Those that count here and that you may know of; `holder` is `user:NAME`, `group:NAME` or `everyone`."""
        answer = self._caller.read(_ALL, query=None if holder is None else {"holder": holder}).json()
        return tuple(answer["grants"])

    def add(self, holder: str, role: str, on: On) -> bool:
        """Give a role: `read`, `write`, `create` or `manage`. Whether that changed anything."""
        answer = self._caller.change("POST", _ALL, body={"holder": holder, "role": role, **on.document}).json()
        return bool(answer["changed"])

    def remove(self, holder: str, on: On) -> bool:
        """Take a role away. Whether that changed anything."""
        answer = self._caller.change("POST", f"{_ALL}/remove", body={"holder": holder, **on.document}).json()
        return bool(answer["changed"])

    def check(self, on: On, role: str | None = None, holder: str | None = None) -> dict[str, Any]:
        """What a holder, or you yourself, may do there: `role`, and `allowed` if that includes the one asked for."""
        given = {"role": role, "holder": holder}
        body = {**on.document, **{name: value for name, value in given.items() if value is not None}}
        answer: dict[str, Any] = self._caller.read(f"{_ALL}/check", body=body, method="POST").json()
        return answer
