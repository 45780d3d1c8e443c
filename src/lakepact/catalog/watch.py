"""What happens inside a catalog, for metrics and receipts to see. Nothing depends on anybody looking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakepact.kernel.model import Transaction


@dataclass(frozen=True, slots=True)
class Mirrored:
    """A table as somebody's copy shows it, which may be behind."""

    location: str
    metadata_location: str
    delta: bool


class Watch:
    """This one looks away."""

    def cache(self, hit: bool) -> None:
        """A metadata file was asked for."""

    def retried(self, operation: str = "", transaction_id: str = "") -> None:
        """A plan was out of date, and is made again. Whose it was, where that is at hand."""

    def applied(self, changes: int) -> None:
        """A change has been committed, of so many tables, views or namespaces."""

    def refused(self) -> None:
        """A change was refused: nothing happened."""

    def unknown(self) -> None:
        """Whether a change happened is not known."""

    def together(self, tables: int, milliseconds: float) -> None:
        """A commit of several tables has been made, and how long it took from its beginning."""

    def conflicted(self, reason: str = "") -> None:
        """A commit was refused because something had moved: what it was told."""

    async def committed(self, transaction: Transaction) -> None:
        """A change has been committed and answered. Called in the background."""

    async def mirrored(self, warehouse: str) -> Sequence[Mirrored]:
        """The tables that copies show by their files: these are not taken while a copy leads to them."""
        return ()
