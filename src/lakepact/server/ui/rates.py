"""The server's own numbers as charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakepact.server.ui import text
from lakepact.server.ui.charts import Point, area
from lakepact.server.ui.html import Markup, tag
from lakepact.server.ui.samples import Rate


def chart(
    rates: Sequence[Rate],
    title: str,
    value: Callable[[Rate], float | None],
    shown: Callable[[float], str],
    look: str = "",
) -> Markup:
    points = [
        Point(rate.at_ms, found, text.instant_text(rate.at_ms)[11:])
        for rate in rates
        if (found := value(rate)) is not None
    ]
    if len(points) < 2:
        return tag("p", "Not enough to draw yet. Come back in a minute.", class_="muted")
    return area(points, title=title, shown=shown, look=look)


def per_second(rates: Sequence[Rate]) -> str:
    lately = rates[-6:]
    return f"{sum(rate.commits for rate in lately) / len(lately):.2g} /s" if lately else "–"
