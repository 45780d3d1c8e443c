"""What a process writes down before and after it acts. The journal outlives the process that writes it.

One JSON document a line, each appended by a single write. That survives SIGKILL, which is all the demo inflicts; it
is not synced, so it would not survive a power cut, and it need not. A kill can cut the last line short; such a line
is left out. That is safe: half an intention means that nothing was sent yet, half an outcome that a doubt remains.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from lakepact.demo.bank import Transfer


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def note(self, event: str, **content: Any) -> None:
        os.write(self._file, orjson.dumps({"event": event, **content}) + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Follower:
    """Reads a journal as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_entries(self) -> Iterator[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                content = file.read()
        except FileNotFoundError:
            return
        # A last line without its end is still being written.
        complete = content[: content.rfind(b"\n") + 1]
        self._position += len(complete)
        for line in complete.splitlines():
            with suppress(orjson.JSONDecodeError):
                yield orjson.loads(line)


def in_doubt(path: Path) -> list[Transfer]:
    """The transfers that were begun and whose end was never written down."""
    open_transfers: dict[str, Transfer] = {}
    for entry in Follower(path).new_entries():
        if entry["event"] == "intent":
            transfer = Transfer.from_json(entry["transfer"])
            open_transfers[transfer.id] = transfer
        elif entry["event"] in ("outcome", "settled"):
            open_transfers.pop(entry["id"], None)
    return list(open_transfers.values())
