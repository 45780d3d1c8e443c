"""When the store does not answer: clients are never told that something did not happen if it may have.

The store under the server is a real one. What stands before it loses answers and requests as a script says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lakepact.errors import OutcomeUnknown, StoreUnavailable
from lakepact.kernel.model import Busy, CommitResult, Conflict, Moved, Transaction
from lakepact.kernel.ports import CellStore
from lakepact.server import app
from lakepact.stores import open_store
from tests.support.asgi_client import Answer
from tests.wire.world import SCHEMA, Wire, append, change, creation, new_key, set_properties, table_path

Fault = Callable[[CellStore, Transaction], Awaitable[CommitResult]]


async def lost_answer(store: CellStore, transaction: Transaction) -> CommitResult:
    await store.commit(transaction, settle_conflict=False)
    raise OutcomeUnknown(transaction.id, "the connection broke")


async def lost_request(store: CellStore, transaction: Transaction) -> CommitResult:
    raise OutcomeUnknown(transaction.id, "the connection broke")


async def unavailable(store: CellStore, transaction: Transaction) -> CommitResult:
    raise StoreUnavailable("the store is down; nothing was applied")


async def busy(store: CellStore, transaction: Transaction) -> CommitResult:
    return Busy(transaction.id, None, 2.5)


async def conflict(store: CellStore, transaction: Transaction) -> CommitResult:
    return Conflict(transaction.id, (Moved(transaction.writes[0].key, 1, 2),), final=False)


class Faulty:
    """A store whose next commits go wrong as told. Everything else goes through."""

    def __init__(self, store: CellStore) -> None:
        self._store = store
        self.faults: list[Fault] = []
        self.deaf = False
        self.silent = False
        """Whether it does not even say what became of a transaction."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, keys: Any) -> Any:
        if self.deaf:
            raise StoreUnavailable("the store is down")
        return await self._store.read(keys)

    async def lookup(self, transaction_id: Any) -> Any:
        if self.silent:
            raise StoreUnavailable("the store is down")
        return await self._store.lookup(transaction_id)

    async def commit(self, transaction: Transaction, *, settle_conflict: bool = True) -> CommitResult:
        if self.faults:
            return await self.faults.pop(0)(self._store, transaction)
        return await self._store.commit(transaction, settle_conflict=settle_conflict)


@asynccontextmanager
async def on_faulty(folder: Path, patch: pytest.MonkeyPatch, **given: Any) -> AsyncIterator[tuple[Wire, Faulty]]:
    opened: list[Faulty] = []

    async def open_faulty(*args: Any, **more: Any) -> Any:
        opened.append(Faulty(await open_store(*args, **more)))
        return opened[-1]

    patch.setattr(app, "open_store", open_faulty)
    async with Wire.opened(folder, **given) as wire:
        yield wire, opened[-1]


@asynccontextmanager
async def faulty_wire(folder: Path, patch: pytest.MonkeyPatch, **given: Any) -> AsyncIterator[tuple[Wire, Faulty]]:
    """The same with the tables `t` and `u`."""
    async with on_faulty(folder, patch, **given) as (wire, store):
        await wire.namespace()
        for name in ("t", "u"):
            await wire.table(name)
        yield wire, store


async def unknown(store: Faulty, fault: Fault, request: Awaitable[Answer]) -> str:
    """Send a request whose outcome nobody can find out: the id under which the client may ask later."""
    store.faults, store.silent = [fault], True
    answer = await request
    store.silent = False
    assert answer.refusal == (504, "CommitStateUnknownException")
    transaction = answer.header("X-Lakepact-Transaction")
    assert transaction is not None
    return transaction


async def test_a_lost_answer_is_found_out_where_the_store_still_says_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        store.faults = [lost_answer]
        assert (await wire.commit(append(1))).status == 200
        store.faults = [lost_answer]
        assert (await wire.commit_all(change("t", append(2, 2, 1)), change("u", append(3)))).status == 204


async def test_a_lost_answer_is_504_and_can_be_asked_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        transaction = await unknown(store, lost_answer, wire.commit([set_properties(a="b")]))
        shown = (await wire.get(f"/transactions/{transaction}")).json()
        assert shown["state"] == "committed"
        assert (await wire.load())["metadata"]["properties"]["a"] == "b"


async def test_a_lost_request_is_504_too_and_did_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        transaction = await unknown(store, lost_request, wire.commit([set_properties(a="b")]))
        assert (await wire.get(f"/transactions/{transaction}")).status == 404
        assert "a" not in (await wire.load())["metadata"]["properties"]


@pytest.mark.parametrize("fault", [lost_answer, lost_request])
async def test_an_append_sent_again_without_a_key_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    sent = append(1)
    require = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        await unknown(store, fault, wire.commit(sent, require))
        assert (await wire.commit(sent, require)).status == 200
        assert [one["snapshot-id"] for one in (await wire.load())["metadata"]["snapshots"]] == [1]


@pytest.mark.parametrize("fault", [lost_answer, lost_request])
async def test_a_staged_creation_sent_again_without_a_key_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        staged = (await wire.create("n", **{"stage-create": True})).json()["metadata"]
        uuid = {"action": "assign-uuid", "uuid": staged["table-uuid"]}
        body = creation(updates=[uuid, *append(1)])
        await unknown(store, fault, wire.post(table_path("n"), body))
        assert (await wire.post(table_path("n"), body)).status == 200
        assert (await wire.load("n"))["metadata"]["table-uuid"] == staged["table-uuid"]


@pytest.mark.parametrize("fault", [lost_answer, lost_request])
async def test_a_transaction_sent_again_without_a_key_happens_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    require = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
    changes = [change(name, append(number), require) for number, name in enumerate(("t", "u"), 1)]
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        await unknown(store, fault, wire.commit_all(*changes))
        assert (await wire.commit_all(*changes)).status == 204
        for number, name in enumerate(("t", "u"), 1):
            assert [one["snapshot-id"] for one in (await wire.load(name))["metadata"]["snapshots"]] == [number]


@pytest.mark.parametrize("fault", [lost_answer, lost_request, unavailable, busy])
async def test_with_a_key_it_happens_once_and_no_5xx_is_ever_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        both = [change(name, [set_properties(c="d")]) for name in ("t", "u")]
        requests: list[Callable[[str], Awaitable[Answer]]] = [
            lambda key: wire.commit([set_properties(a="b")], key=key),
            lambda key: wire.post("/namespaces/db/tables", {"name": "n", "schema": SCHEMA}, key),
            lambda key: wire.post("/namespaces", {"namespace": ["n"]}, key),
            lambda key: wire.commit_all(*both, key=key),
            lambda key: wire.delete(table_path("n"), headers={"Idempotency-Key": key}),
        ]
        for number, send in enumerate(requests):
            key = new_key()
            store.faults = [fault]
            first = await send(key)
            assert first.status in (200, 204, 503, 504), (number, first.body)
            again = await send(key)
            assert again.status in (200, 204), (number, again.body)
            assert (await send(key)).body == again.body
            assert (await wire.get(f"/transactions/{key}")).json()["state"] == "committed"


@pytest.mark.parametrize("fault", [unavailable, busy])
async def test_what_surely_did_not_happen_is_503_with_the_time_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    async with faulty_wire(tmp_path, monkeypatch, held_wait_s=0) as (wire, store):
        before = await wire.load()
        store.faults = [fault]
        answer = await wire.commit([set_properties(a="b")])
        assert answer.status == 503
        assert int(answer.header("Retry-After") or 0) >= 1
        assert await wire.load() == before


async def test_a_request_that_never_gets_through_ends_in_time_with_503(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, _):
        before = await wire.load()
        # A server of its own: the tables were created without this deadline.
        async with on_faulty(tmp_path, monkeypatch, request_deadline_s=0.3) as (hasty, store):
            store.faults = [conflict] * 1_000
            answer = await hasty.commit([set_properties(a="b")])
            assert answer.refusal == (503, "SlowDownException")
            assert answer.header("Retry-After") is not None
            store.faults = []
        assert await wire.load() == before


async def test_a_store_that_is_down_is_503_for_readers_and_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        store.deaf = True
        for answer in (
            await wire.get(table_path()),
            await wire.commit([set_properties(a="b")]),
            await wire.commit_all(change("t", append(1))),
            await wire.create("n"),
        ):
            assert answer.refusal == (503, "ServiceUnavailableException")
            assert answer.header("Retry-After") is not None
        store.deaf = False
        assert (await wire.get(table_path())).status == 200


async def test_a_few_conflicts_are_tried_again_without_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with faulty_wire(tmp_path, monkeypatch) as (wire, store):
        store.faults = [conflict] * 5
        assert (await wire.commit([set_properties(a="b")])).status == 200
        assert not store.faults
