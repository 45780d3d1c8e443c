"""Rights at the other door: the same grants, the same answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from lakepact.server.app import build
from lakepact.settings import Settings
from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.support.asgi_client import AsgiClient
from tests.wire.people import Person, admit, admit_call, on_namespace, on_table
from tests.wire.test_grpc import change, successor
from tests.wire.world import PATIENT, Json, append, creation, new_key, set_properties

DENIED = grpc.StatusCode.PERMISSION_DENIED
NOT_FOUND = grpc.StatusCode.NOT_FOUND


@dataclass(slots=True)
class Room:
    root: Person
    stub: Any

    async def call(self, who: str, method: str, request: Any) -> Any:
        """The answer, or the code of the failure."""
        try:
            return await getattr(self.stub, method)(request, metadata=(("authorization", who),))
        except grpc.aio.AioRpcError as error:
            return error.code()

    async def begin(self, who: str, **given: Any) -> str:
        answer = await self.call(who, "BeginTransaction", pb.BeginTransactionRequest(**given))
        return str(answer.transaction.transaction_id)

    async def prepare(self, who: str, transaction_id: str, *changes: pb.TxChange) -> Any:
        request = pb.PrepareTransactionRequest(transaction_id=transaction_id, changes=changes)
        return await self.call(who, "PrepareTransaction", request)


@pytest.fixture
def room(tmp_path: Path) -> AbstractAsyncContextManager[Room]:
    return _opened(tmp_path)


@asynccontextmanager
async def _opened(folder: Path) -> AsyncIterator[Room]:
    warehouses = {"other": {"url": f"file://{folder}/other", "account": "other"}}
    given = {"log_level": "error", "grpc_port": 0, "warehouses": warehouses, **PATIENT}
    settings = Settings.load(data=str(folder / "data"), **given)
    service = await build(settings, admit=admit, admit_call=admit_call)
    try:
        assert service.grpc is not None
        port = await service.grpc.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
            root = Person(AsgiClient(service.asgi), settings, service=service)
            await root.namespace()
            await root.namespace("hidden")
            await root.table("a")
            await root.table("b")
            await root.table("secret", "hidden")
            yield Room(root, transactions_pb2_grpc.TransactionsStub(channel))
    finally:
        await service.close()


def _in(namespace: str, name: str, *updates: Json) -> pb.TxChange:
    made = change(name, *updates)
    made.table.namespace[:] = [namespace]
    return made


def _by_id(id: str, *updates: Json) -> pb.TxChange:
    commit = change("x", *updates).table_change
    return pb.TxChange(table_id=id, table_change=commit)


async def test_every_change_of_a_prepare_is_looked_at(room: Room) -> None:
    root = room.root
    await root.grant("user:eve", "write", **on_table("a"))
    await root.grant("user:eve", "read", **on_table("b"))
    update = set_properties(x="y")
    tx = await room.begin("eve")
    assert await room.prepare("eve", tx, change("a", update), change("b", update)) is DENIED
    assert await room.prepare("eve", tx, change("a", update), _in("hidden", "secret", update)) is NOT_FOUND
    by_id = (await root.load("secret", "hidden"))["metadata"]["table-uuid"]
    for id in (by_id, new_key()):
        assert await room.prepare("eve", tx, _by_id(id, update)) is NOT_FOUND
    new = creation()
    assert await room.prepare("eve", tx, change("new", *new["updates"], requirements=new["requirements"])) is DENIED
    assert (await room.prepare("eve", tx, change("a", update))).transaction.state == pb.TS_PREPARED
    await root.grant("user:eve", "read", **on_table("a"))
    commit = pb.CommitTransactionRequest(transaction_id=tx)
    assert await room.call("eve", "CommitTransaction", commit) is DENIED
    await root.grant("user:eve", "write", **on_table("a"))
    assert (await room.call("eve", "CommitTransaction", commit)).transaction.state == pb.TS_APPLIED
    assert (await root.load("a"))["metadata"]["properties"]["x"] == "y"
    assert "x" not in (await root.load("b"))["metadata"]["properties"]


async def test_a_transaction_is_its_owners_at_both_doors(room: Room) -> None:
    await room.root.grant("everyone", "write", **on_namespace())
    tx = await room.begin("ann")
    for request in (pb.GetTransactionRequest, pb.AbortTransactionRequest, pb.CommitTransactionRequest):
        method = request.DESCRIPTOR.name.removesuffix("Request")
        assert await room.call("eve", method, request(transaction_id=tx)) is DENIED, method
        assert await room.call("mallory", method, request(transaction_id=tx)) is NOT_FOUND, method
    assert await room.prepare("eve", tx, change("a", set_properties(x="y"))) is DENIED
    listed = await room.call("eve", "ListTransactions", pb.ListTransactionsRequest())
    assert len(listed.transactions) == 0
    eve = Person(room.root.client, room.root.settings, name="eve")
    assert (await eve.get(f"/transactions/{tx}")).status == 403
    aborted = await room.call("ann", "AbortTransaction", pb.AbortTransactionRequest(transaction_id=tx))
    assert aborted.transaction.state == pb.TS_ABORTED


async def test_warehouses_of_other_accounts_are_not_there(room: Room) -> None:
    for who, warehouse in (("mallory", "main"), ("root", "other")):
        request = pb.BeginTransactionRequest(warehouse=warehouse)
        assert await room.call(who, "BeginTransaction", request) is NOT_FOUND
    begun = await room.call("mallory", "BeginTransaction", pb.BeginTransactionRequest())
    assert begun.transaction.warehouse == "other"
    assert await room.call("eve", "BeginTransaction", pb.BeginTransactionRequest()) is DENIED


async def test_t_path_5_documents_are_of_their_own_table(room: Room) -> None:
    root = room.root
    await root.grant("user:eve", "write", **on_table("a"))
    secret, own = await root.load("secret", "hidden"), await root.load("a")
    tx = await room.begin("eve")
    for place in (secret["metadata-location"], f"{root.root}/x.json", "file:///etc/passwd", "s3://bucket/x.json"):
        refused = await room.prepare("eve", tx, change("a", intended_blob_uri=place))
        assert refused is grpc.StatusCode.INVALID_ARGUMENT, place
    elsewhere = secret["metadata"]["location"]
    document = successor(own)
    [added, _] = append(1)
    document["snapshots"] = [{**added["snapshot"], "manifest-list": f"{elsewhere}/metadata/snap.avro"}]
    document["last-sequence-number"] = 1
    stolen = change("a", metadata_document=json.dumps(document).encode())
    assert await room.prepare("eve", tx, stolen) is DENIED
    document["snapshots"][0]["manifest-list"] = f"{own['metadata']['location']}/metadata/snap.avro"
    fine = change("a", metadata_document=json.dumps(document).encode())
    assert (await room.prepare("eve", tx, fine)).transaction.state == pb.TS_PREPARED


async def test_t_right_5_the_key_of_another_begins_nothing(room: Room) -> None:
    root = room.root
    await root.grant("everyone", "write", **on_namespace())
    key = new_key()
    request = pb.BeginTransactionRequest(idempotency_key=key)
    begun = await room.call("ann", "BeginTransaction", request)
    assert await room.call("ann", "BeginTransaction", request) == begun
    used = grpc.StatusCode.ALREADY_EXISTS
    for other in ("bob", "root", "mallory"):
        assert await room.call(other, "BeginTransaction", request) is used, other


async def test_t_right_16_page_tokens_are_ids_of_ones_own(room: Room) -> None:
    await room.root.grant("everyone", "write", **on_namespace())
    mine, others = [], set()
    for _ in range(2):
        others |= {await room.begin("ann"), await room.begin("mallory", warehouse="other")}
        mine.append(await room.begin("eve"))
    found: list[str] = []
    token = ""
    while True:
        request = pb.ListTransactionsRequest(page_size=1, page_token=token)
        page = await room.call("eve", "ListTransactions", request)
        found += [one.transaction_id for one in page.transactions]
        token = page.next_page_token
        assert token not in others
        if not token:
            break
    assert found == sorted(mine)
