"""From settings to vendors: what cannot be kept is refused at the start."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.errors import InvalidSetting
from lakepact.runtime import SystemClock
from lakepact.server.vending import Outside, vendors_of
from lakepact.server.vending.delegation import Vendor
from lakepact.settings import Place, StorageCredentials

MINIO = {"endpoint": "http://minio.example:9000"}


def vendor(url: str, options: dict[str, str] | None = None, **credentials: Any) -> Vendor:
    place = Place(url=url, options=options or {}, credentials=StorageCredentials(**credentials))
    return vendors_of({"main": place}, Outside(), SystemClock())["main"]


def test_t_vend_6_the_servers_own_keys_sign_only_where_unsigned_headers_are_refused() -> None:
    for options in ({}, {"endpoint": "https://s3.eu-central-1.amazonaws.com"}):
        assert vendor("s3://lake/wh", options, remote_signing=True).signer is not None
    for elsewhere in (MINIO, {"endpoint": "https://s3.eu-central-1.amazonaws.com.example.org"}):
        with pytest.raises(InvalidSetting, match="unsafe_sign_with_server_keys"):
            vendor("s3://lake/wh", elsewhere, remote_signing=True)
    with pytest.raises(InvalidSetting, match="unsafe_sign_with_server_keys"):
        vendor("s3://lake/wh", remote_signing=True, client_endpoint=MINIO["endpoint"])
    # With a role the keys are those of one table.
    role = "arn:aws:iam::123456789012:role/lakepact-tables"
    assert vendor("s3://lake/wh", MINIO, remote_signing=True, role_arn=role).signer is not None
    assert vendor("s3://lake/wh", MINIO, remote_signing=True, unsafe_sign_with_server_keys=True).signer is not None
