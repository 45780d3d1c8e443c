"""Bound the number of connections below the number of files that the process may open.

Every connection is an open file, and so are the files of the store and the warehouse. Without a bound a few hundred
idle connections use up the limit of the process (`ulimit -n`), and commits fail with "Too many open files". With it a
new connection beyond the bound closes the one that has been idle for longest; if all have a request under way, the new
one is refused.
"""

from __future__ import annotations

import resource
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

import structlog

_RESERVED_FILES: Final = 512
"""For store, warehouse, log, gRPC and libraries: a quarter to half of a small limit."""

_LARGEST_BACKLOG: Final = 2_048
_WARN_EVERY_S: Final = 60.0

_log = structlog.get_logger(__name__)


class Connection(Protocol):
    def close_idle(self) -> None:
        """Close the connection, which has no request under way."""
        ...


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard limit, and return it. It is inherited by workers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            _log.warning("the limit of open files cannot be raised", soft=soft, hard=hard, error=str(error))
    return _LARGEST_BACKLOG * 1_024 if soft == resource.RLIM_INFINITY else soft


def connections_within(files: int) -> int:
    """How many connections a process may have that may open this many files."""
    return max(1, files - min(_RESERVED_FILES, files // 2))


def backlog_within(files: int) -> int:
    """How many connections may wait to be accepted: they all may be accepted before one of them can be closed."""
    return max(1, min(_LARGEST_BACKLOG, (files - connections_within(files)) // 2))


class Connections:
    """The connections of one process."""

    def __init__(
        self,
        most: int,
        *,
        on_count: Callable[[int], None] = lambda count: None,
        on_limited: Callable[[], None] = lambda: None,
    ) -> None:
        self._most = most
        self._count = 0
        self._on_count = on_count
        self._on_limited = on_limited
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        """Those without a request under way, the longest idle first."""

        self._warned_s = -_WARN_EVERY_S

    def opened(self, connection: Connection) -> bool:
        """Count a new connection, and return whether it may stay. It is idle until it is `busy`."""
        self._count += 1
        self._on_count(self._count)
        if self._count <= self._most:
            self._idle[connection] = None
            return True
        self._on_limited()
        self._warn()
        if not self._idle:
            return False
        oldest, _ = self._idle.popitem(last=False)
        self._idle[connection] = None
        oldest.close_idle()
        return True

    def busy(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def idle(self, connection: Connection) -> None:
        self._idle[connection] = None

    def closed(self, connection: Connection) -> None:
        self._idle.pop(connection, None)
        self._count -= 1
        self._on_count(self._count)

    def _warn(self) -> None:
        now_s = time.monotonic()
        if now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            _log.warning(
                "there are too many connections: the longest idle ones are closed. Raise the limit of open files "
                "(ulimit -n, LimitNOFILE of systemd), or find the client that opens them",
                connections=self._count,
                limit=self._most,
            )
