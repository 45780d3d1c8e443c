"""For how long a Delta table keeps files that it has removed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PROPERTY: Final = "delta.deletedFileRetentionDuration"
DEFAULT_MS: Final = 7 * 86_400_000

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART: Final = re.compile(r"(\d+)\s+(\w+?)s?")


def deleted_file_retention_ms(configuration: Mapping[str, str]) -> int:
    """What the table says, as in `interval 2 days`; a week if it says nothing, or nothing that can be understood."""
    text = configuration.get(PROPERTY, "").strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(text)
    if not parts or " ".join(f"{number} {unit}" for number, unit in parts) != _singular(text):
        return DEFAULT_MS
    if any(unit not in _UNITS_MS for _, unit in parts):
        return DEFAULT_MS
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def _singular(text: str) -> str:
    return " ".join(word.removesuffix("s") for word in text.split())
