"""Bad input is refused before anything is written, by a named error that says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.errors import (
    DuplicateCell,
    IllegalKey,
    InvalidRequest,
    InvalidTransactionId,
    KeepsNoRows,
    TooManyCells,
    ValueTooLarge,
)
from lakepact.kernel.checks import check_keys, check_limit, check_transaction, check_ttl
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Read, Transaction, Write
from lakepact.kernel.settings import KernelSettings

NOW_MS = 1_760_000_000_000
SETTINGS = KernelSettings(max_cells=3, max_value_bytes=100, max_transaction_bytes=150)


def transaction(**changes: Any) -> Transaction:
    return Transaction(**{"id": uuid7(NOW_MS, 1), "request_hash": "", **changes})


def check(asked: Transaction) -> None:
    check_transaction(asked, SETTINGS, NOW_MS)


def test_a_transaction_within_all_limits_passes() -> None:
    check(transaction(writes=(Write(Key("a"), 0, {"x": 1}), Write(Key("b"), 3, None)), reads=(Read(Key("c"), 1),)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"id": TransactionId("x")}, InvalidTransactionId),
        ({"writes": (Write(Key("a//b"), 0, {}),)}, IllegalKey),
        ({"reads": (Read(Key(""), 0),)}, IllegalKey),
        ({"writes": (Write(Key("a"), 0, {}),), "reads": (Read(Key("a"), 0),)}, DuplicateCell),
        ({"writes": (Write(Key("a"), 0, {}), Write(Key("a"), 0, {}))}, DuplicateCell),
        ({"reads": tuple(Read(Key(name), 0) for name in "abcd")}, TooManyCells),
        ({"beside": {}}, KeepsNoRows),
        ({"writes": (Write(Key("a"), -1, {}),)}, InvalidRequest),
        ({"writes": (Write(Key("a"), 0, {"x": "y" * 100}),)}, ValueTooLarge),
        ({"writes": (Write(Key("a"), 0, {"x": "y" * 80}), Write(Key("b"), 0, {"x": "y" * 80}))}, ValueTooLarge),
        ({"answer": {"x": "y" * 100}}, ValueTooLarge),
        ({"writes": (Write(Key("a"), 0, {"x": object()}),)}, InvalidRequest),
        ({"writes": (Write(Key("a"), 0, [1]),)}, InvalidRequest),  # type: ignore[arg-type]
    ],
)
def test_each_kind_of_bad_input_has_its_own_error(changes: dict[str, Any], error: type[InvalidRequest]) -> None:
    with pytest.raises(error):
        check(transaction(**changes))


def test_keys_are_read_once_each_in_the_order_given() -> None:
    assert check_keys([Key("b"), Key("a"), Key("b")], SETTINGS) == ("b", "a")


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_is_bounded(limit: int) -> None:
    with pytest.raises(InvalidRequest, match="max_page"):
        check_limit(limit, SETTINGS)


@pytest.mark.parametrize("ttl_s", [0, -1.0, 86_401.0])
def test_a_life_time_is_bounded(ttl_s: float) -> None:
    with pytest.raises(InvalidRequest, match="max_ttl_s"):
        check_ttl(ttl_s, SETTINGS)


def test_without_a_life_time_the_default_holds() -> None:
    assert check_ttl(None, SETTINGS) == SETTINGS.open_ttl_s
