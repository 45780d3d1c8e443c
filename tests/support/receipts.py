"""Receipts of commits that never were, in all the places where receipts lie: for the job that reads them.

A history is made by a seed: the same one gives the same receipts. Where they are put, in which order, and how often, is
up to the test.
"""

from __future__ import annotations

import gzip
import hashlib
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from lakepact.catalog.receipts import commit_key

Json = dict[str, Any]

DAY_MS = 24 * 3600 * 1000


def day_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


@dataclass
class _Table:
    id: str
    namespace: tuple[str, ...]
    name: str
    location: str
    version: int = 0
    revision: int = 0
    snapshot_id: int | None = None
    records: int = 0
    metadata_location: str | None = None


@dataclass
class History:
    """A lake's commits, one after another."""

    warehouse: Path
    """Where the newest metadata file of every table is put."""

    seed: int = 0
    tables: int = 6
    with_metadata: bool = True
    _tables: list[_Table] = field(default_factory=list)
    _made: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        for number in range(self.tables):
            namespace = ("sales", "eu") if number % 3 == 2 else ("sales",)
            table_id = self._uuid()
            location = f"file://{self.warehouse}/{'/'.join(namespace)}/t{number}-{table_id}"
            self._tables.append(_Table(table_id, namespace, f"t{number}", location))

    def transaction(self, at_ms: int, count: int = 1, *, pipeline: bool = True, drop: bool = False) -> list[Json]:
        """The receipts of one transaction over so many tables."""
        self._made += 1
        transaction_id = self._uuid7(at_ms)
        chosen = self._random.sample(self._tables, count)
        source: Json = {"kind": "rest", "client": "test/1", "principal": self._random.choice(["ann", "bob"])}
        inputs: list[Json] = []
        checks: list[Json] = []
        if pipeline:
            source = {"kind": "pipeline", "pipeline": "shop", "run-id": f"run-{self._made}", "principal": "ann"}
            read = self._random.choice(self._tables)
            inputs = [
                {
                    "table": f"{'.'.join(read.namespace)}.{read.name}",
                    "table-uuid": read.id,
                    "snapshot-id": str(read.snapshot_id or 7),
                    "used-by": [chosen[0].name],
                }
            ]
            checks = [
                {
                    "table": f"{'.'.join(table.namespace)}.{table.name}",
                    "name": f"check {number}",
                    "kind": "rows",
                    "status": self._random.choice(["passed", "passed", "warned"]),
                    "severity": "warn",
                    "rows": 10 * self._made,
                    "violations": 0,
                    "tolerated": 0.1,
                }
                for number, table in enumerate(chosen)
            ]
        quality = "passed" if checks else "not-checked"
        common = {
            "format": 1,
            "transaction-id": transaction_id,
            "transaction-tables": count,
            "operation": "commitTransaction",
            "committed-ms": at_ms,
            "source": source,
            "lineage": "verified" if pipeline else "declared-unverified",
            "quality": quality,
            "inputs": inputs,
            "checks": checks,
        }
        return [self._change(table, common, drop=drop) for table in chosen]

    def _change(self, table: _Table, common: Json, *, drop: bool) -> Json:
        table.revision += 1
        made = table.revision == 1
        previous = table.metadata_location
        content: Json = {"snapshot-operation": None, "summary": {}, "totals": {}, "snapshots": []}
        if drop:
            key = commit_key(f"cell:{table.id}:{table.revision}")
            change, base = "drop", previous
        else:
            table.version += 1
            table.metadata_location = f"{table.location}/metadata/{table.version:05}-{self._uuid()}.metadata.json"
            key = commit_key(table.metadata_location)
            change, base = ("create" if made else "commit"), previous
            parent, table.snapshot_id = table.snapshot_id, self._random.getrandbits(62)
            table.records += 10
            summary = {
                "added-records": "10",
                "added-data-files": "1",
                "added-files-size": "1000",
                "total-records": str(table.records),
                "lakepact.stage": table.name,
            }
            content = {
                "snapshot-operation": "append",
                "summary": summary,
                "totals": {
                    "total-records": table.records,
                    "total-files-size": 100 * table.records,
                    "total-data-files": table.version,
                },
                "snapshots": [
                    {
                        "snapshot-id": table.snapshot_id,
                        "parent-snapshot-id": parent,
                        "sequence-number": table.version,
                        "timestamp-ms": common["committed-ms"] - 5,
                        "schema-id": 0,
                        "operation": "append",
                        "summary": summary,
                    }
                ],
            }
            if self.with_metadata:
                self._write_metadata(table, previous)
        return {
            **common,
            "event-id": str(uuid.uuid5(uuid.UUID(common["transaction-id"]), key)),
            "commit-key": key,
            "kind": "table",
            "change": change,
            "id": table.id,
            "revision": table.revision,
            "namespace": list(table.namespace),
            "name": table.name,
            "metadata-location": table.metadata_location,
            "previous-metadata-location": previous if not drop else None,
            "base-metadata-location": base,
            "snapshot-id": table.snapshot_id,
            "schema-id": 0,
            "location": table.location,
            **content,
        }

    def write_newest_metadata(self) -> None:
        """Of every table that has a version, for histories that have not done so with each commit."""
        for table in self._tables:
            if table.metadata_location is not None:
                self._write_metadata(table, None)

    def _write_metadata(self, table: _Table, previous: str | None) -> None:
        """Only the newest is needed by anybody."""
        assert table.metadata_location is not None
        fields = [
            {"id": 1, "name": "id", "required": True, "type": "long"},
            {
                "id": 2,
                "name": "tags",
                "required": False,
                "type": {"type": "list", "element-id": 3, "element": "string"},
            },
        ][: 1 + table.version % 2]
        document = {
            "format-version": 2,
            "table-uuid": table.id,
            "location": table.location,
            "schemas": [{"schema-id": 0, "type": "struct", "fields": fields}],
            "current-schema-id": 0,
            "properties": {"owner": f"owner of {table.name}", "comment": f"about {table.name}"},
            "refs": {"main": {"snapshot-id": table.snapshot_id, "type": "branch"}},
        }
        path = Path(table.metadata_location.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(document))
        if previous is not None:
            Path(previous.removeprefix("file://")).unlink()

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _uuid7(self, at_ms: int) -> str:
        bits = self._random.getrandbits(74)
        number = at_ms << 80 | 7 << 76 | (bits >> 62) << 64 | 2 << 62 | bits & (1 << 62) - 1
        return str(uuid.UUID(int=number))


@dataclass(frozen=True)
class Shelf:
    """The places of receipts in a warehouse."""

    warehouse: Path

    @property
    def own(self) -> Path:
        return self.warehouse / "_catalog"

    def path(self, receipt: Json) -> Path:
        folder = self.own / "events" / day_of(receipt["committed-ms"]) / "iceberg" / "committed"
        return folder / f"{receipt['commit-key']}.json"

    def put(self, receipts: Iterable[Json]) -> None:
        """As loose files, each of which is written in time."""
        for receipt in receipts:
            path = self.path(receipt)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(orjson.dumps(receipt))

    def put_late(self, receipts: Iterable[Json], arrived_ms: int) -> None:
        """As loose files with a note of their arrival."""
        for receipt in receipts:
            self.note(receipt, arrived_ms)
            self.put([receipt])

    def note(self, receipt: Json, arrived_ms: int) -> None:
        folder = self.own / "events" / day_of(arrived_ms) / "arrivals"
        folder.mkdir(parents=True, exist_ok=True)
        note = {
            "format": 1,
            "receipt": str(self.path(receipt).relative_to(self.warehouse)),
            "commit-key": receipt["commit-key"],
            "committed-ms": receipt["committed-ms"],
            "arrived-ms": arrived_ms,
        }
        (folder / f"{receipt['commit-key']}.json").write_bytes(orjson.dumps(note))

    def pack(self, day: str, *, late: Sequence[Json] = (), at_once: int = 20_000) -> None:
        """The day's loose receipts as segments. The loose ones stay."""
        folder = self.own / "events" / day / "iceberg" / "committed"
        lines = sorted(path.read_bytes() for path in folder.glob("*.json"))
        segments = {"iceberg": [line for line in lines if _is_json(line)], "late": [orjson.dumps(one) for one in late]}
        damaged = [
            str(path.relative_to(self.warehouse)) for path in folder.glob("*.json") if not _is_json(path.read_bytes())
        ]
        self.write_segments(day, segments, damaged=damaged, at_once=at_once)

    def segments(self, day: str) -> list[Path]:
        """The manifest of a packed day, and its segments."""
        folder = self.own / "segments" / day
        return [folder / "manifest.json", *sorted(folder.glob("*.jsonl.gz"))]

    def write_segments(
        self, day: str, segments: dict[str, list[bytes]], *, damaged: Sequence[str] = (), at_once: int = 20_000
    ) -> None:
        folder = self.own / "segments" / day
        folder.mkdir(parents=True, exist_ok=True)
        named = []
        for kind, lines in segments.items():
            for number, some in enumerate(_split(lines, at_once)):
                text = b"\n".join(some) + b"\n"
                digest = hashlib.sha256(text).hexdigest()
                name = f"{kind}-{number:05}-{digest[:16]}.jsonl.gz"
                (folder / name).write_bytes(gzip.compress(text, 1, mtime=0))
                named.append({"name": name, "receipts": len(some), "bytes": len(text), "sha256": digest})
        manifest = {
            "format": 1,
            "date": day,
            "receipts": sum(map(len, segments.values())),
            "segments": named,
            "damaged": list(damaged),
        }
        (folder / "manifest.json").write_bytes(orjson.dumps(manifest))


def _split(lines: list[bytes], at_once: int) -> Iterator[list[bytes]]:
    return (lines[start : start + at_once] for start in range(0, len(lines), at_once))


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def counted(receipts: Iterable[Json]) -> Counter[str]:
    """How many receipts each table has."""
    return Counter(receipt["id"] for receipt in receipts)
