"""How far the receipts of every table are known to be complete, kept in a few small files of the warehouse.

They save work and nothing else: where one is lost, the tables in it are walked once more. So they are no cells, which
would leave a record for every change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from lakepact.catalog.warehouse import OWN_FOLDER
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.ports import BlobStore

FORMAT: Final = 1
FOLDER: Final = f"{OWN_FOLDER}/reconciled"
MOST_LEFT: Final = 100
_SHARDS: Final = "0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Missing:
    """A receipt that is not there, or not whole, and could not be written."""

    name: str
    """Where it should lie."""

    location: str | None = None
    """The metadata file it tells of; None if it tells of none."""

    committed_ms: int | None = None
    young: bool = False
    """It may be on its way: its commit was a moment ago. Such a one is not kept, but looked at again."""

    def to_json(self) -> JsonObject:
        return {"name": self.name, "location": self.location, "committed-ms": self.committed_ms}


@dataclass(frozen=True, slots=True)
class Done:
    """A cell whose changes up to a revision all have their receipts, but for those that are left."""

    revision: int
    through: str | int | None = None
    """Of a table: the metadata location at that revision; of a Delta table its version."""

    left: tuple[Missing, ...] = ()

    def to_json(self) -> JsonObject:
        found: JsonObject = {"revision": self.revision, "through": self.through}
        return found | ({"left": [one.to_json() for one in self.left[:MOST_LEFT]]} if self.left else {})


class Completed:
    """What is known of the cells of one warehouse. Another process may know better: the last to say so wins."""

    def __init__(
        self, blobs: BlobStore, shards: Mapping[str, tuple[bytes | None, dict[str, Done]]], generation: int
    ) -> None:
        self._blobs = blobs
        self._generation = generation
        self._was = {shard: data for shard, (data, _) in shards.items()}
        self._done = {shard: dict(done) for shard, (_, done) in shards.items()}
        self._seen: set[str] = set()

    @classmethod
    async def load(cls, blobs: BlobStore, generation: int = 0) -> Completed:
        """`generation`: of the store. What was kept for another one counts other revisions, and is ignored."""
        shards: dict[str, tuple[bytes | None, dict[str, Done]]] = {}
        for shard in _SHARDS:
            data = await blobs.get(_name(shard))
            shards[shard] = data, _read(data, generation)
        return cls(blobs, shards, generation)

    def get(self, cell: str) -> Done | None:
        self._seen.add(cell)
        return self._done[_shard(cell)].get(cell)

    def set(self, cell: str, done: Done) -> None:
        self._done[_shard(cell)][cell] = done

    def forget_unseen(self) -> None:
        """Cells that nobody has asked for are not there any more. For whoever has asked for all there are."""
        for done in self._done.values():
            for cell in [cell for cell in done if cell not in self._seen]:
                del done[cell]

    async def flush(self) -> None:
        """Keep what has changed. Where another process was faster, what it has kept is as good."""
        for shard, done in self._done.items():
            was = self._was[shard]
            if not done and was is None:
                continue
            entries = {cell: done[cell].to_json() for cell in sorted(done)}
            data = orjson.dumps({"format": FORMAT, "generation": self._generation, "done": entries})
            if data != was and await self._blobs.replace(_name(shard), data, was):
                self._was[shard] = data


def _name(shard: str) -> str:
    return f"{FOLDER}/{shard}.json"


def _shard(cell: str) -> str:
    return hashlib.sha256(cell.encode()).hexdigest()[0]


def _read(data: bytes | None, generation: int) -> dict[str, Done]:
    """What a file says; nothing if it cannot be read, and then all of it is looked at anew."""
    try:
        document: Any = orjson.loads(data or b"{}")
        known = document.get("format", FORMAT) == FORMAT and document.get("generation", 0) == generation
        done: Mapping[str, Any] = document.get("done", {}) if known else {}
        return {cell: Done(one["revision"], one["through"], _left(one.get("left", ()))) for cell, one in done.items()}
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return {}


def _left(left: Sequence[Mapping[str, Any]]) -> tuple[Missing, ...]:
    return tuple(Missing(one["name"], one["location"], one["committed-ms"]) for one in left)
