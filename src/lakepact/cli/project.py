from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lakepact.cli.options import Json, Token, Uri, WarehouseName, connected, pairs
from lakepact.cli.output import print_json
from lakepact.cli.run import spark_master
from lakepact.client import Conflict, Lake, Unavailable, Unknown
from lakepact.errors import InvalidRequest, InvalidSetting

if TYPE_CHECKING:
    from lakepact.spark import SparkLake
    from lakepact.spark.jobs.projections import Projected

_EVERY: Final = re.compile(r"(\d+)([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def project(
    full: Annotated[
        bool, typer.Option("--full", help="Make the tables anew of all receipts there are, not only of new ones.")
    ] = False,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="TIME", help="Again and again: every 30s, 15m, 1h. Until it is ended."),
    ] = None,
    location: Annotated[
        str | None,
        typer.Option(
            "--location", metavar="URL", help="The warehouse as Spark reaches it. Default: as the server says."
        ),
    ] = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    master: Annotated[
        str | None, typer.Option("--master", help="Where Spark runs. Default: local[*], or what spark-submit says.")
    ] = None,
    jars: Annotated[
        str | None, typer.Option("--jars", metavar="DIR", help="A folder with the runtimes, if no registry is reached.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Bring the tables of namespace lakepact up to date: what changed, when, by whom, and from what."""
    pause_s = None if every is None else seconds(every)
    settings = pairs("--conf", conf)
    with connected(uri, warehouse, token) as lake, _spark_lake(lake, token, master, jars, settings) as spark_lake:
        from lakepact.spark.jobs.projections import project as run

        while True:
            began = time.monotonic()
            try:
                _show(run(spark_lake, full=full, location=location), as_json=json)
            except (Conflict, Unavailable, Unknown) as error:
                if pause_s is None:
                    raise
                # Nothing was changed, or it was: the next run finds out.
                typer.echo(f"not this time: {error}", err=True)
            if pause_s is None:
                return
            full = False
            time.sleep(max(0.0, pause_s - (time.monotonic() - began)))


def seconds(text: str) -> float:
    found = _EVERY.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise InvalidRequest(f"--every {text!r} is no time: write 30s, 15m, 1h or 1d")
    return float(int(found[1]) * _SECONDS[found[2]])


@contextmanager
def _spark_lake(
    lake: Lake, token: str | None, master: str | None, jars: str | None, settings: dict[str, str]
) -> Iterator[SparkLake]:
    try:
        from pyspark import SparkContext

        import lakepact.spark as lp
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"this needs {error.name}: pip install 'lakepact[spark]'") from None
    # A session that is there already is somebody else's, and outlives this command.
    own = SparkContext._active_spark_context is None
    spark = lp.session(
        spark_master(master),
        uri=lake.uri,
        warehouse=lake.warehouse,
        token=token,
        jars=jars,
        app_name="lakepact project",
        **{"spark.ui.showConsoleProgress": "false", **settings},
    )
    try:
        spark.sparkContext.setLogLevel("ERROR")
        yield lp.connect(spark)
    finally:
        if own:
            spark.stop()


def _show(done: Projected, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
        return
    if done.transaction_id is None:
        typer.echo(f"Nothing new ({done.seconds:.1f} s)")
    else:
        typer.echo(
            f"Projected {done.receipts} receipts of {done.tables} tables, as transaction {done.transaction_id} "
            f"({done.seconds:.1f} s). Days up to {done.through} are complete"
        )
    if done.waiting:
        typer.echo(f"{done.waiting} receipts wait for the rest of their transactions")
    if done.unread:
        typer.echo(f"the newest metadata of {done.unread} tables could not be read: they have no columns", err=True)
    if done.damaged:
        some = "".join(f"\n  {file}" for file in done.examples)
        typer.echo(
            f"{done.damaged} files are damaged and no receipts; `lakepact reconcile --mend` writes them anew{some}",
            err=True,
        )
