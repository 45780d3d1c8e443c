"""Where the streams of a project have come to: committed with its tables, or not at all.

    <storage>/_checkpoints                       as Spark has it, and where a first run begins
    <storage>/_lakepact/<transaction>/_checkpoints   a generation: what one run has made of it
    checkpoints/<pipeline>                       {"format": 1, "generation": <transaction>, "previous": …}

Spark writes a checkpoint while a stream runs, and a transaction may be aborted afterwards: then the rows would be gone,
and the checkpoint would say that they are in. So a run works on a copy. Which copy counts is a document, compared and
written in the same transaction as the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakepact.pipelines.errors import RunFailed

FORMAT: Final = 1
CHECKPOINTS: Final = "_checkpoints"
_FOLDER: Final = "_lakepact"


def checkpoints_document(pipeline: str) -> str:
    return f"checkpoints/{pipeline}"


@dataclass(frozen=True, slots=True)
class Generations:
    """The document. None: no stream of this project has been committed here."""

    current: str | None = None
    previous: str | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any] | None) -> Generations:
        if document is None:
            return cls()
        if document.get("format") != FORMAT:
            raise RunFailed(
                f"the document of the project's checkpoints has format {document.get('format')!r}, and this release "
                f"knows {FORMAT}: run it with the release that wrote it, or a newer one"
            )
        return cls(document["generation"], document.get("previous"))

    def after(self, transaction_id: str) -> dict[str, Any]:
        """The document once this transaction is committed. The one before is kept until the next run has begun."""
        return {"format": FORMAT, "generation": transaction_id, "previous": self.current}

    def begins_at(self, storage: str) -> str:
        return storage.rstrip("/") if self.current is None else generation(storage, self.current)


def generation(storage: str, transaction_id: str) -> str:
    return f"{storage.rstrip('/')}/{_FOLDER}/{transaction_id}"
