"""A run of a pipeline, in parts of its page: what it made in which order, how long that took, what was checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lakepact.catalog.runs import LINKED
from lakepact.iceberg.requests import Identifier
from lakepact.server.ui import text
from lakepact.server.ui.graphs import Node, columns_of, picture
from lakepact.server.ui.html import NOTHING, Child, Markup, join, lines, name, tag
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import ACCENT, BAD, CALM, GOOD, WARN, alert, badge, grid, mono
from lakepact.server.ui.runs import Run
from lakepact.server.ui.versions import table_link
from lakepact.server.ui.window import Window

_NOT_RUN: Final = "not-run"
_CHECKS: Final = {"passed": GOOD, "warned": WARN, "dropped": WARN, "failed": BAD}
_READ_ALL: Final = ("committed", "dry-run")
"""How a run ends that has done all of its work."""

_STAGES: Final = {"done": GOOD, "failed": BAD, "begun": ACCENT}
_DRAWN_NODES: Final = 200
_DRAWN_EDGES: Final = 1_000
"""A larger picture cannot be read, and takes long to make."""

_MOST_SAMPLES: Final = 10


def error_of(run: Run) -> Markup:
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


def graph(links: Links, warehouse: str, report: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> Markup:
    names = {str(one["name"]) for one in stages}
    reads = {str(one["name"]): [str(read) for read in one.get("reads") or ()] for one in stages}
    declared = [read for found in reads.values() for read in found if read not in names]
    observed = [str(one["table"]) for one in report.get("inputs") or () if isinstance(one, dict) and "table" in one]
    externals = list(dict.fromkeys([*declared, *(one for one in observed if one not in names)]))
    nodes = [Node(one, one, "read", _address(links, warehouse, one), "outside") for one in externals]
    nodes += [_stage_node(links, warehouse, one) for one in stages]
    edges = [(source, target) for target, found in reads.items() for source in found]
    for one in report.get("inputs") or ():
        if isinstance(one, dict):
            edges += [(str(one.get("table")), str(user)) for user in one.get("used-by") or ()]
    nodes = nodes[:_DRAWN_NODES]
    drawn = {node.key for node in nodes}
    unique = list(dict.fromkeys(edge for edge in edges if drawn.issuperset(edge)))[:_DRAWN_EDGES]
    return picture(columns_of(nodes, unique), unique, label="The graph of this run")


def _stage_node(links: Links, warehouse: str, stage: Mapping[str, Any]) -> Node:
    state = str(stage.get("state", "done"))
    rows = text.number_of(stage.get("rows"))
    said = [text.duration(_float(stage.get("seconds")))] if _float(stage.get("seconds")) is not None else [state]
    if rows:
        said.append(text.plural(rows, "row"))
    if _is_view(stage):
        said.append("view")
    target = stage.get("target")
    href = _address(links, warehouse, str(target)) if target else None
    return Node(str(stage["name"]), str(stage["name"]), " · ".join(said), href, f"stage {state}")


def stages_grid(links: Links, warehouse: str, stages: Sequence[Mapping[str, Any]]) -> Markup:
    longest = max((_float(one.get("seconds")) or 0.0 for one in stages), default=0.0) or 1.0

    def row(one: Mapping[str, Any]) -> Sequence[Child]:
        target, seconds = one.get("target"), _float(one.get("seconds"))
        # A view is computed where it is used: it has no rows of its own, not even none.
        kept: Mapping[str, Any] = {} if _is_view(one) else one
        state = str(one.get("state", "done"))
        return (
            table_link(links, warehouse, str(target)) if target else name(str(one["name"])),
            badge(state, _STAGES.get(state, CALM)),
            name(str(one.get("mode") or ("view" if _is_view(one) else "–"))),
            text.count(text.number_of(kept.get("rows"))),
            text.count(text.number_of(kept.get("files"))),
            text.size(text.number_of(kept.get("bytes"))),
            join(text.duration(seconds), _bar((seconds or 0.0) / longest)),
        )

    columns = ("Stage", "State", "Mode", "Rows", "Files", "Size", "Took")
    return grid(columns, map(row, stages), label="Stages", numbers=(3, 4, 5, 6))


def _is_view(stage: Mapping[str, Any]) -> bool:
    return "target" in stage and stage["target"] is None


def checks_list(links: Links, warehouse: str, checks: Sequence[Mapping[str, Any]]) -> Markup:
    """Those that do not hold first, each with some of the rows."""
    order = {"failed": 0, "dropped": 1, "warned": 2, _NOT_RUN: 4}
    found = sorted(checks, key=lambda one: (order.get(str(one.get("status")), 3), str(one.get("table"))))
    return tag("ul", (_check(links, warehouse, one) for one in found), class_="checks")


def _check(links: Links, warehouse: str, one: Mapping[str, Any]) -> Markup:
    status, violations = str(one.get("status", "?")), text.number_of(one.get("violations")) or 0
    rows = [row for row in one.get("sample") or () if isinstance(row, str)][:_MOST_SAMPLES]
    looked_at = text.count(text.number_of(one.get("rows")))
    said = str(one.get("message") or f"{violations:,} of {looked_at} rows do not meet it") if violations else ""
    return tag(
        "li",
        tag(
            "div",
            badge("not run" if status == _NOT_RUN else status, _CHECKS.get(status, CALM)),
            tag("strong", name(str(one.get("name", "?")))),
            table_link(links, warehouse, str(one.get("table", "?")))
            if one.get(LINKED, True)
            else name(str(one.get("table", "?"))),
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


def inputs_grid(links: Links, window: Window, run: Run) -> Child:
    report = run.report
    inputs = [one for one in report.get("inputs") or () if isinstance(one, dict) and "table" in one]
    if not inputs and run.state not in _READ_ALL:
        # What was read is known at the end of its work, to which this run has not come.
        running = run.state == "running"
        why = "Not known before it ends." if running else "Not recorded: it ended before it had read everything."
        return tag("p", why, class_="muted")
    if not inputs:
        nothing = "Nothing but what it made itself." if window.whole else "Nothing else that you may read."
        return tag("p", nothing, class_="muted")
    rows = (
        (
            table_link(links, window.warehouse, str(one["table"])),
            mono(name(str(one.get("snapshot-id") or "–"))),
            mono(name(str(one.get("since-snapshot-id") or "–"))),
            name(", ".join(map(str, one.get("used-by") or ())) or "–"),
        )
        for one in inputs
    )
    return grid(("Table", "Snapshot", "Only since", "Read by"), rows, label="What the run has read")


def _address(links: Links, warehouse: str, full_name: str) -> str | None:
    *namespace, last = full_name.split(".")
    if not namespace or not all((*namespace, last)):
        return None
    return links.table(warehouse, Identifier(tuple(namespace), last))


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


def checks_of(report: Mapping[str, Any], stages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """All of them: those of the run, and those that its stages tell of."""
    found: list[Mapping[str, Any]] = [one for one in report.get("checks") or () if isinstance(one, dict)]
    if found:
        return found
    return [one for stage in stages for one in stage.get("checks") or () if isinstance(one, dict)]


def quality_of(report: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]) -> str:
    if all(one.get("status") == _NOT_RUN for one in checks):
        return "not-checked"
    found = {str(one.get("status")) for one in checks} - {_NOT_RUN}
    if "failed" in found:
        return "failed"
    return "passed" if found == {"passed"} else "warned"


def seconds_of(report: Mapping[str, Any]) -> float | None:
    return _float(report.get("seconds"))


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
