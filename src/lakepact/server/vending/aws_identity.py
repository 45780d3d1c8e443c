"""Which AWS keys this server has itself: the usual places, in the usual order.

    the warehouse's options         access_key_id, secret_access_key, session_token
    the environment                 AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
    a web identity (Kubernetes)     AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN
    a container's service           AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI
    the machine's service           IMDSv2 (AWS_EC2_METADATA_SERVICE_ENDPOINT; not if AWS_EC2_METADATA_DISABLED)

Profiles in files are not read: they are for people.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from lakepact.kernel.ports import Clock
from lakepact.server.vending.aws_sts import Sts, parse_expiration
from lakepact.server.vending.outside import Answer, Outside
from lakepact.server.vending.scope import ProviderFailed
from lakepact.server.vending.sigv4 import Keys

_MARGIN_MS: Final = 300_000
_NEAR_S: Final = 2.0
"""The services beside a machine answer at once or are not there."""

_CONTAINER: Final = "http://169.254.170.2"
_CONTAINER_HOSTS: Final = frozenset(
    {"169.254.170.2", "169.254.170.23", "fd00:ec2::23", "127.0.0.1", "localhost", "::1"}
)
_MACHINE: Final = "http://169.254.169.254"


class OwnKeys:
    """The server's keys, fetched when they are needed and kept until shortly before they expire."""

    def __init__(
        self,
        options: Mapping[str, str],
        outside: Outside,
        clock: Clock,
        sts: Sts,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._options = options
        self._outside = outside
        self._clock = clock
        self._sts = sts
        self._environment = environment
        self._held: Keys | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> Keys:
        async with self._turn:
            held = self._held
            left_ms = None if held is None or held.expires_ms is None else held.expires_ms - self._clock.now_ms()
            if held is None or (left_ms is not None and left_ms < _MARGIN_MS):
                self._held = held = await self._find()
            return held

    async def _find(self) -> Keys:
        found = _from_options(self._options) or _from_environment(self._environment)
        if found is not None:
            return found
        if self._environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and self._environment.get("AWS_ROLE_ARN"):
            return await self._from_web_identity()
        if any(self._environment.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI") for kind in ("RELATIVE", "FULL")):
            return await self._from_container()
        return await self._from_machine()

    async def _from_web_identity(self) -> Keys:
        path = self._environment["AWS_WEB_IDENTITY_TOKEN_FILE"]
        token = await _token_in(path, "AWS_WEB_IDENTITY_TOKEN_FILE")
        return await self._sts.assume_with_web_identity(self._environment["AWS_ROLE_ARN"], token)

    async def _from_container(self) -> Keys:
        environment = self._environment
        relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        url = _CONTAINER + relative if relative else environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        parts = urlsplit(url)
        if parts.scheme != "https" and parts.hostname not in _CONTAINER_HOSTS:
            raise ProviderFailed(
                "AWS_CONTAINER_CREDENTIALS_FULL_URI names another machine without https; correct it", temporary=False
            )
        token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        if file:
            token = await _token_in(file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        answer = await self._outside.send(
            "GET", url, {"Authorization": token} if token else {}, direct=True, timeout_s=_NEAR_S
        )
        return _keys_of(answer, "the container's credentials service")

    async def _from_machine(self) -> Keys:
        if self._environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise ProviderFailed(_NO_KEYS, temporary=False)
        base = self._environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _MACHINE).rstrip("/")
        try:
            token = await self._outside.send(
                "PUT",
                f"{base}/latest/api/token",
                {"X-aws-ec2-metadata-token-ttl-seconds": "300"},
                b"",
                direct=True,
                timeout_s=_NEAR_S,
            )
        except ProviderFailed:
            raise ProviderFailed(_NO_KEYS, temporary=False) from None
        if token.status != 200:
            raise ProviderFailed(_NO_KEYS, temporary=False)
        headers = {"X-aws-ec2-metadata-token": token.body.decode("latin-1")}
        path = f"{base}/latest/meta-data/iam/security-credentials/"
        role = await self._outside.send("GET", path, headers, direct=True, timeout_s=_NEAR_S)
        if role.status != 200:
            raise ProviderFailed(_NO_KEYS, temporary=False)
        name = role.body.decode("latin-1").split("\n")[0].strip()
        answer = await self._outside.send("GET", path + name, headers, direct=True, timeout_s=_NEAR_S)
        return _keys_of(answer, "the machine's metadata service")


_NO_KEYS: Final = (
    "this server has no AWS keys: give the warehouse the options access_key_id and secret_access_key, or set the usual "
    "AWS_ variables, or run it where a role is attached"
)


def option(options: Mapping[str, str], *names: str) -> str | None:
    """The option of one of these names, with or without `aws_` before it, as obstore takes them."""
    given = {name.lower(): value for name, value in options.items()}
    for name in names:
        for spelled in (name, f"aws_{name}"):
            if given.get(spelled):
                return given[spelled]
    return None


def _from_options(options: Mapping[str, str]) -> Keys | None:
    key, secret = option(options, "access_key_id"), option(options, "secret_access_key")
    return None if key is None or secret is None else Keys(key, secret, option(options, "session_token", "token"))


def _from_environment(environment: Mapping[str, str]) -> Keys | None:
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    return Keys(key, secret, environment.get("AWS_SESSION_TOKEN") or None) if key and secret else None


async def _token_in(path: str, variable: str) -> str:
    try:
        return (await asyncio.to_thread(Path(path).read_text)).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ProviderFailed(f"the token of {variable} cannot be read: {reason}", temporary=False) from error


def _keys_of(answer: Answer, who: str) -> Keys:
    if answer.status != 200:
        raise ProviderFailed(f"{who} answered {answer.status}", temporary=answer.is_temporary)
    try:
        found: dict[str, Any] = orjson.loads(answer.body)
        return Keys(
            found["AccessKeyId"], found["SecretAccessKey"], found["Token"], parse_expiration(found["Expiration"])
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise ProviderFailed(f"{who} answered something that is not keys", temporary=False) from error
