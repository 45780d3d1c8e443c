"""Stored documents as the oracle reads them: from their bytes, independently of the kernel's own decoder."""

from __future__ import annotations

from typing import Any

import orjson

CELLS = "cells/"
RECORDS = "transactions/"
STAGED = "staged/"

Lock = tuple[str, int]
"""The transaction and the epoch a cell is locked by."""


class SeenCell:
    __slots__ = ("key", "lock", "revision", "value", "writer", "writes")

    def __init__(self, fields: dict[str, Any]) -> None:
        lock = fields.get("lock")
        self.key: str = fields["key"]
        self.revision: int = fields["revision"]
        self.writes: int = fields["writes"]
        self.value: dict[str, Any] | None = fields["value"]
        self.writer: str | None = fields["writer"]
        self.lock: Lock | None = (lock["tx"], lock["epoch"]) if lock is not None else None


class SeenRecord:
    __slots__ = (
        "answer",
        "epoch",
        "finalized",
        "id",
        "isolation",
        "owner",
        "plan",
        "reads",
        "reads_locked",
        "request_hash",
        "state",
        "touched",
        "trimmed",
        "writes",
    )

    def __init__(self, fields: dict[str, Any]) -> None:
        self.id: str = fields["id"]
        self.writes: int = fields["writes"]
        self.owner: str = fields["owner"]
        self.epoch: int = fields["epoch"]
        self.state: str = fields["state"]
        self.request_hash: str = fields["request_hash"]
        self.plan: dict[str, dict[str, Any]] = fields["plan"]
        self.reads: dict[str, int] = fields["reads"]
        self.reads_locked: bool = fields["reads_locked"]
        self.touched: list[str] = fields["touched"]
        self.answer: dict[str, Any] | None = fields["answer"]
        self.isolation: str = fields["isolation"]
        self.finalized: bool = fields["finalized"]
        self.trimmed: bool = fields["trimmed"]


def fields_of(data: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = orjson.loads(data)
    return fields


def short(transaction_id: str | None) -> str:
    """Enough of an id to tell transactions of one run apart: ids of one moment differ only at their end."""
    return transaction_id[-6:] if transaction_id else "-"


def describe(name: str, data: bytes | None) -> str:
    """One line for the log."""
    if data is None:
        return "nothing"
    fields = fields_of(data)
    if name.startswith(CELLS):
        cell = SeenCell(fields)
        lock = f" locked by {short(cell.lock[0])} epoch {cell.lock[1]}" if cell.lock else ""
        return f"revision {cell.revision} by {short(cell.writer)} value {cell.value}{lock} (writes {cell.writes})"
    if name.startswith(RECORDS):
        record = SeenRecord(fields)
        plan = {key: entry["revision"] for key, entry in record.plan.items()}
        flags = "".join(f" {flag}" for flag in ("finalized", "trimmed", "reads_locked") if getattr(record, flag))
        return (
            f"{short(record.id)} {record.state} epoch {record.epoch} owner {record.owner[:6]} plan {plan} "
            f"reads {record.reads}{flags} (writes {record.writes})"
        )
    return str(fields)
