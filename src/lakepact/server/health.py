"""Whether the process lives, whether it can serve, what it is, and what it has counted.

    /livez    200 as long as the process answers at all: restart it otherwise
    /readyz   200 if the store answers a small read within two seconds, else 503 with the reason: send no traffic
    /health   the same as a document, with version and kind of store, and the warehouses where nobody is asked for a
              name; always 200
    /metrics  for Prometheus: without a token with `open_metrics`, else for administrators of the account that owns the
              default warehouse, since the figures are those of all accounts

They say nothing secret: no URL, no path, no text of an error from below.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from lakepact import __version__
from lakepact.errors import LakepactError
from lakepact.kernel.keys import key_of
from lakepact.kernel.ports import CellStore
from lakepact.server.auth.errors import NotAllowed
from lakepact.server.http import Request, Response, json_response
from lakepact.server.metrics import CONTENT_TYPE, Metrics
from lakepact.server.routing import Route

READ_WITHIN_S: Final = 2.0

_PROBED: Final = key_of("lakepact", "probe")

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Draining:
    """Whether the server has been asked to stop.

    From then on `/readyz` answers 503 and every response carries `Connection: close`. Requests are still served, so
    that a load balancer has the time to notice.
    """

    asked: bool = False


class Health:
    def __init__(
        self,
        store: CellStore,
        *,
        store_kind: str,
        warehouses: Sequence[str],
        metrics: Metrics,
        draining: Draining,
        read_within_s: float = READ_WITHIN_S,
        open_metrics: bool = True,
        operators: str = "default",
    ) -> None:
        """`operators` is the account whose administrators may read `/metrics`."""
        self._operators = operators
        self._store = store
        self._store_kind = store_kind
        self._warehouses = list(warehouses)
        self._metrics = metrics
        self._draining = draining
        self._read_within_s = read_within_s
        self._open_metrics = open_metrics

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/livez", "livez", self._livez, open=True),
            Route("GET", "/readyz", "readyz", self._readyz, open=True),
            Route("GET", "/health", "health", self._health, open=True),
            Route("GET", "/metrics", "metrics", self._scrape, open=self._open_metrics),
        ]

    async def unready(self) -> str | None:
        """Why this server should get no traffic now; None if it should."""
        if self._draining.asked:
            return "shutting down"
        try:
            async with asyncio.timeout(self._read_within_s):
                await self._store.read([_PROBED])
        except TimeoutError:
            return f"the store did not answer within {self._read_within_s:g} s"
        except LakepactError as error:
            _log.warning("not ready", error=str(error))
            return f"the store cannot be read ({error.type}); the log has more"
        return None

    async def _livez(self, request: Request) -> Response:
        return json_response({"alive": True})

    async def _readyz(self, request: Request) -> Response:
        reason = await self.unready()
        if reason is None:
            return json_response({"ready": True})
        return json_response({"ready": False, "reason": reason}, 503, ((b"Retry-After", b"1"),))

    async def _health(self, request: Request) -> Response:
        reason = await self.unready()
        document: dict[str, object] = {"version": __version__, "store": self._store_kind, "ready": reason is None}
        if request.principal.admin:
            # A server that asks for names tells strangers none.
            document["warehouses"] = self._warehouses
        return json_response(document if reason is None else {**document, "reason": reason})

    async def _scrape(self, request: Request) -> Response:
        who = request.principal
        # Without authentication everybody is an administrator without a name.
        operator = who.admin and (who.name is None or who.account == self._operators)
        if not self._open_metrics and not operator:
            raise NotAllowed(
                f"/metrics shows figures of all accounts: it needs a token of an administrator of the account "
                f"{self._operators!r}, or the setting open_metrics"
            )
        began_s = time.perf_counter()
        away = await self.unready() if not self._draining.asked else None
        self._metrics.store_read(time.perf_counter() - began_s if away is None else math.inf)
        return Response(200, self._metrics.text(), ((b"Content-Type", CONTENT_TYPE),))
