"""What a staged pointer remembers beside what it points to: what it was based on, and how to do it again.

These fields live only inside an open transaction. Publishing takes them off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from lakepact.catalog.pointers import Pointer
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.intent import is_metadata_only
from lakepact.iceberg.parse import Requirement, Update
from lakepact.iceberg.requests import Commit
from lakepact.kernel.model import Cell, Value

STAGED: Final = "staged"

_MOST_BYTES: Final = 32_768
"""Of commits that are kept to be done again. A cell is a small document; more than this is not rebased."""


@dataclass(frozen=True, slots=True)
class StagedNote:
    base_location: str | None
    """The metadata the table had outside when the transaction first changed it; None if it was not there.

    If the transaction has registered the table, it is what was registered: that file is part of its history.
    """

    commits: tuple[Commit, ...] | None
    """All that was asked of it, if it can be done again on a newer version: metadata only, and not too much."""

    steps: int
    """How many times it was staged."""

    @classmethod
    def of(cls, cell: Cell, own_id: str) -> Self:
        """What is known of this cell before the next step."""
        if cell.writer == own_id and cell.value is not None and STAGED in cell.value:
            return cls.from_json(cell.value[STAGED])
        pointer = Pointer.of(cell)
        return cls(pointer.metadata_location if pointer is not None else None, (), 0)

    def registered(self, location: str) -> StagedNote:
        """After the table was registered, whatever was there before."""
        return StagedNote(location, None, self.steps + 1)

    def next(self, commits: Sequence[Commit] | None) -> StagedNote:
        """After one more step; None if the step was something else than commits."""
        kept: tuple[Commit, ...] | None = None
        if commits is not None and self.commits is not None and self.base_location is not None:
            kept = (*self.commits, *commits)
            if not all(is_metadata_only(commit.updates) for commit in commits) or _size(kept) > _MOST_BYTES:
                kept = None
        return StagedNote(self.base_location, kept, self.steps + 1)

    @classmethod
    def from_json(cls, value: JsonObject) -> Self:
        commits = value["commits"]
        return cls(
            value["base"],
            None if commits is None else tuple(_commit_from(commit) for commit in commits),
            value["steps"],
        )

    def to_json(self) -> JsonObject:
        commits = None if self.commits is None else [_commit_to(commit) for commit in self.commits]
        return {"base": self.base_location, "commits": commits, "steps": self.steps}


def with_note(value: Value, note: StagedNote) -> Value:
    return {**value, STAGED: note.to_json()}


def without_note(value: Value) -> Value:
    return {name: field for name, field in value.items() if name != STAGED}


def _commit_to(commit: Commit) -> JsonObject:
    return {
        "requirements": [{"type": one.type, "body": one.body} for one in commit.requirements],
        "updates": [{"action": one.action, "body": one.body} for one in commit.updates],
    }


def _commit_from(value: dict[str, Any]) -> Commit:
    return Commit(
        identifier=None,
        requirements=tuple(Requirement(one["type"], one["body"]) for one in value["requirements"]),
        updates=tuple(Update(one["action"], one["body"]) for one in value["updates"]),
    )


def _size(commits: Sequence[Commit]) -> int:
    return len(orjson.dumps([_commit_to(commit) for commit in commits]))
