"""What collection asks a server: all that files may be reachable from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakepact.client.caller import Caller
from lakepact.client.names import segment


@dataclass(frozen=True, slots=True)
class Reached:
    """Something that files may be reachable from, or that owns a place."""

    why: str
    """`live`, `pinned`, `staged`, `dropped`, `released`, `mirrored` or `purging`."""

    kind: str
    id: str
    name: str | None
    location: str
    metadata_location: str | None
    search: bool
    """Whether files below its location that nothing needs may be deleted."""


@dataclass(frozen=True, slots=True)
class Reachable:
    root: str
    now_ms: int
    """By the server's clock, when the listing began."""

    longest_transaction_ms: int
    items: tuple[Reached, ...]


class Collection:
    """What files of the warehouse are still needed: `lake.collection`, for programs that delete files.

    reachable = lake.collection.reachable()
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def reachable(self) -> Reachable:
        """Return everything that files may be reachable from. List the files first, then call this.

        {one.location for one in lake.collection.reachable().items}
        """
        items: list[Reached] = []
        token, head = "", dict[str, Any]()
        while True:
            page = self._caller.read("{prefix}/reachable", query={"pageToken": token}).json()
            head = head or page
            items += [
                Reached(
                    one["why"],
                    one["kind"],
                    one["id"],
                    one["name"],
                    one["location"],
                    one["metadata-location"],
                    one["search"],
                )
                for one in page["reachable"]
            ]
            token = page.get("next-page-token")
            if token is None:
                return Reachable(head["root"], head["now-ms"], head["longest-transaction-ms"], tuple(items))

    def files_of(self, table_id: str, keep_ms: int) -> list[str]:
        """Return the files that a Delta table needs, as its adds write them: of every version of the last `keep_ms`.

        lake.collection.files_of(lake.delta.load("ml.labels").table_id, keep_ms=86_400_000)
        """
        path = f"{{prefix}}/reachable/{segment(table_id)}"
        return list(self._caller.read(path, query={"keep-ms": str(keep_ms)}).json()["files"])
