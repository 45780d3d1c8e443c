"""A whole server without a socket, and short words for what the claims of this suite say.

`Wire.opened` builds the service as `lakepact serve` does, over a store and a warehouse of its own. When it is left,
every table and view that is still there is loaded and its metadata file looked for, if anything was answered with 409
or 5xx on the way: whatever was refused, nothing that lives was deleted.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from lakepact.kernel.identity import uuid7
from lakepact.server.app import Service, build
from lakepact.settings import Settings
from tests.support.asgi_client import Answer, AsgiClient
from tests.support.waiting import PATIENCE_S

Json = dict[str, Any]

SCHEMA: Final[Json] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "ts", "required": False, "type": "timestamptz"},
        {"id": 3, "name": "name", "required": False, "type": "string"},
    ],
}
WIDER: Final[Json] = {
    **SCHEMA,
    "fields": [*SCHEMA["fields"], {"id": 4, "name": "more", "required": False, "type": "string"}],
}
PATIENT: Final[Json] = {"request_deadline_s": PATIENCE_S, "deadline_s": PATIENCE_S}
"""Settings of a server whose requests must succeed, however slow the machine and its disk are."""

CONTENDED: Final[Json] = {**PATIENT, "held_wait_s": PATIENCE_S}
"""The same for requests that compete with each other, where each must wait for the others."""

VIEW_VERSION: Final[Json] = {
    "version-id": 1,
    "timestamp-ms": 1_700_000_000_000,
    "schema-id": 0,
    "summary": {"engine-name": "test"},
    "default-namespace": ["db"],
    "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}],
}


def new_key() -> str:
    """An Idempotency-Key of now."""
    return uuid7(time.time_ns() // 1_000_000, random.getrandbits(74))


def segment(*levels: str) -> str:
    """A namespace, or a name, as one segment of a path."""
    return "%1F".join(quote(level, safe="") for level in levels)


def set_properties(**updates: str) -> Json:
    return {"action": "set-properties", "updates": updates}


def snapshot(snapshot_id: int, sequence: int = 1, parent: int | None = None, **more: Any) -> Json:
    made = {
        "snapshot-id": snapshot_id,
        "sequence-number": sequence,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "manifest-list": f"file:///nowhere/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "total-records": "1"},
        "schema-id": 0,
    }
    return {**made, **({} if parent is None else {"parent-snapshot-id": parent}), **more}


def append(snapshot_id: int, sequence: int = 1, parent: int | None = None, **more: Any) -> list[Json]:
    """What an engine sends for an append."""
    return [
        {"action": "add-snapshot", "snapshot": snapshot(snapshot_id, sequence, parent, **more)},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
    ]


def creation(**more: Any) -> Json:
    """What commits a table that was not there."""
    return {
        "requirements": [{"type": "assert-create"}],
        "updates": [
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            *more.pop("updates", ()),
        ],
        **more,
    }


def change(name: str, updates: Sequence[Json], requirements: Sequence[Json] = (), namespace: str = "db") -> Json:
    """One table of a multi-table commit."""
    return {
        "identifier": {"namespace": [namespace], "name": name},
        "requirements": list(requirements),
        "updates": list(updates),
    }


@dataclass(slots=True)
class Wire:
    client: AsgiClient
    settings: Settings
    base: str = "/v1/main"
    damaged: set[str] = field(default_factory=set)
    """Tables a test has broken by hand, as `namespace.name`: they are not expected to load at the end."""

    service: Service | None = None
    """What is behind it, for those who must look inside."""

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: Path, **given: Any) -> AsyncIterator[Self]:
        admit = given.pop("admit", None)
        settings = Settings.load(**{"data": str(folder / "data"), "log_level": "error", **PATIENT, **given})
        service = await build(settings, admit=admit)
        try:
            wire = cls(AsgiClient(service.asgi), settings, service=service)
            yield wire
            if any(answer.status == 409 or answer.status >= 500 for answer in wire.client.answered):
                await wire.check_everything_alive()
        finally:
            await service.close()

    # --- requests ---

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.client.send("GET", self.base + path, **more)

    async def head(self, path: str, **more: Any) -> Answer:
        return await self.client.send("HEAD", self.base + path, **more)

    async def delete(self, path: str, **more: Any) -> Answer:
        return await self.client.send("DELETE", self.base + path, **more)

    async def post(self, path: str, json: Any = None, key: str | None = None, **more: Any) -> Answer:
        if key is not None:
            more["headers"] = {**more.get("headers", {}), "Idempotency-Key": key}
        if "body" in more or "parts" in more:
            return await self.client.send("POST", self.base + path, **more)
        return await self.client.send("POST", self.base + path, json=json, **more)

    # --- what most tests begin with ---

    async def namespace(self, *levels: str, **properties: str) -> None:
        answer = await self.post("/namespaces", {"namespace": list(levels or ("db",)), "properties": properties})
        assert answer.status == 200, answer.body

    async def create(self, name: str = "t", *namespace: str, **request: Any) -> Answer:
        body = {"name": name, "schema": SCHEMA, **request}
        return await self.post(f"/namespaces/{segment(*(namespace or ('db',)))}/tables", body)

    async def table(self, name: str = "t", *namespace: str, **request: Any) -> Json:
        """A new table: the answer to its creation."""
        answer = await self.create(name, *namespace, **request)
        assert answer.status == 200, answer.body
        made: Json = answer.json()
        return made

    async def view(self, name: str = "v", **request: Any) -> Json:
        body = {"name": name, "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}, **request}
        answer = await self.post("/namespaces/db/views", body)
        assert answer.status == 200, answer.body
        made: Json = answer.json()
        return made

    async def load(self, name: str = "t", *namespace: str) -> Json:
        answer = await self.get(table_path(name, *namespace))
        assert answer.status == 200, answer.body
        found: Json = answer.json()
        return found

    async def commit(
        self,
        updates: Sequence[Json],
        requirements: Sequence[Json] = (),
        name: str = "t",
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        body = {"requirements": list(requirements), "updates": list(updates)}
        return await self.post(table_path(name), body, key, headers=dict(headers or {}))

    async def commit_all(self, *changes: Json, key: str | None = None, **headers: str) -> Answer:
        return await self.post("/transactions/commit", {"table-changes": list(changes)}, key, headers=headers)

    async def tables(self, *namespace: str) -> list[str]:
        answer = await self.get(f"/namespaces/{segment(*(namespace or ('db',)))}/tables")
        assert answer.status == 200, answer.body
        return [one["name"] for one in answer.json()["identifiers"]]

    # --- files ---

    @property
    def root(self) -> str:
        """The URL of the warehouse."""
        return self.settings.warehouse

    def path_of(self, location: str) -> Path:
        """The file at this location of a file warehouse."""
        assert location.startswith(self.root)
        return Path(location.removeprefix("file://"))

    # --- afterwards ---

    async def check_everything_alive(self) -> None:
        """Every table and view that is listed loads, and its metadata file is where its pointer says."""
        for namespace in await self._namespaces(()):
            for kind in ("tables", "views"):
                answer = await self.get(f"/namespaces/{segment(*namespace)}/{kind}")
                for identifier in answer.json()["identifiers"]:
                    if ".".join((*namespace, identifier["name"])) in self.damaged:
                        continue
                    path = f"/namespaces/{segment(*namespace)}/{kind}/{segment(identifier['name'])}"
                    loaded = await self.get(path)
                    assert loaded.status == 200, (identifier, loaded.body)
                    if self.root.startswith("file:"):
                        assert self.path_of(loaded.json()["metadata-location"]).is_file()

    async def _namespaces(self, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        answer = await self.get("/namespaces" + (f"?parent={segment(*parent)}" if parent else ""))
        found: list[tuple[str, ...]] = []
        for levels in answer.json()["namespaces"]:
            found += [tuple(levels), *await self._namespaces(tuple(levels))]
        return found


def table_path(name: str = "t", *namespace: str) -> str:
    return f"/namespaces/{segment(*(namespace or ('db',)))}/tables/{segment(name)}"


def view_path(name: str = "v", *namespace: str) -> str:
    return f"/namespaces/{segment(*(namespace or ('db',)))}/views/{segment(name)}"
