from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lakepact.cli.options import Json, StoreUrl, with_catalogs
from lakepact.cli.output import print_json, say
from lakepact.errors import InvalidSetting
from lakepact.runtime import SystemClock, SystemRng
from lakepact.settings import Settings
from lakepact.upkeep.reconcile import Depth, Reconciler
from lakepact.upkeep.scribe import Report

if TYPE_CHECKING:
    from lakepact.server.app import WithoutServer


def reconcile(
    store: StoreUrl = None,
    full: Annotated[
        bool, typer.Option("--full", help="Look at everything, whatever was found complete before.")
    ] = False,
    mend: Annotated[
        bool,
        typer.Option("--mend", help="Write damaged receipts and segments anew. Looks at everything, as --full does."),
    ] = False,
    json: Json = False,
) -> None:
    """Find committed changes that have no receipt, and write it. Safe at any time, by anyone, any number of times."""
    settings = Settings.load(store=store)
    if not settings.receipts:
        raise InvalidSetting("receipts are switched off, so none is missing; set LAKEPACT_RECEIPTS=true to have them")

    async def work(opened: WithoutServer) -> Report:
        depth = Depth(settings.reconcile_depth, settings.receipt_days, full=full, mend=mend)
        return await Reconciler(opened.catalogs, opened.store, SystemClock(), SystemRng(), depth).run()

    report = with_catalogs(settings, work)
    if json:
        print_json(report)
    else:
        _print(report)
    if report.unreadable or report.damaged or report.lost or report.failed:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    say(
        f"{report.tables} tables, views and namespaces looked at ({report.unchanged} unchanged), "
        f"{report.transactions} transactions"
    )
    say(
        f"receipts: {report.found} found, {report.written} written ({report.late} late), {report.mended} mended, "
        f"{report.unreadable} unreadable, {report.damaged} damaged"
    )
    if report.rebuilt or report.lost:
        say(f"packed days: {report.rebuilt} files made again, {report.lost} segments lost")
    if report.deeper:
        say(f"{report.deeper} tables have more versions than were looked at: LAKEPACT_RECONCILE_DEPTH sets how many")
    for problem in report.problems:
        say(problem, err=True)
    if report.failed:
        say(f"{report.failed} could not be looked at. Run it again.", err=True)
