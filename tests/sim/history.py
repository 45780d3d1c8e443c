"""Strict serializability of a whole run.

The order of the versions of every cell is known from the revisions, so there is nothing to search: the history is
strictly serializable exactly if the graph of "must come before" has no cycle. Its edges:

    writer of a version -> writer of the next one           (ww)
    writer of a version -> whoever read it                  (wr)
    reader of a version -> writer of the next one           (rw)
    whatever had ended  -> whatever began after that        (real time)

Real time would need an edge for every pair. A chain of barriers, one for each ending, says the same with a few edges
for each operation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from tests.sim.broken import PromiseBroken


@dataclass(frozen=True, slots=True)
class Operation:
    """A committed transaction, or a cut that somebody read."""

    name: str
    start: int
    """The step at which it was first asked for."""

    end: int | None
    """The step at which somebody was told of it; None if nobody ever was."""

    reads: Mapping[str, int]
    """The revision of each cell it depends on having seen."""

    writes: Mapping[str, int]
    """The revision of each cell it replaced, by the next one."""


Node = str | int
"""An operation by its name, or a barrier by its number."""


def check_strictly_serializable(operations: Sequence[Operation]) -> None:
    """Raise `PromiseBroken` with the cycle if there is one."""
    try:
        tuple(TopologicalSorter(_graph(operations)).static_order())
    except CycleError as error:
        nodes: Sequence[Node] = error.args[1]
        by_name = {operation.name: operation for operation in operations}
        cycle = [_told(by_name[node]) for node in nodes if isinstance(node, str)]
        raise PromiseBroken("P4", "no serial order has this history:\n    " + "\n    ".join(cycle)) from None


def _told(operation: Operation) -> str:
    end = operation.end if operation.end is not None else "?"
    return f"{operation.name} [{operation.start}, {end}] read {dict(operation.reads)} replaced {dict(operation.writes)}"


def _graph(operations: Sequence[Operation]) -> dict[Node, set[Node]]:
    """For each node the nodes that must come before it."""
    before: dict[Node, set[Node]] = {operation.name: set() for operation in operations}
    writer = {(key, revision + 1): op.name for op in operations for key, revision in op.writes.items()}
    for operation in operations:
        for key, revision in (*operation.reads.items(), *operation.writes.items()):
            made_by = writer.get((key, revision))
            if made_by is not None and made_by != operation.name:
                before[operation.name].add(made_by)
            replaced_by = writer.get((key, revision + 1))
            if replaced_by is not None and replaced_by != operation.name:
                before[replaced_by].add(operation.name)
    _add_real_time(before, operations)
    return before


def _add_real_time(before: dict[Node, set[Node]], operations: Sequence[Operation]) -> None:
    ended = sorted((operation.end, operation.name) for operation in operations if operation.end is not None)
    ends = [end for end, _ in ended]
    for barrier, (_, name) in enumerate(ended):
        before[barrier] = {name, barrier - 1} if barrier else {name}
    for operation in operations:
        earlier = bisect_left(ends, operation.start)
        if earlier:
            before[operation.name].add(earlier - 1)
