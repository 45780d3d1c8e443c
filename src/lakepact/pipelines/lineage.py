"""What a transaction has really read, by what the server says it depends on. Observed, not declared.

Whoever loads a table inside a transaction leaves two cells among those it has read: that of the name and that of the
table. Names that led to nothing, or to a view, have no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakepact.client import Change, LoadedTable, NotFound
from lakepact.client.names import Identifier, shown
from lakepact.kernel.keys import Key, segments_of
from lakepact.pipelines.graph import Graph
from lakepact.pipelines.positions import Position
from lakepact.pipelines.results import Input
from lakepact.spark import SparkLake, SparkTransaction


def observed(
    lake: SparkLake,
    tx: SparkTransaction,
    graph: Graph,
    since: Mapping[str, Position | None],
    before: Mapping[str, int | None],
) -> tuple[Input, ...]:
    """The tables the transaction has read that it has not made itself, at the snapshots it saw.

    `since` is where incremental reads began, `before` what the run's own tables were at when it began.
    """
    changes = lake.plain.transactions.get(tx.id).changes
    uuids = _tables(changes)
    found: list[Input] = []
    for identifier in sorted(_names(changes)):
        name = shown(identifier)
        step = graph.steps.get(name)
        if step is not None and not step.reads_itself:
            continue
        table = _loaded(tx, identifier)
        if table is None or table.uuid not in uuids:
            continue
        last = since.get(name)
        found.append(
            Input(
                name,
                table.uuid,
                before.get(name) if step is not None else table.snapshot_id,
                tuple(one for one, reader in graph.steps.items() if name in reader.reads or one == name),
                None if last is None else last.snapshot_id,
            )
        )
    return tuple(found)


def _loaded(tx: SparkTransaction, identifier: Identifier) -> LoadedTable | None:
    try:
        return tx.plain.tables.load(identifier)
    except NotFound:
        return None


def _names(changes: Iterable[Change]) -> set[Identifier]:
    found = set()
    for change in changes:
        _, family, *rest = segments_of(Key(change.cell))
        if family == "names":
            path, name = rest
            # The levels of a namespace are one segment: a dot parts them, one inside of a level is `~1`.
            levels = (level.replace("~1", ".").replace("~0", "~") for level in path[1:].split("."))
            found.add((*levels, name))
    return found


def _tables(changes: Iterable[Change]) -> set[str]:
    cells = (segments_of(Key(change.cell)) for change in changes)
    return {rest[-1] for _, family, *rest in cells if family == "tables"}
