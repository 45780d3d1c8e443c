from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lakepact.cli.options import Json, StoreUrl, with_catalogs
from lakepact.cli.output import print_json, say
from lakepact.settings import Settings
from lakepact.upkeep.packing import Packed, Packer

if TYPE_CHECKING:
    from lakepact.server.app import WithoutServer


def pack(store: StoreUrl = None, json: Json = False) -> None:
    """Pack the receipts of days that have ended into segments. Safe at any time, by anyone, any number of times."""
    settings = Settings.load(store=store)

    async def work(opened: WithoutServer) -> Packed:
        warehouses = {name: catalog.parts.blobs for name, catalog in opened.catalogs.items()}
        packer = Packer(warehouses, opened.clock, after_s=settings.pack_after_s)
        while await packer.pack_some():
            pass
        return packer.done

    done = with_catalogs(settings, work)
    if json:
        print_json(asdict(done))
    else:
        say(f"{done.days} days packed: {done.receipts} receipts in {done.segments} segments")
        for name in done.damaged:
            say(f"{name} is damaged and was not packed: lakepact reconcile --mend", err=True)
    if done.damaged:
        raise typer.Exit(1)
