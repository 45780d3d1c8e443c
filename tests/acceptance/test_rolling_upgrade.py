"""Replicas of two releases side by side over one object store: the next one may write the next format already."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import lakepact
from lakepact.client import TableChange
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
COMMITS = 15


def _replica(folder: Path, name: str, write_format: int) -> Callable[[ExitStack], Server]:
    options = ["--store", f"file://{folder / 'cells'}", "--warehouse", f"file://{folder / 'warehouse'}"]
    env = {"LAKEPACT_WRITE_FORMAT": str(write_format)}
    return lambda stack: stack.enter_context(running_server(folder / name, *options, env=env))


def _move_together(url: str, who: str) -> None:
    """Count up in two tables with one commit each time."""
    lake = lakepact.connect(url)
    for number in range(COMMITS):
        update = {"action": "set-properties", "updates": {f"{who}.count": str(number + 1)}}
        lake.commit([TableChange(f"db.{name}", [], [update]) for name in ("a", "b")])


def test_replicas_of_two_formats_commit_to_the_same_tables_while_they_are_replaced(tmp_path: Path) -> None:
    old, new = (_replica(tmp_path, name, number) for name, number in (("old", 1), ("new", 2)))
    with ExitStack() as stack:
        first = old(stack)
        lake = lakepact.connect(first.url)
        lake.namespaces.create("db")
        for name in ("a", "b"):
            lake.tables.create(f"db.{name}", SCHEMA)
        second = new(stack)
        workers = [
            threading.Thread(target=_move_together, args=(server.url, who))
            for server, who in ((first, "old"), (second, "new"))
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        documents = [path for path in (tmp_path / "cells").rglob("*.json") if path.name != "watermark.json"]
        formats: set[int] = set()
        for path in documents:
            # The servers run, and may have removed one that was listed.
            with suppress(FileNotFoundError):
                formats.add(json.loads(path.read_bytes())["format"])
        assert formats == {1, 2}, "documents of both formats lie side by side"
        # The last one of the old release is replaced; nothing has to be converted.
        first.process.terminate()
        assert first.process.wait(PATIENCE_S) == 0
        third = new(stack)
        for url in (second.url, third.url):
            cut = lakepact.connect(url).read_at(["db.a", "db.b"])
            for identifier in cut:
                properties = cut[identifier].metadata["properties"]
                assert (properties["old.count"], properties["new.count"]) == (str(COMMITS), str(COMMITS))
