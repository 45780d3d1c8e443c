"""The server's own keys, from each place they may be in, in order."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lakepact.runtime import SystemClock
from lakepact.server.vending.aws_identity import OwnKeys
from lakepact.server.vending.aws_sts import Sts
from lakepact.server.vending.outside import Outside
from lakepact.server.vending.scope import ProviderFailed
from tests.support.http_stub import Asked, answering

KEYS = {"AccessKeyId": "AK", "SecretAccessKey": "secret", "Token": "token"}


def expiry(in_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + in_s))


@asynccontextmanager
async def own_keys(
    environment: Mapping[str, str], options: Mapping[str, str] | None = None, sts: str = "http://127.0.0.1:1"
) -> AsyncIterator[OwnKeys]:
    outside, clock = Outside(), SystemClock()
    yield OwnKeys(options or {}, outside, clock, Sts(outside, clock, region="x", endpoint=sts), environment)
    await outside.close()


async def test_options_go_before_the_environment() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "E", "AWS_SECRET_ACCESS_KEY": "e", "AWS_SESSION_TOKEN": "t"}
    async with own_keys(environment, {"AWS_Access_Key_Id": "O", "secret_access_key": "o", "token": "ot"}) as own:
        keys = await own.get()
        assert (keys.access_key_id, keys.secret, keys.session_token) == ("O", "o", "ot")
    async with own_keys(environment) as own:
        keys = await own.get()
        assert (keys.access_key_id, keys.secret, keys.session_token) == ("E", "e", "t")


async def test_a_web_identity(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("jwt\n")

    def sts(asked: Asked) -> tuple[int, str]:
        form = asked.form
        assert form["Action"] == "AssumeRoleWithWebIdentity" and form["WebIdentityToken"] == "jwt"
        assert form["RoleArn"] == "role" and "authorization" not in asked.headers
        return 200, (
            f"<R xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><Credentials><AccessKeyId>W</AccessKeyId>"
            f"<SecretAccessKey>w</SecretAccessKey><SessionToken>t</SessionToken><Expiration>{expiry(3600)}</Expiration>"
            f"</Credentials></R>"
        )

    environment = {"AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"), "AWS_ROLE_ARN": "role"}
    with answering(sts) as stub:
        async with own_keys(environment, sts=stub.url) as own:
            assert (await own.get()).access_key_id == "W"
            assert (await own.get()).access_key_id == "W"
        assert len(stub.asked) == 1
    async with own_keys({**environment, "AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere"}) as own:
        with pytest.raises(ProviderFailed, match="cannot be read"):
            await own.get()


async def test_a_containers_service_is_asked_again_before_the_keys_expire() -> None:
    def service(asked: Asked) -> tuple[int, str]:
        assert asked.headers["authorization"] == "let-me-in"
        return 200, json.dumps({**KEYS, "Expiration": expiry(200)})

    with answering(service) as stub:
        environment = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{stub.url}/creds",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "let-me-in",
        }
        async with own_keys(environment) as own:
            assert (await own.get()).session_token == "token"
            await own.get()
        assert len(stub.asked) == 2
    async with own_keys({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://elsewhere.example/creds"}) as own:
        with pytest.raises(ProviderFailed, match="another machine"):
            await own.get()


async def test_the_machines_service_with_its_token() -> None:
    def service(asked: Asked) -> tuple[int, str]:
        if asked.method == "PUT":
            assert asked.path == "/latest/api/token" and asked.headers["x-aws-ec2-metadata-token-ttl-seconds"] == "300"
            return 200, "session"
        assert asked.headers["x-aws-ec2-metadata-token"] == "session"
        path = "/latest/meta-data/iam/security-credentials/"
        if asked.path == path:
            return 200, "the-role"
        assert asked.path == f"{path}the-role"
        return 200, json.dumps({**KEYS, "Expiration": expiry(3600)})

    with answering(service) as stub:
        async with own_keys({"AWS_EC2_METADATA_SERVICE_ENDPOINT": stub.url}) as own:
            assert (await own.get()).access_key_id == "AK"


@pytest.mark.parametrize(
    "environment",
    [{"AWS_EC2_METADATA_DISABLED": "true"}, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}],
)
async def test_nobody_at_all_says_what_to_do(environment: Mapping[str, str]) -> None:
    async with own_keys(environment) as own:
        with pytest.raises(ProviderFailed, match="no AWS keys") as caught:
            await own.get()
        assert not caught.value.temporary


async def test_redirects_are_not_followed() -> None:
    with answering(lambda asked: (302, "")) as stub:
        async with own_keys({"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{stub.url}/creds"}) as own:
            with pytest.raises(ProviderFailed, match="302"):
                await own.get()


async def test_a_token_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("missing", "binary"):
        environment = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:1/creds",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / name),
        }
        async with own_keys(environment) as own:
            with pytest.raises(ProviderFailed, match="AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE cannot be read"):
                await own.get()


@pytest.mark.parametrize("answer", ["[]", '"keys"', "null", "{}", json.dumps({**KEYS, "Expiration": None}), "no"])
async def test_an_answer_that_is_not_keys_says_so(answer: str) -> None:
    with answering(lambda asked: (200, answer)) as stub:
        async with own_keys({"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{stub.url}/creds"}) as own:
            with pytest.raises(ProviderFailed, match="not keys"):
                await own.get()
