"""Where a server is, and what others need to find it there too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Place:
    uri: str
    warehouse: str
    token: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For PyIceberg: access to files, and whatever else its catalogs take."""
