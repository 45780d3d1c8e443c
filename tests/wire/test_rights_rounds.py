"""What rights cost, counted: no look at the store beyond those that a request needs anyway."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.support.asgi_client import Answer
from tests.wire.people import Person, admit, on_namespace, on_table
from tests.wire.world import SCHEMA, VIEW_VERSION, Wire, change, creation, new_key, set_properties, table_path

COUNTED = ("read", "commit", "lookup", "scan", "read_in", "stage", "contents")


class Calls:
    """How often the store is asked."""

    def __init__(self, store: Any) -> None:
        self.seen: list[str] = []
        for name in COUNTED:
            setattr(store, name, self._counting(name, getattr(store, name)))

    def _counting(self, name: str, plain: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*given: Any, **more: Any) -> Any:
            self.seen.append(name)
            return await plain(*given, **more)

        return counted

    async def of(self, ask: Callable[[], Awaitable[Answer]]) -> list[str]:
        self.seen.clear()
        answer = await ask()
        assert answer.status < 300, answer.body
        return list(self.seen)


async def test_loads_and_commits_ask_the_store_as_often_with_rights_as_without(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, admit=admit, receipts=False) as wire:
        root, eve = Person(wire.client, wire.settings), Person(wire.client, wire.settings, name="eve")
        await root.namespace()
        for name in ("t", "u"):
            await root.table(name)
        await root.grant("user:eve", "write", **on_table("t"))
        await root.grant("user:eve", "write", **on_namespace())
        assert wire.service is not None
        calls = Calls(wire.service.catalogs["main"].parts.store)
        both = {"identifiers": [{"namespace": ["db"], "name": name} for name in ("t", "u")]}

        def asks(person: Person) -> dict[str, Callable[[], Awaitable[Answer]]]:
            value = new_key()
            return {
                "load": lambda: person.get(table_path()),
                "exists": lambda: person.head(table_path()),
                "batch": lambda: person.post("/tables/batch-load", both),
                "commit": lambda: person.commit([set_properties(a=value)]),
                "keyed": lambda: person.commit([set_properties(b=value)], key=new_key()),
                "many": lambda: person.commit_all(
                    change("t", [set_properties(c=value)]), change("u", [set_properties(c=value)])
                ),
            }

        # An administrator's rights are read nowhere. Everything is at hand by the second time.
        for _ in range(2):
            without = {what: await calls.of(ask) for what, ask in asks(root).items()}
            with_rights = {what: await calls.of(ask) for what, ask in asks(eve).items()}
        assert with_rights == without
        assert without["load"] == ["read"]
        assert without["commit"] == ["read", "commit"]


async def test_a_creation_looks_for_its_name_and_its_id_among_all_kinds_in_one_round(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, admit=admit, receipts=False) as wire:
        root = Person(wire.client, wire.settings)
        await root.namespace()
        assert wire.service is not None
        calls = Calls(wire.service.catalogs["main"].parts.store)
        chosen = creation(updates=[{"action": "assign-uuid", "uuid": str(uuid.uuid4())}])
        view = {"name": "v", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
        # The name, the namespace, the id, and the location, which views have none of.
        assert await calls.of(lambda: root.create("t")) == [*["read"] * 4, "commit"]
        assert await calls.of(lambda: root.post(table_path("u"), chosen)) == [*["read"] * 4, "commit"]
        assert await calls.of(lambda: root.post("/namespaces/db/views", view)) == [*["read"] * 3, "commit"]
        begun = (await root.post("/transactions", {"isolation": "snapshot"})).json()["transaction-id"]
        assert (await root.at(f"main@{begun}").create("w")).status == 200
        published = await calls.of(lambda: root.post(f"/transactions/{begun}/commit"))
        assert published.count("read") == 2, "the grants; and namespace and id together"


async def test_checking_the_folders_above_a_new_table_costs_no_extra_read(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, receipts=False) as wire:
        await wire.namespace()
        await wire.table("first")
        assert wire.service is not None
        calls = Calls(wire.service.catalogs["main"].parts.store)
        default = await calls.of(lambda: wire.create("t"))
        chosen = await calls.of(lambda: wire.create("u", location=f"{wire.root}/a/b/c/d/e/u"))
        assert default == ["read", "read", "read", "read", "commit"]
        # A chosen location may be around others. It is announced, by a commit, before they are scanned (ADR 0031).
        assert chosen == ["read", "read", "read", "read", "commit", "scan", "scan", "commit"]
