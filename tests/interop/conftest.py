"""Spark, once a process, for every suite that drives it, and a namespace for every test."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.support.spark import Lake, running_lake
from tests.support.witness import Witness, running_witness

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with running_lake(tmp_path_factory.mktemp("lake")) as running:
        yield running


@pytest.fixture
def db(lake: Lake, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for one test. It is dropped with what is in it, once nothing is known to be lost.

    Whenever a request of the test was answered with a conflict or a 5xx, every live table is read in full.
    """
    # Never the same twice: Spark remembers tables by their names.
    name = f"n{next(_NUMBERS)}_" + re.sub(r"\W", "_", request.node.name)[:60]
    since = lake.log_position()
    assert lake.rest("POST", "namespaces", {"namespace": [name]}).status == 200
    yield name
    if lake.troubles(since):
        lake.scan_everything()
    for table in lake.tables(name):
        lake.rest("DELETE", f"namespaces/{name}/tables/{quote(table, safe='')}")
    for view in lake.views(name):
        lake.rest("DELETE", f"namespaces/{name}/views/{quote(view, safe='')}")
    lake.rest("DELETE", f"namespaces/{name}")


@pytest.fixture(scope="session")
def witness(lake: Lake) -> Iterator[Witness]:
    """What two catalogs say to the server: `witnessed`, and `hasty`, which asks again just once."""
    with running_witness(lake.server.url) as running:
        lake.attach("witnessed", uri=running.url, cache_enabled="false")
        lake.attach("hasty", uri=running.url, cache_enabled="false", **{"rest.client.max-retries": "1"})
        yield running
