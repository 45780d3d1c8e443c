"""moto's S3 server, a second opinion on the wire format.

It checks conditions and writes in two steps, so it is not atomic under concurrency: no race is ever tried on it.
"""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.waiting import PATIENCE_S


@contextmanager
def running(bucket: str) -> Iterator[str]:
    """The URL of a server that has this bucket."""
    # It would tell of every request.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    from moto.server import ThreadedMotoServer  # here, since importing moto takes longer than most tests

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        url = f"http://{host}:{port}"
        request = urllib.request.Request(f"{url}/{bucket}", method="PUT")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S).close()
        yield url
    finally:
        server.stop()
