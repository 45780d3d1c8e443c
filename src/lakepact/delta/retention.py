"""For how long a Delta table keeps files that it has removed."""

from __future__ import annotations

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


def deleted_file_retention_ms(configuration: Mapping[str, str]) -> int:
    """What the table says, as in `interval 2 days`; a week if it says nothing, or nothing that can be understood."""
    words = configuration.get(PROPERTY, "").lower().removeprefix("interval").split()
    numbers, units = words[::2], [unit.removesuffix("s") for unit in words[1::2]]
    if not words or len(numbers) != len(units):
        return DEFAULT_MS
    if not all(number.isdecimal() for number in numbers) or not all(unit in _UNITS_MS for unit in units):
        return DEFAULT_MS
    return sum(int(number) * _UNITS_MS[unit] for number, unit in zip(numbers, units, strict=True))
