"""Transactions over gRPC: every call, every status, and that REST and gRPC are two doors to one room.

One file for one small service: six calls that only make sense in each other's light, by the same few helpers.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status

from lakepact.catalog.errors import AlreadyExists, AnswerLost, NamespaceNotEmpty, Unsupported
from lakepact.errors import (
    Contended,
    OutcomeUnknown,
    OutOfMemory,
    SnapshotTooOld,
    StoreUnavailable,
    TransactionNotFound,
    Unreadable,
    WrongState,
)
from lakepact.kernel.access import DeadlinePassed
from lakepact.server.app import Service, build
from lakepact.server.auth.errors import IssuerUnavailable
from lakepact.server.grpc.service import SERVICE
from lakepact.server.grpc.status import ServerStopping, http_status, status_of
from lakepact.settings import Settings
from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.support.asgi_client import AsgiClient
from tests.support.postgres import LazyPostgres
from tests.support.waiting import PATIENCE_S, wait_until_async
from tests.wire.world import PATIENT, Json, Wire, append, creation, new_key, set_properties, table_path

LARGE = 9_007_199_254_740_993


@dataclass(slots=True)
class Doors:
    """One server with both of its doors."""

    wire: Wire
    stub: Any
    channel: Any
    service: Service

    # --- short words ---

    async def begin(self, **given: Any) -> pb.Transaction:
        answer: pb.BeginTransactionResponse = await self.stub.BeginTransaction(pb.BeginTransactionRequest(**given))
        return answer.transaction

    async def prepare(self, transaction_id: str, *changes: pb.TxChange, **given: Any) -> pb.Transaction:
        request = pb.PrepareTransactionRequest(transaction_id=transaction_id, changes=changes, **given)
        answer: pb.PrepareTransactionResponse = await self.stub.PrepareTransaction(request)
        return answer.transaction

    async def commit(self, transaction_id: str, **given: Any) -> pb.Transaction:
        request = pb.CommitTransactionRequest(transaction_id=transaction_id, **given)
        answer: pb.CommitTransactionResponse = await self.stub.CommitTransaction(request)
        return answer.transaction

    async def abort(self, transaction_id: str) -> pb.Transaction:
        request = pb.AbortTransactionRequest(transaction_id=transaction_id)
        answer: pb.AbortTransactionResponse = await self.stub.AbortTransaction(request)
        return answer.transaction

    async def get(self, transaction_id: str, **given: Any) -> pb.Transaction:
        request = pb.GetTransactionRequest(transaction_id=transaction_id, **given)
        answer: pb.GetTransactionResponse = await self.stub.GetTransaction(request)
        return answer.transaction

    async def tables(self, *names: str) -> None:
        await self.wire.namespace()
        for name in names:
            await self.wire.table(name)


@asynccontextmanager
async def opened(folder: Path, **given: Any) -> AsyncIterator[Doors]:
    settings = Settings.load(data=str(folder / "data"), log_level="error", **{"grpc_port": 0, **PATIENT, **given})
    service = await build(settings)
    try:
        assert service.grpc is not None
        port = await service.grpc.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
            wire = Wire(AsgiClient(service.asgi), settings)
            yield Doors(wire, transactions_pb2_grpc.TransactionsStub(channel), channel, service)
            await wire.check_everything_alive()
    finally:
        await service.close()


@pytest.fixture
def doors(tmp_path: Path) -> AbstractAsyncContextManager[Doors]:
    return opened(tmp_path)


@asynccontextmanager
async def on_postgres(folder: Path, url: str) -> AsyncIterator[Doors]:
    database = f"grpc_{random.getrandbits(64):016x}"
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"CREATE DATABASE {database}")
        async with opened(folder, store=url.replace("/postgres?", f"/{database}?")) as doors:
            yield doors
        await connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
    finally:
        await connection.close()


@pytest.fixture(params=["sqlite", "memory", "file", "postgres"])
def everywhere(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres
) -> AbstractAsyncContextManager[Doors]:
    match request.param:
        case "postgres":
            return on_postgres(tmp_path, postgres.url())
        case "sqlite":
            return opened(tmp_path)
        case "memory":
            return opened(tmp_path, store="memory://", warehouse="memory://")
        case _:
            return opened(tmp_path, store=f"file://{tmp_path}/cells")


def change(name: str, *updates: Json, requirements: Any = (), version: int | None = None, **given: Any) -> pb.TxChange:
    commit = json.dumps({"requirements": list(requirements), "updates": list(updates)}).encode()
    if not given:
        given = {"table_change": pb.TableChange(commit_json=commit)}
    made = pb.TxChange(table=pb.TablePath(namespace=["db"], name=name), **given)
    if version is not None:
        made.precondition.expected_version = version
    return made


@dataclass(slots=True)
class Failure:
    code: grpc.StatusCode
    message: str
    details: list[Any]

    def detail(self, kind: Any) -> Any:
        for one in self.details:
            if one.Is(kind.DESCRIPTOR):
                found = kind()
                one.Unpack(found)
                return found
        raise AssertionError(f"no {kind.DESCRIPTOR.name} among the details: {self.details}")


async def failure(call: Any) -> Failure:
    """How a call that must fail has failed."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    status = rpc_status.from_call(raised.value)
    assert status is not None
    found = Failure(raised.value.code(), status.message, list(status.details))
    assert found.detail(error_details_pb2.ErrorInfo).domain == "lakepact"
    return found


# --- the six calls ----------------------------------------------------------------------------------------------------


async def test_a_transaction_over_two_tables_is_begun_prepared_and_applied(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a", "b")
    before_s = time.time()
    begun = await doors.begin(properties={"job": "nightly"}, ttl=Duration(seconds=3_600))
    after_s = time.time()
    assert begun.state == pb.TS_OPEN
    assert (begun.warehouse, begun.isolation, dict(begun.properties)) == (
        "main",
        pb.ISOLATION_SERIALIZABLE,
        {"job": "nightly"},
    )
    # The two times may be read one after the other.
    assert before_s - 1 <= begun.create_time.seconds <= after_s + 1
    assert before_s + 3_599 <= begun.expire_time.seconds <= after_s + 3_601

    prepared = await doors.prepare(
        begun.transaction_id, change("a", *append(LARGE)), change("b", set_properties(x="y"))
    )
    assert prepared.state == pb.TS_PREPARED
    intents = {intent.table.name: intent for intent in prepared.intents}
    assert {name: intent.expected_version for name, intent in intents.items()} == {"a": 1, "b": 1}
    assert (await doors.wire.load("a"))["metadata"].get("current-snapshot-id") in (None, -1)

    applied = await doors.commit(begun.transaction_id)
    assert applied.state == pb.TS_APPLIED
    for name in ("a", "b"):
        loaded = await doors.wire.load(name)
        assert loaded["metadata-location"] == intents[name].new_blob_uri
        assert loaded["metadata"]["table-uuid"] == intents[name].table_id
    assert (await doors.wire.load("a"))["metadata"]["current-snapshot-id"] == LARGE
    assert (await doors.get(begun.transaction_id)) == applied


async def test_a_table_can_be_named_by_its_id_and_names_may_have_dots(doors: Doors) -> None:
    await doors.wire.namespace("a.b")
    made = await doors.wire.table("c.d", "a.b")
    uuid = made["metadata"]["table-uuid"]
    begun = await doors.begin()
    by_id = pb.TxChange(table_id=uuid, table_change=change("x", set_properties(a="1")).table_change)
    await doors.prepare(begun.transaction_id, by_id)
    applied = await doors.commit(begun.transaction_id)
    assert [(list(one.table.namespace), one.table.name, one.table_id) for one in applied.intents] == [
        (["a.b"], "c.d", uuid)
    ]
    begun = await doors.begin()
    path = pb.TablePath(namespace=["a.b"], name="c.d")
    by_path = pb.TxChange(table=path, table_change=change("x", set_properties(b="2")).table_change)
    await doors.prepare(begun.transaction_id, by_path)
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED
    properties = (await doors.wire.load("c.d", "a.b"))["metadata"]["properties"]
    assert (properties["a"], properties["b"]) == ("1", "2")


async def test_a_table_can_be_created_beside_a_change(doors: Doors) -> None:
    await doors.tables("a")
    new = creation(updates=append(2))
    begun = await doors.begin()
    changes = [
        change("a", *append(1)),
        change("new", *new["updates"], requirements=new["requirements"], version=0),
    ]
    await doors.prepare(begun.transaction_id, *changes)
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED
    assert (await doors.wire.load("new"))["metadata"]["current-snapshot-id"] == 2


async def test_an_abort_lets_go_of_everything_and_can_be_repeated(doors: Doors) -> None:
    await doors.tables("a")
    begun = await doors.begin()
    await doors.prepare(begun.transaction_id, change("a", *append(1)))
    held = await doors.wire.commit([set_properties(a="b")], name="a")
    assert held.status == 503
    assert begun.transaction_id in held.error["message"]
    for _ in range(2):
        assert (await doors.abort(begun.transaction_id)).state == pb.TS_ABORTED
    assert (await doors.wire.commit([set_properties(a="b")], name="a")).status == 200
    late = await failure(doors.commit(begun.transaction_id))
    assert late.code is grpc.StatusCode.FAILED_PRECONDITION
    assert late.detail(error_details_pb2.PreconditionFailure).violations[0].type == "STATE"
    assert "aborted" in late.message


async def test_transactions_are_listed_by_state_page_by_page(doors: Doors) -> None:
    await doors.tables("a")
    open_ids = [(await doors.begin()).transaction_id for _ in range(3)]
    prepared = await doors.begin()
    await doors.prepare(prepared.transaction_id, change("a", *append(1)))
    found, token = [], ""
    while True:
        request = pb.ListTransactionsRequest(states=[pb.TS_OPEN], page_size=2, page_token=token)
        page = await doors.stub.ListTransactions(request)
        assert len(page.transactions) <= 2
        found += [one.transaction_id for one in page.transactions]
        token = page.next_page_token
        if not token:
            break
    # Ids of one millisecond have no order.
    assert sorted(found) == sorted(open_ids)
    both = await doors.stub.ListTransactions(pb.ListTransactionsRequest(states=[pb.TS_PREPARED, pb.TS_ABORTED]))
    assert [one.transaction_id for one in both.transactions] == [prepared.transaction_id]
    everything = await doors.stub.ListTransactions(pb.ListTransactionsRequest())
    # The namespace, the table, and these. That the second phase is remembered is nobody's business.
    assert len(everything.transactions) == 2 + 3 + 1


# --- whole documents --------------------------------------------------------------------------------------------------


def successor(loaded: Json, **changed: Any) -> Json:
    metadata = json.loads(json.dumps(loaded["metadata"]))
    metadata.update(changed)
    metadata["last-updated-ms"] += 1
    return dict(metadata)


async def test_a_whole_document_becomes_the_next_version_and_keeps_what_it_holds(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    document = successor(await doors.wire.load("a"), properties={"big": "1"}, **{"x-unknown": LARGE})
    begun = await doors.begin()
    changed = change("a", metadata_document=json.dumps(document).encode(), version=1)
    await doors.prepare(begun.transaction_id, changed)
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED
    metadata = (await doors.wire.load("a"))["metadata"]
    assert metadata["properties"] == {"big": "1"}
    assert metadata["x-unknown"] == LARGE
    assert len(metadata["metadata-log"]) == 1


async def test_a_document_is_stored_under_its_digest(doors: Doors) -> None:
    await doors.tables("a")
    text = json.dumps(successor(await doors.wire.load("a"), properties={"n": "1"})).encode()
    for _ in range(2):
        begun = await doors.begin()
        await doors.prepare(begun.transaction_id, change("a", metadata_document=text))
        await doors.abort(begun.transaction_id)
    location = (await doors.wire.load("a"))["metadata-location"]
    names = [path.name for path in doors.wire.path_of(location).parent.iterdir()]
    # Two transactions handed in the same document, and there is one file of it.
    assert len([name for name in names if len(name) == len("00001-") + 64 + len(".metadata.json")]) == 1


async def test_a_document_that_is_in_the_warehouse_already(doors: Doors) -> None:
    await doors.tables("a")
    loaded = await doors.wire.load("a")
    place = loaded["metadata"]["location"] + "/metadata/mine.metadata.json"
    doors.wire.path_of(place).write_text(json.dumps(successor(loaded, properties={"from": "file"})))
    begun = await doors.begin()
    await doors.prepare(begun.transaction_id, change("a", intended_blob_uri=place))
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED
    assert (await doors.wire.load("a"))["metadata"]["properties"] == {"from": "file"}


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ({"table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1"}, "table-uuid"),
        ({"format-version": 1}, "format version"),
        ({"schemas": []}, "schema"),
        ({"location": "file:///etc"}, "not inside warehouse"),
        ({"properties": {"lakepact.x": "y"}}, "reserved"),
        ({"snapshots": [], "refs": {}, "current-snapshot-id": -1}, "snapshot 1 is missing"),
    ],
)
async def test_a_document_that_cannot_follow_is_refused_and_the_transaction_stays_open(
    doors: Doors, damage: Json, told: str
) -> None:
    await doors.tables("a")
    await doors.wire.commit(append(1), name="a")
    loaded = await doors.wire.load("a")
    begun = await doors.begin()
    bad = json.dumps(successor(loaded, **damage)).encode()
    refused = await failure(doors.prepare(begun.transaction_id, change("a", metadata_document=bad)))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert told in refused.message
    assert refused.detail(error_details_pb2.BadRequest).field_violations[0].field == "changes"
    assert (await doors.get(begun.transaction_id)).state == pb.TS_OPEN
    # It can be corrected.
    good = json.dumps(successor(loaded, properties={"good": "1"})).encode()
    await doors.prepare(begun.transaction_id, change("a", metadata_document=good))
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED


async def test_a_document_that_follows_an_older_version_is_a_conflict(doors: Doors) -> None:
    await doors.tables("a")
    old = await doors.wire.load("a")
    await doors.wire.commit(append(1), name="a")
    begun = await doors.begin()
    stale = change("a", metadata_document=json.dumps(successor(old)).encode())
    failed = await doors.prepare(begun.transaction_id, stale)
    assert failed.state == pb.TS_APPLY_FAILED_CONFLICT
    assert "older version" in failed.apply_error_message


async def test_a_file_outside_the_warehouse_or_none_at_all(doors: Doors) -> None:
    await doors.tables("a")
    begun = await doors.begin()
    outside = await failure(doors.prepare(begun.transaction_id, change("a", intended_blob_uri="file:///etc/passwd")))
    assert outside.code is grpc.StatusCode.INVALID_ARGUMENT
    location = (await doors.wire.load("a"))["metadata"]["location"]
    for elsewhere in (f"{doors.wire.root}/x.metadata.json", f"{location}-other/x.json", f"{location}/../x.json"):
        refused = await failure(doors.prepare(begun.transaction_id, change("a", intended_blob_uri=elsewhere)))
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT, elsewhere
    missing = f"{location}/metadata/nothing.metadata.json"
    nothing = await failure(doors.prepare(begun.transaction_id, change("a", intended_blob_uri=missing)))
    assert nothing.code is grpc.StatusCode.NOT_FOUND
    no_table = await failure(doors.prepare(begun.transaction_id, change("z", metadata_document=b"{}")))
    assert no_table.code is grpc.StatusCode.NOT_FOUND


# --- conflicts --------------------------------------------------------------------------------------------------------


async def test_a_table_that_moved_is_an_answer_that_names_it_with_both_versions(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a", "b")
    begun = await doors.begin()
    inside = {"X-Lakepact-Transaction": begun.transaction_id}
    for name in ("a", "b"):
        body = {"requirements": [], "updates": append(1)}
        assert (await doors.wire.post(table_path(name), body, headers=inside)).status == 200
    assert (await doors.wire.commit(append(7), name="b")).status == 200
    for _ in range(2):
        failed = await doors.commit(begun.transaction_id)
        assert failed.state == pb.TS_APPLY_FAILED_CONFLICT
        assert "db.b" in failed.apply_error_message
        intents = {one.table.name: one for one in failed.intents}
        assert intents["a"].apply_error_code == ""
        assert intents["a"].new_blob_uri
        assert (intents["b"].apply_error_code, intents["b"].apply_error_expected, intents["b"].apply_error_actual) == (
            "version",
            "1",
            "2",
        )
        assert intents["b"].expected_version == 1
    assert (await doors.wire.load("b"))["metadata"]["current-snapshot-id"] == 7
    assert (await doors.wire.load("a"))["metadata"].get("current-snapshot-id") in (None, -1)
    late = await failure(doors.abort(begun.transaction_id))
    assert late.code is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_precondition_is_the_version_of_the_table(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    await doors.wire.commit([set_properties(a="b")], name="a")
    right = await doors.begin()
    prepared = await doors.prepare(right.transaction_id, change("a", set_properties(c="d"), version=2))
    assert [one.expected_version for one in prepared.intents] == [2]
    await doors.commit(right.transaction_id)

    wrong = await doors.begin()
    stale = change("a", set_properties(e="f"), version=2)
    for _ in range(2):
        failed = await doors.prepare(wrong.transaction_id, stale)
        assert failed.state == pb.TS_APPLY_FAILED_CONFLICT
        [intent] = failed.intents
        assert (intent.table.name, intent.apply_error_code) == ("a", "version")
        assert (intent.apply_error_expected, intent.apply_error_actual) == ("2", "3")
    assert (await doors.commit(wrong.transaction_id)).state == pb.TS_APPLY_FAILED_CONFLICT


async def test_a_table_that_must_not_be_there_and_is(doors: Doors) -> None:
    await doors.tables("a")
    new = creation()
    begun = await doors.begin()
    there = change("a", *new["updates"], requirements=new["requirements"], version=0)
    failed = await doors.prepare(begun.transaction_id, there)
    assert failed.state == pb.TS_APPLY_FAILED_CONFLICT
    assert [(one.apply_error_expected, one.apply_error_actual) for one in failed.intents] == [("0", "1")]


async def test_requirements_that_fail_are_told_table_by_table(doors: Doors) -> None:
    await doors.tables("a", "b")
    wrong = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": LARGE}
    begun = await doors.begin()
    failed = await doors.prepare(
        begun.transaction_id,
        change("a", set_properties(x="y"), requirements=[wrong]),
        change("b", set_properties(x="y")),
    )
    assert failed.state == pb.TS_APPLY_FAILED_CONFLICT
    [intent] = failed.intents
    assert (intent.table.name, intent.apply_error_code) == ("a", "requirement")
    assert json.loads(intent.apply_error_message) == wrong
    assert json.loads(intent.apply_error_expected) == {"ref": "main", "snapshot-id": LARGE}
    assert json.loads(intent.apply_error_actual) == {"ref": "main", "snapshot-id": None}


# --- what is held -----------------------------------------------------------------------------------------------------


async def test_a_held_table_is_unavailable_to_others_with_the_time_to_come_back(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    first, second = await doors.begin(), await doors.begin()
    await doors.prepare(first.transaction_id, change("a", *append(1)))
    busy = await failure(doors.prepare(second.transaction_id, change("a", set_properties(x="y"))))
    assert busy.code is grpc.StatusCode.UNAVAILABLE
    delay = busy.detail(error_details_pb2.RetryInfo).retry_delay
    assert delay.seconds + delay.nanos > 0
    assert busy.detail(error_details_pb2.ErrorInfo).metadata["owner"] == first.transaction_id
    assert "prepare it again" in busy.message and "commit it again" not in busy.message
    waiting = await doors.get(second.transaction_id)
    assert waiting.state == pb.TS_APPLY_FAILED_RETRYABLE, "the same on every store"
    assert waiting.apply_error_code == "SlowDownException" and "nothing is held" in waiting.apply_error_message
    listed = await doors.stub.ListTransactions(pb.ListTransactionsRequest(states=[pb.TS_APPLY_FAILED_RETRYABLE]))
    assert [one.transaction_id for one in listed.transactions] == [second.transaction_id]
    await doors.commit(first.transaction_id)
    # It was serializable, and the table has moved since it was read.
    conflict = await doors.prepare(second.transaction_id, change("a", set_properties(x="y")))
    assert conflict.state == pb.TS_APPLY_FAILED_CONFLICT
    assert "x" not in (await doors.wire.load("a"))["metadata"]["properties"]


async def given_up(doors: Doors, request: pb.PrepareTransactionRequest | pb.CommitTransactionRequest) -> None:
    """Send a call that waits for a table until its deadline. The server has given it up when this returns.

    A stall may use up the deadline before the server has received the call, or before it waits for the table. Then the
    call is sent again, with a longer deadline.
    """
    method = request.DESCRIPTOR.name.removesuffix("Request")
    for attempt in range(6):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await getattr(doors.stub, method)(request, timeout=3 * 2**attempt)
        # A stall may also keep the refusal from arriving before the deadline of the client.
        assert raised.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        await wait_until_async(lambda: is_idle(doors), "the server never gave the call up")
        none_refused = f'lakepact_requests_total{{operation="grpc{method}",status_class="5xx"}} 0.0'
        state = (await doors.get(request.transaction_id)).state
        if state == pb.TS_APPLY_FAILED_RETRYABLE and none_refused not in await metrics(doors):
            return
    raise AssertionError(f"no {method} reached the table before its deadline")


async def metrics(doors: Doors) -> str:
    return (await doors.wire.client.send("GET", "/metrics")).body.decode()


async def is_idle(doors: Doors) -> bool:
    """Return whether the request for the metrics is the only one."""
    return "lakepact_open_requests 1.0" in await metrics(doors)


async def test_a_call_is_given_up_before_its_deadline_and_never_applied(tmp_path: Path) -> None:
    """The server would wait for ten minutes. The deadline of the calls says that their client does not."""
    async with opened(tmp_path, held_wait_s=600) as doors:
        await doors.tables("a")
        first, second = await doors.begin(), await doors.begin(isolation=pb.ISOLATION_SNAPSHOT)
        await doors.prepare(first.transaction_id, change("a", *append(1)))
        prepare = pb.PrepareTransactionRequest(
            transaction_id=second.transaction_id, changes=[change("a", set_properties(x="y"))]
        )
        commit = pb.CommitTransactionRequest(transaction_id=second.transaction_id)
        await given_up(doors, prepare)
        assert (await doors.get(second.transaction_id)).state == pb.TS_APPLY_FAILED_RETRYABLE
        await given_up(doors, commit)
        await doors.commit(first.transaction_id)
        assert "x" not in (await doors.wire.load("a"))["metadata"]["properties"]
        assert (await doors.commit(second.transaction_id)).state == pb.TS_APPLIED
        assert (await doors.wire.load("a"))["metadata"]["properties"]["x"] == "y"


async def test_a_change_of_metadata_under_snapshot_isolation_goes_on_once_the_table_is_free(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    first, second = await doors.begin(), await doors.begin(isolation=pb.ISOLATION_SNAPSHOT)
    await doors.prepare(first.transaction_id, change("a", *append(1)))
    busy = await failure(doors.prepare(second.transaction_id, change("a", set_properties(x="y"))))
    assert busy.code is grpc.StatusCode.UNAVAILABLE
    await doors.commit(first.transaction_id)
    prepared = await doors.prepare(second.transaction_id, change("a", set_properties(x="y")))
    assert prepared.state == pb.TS_PREPARED
    assert (await doors.commit(second.transaction_id)).state == pb.TS_APPLIED
    metadata = (await doors.wire.load("a"))["metadata"]
    assert (metadata["current-snapshot-id"], metadata["properties"]["x"]) == (1, "y")


async def prepared_and_expired(doors: Doors) -> pb.Transaction:
    """A prepared transaction whose lifetime has ended.

    A stall of the machine may end the lifetime before the transaction is prepared. Then another one gets a longer one.
    """
    for attempt in range(8):
        begun = await doors.begin(
            ttl=Duration(nanos=300_000_000 * 2**attempt % 1_000_000_000, seconds=3 * 2**attempt // 10)
        )
        try:
            await doors.prepare(begun.transaction_id, change("a", *append(1)))
        except grpc.aio.AioRpcError as error:
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
            continue
        until = begun.expire_time.seconds + begun.expire_time.nanos / 1e9
        while time.time() <= until + 0.01:
            await asyncio.sleep(0.05)
        return begun
    raise AssertionError("no transaction could be prepared within its lifetime")


async def test_expired_and_aborted_are_told_apart(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    aborted = await doors.begin()
    await doors.abort(aborted.transaction_id)
    shown = await doors.get(aborted.transaction_id)
    assert (shown.state, shown.apply_error_code) == (pb.TS_ABORTED, "")
    late = await failure(doors.commit(aborted.transaction_id))
    assert late.code is grpc.StatusCode.FAILED_PRECONDITION and "was aborted" in late.message

    expired = await prepared_and_expired(doors)
    late = await failure(doors.commit(expired.transaction_id))
    assert late.code is grpc.StatusCode.FAILED_PRECONDITION and "has expired" in late.message
    shown = await doors.get(expired.transaction_id)
    assert (shown.state, shown.apply_error_code) == (pb.TS_ABORTED, "TransactionExpiredException")


async def test_a_prepare_key_is_for_one_transaction_and_one_list_of_changes(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a", "b")
    key, first, second = new_key(), await doors.begin(), await doors.begin()
    asked = change("a", *append(1))
    prepared = await doors.prepare(first.transaction_id, asked, idempotency_key=key)
    assert prepared.state == pb.TS_PREPARED
    again = await doors.prepare(first.transaction_id, asked, idempotency_key=key)
    assert again.state == pb.TS_PREPARED
    reused = await failure(doors.prepare(second.transaction_id, change("b", *append(1)), idempotency_key=key))
    assert reused.code is grpc.StatusCode.ALREADY_EXISTS
    assert (await doors.get(second.transaction_id)).state == pb.TS_OPEN


@pytest.mark.parametrize("prepared", [False, True])
async def test_a_transaction_without_changes_is_not_committed(everywhere: Doors, prepared: bool) -> None:
    doors = everywhere
    begun = await doors.begin()
    if prepared:
        assert (await doors.prepare(begun.transaction_id)).state == pb.TS_PREPARED
    empty = await failure(doors.commit(begun.transaction_id))
    assert empty.code is grpc.StatusCode.FAILED_PRECONDITION and "nothing has been staged" in empty.message
    assert (await doors.abort(begun.transaction_id)).state == pb.TS_ABORTED


async def test_a_creation_shows_an_intent_for_its_name_and_one_for_the_table(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    begun = await doors.begin()
    body = creation()
    asked = change("new", *body["updates"], requirements=body["requirements"])
    prepared = await doors.prepare(begun.transaction_id, asked)
    assert prepared.state == pb.TS_PREPARED, prepared.apply_error_message
    families = sorted(one.target.split("/")[1] for one in prepared.intents)
    assert families == ["names", "tables"]
    assert {one.table.name for one in prepared.intents} == {"new"}
    assert len({one.table_id for one in prepared.intents}) == 1


async def test_what_has_expired_holds_nothing_and_cannot_be_committed(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    begun = await prepared_and_expired(doors)
    late = await failure(doors.commit(begun.transaction_id))
    assert late.code is grpc.StatusCode.FAILED_PRECONDITION
    assert (await doors.wire.commit([set_properties(a="b")], name="a")).status == 200
    assert (await doors.get(begun.transaction_id)).state == pb.TS_ABORTED


async def test_over_rest_too_what_has_expired_is_closed(doors: Doors) -> None:
    await doors.tables("a")
    begun = await prepared_and_expired(doors)
    answer = await doors.wire.post(f"/transactions/{begun.transaction_id}/commit", {})
    assert answer.refusal == (400, "BadRequestException")


# --- once -------------------------------------------------------------------------------------------------------------


async def test_begin_is_done_once_under_a_key_that_becomes_the_id(doors: Doors) -> None:
    key = new_key()
    first = await doors.begin(idempotency_key=key, properties={"a": "b"})
    assert first.transaction_id == key
    assert await doors.begin(idempotency_key=key, properties={"a": "b"}) == first
    other = await failure(doors.begin(idempotency_key=key, properties={"a": "c"}))
    assert other.code is grpc.StatusCode.ALREADY_EXISTS
    assert other.detail(error_details_pb2.ErrorInfo).reason == "key-reused"


@pytest.mark.parametrize("keyed", [False, True])
async def test_prepare_is_done_once_and_other_changes_are_refused_whatever_has_happened_since(
    everywhere: Doors, keyed: bool
) -> None:
    doors = everywhere
    await doors.tables("a", "b")
    given = {"idempotency_key": new_key()} if keyed else {}
    begun = await doors.begin()
    changes = [change("a", *append(1)), change("b", *append(2))]
    other = change("a", set_properties(x="y"))
    first = await doors.prepare(begun.transaction_id, *changes, **given)
    # Their order means nothing.
    assert await doors.prepare(begun.transaction_id, *reversed(changes), **given) == first
    refused = await failure(doors.prepare(begun.transaction_id, other, **given))
    assert refused.code is grpc.StatusCode.ALREADY_EXISTS
    assert (await doors.get(begun.transaction_id)) == first

    applied = await doors.commit(begun.transaction_id)
    assert await doors.prepare(begun.transaction_id, *changes, **given) == applied
    assert (await failure(doors.prepare(begun.transaction_id, other))).code is grpc.StatusCode.ALREADY_EXISTS


async def test_prepare_sent_many_times_at_once_is_done_once(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    begun = await doors.begin()
    changes = change("a", *append(1))
    answers = await asyncio.gather(
        *(doors.prepare(begun.transaction_id, changes) for _ in range(5)), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            assert isinstance(answer, grpc.aio.AioRpcError)
            assert answer.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN)
    assert (await doors.prepare(begun.transaction_id, changes)).state == pb.TS_PREPARED
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED
    assert [one["snapshot-id"] for one in (await doors.wire.load("a"))["metadata"]["snapshots"]] == [1]


async def test_a_refusal_under_a_key_is_given_again(doors: Doors) -> None:
    await doors.tables("a")
    key, begun = new_key(), await doors.begin()
    location = (await doors.wire.load("a"))["metadata"]["location"]
    file = f"{location}/metadata/mine.metadata.json"
    asked = change("a", intended_blob_uri=file)
    missing = await failure(doors.prepare(begun.transaction_id, asked, idempotency_key=key))
    assert missing.code is grpc.StatusCode.NOT_FOUND
    # The file may come: that answer is not kept.
    doors.wire.path_of(file).parent.mkdir(parents=True, exist_ok=True)
    doors.wire.path_of(file).write_text("{}")
    first = await failure(doors.prepare(begun.transaction_id, asked, idempotency_key=key))
    doors.wire.path_of(file).write_text(json.dumps(successor(await doors.wire.load("a"))))
    again = await failure(doors.prepare(begun.transaction_id, asked, idempotency_key=key))
    assert (first.code, first.message) == (again.code, again.message)
    assert first.code is grpc.StatusCode.INVALID_ARGUMENT
    assert (await doors.prepare(begun.transaction_id, asked, idempotency_key=new_key())).state == pb.TS_PREPARED


async def test_commit_is_done_once(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    begun = await doors.begin()
    await doors.prepare(begun.transaction_id, change("a", *append(1)))
    first = await doors.commit(begun.transaction_id, idempotency_key=new_key())
    assert await doors.commit(begun.transaction_id, idempotency_key=new_key()) == first
    assert await doors.commit(begun.transaction_id) == first


# --- two doors --------------------------------------------------------------------------------------------------------


async def test_begun_over_rest_and_ended_over_grpc(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a", "b")
    begun = (await doors.wire.post("/transactions", {"properties": {"who": "rest"}})).json()
    transaction_id = begun["transaction-id"]
    headers = {"X-Lakepact-Transaction": transaction_id}
    staged = await doors.wire.post(table_path("a"), {"requirements": [], "updates": append(1)}, headers=headers)
    assert staged.status == 200
    prepared = await doors.prepare(transaction_id, change("b", *append(2)))
    assert dict(prepared.properties) == {"who": "rest"}
    assert {one.table.name for one in prepared.intents} == {"a", "b"}
    assert (await doors.wire.get(f"/transactions/{transaction_id}")).json()["state"] == "prepared"
    assert (await doors.commit(transaction_id)).state == pb.TS_APPLIED
    shown = (await doors.wire.get(f"/transactions/{transaction_id}")).json()
    assert shown["state"] == "committed"
    assert {one["identifier"]["name"] for one in shown["result"]["results"]} == {"a", "b"}


async def test_begun_over_grpc_and_ended_over_rest(everywhere: Doors) -> None:
    doors = everywhere
    await doors.tables("a")
    begun = await doors.begin()
    changes = change("a", *append(1))
    await doors.prepare(begun.transaction_id, changes)
    answer = await doors.wire.post(f"/transactions/{begun.transaction_id}/commit", {})
    assert answer.status == 200, answer.body
    assert (await doors.get(begun.transaction_id)).state == pb.TS_APPLIED
    assert (await doors.prepare(begun.transaction_id, changes)).state == pb.TS_APPLIED
    assert (await doors.wire.load("a"))["metadata"]["current-snapshot-id"] == 1


async def test_what_rest_has_staged_is_prepared_without_changes_and_then_takes_none(doors: Doors) -> None:
    await doors.tables("a")
    begun = await doors.begin()
    headers = {"X-Lakepact-Transaction": begun.transaction_id}
    await doors.wire.post(table_path("a"), {"requirements": [], "updates": append(1)}, headers=headers)
    for _ in range(2):
        assert (await doors.prepare(begun.transaction_id)).state == pb.TS_PREPARED
    late = await failure(doors.prepare(begun.transaction_id, change("a", *append(2))))
    assert late.code is grpc.StatusCode.FAILED_PRECONDITION
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED


async def test_a_receipt_says_that_it_came_over_grpc(doors: Doors) -> None:
    await doors.tables("a")
    begun = await doors.begin()
    await doors.prepare(begun.transaction_id, change("a", *append(1)))
    await doors.commit(begun.transaction_id)
    found: list[Json] = []
    async with asyncio.timeout(PATIENCE_S):
        # It is written after the answer.
        while not found:
            await asyncio.sleep(0.01)
            texts = [path.read_text() for path in Path(doors.wire.root[7:], "_catalog").rglob("*.json")]
            found = [json.loads(text) for text in texts if begun.transaction_id in text]
    assert [one["source"]["kind"] for one in found] == ["grpc"]


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ([pb.TxChange()], "changes[0]"),
        ([pb.TxChange(table_id="x", metadata_document=b"{}")], "changes[0].table_id"),
        ([pb.TxChange(table=pb.TablePath(name="a"), metadata_document=b"{}")], "changes[0].table.namespace"),
        ([pb.TxChange(table=pb.TablePath(namespace=["", "b"], name="a"))], "changes[0].table.namespace"),
        ([pb.TxChange(table=pb.TablePath(namespace=["db"]))], "changes[0].table.name"),
        ([pb.TxChange(table=pb.TablePath(namespace=["db"], name="a"))], "changes[0]"),
        ([change("a", intended_blob_uri="")], "changes[0].intended_blob_uri"),
        (
            [change("a"), change("b", table_change=pb.TableChange(commit_json=b"{"))],
            "changes[1].table_change.commit_json",
        ),
        ([change("a", {"action": "dance"})], "changes[0].table_change.commit_json"),
        ([change("a", set_properties(a="1")), change("a", set_properties(b="2"))], "changes"),
        ([change("a", {"action": "remove-snapshots", "snapshot-ids": [1]})], "changes"),
        ([change("a", metadata_document=b"{")], "changes"),
    ],
)
async def test_a_wrong_change_is_refused_by_its_field(doors: Doors, changes: list[pb.TxChange], wrong: str) -> None:
    await doors.tables("a", "b")
    begun = await doors.begin()
    refused = await failure(doors.prepare(begun.transaction_id, *changes))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT, refused
    [violation] = refused.detail(error_details_pb2.BadRequest).field_violations
    assert violation.field == wrong
    assert violation.description
    assert (await doors.get(begun.transaction_id)).state == pb.TS_OPEN


async def test_one_table_by_id_and_by_name_is_named_twice(doors: Doors) -> None:
    await doors.wire.namespace()
    made = await doors.wire.table("a")
    begun = await doors.begin()
    by_id = pb.TxChange(
        table_id=made["metadata"]["table-uuid"], table_change=change("a", set_properties(a="1")).table_change
    )
    refused = await failure(doors.prepare(begun.transaction_id, by_id, change("a", set_properties(b="2"))))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "named twice" in refused.message


@pytest.mark.parametrize(
    ("request_", "wrong"),
    [
        (pb.BeginTransactionRequest(idempotency_key="me"), "idempotency_key"),
        (pb.BeginTransactionRequest(ttl=Duration(seconds=-1)), "ttl"),
        (pb.BeginTransactionRequest(isolation=9), "isolation"),  # type: ignore[arg-type]
        (pb.PrepareTransactionRequest(transaction_id="x"), "transaction_id"),
        (pb.CommitTransactionRequest(transaction_id="", idempotency_key=""), "transaction_id"),
        (pb.CommitTransactionRequest(transaction_id="", idempotency_key="x"), "idempotency_key"),
        (pb.AbortTransactionRequest(transaction_id="x"), "transaction_id"),
        (pb.GetTransactionRequest(transaction_id="x"), "transaction_id"),
        (pb.ListTransactionsRequest(page_size=-1), "page_size"),
        (pb.ListTransactionsRequest(states=[pb.TS_OPEN, pb.TS_UNSPECIFIED]), "states[1]"),
    ],
)
async def test_a_wrong_request_is_refused_by_its_field(doors: Doors, request_: Any, wrong: str) -> None:
    method = getattr(doors.stub, type(request_).__name__.removesuffix("Request"))
    refused = await failure(method(request_))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.detail(error_details_pb2.BadRequest).field_violations[0].field == wrong


async def test_what_is_not_there_is_not_found(doors: Doors) -> None:
    await doors.tables("a")
    nobody = new_key()
    for call in (doors.prepare(nobody), doors.commit(nobody), doors.abort(nobody), doors.get(nobody)):
        assert (await failure(call)).code is grpc.StatusCode.NOT_FOUND
    assert (await failure(doors.begin(warehouse="nowhere"))).code is grpc.StatusCode.NOT_FOUND
    begun = await doors.begin()
    for changed in (
        change("never", set_properties(a="b")),
        pb.TxChange(table_id="9c12d441-03fe-4693-9a96-a0705ddf69c1", metadata_document=b"{}"),
    ):
        assert (await failure(doors.prepare(begun.transaction_id, changed))).code is grpc.StatusCode.NOT_FOUND
    assert (await doors.get(begun.transaction_id)).state == pb.TS_OPEN


async def test_to_commit_nothing_is_a_mistake(doors: Doors) -> None:
    begun = await doors.begin()
    empty = await failure(doors.commit(begun.transaction_id))
    assert empty.code is grpc.StatusCode.FAILED_PRECONDITION
    assert "prepare it" in empty.message
    assert (await doors.get(begun.transaction_id)).state == pb.TS_OPEN


async def test_a_read_only_transaction_takes_no_changes(doors: Doors) -> None:
    await doors.tables("a")
    begun = await doors.begin(read_only=True)
    assert begun.read_only
    refused = await failure(doors.prepare(begun.transaction_id, change("a", *append(1))))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_limits_of_a_commit_hold_here_too(tmp_path: Path) -> None:
    async with opened(tmp_path, max_tables=1, max_body_bytes=100_000) as doors:
        await doors.tables("a", "b")
        begun = await doors.begin()
        two = [change(name, set_properties(a="b")) for name in ("a", "b")]
        refused = await failure(doors.prepare(begun.transaction_id, *two))
        assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "max_tables" in refused.message
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await doors.prepare(begun.transaction_id, change("a", metadata_document=b" " * 200_000))
        assert large.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OutcomeUnknown("t", "the store did not say"), grpc.StatusCode.UNKNOWN),
        (AnswerLost("t", RuntimeError("gone")), grpc.StatusCode.UNKNOWN),
        (RuntimeError("a secret"), grpc.StatusCode.UNKNOWN),
        (StoreUnavailable("no answer"), grpc.StatusCode.UNAVAILABLE),
        (Contended("held", retry_after_s=2.5), grpc.StatusCode.UNAVAILABLE),
        (OutOfMemory("too large for now"), grpc.StatusCode.UNAVAILABLE),
        (DeadlinePassed("too late"), grpc.StatusCode.UNAVAILABLE),
        (IssuerUnavailable("no answer"), grpc.StatusCode.UNAVAILABLE),
        (ServerStopping(), grpc.StatusCode.UNAVAILABLE),
        (Unreadable("damaged"), grpc.StatusCode.INTERNAL),
        (SnapshotTooOld("moved"), grpc.StatusCode.ABORTED),
        (WrongState("over"), grpc.StatusCode.FAILED_PRECONDITION),
        (NamespaceNotEmpty("full"), grpc.StatusCode.ABORTED),
        (Unsupported("off"), grpc.StatusCode.UNIMPLEMENTED),
        (AlreadyExists("there"), grpc.StatusCode.ALREADY_EXISTS),
        (TransactionNotFound("t"), grpc.StatusCode.NOT_FOUND),
    ],
)
def test_an_error_has_one_status_and_what_is_unknown_never_sounds_like_refused(
    error: Exception, code: grpc.StatusCode
) -> None:
    found, status = status_of(error)
    assert (found, status.code) == (code, code.value[0])
    assert http_status(found) // 100 in (4, 5)
    assert "secret" not in status.message
    kinds = [one.type_url.rpartition(".")[2] for one in status.details]
    assert ("RetryInfo" in kinds) is (code is grpc.StatusCode.UNAVAILABLE)
    # A status of the server is told from one that gRPC makes for a broken connection by this alone.
    assert kinds.count("ErrorInfo") == 1
    info = error_details_pb2.ErrorInfo()
    assert status.details[kinds.index("ErrorInfo")].Unpack(info)
    assert info.domain == "lakepact" and info.reason


# --- around it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [0.0005, 0.002, 0.008, 0.03])
async def test_a_commit_whose_client_has_left_is_done_or_not_begun(doors: Doors, timeout_s: float) -> None:
    await doors.tables("a")
    begun = await doors.begin()
    await doors.prepare(begun.transaction_id, change("a", *append(1)))
    request = pb.CommitTransactionRequest(transaction_id=begun.transaction_id)
    try:
        await doors.stub.CommitTransaction(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        # The server gives the call up in time, or the client's own deadline comes first. Which one depends on the
        # machine. An answer of the server must be true.
        assert error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            assert (await doors.get(begun.transaction_id)).state == pb.TS_PREPARED
    assert (await doors.commit(begun.transaction_id)).state == pb.TS_APPLIED


async def test_health_and_reflection_and_what_is_counted(doors: Doors) -> None:
    health = health_pb2_grpc.HealthStub(doors.channel)
    for name in ("", SERVICE):
        answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    reflection = reflection_pb2_grpc.ServerReflectionStub(doors.channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in reflection.ServerReflectionInfo(iter([asked])):
        assert SERVICE in [one.name for one in answer.list_services_response.service]

    await failure(doors.get(new_key()))
    text = (await doors.wire.client.send("GET", "/metrics")).body.decode()
    assert 'lakepact_requests_total{operation="grpcGetTransaction",status_class="4xx"} 1.0' in text


async def test_a_server_that_stops_finishes_what_it_has_under_way(tmp_path: Path) -> None:
    async with opened(tmp_path, store="memory://", warehouse="memory://", held_wait_s=PATIENCE_S) as doors:
        await doors.tables("a")
        first, second = await doors.begin(), await doors.begin()
        await doors.prepare(first.transaction_id, change("a", *append(1)))
        # This one waits for the other to let go.
        waiting = asyncio.create_task(doors.prepare(second.transaction_id, change("a", *append(2))))

        async def is_under_way() -> bool:
            return "lakepact_open_requests 2.0" in await metrics(doors)

        await wait_until_async(is_under_way, "the call never reached the server")
        assert doors.service.grpc is not None
        stopping = asyncio.create_task(doors.service.grpc.stop(PATIENCE_S))

        async def refuses_calls() -> bool:
            try:
                await doors.get(first.transaction_id)
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                return True
            return False

        await wait_until_async(refuses_calls, "the server never began to stop")
        assert not waiting.done() and not stopping.done()
        assert (await doors.wire.post(f"/transactions/{first.transaction_id}/abort", {})).status == 200
        assert (await waiting).state == pb.TS_PREPARED
        await stopping


async def test_a_server_that_stops_takes_no_more_calls(tmp_path: Path) -> None:
    async with opened(tmp_path) as doors:
        await doors.begin()
        assert doors.service.grpc is not None
        await doors.service.grpc.stop(1.0)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await doors.begin()
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_the_generated_code_is_what_the_proto_file_says(root: Path) -> None:
    checked = subprocess.run(
        [sys.executable, str(root / "tools" / "generate_proto.py"), "--check"], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
