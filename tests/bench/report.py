"""How figures are printed: a title, a table, and beside each ratio what we aim for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from rich.console import Console
from rich.table import Table

_console = Console(width=110, soft_wrap=True)


def say(text: str) -> None:
    _console.print(text, markup=False, highlight=False)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    shown = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(columns):
        shown.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        shown.add_row(*(str(cell) for cell in row))
    _console.print(shown)


def against(ratio: float, aim: str, *, met: bool) -> str:
    return f"{ratio:.2f} ({'meets' if met else 'MISSES'} {aim})"


async def median_s(step: Callable[[], Awaitable[object]], times: int) -> float:
    """The median duration of a step: robust against the odd hiccup of a shared machine."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        await step()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
