from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

import orjson
import typer

from lakepact.catalog.changes import in_words
from lakepact.catalog.history import (
    Entry,
    Version,
    lineage_text,
    own_words,
    quality_text,
    rows_text,
    timeline,
    version_number,
    versions_of,
)
from lakepact.cli.options import Json, Token, Uri, WarehouseName, connected, iceberg_table, written
from lakepact.cli.output import instant, print_json, say
from lakepact.client.names import table_name
from lakepact.errors import LakepactError
from lakepact.settings import Settings
from lakepact.stores import open_blobs
from lakepact.stores.urls import file_path

_MOST_LEVELS: Final = 8
"""From a table's metadata up to the root of its warehouse."""


def history(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Such as sales.orders.")],
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many versions, the newest first.")] = 20,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Show the versions of a table: who made them, of what, and whether they were checked."""
    with connected(uri, warehouse, token) as lake:
        loaded = iceberg_table(lake, written(table_name, table), "history")
    versions = versions_of(loaded.metadata_location, loaded.metadata)[:limit]
    receipts = asyncio.run(_receipts(versions))
    entries = timeline(loaded.metadata_location, loaded.metadata, receipts)[:limit]
    if json:
        told = [{"version": version_number(entry.metadata_location), **asdict(entry)} for entry in entries]
        print_json({"table": table, "versions": told})
        return
    for number, entry in enumerate(entries):
        if number:
            say()
        for line in _told(entry):
            say(line)


def _told(entry: Entry) -> list[str]:
    number = version_number(entry.metadata_location)
    version = "" if number is None else f"v{number}  "
    current = " (current)" if entry.current else ""
    lines = [f"{version}{instant(entry.timestamp_ms)}{current}  {entry.operation or 'metadata'}"]
    facts = {
        "Source": entry.source,
        "In its words": own_words(entry.details),
        "Lineage": lineage_text(entry),
        "Quality": quality_text(entry),
        "Changed": "; ".join(in_words(entry.changed)),
        "Rows": rows_text(entry),
        "Transaction": entry.transaction_id or "",
    }
    return lines + [f"    {name + ':':<14}{value}" for name, value in facts.items() if value]


async def _receipts(versions: list[Version]) -> dict[str, Mapping[str, Any]]:
    """The receipts of these versions, as far as this process reaches the warehouse they are in."""
    for url, options in _roots(versions[0].metadata_location):
        try:
            found = _in_folder(url, versions) if url.startswith("file:") else await _in_store(url, options, versions)
        except (LakepactError, OSError):
            continue
        if found:
            return found
    return {}


def _in_folder(url: str, versions: list[Version]) -> dict[str, Mapping[str, Any]]:
    # Not as a store: that would make its own folders in whatever place was guessed.
    root = file_path(url)
    files = {version.metadata_location: root / version.receipt_name for version in versions}
    return {location: orjson.loads(file.read_bytes()) for location, file in files.items() if file.is_file()}


async def _in_store(url: str, options: Mapping[str, str], versions: list[Version]) -> dict[str, Mapping[str, Any]]:
    blobs = await open_blobs(url, options)
    try:
        found = {version.metadata_location: await blobs.get(version.receipt_name) for version in versions}
    finally:
        await blobs.close()
    return {location: orjson.loads(data) for location, data in found.items() if data is not None}


def _roots(location: str) -> list[tuple[str, Mapping[str, str]]]:
    """Where the warehouse may begin: a place of the settings, or a folder above the table that has receipts in it."""
    known = [
        (place.url, place.options)
        for place in Settings.load().places().values()
        if location.startswith(place.url.rstrip("/") + "/")
    ]
    above = location.rpartition("/")[0]
    guessed: list[tuple[str, Mapping[str, str]]] = []
    for _ in range(_MOST_LEVELS):
        above = above.rpartition("/")[0]
        if not above or above.endswith((":", "/")):
            break
        guessed.append((above, {}))
    return known + guessed
