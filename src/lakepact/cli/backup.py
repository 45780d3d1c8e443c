from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from lakepact.catalog.errors import BadRequest
from lakepact.catalog.warehouse import Warehouse
from lakepact.cli.options import Json, StoreUrl, with_store
from lakepact.cli.output import instant, print_json, say
from lakepact.errors import InvalidSetting
from lakepact.kernel.keys import segments_of
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock, SystemRng
from lakepact.settings import Settings, without_password
from lakepact.stores import delta_rows, open_blobs
from lakepact.upkeep import restore as restoring
from lakepact.upkeep.backup import Contents, SavedCell, contents, read, save

File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it. Nothing is overwritten.")],
    store: StoreUrl = None,
    without_delta: Annotated[
        bool, typer.Option("--without-delta", help="Leave out Delta tables, whose versions are rows of the database.")
    ] = False,
    json: Json = False,
) -> None:
    """Save the catalog's cells as of one instant, and what became of its transactions. Servers may be running."""
    settings = Settings.load(store=store)

    async def work(opened: CellStore) -> Contents:
        return await save(
            opened,
            file,
            SystemClock(),
            SystemRng(),
            shows_the_past=delta_rows(opened) is not None,
            without_delta=without_delta,
            say=_progress(json),
        )

    made = with_store(settings, work)
    if json:
        print_json(made)
        return
    say(
        f"{file}: {made.cells} cells and {made.records} records of {without_password(settings.store)}, as of "
        f"{instant(made.made_ms)}"
    )
    _say_what_is_left_out(made, "left out", "After a restore")


def restore(
    file: File,
    store: StoreUrl = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only read the file to its end, and look for the tables' metadata files.")
    ] = False,
    json: Json = False,
) -> None:
    """Put a backup into an empty store of any kind. If it was ended in the middle, run it again."""
    settings = Settings.load(store=store)

    async def work(opened: CellStore) -> Contents:
        return await restoring.load(opened, file, settings.kernel(), SystemClock(), SystemRng(), say=_progress(json))

    # Before anything is written: a restore that cannot end well does not begin.
    _check_places(settings, file)
    made = contents(file) if check else with_store(settings, work, makes=True)
    looked_for, missing = asyncio.run(_missing(settings, file))
    if json:
        print_json({"backup": made, "restored": not check, "looked_for": looked_for, "missing": missing})
    else:
        say(
            f"{'read' if check else 'restored'} {made.cells} cells and {made.records} records, as of "
            f"{instant(made.made_ms)}"
            + ("; the file is whole" if check else f", into {without_password(settings.store)}")
        )
        say(f"looked for the metadata files of {looked_for} tables and views; {len(missing) or 'none'} missing")
        _say_what_is_left_out(made, "not in this backup", "Once the restored catalog is served")
        for line in missing:
            say(line, err=True)
    if missing:
        raise typer.Exit(1)


def _check_places(settings: Settings, file: Path) -> None:
    """Tables lie in the warehouses that the settings name, or these are not the settings of the backup."""
    places = settings.places()
    for name, warehouse, location in _tables_in(file):
        if warehouse in places:
            try:
                Warehouse(warehouse, places[warehouse].url).blob_name(location)
            except BadRequest:
                raise InvalidSetting(
                    f"{name} is at {location}, and warehouse {warehouse} is {without_password(places[warehouse].url)}. "
                    f"Set the warehouses as they were when the backup was made; nothing was written"
                ) from None


def _tables_in(file: Path) -> Iterator[tuple[str, str, str]]:
    """Of every table and view of a backup: its name, its warehouse, where its metadata is."""
    for line in read(file):
        if isinstance(line, SavedCell):
            warehouse, family, *rest = (*segments_of(line.key), "", "")
            if family in ("tables", "views") and rest[0]:
                name = ".".join((*line.value["namespace"], line.value["name"]))
                yield name, warehouse, line.value["metadata-location"]


async def _missing(settings: Settings, file: Path) -> tuple[int, list[str]]:
    """How many tables and views there are, and which of their metadata files are not in their warehouses."""
    places = settings.places()
    opened = {name: await open_blobs(place.url, place.options) for name, place in places.items()}
    looked_for, found = 0, list[str]()
    try:
        for name, warehouse, location in _tables_in(file):
            looked_for += 1
            if warehouse not in opened:
                found.append(f"{name}: there is no warehouse {warehouse} in the settings")
                continue
            blob = Warehouse(warehouse, places[warehouse].url).blob_name(location)
            if not await opened[warehouse].exists(blob):
                found.append(f"{name}: {location} is not in the warehouse")
    finally:
        for blobs in opened.values():
            await blobs.close()
    return looked_for, found


def _say_what_is_left_out(made: Contents, how: str, when: str) -> None:
    """Delta tables, each with the command that brings it back. Of a dropped one its files are told alone."""
    if made.left_out:
        say(f"{len(made.left_out)} Delta tables are {how}. {when}, and if the old catalog is lost:")
    for one in made.left_out:
        if one.dropped:
            say(f"  {one.table} was dropped; its files are at {one.location}")
        else:
            command = ["lakepact", "delta", "import", one.location, one.table, "--warehouse", one.warehouse]
            say(f"  {shlex.join([*command, '--recover'])}")


def _progress(as_json: bool) -> Callable[[str], None]:
    def progress(text: str) -> None:
        if not as_json:
            say(f"  {text}", err=True)

    return progress
