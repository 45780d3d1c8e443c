"""Google Cloud Storage: the server's own token, exchanged for one that reaches one table's folder.

The border is drawn by a credential access boundary. It is checked by Google on every request, and it cannot give more
than the server's own token may do.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import orjson

from lakepact.extras import how_to_install
from lakepact.kernel.ports import Clock
from lakepact.server.vending.outside import Answer, Outside
from lakepact.server.vending.scope import Credential, ProviderFailed, Right, Scope

STS: Final = "https://sts.googleapis.com/v1/token"
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
_MACHINE: Final = "metadata.google.internal"
_NEAR_S: Final = 2.0
_MARGIN_MS: Final = 900_000
"""A narrowed token ends with the one it was made from, so that one must have some life left."""

_MACHINES_MARGIN_MS: Final = 300_000
"""A machine gives the same token until about then: asking it earlier gets nothing new."""

_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)
    expires_ms: int


class GoogleIdentity:
    """The server's own token: of a service account's key, else of the machine it runs on."""

    def __init__(self, options: Mapping[str, str], outside: Outside, clock: Clock) -> None:
        self._options = {name.lower().removeprefix("google_"): value for name, value in options.items()}
        self._outside = outside
        self._clock = clock
        self._held: Token | None = None
        self._margin_ms = _MARGIN_MS
        self._turn = asyncio.Lock()

    async def token(self) -> Token:
        async with self._turn:
            if self._held is None or self._held.expires_ms - self._clock.now_ms() < self._margin_ms:
                self._held = await self._fetch()
            return self._held

    async def _fetch(self) -> Token:
        account = await self._service_account()
        self._margin_ms = _MACHINES_MARGIN_MS if account is None else _MARGIN_MS
        if account is None:
            return await self._from_machine()
        assertion = _assertion(account, self._clock.now_ms() // 1000)
        fields = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
        answer = await self._outside.send("POST", account["token_uri"], _FORM, urlencode(fields).encode())
        return self._token_of(answer, "Google")

    async def _from_machine(self) -> Token:
        host = os.environ.get("GCE_METADATA_HOST", _MACHINE)
        url = f"http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
        try:
            answer = await self._outside.send("GET", url, {"Metadata-Flavor": "Google"}, direct=True, timeout_s=_NEAR_S)
        except ProviderFailed:
            raise ProviderFailed(
                "this server has no identity at Google: give the warehouse the option service_account, or set "
                "GOOGLE_APPLICATION_CREDENTIALS to a service account's key, or run it where an account is attached",
                temporary=False,
            ) from None
        return self._token_of(answer, "the machine's metadata service")

    async def _service_account(self) -> dict[str, str] | None:
        given = self._options
        text = given.get("service_account_key")
        path = next(
            (
                given[name]
                for name in ("service_account", "service_account_path", "application_credentials")
                if given.get(name)
            ),
            None,
        )
        path = path or os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        if text is None and path:
            try:
                text = await asyncio.to_thread(Path(path).read_text)
            except OSError as error:
                raise ProviderFailed(
                    f"the service account's key cannot be read: {error.strerror}", temporary=False
                ) from error
        if text is None:
            return None
        try:
            account: dict[str, str] = orjson.loads(text)
            return {name: account[name] for name in ("client_email", "private_key", "token_uri")}
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ProviderFailed(
                "the service account's key is not the JSON that Google gives", temporary=False
            ) from error

    def _token_of(self, answer: Answer, who: str) -> Token:
        return _parse(answer, who, self._clock.now_ms(), None)


class GcsProvider:
    def __init__(self, identity: GoogleIdentity, outside: Outside, clock: Clock, *, sts: str = STS) -> None:
        self._identity = identity
        self._outside = outside
        self._clock = clock
        self._sts = sts

    async def mint(self, scope: Scope) -> Credential:
        own = await self._identity.token()
        fields = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
            "subject_token": own.text,
            "options": orjson.dumps(boundary(scope)).decode(),
        }
        answer = await self._outside.send("POST", self._sts, _FORM, urlencode(fields).encode())
        token = _parse(answer, "Google's STS", self._clock.now_ms(), own.expires_ms)
        config = {"gcs.oauth2.token": token.text, "gcs.oauth2.token-expires-at": str(token.expires_ms)}
        return Credential(scope.prefix, config, token.expires_ms, hashlib.sha256(token.text.encode()).hexdigest()[:16])

    def refresh(self, path: str) -> Mapping[str, str]:
        return {"gcs.oauth2.refresh-credentials-endpoint": path, "gcs.oauth2.refresh-credentials-enabled": "true"}


_ROLES: Final = {
    Right.READ: ("objectViewer",),
    Right.ADD: ("objectViewer", "objectCreator"),
    # Not Storage Object Admin, which would let one say who else may reach an object.
    Right.WRITE: ("objectUser",),
}


def boundary(scope: Scope) -> dict[str, Any]:
    """The credential access boundary: pure. `Scope` has no quote in it that could end a text."""
    objects = f"resource.name.startsWith('projects/_/buckets/{scope.bucket}/objects/{scope.folder}/')"
    listing = f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{scope.folder}/')"
    rule = {
        "availableResource": f"//storage.googleapis.com/projects/_/buckets/{scope.bucket}",
        "availablePermissions": [f"inRole:roles/storage.{role}" for role in _ROLES[scope.right]],
        "availabilityCondition": {"expression": f"{objects} || {listing}"},
    }
    return {"accessBoundary": {"accessBoundaryRules": [rule]}}


def _parse(answer: Answer, who: str, now_ms: int, ends_ms: int | None) -> Token:
    if answer.status != 200:
        raise ProviderFailed(
            f"{who} answered {answer.status} when asked for a token; check the server's identity and what it may do",
            temporary=answer.is_temporary,
        )
    try:
        document: dict[str, Any] = orjson.loads(answer.body)
        # A narrowed token lives as long as its origin, and Google does not always say so again.
        lives = document.get("expires_in")
        expires_ms = now_ms + int(lives) * 1000 if lives is not None else ends_ms
        if expires_ms is None:
            raise KeyError("expires_in")
        return Token(str(document["access_token"]), min(expires_ms, ends_ms or expires_ms))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise ProviderFailed(f"{who} answered without a token in it", temporary=False) from error


def _assertion(account: Mapping[str, str], now_s: int) -> str:
    """A JWT that the service account's key signs."""
    try:
        from cryptography.hazmat.primitives.asymmetric import padding
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise ProviderFailed(
            f"a service account's key needs cryptography: {how_to_install('gcs-keys')}", temporary=False
        ) from None
    claims = {
        "iss": account["client_email"],
        "scope": _SCOPE,
        "aud": account["token_uri"],
        "iat": now_s,
        "exp": now_s + 3_600,
    }
    body = b".".join(_base64(orjson.dumps(part)) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    try:
        key = load_pem_private_key(account["private_key"].encode(), None)
    except ValueError as error:
        raise ProviderFailed("the service account's private key cannot be read", temporary=False) from error
    assert isinstance(key, RSAPrivateKey)
    return (body + b"." + _base64(key.sign(body, padding.PKCS1v15(), SHA256()))).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
