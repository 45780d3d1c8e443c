"""From settings to vendors: what cannot be kept is refused at the start."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.errors import InvalidSetting
from lakepact.runtime import SystemClock
from lakepact.server.vending import Outside, vendors_of
from lakepact.server.vending.delegation import Vendor
from lakepact.server.vending.scope import Right, Scope
from lakepact.settings import Place, StorageCredentials
from lakepact.stores.urls import azure_host, azure_service
from tests.support.http_stub import Asked, answering

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


async def test_an_account_in_a_cloud_of_its_own_is_named_as_its_url_names_it() -> None:
    def service(asked: Asked) -> tuple[int, str]:
        if asked.path.startswith("/the-tenant/"):
            return 200, '{"access_token": "t"}'
        texts = ("SignedOid", "SignedTid", "SignedStart", "SignedExpiry", "SignedService", "SignedVersion")
        fields = "".join(f"<{name}>x</{name}>" for name in texts)
        return 200, f"<UserDelegationKey>{fields}<Value>AAAA</Value></UserDelegationKey>"

    identity = {"tenant_id": "the-tenant", "client_id": "c", "client_secret": "s"}
    url = "abfss://lake@company.dfs.core.chinacloudapi.cn/wh"
    with answering(service) as stub:
        found = vendor(url, identity, authority=stub.url, sts_endpoint=stub.url)
        assert found.provider is not None
        config = (await found.provider.mint(Scope(f"{url}/t", "lake", "wh/t", Right.READ))).config
    assert "adls.sas-token.company.dfs.core.chinacloudapi.cn" in config
    assert not any("windows.net" in name for name in config)


def test_azures_hosts() -> None:
    for url, host in (
        ("abfss://c@company.dfs.core.windows.net/x", "company.dfs.core.windows.net"),
        ("abfss://c@Company.dfs.core.usgovcloudapi.net", "company.dfs.core.usgovcloudapi.net"),
        ("abfss://c@company/x", "company.dfs.core.windows.net"),
        ("az://c/x", "company.dfs.core.windows.net"),
    ):
        assert azure_host(url, "company") == host
        assert azure_service(host) == f"https://{host.replace('dfs', 'blob')}"
