from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import typer

from lakepact.cli.options import Json, Limit, StoreUrl, with_store
from lakepact.cli.output import instant, print_json, print_rows, say
from lakepact.errors import TransactionNotFound
from lakepact.kernel.identity import parse_transaction_id
from lakepact.kernel.model import State, TransactionRecord
from lakepact.server.auth.keys import CELL as SIGNING_KEYS
from lakepact.settings import HIDDEN, Settings


def list_(
    state: Annotated[list[State] | None, typer.Option("--state", help="Only this state; may be repeated.")] = None,
    older_than_s: Annotated[
        float, typer.Option("--older-than-s", min=0, metavar="SECONDS", help="Only those begun longer ago than this.")
    ] = 0,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Go on after the page that ended with this cursor.")
    ] = None,
    limit: Limit = 100,
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """List transactions by state and age, oldest first."""
    before_ms = time.time_ns() // 1_000_000 - int(older_than_s * 1000) if older_than_s else None
    page = with_store(
        Settings.load(store=store),
        lambda cells: cells.transactions(state or (), created_before_ms=before_ms, after=after, limit=limit),
    )
    if json:
        print_json(replace(page, transactions=tuple(map(without_keys, page.transactions))))
        return
    print_rows(
        ("id", "state", "created", "decided", "written", "read"),
        [
            (
                record.id,
                record.state.value,
                instant(record.created_ms),
                instant(record.decided_ms),
                str(len(record.writes)),
                str(len(record.reads)),
            )
            for record in page.transactions
        ],
    )
    if page.after is not None:
        say(f"There may be more: --after {page.after}")


def show(
    transaction_id: Annotated[str, typer.Argument(metavar="ID", help="The transaction's id, a UUIDv7.")],
    store: StoreUrl = None,
    json: Json = False,
) -> None:
    """Show one transaction: what it asked for and what became of it. This settles an unknown outcome."""
    id = parse_transaction_id(transaction_id)
    record = with_store(Settings.load(store=store), lambda cells: cells.lookup(id))
    if record is None:
        raise TransactionNotFound(
            f"no transaction {id} in this store; check --store, or its record is past the horizon"
        )
    if json:
        print_json(without_keys(record))
        return
    print_rows(("", ""), _facts(record))
    if record.moved:
        say("\nWhy it was refused:")
        print_rows(("cell", "planned on", "found"), [(m.key, str(m.expected), str(m.actual)) for m in record.moved])
    if record.writes:
        say("\nWritten cells:")
        rows = [(w.key, str(w.revision), "deleted" if w.value is None else "new value") for w in record.writes]
        print_rows(("cell", "planned on", ""), rows)
    if record.reads:
        say("\nCells it depends on:")
        print_rows(("cell", "seen at"), [(read.key, str(read.revision)) for read in record.reads])


def without_keys(record: TransactionRecord) -> TransactionRecord:
    """The record, fit for other people's eyes: the server's own signing keys are left out."""
    shown = tuple(
        replace(write, value={"keys": HIDDEN}) if write.key == SIGNING_KEYS and write.value is not None else write
        for write in record.writes
    )
    return replace(record, writes=shown)


def _facts(record: TransactionRecord) -> list[tuple[str, str]]:
    facts = [
        ("id", str(record.id)),
        ("state", record.state.value + (", finalized" if record.finalized else "")),
        ("created", instant(record.created_ms)),
        ("decided", instant(record.decided_ms)),
        ("expires", instant(record.expires_ms)),
        ("isolation", record.isolation.value),
        ("request hash", record.request_hash or "-"),
    ]
    return facts + [(f"property {name}", value) for name, value in record.properties.items()]
