from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from lakepact.cli.checkup import everything
from lakepact.cli.finding import Finding, Verdict, bad
from lakepact.cli.options import Json, StoreUrl
from lakepact.cli.output import print_json, print_rows, say
from lakepact.errors import InvalidSetting
from lakepact.settings import Settings


def doctor(
    store: StoreUrl = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing: neither to the store nor to a warehouse.")
    ] = False,
    json: Json = False,
) -> None:
    """Check settings, store, warehouses, the metadata of tables, clocks, credentials, the identity provider and ports.

    Says what to do about each finding. Java and Spark are checked where PySpark is installed.
    """
    try:
        settings = Settings.load(store=store)
    except InvalidSetting as error:
        found = [bad("settings", str(error), "Correct them; nothing else can be looked at before.")]
    else:
        found = asyncio.run(everything(settings, writes=not read_only, progress=lambda line: say(line, err=True)))
    well = not any(one.verdict is Verdict.FAIL for one in found)
    if json:
        print_json({"well": well, "findings": found})
    else:
        print_rows(("", "what", "found"), [_row(one) for one in found])
        for one in found:
            if one.do:
                say(f"{one.subject}: {one.do}")
    if not well:
        raise typer.Exit(1)


def _row(finding: Finding) -> tuple[str, str, str]:
    return finding.verdict, finding.subject, finding.detail
