"""That warehouses and the store lie beside each other, not one inside the other: pure, from their URLs.

Rights, credentials and collection are of one warehouse. If another one lay in it, a table could be put around the
other's files, by somebody with no rights there; and if the store did, around everybody's cells.

Two spellings of one place that a URL does not show, such as two names of the same server, are not recognised.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import combinations
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from lakepact.errors import InvalidSetting

_AZURE: Final = ("az", "abfss")
_ENDPOINTS: Final = frozenset({"endpoint", "endpoint_url", "endpoint_url_s3", "url"})

_Place: TypeAlias = tuple[str, ...]
"""What the place is in, and the folders on the way to it: of two, one lies in the other if it begins with it."""


def check_apart(store: tuple[str, Mapping[str, str]], warehouses: Mapping[str, tuple[str, Mapping[str, str]]]) -> None:
    """Raises `InvalidSetting`. Each place is a URL and its options."""
    places = {name: place for name, given in warehouses.items() if (place := _place(*given)) is not None}
    for (name, place), (other, there) in combinations(places.items(), 2):
        if place == there:
            raise InvalidSetting(f"warehouses {name} and {other} are at the same place; give each its own folder")
        if _lies_in(place, there) or _lies_in(there, place):
            inner, outer = (name, other) if _lies_in(place, there) else (other, name)
            raise InvalidSetting(
                f"warehouse {inner} lies inside of warehouse {outer}: who may choose places there would reach its "
                f"tables. Put them beside each other"
            )
    cells = _place(*store)
    for name, place in places.items():
        if cells is not None and _lies_in(cells, place):
            raise InvalidSetting(
                f"the store lies inside of warehouse {name}: a table there could be put around it. Put the store "
                f"beside the warehouse, or the warehouse into a folder of its own"
            )


def _lies_in(place: _Place, other: _Place) -> bool:
    """Also if it is the same."""
    return place[: len(other)] == other


def _place(url: str, options: Mapping[str, str]) -> _Place | None:
    """None: it shares no place with anything, such as a database or memory."""
    scheme, _, rest = url.partition("://")
    given = {name.lower(): value for name, value in options.items()}
    if scheme in ("file", "sqlite"):
        path = unquote(urlsplit(url).path)
        # The third slash of sqlite:/// ends the host, and is no part of the path.
        return "file", *_levels(os.path.realpath(path[1:] if scheme == "sqlite" else path))
    if scheme in _AZURE:
        container, _, address = rest.partition("/")
        container, at, host = container.partition("@")
        account = host.partition(".")[0] if at else given.get("account_name", given.get("azure_storage_account_name"))
        return "azure", (account or "").lower(), container, *_levels(address)
    if scheme in ("s3", "gs"):
        endpoint = next((value for name, value in sorted(given.items()) if name.removeprefix("aws_") in _ENDPOINTS), "")
        return scheme, endpoint.rstrip("/").lower(), *_levels(rest)
    return None


def _levels(path: str) -> list[str]:
    return [level for level in path.split("/") if level]
