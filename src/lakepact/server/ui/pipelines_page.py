"""Pipelines: their runs, and one run with its stages, checks and graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakepact.kernel.identity import parse_transaction_id, timestamp_ms
from lakepact.server.http import Request
from lakepact.server.rest.errors import NoSuchTransaction
from lakepact.server.ui import run_parts, text
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import ACCENT, BAD, CALM, GOOD, WARN, badge, card, empty, figures, grid, heading, pager
from lakepact.server.ui.runs import Run, RunReports
from lakepact.server.ui.told import stages_of
from lakepact.server.ui.transaction_links import transaction_link
from lakepact.server.ui.versions import quality
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows

_STATES: Final = {
    "committed": GOOD,
    "failed": BAD,
    "running": ACCENT,
    "dry-run": CALM,
    "already-committed": CALM,
    "conflict": WARN,
    "aborted": WARN,
    "unknown": WARN,
}
_LEAD: Final = "Every run is one transaction: all of its tables move at once, or none does."
_PART: Final = "You see your own ones, and of those of others what they have made that you may read."
_UNCHECKED: Final = "This run has checked nothing."
_UNCHECKED_IN_SIGHT: Final = "This run has checked nothing that you may read."


class PipelinePages:
    def __init__(self, windows: Windows, links: Links, runs: RunReports) -> None:
        self._windows = windows
        self._links = links
        self._runs = runs

    async def overview(self, request: Request) -> Page:
        warehouse = request.params["warehouse"]
        window = await self._windows.window(warehouse, request.principal)
        asked = request.query.get("before", "")
        before = parse_transaction_id(asked) if asked else None
        pipeline = request.query.get("pipeline") or None
        runs = await self._runs.newest(window, before=before, pipeline=pipeline)
        others = await self._runs.without_report(window, runs.found) if before is None else []
        shown = [one for one in others if pipeline is None or one.pipeline == pipeline]
        found = sorted((*shown, *runs.found), key=lambda run: run.transaction_id, reverse=True)
        following = runs.following and self._links.pipelines(warehouse, pipeline=pipeline, before=runs.following)
        body = (
            heading(
                name(pipeline) if pipeline else "Pipelines",
                badge("pipeline", ACCENT) if pipeline else None,
                lead=_LEAD if window.whole else f"{_LEAD} {_PART}",
            ),
            card(
                "Runs",
                self._grid(window, found),
                pager(
                    first=self._links.pipelines(warehouse, pipeline=pipeline) if before else None,
                    following=following or None,
                    what="Pages of runs",
                ),
                flush=True,
            )
            if found
            else empty(
                "No runs in the last 30 days",
                "Run a pipeline with ",
                tag("code", "lakepact run pipeline.py"),
                ". Its stages, checks and lineage appear here.",
            ),
        )
        trail = (("Pipelines", self._links.pipelines(warehouse)),) if pipeline else ()
        return Page(pipeline or "Pipelines", body, section="pipelines", warehouse=warehouse, trail=trail)

    async def run(self, request: Request) -> Page:
        warehouse = request.params["warehouse"]
        window = await self._windows.window(warehouse, request.principal)
        transaction_id = parse_transaction_id(request.params["transaction"])
        run = await self._runs.one(window, transaction_id)
        if run is None:
            raise NoSuchTransaction(f"there is no run of a pipeline with transaction {transaction_id} in {warehouse}")
        report, links = run.report, self._links
        stages = stages_of(report)
        checks = run_parts.checks_of(report, stages)
        body = (
            heading(
                join(name(run.pipeline), " ", tag("span", "run ", name(run.run_id), class_="muted thin")),
                badge(run.state, _STATES.get(run.state, CALM)),
            ),
            run_parts.error_of(run),
            figures(self._figures(warehouse, run, stages)),
            card("Graph", run_parts.graph(links, warehouse, report, stages)) if stages else NOTHING,
            card("Stages", run_parts.stages_grid(links, warehouse, stages), flush=True) if stages else NOTHING,
            card("Checks", run_parts.checks_list(links, warehouse, checks), note=text.plural(len(checks), "check"))
            if checks
            else card("Checks", tag("p", _unchecked(window, run), class_="muted")),
            card("What it has read", run_parts.inputs_grid(links, window, run), flush=bool(report.get("inputs"))),
        )
        return Page(
            f"{run.pipeline} {run.run_id}",
            body,
            section="pipelines",
            warehouse=warehouse,
            trail=(
                ("Pipelines", links.pipelines(warehouse)),
                (run.pipeline, links.pipelines(warehouse, pipeline=run.pipeline)),
            ),
        )

    # --- parts ---

    def _grid(self, window: Window, runs: Sequence[Run]) -> Markup:
        warehouse, now_ms = window.warehouse, window.now_ms()

        def row(run: Run) -> Sequence[Child]:
            stages = stages_of(run.report)
            checks = run_parts.checks_of(run.report, stages)
            return (
                tag("a", name(run.run_id), href=self._links.run(warehouse, run.transaction_id), class_="named"),
                tag("a", name(run.pipeline), href=self._links.pipelines(warehouse, pipeline=run.pipeline)),
                badge(run.state, _STATES.get(run.state, CALM)),
                quality(run_parts.quality_of(run.report, checks), checks)
                if run.report
                else tag("span", "–", class_="muted"),
                f"{len(stages):,}" if stages else "–",
                text.duration(run_parts.seconds_of(run.report)),
                text.instant(timestamp_ms(run.transaction_id), now_ms=now_ms),
            )

        columns = ("Run", "Pipeline", "State", "Quality", "Stages", "Took", "Begun")
        return grid(columns, map(row, runs), label="Runs", numbers=(4, 5, 6))

    def _figures(self, warehouse: str, run: Run, stages: Sequence[Mapping[str, Any]]) -> list[tuple[str, Child]]:
        rows = sum(text.number_of(one.get("rows")) or 0 for one in stages)
        attempt = text.number_of(run.report.get("attempt"))
        found: list[tuple[str, Child]] = [
            ("Begun", text.instant(timestamp_ms(run.transaction_id), seconds=False)),
            *([("Committed", text.instant(run.committed_ms, seconds=False))] if run.committed_ms is not None else []),
            ("Took", text.duration(run_parts.seconds_of(run.report))),
            ("Stages", f"{len(stages):,}"),
            ("Rows written", f"{rows:,}"),
        ]
        if attempt is not None and attempt > 1:
            found.append(("Attempt", str(attempt)))
        if run.record is not None:
            found.append(("Transaction", transaction_link(self._links, warehouse, run.transaction_id)))
        return found


def _unchecked(window: Window, run: Run) -> str:
    if run.state == "running":
        return "Not known before it ends."
    return _UNCHECKED if window.whole else _UNCHECKED_IN_SIGHT
