"""Open transactions for the claims of this suite: begun, looked at from inside, ended."""

from __future__ import annotations

from typing import Any

from tests.support.asgi_client import Answer
from tests.wire.world import Json, Wire


async def begin(wire: Wire, **body: Any) -> Overlaid:
    """A new transaction, seen from inside. The fields of its request, with `_` for `-`."""
    answer = await wire.post("/transactions", {name.replace("_", "-"): value for name, value in body.items()})
    assert answer.status == 200, answer.body
    return Overlaid(wire, answer.json())


class Overlaid(Wire):
    """The same server from inside a transaction, by its prefix."""

    def __init__(self, outside: Wire, begun: Json) -> None:
        super().__init__(outside.client, outside.settings, base=f"/v1/{begun['prefix']}", damaged=outside.damaged)
        self.outside = outside
        self.begun = begun
        self.id: str = begun["transaction-id"]

    async def do(self, step: str, body: Any = None) -> Answer:
        """prepare, commit, abort, renew."""
        if body is None:
            return await self.outside.post(f"/transactions/{self.id}/{step}", body=b"")
        return await self.outside.post(f"/transactions/{self.id}/{step}", body)

    async def publish(self) -> Json:
        answer = await self.do("commit")
        assert answer.status == 200, answer.body
        done: Json = answer.json()
        assert done["state"] == "committed"
        return done

    async def shown(self) -> Json:
        answer = await self.outside.get(f"/transactions/{self.id}")
        assert answer.status == 200, answer.body
        found: Json = answer.json()
        return found

    async def put(self, name: str, value: Json | None, revision: int | None = None) -> Answer:
        body: Json = {"value": value} | ({} if revision is None else {"revision": revision})
        target = f"{self.outside.base}/transactions/{self.id}/state/{name}"
        return await self.client.send("PUT", target, json=body)

    async def state(self, name: str) -> Json:
        answer = await self.outside.get(f"/transactions/{self.id}/state/{name}")
        assert answer.status == 200, answer.body
        found: Json = answer.json()
        return found


def keeps_history(wire: Wire) -> bool:
    """Whether a transaction can read cells as they were when it began."""
    return wire.settings.store.startswith(("sqlite", "postgres"))


def properties(loaded: Json) -> dict[str, str]:
    found: dict[str, str] = loaded["metadata"]["properties"]
    return found


def head(loaded: Json) -> int | None:
    """The current snapshot of a table."""
    found: int | None = loaded["metadata"].get("current-snapshot-id")
    return None if found == -1 else found


def rename(source: str, target: str) -> Json:
    return {
        "source": {"namespace": ["db"], "name": source},
        "destination": {"namespace": ["db"], "name": target},
    }


async def batch(wire: Wire, *names: str) -> list[Json]:
    """These tables of `db` in one cut."""
    asked = {"identifiers": [{"namespace": ["db"], "name": name} for name in names]}
    answer = await wire.post("/tables/batch-load", asked)
    assert answer.status == 200, answer.body
    found: list[Json] = answer.json()["results"]
    return found


async def furnish(wire: Wire, *names: str) -> None:
    """Namespace `db` with these tables."""
    await wire.namespace()
    for name in names:
        await wire.table(name)
