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
    tallest = max((len(column) for column in columns), default=0)
    height = 2 * _MARGIN + tallest * (_HEIGHT + _GAP_Y) - _GAP_Y
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _GAP_X) - _GAP_X
    places: dict[str, tuple[int, int]] = {}
    for x, column in enumerate(columns):
        # Short columns stand in the middle.
        top = _MARGIN + (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2
        for y, node in enumerate(column):
            places[node.key] = (_MARGIN + x * (_WIDTH + _GAP_X), top + y * (_HEIGHT + _GAP_Y))
    arrows = [_arrow(places[source], places[target]) for source, target in edges if _both(places, source, target)]
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
        (_box(node, *places[node.key]) for column in columns for node in column),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="group",
        aria_label=label,
        class_="graph",
    )
    return tag("div", drawing, class_="scroll picture", tabindex="0", role="group", aria_label=label)


def _both(places: Mapping[str, tuple[int, int]], source: str, target: str) -> bool:
    return source in places and target in places and source != target


def _arrow(source: tuple[int, int], target: tuple[int, int]) -> Markup:
    x1, y1 = source[0] + _WIDTH, source[1] + _HEIGHT // 2
    x2, y2 = target[0], target[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return tag("path", d=f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2 - 2} {y2}", marker_end="url(#tip)", class_="edge")


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
