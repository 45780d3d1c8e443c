"""Options that several commands share, and the way from options to an open store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias, TypeVar

import typer

from lakepact.kernel.ports import CellStore
from lakepact.settings import Settings
from lakepact.stores import open_store

T = TypeVar("T")

JSON_ASKED_FOR = "lakepact.json"


def _remember(context: typer.Context, value: bool) -> bool:
    # Errors are printed above all commands, and they too come as JSON if the command was asked for it.
    context.find_root().meta[JSON_ASKED_FOR] = value
    return value


Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.", callback=_remember, is_eager=True)
]

StoreUrl: TypeAlias = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The store. Without it: LAKEPACT_STORE, lakepact.toml, the default."),
]

Limit: TypeAlias = Annotated[
    int, typer.Option("--limit", min=1, help="How many transactions one pass or page may touch.")
]


def with_store(settings: Settings, work: Callable[[CellStore], Awaitable[T]]) -> T:
    """Open the store the settings name, do the work, close it."""

    async def run() -> T:
        store = await open_store(settings.store, settings.kernel(), options=settings.store_options)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(run())
