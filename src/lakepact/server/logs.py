"""Format log lines: one JSON object a line, or text with colours on a terminal. Always to standard error.

Lines of a server go through `log_writer.py`, so that no log call blocks or raises. Libraries that use Python's own
logging (uvicorn, asyncio, grpc), warnings, and exceptions that Python itself would print end up in the same lines.
The line of a request is formatted by hand: structlog costs several times as much, and reads are fast.

What is logged can be changed while the process runs: `set_level`. It is one number for the whole process, looked at for
every line, since loggers that were used once keep the way they were made.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final, TextIO

import orjson
import structlog

from lakepact.server.log_writer import LogWriter, timestamp

FLUSH_WITHIN_S: Final = 2.0
"""How long an ending process waits for its log to be written."""

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_level: int | None = None
"""What is logged now. None: nobody has said so yet, as where a server is built without being run."""


_writer: LogWriter | None = None
"""None in a process that is not a server, and where a server is built without being run."""


def configure(level: str) -> None:
    """Log as a server does, to standard error, from this level on."""
    global _writer
    interactive = sys.stderr.isatty()
    if _writer is None:
        _writer = LogWriter(sys.stderr.fileno())
        sys.stderr = _QueuedStream(sys.stderr, _writer)
    renderers: list[Any] = (
        [for_people(), _with_newline]
        if interactive
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_as_line)]
    )
    structlog.configure(
        processors=[
            _drop_unwanted,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS["debug"]),
        logger_factory=_QueuedLogger,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Forward()], force=True)
    logging.captureWarnings(True)
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_exception
    set_level(level)


def flush(within_s: float = FLUSH_WITHIN_S) -> None:
    """Wait until the lines logged so far are written, at most this long. Call it before the process ends."""
    if _writer is not None:
        _writer.flush(within_s)


def write_unqueued(event: str, level: str, fields: Mapping[str, object]) -> None:
    """Write a line to standard error without the queue, for a process whose queue may be locked. May block."""
    line = {**fields, "event": event, "level": level, "timestamp": timestamp(time.time())}
    os.write(sys.stderr.fileno(), orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))


def count_dropped(count: Callable[[int], None]) -> None:
    """Have `count` called with the number of lines whenever lines are dropped."""
    if _writer is not None:
        _writer.on_dropped(count)


class _QueuedStream(io.TextIOBase):
    """Standard error for libraries that print: whole lines go to the writer, and nothing blocks."""

    def __init__(self, stream: TextIO, writer: LogWriter) -> None:
        self._stream = stream
        self._writer = writer
        self._unfinished = ""

    encoding = "utf-8"

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole, newline, self._unfinished = (self._unfinished + text).rpartition("\n")
        if newline:
            self._writer.write((whole + newline).encode(errors="backslashreplace"))
        return len(text)


class _QueuedLogger:
    """Hands formatted lines to the writer."""

    def __init__(self, *_: object) -> None:
        """structlog may pass the name of a logger, which the line has already."""
        assert _writer is not None
        self.msg = _writer.write

    def __getattr__(self, name: str) -> Callable[[bytes], None]:
        # structlog looks up the method of the level: debug, info, ...
        return self.msg


def _log_unraisable(args: Any) -> None:
    text = args.err_msg or "Exception ignored in"
    structlog.get_logger(__name__).error(f"{text} {args.object!r}", exc_info=args.exc_value)


def _log_thread_exception(args: threading.ExceptHookArgs) -> None:
    if args.exc_type is not SystemExit:
        name = None if args.thread is None else args.thread.name
        structlog.get_logger(__name__).error("a thread failed", thread=name, exc_info=args.exc_value)


def configure_command() -> None:
    """For a command that is no server: the same lines, from `info` on, on what standard error is at that moment."""
    last: list[Any] = (
        [for_people()]
        if sys.stderr.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_as_text)]
    )
    structlog.configure(
        processors=[
            _drop_debug,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        logger_factory=_StandardError,
    )


class _StandardError:
    """Standard output belongs to a command's answer."""

    def __init__(self, *_: object) -> None:
        """structlog may give a logger's name; it is in the line already."""

    def msg(self, line: str) -> None:
        print(line, file=sys.stderr)

    debug = info = warning = error = critical = exception = fatal = msg


def for_people() -> structlog.dev.ConsoleRenderer:
    """Text, with plain tracebacks: structlog's own would show what every variable on the way holds, secrets among them,
    and take a second of the server's time for it."""
    return structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)


def set_level(level: str) -> None:
    """From now on, this is what is logged."""
    global _level
    _level = _LEVELS[level]
    # The libraries' own "started" and "finished" say nothing that we do not say.
    logging.getLogger().setLevel(max(_LEVELS[level], logging.WARNING))


def level() -> str:
    return next((name for name, number in _LEVELS.items() if number == _level), "info")


class RequestLines:
    """Writes the line of a request. True if such lines are wanted now: making one costs something too."""

    def __init__(self, level: str) -> None:
        """`level`: for as long as nobody has said another."""
        self._level = _LEVELS[level]
        self._write = _request_writer()

    def __bool__(self) -> bool:
        return (self._level if _level is None else _level) <= _LEVELS["info"]

    def __call__(self, fields: dict[str, Any]) -> None:
        self._write(fields)


def _request_writer() -> Callable[[dict[str, Any]], None]:
    if sys.stderr.isatty():
        log = structlog.get_logger()
        return lambda fields: log.info("request", **fields)
    emit = _write_directly if _writer is None else _writer.write

    def write(fields: dict[str, Any]) -> None:
        fields["event"] = "request"
        fields["level"] = "info"
        fields["timestamp"] = timestamp(time.time())
        emit(_as_line(fields))

    return write


def _write_directly(line: bytes) -> None:
    """For an application that runs inside of another process, such as a test."""
    sys.stderr.buffer.write(line)
    sys.stderr.buffer.flush()


def _drop_unwanted(_logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if _LEVELS.get(name, logging.ERROR) < (_level or 0):
        raise structlog.DropEvent
    return event


def _drop_debug(_logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if name == "debug":
        raise structlog.DropEvent
    return event


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(
            record.levelno, record.getMessage().strip(), logger=record.name, exc_info=record.exc_info
        )


def _with_newline(_logger: Any, _name: str, text: Any) -> bytes:
    return f"{text}\n".encode(errors="backslashreplace")


def _as_text(line: Any, **_: Any) -> str:
    return _as_line(line).decode().removesuffix("\n")


def _as_line(line: Any, **_: Any) -> bytes:
    try:
        return orjson.dumps(line, default=repr, option=orjson.OPT_APPEND_NEWLINE)
    except (TypeError, ValueError):
        # orjson refuses lone surrogates and integers beyond 64 bits. A log call must not fail because of its values.
        return json.dumps(line, default=repr, skipkeys=True).encode() + b"\n"
