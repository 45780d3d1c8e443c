"""Addresses of pages, each made in one place. Names are percent-encoded, one segment each; levels are joined by %1F."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote, urlencode

from lakepact.iceberg.requests import Identifier

ROOT = "/ui"


class Links:
    def __init__(self, base_path: str = "") -> None:
        self.root = base_path.rstrip("/") + ROOT

    def home(self) -> str:
        return self.root

    def static(self, file: str, version: str) -> str:
        return f"{self.root}/static/{file}?v={version}"

    def warehouse(self, warehouse: str, **query: str | None) -> str:
        return f"{self.root}/catalog/{_one(warehouse)}{_query(query)}"

    def namespace(self, warehouse: str, namespace: Sequence[str], **query: str | None) -> str:
        return f"{self.root}/catalog/{_one(warehouse)}/{_levels(namespace)}{_query(query)}"

    def table(self, warehouse: str, identifier: Identifier, tab: str = "", **query: str | None) -> str:
        """A table or a view of any kind; `tab` is one of its pages."""
        place = f"{self.root}/catalog/{_one(warehouse)}/{_levels(identifier.namespace)}/{_one(identifier.name)}"
        return place + (f"/{tab}" if tab else "") + _query(query)

    def search(self, **query: str | None) -> str:
        return f"{self.root}/search{_query(query)}"

    def transactions(self, warehouse: str, **query: str | None) -> str:
        return f"{self.root}/transactions/{_one(warehouse)}{_query(query)}"

    def transaction(self, warehouse: str, transaction_id: str, step: str = "") -> str:
        place = f"{self.root}/transactions/{_one(warehouse)}/{_one(transaction_id)}"
        return place + (f"/{step}" if step else "")

    def pipelines(self, warehouse: str, **query: str | None) -> str:
        return f"{self.root}/pipelines/{_one(warehouse)}{_query(query)}"

    def run(self, warehouse: str, transaction_id: str) -> str:
        return f"{self.root}/pipelines/{_one(warehouse)}/{_one(transaction_id)}"

    def mirrors(self, warehouse: str) -> str:
        return f"{self.root}/mirrors/{_one(warehouse)}"

    def audit(self, warehouse: str, **query: str | None) -> str:
        return f"{self.root}/audit/{_one(warehouse)}{_query(query)}"

    def login(self) -> str:
        return f"{self.root}/login"

    def login_at_issuer(self, back: str) -> str:
        return f"{self.root}/login/issuer{_query({'next': back or None})}"

    def leave_issuer(self) -> str:
        return f"{self.root}/logout/issuer"

    def logout(self) -> str:
        return f"{self.root}/logout"

    def account(self) -> str:
        return f"{self.root}/account"

    def server(self) -> str:
        return f"{self.root}/server"


def levels_of(segment: str) -> tuple[str, ...]:
    """A namespace from its segment of a path, decoded."""
    return tuple(segment.split("\x1f"))


@lru_cache(maxsize=4_096)
def _one(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _levels(namespace: Sequence[str]) -> str:
    return "%1F".join(map(_one, namespace))


def _query(fields: dict[str, str | None]) -> str:
    given = {name: value for name, value in fields.items() if value is not None}
    return f"?{urlencode(given, errors='replace')}" if given else ""
