from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Annotated

import typer

from lakepact.catalog import Catalog, CatalogSettings
from lakepact.catalog.warehouse import Warehouse
from lakepact.cli.options import Json, StoreUrl, with_store
from lakepact.cli.output import print_json
from lakepact.errors import InvalidSetting
from lakepact.kernel.ports import CellStore
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.settings import Settings
from lakepact.stores import delta_rows, open_blobs
from lakepact.upkeep.reconcile import Depth, Reconciler
from lakepact.upkeep.scribe import Report


def reconcile(
    store: StoreUrl = None,
    full: Annotated[
        bool, typer.Option("--full", help="Look at everything, whatever was found complete before.")
    ] = False,
    mend: Annotated[
        bool, typer.Option("--mend", help="Write damaged receipts anew. Looks at everything, as --full does.")
    ] = False,
    json: Json = False,
) -> None:
    """Find committed changes that have no receipt, and write it. Safe at any time, by anyone, any number of times."""
    settings = Settings.load(store=store)
    if not settings.receipts:
        raise InvalidSetting("receipts are switched off, so none is missing; set LAKEPACT_RECEIPTS=true to have them")

    async def work(store: CellStore) -> Report:
        async with _catalogs(settings, store) as catalogs:
            depth = Depth(settings.reconcile_depth, settings.receipt_days, full=full, mend=mend)
            return await Reconciler(catalogs, store, SystemClock(), SystemRng(), depth).run()

    report = with_store(settings, work)
    if json:
        print_json(report)
    else:
        _print(report)
    if report.unreadable or report.damaged or report.failed:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    typer.echo(
        f"{report.tables} tables, views and namespaces looked at ({report.unchanged} unchanged), "
        f"{report.transactions} transactions"
    )
    typer.echo(
        f"receipts: {report.found} found, {report.written} written ({report.late} late), {report.mended} mended, "
        f"{report.unreadable} unreadable, {report.damaged} damaged"
    )
    if report.deeper:
        typer.echo(
            f"{report.deeper} tables have more versions than were looked at: LAKEPACT_RECONCILE_DEPTH sets how many"
        )
    for problem in report.problems:
        typer.echo(problem, err=True)
    if report.failed:
        typer.echo(f"{report.failed} could not be looked at. Run it again.", err=True)


@asynccontextmanager
async def _catalogs(settings: Settings, store: CellStore) -> AsyncIterator[Mapping[str, Catalog]]:
    tasks, rows = AsyncioTasks(), delta_rows(store)
    async with AsyncExitStack() as stack:
        catalogs: dict[str, Catalog] = {}
        for name, place in settings.places().items():
            blobs = await open_blobs(place.url, place.options)
            stack.push_async_callback(blobs.close)
            catalogs[name] = Catalog(
                Warehouse(name, place.url),
                store,
                blobs,
                SystemClock(),
                SystemRng(),
                tasks,
                CatalogSettings(),
                rows=rows,
            )
        yield catalogs
