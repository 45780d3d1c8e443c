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
from functools import lru_cache
from typing import Any, Final

import orjson

from lakepact.delta.beside import KEY as DELTA
from lakepact.errors import DuplicateCell, InvalidRequest, Unreadable
from lakepact.kernel.checks import check_cell_count, check_id, check_properties, check_text, check_total, check_value
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, check_key
from lakepact.kernel.model import Cell, Isolation, Moved, Read, State, Transaction, TransactionRecord, Value, Write
from lakepact.kernel.settings import KernelSettings

MAX_REVISION: Final = 2**62
"""Both databases count in 64-bit integers, and the next revision must fit too."""

MAX_PASS: Final = 1_000
"""Rows one pass of upkeep changes at most, in one database transaction."""

# Keys made of these characters alone are legal as long as every character may become three bytes of a document name.
# This is the common case, and it is much quicker to see.
_plain_key = re.compile(r"[\w./-]+", re.ASCII).fullmatch
_MAX_PLAIN_KEY: Final = 290

_ANSWER: Final = Key("(answer)")


# --- requests ---


@dataclass(slots=True)
class EncodedTransaction:
    """A transaction that passed every check, its values encoded. Written cells lie in three lists side by side."""

    id: TransactionId
    request_hash: str
    keys: list[Key]
    revisions: list[int]
    values: list[str | None]
    reads: tuple[Read, ...]
    answer: str
    answer_value: Value
    plan: str
    sealed: bool
    beside: str | None
    """What the companion shall do with the commit, as JSON. No part of the plan."""

    def expected(self) -> dict[Key, int]:
        """The planned revision of every cell, written or read."""
        expected = dict(zip(self.keys, self.revisions, strict=True))
        expected.update((read.key, read.revision) for read in self.reads)
        return expected


def encode_transaction(transaction: Transaction, settings: KernelSettings, now_ms: int) -> EncodedTransaction:
    """Check the whole request and encode it, or say what is wrong with it."""
    transaction_id = check_id(transaction.id, settings, now_ms)
    storable_text("request_hash", transaction.request_hash)
    check_cell_count(len(transaction.writes) + len(transaction.reads), settings)
    longest = settings.max_key_bytes
    keys: list[Key] = []
    revisions: list[int] = []
    values: list[str | None] = []
    planned: list[str] = []
    total = 0
    for write in transaction.writes:
        key, revision = write.key, write.revision
        json_key = _json_key(key, longest)
        if not 0 <= revision < MAX_REVISION:
            raise _impossible(key, revision)
        value = encode_value(key, write.value, settings)
        if value is not None:
            total += len(value)
            planned.append(f"[{json_key},{revision},{value}]")
        else:
            planned.append(f"[{json_key},{revision},null]")
        keys.append(key)
        revisions.append(revision)
        values.append(value)
    depended: list[str] = []
    for read in transaction.reads:
        depended.append(f"[{_json_key(read.key, longest)},{read.revision}]")
        if not 0 <= read.revision < MAX_REVISION:
            raise _impossible(read.key, read.revision)
    _check_distinct([*keys, *(read.key for read in transaction.reads)])
    answer = encode_value(_ANSWER, transaction.answer, settings) or "{}"
    check_total(total + len(answer), settings)
    beside = encode_beside(transaction.beside, settings)
    return EncodedTransaction(
        id=transaction_id,
        request_hash=transaction.request_hash,
        keys=keys,
        revisions=revisions,
        values=values,
        reads=transaction.reads,
        answer=answer,
        answer_value=transaction.answer,
        plan=f'{{"writes":[{",".join(planned)}],"reads":[{",".join(depended)}]}}',
        sealed=transaction.sealed,
        beside=beside,
    )


def encode_beside(beside: Value | None, settings: KernelSettings) -> str | None:
    """The document as JSON text. What it says is the companion's to judge; it must be one that there is."""
    if beside is None:
        return None
    if set(beside) != {DELTA}:
        raise InvalidRequest(
            f"beside the cells there may be {DELTA!r}, not {', '.join(map(repr, beside)) or 'nothing'}"
        )
    try:
        data = orjson.dumps(beside)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"what is beside the cells cannot be written as JSON: {error}") from None
    if b"\\u0000" in data:
        raise InvalidRequest("what is beside the cells holds a NUL character, which PostgreSQL cannot store")
    check_total(len(data), settings)
    return data.decode()


def encode_value(key: Key, value: Value | None, settings: KernelSettings) -> str | None:
    """The value as JSON text, if it is one that JSON gives back unchanged, within the limit."""
    if value is None:
        return None
    try:
        data = orjson.dumps(value)
        if type(value) is dict and len(data) <= settings.max_value_bytes and orjson.loads(data) == value:
            return data.decode()
    except (TypeError, ValueError):
        pass
    # Something is wrong with it, or at least unusual: the kernel's own check says what.
    return orjson.dumps(check_value(key, value, settings).value).decode()


def encode_answer(answer: Value | None, settings: KernelSettings) -> str | None:
    return encode_value(_ANSWER, answer, settings)


def encode_properties(properties: Mapping[str, str] | None) -> str:
    return orjson.dumps(check_properties(properties or {})).decode()


def encode_staged(writes: Mapping[Key, Value | None], settings: KernelSettings) -> dict[Key, str | None]:
    """The values of one staging call, checked and encoded."""
    check_cell_count(len(writes), settings)
    encoded = {key: encode_value(legal_key(key, settings), value, settings) for key, value in writes.items()}
    check_total(staged_bytes(encoded.values()), settings)
    return encoded


def staged_bytes(values: Iterable[str | None]) -> int:
    return sum(len(value.encode()) for value in values if value is not None)


def legal_key(key: str, settings: KernelSettings) -> Key:
    _json_key(key, settings.max_key_bytes)
    return Key(key)


def legal_keys(keys: Iterable[Key], settings: KernelSettings) -> tuple[Key, ...]:
    """The keys without repeats, in order, each checked."""
    unique = tuple(dict.fromkeys(keys))
    check_cell_count(len(unique), settings)
    for key in unique:
        legal_key(key, settings)
    return unique


def key_range(prefix: str, after: str | None) -> tuple[str, str]:
    """Two keys, neither of them included, that bound what lies below the prefix and is still to come."""
    # "0" is the character after "/", so `prefix/` and `prefix0` bound exactly the keys below a prefix.
    first, last = (f"{prefix}/", f"{prefix}0") if prefix else ("", "\U0010ffff")
    return max(first, after or ""), last


def pass_size(limit: int) -> int:
    """How much one pass of upkeep may do: what was asked for, but never so much that others wait for it."""
    return max(1, min(limit, MAX_PASS))


def storable_text(what: str, text: str) -> str:
    """Short text that every database can hold."""
    check_text(what, text)
    if "\x00" in text:
        raise InvalidRequest(f"{what} holds a NUL character, which PostgreSQL cannot store; leave it out")
    return text


@lru_cache(maxsize=16_384)
def _json_key(key: str, max_key_bytes: int) -> str:
    """The key as JSON, if it is legal. The same cells are written again and again, so it is remembered."""
    if (
        len(key) <= min(_MAX_PLAIN_KEY, max_key_bytes)
        and _plain_key(key)
        and "//" not in key
        and key[0] != "/"
        and key[-1] != "/"
    ):
        return f'"{key}"'
    return orjson.dumps(check_key(key, max_key_bytes)).decode()


def _check_distinct(keys: list[Key]) -> None:
    if len(set(keys)) < len(keys):
        key = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise DuplicateCell(f"cell {key!r} is named twice in one transaction; name it once, written or read")


def _impossible(key: Key, revision: int) -> InvalidRequest:
    return InvalidRequest(
        f"cell {key!r}: revision {revision} is not one a cell can have; 0 means 'does not exist', "
        f"and a read tells the present one"
    )


# --- stored rows ---

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
        (
            id_,
            state,
            request_hash,
            created,
            plan,
            answer,
            moved,
            expires,
            retry,
            decided,
            isolation,
            properties,
            sealed,
        ) = row
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

    def public(self) -> TransactionRecord:
        """The record as callers see it. An open transaction has no plan yet."""
        writes, reads = decode_plan(self.id, self.plan) if self.plan is not None else ((), ())
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
            sealed=self.sealed and self.state is State.OPEN,
        )

    def sealed_plan(self, staged: Iterable[StagedCell], answer: Value | None) -> Transaction:
        """What `seal` returns: the plan made of the staged cells, or the one it was decided or prepared with."""
        writes, reads = decode_plan(self.id, self.plan) if self.plan is not None else plan_of(staged, self.isolation)
        return Transaction(self.id, self.request_hash, writes, reads, answer or {}, sealed=True)

    def contents(self, staged: Iterable[StagedCell]) -> Transaction:
        """What the transaction holds by now: what is staged while it is open, and its plan from then on."""
        writes, reads = decode_plan(self.id, self.plan) if self.plan is not None else plan_of(staged, self.isolation)
        answer = decode_json(self.id, self.answer) or {}
        sealed = self.sealed or self.state is not State.OPEN
        return Transaction(self.id, self.request_hash, writes, reads, answer, sealed=sealed)


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
