"""Input is checked once, here, before anything is written. Every error says what to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import orjson

from lakepact.errors import DuplicateCell, InvalidRequest, KeepsNoRows, TooManyCells, ValueTooLarge
from lakepact.kernel.identity import TransactionId, check_horizon, parse_transaction_id
from lakepact.kernel.keys import Key, check_key
from lakepact.kernel.model import Read, Transaction, Value, Write
from lakepact.kernel.settings import KernelSettings

_MAX_TEXT_BYTES = 4_096
_MAX_PROPERTIES = 100
_REVISIONS = 1 << 62


def check_transaction(transaction: Transaction, settings: KernelSettings, now_ms: int) -> Transaction:
    """The transaction as it will be kept in documents: its id in canonical form, its values copies of their own."""
    if transaction.beside is not None:
        raise KeepsNoRows(
            "this store keeps documents, and the transaction would change rows with its cells. Delta tables need a SQL "
            "store: sqlite or postgresql"
        )
    transaction_id = check_id(transaction.id, settings, now_ms)
    check_text("request_hash", transaction.request_hash)
    cells: list[Write | Read] = [*transaction.writes, *transaction.reads]
    check_cell_count(len(cells), settings)
    seen: set[Key] = set()
    for cell in cells:
        check_key(cell.key, settings.max_key_bytes)
        if cell.key in seen:
            raise DuplicateCell(f"cell {cell.key!r} is named twice in one transaction; name it once, written or read")
        seen.add(cell.key)
        check_revision(cell.key, cell.revision)
    kept = {write.key: check_value(write.key, write.value, settings) for write in transaction.writes}
    answer = check_value(Key("(answer)"), transaction.answer, settings)
    check_total(sum(value.size for value in kept.values()) + answer.size, settings)
    return replace(
        transaction,
        id=transaction_id,
        writes=tuple(Write(write.key, write.revision, kept[write.key].value) for write in transaction.writes),
        answer=answer.value or {},
    )


def check_revision(key: Key, revision: int) -> None:
    if not 0 <= revision < _REVISIONS:
        raise InvalidRequest(f"cell {key!r}: {revision} is no revision; 0 means 'does not exist'")


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


def check_staged(
    operation_id: str, writes: Mapping[Key, Value | None], settings: KernelSettings
) -> dict[Key, CheckedValue]:
    check_text("operation_id", operation_id)
    check_keys(writes, settings)
    kept = {key: check_value(key, value, settings) for key, value in writes.items()}
    check_total(sum(value.size for value in kept.values()), settings)
    return kept


@dataclass(frozen=True, slots=True)
class CheckedValue:
    """A value as it will be kept, and its size when encoded."""

    value: Value | None
    size: int


def check_value(key: Key, value: Value | None, settings: KernelSettings) -> CheckedValue:
    """A copy of the value, if it is a JSON object within the limit.

    A copy, because the caller may go on changing its own; and exactly JSON, because a process that remembers what
    it wrote must see the same as one that reads it: no tuples, dates or NaN, which JSON would turn into something else.
    """
    if value is None:
        return CheckedValue(None, 0)
    if not isinstance(value, dict):
        raise InvalidRequest(f"cell {key!r}: a value is a JSON object (a dict), not {type(value).__name__}")
    try:
        encoded = orjson.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"cell {key!r}: the value cannot be written as JSON: {error}") from None
    if len(encoded) > settings.max_value_bytes:
        raise ValueTooLarge(
            f"cell {key!r}: the value is {len(encoded)} bytes; the limit is {settings.max_value_bytes} "
            f"(max_value_bytes). Keep large content in a blob and its location in the cell"
        )
    copy = orjson.loads(encoded)
    if copy != value:
        raise InvalidRequest(
            f"cell {key!r}: the value would change when written as JSON; use only objects, lists, text, finite "
            f"numbers, true, false and null"
        )
    return CheckedValue(copy, len(encoded))


def check_text(what: str, text: str) -> None:
    """Text that is kept with a transaction must be storable, and small."""
    try:
        length = len(text.encode("utf-8"))
    except (UnicodeEncodeError, AttributeError):
        raise InvalidRequest(f"{what} must be valid Unicode text, not {text!r}") from None
    if "\x00" in text:
        raise InvalidRequest(f"{what} holds a NUL character, which not every store can keep")
    if length > _MAX_TEXT_BYTES:
        raise InvalidRequest(f"{what} has {length} bytes; the limit is {_MAX_TEXT_BYTES}")


def check_properties(properties: Mapping[str, str]) -> dict[str, str]:
    if len(properties) > _MAX_PROPERTIES:
        raise InvalidRequest(f"a transaction has at most {_MAX_PROPERTIES} properties, not {len(properties)}")
    for name, value in properties.items():
        check_text("a property's name", name)
        check_text(f"property {name!r}", value)
    return dict(properties)


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
