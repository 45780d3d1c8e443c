"""Requests to the clouds' own services: few, small, and never with a redirect.

They run on threads of their own, so that a service that does not answer holds up nobody who does not ask for it. What
they send and get may be secret, so nothing of it is logged here.
"""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from lakepact.server.vending.scope import ProviderFailed

_THREADS: Final = 8
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = field(repr=False)

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may do better in a while."""
        return self.status >= 500 or self.status in (408, 429)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Credentials go where the settings say, and nowhere else."""


class _AnyStatus(urllib.request.HTTPErrorProcessor):
    """What is not 200 is an answer too."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    def https_response(self, request: Any, response: Any) -> Any:
        return response


class Outside:
    def __init__(self, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="lakepact-credentials")

    async def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        direct: bool = False,
        timeout_s: float | None = None,
    ) -> Answer:
        """One request. `direct`: never through a proxy, as for the services that a machine has beside it.

        Raises `ProviderFailed` if there is no answer.
        """
        request = urllib.request.Request(url, body, dict(headers or {}), method=method)
        timeout = timeout_s or self._timeout_s
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, _send, request, direct, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ProviderFailed(f"{urlsplit(url).hostname} did not answer: {reason}", temporary=True) from error

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _send(request: urllib.request.Request, direct: bool, timeout_s: float) -> Answer:
    handlers: list[Any] = [_NoRedirect(), _AnyStatus()]
    if direct:
        handlers.append(urllib.request.ProxyHandler({}))
    if request.type == "https":
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    with urllib.request.build_opener(*handlers).open(request, timeout=timeout_s) as response:
        return Answer(response.status, response.read(_MOST_BYTES))
