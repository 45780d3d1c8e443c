"""Azure: a user-delegation SAS for one table's folder.

Azure can bind a SAS to a folder only where the account has a hierarchical namespace (`sr=d`). On a flat account a SAS
is for one blob or for the whole container, and a container is wider than a table: that is given only if the settings
say so (`azure_scope = "container"`).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import orjson

from lakepact.kernel.ports import Clock
from lakepact.server.vending.outside import Outside
from lakepact.server.vending.scope import Credential, NotScopable, ProviderFailed, Right, Scope

VERSION: Final = "2020-12-06"
AUTHORITY: Final = "https://login.microsoftonline.com"

_RESOURCE: Final = "https://storage.azure.com/"
_MACHINE: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
_NEAR_S: Final = 2.0
_SLACK_MS: Final = 300_000
"""Clocks differ: what is valid from now on is valid a little earlier."""

_READ: Final = "rl"
_ADD: Final = "racwl"
_WRITE: Final = "racwdl"
_PERMISSIONS: Final = {Right.READ: _READ, Right.ADD: _ADD, Right.WRITE: _WRITE}


@dataclass(frozen=True, slots=True)
class DelegationKey:
    """What Azure gives one who has proved who they are, to sign with for a while."""

    oid: str
    tid: str
    start: str
    expiry: str
    service: str
    version: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AzureIdentity:
    """Who the server is at Azure: an application with a secret, one with a federated token, or the machine's own."""

    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    token_file: str | None = None
    authority: str = AUTHORITY

    @classmethod
    def of(cls, options: Mapping[str, str], authority: str | None) -> AzureIdentity:
        """From the warehouse's options, in obstore's words, else from the environment, in Azure's."""
        given = {name.lower().removeprefix("azure_").removeprefix("storage_"): text for name, text in options.items()}

        def find(variable: str, *names: str) -> str | None:
            return next((given[name] for name in names if given.get(name)), None) or os.environ.get(variable) or None

        return cls(
            find("AZURE_TENANT_ID", "tenant_id", "authority_id"),
            find("AZURE_CLIENT_ID", "client_id"),
            find("AZURE_CLIENT_SECRET", "client_secret"),
            find("AZURE_FEDERATED_TOKEN_FILE", "federated_token_file"),
            (authority or os.environ.get("AZURE_AUTHORITY_HOST") or AUTHORITY).rstrip("/"),
        )


class AdlsProvider:
    def __init__(
        self,
        identity: AzureIdentity,
        outside: Outside,
        clock: Clock,
        *,
        account: str,
        host: str,
        service: str,
        duration_s: int,
        reach: Literal["directory", "container"],
    ) -> None:
        """`host` is where clients find the account, `service` where its blob service answers."""
        self._identity = identity
        self._outside = outside
        self._clock = clock
        self._account = account
        self._host = host
        self._service = service.rstrip("/")
        self._duration_s = duration_s
        self._reach = reach
        self._held: tuple[DelegationKey, int] | None = None
        self._turn = asyncio.Lock()

    async def mint(self, scope: Scope) -> Credential:
        now_ms = self._clock.now_ms()
        expires_ms = now_ms + self._duration_s * 1000
        key = await self._key(expires_ms)
        sas = signed_access(
            key,
            scope,
            account=self._account,
            start=_moment(now_ms - _SLACK_MS),
            expiry=_moment(expires_ms),
            reach=self._reach,
        )
        # Clients look for the account by its name alone, or by the name of its host.
        names = (self._account, self._host)
        config = {
            # PyIceberg's own file access by PyArrow knows one account, by these two alone.
            "adls.account-name": self._account,
            "adls.sas-token": sas,
            **{f"adls.sas-token.{name}": sas for name in names},
            **{f"adls.sas-token-expires-at-ms.{name}": str(expires_ms) for name in names},
        }
        return Credential(scope.prefix, config, expires_ms, hashlib.sha256(sas.encode()).hexdigest()[:16])

    def refresh(self, path: str) -> Mapping[str, str]:
        return {"adls.refresh-credentials-endpoint": path}

    async def _key(self, until_ms: int) -> DelegationKey:
        """A key that lives at least that long. One serves many tables."""
        async with self._turn:
            if self._held is None or self._held[1] < until_ms:
                # Twice as long, so that not every table needs one of its own. Seven days is the most.
                ends_ms = until_ms + min(self._duration_s * 1000, 6 * 86_400_000)
                self._held = await self._fetch(ends_ms), ends_ms
            return self._held[0]

    async def _fetch(self, until_ms: int) -> DelegationKey:
        start, expiry = _moment(self._clock.now_ms() - _SLACK_MS), _moment(until_ms)
        answer = await self._outside.send(
            "POST",
            f"{self._service}/?restype=service&comp=userdelegationkey",
            {
                "Authorization": f"Bearer {await self._token()}",
                "x-ms-version": VERSION,
                "Content-Type": "application/xml",
            },
            f'<?xml version="1.0" encoding="utf-8"?><KeyInfo><Start>{start}</Start><Expiry>{expiry}</Expiry>'
            f"</KeyInfo>".encode(),
        )
        if answer.status != 200:
            raise ProviderFailed(
                f"Azure answered {answer.status} when asked for a user delegation key; the server's identity needs the "
                f"role Storage Blob Delegator on the account",
                temporary=answer.is_temporary,
            )
        try:
            found = {one.tag: one.text or "" for one in ElementTree.fromstring(answer.body)}
            names = ("SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion", "Value")
            return DelegationKey(*(found[name] for name in names))
        except (ElementTree.ParseError, KeyError) as error:
            raise ProviderFailed("Azure answered without a user delegation key in it", temporary=False) from error

    async def _token(self) -> str:
        identity = self._identity
        if identity.client_id and identity.tenant_id and (identity.client_secret or identity.token_file):
            fields = {
                "grant_type": "client_credentials",
                "client_id": identity.client_id,
                "scope": f"{_RESOURCE}.default",
            }
            if identity.client_secret:
                fields["client_secret"] = identity.client_secret
            else:
                assert identity.token_file is not None
                fields["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
                fields["client_assertion"] = await _text_of(identity.token_file)
            url = f"{identity.authority}/{quote(identity.tenant_id)}/oauth2/v2.0/token"
            answer = await self._outside.send("POST", url, _FORM, urlencode(fields).encode())
        else:
            query = {"api-version": "2018-02-01", "resource": _RESOURCE}
            if identity.client_id:
                query["client_id"] = identity.client_id
            url = f"{_MACHINE}?{urlencode(query)}"
            try:
                answer = await self._outside.send("GET", url, {"Metadata": "true"}, direct=True, timeout_s=_NEAR_S)
            except ProviderFailed:
                raise ProviderFailed(
                    "this server has no identity at Azure: give the warehouse the options tenant_id, client_id and "
                    "client_secret, or set the usual AZURE_ variables, or run it where an identity is attached",
                    temporary=False,
                ) from None
        if answer.status != 200:
            raise ProviderFailed(
                f"Azure answered {answer.status} when asked for a token; check the server's identity",
                temporary=answer.is_temporary,
            )
        return json_text(answer.body, "access_token", "Azure")


_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


def signed_access(
    key: DelegationKey,
    scope: Scope,
    *,
    account: str,
    start: str,
    expiry: str,
    reach: Literal["directory", "container"],
) -> str:
    """The SAS as a query: pure."""
    if len(scope.folder.encode()) > 1_024:
        raise NotScopable(f"{scope.location} is longer than Azure lets the name of a folder be")
    whole = reach == "container"
    permissions = _PERMISSIONS[scope.right]
    resource = f"/blob/{account}/{scope.bucket}" + ("" if whole else f"/{scope.folder}")
    kind = "c" if whole else "d"
    of_key = (key.oid, key.tid, key.start, key.expiry, key.service, key.version)
    to_sign = "\n".join(
        [
            *(permissions, start, expiry, resource),
            *of_key,
            *("", "", ""),  # nobody else is named, no correlation id
            *("", "https", VERSION, kind),
            *("", ""),  # no snapshot, no encryption scope
            *("", "", "", "", ""),  # no headers of answers are set
        ]
    )
    digest = hmac.digest(base64.b64decode(key.value), to_sign.encode(), "sha256")
    fields = {
        "sv": VERSION,
        "st": start,
        "se": expiry,
        "sr": kind,
        **({} if whole else {"sdd": str(scope.folder.count("/") + 1)}),
        "sp": permissions,
        "spr": "https",
        **dict(zip(("skoid", "sktid", "skt", "ske", "sks", "skv"), of_key, strict=True)),
        "sig": base64.b64encode(digest).decode(),
    }
    return urlencode(fields)


def json_text(body: bytes, name: str, who: str) -> str:
    """A field of a JSON answer."""
    try:
        document: dict[str, Any] = orjson.loads(body)
        return str(document[name])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ProviderFailed(f"{who} answered without {name} in it", temporary=False) from error


async def _text_of(path: str) -> str:
    try:
        return (await asyncio.to_thread(Path(path).read_text)).strip()
    except OSError as error:
        raise ProviderFailed(f"the federated token cannot be read: {error.strerror}", temporary=False) from error


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
