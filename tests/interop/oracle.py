"""Iceberg's Java library as an oracle: one process that is asked about metadata and updates, a line at a time."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import orjson

from lakepact.iceberg.fields import JsonObject
from tests.support import jars
from tests.support.waiting import PATIENCE_S

_SOURCE: Final = Path(__file__).parent / "java" / "Oracle.java"


@dataclass(frozen=True, slots=True)
class Answer:
    """What was made of a request, by Java or by us."""

    result: JsonObject | None = None
    changed: bool = False
    error: str = ""
    """Why it was refused; empty if it was not."""
    stale: bool = False
    """Refused because it was computed on an older table."""


class Oracle:
    def __init__(self, process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
        self._process = process
        self._log = log

    def ask(self, kind: str, **question: object) -> Answer:
        """Kinds: `create` with a request; `table` with base, previous and updates; `view` with base and updates."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(orjson.dumps({"kind": kind, **question}) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"the oracle ended: {self._log.read().decode(errors='replace')[-4000:]}")
        told = orjson.loads(line)
        assert "unreadable" not in told, f"Java cannot read what we wrote: {told['unreadable']}"
        error = told.get("error", "")
        return Answer(told.get("result"), told.get("changed", False), error, error.startswith("RetryableValidation"))


@contextmanager
def running_oracle() -> Iterator[Oracle]:
    # Short-lived and small: the cheap compiler and collector start fastest.
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"]
    path = jars.classpath(jars.resolve(jars.ICEBERG_CORE))
    with tempfile.TemporaryFile() as log:
        classes = jars.compile_java(_SOURCE, path)
        command = [
            jars.java(),
            *options,
            "-cp",
            jars.classpath([classes, *jars.resolve(jars.ICEBERG_CORE)]),
            _SOURCE.stem,
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        try:
            yield Oracle(process, log)
        finally:
            # It ends with its input, so it cannot outlive the tests even if they are killed.
            process.communicate(timeout=PATIENCE_S)
