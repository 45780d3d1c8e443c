"""Bad input raises before anything is written, and the message says what to change."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from lakepact.errors import (
    DuplicateCell,
    IllegalKey,
    InvalidRequest,
    InvalidTransactionId,
    TooManyCells,
    TransactionNotFound,
    ValueTooLarge,
)
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Read, Transaction, Write
from tests.conformance.cells.world import SETTINGS, A, B, World, keys

_DAY_MS = 86_400_000

ILLEGAL_KEYS = [
    "",
    "/",
    "/main",
    "main/",
    "main//a",
    "main/%",
    "main/%2f",
    "main/%41",
    "main/a\x00b",
    "main/a\nb",
    "main/\ud800",
    "main/" + "x" * 600,
]
BAD_VALUES: list[tuple[Any, type[InvalidRequest]]] = [
    ([1, 2], InvalidRequest),
    ("text", InvalidRequest),
    ({"n": 2**64}, InvalidRequest),
    ({"n": object()}, InvalidRequest),
    ({1: "a number as a key"}, InvalidRequest),
    ({"text": "\ud800"}, InvalidRequest),
    ({"tuple": (1, 2)}, InvalidRequest),
    ({"not a number": math.nan}, InvalidRequest),
    ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, InvalidRequest),
    ({"text": "x" * SETTINGS.max_value_bytes}, ValueTooLarge),
]


async def _nothing_written(world: World, transaction_id: TransactionId | None = None) -> None:
    assert (await world.store.scan("")).cells == ()
    assert (await world.store.transactions()).transactions == ()
    if transaction_id is not None:
        assert await world.store.lookup(transaction_id) is None


@pytest.mark.parametrize("key", ILLEGAL_KEYS, ids=lambda key: repr(key)[:20])
async def test_an_illegal_key_is_refused_wherever_it_is_named(world: World, key: str) -> None:
    plan = world.transaction({B: (0, {"n": 1}), Key(key): (0, {"n": 1})})
    with pytest.raises(IllegalKey):
        await world.store.commit(plan)
    with pytest.raises(IllegalKey):
        await world.store.prepare(plan)
    with pytest.raises(IllegalKey):
        await world.store.commit(world.transaction({B: (0, {})}, {Key(key): 0}))
    with pytest.raises(IllegalKey):
        await world.store.read([B, Key(key)])
    if key:
        with pytest.raises(IllegalKey):
            await world.store.scan(key)
    await _nothing_written(world, plan.id)


async def test_an_illegal_key_is_refused_inside_an_open_transaction(world: World) -> None:
    transaction_id = await world.begin()
    with pytest.raises(IllegalKey):
        await world.store.stage(transaction_id, "1", {B: {"n": 1}, Key("main//a"): {"n": 1}})
    with pytest.raises(IllegalKey):
        await world.store.read_in(transaction_id, [B, Key("main//a")])
    plan = await world.store.seal(transaction_id)
    assert (plan.writes, plan.reads) == ((), ())


@pytest.mark.parametrize(("value", "error"), BAD_VALUES, ids=[str(value)[:20] for value, _ in BAD_VALUES])
async def test_a_value_that_is_no_json_object_within_the_limit_is_refused(
    world: World, value: Any, error: type[InvalidRequest]
) -> None:
    plan = world.transaction({B: (0, {"n": 1}), A: (0, value)})
    with pytest.raises(error):
        await world.store.commit(plan)
    with pytest.raises(error):
        await world.store.prepare(plan)
    with pytest.raises(error):
        await world.store.commit(world.transaction({B: (0, {"n": 1})}, answer=value))
    with pytest.raises(error):
        await world.store.fail(world.id(), "hash", value)
    await _nothing_written(world, plan.id)
    transaction_id = await world.begin()
    with pytest.raises(error):
        await world.store.stage(transaction_id, "1", {B: {"n": 1}, A: value})
    assert (await world.store.seal(transaction_id)).writes == ()


async def test_more_cells_than_the_limit_are_refused(world: World) -> None:
    many = keys(SETTINGS.max_cells + 1)
    with pytest.raises(TooManyCells, match="max_cells"):
        await world.store.commit(world.transaction({key: (0, {}) for key in many}))
    with pytest.raises(TooManyCells):
        await world.store.commit(world.transaction({key: (0, {}) for key in many[:60]}, dict.fromkeys(many[60:], 0)))
    with pytest.raises(TooManyCells):
        await world.store.read(many)
    await _nothing_written(world)


async def test_more_bytes_than_the_limit_are_refused(world: World) -> None:
    value = {"text": "x" * (SETTINGS.max_value_bytes - 20)}
    many = keys(SETTINGS.max_transaction_bytes // SETTINGS.max_value_bytes + 2)
    with pytest.raises(ValueTooLarge, match="max_transaction_bytes"):
        await world.store.commit(world.transaction(dict.fromkeys(many, (0, value))))
    await _nothing_written(world)


async def test_a_cell_named_twice_is_refused(world: World) -> None:
    write, read = Write(A, 0, {}), Read(A, 0)
    for transaction in (
        Transaction(world.id(), "hash", (write, write)),
        Transaction(world.id(), "hash", (write,), (read,)),
        Transaction(world.id(), "hash", (), (read, read)),
    ):
        with pytest.raises(DuplicateCell):
            await world.store.commit(transaction)
        with pytest.raises(DuplicateCell):
            await world.store.prepare(transaction)
    await _nothing_written(world)


async def test_a_negative_revision_is_refused(world: World) -> None:
    with pytest.raises(InvalidRequest):
        await world.store.commit(world.transaction({A: (-1, {})}))
    with pytest.raises(InvalidRequest):
        await world.store.commit(world.transaction({A: (0, {})}, {B: -1}))
    await _nothing_written(world)


@pytest.mark.parametrize("text", ["", "x", "not-an-id", "6fa459ea-ee8a-4ca4-894e-db77e160355e"])
async def test_an_id_that_is_no_uuid7_is_refused_by_every_call(world: World, text: str) -> None:
    bad, store = TransactionId(text), world.store
    calls: Mapping[str, Callable[[], Awaitable[object]]] = {
        "commit": lambda: store.commit(world.transaction({A: (0, {})}, id=TransactionId(text or " "))),
        "prepare": lambda: store.prepare(world.transaction({A: (0, {})}, id=TransactionId(text or " "))),
        "fail": lambda: store.fail(bad, "hash", {}),
        "lookup": lambda: store.lookup(bad),
        "begin": lambda: store.begin(bad),
        "read_in": lambda: store.read_in(bad, [A]),
        "stage": lambda: store.stage(bad, "1", {A: {}}),
        "seal": lambda: store.seal(bad),
        "renew": lambda: store.renew(bad),
        "abort": lambda: store.abort(bad),
    }
    for call in calls.values():
        with pytest.raises(InvalidTransactionId):
            await call()
    await _nothing_written(world)


async def test_an_id_from_outside_the_horizon_is_refused(world: World) -> None:
    now_ms = world.clock.now_ms()
    old = uuid7(now_ms - (SETTINGS.horizon_days + 1) * _DAY_MS, 1)
    ahead = uuid7(now_ms + int(SETTINGS.max_ahead_s * 1000) + 60_000, 1)
    for bad in (old, ahead):
        with pytest.raises(InvalidTransactionId):
            await world.store.commit(world.transaction({A: (0, {})}, id=bad))
        with pytest.raises(InvalidTransactionId):
            await world.store.prepare(world.transaction({A: (0, {})}, id=bad))
        with pytest.raises(InvalidTransactionId):
            await world.store.begin(bad)
        with pytest.raises(InvalidTransactionId):
            await world.store.fail(bad, "hash", {})
        assert await world.store.lookup(bad) is None
    await _nothing_written(world)


async def test_a_page_size_out_of_bounds_is_refused(world: World) -> None:
    for limit in (0, -1, SETTINGS.max_page + 1):
        with pytest.raises(InvalidRequest, match="max_page"):
            await world.store.scan("", limit=limit)
        with pytest.raises(InvalidRequest, match="max_page"):
            await world.store.transactions(limit=limit)


async def test_a_life_out_of_bounds_is_refused(world: World) -> None:
    transaction_id = await world.begin()
    for ttl_s in (0, -1, SETTINGS.max_ttl_s + 1):
        with pytest.raises(InvalidRequest, match="max_ttl_s"):
            await world.store.begin(world.id(), ttl_s=ttl_s)
        with pytest.raises(InvalidRequest, match="max_ttl_s"):
            await world.store.renew(transaction_id, ttl_s)


async def test_an_unknown_transaction_is_not_found(world: World) -> None:
    unknown, store = world.id(), world.store
    for call in (
        lambda: store.read_in(unknown, [A]),
        lambda: store.stage(unknown, "1", {A: {}}),
        lambda: store.seal(unknown),
        lambda: store.renew(unknown),
        lambda: store.abort(unknown),
    ):
        with pytest.raises(TransactionNotFound):
            await call()
    await _nothing_written(world)
