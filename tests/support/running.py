"""Async tests without a plugin: `async def test_...` runs in an event loop of its own.

A conftest imports `pytest_pyfunc_call` from here. If the value of a fixture is an async context manager that has not
been entered yet, it is entered inside the test's own loop, the test gets what it yields, and it is left again after the
test: stores hold locks and connections that belong to the loop they were opened in.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted}
    asyncio.run(_run(pyfuncitem.obj, arguments))
    return True


async def _run(test: Any, arguments: Mapping[str, Any]) -> None:
    async with AsyncExitStack() as stack:
        entered = {
            name: await stack.enter_async_context(value) if isinstance(value, AbstractAsyncContextManager) else value
            for name, value in arguments.items()
        }
        await test(**entered)
