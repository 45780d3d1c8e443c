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
    """What a role is held on: `On.namespace("sales")`."""

    document: Mapping[str, Any]
    """As the REST protocol writes it."""

    @classmethod
    def account(cls) -> On:
        """All warehouses of the account: `On.account()`."""
        return cls({"on": "account"})

    @classmethod
    def warehouse(cls) -> On:
        """The warehouse that the client is connected to: `On.warehouse()`."""
        return cls({"on": "warehouse"})

    @classmethod
    def namespace(cls, name: Name) -> On:
        """A namespace and everything below it: `On.namespace("sales")`."""
        return cls({"on": "namespace", "namespace": list(namespace_name(name))})

    @classmethod
    def table(cls, name: Name) -> On:
        """One table or view, of either format: `On.table("sales.orders")`."""
        return cls({"on": "table", **document_of(table_name(name))})


class Grants:
    """Which user or group holds which role on what: `lake.grants`.

    from lakepact.client import On

    lake.grants.add("user:ann", "read", On.namespace("sales"))
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def list(self, holder: str | None = None) -> tuple[dict[str, Any], ...]:
        """List the grants that count here and that you may see; `holder` is `user:NAME`, `group:NAME` or `everyone`.

        lake.grants.list("user:ann")
        """
        answer = self._caller.read(_ALL, query=None if holder is None else {"holder": holder}).json()
        return tuple(answer["grants"])

    def add(self, holder: str, role: str, on: On) -> bool:
        """Give a role: `read`, `write`, `create` or `manage`. Returns whether that changed anything.

        lake.grants.add("group:analysts", "read", On.namespace("sales"))
        """
        answer = self._caller.change("POST", _ALL, body={"holder": holder, "role": role, **on.document}).json()
        return bool(answer["changed"])

    def remove(self, holder: str, on: On) -> bool:
        """Take a role away. Returns whether that changed anything.

        lake.grants.remove("group:analysts", On.namespace("sales"))
        """
        answer = self._caller.change("POST", f"{_ALL}/remove", body={"holder": holder, **on.document}).json()
        return bool(answer["changed"])

    def check(self, on: On, role: str | None = None, holder: str | None = None) -> dict[str, Any]:
        """Return the `role` that a holder, or you yourself, has there, and whether it includes `role` (`allowed`).

        lake.grants.check(On.table("sales.orders"), "write", "user:ann")["allowed"]
        """
        given = {"role": role, "holder": holder}
        body = {**on.document, **{name: value for name, value in given.items() if value is not None}}
        answer: dict[str, Any] = self._caller.read(f"{_ALL}/check", body=body, method="POST").json()
        return answer
