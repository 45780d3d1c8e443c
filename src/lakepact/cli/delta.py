from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import orjson
import typer

from lakepact.cli.options import (
    InTransaction,
    Json,
    Token,
    Uri,
    WarehouseName,
    connected,
    inside,
    told_if_iceberg,
    written,
)
from lakepact.cli.output import instant, print_json, print_rows, say
from lakepact.client import Lake, Retry, connect
from lakepact.client.delta import DeltaTable
from lakepact.client.names import namespace_name, shown, table_name
from lakepact.delta.codec import action_json
from lakepact.errors import InvalidSetting

_Table = Annotated[str, typer.Argument(metavar="TABLE", help="With its namespace: ml.labels")]

_DIFFERENT: Final = 1
"""The exit code of a comparison that found something."""

_ANSWER_S: Final = 3_600.0
"""A long log takes its time to be read, and the answer comes at the end."""

delta_app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Delta tables of a server.", no_args_is_help=True
)


@delta_app.command("list")
def list_(
    namespace: Annotated[str, typer.Argument(metavar="NAMESPACE", help="Levels are parted by dots: sales.eu")],
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """List the Delta tables of a namespace."""
    levels = written(namespace_name, namespace)
    found = inside(connected(uri, warehouse, token), transaction).delta.list(levels)
    if json:
        print_json(found)
        return
    print_rows(("table",), [(shown(one),) for one in found])


@delta_app.command("show")
def show(
    name: _Table,
    version: Annotated[int | None, typer.Option("--version", min=0, help="As it was at this version.")] = None,
    files: Annotated[bool, typer.Option("--files", help="Its live files too.")] = False,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Show a Delta table: where it is, its version, its columns."""
    identifier = written(table_name, name)
    where = inside(connected(uri, warehouse, token), transaction)
    with told_if_iceberg(where, identifier, "tables show"):
        table = where.delta.load(identifier, version=version, files=files)
    if json:
        listed = {"files": [action_json(one)["add"] for one in table.files]} if files else {}
        print_json(
            {
                "table": identifier,
                "table-id": table.table_id,
                "location": table.location,
                "version": table.version,
                "timestamp-ms": table.timestamp_ms,
                "metadata": table.metadata,
                "protocol": table.protocol,
                "transactions": table.transactions,
                **listed,
            }
        )
        return
    _print(table)
    if files:
        say("\nFiles:")
        print_rows(
            ("path", "bytes", "partition"),
            [
                (one.path, str(one.size), " ".join(f"{key}={value}" for key, value in one.partition_values.items()))
                for one in table.files
            ],
        )


@delta_app.command("history")
def history(
    name: _Table,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many versions.")] = 20,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """The versions of a Delta table, newest first."""
    identifier = written(table_name, name)
    where = inside(connected(uri, warehouse, token), transaction)
    with told_if_iceberg(where, identifier, "history"):
        found = where.delta.history(identifier, limit=limit)
    if json:
        print_json(found)
        return
    print_rows(
        ("version", "at", "operation", "added", "removed", "transaction"),
        [
            (
                str(one.version),
                instant(one.timestamp_ms),
                one.operation,
                str(one.added_files),
                str(one.removed_files),
                one.transaction_id,
            )
            for one in found
        ],
    )


@delta_app.command("drop")
def drop(
    name: _Table,
    purge: Annotated[bool, typer.Option("--purge", help="Ask for its files to be deleted too.")] = False,
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Take a Delta table out of the catalog."""
    identifier = written(table_name, name)
    where = inside(connected(uri, warehouse, token), transaction)
    with told_if_iceberg(where, identifier, "tables drop"):
        where.delta.drop(identifier, purge=purge)
    if json:
        print_json({"table": identifier, "dropped": True})
        return
    say(f"Dropped {shown(identifier)}")


@delta_app.command("rename")
def rename(
    source: _Table,
    target: Annotated[str, typer.Argument(metavar="NEW", help="Its new name, with its namespace.")],
    transaction: InTransaction = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Give a Delta table another name."""
    old, new = written(table_name, source), written(table_name, target)
    inside(connected(uri, warehouse, token), transaction).delta.rename(old, new)
    if json:
        print_json({"source": old, "destination": new})
        return
    say(f"Renamed {shown(old)} to {shown(new)}")


@delta_app.command("import")
def import_(
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="The table's folder, inside the warehouse.")],
    name: _Table,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Make the next version ours, and keep foreign writers out.")
    ] = False,
    recover: Annotated[
        bool,
        typer.Option(
            "--recover",
            help="The Lakepact catalog that managed this table is lost: manage it here. Never while that one runs.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing; say what would happen.")] = False,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Make a table of the catalog of an existing Delta table, or go on with it."""
    identifier = written(table_name, name)
    done = _patient(uri, warehouse, token).delta.import_log(
        identifier, location, take_over=take_over, dry_run=dry_run, recover=recover
    )
    if json:
        print_json(done)
    else:
        _print_import(done, take_over=take_over or recover)
    parity = done.get("parity")
    refused = done["problems"] or ((take_over or recover) and done["take-over-problems"])
    if refused or (parity is not None and not parity["equal"]):
        raise typer.Exit(_DIFFERENT)


@delta_app.command("verify")
def verify(
    name: _Table, uri: Uri = None, warehouse: WarehouseName = None, token: Token = None, json: Json = False
) -> None:
    """Compare a Delta table with its log. Ends with 1 if they differ."""
    found = _patient(uri, warehouse, token).delta.verify(written(table_name, name))
    if json:
        print_json(found)
    else:
        _print_parity(found)
    if not found["equal"]:
        raise typer.Exit(_DIFFERENT)


def _patient(uri: str | None, warehouse: str | None, token: str | None) -> Lake:
    try:
        return connect(uri, warehouse, token, retry=Retry(attempts=5, deadline_s=20.0), answer_s=_ANSWER_S)
    except ValueError as error:
        raise InvalidSetting(str(error)) from None


def _print(table: DeltaTable) -> None:
    protocol = table.protocol
    features = [*protocol.get("readerFeatures", ()), *protocol.get("writerFeatures", ())]
    facts = [
        ("table", table.name),
        ("id", table.table_id),
        ("location", table.location),
        ("version", str(table.version)),
        ("at", instant(table.timestamp_ms)),
        ("partitioned by", ", ".join(table.partition_columns) or "-"),
        ("protocol", f"{protocol['minReaderVersion']}, {protocol['minWriterVersion']}"),
        ("features", ", ".join(dict.fromkeys(features)) or "-"),
    ]
    configuration = table.metadata.get("configuration") or {}
    applications = [(f"application {app_id}", str(reached)) for app_id, reached in table.transactions.items()]
    properties = [(f"property {key}", str(value)) for key, value in configuration.items()]
    print_rows(("", ""), facts + properties + applications)
    say("\nColumns:")
    print_rows(
        ("name", "type", ""),
        [
            (one["name"], _type(one["type"]), "" if one["nullable"] else "required")
            for one in orjson.loads(table.schema_string)["fields"]
        ],
    )


def _print_import(done: Mapping[str, Any], *, take_over: bool) -> None:
    name = ".".join((*done["identifier"]["namespace"], done["identifier"]["name"]))
    for problem in done["problems"]:
        say(f"problem: {problem}")
    for problem in done["take-over-problems"] if take_over or done["dry-run"] else ():
        say(f"in the way of a take-over: {problem}")
    for field in done["dropped"]:
        say(f"left out: {field}")
    rows = "an unknown number of" if done["rows"] is None else done["rows"]
    what = f"{done['versions']} versions; {done['files']} live files, {rows} rows, {done['size-bytes']} bytes"
    if done["dry-run"]:
        say(f"Would import {name} up to version {done['version']}: {what}")
        return
    say(f"Imported {name} up to version {done['version']}: {what}")
    say("It is read-only here." if done["read-only"] else "It is ours: foreign writers are refused.")
    if done["parity"] is not None:
        _print_parity(done["parity"])


def _print_parity(found: Mapping[str, Any]) -> None:
    for difference in found["differences"]:
        say(f"different: {difference}")
    if more := found["difference-count"] - len(found["differences"]):
        say(f"and {more} more")
    if found["log-version"] is None:
        say("There is no log yet.")
        return
    reached = min(found["version"], found["log-version"])
    verdict = "are equal" if found["equal"] else f"differ in {found['difference-count']} places"
    say(f"Table and log {verdict} from version {found['first-version']} to {reached}.")
    if found["behind"]:
        say(f"The log is {found['behind']} versions behind the table.")


def _type(kind: object) -> str:
    """A nested type by its kind alone: `--json` has the whole of it."""
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)
