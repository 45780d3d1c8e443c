"""Reports of runs: what a pipeline tells of a run once it has ended, well or not. Pure: where they lie, what they are.

A run is a transaction, so its report goes by the transaction's id: `_catalog/runs/<date>/<transaction id>.json`, the
date being that of the id. It is written once. Whatever depends on a run being right is in its receipts; a report is for
people, and a run without one is as good as any other.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import orjson

from lakepact.catalog.errors import BadRequest
from lakepact.catalog.warehouse import OWN_FOLDER
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.limits import check_run_report

FORMAT: Final = 1
MOST_BYTES: Final = 1 << 20
PRINCIPAL: Final = "principal"
"""Whose run it was, if the server knows: said by the server, whatever the report says of itself."""


def day_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def folder_of(day: str) -> str:
    """Below it are the reports of runs that began on this day, in the order of their ids."""
    return f"{OWN_FOLDER}/runs/{day}/"


def report_name(transaction_id: TransactionId) -> str:
    return f"{folder_of(day_of(timestamp_ms(transaction_id)))}{transaction_id}.json"


def checked_report(body: JsonObject, transaction_id: TransactionId, principal: str | None) -> JsonObject:
    """The report as it is kept. What it says of itself must be what it is for."""
    for field in ("pipeline", "run-id", "state"):
        if not isinstance(body.get(field), str) or not body[field] or len(body[field]) > 200:
            raise BadRequest(f"a report of a run has a text {field!r} of at most 200 characters")
    for field in ("stages", "checks", "inputs"):
        if not isinstance(body.get(field, []), list):
            raise BadRequest(f"{field!r} of a report of a run is a list")
    check_run_report(body)
    said = {field: value for field, value in body.items() if field != PRINCIPAL}
    whose = {} if principal is None else {PRINCIPAL: principal}
    return {**said, **whose, "format": FORMAT, "transaction-id": transaction_id}


def report_bytes(report: JsonObject) -> bytes:
    data = orjson.dumps(report)
    if len(data) > MOST_BYTES:
        raise BadRequest(f"the report has {len(data):,} bytes; the limit is {MOST_BYTES:,}. Leave samples out")
    return data
