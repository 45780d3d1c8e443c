"""What a run has really read: observed, not declared.

Two witnesses. The plans of the frames that stages were given and have made say which snapshot of which table each of
them reads; a Delta table, which is files to Spark, is noted when it is read. And a serializable transaction depends on
everything that was loaded in it, by whatever means: the server says so. What a stage only looked at on its way, through
the session and under snapshot isolation, neither sees.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from lakepact.client import Change, NotFound
from lakepact.client.names import Identifier, shown
from lakepact.kernel.keys import Key, segments_of
from lakepact.pipelines.results import Input
from lakepact.spark import SparkLake, SparkTransaction

_RELATION: Final = "DataSourceV2Relation"
_ICEBERG: Final = "org.apache.iceberg.spark.source.SparkTable"
_METADATA_TABLE: Final = "BaseMetadataTable"


@dataclass(frozen=True, slots=True, order=True)
class Seen:
    """A table at a snapshot, in the plan of a frame; a Delta table at a version, as it was read."""

    table: str
    uuid: str
    snapshot_id: int | None
    version: int | None = None

    @property
    def at(self) -> int | None:
        return self.snapshot_id if self.version is None else self.version


def seen_in(frame: DataFrame) -> frozenset[Seen]:
    """The Iceberg tables that a frame reads, also in subqueries and behind views."""
    return frozenset(one for plan in _plans(frame) for one in _leaves(plan))


def inputs_of(
    lake: SparkLake,
    tx: SparkTransaction,
    seen: Mapping[Seen, Iterable[str]],
    before: Mapping[str, int | None],
    since: Mapping[str, int | None],
) -> tuple[Input, ...]:
    """What was read and not made by the run itself. `seen` says in which stages, `before` what the run's own tables
    were at when it began, `since` where incremental reads have begun."""
    found = {
        (one.table, one.at): Input(
            one.table, one.uuid, one.snapshot_id, tuple(sorted(stages)), since.get(one.table), one.version
        )
        for one, stages in sorted(seen.items(), key=lambda pair: str(pair[0]))
        # One of the run's own tables is an input only as it was before.
        if one.table not in before or (one.at is not None and one.at == before[one.table])
    }
    known = {table for table, _ in found}
    changes = lake.plain.transactions.get(tx.id).changes
    uuids = _tables(changes)
    for identifier in sorted(_names(changes)):
        name = shown(identifier)
        if name in known or name in before:
            continue
        table = _loaded(tx, identifier)
        if table is not None and table.uuid in uuids:
            found[name, table.at] = Input(name, table.uuid, table.snapshot_id, (), version=table.version)
    return tuple(found.values())


def _plans(frame: DataFrame) -> Iterator[Any]:
    plan: Any = frame._jdf.queryExecution().analyzed()
    yield plan
    subqueries = plan.subqueriesAll()
    for index in range(subqueries.size()):
        yield subqueries.apply(index)


def _leaves(plan: Any) -> Iterator[Seen]:
    leaves = plan.collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if leaf.getClass().getSimpleName() != _RELATION or not leaf.identifier().isDefined():
            continue
        table = leaf.table()
        if table.getClass().getName() != _ICEBERG:
            continue
        iceberg = table.table()
        if iceberg.getClass().getSuperclass().getSimpleName() == _METADATA_TABLE:
            continue
        identifier, snapshot_id = leaf.identifier().get(), table.snapshotId()
        name = shown((*identifier.namespace(), identifier.name()))
        yield Seen(name, str(iceberg.uuid().toString()), None if snapshot_id is None else int(snapshot_id))


def _loaded(tx: SparkTransaction, identifier: Identifier) -> Seen | None:
    try:
        table = tx.plain.tables.load(identifier)
        return Seen(shown(identifier), table.uuid, table.snapshot_id)
    except NotFound:
        pass
    try:
        delta = tx.plain.delta.load(identifier, files=False)
        return Seen(shown(identifier), delta.table_id, None, delta.version)
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
    return {rest[-1] for _, family, *rest in cells if family in ("tables", "delta")}
