"""What receipts and reports of runs tell to somebody who sees a part of the warehouse.

They are written for everybody, and name tables that may be hidden from whoever looks. Such a name is left out with all
that goes with it, and so is every count that includes it: nobody learns how much they do not see.

    a receipt           its inputs and checks of tables in sight; not how many tables its transaction moved, nor what
                        its writer says in words of their own
    one's own report    tables that are visible now, names without a namespace, and names in namespaces that are visible
                        as a whole. Whether another name is that of a hidden table makes no difference: it is left out
                        in any case, for its author would learn from the difference which tables exist
    another's report    stages, inputs and checks of tables in sight, with the views between them seen through; no rows,
                        no messages and no errors: what they say cannot be judged
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from lakepact.limits import REPORT_EDGES
from lakepact.server.ui.receipts import Document
from lakepact.server.ui.window import Window

Report: TypeAlias = Mapping[str, Any]
Keeps: TypeAlias = Callable[[object], bool]
K = TypeVar("K")

_OF_A_SOURCE: Final = (
    *("kind", "client", "client-info", "user-agent", "principal", "engine", "engine-version", "application-name"),
    *("pipeline", "run-id", "run", "stream", "batch-id"),
)
_OF_A_RUN: Final = ("pipeline", "run-id", "state", "seconds", "attempt")
_OF_A_STAGE: Final = ("name", "target", "mode", "state", "seconds", "rows", "files", "bytes")
_OF_A_CHECK: Final = ("table", "name", "status", "rows", "violations")
_OF_AN_INPUT: Final = ("table", "snapshot-id", "since-snapshot-id")


async def receipts_for(window: Window, receipts: Mapping[K, Document]) -> dict[K, Document]:
    """These receipts, for whoever looks through this window."""
    if window.whole or not receipts:
        return dict(receipts)
    named = {str(one["table"]) for receipt in receipts.values() for one in _tables_in(receipt, "inputs", "checks")}
    seen = await window.sight.visible_names(named)

    def limited(receipt: Document) -> Document:
        kept: dict[str, Any] = {
            field: [one for one in _tables_in(receipt, field) if one["table"] in seen] for field in ("inputs", "checks")
        }
        kept["source"] = limited_source(receipt.get("source") or {})
        return {**{field: value for field, value in receipt.items() if field != "transaction-tables"}, **kept}

    return {key: limited(receipt) for key, receipt in receipts.items()}


async def reports_for(window: Window, reports: Sequence[Report], own: Sequence[bool]) -> list[Report]:
    """These reports, for whoever looks through this window; `own`: whether each is theirs."""
    if window.whole:
        return list(reports)
    visible_names = await window.sight.visible_names({name for report in reports for name in names_in(report)})

    def visible(name: object) -> bool:
        return name in visible_names

    def not_hidden(name: object) -> bool:
        """Whether this is visible, or cannot be the name of a hidden table. Does not depend on which of those exist."""
        if not isinstance(name, str):
            return False
        *namespace, _ = name.split(".")
        return not namespace or visible(name) or window.sight.all_in(namespace)

    return [
        _own(report, not_hidden) if mine else _of_others(report, visible)
        for report, mine in zip(reports, own, strict=True)
    ]


def limited_source(source: Mapping[str, Any]) -> dict[str, Any]:
    """Who it was, without what they say in words of their own: but for the names of a pipeline and a run, those cannot
    be judged."""
    return {field: value for field, value in source.items() if field in _OF_A_SOURCE}


def stages_of(report: Report) -> list[Report]:
    return [one for one in report.get("stages") or () if isinstance(one, dict) and isinstance(one.get("name"), str)]


def edges_of(report: Report) -> list[tuple[str, str]]:
    """Which table was made of which, with views that exist only inside of the run replaced by what they read.

    Each view is resolved once, in time linear in the size of the report. At most `report-edges` edges are returned: a
    report that was stored before that limit may have more.
    """
    stages = {one["name"]: one for one in stages_of(report)}
    resolved = _Resolved()
    edges: list[tuple[str, str]] = []
    work = 0
    for stage in stages.values():
        target = stage.get("target")
        if not target:
            continue
        sources: set[str] = set()
        for name in _texts(_list(stage.get("reads"))):
            sources |= _tables_behind(name, stages, resolved)
        work += len(sources)
        if work > REPORT_EDGES.most:
            break
        edges += [(source, str(target)) for source in sorted(sources) if source != target]
    return edges


class _Resolved(dict[str, frozenset[str]]):
    """What names stand for, and how many more tables may be noted in it."""

    room = 10 * REPORT_EDGES.most


def _tables_behind(name: str, stages: Mapping[str, Report], resolved: _Resolved) -> frozenset[str]:
    """The tables that a name stands for: itself, the table of that stage, or what a view of the run reads.

    Iterative, and with the results of earlier calls in `resolved`. A view that reads itself, directly or through
    others, is resolved without that edge. What goes beyond ten times `report-edges` is left out.
    """
    pending = [name]
    entered: set[str] = set()
    while pending:
        one = pending[-1]
        if one in resolved:
            pending.pop()
            continue
        stage = stages.get(one)
        if stage is None or stage.get("target") is not None:
            resolved[one] = frozenset({one if stage is None else str(stage["target"])})
            continue
        reads = list(_texts(_list(stage.get("reads"))))
        if one not in entered:
            entered.add(one)
            waiting = [read for read in reads if read not in resolved and read not in entered]
            if waiting:
                pending += waiting
                continue
        found: set[str] = set()
        for read in reads:
            if len(found) > resolved.room:
                break
            found |= resolved.get(read, frozenset())
        resolved.room -= len(found)
        resolved[one] = frozenset(found)
    return resolved[name]


def names_in(report: Report) -> Iterator[str]:
    """Everything in a report that may be the name of a table."""
    for stage in stages_of(report):
        yield from _texts((stage["name"], stage.get("target"), *_list(stage.get("reads"))))
        yield from (str(one["table"]) for one in _tables_in(stage, "checks"))
    for one in _tables_in(report, "checks", "inputs"):
        yield str(one["table"])
        yield from _texts(_list(one.get("used-by")))


def _own(report: Report, keeps: Keeps) -> Report:
    if not report:
        return report
    stages = [
        {
            **stage,
            "reads": [one for one in _list(stage.get("reads")) if keeps(one)],
            "checks": _checks(stage, keeps),
        }
        for stage in stages_of(report)
        if keeps(stage["name"]) and (stage.get("target") is None or keeps(stage["target"]))
    ]
    inputs = [
        {**one, "used-by": [user for user in _list(one.get("used-by")) if keeps(user)]}
        for one in _tables_in(report, "inputs")
        if keeps(one["table"])
    ]
    return {**report, "stages": stages, "checks": _checks(report, keeps), "inputs": inputs}


def _of_others(report: Report, keeps: Keeps) -> Report:
    if not report:
        return report
    sources: dict[str, list[str]] = {}
    for source, target in edges_of(report):
        if keeps(source):
            sources.setdefault(target, []).append(source)
    stages = [
        {**_some(stage, _OF_A_STAGE), "name": _table_of(stage), "reads": sources.get(_table_of(stage), [])}
        for stage in stages_of(report)
        # Without a target it is a view inside the run, or it wrote no table: its name may be that of any table.
        if stage.get("target") and keeps(stage["target"])
    ]
    inputs = [
        {**_some(one, _OF_AN_INPUT), "used-by": users}
        for one in _tables_in(report, "inputs")
        if keeps(one["table"])
        # What only a hidden stage has read tells of that one.
        and ((users := _users(one, sources, keeps)) or not one.get("used-by"))
    ]
    checks = _checks(report, keeps) or [one for stage in stages_of(report) for one in _checks(stage, keeps)]
    return {
        **_some(report, _OF_A_RUN),
        "stages": stages,
        "checks": [_some(one, _OF_A_CHECK) for one in checks],
        "inputs": inputs,
    }


def _users(one: Report, sources: Mapping[str, Sequence[str]], keeps: Keeps) -> list[str]:
    """The tables in sight that were made of this one, by themselves or through a view."""
    told = [user for user in _list(one.get("used-by")) if keeps(user)]
    return told or [target for target, found in sources.items() if keeps(target) and one["table"] in found]


def _table_of(stage: Report) -> str:
    return str(stage.get("target") or stage["name"])


def _checks(report: Report, keeps: Keeps) -> list[Report]:
    return [one for one in _tables_in(report, "checks") if keeps(one["table"])]


def _tables_in(report: Report, *fields: str) -> list[Report]:
    """The entries of these lists that are about a table."""
    found = (one for field in fields for one in _list(report.get(field)))
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("table"), str)]


def _some(report: Report, fields: Iterable[str]) -> Report:
    return {field: report[field] for field in fields if field in report}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _texts(values: Iterable[Any]) -> Iterator[str]:
    return (one for one in values if isinstance(one, str))
