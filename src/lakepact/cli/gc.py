from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

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
    with_catalogs,
)
from lakepact.cli.output import print_json, print_rows, say
from lakepact.cli.upkeep import MOST_PASSES
from lakepact.errors import InvalidSetting
from lakepact.extras import how_to_install
from lakepact.settings import Settings
from lakepact.upkeep.clock_evidence import explained
from lakepact.upkeep.collection import CLASSES, Class, Collector, CollectorSettings, Report
from lakepact.upkeep.collection.receipts import Retention

if TYPE_CHECKING:
    from lakepact.server.app import WithoutServer

DryRun = Annotated[bool, typer.Option("--dry-run", help="Delete nothing; list what would go, and why.")]
_DEFAULT: Final = (Class.RECORDS, Class.DROPPED, Class.ABANDONED, Class.RECEIPTS)
_SHOWN: Final = 100

gc_app = typer.Typer(
    add_completion=False, rich_markup_mode=None, help="Delete what nobody needs any more.", invoke_without_command=True
)


@gc_app.callback()
def gc(
    context: typer.Context,
    dry_run: DryRun = False,
    classes: Annotated[
        list[Class] | None,
        typer.Option("--class", help="Only this kind; repeatable. Default: all but snapshots."),
    ] = None,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Delete what dropped tables, abandoned transactions, finished records and receipts have left, each after its own
    time."""
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
    older_than_s = seconds("--older-than", older_than)
    settings, options = pairs("--conf", conf), pairs("--option", option)
    lake = connected(uri, warehouse, token)
    try:
        from lakepact.spark.jobs.orphans import Wish, search
        from lakepact.spark.jobs.sessions import plain_session
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"this needs {error.name}: {how_to_install('spark')}") from None
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
        say(path)
    say(
        f"{found.files} of {found.listed} files {verb}, {found.bytes} bytes, older than {older_than}. "
        f"All of them: {found.report}"
    )
    if found.failed:
        raise typer.Exit(1)


def _collect(classes: Sequence[Class], store_url: str | None, *, dry_run: bool, json: bool) -> None:
    settings = Settings.load(store=store_url)
    report = Report(tells=False)

    async def work(opened: WithoutServer) -> dict[str, int]:
        judgement = opened.clock.judgement
        if judgement is not None and not judgement.confirmed:
            report.leave("everything that is deleted by age", explained(judgement))
        for catalog in opened.catalogs.values():
            await Collector(catalog, collector_settings(settings)).run(
                [one for one in classes if one in CLASSES], report, dry_run=dry_run
            )
        if Class.RECEIPTS in classes:
            await Retention(
                opened.catalogs,
                opened.clock,
                receipt_days=settings.receipt_days,
                loose_days=settings.loose_receipt_days,
                report=report,
                dry_run=dry_run,
            ).run()
        records = {"trimmed": 0, "deleted": 0}
        if Class.RECORDS in classes and not dry_run:
            for _ in range(MOST_PASSES):
                done = await opened.store.collect()
                records["trimmed"] += done.trimmed
                records["deleted"] += done.deleted
                if not done.more:
                    break
        return records

    records = with_catalogs(settings, work)
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
        say(f"and {total - _SHOWN} more; --json has them")
    for one in report.left:
        say(f"left for later: {one}")
    counted = ", ".join(f"{count} of {rule}" for rule, count in report.counts.items()) or "nothing"
    say(f"{'Would remove' if dry_run else 'Removed'}: {counted}")
    if Class.RECORDS in classes:
        say(
            "Records are trimmed and deleted by the kernel's own rule; a dry run does not count them"
            if dry_run
            else f"Records: {records['trimmed']} trimmed, {records['deleted']} deleted"
        )


def collector_settings(settings: Settings) -> CollectorSettings:
    return CollectorSettings(settings.drop_retention_s, settings.abandoned_retention_s)
