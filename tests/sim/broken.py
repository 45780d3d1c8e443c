"""The one way in which a simulation fails."""

from __future__ import annotations


class PromiseBroken(Exception):
    """One of the ten promises of `docs/protocol.md` was seen broken."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise
        self.detail = detail

    def __reduce__(self) -> tuple[type[PromiseBroken], tuple[str, str]]:
        # Failures travel from worker processes to the one that reports them.
        return PromiseBroken, (self.promise, self.detail)
