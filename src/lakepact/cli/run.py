from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from lakepact.cli.graph import Params
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
    spark_master,
)
from lakepact.cli.output import print_json, print_rows, report, say
from lakepact.client import Lake
from lakepact.client.machine import ThisMachine, new_id
from lakepact.errors import InvalidRequest, InvalidSetting
from lakepact.extras import how_to_install
from lakepact.pipelines.definition import Pipeline
from lakepact.pipelines.errors import RunFailed
from lakepact.pipelines.loading import load
from lakepact.pipelines.placeholder import NeedsSession
from lakepact.pipelines.results import CheckResult, RunResult, StageResult, State, Status

if TYPE_CHECKING:
    from lakepact.pipelines.runner import Event

_PROJECTS: Final = (".yml", ".yaml")


def run(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The Python file that declares the pipeline, or a spark-pipeline.yml."),
    ],
    param: Params = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Do everything, the checks too, and publish nothing.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="TABLE", help="Only this table; repeatable.")
    ] = None,
    from_scratch: Annotated[
        list[str] | None,
        typer.Option(
            "--from-scratch",
            metavar="TABLE",
            help="Forget what this table has read so far and replace its rows; repeatable.",
        ),
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="The run's id: the same one is committed once. Default: a new one.")
    ] = None,
    uri: Uri = None,
    warehouse: WarehouseName = None,
    token: Token = None,
    master: Master = None,
    jars: JarsFolder = None,
    conf: SparkSettings = None,
    json: Json = False,
) -> None:
    """Run a pipeline as one transaction: all of its tables are published, or none."""
    params, settings = pairs("--param", param), pairs("--conf", conf)
    # Before anything can go wrong: whoever does not learn how it ended asks again under the same id.
    run_id = run_id or new_id(ThisMachine())
    where = spark_master(master)
    if file.suffix in _PROJECTS:
        wish = {"only": only or (), "from_scratch": from_scratch or (), "dry_run": dry_run}
        with _failures(json):
            result = _project(
                file, connected(uri, warehouse, token), params, run_id, where, token, jars, settings, wish
            )
        _shown_as(result, json)
        return
    pipeline = _declared(file, params)
    lake = connected(uri, warehouse, token)
    try:
        from pyspark import SparkContext

        import lakepact.spark as lp
        from lakepact.pipelines.runner import run as run_pipeline
        from lakepact.spark.logs import log_file, log_to
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"this needs {error.name}: {how_to_install('spark')}") from None
    say(f"run {run_id}", err=True)
    # A session that is there already is somebody else's, and outlives this command.
    own = SparkContext._active_spark_context is None
    spark = lp.session(
        where,
        uri=lake.uri,
        warehouse=lake.warehouse,
        token=token,
        jars=jars,
        app_name=f"lakepact run {file.name}",
        **{"spark.ui.showConsoleProgress": "false", **settings},
    )
    log = log_file(run_id)
    try:
        spark.sparkContext.setLogLevel("ERROR")
        if own:
            log_to(spark, log)
        with _failures(json, log), _shown() as on_event:
            result = run_pipeline(
                pipeline or load(file, params),
                lp.connect(spark),
                run_id=run_id,
                params=params,
                only=only or (),
                from_scratch=from_scratch or (),
                dry_run=dry_run,
                on_event=on_event,
            )
    finally:
        if own:
            spark.stop()
    _shown_as(result, json)


def _project(
    file: Path,
    lake: Lake,
    params: dict[str, str],
    run_id: str,
    master: str | None,
    token: str | None,
    jars: str | None,
    settings: dict[str, str],
    wish: dict[str, Any],
) -> RunResult:
    """A project of Spark Declarative Pipelines, as it is."""
    if params:
        raise InvalidRequest("a spark-pipeline.yml takes no --param; its configuration and --conf are what it can read")
    try:
        from lakepact.pipelines.projects.project import read_project
        from lakepact.pipelines.projects.runner import Wish, run_project
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"this needs {error.name}: {how_to_install('spark')}") from None
    project = read_project(file)
    say(f"run {run_id}", err=True)
    quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    return run_project(
        project, lake, Wish(run_id, master=master, token=token, jars=jars, settings={**quiet, **settings}, **wish)
    )


@contextmanager
def _failures(as_json: bool, log: Path | None = None) -> Iterator[None]:
    """Report a run that failed, and end the command with 1. All of Java's and Python's stack goes to the log."""
    try:
        yield
    except RunFailed as error:
        report(error, as_json=as_json)
        if log is not None and error.__cause__ is not None:
            with log.open("a") as file:
                file.writelines(traceback.format_exception(error))
            say(f"The full log is {log}", err=True)
        raise typer.Exit(1) from None


def _shown_as(result: RunResult, as_json: bool) -> None:
    if as_json:
        print_json({**asdict(result), "quality": result.quality})
    else:
        _print(result)


def _declared(file: Path, params: dict[str, str]) -> Pipeline | None:
    """The pipeline, judged before a Spark is started. None: its file needs one to be loaded at all."""
    try:
        pipeline = load(file, params)
    except NeedsSession:
        return None
    pipeline.graph()
    return pipeline


@contextmanager
def _shown() -> Iterator[Event]:
    """A line for every stage on standard error, which moves if somebody is watching."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        yield lambda stage, what, result: say(_line(stage, what, result), err=True)
        return
    columns = (SpinnerColumn(finished_text="•"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=screen) as progress:
        tasks: dict[str, Any] = {}

        def on_event(stage: str, what: str, result: StageResult | None) -> None:
            if what == "begun" and stage in tasks:
                progress.reset(tasks[stage], description=stage)
            elif what == "begun":
                tasks[stage] = progress.add_task(stage, total=1)
            elif stage not in tasks:
                # Of the run as a whole.
                screen.print(_line(stage, what, result))
            else:
                progress.update(tasks[stage], description=_line(stage, what, result), completed=1)

        yield on_event


def _line(stage: str, what: str, result: StageResult | None) -> str:
    match what:
        case "again":
            return f"{stage}: somebody else was faster, or the server was away; the run is done again"
        case "waits":
            return f"{stage}: waits for an input of this run, and begins again"
        case "done" if result is not None and result.target is not None:
            return f"{stage}: staged, {result.figures.rows} rows"
        case _:
            return f"{stage}: {what}"


def _print(result: RunResult) -> None:
    if result.stages:
        columns = ("stage", "mode", "rows", "files", "bytes", "seconds", "checks")
        print_rows(columns, [_row(stage) for stage in result.stages])
    in_stages = {id(check) for stage in result.stages for check in stage.checks}
    for check in result.checks:
        if check.status is not Status.PASSED or id(check) not in in_stages:
            say(f"{check.status.value}: {check.table}: {check.name}: {check.message}")
    told = {
        State.COMMITTED: f"committed at one instant as transaction {result.transaction_id}",
        State.ALREADY_COMMITTED: f"was committed before, as transaction {result.transaction_id}; nothing has changed",
        State.DRY_RUN: "was a dry run; nothing was published",
    }[result.state]
    tries = "" if result.attempts == 1 else f", at the {result.attempts}. attempt"
    say(f"Run {result.run_id} of {result.pipeline} {told} ({result.seconds:.1f} s{tries})")


def _row(stage: StageResult) -> tuple[str, ...]:
    figures = stage.figures
    numbers = ("-", "-", "-") if stage.target is None else (str(figures.rows), str(figures.files), str(figures.bytes))
    return (stage.name, stage.mode, *numbers, f"{stage.seconds:.1f}", _checks(stage.checks))


def _checks(checks: tuple[CheckResult, ...]) -> str:
    if not checks:
        return "-"
    counts = {status: sum(check.status is status for check in checks) for status in Status}
    return ", ".join(f"{count} {status.value}" for status, count in counts.items() if count)
