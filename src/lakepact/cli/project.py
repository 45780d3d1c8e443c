from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakepact.cli.options import (
    JarsFolder,
    Json,
    Master,
    SparkSettings,
    Token,
    Uri,
    WarehouseName,
    connected,
    pairs,
    seconds,
    spark_master,
)
from lakepact.cli.output import print_json, say
from lakepact.client import Conflict, Lake, Unavailable, Unknown
from lakepact.errors import InvalidRequest, InvalidSetting
from lakepact.extras import how_to_install

if TYPE_CHECKING:
    from lakepact.spark import SparkLake
    from lakepact.spark.jobs.projections import Projected


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
    master: Master = None,
    jars: JarsFolder = None,
    conf: SparkSettings = None,
    json: Json = False,
) -> None:
    """Bring the tables of namespace lakepact up to date: what changed, when, by whom, and from what."""
    pause_s = None if every is None else seconds("--every", every)
    if pause_s == 0:
        raise InvalidRequest(f"--every {every} is no pause: write 30s, 15m, 1h or 1d")
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
                say(f"not this time: {error}", err=True)
            if pause_s is None:
                return
            full = False
            time.sleep(max(0.0, pause_s - (time.monotonic() - began)))


@contextmanager
def _spark_lake(
    lake: Lake, token: str | None, master: str | None, jars: str | None, settings: dict[str, str]
) -> Iterator[SparkLake]:
    try:
        from pyspark import SparkContext

        import lakepact.spark as lp
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"this needs {error.name}: {how_to_install('spark')}") from None
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
        say(f"Nothing new ({done.seconds:.1f} s)")
    else:
        say(
            f"Projected {done.receipts} receipts of {done.tables} tables, as transaction {done.transaction_id} "
            f"({done.seconds:.1f} s). Days up to {done.through} are complete"
        )
    if done.waiting:
        say(f"{done.waiting} receipts wait for the rest of their transactions")
    if done.unread:
        say(f"the newest metadata of {done.unread} tables could not be read: they have no columns", err=True)
    for file in done.broken:
        say(
            f"{file} cannot be read; what lies loose of its day was read instead. `lakepact reconcile --mend` makes it "
            f"again as far as that is possible, and says what is lost",
            err=True,
        )
    if done.damaged:
        some = "".join(f"\n  {file}" for file in done.examples)
        say(
            f"{done.damaged} files are damaged and no receipts; `lakepact reconcile --mend` writes them anew{some}",
            err=True,
        )
