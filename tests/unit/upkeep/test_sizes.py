"""What a receipt says of the size of a Delta table is right, and costs what was added."""

from __future__ import annotations

from typing import Any

from lakepact.catalog.pointers import Change, Kind, Pointer
from lakepact.catalog.receipts import CommittedChange
from lakepact.delta.ports import Totals
from lakepact.errors import StoreUnavailable
from lakepact.iceberg.requests import Identifier
from lakepact.upkeep.sizes import DeltaSizes

TABLE = Identifier(("db",), "t")


class Counting:
    """A table that grows by one file a version, and loses all but one at version 5."""

    def __init__(self) -> None:
        self.counted: list[int] = []
        self.grown: list[tuple[int, int]] = []

    async def totals(self, table_id: str, version: int) -> Totals | None:
        self.counted.append(version)
        files = version if version < 5 else version - 4
        return Totals(files, files * 10, files * 2) if version < 100 else None

    async def growth(self, table_id: str, after: int, until: int) -> Totals | None:
        self.grown.append((after, until))
        files = until - after
        return None if after < 5 <= until else Totals(files, files * 10, files * 2)


def version(number: int, change: Change = Change.COMMIT) -> CommittedChange:
    summary = {"uuid": "t", "location": "file:///t", "version": number, "ict-ms": 1}
    pointer = Pointer.to_delta(TABLE, summary, change)
    return CommittedChange(Kind.DELTA, "t", number + 1, change, TABLE, TABLE.namespace, pointer)


def sizes(rows: Any) -> DeltaSizes:
    return DeltaSizes(rows)


def size(files: int) -> dict[str, int]:
    return {"files": files, "bytes": files * 10, "records": files * 2}


async def test_a_table_that_only_grows_is_counted_once() -> None:
    rows = Counting()
    known = sizes(rows)
    assert [await known.after(version(number)) for number in (1, 2, 4)] == [size(1), size(2), size(4)]
    assert rows.counted == [1]
    # Something is taken away: all is counted again, and it goes on from there.
    assert [await known.after(version(number)) for number in (5, 6)] == [size(1), size(2)]
    assert rows.counted == [1, 5]
    # An older version, as when a lost receipt is written, does not set it back.
    assert await known.after(version(3)) == size(3)
    assert await known.after(version(7)) == size(3)
    assert rows.counted == [1, 5, 3] and rows.grown[-1] == (6, 7)


async def test_nothing_is_said_of_what_is_no_version() -> None:
    rows = Counting()
    known = sizes(rows)
    assert await known.after(version(1, Change.DROP)) is None
    assert await known.after(version(100)) is None, "its rows are gone"
    assert await sizes(None).after(version(1)) is None
    assert rows.counted == [100]


async def test_a_database_that_does_not_answer_in_time_costs_the_figures_and_not_the_receipt() -> None:
    class Slow(Counting):
        async def totals(self, table_id: str, version: int) -> Totals | None:
            raise StoreUnavailable("it took too long")

    assert await sizes(Slow()).after(version(1)) is None
