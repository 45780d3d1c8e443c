from __future__ import annotations

import time
from typing import Annotated

import typer

from lakepact.cli.options import Json, with_store
from lakepact.cli.output import print_json, say
from lakepact.kernel.keys import key_of
from lakepact.kernel.ports import CellStore
from lakepact.settings import Settings, without_password


def probe(
    url: Annotated[str, typer.Argument(metavar="URL", help="The store to open.")],
    json: Json = False,
) -> None:
    """Open a store and read from it. A store that ignores conditional writes is refused."""

    async def read_once(store: CellStore) -> float:
        began = time.perf_counter()
        await store.read([key_of("lakepact", "probe")])
        return time.perf_counter() - began

    began = time.perf_counter()
    read_s = with_store(Settings.load(store=url), read_once, correct="Correct the URL")
    found = {
        "store": without_password(url),
        "usable": True,
        "read_ms": round(read_s * 1000, 2),
        "open_ms": round((time.perf_counter() - began - read_s) * 1000, 2),
    }
    if json:
        print_json(found)
        return
    say(f"{found['store']} is usable: opened in {found['open_ms']} ms, one read took {found['read_ms']} ms")
