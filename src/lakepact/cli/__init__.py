"""The `lakepact` command. Every command is described in `docs/cli.md`; a test holds the two together.

app.py           the tree of commands, `--version`, and what happens to errors
options.py       options that several commands share
output.py        text for people, `--json` for programs, and the exit codes
configuration.py config show
demo.py          demo
graph.py         graph
history.py       history
namespaces.py    namespaces list, create, drop
run.py           run
serve.py         serve
store.py         store probe
tables.py        tables list, show, drop, rename, register
transactions.py  transactions list, transactions show: the records of a store
tx.py            tx begin, show, list, commit, abort: transactions of a server
upkeep.py        recover, collect
"""

from __future__ import annotations

from lakepact.cli.app import app, main

__all__ = ["app", "main"]
