"""How far a pipeline has come: one small document, compared and written in the same transaction as its outputs.

    runs/<pipeline>     {"format": 1, "runs": [[run id, transaction id], …], "positions": {stage: {table: {…}}}}
    streams/<name>      {"format": 1, "query-id": …, "batch-id": …}

Either the outputs and the document are committed or neither is. So a run that is repeated finds its own id in it, and a
stage that reads only what is new begins where the last committed run has stopped, however much later that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lakepact.pipelines.errors import PositionLost, RunFailed

FORMAT: Final = 1
MOST_RUNS: Final = 500
"""Ids that are remembered. A run that is repeated after so many others of the same pipeline would run again."""

_APPENDS: Final = "append"
_HARMLESS: Final = ("append", "replace")
"""Operations that change no row: compaction replaces files by others with the same rows."""


def runs_document(pipeline: str) -> str:
    return f"runs/{pipeline}"


def stream_document(name: str) -> str:
    return f"streams/{name}"


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where a stage has read a table."""

    uuid: str
    snapshot_id: int | None
    """None: it had no data yet."""

    def to_json(self) -> dict[str, Any]:
        # Ids of snapshots have 64 bits, which not every reader of JSON has.
        return {"table-uuid": self.uuid, "snapshot-id": None if self.snapshot_id is None else str(self.snapshot_id)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Position:
        snapshot_id = document["snapshot-id"]
        return cls(document["table-uuid"], None if snapshot_id is None else int(snapshot_id))


@dataclass(frozen=True, slots=True)
class Progress:
    """The document of a pipeline."""

    runs: tuple[tuple[str, str], ...] = ()
    """Run and transaction, the latest last."""

    positions: Mapping[str, Mapping[str, Position]] = field(default_factory=dict)
    """By stage and table."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | None) -> Progress:
        if document is None:
            return cls()
        if document.get("format") != FORMAT:
            raise RunFailed(
                f"the pipeline's document has format {document.get('format')!r}, and this release knows {FORMAT}: run "
                f"it with the release that wrote it, or a newer one"
            )
        return cls(
            tuple((run, transaction) for run, transaction in document["runs"]),
            {
                stage: {table: Position.from_json(one) for table, one in tables.items()}
                for stage, tables in document["positions"].items()
            },
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "runs": [list(one) for one in self.runs],
            "positions": {
                stage: {table: one.to_json() for table, one in tables.items()}
                for stage, tables in self.positions.items()
            },
        }

    def transaction_of(self, run_id: str) -> str | None:
        """The transaction that has committed this run, if one has."""
        return dict(self.runs).get(run_id)

    def after(self, run_id: str, transaction_id: str, read: Mapping[tuple[str, str], Position]) -> Progress:
        """The document once this run is committed."""
        positions = {stage: dict(tables) for stage, tables in self.positions.items()}
        for (stage, table), position in read.items():
            positions.setdefault(stage, {})[table] = position
        return Progress((*self.runs, (run_id, transaction_id))[-MOST_RUNS:], positions)

    def without(self, stages: Iterable[str]) -> Progress:
        """As if these stages had never read anything."""
        forgotten = set(stages)
        kept = {stage: tables for stage, tables in self.positions.items() if stage not in forgotten}
        return replace(self, positions=kept)


@dataclass(frozen=True, slots=True)
class Range:
    """What of a table is new: everything up to a snapshot, or what lies between two."""

    position: Position
    """Where the stage will have stopped."""

    since: int | None = None
    """None: all of it."""

    is_empty: bool = False


def range_of(name: str, metadata: Mapping[str, Any], last: Position | None, *, skip_changes: bool) -> Range:
    """What was added to a table since the last position, by the table's metadata.

    Raises `PositionLost` if that can no longer be told, and if rows were changed or deleted, which an addition of rows
    cannot express.
    """
    uuid, current = str(metadata["table-uuid"]), _current(metadata)
    position = Position(uuid, current)
    if last is not None and last.uuid != uuid:
        raise PositionLost(
            f"{name} is not the table that the last run has read: it was dropped and created again. Run once with "
            f"--from-scratch for the stages that read it, after clearing what they have made of the old one"
        )
    since = None if last is None else last.snapshot_id
    if current is None or current == since:
        return Range(position, since, is_empty=True)
    between = _between(name, metadata, current, since)
    changed = [one for one in between if _operation(one) not in _HARMLESS]
    if changed and since is not None and not skip_changes:
        raise PositionLost(
            f"{name} was changed since the last run, not only added to: snapshot {changed[-1]['snapshot-id']} is of "
            f"operation {_operation(changed[-1])}. Read all of it (dp.read), or say that changes do not matter: "
            f"dp.read_new({name!r}, skip_changes=True)"
        )
    nothing = since is not None and not any(_operation(one) == _APPENDS for one in between)
    return Range(position, since, is_empty=nothing)


def _between(name: str, metadata: Mapping[str, Any], current: int, since: int | None) -> list[Mapping[str, Any]]:
    """The snapshots from the current one back to the last position, which is not among them."""
    by_id = {one["snapshot-id"]: one for one in metadata.get("snapshots") or ()}
    found: list[Mapping[str, Any]] = []
    at: int | None = current
    while at is not None and at != since:
        snapshot = by_id.get(at)
        if snapshot is None:
            break
        found.append(snapshot)
        at = snapshot.get("parent-snapshot-id")
    if since is not None and at != since:
        raise PositionLost(
            f"{name} no longer leads back to snapshot {since}, where the last run has stopped: it has expired, or the "
            f"table was rolled back. Keep snapshots for longer than runs lie apart; to begin anew run once with "
            f"--from-scratch"
        )
    return found


def _current(metadata: Mapping[str, Any]) -> int | None:
    current = metadata.get("current-snapshot-id")
    return None if current is None or current == -1 else int(current)


def _operation(snapshot: Mapping[str, Any]) -> str:
    return str((snapshot.get("summary") or {}).get("operation", "unknown"))
