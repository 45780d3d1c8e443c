from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console

from lakepact.cli.options import Json
from lakepact.cli.output import console, print_json
from lakepact.demo.play import play
from lakepact.errors import InvalidSetting
from lakepact.extras import how_to_install
from lakepact.settings import Settings


class Scene(StrEnum):
    SHOP = "shop"
    BANK = "bank"


def demo(
    scene: Annotated[
        Scene,
        typer.Argument(help="shop: the product, on Spark. bank: the kernel alone, under fire."),
    ] = Scene.SHOP,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", help="bank: the store. Without it: a new SQLite file, removed after."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=600, help="bank: how long the action lasts.")] = 25,
    movers: Annotated[int, typer.Option("--movers", min=1, max=32, help="bank: how many processes move amounts.")] = 4,
    json: Json = False,
) -> None:
    """Show what Lakepact does, for real: a pipeline whose tables never disagree, while things fail and are killed."""
    screen = Console(stderr=True) if json else console()
    if scene is Scene.SHOP:
        holds, summary = _shop(screen)
    else:
        played = play(Settings.load(store=store), screen, seconds=seconds, movers=movers, own_store=store is None)
        holds, summary = played.holds, asdict(played)
    if json:
        print_json({**summary, "holds": holds})
    if not holds:
        raise typer.Exit(1)


def _shop(screen: Console) -> tuple[bool, dict[str, object]]:
    try:
        from lakepact.demo.shop.story import tell
    except ModuleNotFoundError as error:
        raise InvalidSetting(
            f"the shop needs {error.name}, which is not installed: {how_to_install('spark', 'pyiceberg')}; "
            f"or watch the kernel alone: lakepact demo bank"
        ) from None
    report = tell(screen)
    return report.holds, asdict(report)
