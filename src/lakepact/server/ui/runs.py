"""Runs of pipelines, by their reports: names are dates and ids, so the newest are found without reading the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact.catalog import Catalog
from lakepact.catalog.overlay import belongs_to
from lakepact.catalog.runs import day_of, folder_of, report_name
from lakepact.errors import LakepactError
from lakepact.kernel.identity import TransactionId, parse_transaction_id, timestamp_ms
from lakepact.kernel.model import State, TransactionRecord
from lakepact.server.ui import activity
from lakepact.server.ui.receipts import Document, Documents

_DAYS: Final = 30
_AT_ONCE: Final = 6
_DAY_MS: Final = 86_400_000
_LIST: Final = 1_000
_MOST_LISTS: Final = 10
PIPELINE, RUN = "pipeline", "run-id"


@dataclass(frozen=True, slots=True)
class Run:
    transaction_id: TransactionId
    pipeline: str
    run_id: str
    state: str
    """`committed`, `failed`, `dry-run`, `running`, or what became of its transaction if it left no report."""

    report: Mapping[str, Any]
    """Empty if there is none."""

    record: TransactionRecord | None = None


@dataclass(frozen=True, slots=True)
class Runs:
    found: Sequence[Run]
    following: str | None


class RunReports:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def newest(
        self, catalog: Catalog, *, before: TransactionId | None = None, limit: int = 50, pipeline: str | None = None
    ) -> Runs:
        """The newest runs that left a report, of the last 30 days before now or before this run."""
        end_ms = catalog.parts.clock.now_ms() if before is None else timestamp_ms(before)
        found: list[Run] = []
        for first in range(0, _DAYS, _AT_ONCE):
            days = [day_of(end_ms - day * _DAY_MS) for day in range(first, first + _AT_ONCE)]
            lists = await catalog.parts.tasks.all([self._ids(catalog, day) for day in days])
            ids = [one for ids in lists for one in ids if before is None or one < before]
            for start in range(0, len(ids), limit):
                some = ids[start : start + limit]
                documents = await self._documents.read(catalog, map(report_name, some))
                runs = [run_of(one, documents[report_name(one)]) for one in some if report_name(one) in documents]
                found += [run for run in runs if pipeline is None or run.pipeline == pipeline]
                if len(found) > limit:
                    return Runs(found[:limit], str(found[limit - 1].transaction_id))
        return Runs(found, None)

    async def without_report(self, catalog: Catalog, shows: activity.Shows, known: Sequence[Run]) -> list[Run]:
        """Runs that are under way, and those that ended lately without a word."""
        under_way, _ = await activity.undecided_records(catalog, shows)
        ended = await activity.recent(catalog, shows, states=(State.ABORTED, State.FAILED), limit=50)
        told = {run.transaction_id for run in known}
        records = [*reversed(under_way), *ended.records]
        return [_of_record(one) for one in records if PIPELINE in one.properties and one.id not in told]

    async def one(self, catalog: Catalog, shows: activity.Shows, transaction_id: TransactionId) -> Run | None:
        """A run, by its report, or else by what its transaction says."""
        name = report_name(transaction_id)
        document = (await self._documents.read(catalog, [name])).get(name)
        record = await catalog.transactions.load(transaction_id)
        if document is not None:
            found = run_of(transaction_id, document)
            return Run(found.transaction_id, found.pipeline, found.run_id, found.state, found.report, record)
        if record is None or not belongs_to(record, catalog.warehouse.name) or not shows(record):
            return None
        source = (record.answer or {}).get("source") or {}
        if PIPELINE not in record.properties and source.get("kind") != PIPELINE:
            return None
        return _of_record(record)

    async def _ids(self, catalog: Catalog, day: str) -> list[TransactionId]:
        """The newest first."""
        found: list[TransactionId] = []
        after: str | None = None
        for _ in range(_MOST_LISTS):
            entries = await catalog.parts.blobs.list(folder_of(day), after, _LIST)
            found += [one for entry in entries if (one := _id_of(entry.name)) is not None]
            if len(entries) < _LIST:
                break
            after = entries[-1].name
        return found[::-1]


def run_of(transaction_id: TransactionId, report: Document) -> Run:
    return Run(
        transaction_id,
        str(report.get(PIPELINE, "?")),
        str(report.get(RUN, "?")),
        str(report.get("state", "?")),
        report,
    )


def stages_of(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [one for one in report.get("stages") or () if isinstance(one, dict) and isinstance(one.get("name"), str)]


def edges_of(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Which table was made of which: views that exist only inside of the run are seen through."""
    stages = {one["name"]: one for one in stages_of(report)}
    if not stages:
        return []

    def tables(names: Any, path: frozenset[str]) -> set[str]:
        found: set[str] = set()
        for name in names or ():
            stage = stages.get(name)
            if stage is not None and stage.get("target") is None and name not in path:
                found |= tables(stage.get("reads"), path | {name})
            elif isinstance(name, str):
                found.add(name if stage is None else str(stage.get("target") or name))
        return found

    return [
        (source, str(stage["target"]))
        for name, stage in stages.items()
        if stage.get("target")
        for source in sorted(tables(stage.get("reads"), frozenset({name})))
        if source != stage["target"]
    ]


def _of_record(record: TransactionRecord) -> Run:
    source = (record.answer or {}).get("source") or {}
    state = "running" if not record.state.final else record.state.value
    return Run(
        record.id,
        str(record.properties.get(PIPELINE) or source.get(PIPELINE, "?")),
        str(record.properties.get(RUN) or source.get(RUN, "?")),
        state,
        _told(source),
        record,
    )


def _told(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a receipt would say of the run."""
    if not source:
        return {}
    stages = [{"name": one, "state": "done"} for one in source.get("stages") or () if isinstance(one, str)]
    return {"stages": stages, "checks": source.get("checks") or [], "inputs": source.get("inputs") or []}


def _id_of(name: str) -> TransactionId | None:
    try:
        return parse_transaction_id(name.rpartition("/")[2].removesuffix(".json"))
    except LakepactError:
        return None
