"""The tree of commands, and the one place where errors become text and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lakepact import __version__
from lakepact.cli import (
    audit,
    backup,
    configuration,
    delta,
    demo,
    doctor,
    dropped,
    gc,
    governance,
    grants,
    graph,
    history,
    mirror,
    namespaces,
    pack,
    project,
    reconcile,
    run,
    serve,
    store,
    tables,
    tokens,
    transactions,
    tx,
    upkeep,
)
from lakepact.cli.options import JSON_ASKED_FOR
from lakepact.cli.output import report
from lakepact.client.http import CA_BUNDLE_VARIABLE
from lakepact.errors import LakepactError
from lakepact.server import logs


class _Reporting(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LakepactError as error:
            raise typer.Exit(report(error, as_json=ctx.meta.get(JSON_ASKED_FOR, False))) from None


app = typer.Typer(
    name="lakepact",
    cls=_Reporting,
    help="A lakehouse catalog whose tables move together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="What this process is set to.", no_args_is_help=True)
store_app = typer.Typer(help="The place where cells and records are kept.", no_args_is_help=True)
transactions_app = typer.Typer(
    help="What was asked, and what became of it: the records of a store.", no_args_is_help=True
)
tx_app = typer.Typer(help="Transactions over many statements, of a server.", no_args_is_help=True)
mirror_app = typer.Typer(help="Copies of Delta tables for engines that do not ask a server.", no_args_is_help=True)
grants_app = typer.Typer(help="Who may do what on a server.", no_args_is_help=True)
namespaces_app = typer.Typer(help="Namespaces of a server.", no_args_is_help=True)
tokens_app = typer.Typer(help="API tokens, in a store.", no_args_is_help=True)
tables_app = typer.Typer(help="Tables of a server.", no_args_is_help=True)

app.command("audit")(audit.audit)
app.command("backup")(backup.backup)
app.command("collect")(upkeep.collect)
app.command("demo")(demo.demo)
app.command("dropped")(dropped.dropped)
app.command("doctor")(doctor.doctor)
app.command("graph")(graph.graph)
app.command("history")(history.history)
app.command("pack")(pack.pack)
app.command("project")(project.project)
app.command("reconcile")(reconcile.reconcile)
app.command("recover")(upkeep.recover)
app.command("restore")(backup.restore)
app.command("run")(run.run)
app.command("serve")(serve.serve)
app.command("undrop")(dropped.undrop)
grants_app.command("add")(grants.add)
grants_app.command("check")(grants.check)
grants_app.command("list")(grants.list_)
grants_app.command("remove")(grants.remove)
mirror_app.command("retry")(mirror.retry)
mirror_app.command("run")(mirror.run)
mirror_app.command("status")(mirror.status)
namespaces_app.command("create")(namespaces.create)
namespaces_app.command("drop")(namespaces.drop)
namespaces_app.command("list")(namespaces.list_)
tables_app.command("drop")(tables.drop)
tables_app.command("govern")(governance.govern)
tables_app.command("list")(tables.list_)
tables_app.command("register")(tables.register)
tables_app.command("rename")(tables.rename)
tables_app.command("show")(tables.show)
tokens_app.command("create")(tokens.create)
tokens_app.command("list")(tokens.list_)
tokens_app.command("revoke")(tokens.revoke)
tokens_app.command("rotate")(tokens.rotate)
tx_app.command("abort")(tx.abort)
tx_app.command("begin")(tx.begin)
tx_app.command("commit")(tx.commit)
tx_app.command("list")(tx.list_)
tx_app.command("show")(tx.show)
config_app.command("show")(configuration.show)
store_app.command("probe")(store.probe)
transactions_app.command("list")(transactions.list_)
transactions_app.command("show")(transactions.show)
app.add_typer(config_app, name="config")
app.add_typer(delta.delta_app, name="delta")
app.add_typer(gc.gc_app, name="gc")
app.add_typer(grants_app, name="grants")
app.add_typer(mirror_app, name="mirror")
app.add_typer(namespaces_app, name="namespaces")
app.add_typer(store_app, name="store")
app.add_typer(tables_app, name="tables")
app.add_typer(tokens_app, name="tokens")
app.add_typer(transactions_app, name="transactions")
app.add_typer(tx_app, name="tx")


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"lakepact {__version__}")
        raise typer.Exit


@app.callback()
def lakepact(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    ca_bundle: Annotated[
        str | None,
        typer.Option(
            "--ca-bundle",
            metavar="FILE",
            envvar=CA_BUNDLE_VARIABLE,
            show_envvar=True,
            help="Who may vouch for a server over https. Default: the system's authorities.",
        ),
    ] = None,
) -> None:
    logs.configure_command()
    if ca_bundle and ca_bundle != os.environ.get(CA_BUNDLE_VARIABLE):
        # For this command and the processes it starts.
        context.with_resource(_environment(CA_BUNDLE_VARIABLE, ca_bundle))


def main() -> None:
    """Run the command, and leave without Python's own goodbye.

    obstore's threads may still be letting go of Python objects when the interpreter shuts down, and then the process
    aborts, with all its work done. Nothing of ours waits for that goodbye: stores are closed and the output is flushed.
    """
    code = 1
    logs.open_standard_streams()
    try:
        app()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        with suppress(OSError):
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        # Its disk may be full, or its reader gone. The exit code still says how the command ended.
        with suppress(OSError):
            stream.flush()
    logs.flush()
    os._exit(code)
