from __future__ import annotations

import typer

from lakepact import __version__


def serve() -> None:
    """Run the catalog server. Not part of this release yet."""
    typer.echo(
        f"error: lakepact {__version__} has no server yet: this release is the transaction kernel and its stores. "
        f"See the status table in README.md, or watch the kernel work with `lakepact demo`.",
        err=True,
    )
    raise typer.Exit(2)
