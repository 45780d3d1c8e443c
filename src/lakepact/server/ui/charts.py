"""Charts, drawn on the server: an SVG that stretches, with its axes as text around it so that they never do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from lakepact.server.ui.html import Markup, tag

T = TypeVar("T")

_WIDTH: Final = 1000
_HEIGHT: Final = 200
_BANDS: Final = 60
MOST_POINTS: Final = 240


@dataclass(frozen=True, slots=True)
class Point:
    at: float
    value: float
    label: str
    """When it was, for people."""


def thinned(points: Sequence[T], most: int = MOST_POINTS) -> list[T]:
    """At most so many points: of each stretch the last, so that the newest is always there."""
    if len(points) <= most:
        return list(points)
    return [points[(number + 1) * len(points) // most - 1] for number in range(most)]


def area(
    points: Sequence[Point],
    *,
    title: str,
    shown: Callable[[float], str],
    look: str = "",
    steps: bool = False,
    end: Callable[[float], float] | None = None,
) -> Markup:
    """One line with the ground below it. `steps`: a value holds until the next one, as the size of a table does.
    `end`: where the axis ends that holds the highest value."""
    drawn = thinned(points)
    top = (end or nice)(max((point.value for point in drawn), default=0.0))
    first, last = (drawn[0].at, drawn[-1].at) if drawn else (0.0, 1.0)
    spread = (last - first) or 1.0
    places = [((point.at - first) / spread * _WIDTH, _HEIGHT - point.value / top * _HEIGHT) for point in drawn]
    if len(places) == 1:
        places = [(0.0, places[0][1]), (float(_WIDTH), places[0][1])]
    line = _path(places, steps=steps)
    ground = f"{line}L{_number(places[-1][0])} {_HEIGHT}L{_number(places[0][0])} {_HEIGHT}Z" if places else ""
    said = (
        f"{title}: {shown(drawn[-1].value)} at {drawn[-1].label}, highest {shown(_highest(drawn))}" if drawn else title
    )
    plot = tag(
        "svg",
        (tag("path", d=f"M0 {y}H{_WIDTH}", class_="rule") for y in (0, _HEIGHT // 2, _HEIGHT)),
        tag("path", d=ground, class_="ground") if ground else None,
        tag("path", d=line, class_="line") if line else None,
        _bands(drawn, first, spread, shown),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=said,
    )
    return tag(
        "figure",
        tag("div", (tag("span", shown(value)) for value in (top, top / 2, 0.0)), class_="y", aria_hidden="true"),
        plot,
        tag(
            "div",
            (tag("span", text) for text in _marks(drawn)),
            class_="x",
            aria_hidden="true",
        ),
        class_=f"chart {look}".rstrip(),
    )


def nice(value: float) -> float:
    """The end of an axis that holds this value: 1, 2, 2.5 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 10.0**-3
    while True:
        for step in (1, 2, 2.5, 5, 10):
            if value <= step * power:
                return step * power
        power *= 10


def _path(places: Sequence[tuple[float, float]], *, steps: bool) -> str:
    parts: list[str] = []
    for number, (x, y) in enumerate(places):
        if number and steps:
            parts.append(f"H{_number(x)}V{_number(y)}")
        else:
            parts.append(f"{'L' if number else 'M'}{_number(x)} {_number(y)}")
    return "".join(parts)


def _bands(drawn: Sequence[Point], first: float, spread: float, shown: Callable[[float], str]) -> list[Markup]:
    """What a pointer finds: invisible columns that say their value."""
    some = thinned(drawn, _BANDS)
    width = _WIDTH / max(len(some), 1)
    return [
        tag(
            "rect",
            tag("title", f"{point.label}: {shown(point.value)}"),
            x=_number(min(max((point.at - first) / spread * _WIDTH - width / 2, 0), _WIDTH - width)),
            y=0,
            width=_number(width),
            height=_HEIGHT,
            class_="band",
        )
        for point in some
    ]


def _marks(drawn: Sequence[Point]) -> list[str]:
    if len(drawn) < 2:
        return [point.label for point in drawn]
    return [drawn[0].label, drawn[-1].label]


def _highest(points: Sequence[Point]) -> float:
    return max(point.value for point in points)


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
