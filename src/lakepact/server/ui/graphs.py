"""Graphs as pictures: boxes in columns from left to right, arrows between them, every box a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakepact.server.ui.html import Markup, tag, visible

_WIDTH: Final = 180
_HEIGHT: Final = 54
_GAP_X: Final = 46
_GAP_Y: Final = 18
_LANE: Final = 6
_MARGIN: Final = 10
_LETTERS: Final = 22
_SMALL_LETTERS: Final = 28


@dataclass(frozen=True, slots=True)
class Node:
    key: str
    title: str
    below: str = ""
    href: str | None = None
    look: str = ""
    """A class: how it looks."""


def columns_of(nodes: Sequence[Node], edges: Sequence[tuple[str, str]]) -> list[list[Node]]:
    """Every node right of all it comes from, and what comes from nothing right before it is needed: no arrow is longer
    than it must be. Circles are cut where they are met."""
    sources: dict[str, list[str]] = {node.key: [] for node in nodes}
    for source, target in edges:
        if source in sources and target in sources and source != target:
            sources[target].append(source)
    levels: dict[str, int] = {}

    def level(key: str, path: frozenset[str]) -> int:
        if key not in levels:
            below = [level(one, path | {key}) for one in sources[key] if one not in path]
            levels[key] = max(below, default=-1) + 1
        return levels[key]

    for node in nodes:
        level(node.key, frozenset({node.key}))
    for node in nodes:
        needed = [levels[target] for target, found in sources.items() if node.key in found]
        if not sources[node.key] and needed:
            levels[node.key] = max(min(needed) - 1, 0)
    width = max(levels.values(), default=-1) + 1
    return [[node for node in nodes if levels[node.key] == at] for at in range(width)]


def picture(columns: Sequence[Sequence[Node]], edges: Sequence[tuple[str, str]], *, label: str) -> Markup:
    drawn = _laid_out(columns, edges)
    arrows = [_arrow(drawn, source, target) for source, target in edges if _both(drawn.places, source, target)]
    drawing = tag(
        "svg",
        tag("title", label),
        tag(
            "defs",
            tag(
                "marker",
                tag("path", d="M0 0 8 4 0 8z", class_="tip"),
                id="tip",
                viewBox="0 0 8 8",
                refX="7",
                refY="4",
                markerWidth="7",
                markerHeight="7",
                orient="auto",
            ),
        ),
        arrows,
        (_box(node, *drawn.places[node.key]) for column in columns for node in column),
        viewBox=f"0 0 {drawn.width} {drawn.height}",
        width=drawn.width,
        height=drawn.height,
        role="group",
        aria_label=label,
        class_="graph",
    )
    return tag("div", drawing, class_="scroll picture", tabindex="0", role="group", aria_label=label)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Where everything is."""

    width: int
    height: int
    places: Mapping[str, tuple[int, int]]
    column: Mapping[str, int]
    lanes: Mapping[tuple[str, int], int]
    """Where the arrows of a node pass a column that is not theirs: free room, for all of them together."""


def _laid_out(columns: Sequence[Sequence[Node]], edges: Sequence[tuple[str, str]]) -> _Drawn:
    column = {node.key: at for at, found in enumerate(columns) for node in found}
    farthest: dict[str, int] = {}
    for source, target in edges:
        if source in column and target in column:
            farthest[source] = max(farthest.get(source, 0), column[target])
    passing = [
        [key for key, at in column.items() if at < here < farthest.get(key, 0)] for here, _ in enumerate(columns)
    ]
    heights = [
        len(found) * (_HEIGHT + _GAP_Y) + len(lanes) * (_LANE + _GAP_Y) - _GAP_Y
        for found, lanes in zip(columns, passing, strict=True)
    ]
    tallest = max(heights, default=0)
    places: dict[str, tuple[int, int]] = {}
    lanes: dict[tuple[str, int], int] = {}
    for here, found in enumerate(columns):
        # Short columns stand in the middle.
        y = _MARGIN + (tallest - heights[here]) // 2
        before = {key: places[key][1] for key in passing[here]}
        # Who comes from above passes above.
        high = [key for key in passing[here] if before[key] + _HEIGHT // 2 <= _MARGIN + tallest // 2]
        for key in sorted(high, key=before.__getitem__):
            lanes[key, here] = y + _LANE // 2
            y += _LANE + _GAP_Y
        for node in found:
            places[node.key] = (_MARGIN + here * (_WIDTH + _GAP_X), y)
            y += _HEIGHT + _GAP_Y
        for key in sorted((one for one in passing[here] if one not in high), key=before.__getitem__):
            lanes[key, here] = y + _LANE // 2
            y += _LANE + _GAP_Y
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _GAP_X) - _GAP_X
    return _Drawn(width, 2 * _MARGIN + tallest, places, column, lanes)


def _both(places: Mapping[str, tuple[int, int]], source: str, target: str) -> bool:
    return source in places and target in places and source != target


def _arrow(drawn: _Drawn, source: str, target: str) -> Markup:
    """From box to box, past the columns between them where there is room."""
    (left, top), (end, end_top) = drawn.places[source], drawn.places[target]
    x, y = left + _WIDTH, top + _HEIGHT // 2
    steps = [f"M{x} {y}"]
    for here in range(drawn.column[source] + 1, drawn.column[target]):
        at, lane = _MARGIN + here * (_WIDTH + _GAP_X), drawn.lanes[source, here]
        steps.append(f"{_curve(x, y, at, lane)}H{at + _WIDTH}")
        x, y = at + _WIDTH, lane
    steps.append(_curve(x, y, end - 2, end_top + _HEIGHT // 2))
    return tag("path", d="".join(steps), marker_end="url(#tip)", class_="edge")


def _curve(x1: int, y1: int, x2: int, y2: int) -> str:
    middle = (x1 + x2) // 2
    return f"C{middle} {y1} {middle} {y2} {x2} {y2}"


def _box(node: Node, x: int, y: int) -> Markup:
    box = (
        tag("title", visible(node.title)),
        tag("rect", x=x, y=y, width=_WIDTH, height=_HEIGHT, rx=9),
        tag("text", _cut(visible(node.title), _LETTERS), x=x + 13, y=y + (23 if node.below else 32), class_="what"),
        tag("text", _cut(visible(node.below), _SMALL_LETTERS), x=x + 13, y=y + 41, class_="more")
        if node.below
        else None,
    )
    if node.href is None:
        return tag("g", box, class_=f"node {node.look}".rstrip())
    return tag("a", box, href=node.href, class_=f"node {node.look}".rstrip())


def _cut(text: str, most: int) -> str:
    # The end of a name tells more than its beginning.
    return text if len(text) <= most else "…" + text[-most + 1 :]
