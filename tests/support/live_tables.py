"""Whether every live table can still be read in full, by somebody who was not part of what happened.

    with scanned_after_refusals(server): ...     # scans if the server answered anything with 409 or 5xx meanwhile
    scan_live_tables(server.url)                 # scans now

A client that is told "refused" deletes the files it has written. If it was told so wrongly, those files belong to a
live table, and nobody notices until the table is read. So after every 409 and 5xx, every snapshot of every table is
read to its last row, with PyIceberg, over the files themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.support.server import Server, lines_in

# No proxy between a test and its own machine, whatever the environment says.


@dataclass(frozen=True, slots=True)
class Scanned:
    tables: int = 0
    snapshots: int = 0
    rows: int = 0


def catalog_at(url: str, warehouse: str = "main", **properties: str) -> Catalog:
    """A PyIceberg catalog as a user would load it."""
    return load_catalog("lake", type="rest", uri=url, warehouse=warehouse, **properties)


def scan_live_tables(url: str, warehouse: str = "main") -> Scanned:
    """Read every snapshot of every table in full. Raises whatever a reader would meet."""
    catalog = catalog_at(url, warehouse)
    tables = snapshots = rows = 0
    for namespace in _namespaces(catalog, ()):
        for identifier in catalog.list_tables(namespace):
            try:
                table = catalog.load_table(identifier)
            except NoSuchTableError:
                continue  # dropped or renamed since it was listed
            tables += 1
            for snapshot in table.snapshots():
                rows += _read(table, snapshot.snapshot_id)
                snapshots += 1
    return Scanned(tables, snapshots, rows)


@contextmanager
def scanned_after_refusals(server: Server, warehouse: str = "main") -> Iterator[list[Scanned]]:
    """Scan when the block ends, if the server has refused anything or failed meanwhile. Gives what was scanned."""
    start = server.log_end()
    scans: list[Scanned] = []
    yield scans
    if any(status == 409 or status >= 500 for status in statuses(server, start)):
        scans.append(scan_live_tables(server.url, warehouse))


def statuses(server: Server, start: int = 0) -> list[int]:
    """The status of every request in the server's log from this position on."""
    return [int(request["status"]) for request in requests(server, start)]


def requests(server: Server, start: int = 0) -> list[dict[str, Any]]:
    """Every request in the server's log from this position on."""
    end = server.log_end()
    lines = lines_in(server.log.read_bytes()[start:end])
    return [line for line in lines if line.get("event") == "request"]


def _read(table: Table, snapshot_id: int) -> int:
    rows: int = table.scan(snapshot_id=snapshot_id).to_arrow().num_rows
    snapshot = table.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    if "total-records" in summary and int(summary.get("total-delete-files") or 0) == 0:
        told = int(summary["total-records"])
        assert rows == told, f"{table.name()}: snapshot {snapshot_id} has {rows} rows, and says {told}"
    return rows


def _namespaces(catalog: Catalog, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for namespace in catalog.list_namespaces(parent):
        yield namespace
        yield from _namespaces(catalog, namespace)
