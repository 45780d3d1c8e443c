"""Requests that are small to send and were costly to answer: each is refused, or answered at a bounded cost.

`PREPARATION` is sent first, in order. The suites that use the catalogue take different measurements: on-loop CPU time
in one process (tests/wire), CPU time and peak memory of a whole server (tests/acceptance).
"""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from lakepact.kernel.identity import uuid7

Json = dict[str, Any]

REFUSED: Final = frozenset({400, 413})
ANSWERED: Final = frozenset({200, 204})
_GZIP: Final = {"Content-Encoding": "gzip"}
_TABLES: Final = "/v1/main/namespaces/db/tables"


@dataclass(frozen=True, slots=True)
class CostlyRequest:
    name: str
    path: str
    body: bytes
    right: frozenset[int] = REFUSED
    headers: dict[str, str] = field(default_factory=dict)
    method: str = "POST"
    cpu_s: float = 4.0
    """CPU time that a server may take for it: generous, as machines differ, and far below what it once took."""

    limit: str = ""
    """What a refusal names."""


def preparation() -> Iterator[tuple[str, Json]]:
    """What the requests are about: paths and bodies, sent with POST."""
    yield "/v1/main/namespaces", {"namespace": ["db"]}
    yield _TABLES, {"name": "t", "schema": schema(3)}
    yield _TABLES, {"name": "wide", "schema": schema(5_000)}
    more = schema(5_000)
    more["fields"][0]["doc"] = "another one"
    yield f"{_TABLES}/wide", {"requirements": [], "updates": [{"action": "add-schema", "schema": more}]}
    for name in ("big", "bigger", "biggest"):
        yield _TABLES, {"name": name, "schema": schema(3), "properties": {"text": "x" * 10_000_000}}


def costly_requests() -> list[CostlyRequest]:
    """The catalogue. The tables of `preparation` exist."""
    return [*_types(), *_names(), *_bodies(), *_folds(), *_sizes()]


def report_requests(transaction_id: str) -> Iterator[CostlyRequest]:
    """A run report whose views read each other twice, and the pages that show it. The transaction has ended."""
    run = f"/v1/main/transactions/{transaction_id}/report"
    report = orjson.dumps(doubling_report(1_000))
    yield CostlyRequest("a report of 1,000 views that double", run, report, ANSWERED, method="PUT")
    for page in ("catalog/main/db/wide/lineage", f"pipelines/main/{transaction_id}", "pipelines/main"):
        name = f"that report: {page.replace(transaction_id, '<id>')}"
        yield CostlyRequest(name, f"/ui/{page}", b"", ANSWERED, method="GET")


def _types() -> Iterator[CostlyRequest]:
    for kind in ("geometry", "geography"):
        for text in (f"{kind}({' ' * 3_000}", f"{kind}{' ' * 3_000}", f"{kind}(a,{' ' * 3_000}"):
            body = {"name": "n", "schema": schema(1, text)}
            yield _json(f"type {text[:14].strip()!r} and spaces", _TABLES, body, limit="type-characters")
    binary = schema(1, "binary")
    binary["fields"][0]["initial-default"] = "ab" * 4_000_000
    yield _json("a default of 8 MB", _TABLES, {"name": "n", "schema": binary}, right=REFUSED | ANSWERED)
    decimal = schema(1, "decimal(38, 2)")
    decimal["fields"][0]["initial-default"] = "9" * 4_000_000 + ".00"
    yield _json("a decimal of 4 MB", _TABLES, {"name": "n", "schema": decimal})


def _names() -> Iterator[CostlyRequest]:
    inner = {"type": "struct", "fields": schema(20_000)["fields"]}
    long = struct(inner, "n" * 1_000_000)
    yield _json("a column name of 1 MB over 20,000 columns", _TABLES, {"name": "n", "schema": long}, packed=True)
    inner = {"type": "struct", "fields": schema(9_000)["fields"]}
    long = struct(inner, "n" * 1_000)
    limit = "column-path-characters"
    yield _json("paths of 9 MB", _TABLES, {"name": "n", "schema": long}, packed=True, limit=limit)
    yield _json("20,000 columns", _TABLES, {"name": "n", "schema": schema(20_000)}, limit="schema-columns")
    deep = ["a"] * 40_000
    table = {"namespace": deep, "name": "t"}
    check = {"on": "namespace", "namespace": deep}
    commit = {"table-changes": [{"identifier": table, "requirements": [], "updates": []}]}
    rename = {"source": table, "destination": {"namespace": ["db"], "name": "u"}}
    for path, body in (
        ("/v1/main/grants/check", check),
        ("/v1/main/transactions/commit", commit),
        ("/v1/main/tables/rename", rename),
        ("/v1/main/tables/batch-load", {"identifiers": [table]}),
        ("/v1/main/namespaces", {"namespace": deep}),
    ):
        yield _json(f"40,000 levels: {path[9:]}", path, body, packed=True, limit="namespace-levels")
    levels = "%1F".join(["a"] * 8_000)
    for path in (f"/v1/main/namespaces/{levels}", f"/v1/main/namespaces?parent={levels}"):
        yield CostlyRequest(f"8,000 levels: {path[9:24]}", path, b"", method="GET", limit="namespace-levels")


def _bodies() -> Iterator[CostlyRequest]:
    members = gzip.compress(b"") * 150_000
    yield CostlyRequest("150,000 gzip members", _TABLES, members, headers=_GZIP, limit="gzip-members")
    bomb = gzip.compress(b"[" + b" " * 60_000_000 + b"]")
    yield CostlyRequest("60 MB in 60 KB of gzip", _TABLES, bomb, frozenset({413}), _GZIP)
    lists = b'{"a":[' + b"[]," * 4_000_000 + b"[]]}"
    yield CostlyRequest("4,000,000 lists", _TABLES, gzip.compress(lists, 1), headers=_GZIP, limit="json-values")
    members = b"{" + b",".join(b'"%x":1' % number for number in range(450_000)) + b"}"
    key = {"Idempotency-Key": _key()}
    yield CostlyRequest("450,000 members and a key", f"{_TABLES}/t", members, headers=key, limit="json-members")
    objects = b",".join(
        b"{" + b",".join(b'"%x":1' % number for number in range(first, first + 49_000)) + b"}"
        for first in range(0, 441_000, 49_000)
    )
    members = b'{"requirements":[],"updates":[],"more":[' + objects + b"]}"
    key = {"Idempotency-Key": _key()}
    yield CostlyRequest("441,000 members in nine objects and a key", f"{_TABLES}/t", members, ANSWERED, key, cpu_s=15.0)
    text = orjson.dumps({**_change(), "more": ["\N{SNOWMAN}a" * 2_000_000]})
    yield CostlyRequest("8 MB of text and a key", f"{_TABLES}/t", text, ANSWERED, {"Idempotency-Key": _key()})
    quotes = b'{"a":"' + b'\\"' * 4_000_000
    yield CostlyRequest("4,000,000 escaped quotes, no end", _TABLES, quotes)
    yield CostlyRequest("an invalid key of 30 KB", f"{_TABLES}/t", text, headers={"Idempotency-Key": "x" * 30_000})
    yield CostlyRequest("nesting", _TABLES, b'{"a":' * 200 + b"1" + b"}" * 200, limit="json-depth")
    yield CostlyRequest("a member twice", f"{_TABLES}/t", b'{"requirements":[],"updates":[],"updates":[]}')


def _folds() -> Iterator[CostlyRequest]:
    table = f"{_TABLES}/t"
    added = [{"action": "add-schema", "schema": schema(200, first=number)} for number in range(200)]
    yield _json("200 schemas of 200 columns", table, _change(*added), limit="request-columns")
    yield _json("90 schemas of 200 columns", table, _change(*added[:90]), right=ANSWERED, cpu_s=8.0)
    flips = [{"action": "set-current-schema", "schema-id": number % 2} for number in range(1_000)]
    yield _json("1,000 changes of the current schema", f"{_TABLES}/wide", _change(*flips), right=ANSWERED)
    specs = [
        {"action": "add-spec", "spec": {"fields": [_partition(f"p{one}_{two}") for two in range(40)]}}
        for one in range(900)
    ]
    yield _json("900 partition specs", table, _change(*specs), right=ANSWERED, cpu_s=12.0)
    fields = [_partition(f"p{number}") for number in range(2_000)]
    yield _json("2,000 partition fields", table, _change({"action": "add-spec", "spec": {"fields": fields}}))
    delta = "/v1/main/namespaces/db/delta-tables"
    for columns, right in ((20_000, REFUSED), (1_000, ANSWERED)):
        names = [f"c{number}" for number in range(columns)]
        body = {"name": f"d{columns}", "schema": delta_schema(columns + 1), "partition-columns": names}
        yield _json(f"Delta: {columns:,} partition columns", delta, body, right=right)


def _sizes() -> Iterator[CostlyRequest]:
    batch = "/v1/main/tables/batch-load"
    big = {"namespace": ["db"], "name": "big"}
    yield _json("one table 200 times", batch, {"identifiers": [big] * 200})
    yield _json("one large table", batch, {"identifiers": [big]}, right=ANSWERED)
    many = [{"namespace": ["db"], "name": name} for name in ("big", "bigger", "biggest")]
    yield _json("30 MB of metadata", batch, {"identifiers": many}, right=ANSWERED)
    grow = _change({"action": "set-properties", "updates": {"more": "y" * 10_000_000}})
    yield _json("metadata of 20 MB", f"{_TABLES}/big", grow, limit="max_metadata_bytes")
    smaller = _change({"action": "remove-properties", "removals": ["text"]})
    yield _json("metadata that shrinks", f"{_TABLES}/bigger", smaller, right=ANSWERED)


def schema(columns: int, type_: Any = "long", first: int = 1) -> Json:
    fields = [
        {"id": number, "name": f"c{number}", "required": False, "type": type_}
        for number in range(first, first + columns)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def struct(inner: Any, name: str) -> Json:
    return {"type": "struct", "fields": [{"id": 100_000, "name": name, "required": False, "type": inner}]}


def delta_schema(columns: int) -> Json:
    fields = [{"name": f"c{number}", "type": "long", "nullable": True, "metadata": {}} for number in range(columns)]
    return {"type": "struct", "fields": fields}


def doubling_report(stages: int) -> Json:
    """A run report in which every view reads the view before it twice."""
    views = [
        {"name": f"v{number}", "target": None, "reads": [f"v{number - 1}"] * 2 if number else ["db.t"]}
        for number in range(stages)
    ]
    last = {"name": "out", "target": "db.wide", "reads": [f"v{stages - 1}"] * 2}
    return {"pipeline": "p", "run-id": "r", "state": "committed", "stages": [*views, last]}


def _partition(name: str) -> Json:
    return {"source-id": 1, "transform": "identity" if name == "c1" else "bucket[4]", "name": name}


def _change(*updates: Json) -> Json:
    return {"requirements": [], "updates": list(updates)}


def _json(name: str, path: str, body: Any, *, packed: bool = False, **more: Any) -> CostlyRequest:
    data = orjson.dumps(body)
    return CostlyRequest(name, path, gzip.compress(data) if packed else data, headers=_GZIP if packed else {}, **more)


def _key() -> str:
    return uuid7(time.time_ns() // 1_000_000, random.getrandbits(74))
