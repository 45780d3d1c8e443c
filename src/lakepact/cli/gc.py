from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated, Final

import typer

from lakepact.catalog import Catalog, CatalogSettings, Watch
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Mirrored
from lakepact.cli.options import (
    Json,
    Master,
    SparkSettings,
    StoreUrl,
    Token,
    Uri,
    WarehouseName,
    connected,
    pairs,
    seconds,
    spark_master,
    with_store,
)
from lakepact.cli.output import console, print_json, print_rows
from lakepact.cli.upkeep import MOST_PASSES
from lakepact.errors import InvalidSetting
from lakepact.kernel.ports import BlobStore, CellStore
from lakepact.mirrors import Mirrors
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.settings import Settings
from lakepact.stores import delta_rows, open_blobs
from lakepact.upkeep.collection import CLASSES, Class, Collector, CollectorSettings, Report

DryRun = Annotated[bool, typer.Option("--dry-run", help="Delete nothing; list what would go, and why.")]
_DEFAULT: Final = (Class.RECORDS, Class.DROPPED, Class.ABANDONED)
_SHOWN: Final = 100

gc_app = typer.Typer(help="Delete what nobody needs any more.", invoke_without_command=True)


@gc_app.callback()
def gc(
    context: typer.Context,
    dry_run: DryRun = False,
    classes: Annotated[
        list[Class] | None,
        typer.Option("--class", help="Only this kind; repeatable. Default: records, dropped and abandoned."),
    ] = None,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Delete what dropped tables, abandoned transactions and finished records have left, each after its own time."""
    if context.invoked_subcommand is None:
        _collect(classes or _DEFAULT, store, dry_run=dry_run, json=json)


@gc_app.command("snapshots")
def snapshots(dry_run: DryRun = False, store: StoreUrl = None, json: Json = False) -> None:
    """Expire snapshots, branches and tags by the tables' own history.expire.* properties."""
    _collect((Class.SNAPSHOTS,), store, dry_run=dry_run, json=json)


@gc_app.command("orphans")
def orphans(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Only files of this age, such as 7d, 36h or 90m.")
    ] = "7d",
    dry_run: DryRun = False,
    unsafe_any_age: Annotated[
        bool,
        typer.Option("--unsafe-any-age", help="Allow an age below the life of a transaction. It may take live files."),
    ] = False,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    master: Master = None,
    conf: SparkSettings = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="Access to files, such as s3.endpoint; repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Search the folders of all tables, on Spark, for files that nothing leads to, and delete them."""
    older_than_s, settings, options = (
        seconds("--older-than", older_than),
        pairs("--conf", conf),
        pairs("--option", option),
    )
    lake = connected(uri, warehouse, token)
    try:
        from lakepact.spark.jobs.orphans import Wish, search
        from lakepact.spark.jobs.sessions import plain_session
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"this needs {error.name}: pip install 'lakepact[spark]'") from None
    wish = Wish(older_than_s, dry_run=dry_run, unsafe_any_age=unsafe_any_age, options=options)
    with plain_session(spark_master(master), "lakepact gc orphans", settings) as spark:
        found = search(spark, lake, wish)
    if json:
        print_json(found)
        return
    verb = "would be deleted" if dry_run else "deleted"
    print_rows(
        ("table", "files", "bytes", "failed"),
        [(one.table, str(one.files), str(one.bytes), str(one.failed)) for one in found.tables],
    )
    for path in found.examples:
        console().print(f"{path}", markup=False)
    typer.echo(
        f"{found.files} of {found.listed} files {verb}, {found.bytes} bytes, older than {older_than}. "
        f"All of them: {found.report}"
    )
    if found.failed:
        raise typer.Exit(1)


def _collect(classes: Sequence[Class], store_url: str | None, *, dry_run: bool, json: bool) -> None:
    settings = Settings.load(store=store_url)
    report = Report()

    async def work(store: CellStore) -> dict[str, int]:
        async with catalogs_of(settings, store) as catalogs:
            for catalog in catalogs.values():
                await Collector(catalog, collector_settings(settings)).run(
                    [one for one in classes if one in CLASSES], report, dry_run=dry_run
                )
        records = {"trimmed": 0, "deleted": 0}
        if Class.RECORDS in classes and not dry_run:
            for _ in range(MOST_PASSES):
                done = await store.collect()
                records["trimmed"] += done.trimmed
                records["deleted"] += done.deleted
                if not done.more:
                    break
        return records

    records = with_store(settings, work)
    if json:
        print_json(
            {
                "dry-run": dry_run,
                "removed": report.removals,
                "counts": {str(rule): count for rule, count in report.counts.items()},
                "left": report.left,
                "records": None if dry_run else records,
            }
        )
        return
    _print(report, records, classes, dry_run=dry_run)


def _print(report: Report, records: Mapping[str, int], classes: Sequence[Class], *, dry_run: bool) -> None:
    if report.removals:
        print_rows(
            ("class", "table", "what", "why"),
            [(one.rule, one.table, one.what, one.why) for one in report.removals[:_SHOWN]],
        )
    total = sum(report.counts.values())
    if total > _SHOWN:
        typer.echo(f"and {total - _SHOWN} more; --json has them")
    for one in report.left:
        typer.echo(f"left for later: {one}")
    counted = ", ".join(f"{count} of {rule}" for rule, count in report.counts.items()) or "nothing"
    typer.echo(f"{'Would remove' if dry_run else 'Removed'}: {counted}")
    if Class.RECORDS in classes:
        typer.echo(
            "Records are trimmed and deleted by the kernel's own rule; a dry run does not count them"
            if dry_run
            else f"Records: {records['trimmed']} trimmed, {records['deleted']} deleted"
        )


def collector_settings(settings: Settings) -> CollectorSettings:
    return CollectorSettings(settings.drop_retention_s, settings.abandoned_retention_s)


class _WithMirrors(Watch):
    """Knows what mirrors show, and does not keep them in step."""

    def __init__(self) -> None:
        self.mirrors: Mirrors | None = None

    async def mirrored(self, warehouse: str) -> Sequence[Mirrored]:
        return () if self.mirrors is None else await self.mirrors.shown(warehouse)


@asynccontextmanager
async def catalogs_of(settings: Settings, store: CellStore) -> AsyncIterator[Mapping[str, Catalog]]:
    rows, tasks, clock, rng, watch = delta_rows(store), AsyncioTasks(), SystemClock(), SystemRng(), _WithMirrors()
    async with AsyncExitStack() as stack:
        catalogs: dict[str, Catalog] = {}
        for name, place in settings.places().items():
            blobs: BlobStore = await open_blobs(place.url, place.options)
            stack.push_async_callback(blobs.close)
            limits = CatalogSettings(
                cache_bytes=settings.metadata_cache_bytes,
                mirrors=settings.mirrors_of(name),
                drop_retention_s=settings.drop_retention_s,
                longest_transaction_s=settings.max_ttl_s,
            )
            catalogs[name] = Catalog(
                Warehouse(name, place.url), store, blobs, clock, rng, tasks, limits, rows=rows, watch=watch
            )
        stack.push_async_callback(tasks.drain)
        if rows is not None:
            owner = f"{socket.gethostname()}-{os.getpid()}-{rng.bits(32):08x}"
            watch.mirrors = Mirrors(catalogs, rows, clock, owner=owner)
        yield catalogs
