"""What happens inside a catalog, for metrics and receipts to see. Nothing depends on anybody looking."""

from __future__ import annotations

from lakepact.kernel.model import Transaction


class Watch:
    """This one looks away."""

    def cache(self, hit: bool) -> None:
        """A metadata file was asked for."""

    def retried(self) -> None:
        """A plan was out of date, and is made again."""

    def applied(self, changes: int) -> None:
        """A change has been committed, of so many tables, views or namespaces."""

    def refused(self) -> None:
        """A change was refused: nothing happened."""

    def unknown(self) -> None:
        """Whether a change happened is not known."""

    async def committed(self, transaction: Transaction) -> None:
        """A change has been committed and answered. Called in the background."""
