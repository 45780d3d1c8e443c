"""The gRPC door asks the same question as the REST one: same tokens, same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from lakepact.runtime import SystemClock
from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.support.doors import Door, asking
from tests.support.issuer import Issuer
from tests.support.waiting import PATIENCE_S


async def begun(door: Door, *authorization: str) -> pb.Transaction:
    assert door.service.grpc is not None
    port = await door.service.grpc.start() if door.grpc_port is None else door.grpc_port
    door.grpc_port = port
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = transactions_pb2_grpc.TransactionsStub(channel)
        metadata = [("authorization", value) for value in authorization]
        answer = await stub.BeginTransaction(pb.BeginTransactionRequest(), metadata=metadata)
        transaction: pb.Transaction = answer.transaction
        return transaction


async def refused(door: Door, *authorization: str) -> tuple[grpc.StatusCode, str, Any]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await begun(door, *authorization)
    error: Any = caught.value
    status = rpc_status.from_call(error)
    info = error_details_pb2.ErrorInfo()
    status.details[0].Unpack(info)
    return error.code(), info.reason, status


async def test_t_auth_1_a_call_needs_a_token_and_says_who_it_was(
    tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakepact.server.auth.issuer._WITHIN_S", PATIENCE_S)
    async with asking(tmp_path, grpc_port=0, **issuer.settings()) as door:
        made = await door.tokens.create("loader", admin=True)
        everyone = {"holder": "everyone", "role": "read", "on": "warehouse"}
        assert (await door.post("/v1/main/grants", everyone, made.text)).status == 200
        for token in (made.text, issuer.token()):
            transaction = await begun(door, f"Bearer {token}")
            assert transaction.state == pb.TS_OPEN
        for wrong in ([], ["Bearer x"], [made.text], [f"Bearer {made.text}"] * 2, [f"Basic {made.text}"]):
            code, reason, _ = await refused(door, *wrong)
            assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "NotAuthorizedException")
        await door.tokens.revoke(made.token.id)
        assert (await refused(door, f"Bearer {made.text}"))[0] is grpc.StatusCode.UNAUTHENTICATED


async def test_health_answers_everybody(tmp_path: Path) -> None:
    async with asking(tmp_path, grpc_port=0) as door:
        await refused(door)
        target = f"127.0.0.1:{door.grpc_port}"
        async with grpc.aio.insecure_channel(target, [("grpc.enable_http_proxy", 0)]) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_calls_beyond_the_rate_are_told_when_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    async with asking(tmp_path, grpc_port=0, rate_limit_per_s=0.1, rate_limit_burst=1) as door:
        made = await door.tokens.create("loader", admin=True)
        await begun(door, f"Bearer {made.text}")
        code, reason, status = await refused(door, f"Bearer {made.text}")
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TooManyRequestsException")
        retry = error_details_pb2.RetryInfo()
        assert status.details[1].Unpack(retry)
        assert retry.retry_delay.seconds == 10
