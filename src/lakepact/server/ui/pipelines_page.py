"""Pipelines: their runs, one run with its stages, checks and graph; and the lineage of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakepact.catalog import Catalog
from lakepact.catalog.pointers import Kind
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import parse_transaction_id, timestamp_ms
from lakepact.server.http import Request
from lakepact.server.rest.errors import NoSuchTransaction
from lakepact.server.ui import text
from lakepact.server.ui.data import Windows
from lakepact.server.ui.graphs import Node, columns_of, picture
from lakepact.server.ui.html import NOTHING, Child, Markup, join, lines, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.lineage import Lineage, Neighbourhood
from lakepact.server.ui.links import Links, levels_of
from lakepact.server.ui.parts import (
    ACCENT,
    BAD,
    CALM,
    GOOD,
    WARN,
    alert,
    badge,
    card,
    empty,
    figures,
    grid,
    heading,
    mono,
    pager,
)
from lakepact.server.ui.runs import Run, RunReports, stages_of
from lakepact.server.ui.table_page import TablePages
from lakepact.server.ui.transactions_page import short_id
from lakepact.server.ui.versions import quality, table_link

_STATES: Final = {
    "committed": GOOD,
    "failed": BAD,
    "running": ACCENT,
    "dry-run": CALM,
    "already-committed": CALM,
    "conflict": WARN,
}
_CHECKS: Final = {"passed": GOOD, "warned": WARN, "dropped": WARN, "failed": BAD}
_STAGES: Final = {"done": GOOD, "failed": BAD, "begun": ACCENT}
_MOST_SAMPLES: Final = 10


class PipelinePages:
    def __init__(self, windows: Windows, links: Links, tables: TablePages) -> None:
        self._windows = windows
        self._links = links
        self._tables = tables
        self._runs = RunReports(windows.documents)
        self._lineage = Lineage(windows, self._runs)

    async def overview(self, request: Request) -> Page:
        warehouse = request.params["warehouse"]
        catalog = await self._windows.catalog(warehouse, request.principal)
        asked = request.query.get("before", "")
        before = parse_transaction_id(asked) if asked else None
        pipeline = request.query.get("pipeline") or None
        runs = await self._runs.newest(catalog, before=before, pipeline=pipeline)
        shows = await self._windows.shows(catalog, request.principal)
        others = await self._runs.without_report(catalog, shows, runs.found) if before is None else []
        shown = [one for one in others if pipeline is None or one.pipeline == pipeline]
        found = sorted((*shown, *runs.found), key=lambda run: run.transaction_id, reverse=True)
        following = runs.following and self._links.pipelines(warehouse, pipeline=pipeline, before=runs.following)
        body = (
            heading(
                name(pipeline) if pipeline else "Pipelines",
                badge("pipeline", ACCENT) if pipeline else None,
                lead="Every run is one transaction: all of its tables move at once, or none does.",
            ),
            card(
                "Runs",
                self._grid(catalog, warehouse, found),
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
        catalog = await self._windows.catalog(warehouse, request.principal)
        transaction_id = parse_transaction_id(request.params["transaction"])
        shows = await self._windows.shows(catalog, request.principal)
        run = await self._runs.one(catalog, shows, transaction_id)
        if run is None:
            raise NoSuchTransaction(f"there is no run of a pipeline with transaction {transaction_id} in {warehouse}")
        report = run.report
        stages = stages_of(report)
        checks = _checks(report, stages)
        body = (
            heading(
                join(name(run.pipeline), " ", tag("span", "run ", name(run.run_id), class_="muted thin")),
                badge(run.state, _STATES.get(run.state, CALM)),
            ),
            self._error(run),
            figures(self._figures(run, stages, checks)),
            card("Graph", self._graph(warehouse, report, stages)) if stages else NOTHING,
            card("Stages", self._stages(warehouse, stages), flush=True) if stages else NOTHING,
            card("Checks", self._checks(warehouse, checks), note=text.plural(len(checks), "check"))
            if checks
            else card("Checks", tag("p", "This run has checked nothing.", class_="muted")),
            card("What it has read", self._inputs(warehouse, report), flush=bool(report.get("inputs"))),
        )
        return Page(
            f"{run.pipeline} {run.run_id}",
            body,
            section="pipelines",
            warehouse=warehouse,
            trail=(
                ("Pipelines", self._links.pipelines(warehouse)),
                (run.pipeline, self._links.pipelines(warehouse, pipeline=run.pipeline)),
            ),
        )

    async def lineage(self, request: Request) -> Page:
        catalog = await self._windows.catalog(request.params["warehouse"], request.principal)
        identifier = Identifier(levels_of(request.params["namespace"]), request.params["table"])
        pointer = await self._windows.find(catalog, identifier)
        around = await self._lineage.around(catalog, pointer)
        body = (
            card("Lineage", self._lineage_picture(catalog.warehouse.name, around))
            if around.edges
            else empty(
                "No lineage known",
                "Pipelines record what they read, and writers may say it. Nothing of that is known of this table.",
            )
        )
        return await self._tables.page(catalog, pointer, "lineage", body)

    # --- runs ---

    def _grid(self, catalog: Catalog, warehouse: str, runs: Sequence[Run]) -> Markup:
        now_ms = catalog.parts.clock.now_ms()

        def row(run: Run) -> Sequence[Child]:
            stages = stages_of(run.report)
            checks = _checks(run.report, stages)
            return (
                tag("a", name(run.run_id), href=self._links.run(warehouse, run.transaction_id), class_="named"),
                tag("a", name(run.pipeline), href=self._links.pipelines(warehouse, pipeline=run.pipeline)),
                badge(run.state, _STATES.get(run.state, CALM)),
                quality(_quality(run.report, checks), checks) if run.report else tag("span", "–", class_="muted"),
                f"{len(stages):,}" if stages else "–",
                text.duration(_seconds(run.report)),
                text.instant(timestamp_ms(run.transaction_id), now_ms=now_ms),
            )

        columns = ("Run", "Pipeline", "State", "Quality", "Stages", "Took", "Begun")
        return grid(columns, map(row, runs), label="Runs", numbers=(4, 5, 6))

    def _error(self, run: Run) -> Markup:
        if run.state == "running":
            return alert("It is running", "Nothing of it can be seen before it commits.", look=CALM)
        error = run.report.get("error")
        if isinstance(error, dict):
            return alert(
                "It failed, and published nothing",
                lines(str(error.get("message", ""))[:4_000]),
            )
        if not run.report and run.state in ("aborted", "failed"):
            return alert(
                "It ended without a report",
                "Whoever ran it is gone, or could not tell. Nothing of it was published.",
                look=WARN,
            )
        return NOTHING

    def _figures(
        self, run: Run, stages: Sequence[Mapping[str, Any]], checks: Sequence[Mapping[str, Any]]
    ) -> list[tuple[str, Child]]:
        rows = sum(text.number_of(one.get("rows")) or 0 for one in stages)
        attempt = text.number_of(run.report.get("attempt"))
        found: list[tuple[str, Child]] = [
            ("Begun", text.instant(timestamp_ms(run.transaction_id), seconds=False)),
            ("Took", text.duration(_seconds(run.report))),
            ("Stages", f"{len(stages):,}"),
            ("Rows written", f"{rows:,}"),
        ]
        if attempt is not None and attempt > 1:
            found.append(("Attempt", str(attempt)))
        link = self._links.transaction(self._warehouse_of(run), run.transaction_id)
        found.append(("Transaction", tag("a", mono(short_id(run.transaction_id)), href=link)))
        return found

    def _warehouse_of(self, run: Run) -> str:
        return str(run.report.get("warehouse") or self._windows.default)

    def _graph(self, warehouse: str, report: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> Markup:
        names = {str(one["name"]) for one in stages}
        reads = {str(one["name"]): [str(read) for read in one.get("reads") or ()] for one in stages}
        declared = [read for found in reads.values() for read in found if read not in names]
        observed = [str(one["table"]) for one in report.get("inputs") or () if isinstance(one, dict) and "table" in one]
        externals = list(dict.fromkeys([*declared, *(one for one in observed if one not in names)]))
        nodes = [Node(one, one, "read", self._address(warehouse, one), "outside") for one in externals]
        nodes += [self._stage_node(warehouse, one) for one in stages]
        edges = [(source, target) for target, found in reads.items() for source in found]
        for one in report.get("inputs") or ():
            if isinstance(one, dict):
                edges += [(str(one.get("table")), str(user)) for user in one.get("used-by") or ()]
        unique = list(dict.fromkeys(edges))
        return picture(columns_of(nodes, unique), unique, label="The graph of this run")

    def _stage_node(self, warehouse: str, stage: Mapping[str, Any]) -> Node:
        state = str(stage.get("state", "done"))
        rows = text.number_of(stage.get("rows"))
        said = [text.duration(_float(stage.get("seconds")))] if _float(stage.get("seconds")) is not None else [state]
        if rows:
            said.append(text.plural(rows, "row"))
        if stage.get("target") is None and "target" in stage:
            said.append("view")
        target = stage.get("target")
        href = self._address(warehouse, str(target)) if target else None
        return Node(str(stage["name"]), str(stage["name"]), " · ".join(said), href, f"stage {state}")

    def _stages(self, warehouse: str, stages: Sequence[Mapping[str, Any]]) -> Markup:
        longest = max((_float(one.get("seconds")) or 0.0 for one in stages), default=0.0) or 1.0

        def row(one: Mapping[str, Any]) -> Sequence[Child]:
            target, seconds = one.get("target"), _float(one.get("seconds"))
            state = str(one.get("state", "done"))
            return (
                table_link(self._links, warehouse, str(target)) if target else name(str(one["name"])),
                badge(state, _STAGES.get(state, CALM)),
                name(str(one.get("mode") or ("view" if "target" in one else "–"))),
                text.count(text.number_of(one.get("rows"))),
                text.count(text.number_of(one.get("files"))),
                text.size(text.number_of(one.get("bytes"))),
                join(text.duration(seconds), _bar((seconds or 0.0) / longest)),
            )

        columns = ("Stage", "State", "Mode", "Rows", "Files", "Size", "Took")
        return grid(columns, map(row, stages), label="Stages", numbers=(3, 4, 5, 6))

    def _checks(self, warehouse: str, checks: Sequence[Mapping[str, Any]]) -> Markup:
        """Those that do not hold first, each with some of the rows."""
        order = {"failed": 0, "dropped": 1, "warned": 2}
        found = sorted(checks, key=lambda one: (order.get(str(one.get("status")), 3), str(one.get("table"))))
        return tag("ul", (self._check(warehouse, one) for one in found), class_="checks")

    def _check(self, warehouse: str, one: Mapping[str, Any]) -> Markup:
        status, violations = str(one.get("status", "?")), text.number_of(one.get("violations")) or 0
        rows = [row for row in one.get("sample") or () if isinstance(row, str)][:_MOST_SAMPLES]
        looked_at = text.count(text.number_of(one.get("rows")))
        said = str(one.get("message") or f"{violations:,} of {looked_at} rows do not meet it") if violations else ""
        return tag(
            "li",
            tag(
                "div",
                badge(status, _CHECKS.get(status, CALM)),
                tag("strong", name(str(one.get("name", "?")))),
                table_link(self._links, warehouse, str(one.get("table", "?"))),
                tag("span", name(said), class_="muted") if said else None,
                class_="check-head",
            ),
            tag(
                "details",
                tag("summary", text.plural(len(rows), "sample row")),
                tag("pre", tag("code", name_lines(rows)), tabindex="0"),
                open=status == "failed",
            )
            if rows
            else None,
        )

    def _inputs(self, warehouse: str, report: Mapping[str, Any]) -> Child:
        inputs = [one for one in report.get("inputs") or () if isinstance(one, dict) and "table" in one]
        if not inputs:
            return tag("p", "Nothing but what it made itself.", class_="muted")
        rows = (
            (
                table_link(self._links, warehouse, str(one["table"])),
                mono(name(str(one.get("snapshot-id") or "–"))),
                mono(name(str(one.get("since-snapshot-id") or "–"))),
                name(", ".join(map(str, one.get("used-by") or ())) or "–"),
            )
            for one in inputs
        )
        return grid(("Table", "Snapshot", "Only since", "Read by"), rows, label="What the run has read")

    def _address(self, warehouse: str, full_name: str) -> str | None:
        *namespace, last = full_name.split(".")
        if not namespace or not all((*namespace, last)):
            return None
        return self._links.table(warehouse, Identifier(tuple(namespace), last))

    # --- lineage ---

    def _lineage_picture(self, warehouse: str, around: Neighbourhood) -> Markup:
        def node(full_name: str) -> Node:
            kind = around.kinds.get(full_name)
            *namespace, last = full_name.split(".")
            known = kind is not None and bool(namespace)
            words = {Kind.TABLE: "Iceberg table", Kind.DELTA: "Delta table", Kind.VIEW: "view"}
            return Node(
                full_name,
                full_name,
                words[kind] if kind is not None else "not in this catalog",
                self._links.table(warehouse, Identifier(tuple(namespace), last), "lineage") if known else None,
                "center" if full_name == around.center else "" if known else "outside",
            )

        columns = columns_of([node(one) for one in around.tables], around.edges)
        return join(
            tag(
                "p",
                "What it was made of is on the left, what is made of it on the right. Follow a box to go there.",
                class_="muted",
            ),
            picture(columns, around.edges, label=f"Lineage of {around.center}"),
            tag("p", "There is more than fits in here.", class_="muted end") if around.cut else None,
        )


def name_lines(rows: Sequence[str]) -> Markup:
    return join([(name(row), "\n") for row in rows])


def _bar(share: float) -> Markup:
    width = max(1, round(100 * min(share, 1.0)))
    return tag(
        "svg",
        tag("rect", width=100, height=4, rx=2, class_="bar-ground"),
        tag("rect", width=width, height=4, rx=2, class_="bar-part"),
        viewBox="0 0 100 4",
        width=100,
        height=4,
        aria_hidden="true",
        class_="bar",
    )


def _checks(report: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All of them: those of the run, and those that its stages tell of."""
    found: list[Mapping[str, Any]] = [one for one in report.get("checks") or () if isinstance(one, dict)]
    if found:
        return found
    return [one for stage in stages for one in stage.get("checks") or () if isinstance(one, dict)]


def _quality(report: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]) -> str:
    if not checks:
        return "not-checked"
    return "failed" if any(one.get("status") == "failed" for one in checks) else "passed"


def _seconds(report: Mapping[str, Any]) -> float | None:
    return _float(report.get("seconds"))


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
