"""What is logged, changed while the server runs, by signals.

    SIGHUP    read `log_level` again, from the settings file and the environment
    SIGUSR1   log everything, and with the next one what was logged before

By signals and not by a request: whoever may send one is on the machine and may see the log anyway, and it works when
the server answers nobody. A supervisor passes them on to its workers. Other settings need a restart.
"""

from __future__ import annotations

import structlog

from lakepact.errors import LakepactError
from lakepact.server import logs
from lakepact.settings import Settings

_EVERYTHING = "debug"

_log = structlog.get_logger(__name__)


class LogLevels:
    def __init__(self) -> None:
        self._before: str | None = None
        """The level to go back to, while everything is logged."""

    def read_again(self) -> None:
        try:
            level = Settings.load().log_level
        except LakepactError as error:
            _log.error("the settings cannot be read again; the log level stays as it was", error=str(error))
            return
        self._before = None
        self._change(level)

    def toggle(self) -> None:
        now = logs.level()
        if self._before is None:
            self._before = now
            self._change(_EVERYTHING)
        else:
            before, self._before = self._before, None
            self._change(before)

    def _change(self, level: str) -> None:
        was = logs.level()
        logs.set_level(level)
        # A warning: it must be seen at every level but one.
        _log.warning("the log level has changed", was=was, now=level)
