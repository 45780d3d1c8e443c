"""Where objects live, and how to reach them: one URL and a few options make a bucket.

Options are obstore's own names (`endpoint`, `region`, `access_key_id`, `account_key`, ...). What is not given comes
from the usual environment variables and credential chains of each cloud. Two clients are made of them: one that never
retries, for conditional writes, and one that does, for reads.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from lakepact.errors import InvalidRequest, InvalidSetting
from lakepact.stores.objects_answers import reason_of

PARALLEL_REQUESTS: Final = 128
"""Requests under way at once from one store; more wait their turn."""

_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "timeout",
        "user_agent",
    }
)

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")

_NO_RETRY: Final = {"max_retries": 0}
_RETRY: Final = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2},
}


class Cloud(StrEnum):
    S3 = "s3"
    GCS = "gs"
    AZURE = "az"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket (or container), the prefix in it that is ours, and the two clients to reach it."""

    cloud: Cloud
    name: str
    prefix: str
    """Empty, or ending in `/`."""

    reading: ObjectStore
    """Retries by itself: reads, and writes that may be repeated."""

    writing: ObjectStore
    """Never retries: a retry that meets its own first attempt looks like a refusal."""

    turns: asyncio.Semaphore

    @property
    def url(self) -> str:
        return f"{self.cloud}://{self.name}/{self.prefix}"

    def path(self, name: str) -> str:
        """The object's whole key. A name that no object can have raises InvalidRequest."""
        if any(segment in ("", ".", "..") for segment in name.split("/")) or _CONTROL.search(name):
            raise InvalidRequest(
                f"{name!r} cannot be an object name: it holds a control character, or a segment that is empty, "
                f"'.' or '..'"
            )
        return self.prefix + name

    @property
    def lists_in_order(self) -> bool:
        """Whether listings come in bytewise order of whole names.

        Azure accounts with a hierarchical namespace list folder by folder (`a/b` before `a-b`), and nothing in an
        answer tells them from flat ones. S3 directory buckets list in no order at all.
        """
        return self.cloud is not Cloud.AZURE and not self.name.endswith("--x-s3")


def open_bucket(
    cloud: Cloud, name: str, prefix: str, options: Mapping[str, str] | None = None, *, timeout_s: float = 20.0
) -> Bucket:
    """The bucket behind these words. No request is sent; a wrong option raises InvalidSetting."""
    given = {key.lower(): value for key, value in (options or {}).items()}
    client_options: dict[str, Any] = {"timeout": f"{timeout_s:g}s", "connect_timeout": "5s"}
    client_options |= {key: given.pop(key) for key in _CLIENT_OPTIONS & given.keys()}
    if cloud is Cloud.GCS and "endpoint" in given:
        given["base_url"] = given.pop("endpoint")
    if cloud is Cloud.S3:
        # We delete one object at a time, and not every S3-compatible store has the bulk request.
        given.setdefault("disable_bulk_delete", "true")
    # An endpoint spelled http:// is a decision already made.
    if any(given.get(key, "").startswith("http://") for key in ("endpoint", "base_url", "aws_endpoint_url_s3")):
        client_options.setdefault("allow_http", "true")
    try:
        return Bucket(
            cloud=cloud,
            name=name,
            prefix=f"{prefix.strip('/')}/" if prefix.strip("/") else "",
            reading=_client(cloud, name, given, client_options, _RETRY),
            writing=_client(cloud, name, given, client_options, _NO_RETRY),
            turns=asyncio.Semaphore(PARALLEL_REQUESTS),
        )
    except (BaseError, ValueError, TypeError) as error:
        raise InvalidSetting(
            f"{cloud}://{name}: {reason_of(error)}. Options are obstore's names, such as "
            f"{', '.join(_EXAMPLES[cloud])}; without them the usual environment variables are read."
        ) from error


_EXAMPLES: Final = {
    Cloud.S3: ("endpoint", "region", "access_key_id", "secret_access_key"),
    Cloud.GCS: ("service_account", "application_credentials", "endpoint"),
    Cloud.AZURE: ("account_name", "account_key", "endpoint"),
}


def _client(
    cloud: Cloud, name: str, config: Mapping[str, str], client_options: Mapping[str, Any], retry: Mapping[str, Any]
) -> ObjectStore:
    settings: dict[str, Any] = {
        "config": dict(config),
        "client_options": dict(client_options),
        "retry_config": dict(retry),
    }
    match cloud:
        case Cloud.S3:
            return S3Store(name, **settings)
        case Cloud.GCS:
            return GCSStore(name, **settings)
        case Cloud.AZURE:
            return AzureStore(name, **settings)
