"""AWS's Security Token Service: keys for a while, for a role, narrowed by a policy."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree

import structlog

from lakepact.kernel.ports import Clock
from lakepact.server.vending.outside import Answer, Outside
from lakepact.server.vending.scope import ProviderFailed
from lakepact.server.vending.sigv4 import Keys, sha256, signed_headers

_VERSION: Final = "2011-06-15"
_SESSION: Final = "lakepact"
_NAMESPACE: Final = re.compile(r"\{[^}]*\}")
_TEMPORARY: Final = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "IDPCommunicationError"})

_log = structlog.get_logger(__name__)


class Sts:
    def __init__(self, outside: Outside, clock: Clock, *, region: str, endpoint: str | None = None) -> None:
        self._outside = outside
        self._clock = clock
        self._region = region
        ending = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        self._endpoint = (endpoint or f"https://sts.{region}.{ending}").rstrip("/")

    async def assume(
        self, own: Keys, role_arn: str, *, policy: str, duration_s: int, external_id: str | None = None
    ) -> Keys:
        """Keys that may do what the role may and the policy says. Signed with the server's own."""
        fields = {
            "Action": "AssumeRole",
            "RoleArn": role_arn,
            "RoleSessionName": _SESSION,
            "DurationSeconds": str(duration_s),
            "Policy": policy,
            **({} if external_id is None else {"ExternalId": external_id}),
        }
        return await self._ask(fields, own)

    async def assume_with_web_identity(self, role_arn: str, token: str) -> Keys:
        """Keys for one who comes with a token instead of keys."""
        fields = {
            "Action": "AssumeRoleWithWebIdentity",
            "RoleArn": role_arn,
            "RoleSessionName": _SESSION,
            "WebIdentityToken": token,
        }
        return await self._ask(fields, None)

    async def _ask(self, fields: dict[str, str], own: Keys | None) -> Keys:
        body = urlencode({**fields, "Version": _VERSION}).encode()
        host = urlsplit(self._endpoint).netloc
        headers = {"host": host, "content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        if own is not None:
            headers = signed_headers(
                "POST",
                "/",
                "",
                headers,
                sha256(body),
                own,
                region=self._region,
                service="sts",
                now_ms=self._clock.now_ms(),
            )
        return self._keys(await self._outside.send("POST", f"{self._endpoint}/", headers, body), fields["Action"])

    def _keys(self, answer: Answer, action: str) -> Keys:
        found = _texts(answer)
        if answer.status != 200:
            code = found.get("Code", "no code")
            # What it says in full names accounts and users, which is for those who run the server.
            _log.warning("STS refused", action=action, status=answer.status, code=code, message=found.get("Message"))
            raise ProviderFailed(
                f"AWS STS answered {answer.status} ({code[:60]}) to {action}; the server's log has more. Check the "
                f"role, its trust policy and the server's own keys",
                temporary=answer.is_temporary or code in _TEMPORARY,
            )
        try:
            return Keys(
                found["AccessKeyId"],
                found["SecretAccessKey"],
                found["SessionToken"],
                parse_expiration(found["Expiration"]),
            )
        except (KeyError, ValueError) as error:
            raise ProviderFailed(f"AWS STS answered {action} without keys in it", temporary=False) from error


def parse_expiration(text: str) -> int:
    """In milliseconds."""
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _texts(answer: Answer) -> dict[str, str]:
    """Every element that is only text, by its name. A small document, in whatever namespace."""
    try:
        root = ElementTree.fromstring(answer.body)
    except ElementTree.ParseError:
        return {}
    return {_NAMESPACE.sub("", one.tag): (one.text or "").strip() for one in root.iter() if not len(one)}
