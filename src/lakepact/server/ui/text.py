"""Figures and times for people. Times are UTC, and said so once, at the foot of every page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from lakepact.server.ui.html import Markup, tag

_LAST_MS: Final = 253_402_300_799_999
_ROUND: Final = (1, 2, 4, 10, 20, 40, 100, 200, 400, 600, 800)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SPANS: Final = ((86_400 * 365, "y"), (86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def nice_size(value: float) -> float:
    """The end of an axis of sizes that holds this one: a round number of its unit."""
    unit = 1.0
    while value >= 1_024 * unit:
        unit *= 1_024
    return next((step * unit for step in _ROUND if value <= step * unit), 1_024 * unit)


def count(value: int | None, nothing: str = "–") -> str:
    """`12,345`."""
    return nothing if value is None else f"{value:,}"


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def size(value: float | None, nothing: str = "–") -> str:
    """`1.5 MiB`."""
    if value is None:
        return nothing
    amount, unit = float(value), 0
    while abs(amount) >= 1_024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1_024, unit + 1
    return f"{amount:,.0f} {_UNITS[unit]}" if unit == 0 or amount >= 100 else f"{amount:,.1f} {_UNITS[unit]}"


def short(value: float) -> str:
    """`1.2k`, for axes."""
    for bound, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= bound:
            return f"{value / bound:.3g}{unit}"
    return f"{value:.3g}"


def duration(seconds: float | None, nothing: str = "–") -> str:
    """`350 ms`, `4.2 s`, `3 min 12 s`."""
    if seconds is None:
        return nothing
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for index, (span, unit) in enumerate(_SPANS[:-1]):
        if whole >= span:
            rest_span, rest_unit = _SPANS[index + 1]
            rest = whole % span // rest_span
            return f"{whole // span} {unit}" + (f" {rest} {rest_unit}" if rest else "")
    return f"{whole} s"


def number_of(value: Any) -> int | None:
    """A figure in somebody else's document: a whole number, or its text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, str) and value.isascii() and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    return None


def instant_text(milliseconds: Any, *, seconds: bool = True) -> str:
    if not isinstance(milliseconds, int) or isinstance(milliseconds, bool) or not 0 <= milliseconds <= _LAST_MS:
        return "unknown time"
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def instant(milliseconds: Any, *, now_ms: int | None = None, seconds: bool = True) -> Markup:
    """A moment; with `now_ms`, how long ago it was, and the moment itself on demand."""
    text = instant_text(milliseconds)
    if text == "unknown time":
        return tag("span", text, class_="muted")
    machine = text.replace(" ", "T") + "Z"
    if now_ms is None:
        return tag("time", text if seconds else text[:-3], datetime=machine, title=None if seconds else f"{text} UTC")
    return tag("time", ago(now_ms - milliseconds), datetime=machine, title=f"{text} UTC")


def ago(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    if seconds < -1:
        return f"in {_roughly(-seconds)}"
    return "just now" if seconds < 5 else f"{_roughly(seconds)} ago"


def _roughly(seconds: float) -> str:
    for span, unit in _SPANS:
        if seconds >= span:
            return f"{int(seconds // span)} {unit}"
    return "1 s"
