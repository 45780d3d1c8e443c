"""What a change does to the rows of Delta tables: written before the commit, made visible by it.

The cells say which version a table has; the rows say what is in it. A step is the rows of one table's next version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lakepact.catalog.errors import Unsupported
from lakepact.catalog.keys import family_of
from lakepact.catalog.pointers import Change, Pointer
from lakepact.catalog.staged import STAGED
from lakepact.delta.actions import Action, Add, FileKey, Remove
from lakepact.delta.beside import DeltaChanges, NewTable, NewVersion, Renamed
from lakepact.delta.codec import action_line, parse_actions
from lakepact.delta.ports import DeltaRows, TableChange
from lakepact.delta.state import fold
from lakepact.errors import RowsGone
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, Value, Write

DELTA_CELLS: Final = "delta"
"""The family of cells that are pointers to Delta tables."""


_PREPARED: Final = "prepared"
"""Under which all statements of a prepared transaction are kept together, as one."""


@dataclass(frozen=True, slots=True)
class DeltaStep:
    """What happens to one Delta table, and how it is called in its history."""

    actions: tuple[Action, ...]
    operation: str
    parameters: JsonObject
    engines: tuple[str, ...] | None = None
    """Mirrors of a table that is created."""

    blind: bool = False
    """Whether it only adds, whatever the table holds: then it may go on past others who do not contradict it."""


def needed(rows: DeltaRows | None) -> DeltaRows:
    if rows is None:
        raise Unsupported(
            "Delta tables keep their metadata in SQL, and this warehouse is on a store of documents. Run the server on "
            "SQLite (--store sqlite:…) or PostgreSQL (--store postgresql:…)"
        )
    return rows


# --- on main: rows first, then the commit that shows them ---


def changes_of_rows(writes: Iterable[Write], steps: Mapping[str, DeltaStep]) -> list[TableChange]:
    """The rows to write before the commit of these cells."""
    pointers = {one.id: one for one in _pointers(writes)}
    return [TableChange(table_id, version_of(pointers[table_id]), step.actions) for table_id, step in steps.items()]


def beside_of(
    warehouse: str, transaction_id: TransactionId, writes: Iterable[Write], steps: Mapping[str, DeltaStep]
) -> Value | None:
    """What the store does in the same step as these cells; None if no Delta table is among them.

    Raises `RowsGone` for a table that would get a version without rows: its statements are not at hand.
    """
    of_delta = [write for write in writes if family_of(write.key) == DELTA_CELLS]
    if not of_delta:
        return None
    create, rename, drop, versions = list[NewTable](), list[Renamed](), list[str](), list[NewVersion]()
    undrop = list[Renamed]()
    mirrors: dict[str, tuple[str, ...]] = {}
    for write in of_delta:
        table_id = segments_of(write.key)[-1]
        if write.value is None:
            drop.append(table_id)
            continue
        pointer = Pointer.from_json(write.value)
        namespace, step = ".".join(pointer.identifier.namespace), steps.get(table_id)
        if step is None and pointer.change not in (Change.RENAME, Change.UNDROP):
            raise RowsGone(f"transaction {transaction_id}: the statements for Delta table {table_id} are not at hand")
        if write.revision == 0:
            base_version = version_of(pointer) - (1 if step is not None else 0)
            create.append(NewTable(table_id, namespace, pointer.identifier.name, pointer.location, base_version))
            if step is not None and step.engines is not None:
                mirrors[table_id] = step.engines
        elif pointer.change is Change.UNDROP:
            undrop.append(Renamed(table_id, namespace, pointer.identifier.name))
        else:
            # Most often it has not changed its name; saying it again costs less than finding out.
            rename.append(Renamed(table_id, namespace, pointer.identifier.name))
        if step is not None:
            versions.append(_version(pointer, step, transaction_id))
    return DeltaChanges(
        warehouse, tuple(create), tuple(rename), tuple(drop), tuple(undrop), tuple(versions), mirrors
    ).document()


def _version(pointer: Pointer, step: DeltaStep, transaction_id: TransactionId) -> NewVersion:
    return NewVersion(
        pointer.id,
        version_of(pointer),
        pointer.summary["ict-ms"],
        step.operation,
        adds=sum(isinstance(action, Add) for action in step.actions),
        removes=sum(isinstance(action, Remove) for action in step.actions),
        operation_params=step.parameters,
        commit_info={"engineInfo": "Lakepact", "txnId": transaction_id},
    )


def version_of(pointer: Pointer) -> int:
    version: int = pointer.summary["version"]
    return version


def _pointers(writes: Iterable[Write]) -> Iterable[Pointer]:
    return (
        Pointer.from_json(write.value)
        for write in writes
        if write.value is not None and family_of(write.key) == DELTA_CELLS
    )


# --- inside an open transaction: statements are kept, and become one version at the end ---


@dataclass(frozen=True, slots=True)
class StagedDelta:
    """What a staged pointer of a Delta table remembers."""

    base_version: int
    base_ict_ms: int
    statements: tuple[str, ...]
    """In their order: the ids under which their actions are kept."""

    blind: bool
    """Whether all of them only add to a table that was there, and nothing else has happened to it here."""

    @classmethod
    def of(cls, cell: Cell, own_id: str) -> StagedDelta:
        """What is known of this cell before the next statement."""
        if cell.writer == own_id and cell.value is not None and STAGED in cell.value:
            return cls.from_json(cell.value[STAGED])
        pointer = Pointer.of(cell)
        if pointer is None:
            return cls(-1, 0, (), blind=False)
        return cls(version_of(pointer), pointer.summary["ict-ms"], (), blind=True)

    def next(self, statement: str | None, *, blind: bool = False) -> StagedDelta:
        """After one more step; None if it was no statement, but another name for the table."""
        return StagedDelta(
            self.base_version,
            self.base_ict_ms,
            (*self.statements, statement) if statement is not None else self.statements,
            self.blind and blind,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StagedDelta:
        return cls(value["base-version"], value["base-ict-ms"], tuple(value["statements"]), value.get("blind", False))

    def to_json(self) -> JsonObject:
        return {
            "base-version": self.base_version,
            "base-ict-ms": self.base_ict_ms,
            "statements": list(self.statements),
            "blind": self.blind,
        }


def kept(step: DeltaStep) -> str:
    """One statement, as it is kept until the transaction ends."""
    head = orjson.dumps(
        {"operation": step.operation, "parameters": step.parameters, "engines": step.engines}, default=list
    )
    return b"\n".join([head, *(action_line(action) for action in step.actions)]).decode()


def kept_actions(text: str) -> tuple[Action, ...]:
    """What a statement that is kept will do."""
    return _of_kept(text).actions


def _of_kept(text: str) -> DeltaStep:
    # Not `splitlines`: strings may hold other characters that end lines.
    head, *lines = text.split("\n")
    about = orjson.loads(head)
    engines = about["engines"]
    return DeltaStep(
        parse_actions([orjson.loads(line) for line in lines]),
        about["operation"],
        about["parameters"],
        None if engines is None else tuple(engines),
    )


async def staged_steps(
    rows: DeltaRows, transaction_id: TransactionId, notes: Mapping[str, StagedDelta]
) -> dict[str, DeltaStep]:
    """Of each table (by its id) all statements so far, as one step. Tables without any are left out."""
    if not any(note.statements for note in notes.values()):
        return {}
    staged = await rows.staged(transaction_id)
    found: dict[str, DeltaStep] = {}
    for table_id, note in notes.items():
        kept_here = staged.get(table_id, {})
        if any(statement not in kept_here for statement in note.statements):
            raise RowsGone(f"the statements of transaction {transaction_id} are not there any more: it has ended")
        steps = [_of_kept(kept_here[statement]) for statement in note.statements]
        if steps:
            found[table_id] = _together(steps, await _there_before(rows, table_id, note, steps))
    return found


async def _there_before(
    rows: DeltaRows, table_id: str, note: StagedDelta, steps: Sequence[DeltaStep]
) -> frozenset[FileKey]:
    """Files that the statements both add and remove, and that the table had before all of them."""
    actions = [action for step in steps for action in step.actions]
    added = {action.key for action in actions if isinstance(action, Add)}
    both = {action.key for action in actions if isinstance(action, Remove) and action.key in added}
    if not both or note.base_version < 0:
        return frozenset()
    return frozenset(one.key for one in await rows.files(table_id, note.base_version) if one.key in both)


async def keep_steps(rows: DeltaRows, transaction_id: TransactionId, steps: Mapping[str, DeltaStep]) -> None:
    """Remember what a prepared transaction will do. It takes no more statements, so this is said once."""
    for table_id, step in steps.items():
        await rows.stage(transaction_id, table_id, _PREPARED, kept(step))


async def kept_steps(rows: DeltaRows, transaction_id: TransactionId) -> dict[str, DeltaStep]:
    staged = await rows.staged(transaction_id)
    return {table_id: _of_kept(texts[_PREPARED]) for table_id, texts in staged.items() if _PREPARED in texts}


def _together(steps: Sequence[DeltaStep], live: frozenset[FileKey]) -> DeltaStep:
    """Several statements as the one version that they become."""
    first = steps[0]
    if len(steps) == 1:
        return first
    operations = list(dict.fromkeys(step.operation for step in steps))
    parameters = first.parameters if len(operations) == 1 else {"statements": operations}
    operation = operations[0] if len(operations) == 1 else "TRANSACTION"
    return DeltaStep(tuple(fold([step.actions for step in steps], live)), operation, parameters, first.engines)


def noted(writes: Iterable[Write]) -> dict[Key, StagedDelta]:
    """What the staged pointers among these writes remember, by key."""
    return {
        write.key: StagedDelta.from_json(write.value[STAGED])
        for write in writes
        if write.value is not None and family_of(write.key) == DELTA_CELLS and STAGED in write.value
    }
