"""What every tier shares: async tests, and the long ones that only `make verify` runs."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import os
import sys
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from lakepact.java import provide_java
from lakepact.server.logs import for_people

ROOT = Path(__file__).resolve().parent.parent


# Also for the processes that tests start: on a machine without Java, Spark finds the one of the environment.
provide_java()

# How fast the machine is says nothing about what is tested.
settings.register_profile("lakepact", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lakepact")

# As every process of ours logs. What structlog does by itself takes a second for each exception.
structlog.configure(processors=[*structlog.get_config()["processors"][:-1], for_people()])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _spread(items)
    if os.environ.get("LAKEPACT_LONG"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="long: set LAKEPACT_LONG=1, or run `make verify`"))


def _spread(items: list[pytest.Item]) -> None:
    """Let each process begin with its share of what takes longest: whoever began it last would keep the others waiting.

    Of several processes each gets a run of these, and takes from the end of another's when it has done its own.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    longest = [item for item in items if item.get_closest_marker("begins_first")]
    others = [item for item in items if not item.get_closest_marker("begins_first")]
    ends = [len(others) * number // processes for number in range(processes + 1)]
    items[:] = [
        item
        for number in range(processes)
        for item in (*longest[number::processes], *others[ends[number] : ends[number + 1]])
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted: they say it with `record_property("figure", ...)`, from any worker process."""
    passed = terminalreporter.stats.get("passed", [])
    figures = [value for report in passed for name, value in report.user_properties if name == "figure"]
    if figures:
        terminalreporter.section("figures")
        for figure in figures:
            terminalreporter.write_line(str(figure))


def pytest_unconfigure(config: pytest.Config) -> None:
    """All is reported. A thread or a child that does not end must not keep the run from ending."""
    if hasattr(config, "workerinput"):
        # One of several processes: it waits for the others, however long they take.
        return
    faulthandler.dump_traceback_later(120, exit=True, file=sys.__stderr__ or 2)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """An `async def` test runs to its end on an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    names = inspect.signature(pyfuncitem.function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def root() -> Path:
    """The top of the repository."""
    return ROOT
