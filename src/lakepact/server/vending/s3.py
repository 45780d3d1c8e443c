"""S3: keys from STS for one table, in the words of Iceberg's clients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from lakepact.server.vending.aws_identity import OwnKeys
from lakepact.server.vending.aws_sts import Sts
from lakepact.server.vending.s3_policy import session_policy
from lakepact.server.vending.scope import Credential, Scope
from lakepact.server.vending.sigv4 import Keys


class S3Provider:
    """The `Provider` of a warehouse in S3, or in a store that speaks S3 and STS."""

    def __init__(
        self,
        own: OwnKeys,
        sts: Sts,
        *,
        role_arn: str,
        duration_s: int,
        external_id: str | None = None,
        kms_keys: Sequence[str] = (),
    ) -> None:
        self._own = own
        self._sts = sts
        self._role_arn = role_arn
        self._duration_s = duration_s
        self._external_id = external_id
        self._kms_keys = kms_keys

    async def mint(self, scope: Scope) -> Credential:
        policy = session_policy(scope, role_arn=self._role_arn, kms_keys=self._kms_keys)
        keys = await self._sts.assume(
            await self._own.get(),
            self._role_arn,
            policy=policy,
            duration_s=self._duration_s,
            external_id=self._external_id,
        )
        assert keys.session_token is not None and keys.expires_ms is not None
        config = {
            "s3.access-key-id": keys.access_key_id,
            "s3.secret-access-key": keys.secret,
            "s3.session-token": keys.session_token,
            "s3.session-token-expires-at-ms": str(keys.expires_ms),
        }
        if not scope.right.deletes:
            # So Iceberg's Java clients do not try: a refused deletion of their own leftovers would be an error to some.
            config["s3.delete-enabled"] = "false"
        tag = hashlib.sha256(keys.session_token.encode()).hexdigest()[:16]
        return Credential(scope.prefix, config, keys.expires_ms, tag)

    def refresh(self, path: str) -> Mapping[str, str]:
        return {"client.refresh-credentials-endpoint": path}


def keys_of(credential: Credential) -> Keys:
    """The keys in a credential of this provider."""
    config = credential.config
    return Keys(
        config["s3.access-key-id"],
        config["s3.secret-access-key"],
        config["s3.session-token"],
        credential.expires_ms,
    )
