"""How log lines look: one JSON object a line, or text with colours where a person watches. Always standard error.

Libraries that use Python's own logging (uvicorn, asyncio) end up in the same lines. The line that every request leaves
looks like the others and is made by hand: structlog's way costs several times as much, and reads are fast.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import orjson
import structlog

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(level: str) -> None:
    person = sys.stderr.isatty()
    last: list[Any] = (
        [structlog.dev.ConsoleRenderer()]
        if person
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_as_bytes)]
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=(
            structlog.PrintLoggerFactory(sys.stderr) if person else structlog.BytesLoggerFactory(sys.stderr.buffer)
        ),
        cache_logger_on_first_use=True,
    )
    # The libraries' own "started" and "finished" say nothing that we do not say.
    logging.basicConfig(level=max(_LEVELS[level], logging.WARNING), handlers=[_Forward()], force=True)


def request_line(level: str) -> Callable[[dict[str, Any]], None] | None:
    """What writes the line of a request; None if such lines are not wanted."""
    if _LEVELS["info"] < _LEVELS[level]:
        return None
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


class _Forward(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger(record.name).log(
            record.levelno, record.getMessage().strip(), logger=record.name, exc_info=record.exc_info
        )


def _as_bytes(line: Any, **_: Any) -> bytes:
    return orjson.dumps(line, default=repr)
