"""Remote signing: the client sends what it wants to ask S3, and gets it back signed, if it may.

Signed with keys that are made for this table, where there is a role to make them from; else with the server's own. The
client never sees the secret of either.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.ports import Clock
from lakepact.server.vending.s3_requests import Endpoint, SignRequest, to_sign
from lakepact.server.vending.scope import Scope
from lakepact.server.vending.sigv4 import Keys, signed_headers


class S3Signer:
    def __init__(self, clock: Clock, *, region: str, endpoint: Endpoint) -> None:
        self._clock = clock
        self._region = region
        self._endpoint = endpoint

    def sign(self, request: SignRequest, scope: Scope, keys: Keys) -> JsonObject:
        """The answer: the uri and all headers to send. Raises `NotSigned`."""
        wanted = to_sign(request, scope, self._endpoint)
        headers = signed_headers(
            wanted.method,
            wanted.path,
            wanted.query,
            wanted.signed,
            wanted.payload_hash,
            keys,
            region=self._region,
            service="s3",
            now_ms=self._clock.now_ms(),
        )
        return {
            "uri": wanted.uri,
            "headers": {_spelled(name): [value] for name, value in {**wanted.unsigned, **headers}.items()},
        }

    def check(self, request: SignRequest, scope: Scope) -> None:
        """Refuse what is not for this table, before anybody is asked for keys."""
        to_sign(request, scope, self._endpoint)

    def config(self, path: str) -> Mapping[str, str]:
        """What clients must know to use it, old ones and new ones."""
        return {
            "s3.remote-signing-enabled": "true",
            "s3.signer": "S3V4RestSigner",
            "s3.signer.endpoint": path,
            "signer.endpoint": path,
        }


def _spelled(name: str) -> str:
    """Clients look for some of them in this case alone."""
    return {"authorization": "Authorization", "host": "Host"}.get(name, name)
