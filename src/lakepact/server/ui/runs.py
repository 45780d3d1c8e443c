"""Runs of pipelines, by their reports: names are dates and ids, so the newest are found without reading the others.

A report is a claim of its author. The state, the commit time and the tables of a run come from its transaction's
record: `lakepact.catalog.runs` reduces each report to what the record supports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lakepact.catalog.lineage import LINEAGE, LOADED, VERIFIED
from lakepact.catalog.overlay import belongs_to
from lakepact.catalog.runs import (
    PRINCIPAL,
    UNKNOWN,
    RunFacts,
    confirmed_report,
    day_of,
    folder_of,
    report_name,
    run_facts,
)
from lakepact.errors import LakepactError
from lakepact.kernel.identity import TransactionId, parse_transaction_id, timestamp_ms
from lakepact.kernel.model import State, TransactionRecord
from lakepact.server.ui import activity
from lakepact.server.ui.receipts import Document, Documents
from lakepact.server.ui.told import reports_for, stages_of
from lakepact.server.ui.window import Window

_DAYS: Final = 30
_AT_ONCE: Final = 6
_DAY_MS: Final = 86_400_000
_LIST: Final = 1_000
_SHOWN_ENTRIES: Final = 500
_MOST_LISTS: Final = 10
PIPELINE, RUN = "pipeline", "run-id"


@dataclass(frozen=True, slots=True)
class Run:
    transaction_id: TransactionId
    pipeline: str
    run_id: str
    state: str
    """`committed` if its record says so; else `running`, the reason that its report gives, or the record's state."""

    report: Mapping[str, Any]
    """Empty if there is none."""

    record: TransactionRecord | None = None
    """If it was looked at, and may be."""

    committed_ms: int | None = None
    """By the record."""


@dataclass(frozen=True, slots=True)
class Runs:
    found: Sequence[Run]
    following: str | None


class RunReports:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    async def newest(
        self, window: Window, *, before: TransactionId | None = None, limit: int = 50, pipeline: str | None = None
    ) -> Runs:
        """The newest runs that left a report, of the last 30 days before now or before this run."""
        end_ms = window.now_ms() if before is None else timestamp_ms(before)
        found: list[Run] = []
        for first in range(0, _DAYS, _AT_ONCE):
            days = [day_of(end_ms - day * _DAY_MS) for day in range(first, first + _AT_ONCE)]
            lists = await window.inside.parts.tasks.all([self._ids(window, day) for day in days])
            ids = [one for ids in lists for one in ids if before is None or one < before]
            for start in range(0, len(ids), limit):
                some = ids[start : start + limit]
                documents = await self._documents.read(window.inside, map(report_name, some))
                runs = await _confirmed(
                    window, {one: documents[report_name(one)] for one in some if report_name(one) in documents}
                )
                found += await _shown(window, [run for run in runs if pipeline is None or run.pipeline == pipeline])
                if len(found) > limit:
                    return Runs(found[:limit], str(found[limit - 1].transaction_id))
        return Runs(found, None)

    async def without_report(self, window: Window, known: Sequence[Run]) -> list[Run]:
        """Runs that are under way, and those that ended lately without a word."""
        under_way, _ = await activity.undecided_records(window)
        ended = await activity.recent(window, states=(State.ABORTED, State.FAILED), limit=50)
        told = {run.transaction_id for run in known}
        records = [*reversed(under_way), *(one.record for one in ended.ended)]
        return [_of_record(one) for one in records if PIPELINE in one.properties and one.id not in told]

    async def one(self, window: Window, transaction_id: TransactionId) -> Run | None:
        """A run, by its report, or else by what its transaction says."""
        name = report_name(transaction_id)
        document = (await self._documents.read(window.inside, [name])).get(name)
        loaded = await window.inside.transactions.load(transaction_id)
        record = loaded if loaded is not None and await window.sight.shown([loaded]) else None
        if document is not None:
            [run] = await _confirmed(window, {transaction_id: document})
            return next(iter(await _shown(window, [replace(run, record=record)])), None)
        if record is None or not belongs_to(record, window.warehouse):
            return None
        source = (record.answer or {}).get("source") or {}
        if PIPELINE not in record.properties and source.get("kind") != PIPELINE:
            return None
        return next(iter(await _shown(window, [_of_record(record)])), None)

    async def _ids(self, window: Window, day: str) -> list[TransactionId]:
        """The newest first."""
        found: list[TransactionId] = []
        after: str | None = None
        for _ in range(_MOST_LISTS):
            entries = await window.inside.parts.blobs.list(folder_of(day), after, _LIST)
            found += [one for entry in entries if (one := _id_of(entry.name)) is not None]
            if len(entries) < _LIST:
                break
            after = entries[-1].name
        return found[::-1]


async def _shown(window: Window, runs: Sequence[Run]) -> list[Run]:
    """Those of these that may be looked at, as far as they may be: one's own, and those of others that have made
    something in sight."""
    if window.whole:
        return list(runs)
    own = [
        window.sight.is_me(run.report.get(PRINCIPAL)) or (run.record is not None and window.sight.owns(run.record))
        for run in runs
    ]
    reports = await reports_for(window, [run.report for run in runs], own)
    return [
        replace(run, report=report)
        for run, report, mine in zip(runs, reports, own, strict=True)
        if mine or run.record is not None or (run.state == "committed" and stages_of(report))
    ]


async def _confirmed(window: Window, reports: Mapping[TransactionId, Document]) -> list[Run]:
    """The runs that these reports are of, reduced to what their transactions' records support."""
    facts = await window.inside.parts.tasks.all([_facts(window, id, report) for id, report in reports.items()])
    return [run_of(id, report, one) for (id, report), one in zip(reports.items(), facts, strict=True)]


async def _facts(window: Window, transaction_id: TransactionId, report: Document) -> RunFacts:
    """Those stored with the report; from the record, if the run had not ended by then or an older release stored it."""
    stored = RunFacts.from_report(report)
    if stored is not None and stored.final:
        return stored
    record = await window.inside.transactions.load(transaction_id)
    if record is None:
        return RunFacts(UNKNOWN)
    now = await run_facts(window.inside.parts, record, {}, lambda pointer: True)
    visible = stored.visible if stored is not None else frozenset[str]()
    return replace(now, visible=visible, read=now.read & visible if stored is not None else now.read)


def run_of(transaction_id: TransactionId, report: Document, facts: RunFacts) -> Run:
    confirmed = confirmed_report(report, facts)
    return Run(
        transaction_id,
        str(report.get(PIPELINE, "?")),
        str(report.get(RUN, "?")),
        str(confirmed["state"]),
        _bounded(confirmed),
        committed_ms=facts.decided_ms if facts.committed else None,
    )


def _bounded(report: Document) -> Document:
    """A report with at most as many stages, checks and inputs as a page can show: markup takes long to make."""
    lists = {field: report[field] for field in ("stages", "checks", "inputs") if isinstance(report.get(field), list)}
    if all(len(values) <= _SHOWN_ENTRIES for values in lists.values()):
        return report
    return {**report, **{field: values[:_SHOWN_ENTRIES] for field, values in lists.items()}}


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
        record.decided_ms if record.state is State.COMMITTED else None,
    )


def _told(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the commit says about the run. Inputs are shown if the server verified them."""
    if not source:
        return {}
    stages = [{"name": one, "state": "done"} for one in source.get("stages") or () if isinstance(one, str)]
    inputs = (source.get("inputs") or []) if source.get(LINEAGE) in (VERIFIED, LOADED) else []
    return {"stages": stages, "checks": source.get("checks") or [], "inputs": inputs}


def _id_of(name: str) -> TransactionId | None:
    try:
        return parse_transaction_id(name.rpartition("/")[2].removesuffix(".json"))
    except LakepactError:
        return None
