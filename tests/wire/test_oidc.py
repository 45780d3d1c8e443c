"""Tokens of an identity provider, genuine and hostile, against a real issuer on this machine."""

from __future__ import annotations

import base64
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest
from joserfc.jwk import ECKey, RSAKey

from lakepact.errors import InvalidSetting
from lakepact.runtime import SystemClock
from lakepact.server.app import build
from lakepact.settings import Settings
from tests.support.doors import Door, asking
from tests.support.issuer import Issuer
from tests.support.waiting import wait_until_async

UNAUTHORIZED = (401, "NotAuthorizedException")


@pytest.fixture
def door(tmp_path: Path, issuer: Issuer) -> AbstractAsyncContextManager[Door]:
    return asking(tmp_path, **issuer.settings(oidc_admin_groups="admins, owners"))


def part(document: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(document)).decode().rstrip("=")


async def test_a_genuine_token_says_who_it_is(door: Door, issuer: Issuer) -> None:
    for token in (
        issuer.token(groups=["a", "owners"]),
        issuer.token(key=issuer.rsa, alg="PS256", groups=["a", "owners"]),
        issuer.token(key=issuer.ec, alg="ES256", groups=["a", "owners"]),
        issuer.token(key=issuer.ed, alg="Ed25519", groups=["a", "owners"]),
    ):
        assert await door.who(token) == {
            "name": "alice",
            "account": "default",
            "groups": ["a", "owners"],
            "admin": True,
        }
    assert (await door.who(issuer.token()))["admin"] is False
    assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]


async def test_api_tokens_work_beside_it_and_an_issuers_token_is_not_exchanged(door: Door, issuer: Issuer) -> None:
    made = await door.tokens.create("loader")
    assert (await door.who(made.text))["name"] == "loader"
    answer = await door.oauth(
        grant_type="urn:ietf:params:oauth:grant-type:token-exchange",
        subject_token=issuer.token(),
        subject_token_type="urn:ietf:params:oauth:token-type:access_token",
    )
    assert (answer.status, answer.json()["error"]) == (400, "invalid_grant")


async def test_claims_name_the_principal_as_the_settings_say(tmp_path: Path, issuer: Issuer) -> None:
    given = issuer.settings(
        auth="oidc",
        oidc_name_claim="preferred_username",
        oidc_account_claim="https://example.com/tenant",
        oidc_groups_claim="realm_access.roles",
        oidc_jwks_url=f"{issuer.url}/keys",
        oidc_audience="other, lakepact",
    )
    async with asking(tmp_path, **given) as door:
        said: dict[str, Any] = {
            "preferred_username": "al",
            "https://example.com/tenant": "acme",
            "realm_access": {"roles": ["r"]},
        }
        assert await door.who(issuer.token(**said)) == {
            "name": "al",
            "account": "acme",
            "groups": ["r"],
            "admin": False,
        }
        assert (await door.who(issuer.token(**said, aud=["x", "other"])))["name"] == "al"
        assert issuer.asked == ["/keys"]
        # Without an account nobody is let into any.
        assert await door.who(issuer.token(**{**said, "https://example.com/tenant": None})) == UNAUTHORIZED
        made = await door.tokens.create("loader")
        assert await door.who(made.text) == UNAUTHORIZED


async def test_t_auth_6_hostile_tokens_are_nobodys(door: Door, issuer: Issuer) -> None:
    stranger = RSAKey.generate_key(2048, {"kid": "rsa"})
    good = issuer.token()
    header, payload, signature = good.split(".")
    now_s = int(time.time())
    hostile = {
        "alg none": f"{part({'alg': 'none'})}.{payload}.",
        "alg none with kid": f"{part({'alg': 'none', 'kid': 'rsa'})}.{payload}.{signature}",
        "alg NoNe": f"{part({'alg': 'NoNe', 'kid': 'rsa'})}.{payload}.",
        "the public key as a shared secret": issuer.with_shared_secret(issuer.rsa.as_pem(private=False), "rsa"),
        "the same without its end": issuer.with_shared_secret(issuer.rsa.as_pem(private=False).strip(), "rsa"),
        "a shared secret": issuer.with_shared_secret(b"s" * 32, "rsa"),
        "another key of the same name": issuer.token(key=stranger),
        "its own key in the header": issuer.token(key=stranger, header={"jwk": stranger.as_dict(private=False)}),
        "its own address of keys": issuer.token(key=stranger, header={"jku": "http://127.0.0.1:1/keys"}),
        "a key of another kind": issuer.token(header={"kid": "ec"}),
        "another algorithm than the key's": f"{part({'alg': 'ES384', 'kid': 'ec'})}.{payload}.{signature}",
        "no kid where there are several": issuer.token(header={"kid": None}, key=stranger),
        "kid is a number": issuer.token(header={"kid": 1}),
        "a long kid": issuer.token(header={"kid": "k" * 500}),
        "critical words": issuer.token(header={"crit": ["exp"], "exp": now_s + 10}),
        "a payload that is not encoded": issuer.token(header={"b64": False}),
        "expired": issuer.token(exp=now_s - 61),
        "no exp": issuer.token(exp=None),
        "exp is text": issuer.token(exp=str(now_s + 100)),
        "exp is true": issuer.token(exp=True),
        "exp is no time": issuer.token(exp=1e300),
        "exp is negative": issuer.token(exp=-1),
        "not yet": issuer.token(nbf=now_s + 3_600),
        "made in the future": issuer.token(iat=now_s + 3_600),
        "another issuer": issuer.token(iss=issuer.url + "/"),
        "no issuer": issuer.token(iss=None),
        "another audience": issuer.token(aud="other"),
        "several other audiences": issuer.token(aud=["other", "lakepact2", 1, None]),
        "no audience": issuer.token(aud=None),
        "an audience inside": issuer.token(aud={"lakepact": True}),
        "no name": issuer.token(sub=None),
        "an empty name": issuer.token(sub=" "),
        "a name that ends with a space": issuer.token(sub="alice "),
        "a name that begins with a space": issuer.token(sub=" alice"),
        "a name that ends with another space": issuer.token(sub="alice\u00a0"),
        "a name with a character of no width": issuer.token(sub="ali\u200bce"),
        "a name with a control character": issuer.token(sub="alice\x00"),
        "a name that is none": issuer.token(sub=["alice"]),
        "a name with a line break": issuer.token(sub="alice\nroot"),
        "a long name": issuer.token(sub="a" * 300),
        "groups that are none": issuer.token(groups=[1]),
        "groups in an object": issuer.token(groups={"admins": True}),
        "too many groups": issuer.token(groups=[f"{n:x}" for n in range(1_001)]),
        "a list of claims": issuer.token([issuer.claims()]),
        "no JSON": issuer.token(b"alice"),
        "cut off": good[:-10],
        "another payload": f"{header}.{part(issuer.claims(sub='root'))}.{signature}",
        "five parts": f"{header}.{payload}.{signature}.{payload}.{signature}",
        "two parts": f"{header}.{payload}",
        "a header that is a list": f"{part(['RS256'])}.{payload}.{signature}",
        "huge": issuer.token(padding="x" * 20_000),
        "deep": f"{base64.urlsafe_b64encode(b'[' * 9_000).decode()}.{payload}.{signature}",
        "only dots": "..",
        "control characters": good.replace(".", "\x01.", 1),
    }
    for what, token in hostile.items():
        # Nothing wrong is remembered, and the tests must not be slowed down as an attacker is.
        door.service.auth.guard._failures._level.clear()
        assert await door.who(token) == UNAUTHORIZED, what
    assert (await door.who(good))["name"] == "alice"


async def test_a_little_difference_of_clocks_is_forgiven(
    door: Door, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = int(time.time())
    # The first token stays expired by half of what is forgiven, however long the requests take.
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_s * 1000)
    for token in (issuer.token(exp=now_s - 30), issuer.token(nbf=now_s + 30), issuer.token(iat=now_s + 30)):
        assert (await door.who(token))["name"] == "alice"


async def test_t_auth_7_made_up_names_of_keys_keep_nobody_busy(
    door: Door, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    assert (await door.who(issuer.token()))["name"] == "alice"
    statuses = [(await door.get("/v1/config", issuer.token(header={"kid": f"k{n}"}))).status for n in range(120)]
    assert set(statuses) == {401, 429}
    assert issuer.asked.count("/keys") == 1
    now_s += 11
    assert await door.who(issuer.token(header={"kid": "another"})) == UNAUTHORIZED
    assert issuer.asked.count("/keys") == 2


async def test_a_new_key_is_found_and_an_old_one_forgotten(
    door: Door, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    assert (await door.who(issuer.token()))["name"] == "alice"
    new = ECKey.generate_key("P-256", {"kid": "new"})
    issuer.published = [new.as_dict(private=False)]
    now_s += 11
    assert (await door.who(issuer.token(key=new, alg="ES256")))["name"] == "alice"
    assert await door.who(issuer.token()) == UNAUTHORIZED
    # The only key there is needs no name.
    assert (await door.who(issuer.token(key=new, alg="ES256", header={"kid": None})))["name"] == "alice"


async def test_an_issuer_that_is_down_takes_nobody_else_down(
    door: Door, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s = now_s = SystemClock().monotonic_s()
    began_ms = SystemClock().now_ms()
    # Both clocks: one alone would be a clock that was set.
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: began_ms + int((now_s - began_s) * 1000))

    def token() -> str:
        issued_s = SystemClock().now_ms() // 1000
        return issuer.token(iat=issued_s, exp=issued_s + 300)

    issuer.down = True
    made = await door.tokens.create("loader")
    answer = await door.get("/v1/config", token())
    assert answer.refusal == (503, "ServiceUnavailableException")
    assert answer.header("Retry-After") == "1"
    for _ in range(20):
        assert (await door.get("/v1/config", token())).status == 503
    assert len(issuer.asked) == 1
    assert (await door.who(made.text))["name"] == "loader"

    async def ready() -> bool:
        # The store has 2 s to answer.
        return (await door.get("/readyz")).status == 200

    await wait_until_async(ready, "the server was never ready")
    issuer.down = False
    now_s += 2
    assert (await door.who(token()))["name"] == "alice"
    # Down again, and its keys are known for a day.
    issuer.down = True
    now_s += 3_600
    assert (await door.who(token()))["name"] == "alice"
    now_s += 86_400
    assert (await door.get("/v1/config", token())).status == 503


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": [' + b",".join([b'{"kty": "oct", "k": "AA"}'] * 101) + b"]}",
        b'{"keys": ["' + b"x" * 600_000 + b'"]}',
    ],
    ids=["empty", "no JSON", "a list", "no list", "too many", "too large"],
)
async def test_a_key_set_that_is_none_is_as_good_as_no_answer(body: bytes, door: Door, issuer: Issuer) -> None:
    issuer.body = body
    assert (await door.get("/v1/config", issuer.token())).status == 503


async def test_keys_that_are_not_understood_stand_beside_those_that_are(door: Door, issuer: Issuer) -> None:
    weak = RSAKey.generate_key(1024, {"kid": "weak"})
    strange: list[Any] = [
        None,
        "key",
        {},
        {"kty": "RSA"},
        {"kty": "XYZ"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "oct"},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
        weak.as_dict(private=False),
        issuer.rsa.as_dict(private=False) | {"kid": "enc", "use": "enc"},
    ]
    issuer.published = [*strange, *issuer.published]
    assert (await door.who(issuer.token()))["name"] == "alice"
    assert await door.who(issuer.token(key=weak)) == UNAUTHORIZED
    assert await door.who(issuer.token(header={"kid": "enc"})) == UNAUTHORIZED
    assert await door.who(issuer.with_shared_secret(b"secret", "oct")) == UNAUTHORIZED


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"auth": "oidc"}, "oidc_issuer and oidc_audience"),
        ({"auth": "oidc", "oidc_issuer": "https://a"}, "oidc_issuer and oidc_audience"),
        ({"oidc_algorithms": "RS256,HS256"}, "asymmetric"),
        ({"oidc_algorithms": "none"}, "asymmetric"),
        ({"auth": "ldap"}, "none, tokens, oidc"),
        ({"auth": "none,tokens"}, "none, tokens, oidc"),
        ({"auth": ""}, "none, tokens, oidc"),
        ({"auth_secret": "short"}, "32 characters"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSetting, match=why) as caught:
        Settings.load(**given)
    assert "short" not in str(caught.value)


async def test_keys_are_not_fetched_in_the_clear_from_other_machines() -> None:
    with pytest.raises(InvalidSetting, match="https"):
        await build(
            Settings.load(
                store="memory://",
                warehouse="memory://",
                auth="oidc",
                oidc_issuer="http://id.example.com",
                oidc_audience="x",
            )
        )
