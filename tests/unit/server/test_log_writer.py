"""The thread that writes log lines: order, bounds, failures."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from lakepact.server.log_writer import LogWriter
from lakepact.server.logs import _as_line

WITHIN_S = 60.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for descriptor in (reader, writer):
        with suppress(OSError):
            os.close(descriptor)


def read_until(reader: int, end: bytes) -> bytes:
    data = b""
    while not data.endswith(end):
        data += os.read(reader, 65_536)
    return data


def test_lines_are_written_in_the_order_in_which_they_were_queued(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1])
    for number in range(1_000):
        writer.write(b"%d\n" % number)
    assert writer.flush(WITHIN_S)
    assert read_until(pipe[0], b"999\n").split() == [b"%d" % number for number in range(1_000)]
    assert writer.dropped == 0


def test_a_reader_that_stalls_blocks_no_caller_and_the_lost_lines_are_counted(pipe: tuple[int, int]) -> None:
    counted: list[int] = []
    writer = LogWriter(pipe[1], max_lines=100)
    writer.on_dropped(counted.append)
    line = b"x" * 1_023 + b"\n"
    for _ in range(1_000):
        writer.write(line)
    # The pipe holds 64 KiB and the queue 100 lines; the thread has at most a batch in its hands.
    assert writer.dropped >= 1_000 - 64 - 100 - 8
    assert not writer.flush(0.01)
    assert sum(counted) == writer.dropped
    written = 1_000 - writer.dropped
    data = b""
    while data.count(line) < written:
        data += os.read(pipe[0], 65_536)
    assert writer.flush(WITHIN_S)
    writer.write(b'{"event": "later"}\n')
    data += read_until(pipe[0], b'"later"}\n')
    reports = [json.loads(one) for one in data.splitlines() if one.startswith(b"{")]
    assert sum(one.get("lines", 0) for one in reports) == writer.dropped
    assert reports[-1] == {"event": "later"}


def test_a_device_that_is_full_drops_lines_and_raises_nothing() -> None:
    with open("/dev/full", "wb") as full:
        writer = LogWriter(full.fileno())
        for _ in range(50):
            writer.write(b"line\n")
        assert writer.flush(WITHIN_S)
        assert writer.dropped == 50


def test_a_reader_that_is_gone_drops_lines_and_raises_nothing(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    writer = LogWriter(pipe[1])
    writer.write(b"line\n")
    assert writer.flush(WITHIN_S)
    assert writer.dropped == 1


def test_a_queue_is_bounded_by_bytes_too(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1], max_bytes=1_000)
    writer.write(b"x" * 1_001)
    assert writer.dropped == 1


def test_lines_of_several_threads_are_never_mixed(pipe: tuple[int, int]) -> None:
    writer = LogWriter(pipe[1])

    def log(name: bytes) -> None:
        for _ in range(500):
            writer.write(name * 20 + b"\n")

    threads = [threading.Thread(target=log, args=(name,)) for name in (b"a", b"b", b"c")]
    data = b""
    for thread in threads:
        thread.start()
    while data.count(b"\n") < 1_500:
        data += os.read(pipe[0], 65_536)
    assert set(data.splitlines()) == {b"a" * 20, b"b" * 20, b"c" * 20}


@pytest.mark.parametrize("value", ["\ud800", 2**70, {1: "x"}, object(), b"\xff", float("nan")])
def test_no_value_makes_a_log_line_fail(value: Any) -> None:
    assert json.loads(_as_line({"event": "x", "value": value}))["event"] == "x"
