"""Input is checked once, here, before anything is written. Every error says what to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

from lakepact.errors import DuplicateCell, InvalidRequest, TooManyCells, ValueTooLarge
from lakepact.kernel.identity import TransactionId, check_horizon, parse_transaction_id
from lakepact.kernel.keys import Key, check_key
from lakepact.kernel.model import Read, Transaction, Value, Write
from lakepact.kernel.settings import KernelSettings


def check_transaction(transaction: Transaction, settings: KernelSettings, now_ms: int) -> None:
    check_id(transaction.id, settings, now_ms)
    cells: list[Write | Read] = [*transaction.writes, *transaction.reads]
    check_cell_count(len(cells), settings)
    seen: set[Key] = set()
    total = 0
    for cell in cells:
        check_key(cell.key, settings.max_key_bytes)
        if cell.key in seen:
            raise DuplicateCell(f"cell {cell.key!r} is named twice in one transaction; name it once, written or read")
        seen.add(cell.key)
        if cell.revision < 0:
            raise InvalidRequest(f"cell {cell.key!r}: revision {cell.revision} is negative; 0 means 'does not exist'")
    for write in transaction.writes:
        total += check_value(write.key, write.value, settings)
    total += check_value(Key("(answer)"), transaction.answer, settings)
    check_total(total, settings)


def check_id(transaction_id: str, settings: KernelSettings, now_ms: int) -> TransactionId:
    parsed = parse_transaction_id(transaction_id)
    check_horizon(parsed, now_ms, settings.horizon_days, settings.max_ahead_s)
    return parsed


def check_cell_count(count: int, settings: KernelSettings) -> None:
    if count > settings.max_cells:
        raise TooManyCells(f"the transaction names {count} cells; the limit is {settings.max_cells} (max_cells)")


def check_total(total: int, settings: KernelSettings) -> None:
    if total > settings.max_transaction_bytes:
        raise ValueTooLarge(
            f"the transaction's values are {total} bytes; the limit is {settings.max_transaction_bytes} "
            f"(max_transaction_bytes). Split it, or keep large content in blobs"
        )


def check_keys(keys: Iterable[Key], settings: KernelSettings) -> tuple[Key, ...]:
    """The keys without repeats, in order, each checked."""
    unique = tuple(dict.fromkeys(keys))
    check_cell_count(len(unique), settings)
    for key in unique:
        check_key(key, settings.max_key_bytes)
    return unique


def check_staged(writes: Mapping[Key, Value | None], settings: KernelSettings) -> None:
    check_keys(writes, settings)
    check_total(sum(check_value(key, value, settings) for key, value in writes.items()), settings)


def check_value(key: Key, value: Value | None, settings: KernelSettings) -> int:
    """The encoded size of the value, if it is a JSON object within the limit."""
    if value is None:
        return 0
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"cell {key!r}: a value is a JSON object (a mapping), not {type(value).__name__}")
    try:
        size = len(orjson.dumps(value))
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"cell {key!r}: the value cannot be written as JSON: {error}") from None
    if size > settings.max_value_bytes:
        raise ValueTooLarge(
            f"cell {key!r}: the value is {size} bytes; the limit is {settings.max_value_bytes} (max_value_bytes). "
            f"Keep large content in a blob and its location in the cell"
        )
    return size


def check_limit(limit: int, settings: KernelSettings) -> int:
    if not 1 <= limit <= settings.max_page:
        raise InvalidRequest(f"a page holds 1 to {settings.max_page} entries (max_page), not {limit}")
    return limit


def check_ttl(ttl_s: float | None, settings: KernelSettings) -> float:
    if ttl_s is None:
        return settings.open_ttl_s
    if not 0 < ttl_s <= settings.max_ttl_s:
        raise InvalidRequest(f"a transaction lives more than 0 and at most {settings.max_ttl_s} s (max_ttl_s)")
    return ttl_s
