"""What a run has really read: observed, not declared, for each stage.

The plans of the frames that stages were given and have made say which snapshot of which table each of them reads. A
Delta table, which is files to Spark, is recorded when it is read, and its files are recognized in plans. Reads through
a session are recorded when they are made (see activity.py), also if only a value of them is used. And a serializable
transaction depends on everything that was loaded in it, by whatever means: the server says so. A table that only the
server names belongs to no stage.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame

from lakepact.client import Change, DeltaTable, NotFound
from lakepact.client.names import Identifier, shown
from lakepact.kernel.keys import Key, segments_of
from lakepact.pipelines.results import Input
from lakepact.spark import SparkLake, SparkTransaction
from lakepact.spark.delta_files import file_location

_RELATION: Final = "DataSourceV2Relation"
_FILES: Final = "LogicalRelation"
_FILE_RELATION: Final = "HadoopFsRelation"
_ICEBERG: Final = "org.apache.iceberg.spark.source.SparkTable"
_METADATA_TABLE: Final = "BaseMetadataTable"
_VERSION_OPTIONS: Final = ("snapshot-id", "as-of-timestamp", "branch", "tag")
"""Options of a read that choose a version of the table."""

_SCHEME: Final = re.compile("^file:/+")


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table at a snapshot, in the plan of a frame; a Delta table at a version, as it was read."""

    table: str
    uuid: str
    snapshot_id: int | None
    version: int | None = None
    since: int | None = None
    """The snapshot after which an incremental read begins."""

    catalog: str | None = None
    """The name that the session has for the table's catalog."""

    explicit: bool = False
    """Whether the query itself names the version, such as `VERSION AS OF`."""

    @property
    def at(self) -> int | None:
        return self.snapshot_id if self.version is None else self.version

    def __str__(self) -> str:
        return f"snapshot {self.snapshot_id}" if self.version is None else f"version {self.version}"


def reads_in(frame: DataFrame) -> frozenset[TableRead]:
    """The Iceberg tables that a frame reads, also in subqueries and behind views."""
    return frozenset(one for leaf in _leaves(frame) if (one := _table_read(leaf)) is not None)


def files_in(frame: DataFrame) -> frozenset[str]:
    """The files and folders that a frame reads by their location."""
    found: set[str] = set()
    for leaf in _leaves(frame):
        if leaf.getClass().getSimpleName() == _FILES and leaf.relation().getClass().getSimpleName() == _FILE_RELATION:
            roots = str(leaf.relation().location().rootPaths().mkString("\n"))
            found.update(_one_spelling(one) for one in roots.split("\n") if one)
    return frozenset(found)


def files_of(table: DeltaTable) -> frozenset[str]:
    """The files of a Delta table at one version, spelled as `files_in` does."""
    return frozenset(_one_spelling(file_location(table, one)) for one in table.files)


def below(files: Collection[str], table: DeltaTable) -> frozenset[str]:
    """Those of the files that are in the folder of a table."""
    folder = _one_spelling(table.location).rstrip("/") + "/"
    return frozenset(one for one in files if one.startswith(folder))


def inputs_of(
    lake: SparkLake,
    tx: SparkTransaction,
    reads: Mapping[str, Collection[TableRead]],
    staged: Mapping[str, TableRead],
) -> tuple[Input, ...]:
    """What each stage has read, by stage. `staged` are the run's own tables as it leaves them."""
    users: dict[tuple[str, int | None, int | None], tuple[TableRead, set[str]]] = {}
    for stage, found in sorted(reads.items()):
        for one in found:
            if one.table == stage and one.at is None:
                # What a new table reads of itself is nothing.
                continue
            users.setdefault((one.table, one.at, one.since), (one, set()))[1].add(stage)
    inputs = [
        Input(
            one.table,
            one.uuid,
            one.snapshot_id,
            tuple(sorted(stages)),
            one.since,
            one.version,
            staged=one.table in staged and staged[one.table].at == one.at,
        )
        for one, stages in sorted(users.values(), key=lambda pair: (pair[0].table, str(pair[0].at), str(pair[0].since)))
    ]
    known = {one.table for one in inputs} | staged.keys()
    changes = lake.plain.transactions.get(tx.id).changes
    uuids = _tables(changes)
    for identifier in sorted(_names(changes)):
        if shown(identifier) in known:
            continue
        table = _loaded(tx, identifier)
        if table is not None and table.uuid in uuids:
            inputs.append(Input(table.table, table.uuid, table.snapshot_id, (), version=table.version))
    return tuple(inputs)


def _leaves(frame: DataFrame) -> Iterator[Any]:
    plan: Any = frame._jdf.queryExecution().analyzed()
    subqueries = plan.subqueriesAll()
    for one in (plan, *(subqueries.apply(index) for index in range(subqueries.size()))):
        leaves = one.collectLeaves()
        yield from (leaves.apply(index) for index in range(leaves.size()))


def _table_read(leaf: Any) -> TableRead | None:
    if leaf.getClass().getSimpleName() != _RELATION or not leaf.identifier().isDefined():
        return None
    table = leaf.table()
    if table.getClass().getName() != _ICEBERG:
        return None
    iceberg = table.table()
    if iceberg.getClass().getSuperclass().getSimpleName() == _METADATA_TABLE:
        return None
    identifier, options, catalog = leaf.identifier().get(), leaf.options(), leaf.catalog()
    snapshot_id = options.get("snapshot-id") or options.get("end-snapshot-id") or table.snapshotId()
    since = options.get("start-snapshot-id")
    return TableRead(
        shown((*identifier.namespace(), identifier.name())),
        str(iceberg.uuid().toString()),
        None if snapshot_id is None else int(snapshot_id),
        since=None if since is None else int(since),
        catalog=str(catalog.get().name()) if catalog.isDefined() else None,
        explicit=leaf.timeTravelSpec().isDefined() or any(options.containsKey(one) for one in _VERSION_OPTIONS),
    )


def _one_spelling(location: str) -> str:
    """Spark writes the same local file with one slash or three."""
    return _SCHEME.sub("file:/", location)


def _loaded(tx: SparkTransaction, identifier: Identifier) -> TableRead | None:
    try:
        table = tx.plain.tables.load(identifier)
        return TableRead(shown(identifier), table.uuid, table.snapshot_id)
    except NotFound:
        pass
    try:
        delta = tx.plain.delta.load(identifier, files=False)
        return TableRead(shown(identifier), delta.table_id, None, delta.version)
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
