"""The graph for people: a tree as text, and an SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Final

from lakepact.pipelines.graph import Graph, Step

_WIDTH: Final = 220
_HEIGHT: Final = 52
_GAP_X: Final = 90
_GAP_Y: Final = 22
_MARGIN: Final = 24
_FILLS: Final = {"external": "#eef1f5", "temporary view": "#fff7e0", "table": "#e3f1ea", "materialized view": "#e4ecfa"}
_SHOWN_LETTERS: Final = 30


def text(graph: Graph) -> str:
    """What is read, and below it what is made of it. What was shown above is not shown again."""
    lines: list[str] = []
    shown: set[str] = set()
    readers = _readers(graph)
    roots = [*graph.externals, *(name for name, step in graph.steps.items() if not step.reads)]
    for root in roots:
        _branch(root, graph, readers, shown, lines, "", "")
    return "\n".join(lines)


def _branch(
    name: str,
    graph: Graph,
    readers: Mapping[str, tuple[str, ...]],
    shown: set[str],
    lines: list[str],
    lead: str,
    indent: str,
) -> None:
    again = name in shown and bool(readers.get(name))
    lines.append(f"{lead}{name}  {_told(graph.steps.get(name))}{' (above)' if again else ''}".rstrip())
    if name in shown:
        return
    shown.add(name)
    below = readers.get(name, ())
    for number, one in enumerate(below, 1):
        last = number == len(below)
        _branch(
            one,
            graph,
            readers,
            shown,
            lines,
            f"{indent}{'└─ ' if last else '├─ '}",
            f"{indent}{'   ' if last else '│  '}",
        )


def svg(graph: Graph, title: str) -> str:
    """Columns from left to right: what is read, then one column a level."""
    columns = [graph.externals, *graph.levels] if graph.externals else list(graph.levels)
    places = {
        name: (_MARGIN + x * (_WIDTH + _GAP_X), 2 * _MARGIN + y * (_HEIGHT + _GAP_Y))
        for x, column in enumerate(columns)
        for y, name in enumerate(column)
    }
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _GAP_X) - _GAP_X
    height = 3 * _MARGIN + max(map(len, columns)) * (_HEIGHT + _GAP_Y) - _GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<text x="{_MARGIN}" y="{_MARGIN}" font-weight="600" fill="#1f2933">{escape(title)}</text>',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#8896a5"/></marker></defs>',
    ]
    for name, step in graph.steps.items():
        parts += [_arrow(places[one], places[name]) for one in step.reads if one in places]
    parts += [_box(name, *places[name], graph.steps.get(name)) for name in places]
    return "\n".join([*parts, "</svg>", ""])


def _arrow(source: tuple[int, int], target: tuple[int, int]) -> str:
    x1, y1 = source[0] + _WIDTH, source[1] + _HEIGHT // 2
    x2, y2 = target[0], target[1] + _HEIGHT // 2
    middle = (x1 + x2) // 2
    path = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2 - 2} {y2}"
    return f'<path d="{path}" fill="none" stroke="#8896a5" stroke-width="1.5" marker-end="url(#tip)"/>'


def _box(name: str, x: int, y: int, step: Step | None) -> str:
    fill = _FILLS["external" if step is None else step.dataset.kind.value]
    dashes = ' stroke-dasharray="5 4"' if step is None or step.dataset.is_view else ""
    shown = name if len(name) <= _SHOWN_LETTERS else "…" + name[-_SHOWN_LETTERS + 1 :]
    return (
        f'<g><title>{escape(name)}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="8" '
        f'fill="{fill}" stroke="#66788a"{dashes}/>'
        f'<text x="{x + 12}" y="{y + 22}" font-weight="600" fill="#1f2933">{escape(shown)}</text>'
        f'<text x="{x + 12}" y="{y + 40}" font-size="11" fill="#52606d">{escape(_told(step))}</text></g>'
    )


def _told(step: Step | None) -> str:
    if step is None:
        return "external"
    told = [step.dataset.kind.value]
    if step.dataset.kind.value == "table":
        told.append(step.dataset.mode)
    if len(step.flows) > 1:
        told.append(f"{len(step.flows)} flows")
    if step.dataset.checks:
        count = len(step.dataset.checks)
        told.append(f"{count} check{'' if count == 1 else 's'}")
    return ", ".join(told)


def _readers(graph: Graph) -> dict[str, tuple[str, ...]]:
    readers: dict[str, list[str]] = {}
    for name, step in graph.steps.items():
        for one in step.reads:
            readers.setdefault(one, []).append(name)
    return {name: tuple(found) for name, found in readers.items()}
