"""What the suites of pipelines share: a lake, names, raw tables, and how results are looked at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from lakepact import spark as lp
from lakepact.catalog.receipts import commit_key
from lakepact.spark import SparkLake
from tests.support.spark import Lake
from tests.support.waiting import wait_until

_NAMES = itertools.count(1)


@pytest.fixture(scope="session")
def shared(lake: Lake) -> SparkLake:
    return lp.connect(lake.spark)


@pytest.fixture
def name() -> str:
    """A pipeline of its own for each test: positions go by the name."""
    return f"pipeline-{next(_NAMES)}"


@pytest.fixture
def raw(lake: Lake, db: str) -> Iterator[str]:
    """Orders and customers; the third order is of nobody."""
    orders = "VALUES (1, 10, 5D), (2, 11, 7.5D), (3, 99, 1D) t(id, customer, amount)"
    lake.sql(f"CREATE TABLE {db}.raw_orders AS SELECT * FROM {orders}")
    lake.sql(f"CREATE TABLE {db}.raw_customers AS SELECT * FROM VALUES (10, 'Ann'), (11, 'Bob') t(id, name)")
    yield db


def drop_namespaces(lake: Lake, shared: SparkLake, *namespaces: str) -> None:
    """With all that is in them, of either format."""
    for namespace in namespaces:
        if not shared.plain.namespaces.exists(namespace):
            continue
        for table in lake.tables(namespace):
            lake.rest("DELETE", f"namespaces/{namespace}/tables/{table}")
        for identifier in shared.plain.delta.list(namespace):
            shared.plain.delta.drop(identifier)
        lake.rest("DELETE", f"namespaces/{namespace}")


def rows(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    return sorted(lake.sql(f"SELECT * FROM other.{table}"), key=str)


def receipt(lake: Lake, table: str) -> dict[str, Any]:
    """The receipt of the table's newest version."""
    key = commit_key(lake.loaded(table)["metadata-location"])
    [found] = soon(lambda: list((lake.server.folder / "data").rglob(f"{key}.json")))
    return dict(orjson.loads(found.read_bytes()))


def soon(look: Callable[[], list[Any]]) -> list[Any]:
    """What a look finds, a moment later if need be: receipts are written after the answer."""
    return wait_until(look, "no receipt was written")
