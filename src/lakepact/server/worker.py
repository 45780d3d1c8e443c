"""One of several processes behind one socket: `python -m lakepact.server.worker SOCKET HEARTBEAT`, started by the
supervisor. Both arguments are inherited descriptors: the listening socket, and a pipe that gets a byte whenever the
event loop shows that it runs.

Standard input brings the settings as one line of JSON (not the command line, which everybody on the machine can read)
and then stays open. Each byte after that is the number of a signal that the supervisor passes on; the end means that
the supervisor is gone. Standard output takes one line: `{"ready": true}`, or
`{"error": ...}` if the worker cannot serve.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import orjson
import structlog

from lakepact.errors import LakepactError
from lakepact.server import logs
from lakepact.server.run import serve
from lakepact.settings import Settings
from lakepact.standard_streams import open_standard_streams

_log = structlog.get_logger(__name__)


def main() -> None:
    code = 1
    open_standard_streams()
    logs.configure("info")
    try:
        # Not sys.stdin: what it reads ahead, nobody else would see.
        settings = Settings.model_validate_json(_line(0))
        bound = socket.socket(fileno=int(sys.argv[1]))
        heartbeat = int(sys.argv[2])
        serve(settings, bound, ready=lambda: _say({"ready": True}), lifeline=0, heartbeat=heartbeat)
        code = 0
    except LakepactError as error:
        _say({"error": {"type": error.type, "message": str(error)}})
    except BaseException as error:
        _log.error("the worker failed", exc_info=error)
    logs.flush()
    # As the `lakepact` command does: some libraries' threads do not survive Python's own goodbye.
    os._exit(code)


def _line(descriptor: int) -> bytes:
    read = b""
    while not read.endswith(b"\n"):
        part = os.read(descriptor, 65_536)
        if not part:
            raise EOFError("the supervisor went away before it gave the settings")
        read += part
    return read


def _say(document: dict[str, Any]) -> None:
    os.write(1, orjson.dumps(document) + b"\n")
    # Nobody reads more than this line. What a library prints later goes where the log goes.
    os.dup2(2, 1)


if __name__ == "__main__":
    main()
