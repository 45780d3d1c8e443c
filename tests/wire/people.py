"""Servers that know who asks: by a header, which no client of the real server could get away with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from lakepact.access import Principal
from lakepact.server.asgi import Scope
from lakepact.server.http import Headers
from lakepact.server.routing import Route
from tests.support.asgi_client import Answer
from tests.wire.world import Json, Wire

ADMIN: Final = Principal("root", admin=True)
PEOPLE: Final[dict[str, Principal]] = {
    "root": ADMIN,
    "ann": Principal("ann", groups=frozenset({"analysts"})),
    "bob": Principal("bob", groups=frozenset({"analysts", "builders"})),
    "eve": Principal("eve"),
    "mallory": Principal("mallory", account="other", admin=True),
}
"""Everybody of these tests: all are of the account `default`, but for Mallory, who rules another one."""


async def admit(route: Route, scope: Scope, headers: Headers) -> Principal:
    return PEOPLE[headers.get(b"x-test-user", b"root").decode()]


async def admit_call(authorization: list[bytes], address: str) -> Principal:
    return PEOPLE[authorization[0].decode() if authorization else "root"]


@dataclass(slots=True)
class Person(Wire):
    """A wire on which every request is of one person."""

    name: str = "root"

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.client.send("GET", self.base + path, **self._as(more))

    async def head(self, path: str, **more: Any) -> Answer:
        return await self.client.send("HEAD", self.base + path, **self._as(more))

    async def delete(self, path: str, **more: Any) -> Answer:
        return await self.client.send("DELETE", self.base + path, **self._as(more))

    async def put(self, path: str, json: Any = None, **more: Any) -> Answer:
        return await self.client.send("PUT", self.base + path, json=json, **self._as(more))

    async def post(self, path: str, json: Any = None, key: str | None = None, **more: Any) -> Answer:
        if key is not None:
            more["headers"] = {**more.get("headers", {}), "Idempotency-Key": key}
        return await self.client.send("POST", self.base + path, json={} if json is None else json, **self._as(more))

    def _as(self, more: dict[str, Any]) -> dict[str, Any]:
        return {**more, "headers": {**more.get("headers", {}), "X-Test-User": self.name}}

    def at(self, base: str) -> Self:
        """The same person at another warehouse, or inside a transaction."""
        return replace(self, base=f"/v1/{base}")

    # --- grants ---

    async def grant(self, holder: str, role: str, **on: Any) -> Answer:
        return await self.post("/grants", {"holder": holder, "role": role, **(on or {"on": "warehouse"})})

    async def revoke(self, holder: str, **on: Any) -> Answer:
        return await self.post("/grants/remove", {"holder": holder, **(on or {"on": "warehouse"})})


def on_table(name: str = "t", *namespace: str) -> Json:
    return {"on": "table", "namespace": list(namespace or ("db",)), "name": name}


def on_namespace(*levels: str) -> Json:
    return {"on": "namespace", "namespace": list(levels or ("db",))}


@dataclass(slots=True)
class House:
    """A server and everybody who uses it."""

    root: Person
    ann: Person
    bob: Person
    eve: Person
    mallory: Person

    @property
    def settings(self) -> Any:
        return self.root.settings


@asynccontextmanager
async def house(folder: Path, **given: Any) -> AsyncIterator[House]:
    other = {"other": {"url": f"file://{folder}/other", "account": "other"}}
    given = {"warehouses": other, "admit": admit, **given}
    async with Wire.opened(folder, **given) as wire:
        people = {name: Person(wire.client, wire.settings, service=wire.service, name=name) for name in PEOPLE}
        people["mallory"].base = "/v1/other"
        yield House(**people)
