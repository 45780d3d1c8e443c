"""SAS for Azure: signed as Microsoft's own library signs, taken by Azurite, and never wider than the settings say."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl

import pytest

from lakepact.runtime import SystemClock
from lakepact.server.vending.adls import AdlsProvider, AzureIdentity, DelegationKey, signed_access
from lakepact.server.vending.outside import Outside
from lakepact.server.vending.scope import ProviderFailed, Right, Scope
from tests.support import azurite
from tests.support.azurite import ACCOUNT, Azurite
from tests.support.certificates import loopback_certificate
from tests.support.http_stub import Asked, Stub, answering
from tests.support.waiting import PATIENCE_S

KEY = DelegationKey(
    "11111111-2222-3333-4444-555555555555",
    "66666666-7777-8888-9999-000000000000",
    "2026-01-01T00:00:00Z",
    "2026-01-01T04:00:00Z",
    "b",
    "2020-12-06",
    "c2VjcmV0LW9mLXRoZS1rZXk=",
)


def scope(right: Right = Right.WRITE, folder: str = "wh/db/t-1") -> Scope:
    return Scope(f"abfss://lake@{ACCOUNT}.dfs.core.windows.net/{folder}", "lake", folder, right)


@pytest.mark.parametrize(
    ("right", "permissions", "signature"),
    # What azure-storage-file-datalake's generate_directory_sas makes of the same values.
    [
        (Right.READ, "rl", "Fa9etfMM/ceeJkt3ZHhS8a2XVGmHS4YDIfVjimo3xtE="),
        (Right.WRITE, "racwdl", "BHrxLs+OgszBpB/FYYXAgcchR+3px6SWeZfszxKWQWI="),
    ],
)
def test_it_signs_as_microsofts_library_does(right: Right, permissions: str, signature: str) -> None:
    sas = signed_access(
        KEY,
        scope(right),
        account="company",
        start="2025-12-31T23:55:00Z",
        expiry="2026-01-01T01:00:00Z",
        reach="directory",
    )
    fields = dict(parse_qsl(sas))
    assert (fields["sp"], fields["sig"]) == (permissions, signature)
    assert (fields["sr"], fields["sdd"], fields["spr"]) == ("d", "3", "https")


def test_inside_a_transaction_the_signature_deletes_nothing() -> None:
    sas = signed_access(KEY, scope(Right.ADD), account="company", start="a", expiry="b", reach="directory")
    assert dict(parse_qsl(sas))["sp"] == "racwl"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Azurite, Path]]:
    certificate, key = loopback_certificate(tmp_path_factory.mktemp("certificate"))
    with azurite.running((certificate, key)) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        running.create_container("lake")
        yield running, certificate


def entra(asked: Asked) -> tuple[int, str]:
    """Where identities are proved. Azurite reads what a token says, and does not check who signed it."""
    assert asked.path == "/the-tenant/oauth2/v2.0/token", asked.path
    form = asked.form
    assert form["client_id"] == "the-client" and form["scope"] == "https://storage.azure.com/.default"
    if form.get("client_secret") != "the-secret" and form.get("client_assertion") != "federated":
        return 401, '{"error": "invalid_client"}'
    now = int(time.time())
    claims = {
        "aud": "https://storage.azure.com",
        "iss": "https://sts.windows.net/the-tenant/",
        "iat": now,
        "nbf": now - 10,
        "exp": now + 3_600,
        "oid": KEY.oid,
        "tid": KEY.tid,
    }
    parts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in ({"alg": "none"}, claims)]
    return 200, json.dumps({"access_token": b".".join([*parts, b"x"]).decode(), "expires_in": 3_600})


@pytest.fixture
def authority() -> Iterator[Stub]:
    with answering(entra) as stub:
        yield stub


@asynccontextmanager
async def provider_of(
    authority: str, service: str, reach: Literal["directory", "container"] = "container", **options: str
) -> AsyncIterator[AdlsProvider]:
    given = {"tenant_id": "the-tenant", "client_id": "the-client", "client_secret": "the-secret", **options}
    outside = Outside()
    yield AdlsProvider(
        AzureIdentity.of(given, authority),
        outside,
        SystemClock(),
        account=ACCOUNT,
        host=f"{ACCOUNT}.dfs.core.windows.net",
        service=service,
        duration_s=3_600,
        reach=reach,
    )
    await outside.close()


@pytest.fixture
def blob(storage: tuple[Azurite, Path]) -> Callable[..., int]:
    """Ask for a blob with a SAS: the status."""
    server, certificate = storage

    def ask(method: str, name: str, sas: str, body: bytes | None = None) -> int:
        context = ssl.create_default_context(cafile=str(certificate))
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2020-12-06"}
        request = urllib.request.Request(f"{server.endpoint}/lake/{name}?{sas}", body, headers, method=method)
        try:
            with urllib.request.build_opener(*handlers).open(request, timeout=PATIENCE_S) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            return error.code

    return ask


async def test_azurite_takes_the_sas_and_keeps_a_reader_from_writing(
    authority: Stub, storage: tuple[Azurite, Path], blob: Callable[..., int]
) -> None:
    async with provider_of(authority.url, storage[0].endpoint) as provider:
        writer, reader = await provider.mint(scope()), await provider.mint(scope(Right.READ))
        assert writer.prefix == f"abfss://lake@{ACCOUNT}.dfs.core.windows.net/wh/db/t-1/"
        names = {name for name in writer.config if name.startswith("adls.sas-token.")}
        assert names == {f"adls.sas-token.{ACCOUNT}", f"adls.sas-token.{ACCOUNT}.dfs.core.windows.net"}
        assert writer.config["adls.account-name"] == ACCOUNT
        assert writer.config["adls.sas-token"] == writer.config[f"adls.sas-token.{ACCOUNT}"]
        assert writer.config[f"adls.sas-token-expires-at-ms.{ACCOUNT}"] == str(writer.expires_ms)
        assert 3_500_000 < writer.expires_ms - time.time() * 1000 <= 3_600_000
        may_write, may_read = (one.config[f"adls.sas-token.{ACCOUNT}"] for one in (writer, reader))
        assert blob("PUT", "wh/db/t-1/a", may_write, b"x") == 201
        assert blob("GET", "wh/db/t-1/a", may_read) == 200
        assert blob("PUT", "wh/db/t-1/b", may_read, b"x") == 403
        assert blob("DELETE", "wh/db/t-1/a", may_read) == 403
        assert blob("GET", "wh/db/t-1/a", may_read.replace("sp=rl", "sp=racwdl")) == 403
        assert blob("DELETE", "wh/db/t-1/a", may_write) == 202
        # One key of Azure's served both.
        assert len(authority.asked) == 1
        assert provider.refresh("v1/x") == {"adls.refresh-credentials-endpoint": "v1/x"}


async def test_a_federated_token_proves_the_same(
    authority: Stub, storage: tuple[Azurite, Path], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("federated\n")
    given: Any = {"client_secret": "", "federated_token_file": str(tmp_path / "token")}
    async with provider_of(authority.url, storage[0].endpoint, **given) as provider:
        assert (await provider.mint(scope())).config


async def test_a_wrong_secret_is_no_reason_to_give_anything_else(
    authority: Stub, storage: tuple[Azurite, Path]
) -> None:
    async with provider_of(authority.url, storage[0].endpoint, client_secret="wrong") as provider:
        with pytest.raises(ProviderFailed, match="401") as caught:
            await provider.mint(scope())
        assert not caught.value.temporary and "wrong" not in str(caught.value)


async def test_no_delegation_key_is_an_error_that_names_the_role(authority: Stub) -> None:
    with answering(lambda asked: (403, "")) as service:
        async with provider_of(authority.url, service.url) as provider:
            with pytest.raises(ProviderFailed, match="Storage Blob Delegator"):
                await provider.mint(scope())
