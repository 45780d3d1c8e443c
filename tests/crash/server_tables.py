"""Requests about tables, and what a warehouse's files say about them: the part that knows neither HTTP nor crashes.

A snapshot's id is unique to its commit and names the tables the commit was made to, so whoever sees it in one table
knows in which others it must be.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from lakepact.kernel.identity import TransactionId, uuid7

NAMESPACE: Final = "chaos"
SCHEMA: Final[dict[str, Any]] = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}],
}
_MOST_TABLES: Final = 16


def new_key(chance: random.Random) -> TransactionId:
    return uuid7(time.time_ns() // 1_000_000, chance.getrandbits(74))


def snapshot_id(serial: int, tables: Iterable[int]) -> int:
    """A commit's snapshot id: its serial number, and a bit for each of its tables."""
    return serial << _MOST_TABLES | sum(1 << table for table in tables)


def tables_of(snapshot: int) -> list[int]:
    return [table for table in range(_MOST_TABLES) if snapshot >> table & 1]


def creation(name: str) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA}


def adding(snapshot: int, *, parent: int | None = None, head: bool = False, after: int = 0) -> dict[str, Any]:
    """A commit that adds this snapshot. With `head` it becomes the head of main, which must be `parent` until then."""
    body: dict[str, Any] = {
        "snapshot-id": snapshot,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "sequence-number": after + 1,
        "manifest-list": f"file:///nowhere/{snapshot}.avro",
        "summary": {"operation": "append"},
    }
    if parent is not None:
        body["parent-snapshot-id"] = parent
    updates: list[dict[str, Any]] = [{"action": "add-snapshot", "snapshot": body}]
    requirements: list[dict[str, Any]] = []
    if head:
        updates.append(
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot},
        )
        requirements.append({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent})
    return {"requirements": requirements, "updates": updates}


def named(name: str, commit: dict[str, Any], namespace: str = NAMESPACE) -> dict[str, Any]:
    return {"identifier": {"namespace": [namespace], "name": name}, **commit}


def snapshots_of(metadata: dict[str, Any]) -> list[int]:
    return [snapshot["snapshot-id"] for snapshot in metadata.get("snapshots") or ()]


def version_of(location: str) -> int:
    """How many versions came before this one, as the file's name says."""
    return int(location.rsplit("/", 1)[1].split("-", 1)[0])


def read_chain(location: str) -> list[str]:
    """The locations of all versions of a table, oldest first. Every one of the files must be readable."""
    chain = [location]
    # A version names at most a hundred before it, and the oldest of them names those before that.
    while earlier := [entry["metadata-file"] for entry in _read(chain[0]).get("metadata-log") or ()]:
        chain = earlier + chain
    assert [version_of(one) for one in chain] == list(range(len(chain))), f"the chain of {location} has gaps: {chain}"
    before: set[int] = set()
    for one in chain:
        there = snapshots_of(_read(one))
        assert len(set(there)) == len(there), f"{one} has a snapshot twice"
        assert before <= set(there), f"{one} has lost snapshots of its predecessor"
        before = set(there)
    return chain


def receipts_in(warehouse: Path) -> dict[str, dict[str, Any]]:
    """Every receipt by its commit key. The name of its file must say the same."""
    found: dict[str, dict[str, Any]] = {}
    for path in warehouse.glob("_catalog/events/*/iceberg/committed/*.json"):
        receipt = json.loads(path.read_bytes())
        assert receipt["commit-key"] == path.stem
        assert path.stem not in found, f"two receipts of one commit: {path}"
        found[path.stem] = receipt
    return found


def commit_key(location: str) -> str:
    return hashlib.sha256(location.encode()).hexdigest()


def _read(location: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(urlsplit(location).path).read_bytes())
    return document
