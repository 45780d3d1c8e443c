"""`python -m lakepact` is the `lakepact` command."""

from __future__ import annotations

from lakepact.cli import main

main()
