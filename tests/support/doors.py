"""A server that asks who it is, without a socket, and short words for what is asked of it."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from lakepact.runtime import SystemClock, SystemRng
from lakepact.server.app import Service, build
from lakepact.server.auth.tokens import Tokens
from lakepact.settings import Settings
from lakepact.stores import open_store
from tests.support.asgi_client import Answer, AsgiClient


class Door:
    """A server that asks, and short words for what is asked of it."""

    def __init__(self, service: Service, tokens: Tokens) -> None:
        self.service = service
        self.client = AsgiClient(service.asgi)
        self.tokens = tokens
        self.grpc_port: int | None = None

    async def get(self, path: str, token: str | None = None, **headers: str) -> Answer:
        return await self.client.send("GET", path, headers=_headers(token, headers))

    async def post(self, path: str, json: Any, token: str | None = None, **headers: str) -> Answer:
        return await self.client.send("POST", path, json=json, headers=_headers(token, headers))

    async def delete(self, path: str, token: str | None = None) -> Answer:
        return await self.client.send("DELETE", path, headers=_headers(token, {}))

    async def oauth(self, basic: str | None = None, **form: str) -> Answer:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if basic is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(basic.encode()).decode()}"
        return await self.client.send("POST", "/v1/oauth/tokens", body=urlencode(form).encode(), headers=headers)

    async def who(self, token: str) -> Any:
        answer = await self.get("/v1/whoami", token)
        return answer.json() if answer.status == 200 else answer.refusal


def _headers(token: str | None, more: dict[str, str]) -> dict[str, str]:
    return {**({} if token is None else {"Authorization": f"Bearer {token}"}), **more}


@asynccontextmanager
async def asking(folder: Path, **given: Any) -> AsyncIterator[Door]:
    settings = Settings.load(
        **{"data": str(folder / "data"), "log_level": "error", "auth": "tokens", "token_cache_s": 0.0, **given}
    )
    service = await build(settings)
    store = await open_store(settings.store, settings.kernel())
    try:
        yield Door(service, Tokens(store, SystemClock(), SystemRng()))
    finally:
        await store.close()
        await service.close()
