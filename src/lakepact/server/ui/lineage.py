"""Where a table comes from and where it goes: worked out from the receipts of its versions and the reports of runs.

Receipts have the inputs of each version, so upstream tables are known for the whole history. Downstream tables come
from the reports of the newest runs of the last 30 days. Both count only as far as the server has verified them: an edge
joins tables that the transaction's record has read and written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact.catalog.files import MetadataFile
from lakepact.catalog.lineage import LOADED, VERIFIED
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.iceberg.requests import Identifier
from lakepact.limits import REPORT_EDGES
from lakepact.runtime import off_loop
from lakepact.server.ui.runs import RunReports
from lakepact.server.ui.timeline import Timeline
from lakepact.server.ui.told import edges_of
from lakepact.server.ui.window import Window

_LEVELS: Final = 2
_MOST_NODES: Final = 40
_VERSIONS: Final = 20
_RUNS: Final = 200


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A table with what is around it. Names are written with dots."""

    center: str
    edges: Sequence[tuple[str, str]]
    tables: Sequence[str]

    kinds: Mapping[str, Kind]
    """Of those that are in this catalog."""

    cut: bool
    """Whether there is more than is shown."""


class Lineage:
    def __init__(self, timeline: Timeline, runs: RunReports) -> None:
        self._timeline = timeline
        self._runs = runs

    async def around(self, window: Window, pointer: Pointer) -> Neighbourhood:
        told = (await self._runs.newest(window, limit=_RUNS)).found
        edges = await off_loop(_edges, [run.report for run in told if run.state == "committed"])
        center = shown(pointer.identifier)
        edges |= {(source, center) for source in await self._sources(window, pointer)}
        kinds: dict[str, Kind] = {center: pointer.kind}
        levels: dict[str, int] = {center: 0}
        cut = False
        for direction in (-1, 1):
            reached = [center]
            for step in range(1, _LEVELS + 1):
                found: list[str] = []
                for name in reached:
                    if direction < 0 and step > 1:
                        edges |= {(source, name) for source in await self._sources_of(window, name, kinds)}
                    found += _beside(name, edges, direction)
                fresh = [one for one in dict.fromkeys(found) if one not in levels]
                room = max(_MOST_NODES - len(levels), 0)
                cut |= len(fresh) > room
                reached = sorted(fresh)[:room]
                levels |= dict.fromkeys(reached, direction * step)
        for name in levels:
            await self._kind(window, name, kinds)
        kept = [edge for edge in sorted(edges) if edge[0] in levels and edge[1] in levels]
        return Neighbourhood(center, kept, sorted(levels), kinds, cut)

    async def _sources_of(self, window: Window, name: str, kinds: dict[str, Kind]) -> set[str]:
        found = await self._find(window, name)
        if found is None:
            return set()
        kinds[name] = found.kind
        return await self._sources(window, found)

    async def _sources(self, window: Window, pointer: Pointer) -> set[str]:
        """What its newest versions were made of."""
        if pointer.kind is Kind.TABLE:
            file = await window.metadata(pointer)
            if not isinstance(file, MetadataFile):
                return set()
            page = await self._timeline.page(window, pointer, file, limit=_VERSIONS)
            return _inputs(page.receipts.values(), shown(pointer.identifier))
        if pointer.kind is Kind.DELTA:
            rows = await window.delta_history(pointer.identifier, None, _VERSIONS)
            revision = await window.revision(pointer)
            receipts = await self._timeline.delta(window, pointer, revision, rows)
            return _inputs(receipts.values(), shown(pointer.identifier))
        return set()

    async def _kind(self, window: Window, name: str, kinds: dict[str, Kind]) -> None:
        if name not in kinds and (found := await self._find(window, name)) is not None:
            kinds[name] = found.kind

    async def _find(self, window: Window, name: str) -> Pointer | None:
        *namespace, last = name.split(".")
        return await window.neighbour(Identifier(tuple(namespace), last)) if namespace else None


def _edges(reports: Sequence[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """The edges of these runs, the newest first, as many as are looked at."""
    edges: set[tuple[str, str]] = set()
    for report in reports:
        edges.update(edges_of(report))
        if len(edges) > REPORT_EDGES.most:
            break
    return edges


def _beside(name: str, edges: Iterable[tuple[str, str]], direction: int) -> list[str]:
    if direction < 0:
        return [source for source, target in edges if target == name]
    return [target for source, target in edges if source == name]


def _inputs(receipts: Iterable[Mapping[str, Any]], itself: str) -> set[str]:
    """The tables that these versions were made of, according to inputs that the server verified or saw loaded.

    Inputs that a writer has only declared are in the table's timeline, marked as such: a writer may declare any name.
    Inputs that a transaction has only loaded are left out, because it is not known which of its tables used them.
    """
    found: set[str] = set()
    for receipt in receipts:
        if receipt.get("lineage") not in (VERIFIED, LOADED):
            continue
        told = [
            one for one in receipt.get("inputs") or () if isinstance(one, dict) and isinstance(one.get("table"), str)
        ]
        own = [one for one in told if itself in (one.get("used-by") or ())]
        found |= {one["table"] for one in own or told}
    return found - {itself}
