"""Narrowed tokens for Google: what is sent to its services, which no emulator has, is checked by strict stubs."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from lakepact.runtime import SystemClock
from lakepact.server.vending.gcs import GcsProvider, GoogleIdentity, boundary
from lakepact.server.vending.outside import Outside
from lakepact.server.vending.scope import ProviderFailed, Right, Scope
from tests.support.http_stub import Asked, answering

SCOPE = Scope("gs://lake/wh/db/t-1", "lake", "wh/db/t-1", Right.READ)
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


def exchange(asked: Asked) -> tuple[int, str]:
    assert asked.path == "/v1/token" and asked.method == "POST"
    form = asked.form
    assert form.pop("grant_type") == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert form.pop("subject_token_type") == form.pop("requested_token_type") == ACCESS_TOKEN
    assert json.loads(form.pop("options")) == boundary(SCOPE)
    if form.pop("subject_token") != "own-token":
        return 401, "{}"
    assert form == {}
    # As Google does it: without a time, as it ends with the token it was made from.
    return 200, json.dumps({"access_token": "narrow", "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer"})


async def test_the_machines_token_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    def metadata(asked: Asked) -> tuple[int, str]:
        assert asked.headers["metadata-flavor"] == "Google"
        assert asked.path == "/computeMetadata/v1/instance/service-accounts/default/token"
        return 200, json.dumps({"access_token": "own-token", "expires_in": 1_800})

    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    with answering(metadata) as machine, answering(exchange) as sts:
        monkeypatch.setenv("GCE_METADATA_HOST", machine.url.removeprefix("http://"))
        outside, clock = Outside(), SystemClock()
        provider = GcsProvider(GoogleIdentity({}, outside, clock), outside, clock, sts=f"{sts.url}/v1/token")
        found = await provider.mint(SCOPE)
        await provider.mint(SCOPE)
        await outside.close()
        assert len(machine.asked) == 1
    assert found.prefix == "gs://lake/wh/db/t-1/"
    assert found.config == {"gcs.oauth2.token": "narrow", "gcs.oauth2.token-expires-at": str(found.expires_ms)}
    assert 1_700_000 < found.expires_ms - time.time() * 1000 <= 1_800_000
    assert provider.refresh("v1/x")["gcs.oauth2.refresh-credentials-endpoint"] == "v1/x"


async def test_the_machines_token_is_not_asked_for_again_while_it_would_be_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    left_s = 600
    token = json.dumps({"access_token": "own-token", "expires_in": left_s})
    with answering(lambda asked: (200, token)) as machine, answering(exchange) as sts:
        monkeypatch.setenv("GCE_METADATA_HOST", machine.url.removeprefix("http://"))
        outside, clock = Outside(), SystemClock()
        provider = GcsProvider(GoogleIdentity({}, outside, clock), outside, clock, sts=f"{sts.url}/v1/token")
        for _ in range(3):
            await provider.mint(SCOPE)
        await outside.close()
        assert len(machine.asked) == 1 and len(sts.asked) == 3


async def test_a_service_accounts_key_is_used_where_it_is_given(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    def tokens(asked: Asked) -> tuple[int, str]:
        head, claims, signature = asked.form["assertion"].split(".")
        decoded = [base64.urlsafe_b64decode(part + "==") for part in (head, claims, signature)]
        key.public_key().verify(decoded[2], f"{head}.{claims}".encode(), padding.PKCS1v15(), SHA256())
        said = json.loads(decoded[1])
        assert said["iss"] == "lakepact@project.iam" and said["exp"] - said["iat"] == 3_600
        assert json.loads(decoded[0])["alg"] == "RS256"
        return 200, json.dumps({"access_token": "own-token", "expires_in": 3_600})

    with answering(tokens) as google, answering(exchange) as sts:
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
        account = {"client_email": "lakepact@project.iam", "private_key": pem, "token_uri": f"{google.url}/token"}
        (tmp_path / "key.json").write_text(json.dumps(account))
        outside, clock = Outside(), SystemClock()
        for options in (
            {"service_account": str(tmp_path / "key.json")},
            {"google_service_account_key": json.dumps(account)},
        ):
            identity = GoogleIdentity(options, outside, clock)
            provider = GcsProvider(identity, outside, clock, sts=f"{sts.url}/v1/token")
            assert (await provider.mint(SCOPE)).config["gcs.oauth2.token"] == "narrow"
        await outside.close()


@pytest.mark.parametrize(("status", "temporary"), [(400, False), (403, False), (429, True), (503, True)])
async def test_an_exchange_that_fails_is_an_error(
    status: int, temporary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = json.dumps({"access_token": "own-token", "expires_in": 3_600})
    with answering(lambda asked: (200, own)) as machine, answering(lambda asked: (status, "{}")) as sts:
        monkeypatch.setenv("GCE_METADATA_HOST", machine.url.removeprefix("http://"))
        outside, clock = Outside(), SystemClock()
        provider = GcsProvider(GoogleIdentity({}, outside, clock), outside, clock, sts=sts.url)
        with pytest.raises(ProviderFailed, match=str(status)) as caught:
            await provider.mint(SCOPE)
        await outside.close()
    assert caught.value.temporary is temporary and "own-token" not in str(caught.value)
