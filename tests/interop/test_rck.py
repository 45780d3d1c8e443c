"""Iceberg's own REST Compatibility Kit passes, on every kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.rck import run_kit
from tests.support import jars
from tests.support.postgres import running_postgres
from tests.support.server import Server, running_server

# The kit of this release has this many; fewer would mean that it was not the whole kit.
TESTS = 157

# What the kit leaves out of every run: it cannot ask a server to be set up otherwise for a single test, and over REST
# there is no namespace without a name.
LEFT_OUT = {
    "RESTCompatibilityKitViewCatalogTests.listViewsInEmptyNamespace()",
    "TableTests.createAndDropEmptyNamespace()",
    "TableTests.createTableInUniqueLocation()",
    "TableTests.listNamespacesWithEmptyNamespace()",
    "TableTests.listTablesInEmptyNamespace()",
    "TableTests.namespacePropertiesOnEmptyNamespace()",
}


@pytest.fixture(
    params=["sqlite", pytest.param("postgres", marks=pytest.mark.long), pytest.param("file", marks=pytest.mark.long)]
)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(store: str, tmp_path: Path) -> Iterator[Server]:
    with ExitStack() as stack:
        options = ["--warehouse", (tmp_path / "warehouse").as_uri()]
        if store == "postgres":
            options += ["--store", stack.enter_context(running_postgres())]
        elif store == "file":
            options += ["--store", (tmp_path / "store").as_uri()]
        yield stack.enter_context(running_server(tmp_path, *options))


@pytest.mark.begins_first
def test_the_compatibility_kit_passes(
    store: str, server: Server, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    locations = (tmp_path / "warehouse" / "requested").as_uri()
    report = run_kit(server.url, tmp_path / "kit", warehouse="main", locations=locations)
    print(report)
    print("skipped:", *sorted(f"{name}: {why}" for name, why in report.skipped.items()), sep="\n    ")
    assert not report.failed, f"{report}\nthe server's log: {server.log}"
    assert len(report.passed) + len(report.skipped) == TESTS, report.output[-4000:]
    assert report.skipped.keys() == LEFT_OUT
    record_property(
        "figure",
        f"REST Compatibility Kit {jars.ICEBERG_KIT} on {store}: {len(report.passed)} passed, 0 failed, "
        f"{len(report.skipped)} skipped ({', '.join(sorted(report.skipped))}) in {report.took_s:.0f} s",
    )
