"""A small company's lake for the web page to show: tables with a past, pipelines that ran well and badly, transactions
under way, and names that try to be something else.

    fill(server.url, warehouse_folder)

Everything goes in over REST, as clients do it, but for the past: that is metadata written by hand and registered, with
the receipts it would have left.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import requests

from lakepact.kernel.identity import uuid7
from tests.support.waiting import PATIENCE_S

Json = dict[str, Any]

DAY_MS: Final = 86_400_000
HOSTILE: Final = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>&amp;'",
    "numbers\u202e\u2066gnihsif\u2069",
    "long_" + "x" * 200,
    "日本語 ünïcødé 🏔",
)
"""Names that a page must show as what they are."""

FIELDS: Final[list[Json]] = [
    {"id": 1, "name": "order_id", "required": True, "type": "long", "doc": "Grows with every order"},
    {"id": 2, "name": "customer_id", "required": True, "type": "long"},
    {"id": 3, "name": "ordered_at", "required": True, "type": "timestamptz"},
    {"id": 4, "name": "country", "required": False, "type": "string", "doc": "ISO 3166, two letters"},
    {"id": 5, "name": "amount", "required": False, "type": "decimal(12, 2)"},
    {
        "id": 6,
        "name": "lines",
        "required": False,
        "type": {
            "type": "list",
            "element-id": 7,
            "element-required": True,
            "element": {
                "type": "struct",
                "fields": [
                    {"id": 8, "name": "sku", "required": True, "type": "string"},
                    {"id": 9, "name": "quantity", "required": True, "type": "int"},
                ],
            },
        },
    },
]
SCHEMA: Final[Json] = {"type": "struct", "schema-id": 0, "fields": FIELDS}
PLAIN: Final[Json] = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "value", "required": False, "type": "double"},
    ],
}
DELTA_SCHEMA: Final = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "label", "type": "string", "nullable": True, "metadata": {"comment": "What a person said it is"}},
        {"name": "day", "type": "date", "nullable": True, "metadata": {}},
    ],
}


def new_id() -> str:
    return uuid7(time.time_ns() // 1_000_000, random.getrandbits(74))


def snapshot(number: int, at_ms: int, location: str, **summary: str) -> Json:
    return {
        "snapshot-id": 7_000_000_000_000_000 + number,
        **({"parent-snapshot-id": 7_000_000_000_000_000 + number - 1} if number > 1 else {}),
        "sequence-number": number,
        "timestamp-ms": at_ms,
        "manifest-list": f"{location}/metadata/snap-{number}.avro",
        "summary": {
            "operation": "append",
            "added-records": "12000",
            "added-files-size": "4194304",
            "total-records": str(12_000 * number),
            "total-files-size": str(4_194_304 * number),
            "total-data-files": str(4 * number),
            **summary,
        },
        "schema-id": 0,
    }


def past(location: str, versions: int, *, until_ms: int, step_ms: int = DAY_MS, uuid: str, kept: int = 0) -> Json:
    """The metadata of a table that got one version after the other. `kept`: so many files are in its log; 0 is all."""
    began_ms = until_ms - (versions - 1) * step_ms
    snapshots = [snapshot(number, began_ms + (number - 1) * step_ms, location) for number in range(1, versions + 1)]
    log = [
        {
            "timestamp-ms": one["timestamp-ms"],
            "metadata-file": f"{location}/metadata/{one['sequence-number']:05}-{uuid}.metadata.json",
        }
        for one in snapshots
    ]
    last = snapshots[-1]["snapshot-id"]
    return {
        "format-version": 2,
        "table-uuid": uuid,
        "location": location,
        "last-sequence-number": versions,
        "last-updated-ms": until_ms,
        "last-column-id": 9,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [
            {
                "spec-id": 0,
                "fields": [
                    {"name": "ordered_at_day", "transform": "day", "source-id": 3, "field-id": 1000},
                    {"name": "country", "transform": "identity", "source-id": 4, "field-id": 1001},
                ],
            }
        ],
        "last-partition-id": 1001,
        "default-sort-order-id": 1,
        "sort-orders": [
            {
                "order-id": 1,
                "fields": [
                    {"transform": "identity", "source-id": 3, "direction": "asc", "null-order": "nulls-last"},
                    {"transform": "bucket[16]", "source-id": 2, "direction": "asc", "null-order": "nulls-first"},
                ],
            }
        ],
        "properties": {
            "owner": "commerce",
            "write.format.default": "parquet",
            "write.metadata.previous-versions-max": "10000",
        },
        "current-snapshot-id": last,
        "refs": {
            "main": {"snapshot-id": last, "type": "branch"},
            "audit": {"snapshot-id": last, "type": "branch", "max-ref-age-ms": 604_800_000},
            "end-of-year": {"snapshot-id": snapshots[len(snapshots) // 2]["snapshot-id"], "type": "tag"},
        },
        "snapshots": snapshots,
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [{"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]} for one in snapshots],
        "metadata-log": log[:-1][-kept:] if kept else log[:-1],
    }


def receipt(namespace: list[str], name: str, document: Json, number: int, **more: Any) -> tuple[str, Json]:
    """The receipt of one version of such a past, and its place in the warehouse."""
    one = document["snapshots"][number - 1]
    location = f"{document['location']}/metadata/{number:05}-{document['table-uuid']}.metadata.json"
    key = hashlib.sha256(location.encode()).hexdigest()
    day = datetime.fromtimestamp(one["timestamp-ms"] / 1000, UTC).strftime("%Y-%m-%d")
    content = {
        "format": 1,
        "commit-key": key,
        "kind": "table",
        "change": "commit",
        "id": document["table-uuid"],
        "namespace": namespace,
        "name": name,
        "transaction-id": uuid7(one["timestamp-ms"], number),
        "transaction-tables": 1,
        "committed-ms": one["timestamp-ms"],
        "metadata-location": location,
        "snapshot-id": one["snapshot-id"],
        "snapshot-operation": "append",
        "summary": one["summary"],
        "totals": {"total-records": 12_000 * number},
        "source": {"kind": "rest", "client": "Spark 4.1.1", "principal": None},
        "lineage": "declared-unverified",
        "quality": "not-checked",
        "inputs": [],
        "checks": [],
        **more,
    }
    return f"_catalog/events/{day}/iceberg/committed/{key}.json", content


class Company:
    """A client that fills a lake."""

    def __init__(self, url: str, warehouse: Path) -> None:
        self.url = url
        self.warehouse = warehouse
        self._session = requests.Session()
        self._session.trust_env = False

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        return self._session.request(method, f"{self.url}/v1{path}", json=body, headers=headers, timeout=PATIENCE_S)

    def done(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.send(method, path, body, **headers)
        assert answer.status_code < 300, (method, path, answer.status_code, answer.text[:500])
        return answer.json() if answer.content else None

    def namespace(self, *levels: str, **properties: str) -> None:
        self.done("POST", "/main/namespaces", {"namespace": list(levels), "properties": properties})

    def table(self, namespace: str, name: str, schema: Json = PLAIN) -> Json:
        made: Json = self.done("POST", f"/main/namespaces/{namespace}/tables", {"name": name, "schema": schema})
        return made

    def past(self, namespace: str, name: str, versions: int, *, receipts: int, step_ms: int = DAY_MS) -> Json:
        """Register a table with a past. The newest `receipts` versions have one."""
        uuid = new_id()
        location = f"file://{self.warehouse}/{namespace}/{name}-{uuid}"
        until_ms = time.time_ns() // 1_000_000 - 3_600_000
        document = past(location, versions, until_ms=until_ms, step_ms=step_ms, uuid=uuid)
        current = f"{location}/metadata/{versions:05}-{uuid}.metadata.json"
        self._write(current.removeprefix("file://"), document)
        for number in range(max(1, versions - receipts + 1), versions + 1):
            place, content = receipt([namespace], name, document, number)
            self._write(f"{self.warehouse}/{place}", content)
        self.done("POST", f"/main/namespaces/{namespace}/register", {"name": name, "metadata-location": current})
        return document

    def append(self, namespace: str, name: str, rows: int, prefix: str = "main") -> Json:
        """What an engine sends for an append, in the transaction that the prefix names."""
        loaded = self.done("GET", f"/{prefix}/namespaces/{namespace}/tables/{name}")["metadata"]
        before = next((one for one in loaded["snapshots"] if one["snapshot-id"] == loaded["current-snapshot-id"]), None)
        total = int(before["summary"]["total-records"]) if before else 0
        size = int(before["summary"]["total-files-size"]) if before else 0
        number = loaded["last-sequence-number"] + 1
        made = {
            "snapshot-id": random.getrandbits(62),
            **({"parent-snapshot-id": before["snapshot-id"]} if before else {}),
            "sequence-number": number,
            "timestamp-ms": time.time_ns() // 1_000_000,
            "manifest-list": f"{loaded['location']}/metadata/snap-{number}.avro",
            "summary": {
                "operation": "append",
                "added-records": str(rows),
                "added-files-size": str(rows * 350),
                "total-records": str(total + rows),
                "total-files-size": str(size + rows * 350),
                "total-data-files": str(number),
            },
            "schema-id": 0,
        }
        updates = [
            {"action": "add-snapshot", "snapshot": made},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": made["snapshot-id"]},
        ]
        body = {"requirements": [], "updates": updates}
        self.done("POST", f"/{prefix}/namespaces/{namespace}/tables/{name}", body)
        return made

    def begin(self, **properties: str) -> str:
        return str(self.done("POST", "/main/transactions", {"properties": properties})["transaction-id"])

    def run(
        self, run_id: str, outputs: dict[str, int], inputs: list[str], checks: list[Json], *, state: str = "committed"
    ) -> str:
        """A run of the pipeline `shop`, as `lakepact run` leaves it behind."""
        transaction = self.begin(pipeline="shop", **{"run-id": run_id})
        prefix = f"main@{transaction}"
        if state == "committed":
            for name, rows in outputs.items():
                namespace, _, table = name.partition(".")
                self.append(namespace, table, rows, prefix=prefix)
        read = [self._read(prefix, one) for one in inputs] if state == "committed" else []
        told = [{key: value for key, value in one.items() if key not in ("sample", "message")} for one in checks]
        stages: list[Json] = [_stage(name, rows, state, inputs) for name, rows in outputs.items()]
        report: Json = {
            "pipeline": "shop",
            "run-id": run_id,
            "state": state,
            "attempt": 1,
            "seconds": 21.4,
            "stages": stages,
            "checks": checks,
            "inputs": read,
            "error": None,
        }
        if state == "committed":
            source = {
                "kind": "pipeline",
                "pipeline": "shop",
                "run-id": run_id,
                "stages": list(outputs),
                "quality": "passed",
                "checks": told,
                "inputs": read,
            }
            self.done("POST", f"/main/transactions/{transaction}/commit", {"source": source})
        else:
            self.done("POST", f"/main/transactions/{transaction}/abort")
            report["error"] = {
                "type": "CheckFailed",
                "message": "an expectation does not hold, and nothing of the run was published:\n"
                "  shop.fact_sales: amount_is_positive: 3 of 4,210 rows do not meet amount > 0",
            }
        self.done("PUT", f"/main/transactions/{transaction}/report", report)
        return transaction

    def _read(self, prefix: str, name: str) -> Json:
        """Read a table inside the run's transaction, as the pipeline does: the server verifies its inputs by that."""
        namespace, _, table = name.partition(".")
        metadata = self.done("GET", f"/{prefix}/namespaces/{namespace}/tables/{table}")["metadata"]
        snapshot = metadata.get("current-snapshot-id")
        known = {} if snapshot in (None, -1) else {"snapshot-id": str(snapshot)}
        return {"table": name, "table-uuid": metadata["table-uuid"], **known, "used-by": [_user(name)]}

    def _write(self, path: str, document: Json) -> None:
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(document))


def fill(url: str, warehouse: Path) -> Company:
    """All of it. Returns the client, for more."""
    lake = Company(url, warehouse)
    for levels in (("sales",), ("sales", "europe"), ("shop",), ("ml",), ("raw",), ("empty",), ("names",)):
        lake.namespace(*levels, **({"owner": "commerce"} if levels == ("sales",) else {}))
    lake.past("sales", "orders", 90, receipts=60)
    for name in ("customers", "returns", "payments", "shipments"):
        lake.table("sales", name)
    lake.table("raw", "clicks")
    for name in ("dim_customer", "fact_sales", "daily_revenue"):
        lake.table("shop", name)
    for name in ("orders_2023", "orders_2024"):
        lake.table("sales%1Feurope", name)
    for name in HOSTILE:
        lake.table("names", name)
    for _ in range(5):
        lake.append("raw", "clicks", random.randint(2_000, 9_000))
    _view(lake)
    _delta(lake)
    _together(lake)
    _runs(lake)
    _under_way(lake)
    return lake


def _view(lake: Company) -> None:
    sql = (
        "SELECT country, sum(amount) AS revenue\nFROM sales.orders\n"
        "WHERE ordered_at >= date_sub(current_date(), 7)\nGROUP BY country"
    )
    version = {
        "version-id": 1,
        "timestamp-ms": time.time_ns() // 1_000_000,
        "schema-id": 0,
        "summary": {"engine-name": "spark", "engine-version": "4.1.1"},
        "default-namespace": ["sales"],
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }
    body = {"name": "weekly_revenue", "schema": PLAIN, "view-version": version, "properties": {"owner": "finance"}}
    lake.done("POST", "/main/namespaces/sales/views", body)


def _delta(lake: Company) -> None:
    body = {"name": "labels", "schema": DELTA_SCHEMA, "partition-columns": ["day"]}
    lake.done("POST", "/main/namespaces/ml/delta-tables", body)
    for number in range(12):
        actions = [
            {
                "add": {
                    "path": f"day=2026-01-{number + 1:02}/part-{number}.parquet",
                    "partitionValues": {"day": f"2026-01-{number + 1:02}"},
                    "size": 700_000 + 40_000 * number,
                    "modificationTime": time.time_ns() // 1_000_000,
                    "dataChange": True,
                    "stats": json.dumps({"numRecords": 5_000 + number}),
                }
            }
        ]
        lake.done("POST", "/main/namespaces/ml/delta-tables/labels", {"actions": actions, "operation": "WRITE"})


def _together(lake: Company) -> None:
    """A commit of four tables, and one that is refused."""

    def change(name: str, requirements: list[Json]) -> Json:
        return {
            "identifier": {"namespace": ["sales"], "name": name},
            "requirements": requirements,
            "updates": [{"action": "set-properties", "updates": {"reviewed": str(time.time_ns())}}],
        }

    names = ("customers", "returns", "payments", "shipments")
    lake.done("POST", "/main/transactions/commit", {"table-changes": [change(name, []) for name in names]})
    late = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 4711}]
    refused = lake.send(
        "POST",
        "/main/transactions/commit",
        {"table-changes": [change("payments", late), change("returns", [])]},
        **{"Idempotency-Key": new_id()},
    )
    assert refused.status_code == 409, refused.text


def _runs(lake: Company) -> None:
    outputs = {"shop.dim_customer": 1_250, "shop.fact_sales": 4_210, "shop.daily_revenue": 31}
    inputs = ["sales.orders", "sales.customers", "raw.clicks"]
    checks: list[Json] = [
        _check("shop.fact_sales", "amount_is_positive", "passed", 4_210, 0),
        _check("shop.fact_sales", "customer_is_known", "passed", 4_210, 0),
        _check("shop.dim_customer", "unique customer_id", "passed", 1_250, 0),
        {
            **_check("shop.fact_sales", "country_is_given", "warned", 4_210, 12),
            "message": "12 of 4,210 rows do not meet country IS NOT NULL",
            "sample": ['{"order_id": 88121, "country": null, "amount": 14.50}', '{"order_id": 88177, "country": null}'],
        },
    ]
    lake.run("2026-01-14", outputs, inputs, checks)
    broken = {
        **_check("shop.fact_sales", "amount_is_positive", "failed", 4_210, 3),
        "message": "3 of 4,210 rows do not meet amount > 0",
        "sample": [
            '{"order_id": 90211, "customer_id": 17, "amount": -3.00}',
            '{"order_id": 90385, "customer_id": 4, "amount": 0.00}',
            '{"order_id": 90421, "customer_id": 11, "amount": -120.95}',
        ],
    }
    lake.run("2026-01-15", outputs, inputs, [broken, *checks[1:]], state="failed")
    lake.run("2026-01-15-again", outputs, inputs, checks)


def _under_way(lake: Company) -> None:
    lake.begin(pipeline="shop", **{"run-id": "2026-01-16"})
    stale = lake.begin(team="finance")
    lake.append("sales", "returns", 10, prefix=f"main@{stale}")
    lake.append("sales", "returns", 25)
    held = lake.begin(team="logistics")
    lake.append("sales", "shipments", 40, prefix=f"main@{held}")
    lake.done("POST", f"/main/transactions/{held}/prepare")
    wants = lake.begin(team="warehouse")
    lake.append("sales", "customers", 3, prefix=f"main@{wants}")


def _check(table: str, name: str, status: str, rows: int, violations: int) -> Json:
    return {
        "table": table,
        "name": name,
        "kind": "row",
        "status": status,
        "severity": "fail",
        "rows": rows,
        "violations": violations,
    }


def _stage(name: str, rows: int, state: str, inputs: list[str]) -> Json:
    failed = state != "committed" and name == "shop.fact_sales"
    waiting = state != "committed" and name == "shop.daily_revenue"
    reads = {
        "shop.dim_customer": ["sales.customers"],
        "shop.fact_sales": ["sales.orders", "raw.clicks", "shop.dim_customer"],
        "shop.daily_revenue": ["shop.fact_sales"],
    }.get(name, inputs)
    told: Json = {"name": name, "target": name, "kind": "table", "mode": "append", "reads": reads}
    if waiting:
        return {**told, "state": "waiting"}
    seconds = {"shop.dim_customer": 3.4, "shop.fact_sales": 14.9}.get(name, 2.2)
    if failed:
        return {**told, "state": "failed", "seconds": seconds}
    return {**told, "state": "done", "seconds": seconds, "rows": rows, "files": 4, "bytes": rows * 350}


def _user(table: str) -> str:
    return "shop.dim_customer" if table == "sales.customers" else "shop.fact_sales"
