"""A lake in S3 that nobody has keys to but the server: what the suites about storage credentials share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import orjson

from tests.support.s3_guarded import ROLE, Guard

NO_KEYS: Final = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
"""For an engine: no key of its own, and no waiting for one."""


def server_env(guard: Guard, **more: object) -> dict[str, str]:
    """The environment of a server whose warehouse is in the guard's bucket, and who gives credentials for it."""
    credentials = {"role_arn": ROLE, "sts_endpoint": guard.url, **more}
    return {
        "LAKEPACT_WAREHOUSE": f"s3://{guard.bucket}/warehouse",
        "LAKEPACT_WAREHOUSE_OPTIONS": orjson.dumps(guard.options()).decode(),
        "LAKEPACT_WAREHOUSE_CREDENTIALS": orjson.dumps(credentials).decode(),
    }


def without_keys(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("AWS_")} | NO_KEYS
