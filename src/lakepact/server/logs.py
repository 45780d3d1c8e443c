"""How log lines look: one JSON object a line, or text with colours where a person watches. Always standard error.

Libraries that use Python's own logging (uvicorn, asyncio) end up in the same lines. The line that every request leaves
looks like the others and is made by hand: structlog's way costs several times as much, and reads are fast.

What is logged can be changed while the process runs: `set_level`. It is one number for the whole process, looked at for
every line, since loggers that were used once keep the way they were made.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import orjson
import structlog

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_level: int | None = None
"""What is logged now. None: nobody has said so yet, as where a server is built without being run."""


def configure(level: str) -> None:
    person = sys.stderr.isatty()
    last: list[Any] = (
        [for_people()]
        if person
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_as_bytes)]
    )
    structlog.configure(
        processors=[
            _drop_unwanted,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS["debug"]),
        logger_factory=(
            structlog.PrintLoggerFactory(sys.stderr) if person else structlog.BytesLoggerFactory(sys.stderr.buffer)
        ),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_Forward()], force=True)
    set_level(level)


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
    buffer = sys.stderr.buffer

    def write(fields: dict[str, Any]) -> None:
        fields["event"] = "request"
        fields["level"] = "info"
        now = time.time()
        fields["timestamp"] = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1e6) % 1_000_000:06}Z"
        buffer.write(orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE))
        buffer.flush()

    return write


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


def _as_text(line: Any, **_: Any) -> str:
    return _as_bytes(line).decode()


def _as_bytes(line: Any, **_: Any) -> bytes:
    return orjson.dumps(line, default=repr)
