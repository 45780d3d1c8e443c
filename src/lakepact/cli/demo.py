from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console

from lakepact.cli.options import Json
from lakepact.cli.output import console, print_json
from lakepact.demo.play import play
from lakepact.settings import Settings


def demo(
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="The store. Without it: a new SQLite file, removed at the end."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=600, help="How long the action lasts.")] = 25,
    movers: Annotated[int, typer.Option("--movers", min=1, max=32, help="How many processes move amounts.")] = 4,
    json: Json = False,
) -> None:
    """Move amounts in several processes, kill them, audit every cut, and show that nothing was lost."""
    screen = Console(stderr=True) if json else console()
    settings = Settings.load(store=store)
    summary = play(settings, screen, seconds=seconds, movers=movers, own_store=store is None)
    if json:
        print_json({**asdict(summary), "holds": summary.holds})
    if not summary.holds:
        raise typer.Exit(1)
