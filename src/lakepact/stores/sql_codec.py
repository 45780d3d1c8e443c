"""What both SQL stores agree on: a transaction as rows, and rows as a transaction.

Input is checked and encoded in one pass, so that every value becomes JSON exactly once on its way to the database.
What is legal, and what is said about it when it is not, stays in `kernel.checks`.

A record's plan is kept as one JSON text, `{"writes": [[key, revision, value], ...], "reads": [[key, revision], ...]}`,
put together from the values already encoded. Values are JSON *text* in both databases: a binary JSON type would
round 64-bit integers, reorder keys or refuse `\\u0000`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lakepact.errors import DuplicateCell, InvalidRequest, Unreadable
from lakepact.kernel.checks import check_cell_count, check_id, check_total, check_value
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, check_key
from lakepact.kernel.model import Cell, Isolation, Moved, Read, State, Transaction, TransactionRecord, Value, Write
from lakepact.kernel.settings import KernelSettings

MAX_REVISION: Final = 2**62
"""Both databases count in 64-bit integers, and the next revision must fit too."""

MAX_TEXT_BYTES: Final = 1_024
"""Hashes, operation ids and cursors are short; nothing else may be stored through them."""

# Keys made of these characters alone are legal whatever the other rules say, as long as every character may become
# three bytes of a document name. This is the common case, and it is some thirty times quicker to see.
_plain_key = re.compile(r"(?:[\w.-]|%2[5F])+(?:/(?:[\w.-]|%2[5F])+)*", re.ASCII).fullmatch
_MAX_PLAIN_KEY: Final = 290

_ANSWER: Final = Key("(answer)")
_PROPERTIES: Final = Key("(properties)")


# --- requests ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EncodedWrite:
    key: Key
    revision: int
    value: str | None


@dataclass(frozen=True, slots=True)
class EncodedTransaction:
    """A transaction that passed every check, its values encoded."""

    id: TransactionId
    request_hash: str
    writes: tuple[EncodedWrite, ...]
    reads: tuple[Read, ...]
    answer: str
    answer_value: Value
    plan: str
    sealed: bool


def encode_transaction(transaction: Transaction, settings: KernelSettings, now_ms: int) -> EncodedTransaction:
    """Check the whole request and encode it, or say what is wrong with it."""
    transaction_id = check_id(transaction.id, settings, now_ms)
    check_text("request_hash", transaction.request_hash)
    check_cell_count(len(transaction.writes) + len(transaction.reads), settings)
    seen: set[str] = set()
    writes: list[EncodedWrite] = []
    planned: list[str] = []
    total = 0
    for write in transaction.writes:
        json_key = _json_key(write.key, settings)
        _check_cell(write.key, write.revision, seen)
        value = encode_value(write.key, write.value, settings)
        total += len(value) if value is not None else 0
        writes.append(EncodedWrite(write.key, write.revision, value))
        planned.append(f"[{json_key},{write.revision},{value or 'null'}]")
    depended: list[str] = []
    for read in transaction.reads:
        depended.append(f"[{_json_key(read.key, settings)},{read.revision}]")
        _check_cell(read.key, read.revision, seen)
    answer = encode_value(_ANSWER, transaction.answer, settings) or "{}"
    check_total(total + len(answer), settings)
    return EncodedTransaction(
        id=transaction_id,
        request_hash=transaction.request_hash,
        writes=tuple(writes),
        reads=transaction.reads,
        answer=answer,
        answer_value=transaction.answer,
        plan=f'{{"writes":[{",".join(planned)}],"reads":[{",".join(depended)}]}}',
        sealed=transaction.sealed,
    )


def encode_value(key: Key, value: Value | None, settings: KernelSettings) -> str | None:
    if value is None:
        return None
    if isinstance(value, dict):
        try:
            data = orjson.dumps(value)
        except (TypeError, ValueError):
            data = b""
        if data and len(data) <= settings.max_value_bytes:
            return data.decode()
    check_value(key, value, settings)
    raise InvalidRequest(f"cell {key!r}: a value is a plain dict, not {type(value).__name__}")


def encode_answer(answer: Value | None, settings: KernelSettings) -> str | None:
    return encode_value(_ANSWER, answer, settings)


def encode_properties(properties: Mapping[str, str] | None, settings: KernelSettings) -> str:
    return encode_value(_PROPERTIES, dict(properties or {}), settings) or "{}"


def encode_staged(writes: Mapping[Key, Value | None], settings: KernelSettings) -> dict[Key, str | None]:
    """The values of one staging call, checked and encoded."""
    check_cell_count(len(writes), settings)
    encoded = {key: encode_value(legal_key(key, settings), value, settings) for key, value in writes.items()}
    check_total(staged_bytes(encoded.values()), settings)
    return encoded


def staged_bytes(values: Iterable[str | None]) -> int:
    return sum(len(value.encode()) for value in values if value is not None)


def legal_key(key: str, settings: KernelSettings) -> Key:
    if len(key) <= _MAX_PLAIN_KEY and len(key) <= settings.max_key_bytes and _plain_key(key):
        return Key(key)
    return check_key(key, settings.max_key_bytes)


def legal_keys(keys: Iterable[Key], settings: KernelSettings) -> tuple[Key, ...]:
    """The keys without repeats, in order, each checked."""
    unique = tuple(dict.fromkeys(keys))
    check_cell_count(len(unique), settings)
    for key in unique:
        legal_key(key, settings)
    return unique


def check_text(name: str, text: str) -> str:
    """Short text that every database can hold: no NUL, no lone surrogate."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"{name} is not valid Unicode; send plain text") from None
    if size > MAX_TEXT_BYTES or "\x00" in text:
        raise InvalidRequest(f"{name} must be at most {MAX_TEXT_BYTES} bytes of text without NUL; it has {size}")
    return text


def _json_key(key: Key, settings: KernelSettings) -> str:
    if len(key) <= _MAX_PLAIN_KEY and len(key) <= settings.max_key_bytes and _plain_key(key):
        return f'"{key}"'
    return orjson.dumps(check_key(key, settings.max_key_bytes)).decode()


def _check_cell(key: Key, revision: int, seen: set[str]) -> None:
    if key in seen:
        raise DuplicateCell(f"cell {key!r} is named twice in one transaction; name it once, written or read")
    seen.add(key)
    if not 0 <= revision < MAX_REVISION:
        raise InvalidRequest(
            f"cell {key!r}: revision {revision} is not one a cell can have; 0 means 'does not exist', "
            f"and a read tells the present one"
        )


# --- stored rows -------------------------------------------------------------------------------------------------------

RECORD_COLUMNS: Final = (
    "id, state, request_hash, created_ms, plan, answer, moved, expires_ms, retry_until_ms, decided_ms, "
    "isolation, properties, sealed"
)
"""The columns of a record that both databases have, in the order `Stored` takes them."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A transaction's row, its JSON still encoded."""

    id: TransactionId
    state: State
    request_hash: str
    created_ms: int
    plan: str | None
    answer: str | None
    moved: str | None
    expires_ms: int | None
    retry_until_ms: int | None
    decided_ms: int | None
    isolation: Isolation
    properties: str | None
    sealed: bool

    @classmethod
    def of(cls, row: Sequence[Any]) -> Stored:
        id_, state, request_hash, created, plan, answer, moved, expires, retry, decided, isolation, properties, sealed = row
        return cls(
            id=id_,
            state=State(state),
            request_hash=request_hash,
            created_ms=created,
            plan=plan,
            answer=answer,
            moved=moved,
            expires_ms=expires,
            retry_until_ms=retry,
            decided_ms=decided,
            isolation=Isolation(isolation) if isolation else Isolation.SERIALIZABLE,
            properties=properties,
            sealed=bool(sealed),
        )

    def public(self, staged: Iterable[StagedCell] = ()) -> TransactionRecord:
        """The record as callers see it; `staged` are the cells of a transaction that is still open."""
        writes, reads = decode_plan(self.id, self.plan) if self.plan is not None else plan_of(staged, self.isolation)
        return TransactionRecord(
            id=self.id,
            state=self.state,
            request_hash=self.request_hash,
            created_ms=self.created_ms,
            writes=writes,
            reads=reads,
            answer=decode_json(self.id, self.answer),
            moved=decode_moved(self.id, self.moved),
            expires_ms=self.expires_ms,
            decided_ms=self.decided_ms,
            isolation=self.isolation,
            properties=decode_json(self.id, self.properties) or {},
            # In a database a decision and its effects are one commit, so nothing is ever left to finish.
            finalized=self.state.final,
        )

    def sealed_plan(self, staged: Iterable[StagedCell] = ()) -> Transaction:
        writes, reads = decode_plan(self.id, self.plan) if self.plan is not None else plan_of(staged, self.isolation)
        answer = decode_json(self.id, self.answer) or {}
        return Transaction(self.id, self.request_hash, writes, reads, answer, sealed=True)


@dataclass(frozen=True, slots=True)
class StagedCell:
    """A cell an open transaction has read or written: the revision it saw, and the value it means to leave."""

    key: Key
    base: int
    written: bool
    value: str | None


def plan_of(staged: Iterable[StagedCell], isolation: Isolation) -> tuple[tuple[Write, ...], tuple[Read, ...]]:
    writes: list[Write] = []
    reads: list[Read] = []
    for cell in staged:
        if cell.written:
            writes.append(Write(cell.key, cell.base, decode_json(cell.key, cell.value)))
        elif isolation is Isolation.SERIALIZABLE:
            reads.append(Read(cell.key, cell.base))
    return tuple(writes), tuple(reads)


def decode_plan(owner: str, text: str) -> tuple[tuple[Write, ...], tuple[Read, ...]]:
    plan = decode_json(owner, text) or {}
    writes = tuple(Write(Key(key), revision, value) for key, revision, value in plan["writes"])
    return writes, tuple(Read(Key(key), revision) for key, revision in plan["reads"])


def encode_moved(moved: Iterable[Moved]) -> str:
    return orjson.dumps([[cell.key, cell.expected, cell.actual] for cell in moved]).decode()


def decode_moved(owner: str, text: str | None) -> tuple[Moved, ...]:
    if text is None:
        return ()
    try:
        return tuple(Moved(Key(key), expected, actual) for key, expected, actual in orjson.loads(text))
    except (orjson.JSONDecodeError, TypeError, ValueError) as error:
        raise _unreadable(owner, error) from None


def decode_json(owner: str, text: str | None) -> Any:
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _unreadable(owner, error) from None


def cell_of(key: Key, revision: int, value: str | None, writer: str | None) -> Cell:
    return Cell(key, revision, decode_json(key, value), TransactionId(writer) if writer is not None else None)


def _unreadable(owner: str, error: Exception) -> Unreadable:
    return Unreadable(f"what the database holds for {owner!r} is not JSON ({error}). Restore that row from a backup")
