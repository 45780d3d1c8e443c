"""Who is asking: API tokens and access tokens, over the whole server without a socket."""

from __future__ import annotations

import base64
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import orjson
import pytest

from lakepact.runtime import SystemClock
from lakepact.server.auth.tokens import Shown
from tests.support.doors import Door, asking

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


@pytest.fixture
def door(tmp_path: Path) -> AbstractAsyncContextManager[Door]:
    return asking(tmp_path)


async def test_without_a_token_there_is_401_in_the_specified_form_and_a_challenge(door: Door) -> None:
    for method, path in (
        ("GET", "/v1/config"),
        ("GET", "/v1/main/namespaces"),
        ("POST", "/v1/main/transactions/commit"),
        ("DELETE", "/v1/main/namespaces/a/tables/b"),
        ("GET", "/v1/tokens"),
        ("GET", "/metrics"),
    ):
        answer = await door.client.send(method, path)
        assert answer.refusal == (401, "NotAuthorizedException"), path
        assert answer.header("WWW-Authenticate") == 'Bearer realm="lakepact"'


async def test_t_auth_1_no_operation_answers_without_a_name_but_those_that_must(tmp_path: Path) -> None:
    must = {"livez", "readyz", "health", "getToken", "showStatic"}
    # The way in for people: nobody has a name before it is over.
    must |= {"showLogin", "submitLogin", "startLogin", "leaveIssuer", "finishLogin"}
    async with asking(tmp_path, open_docs=False) as door:
        assert {route.operation for route in door.service.routes if route.open} == must
        asked = [route for route in door.service.routes if not route.open]
        assert len(asked) > 80
        for route in asked:
            answer = await door.client.send(route.method, re.sub(r"\{\w+\}", "main", route.template))
            if route.template.startswith("/ui"):
                assert answer.status == 303 and "/ui/login" in (answer.header("Location") or ""), route
            else:
                assert answer.status == 401 and answer.header("WWW-Authenticate") == 'Bearer realm="lakepact"', route


async def test_health_answers_everybody_and_metrics_and_docs_by_setting(tmp_path: Path) -> None:
    async with asking(tmp_path) as door:
        for path in ("/livez", "/readyz", "/health", "/docs", "/openapi.json"):
            assert (await door.get(path)).status == 200
    async with asking(tmp_path, open_metrics=True, open_docs=False) as door:
        assert (await door.get("/metrics")).status == 200
        assert (await door.get("/docs")).status == (await door.get("/openapi.json")).status == 401


async def test_a_token_says_who_it_is(door: Door) -> None:
    made = await door.tokens.create("loader", account="acme", groups=frozenset({"b", "a"}))
    assert await door.who(made.text) == {
        "name": "loader",
        "account": "acme",
        "groups": ["a", "b"],
        "admin": False,
    }
    # Recognised, and of an account that has no warehouse here.
    assert (await door.get("/v1/config", made.text)).refusal == (404, "NoSuchWarehouseException")


async def test_what_the_catalog_keeps_names_the_principal(door: Door) -> None:
    made = await door.tokens.create("loader", admin=True)
    answer = await door.post("/v1/main/namespaces", {"namespace": ["db"]}, made.text)
    assert answer.status == 200, answer.body


async def test_t_auth_2_tokens_that_are_not_ours_are_401_whatever_they_look_like(door: Door) -> None:
    made: Shown = await door.tokens.create("loader")
    id, secret = made.token.id, made.secret
    wrong = [
        f"lakepact_{id}_{'a' * 52}",
        f"lakepact_{'a' * 16}_{secret}",
        f"lakepact_{id}_{secret}a",
        f"lakepact_{id}_{secret[:-1]}",
        f"LAKEPACT_{id}_{secret}",
        f"lakepact_{id}",
        id,
        secret,
        "x",
        "x" * 100_000,
        "..",
        "a.b.c",
        "ünïcode",
        made.text.replace("_", "＿"),
    ]
    for token in wrong:
        answer = await door.get("/v1/config", token)
        assert answer.refusal == (401, "NotAuthorizedException"), token
        assert 'error="invalid_token"' in (answer.header("WWW-Authenticate") or "")
        assert token[:200] not in answer.error["message"]
    for header in ("Bearer", "Bearer ", f"Basic {made.text}", made.text, f"Token {made.text}"):
        answer = await door.client.send("GET", "/v1/config", headers={"Authorization": header})
        assert answer.status == 401, header
    assert (await door.get("/v1/config", made.text)).status == 200


async def test_t_auth_4_a_token_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    async with asking(tmp_path) as door, asking(tmp_path, expired_status=419) as other:
        made = await door.tokens.create("loader", expires_in_s=60)
        access = (
            await door.oauth(made.text and f"{made.token.id}:{made.secret}", grant_type="client_credentials")
        ).json()
        assert access["expires_in"] == 60
        assert (await door.who(made.text))["name"] == "loader"
        now_ms += 60_000
        for token in (made.text, access["access_token"]):
            assert await door.who(token) == (401, "NotAuthorizedException")
            assert await other.who(token) == (419, "AuthenticationTimeoutException")


async def test_rotation_leaves_the_old_secret_its_grace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    async with asking(tmp_path) as door:
        made = await door.tokens.create("loader")
        given = (await door.oauth(f"{made.token.id}:{made.secret}", grant_type="client_credentials")).json()
        rotated = await door.tokens.rotate(made.token.id, grace_s=60)
        assert rotated.text != made.text
        for token in (made.text, rotated.text, given["access_token"]):
            assert (await door.who(token))["name"] == "loader"
        now_ms += 60_000
        assert await door.who(made.text) == (401, "NotAuthorizedException")
        assert await door.who(given["access_token"]) == (401, "NotAuthorizedException")
        assert (await door.who(rotated.text))["name"] == "loader"
        at_once = await door.tokens.rotate(made.token.id, grace_s=0)
        assert await door.who(rotated.text) == (401, "NotAuthorizedException")
        assert (await door.who(at_once.text))["name"] == "loader"


async def test_t_auth_4_a_revoked_token_ends_with_everything_that_was_given_out_for_it(door: Door) -> None:
    made = await door.tokens.create("loader")
    given = (await door.oauth(f"{made.token.id}:{made.secret}", grant_type="client_credentials")).json()
    await door.tokens.revoke(made.token.id)
    for token in (made.text, given["access_token"]):
        assert await door.who(token) == (401, "NotAuthorizedException")
    refreshed = await door.oauth(
        grant_type=EXCHANGE, subject_token=given["access_token"], subject_token_type=ACCESS_TOKEN
    )
    assert (refreshed.status, refreshed.json()["error"]) == (400, "invalid_grant")


async def test_a_good_token_is_remembered_no_longer_than_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    async with asking(tmp_path, token_cache_s=5) as door:
        made = await door.tokens.create("loader")
        assert (await door.who(made.text))["name"] == "loader"
        await door.tokens.revoke(made.token.id)
        now_s += 4.9
        assert (await door.who(made.text))["name"] == "loader"
        now_s += 0.2
        assert await door.who(made.text) == (401, "NotAuthorizedException")


# --- OAuth -----------------------------------------------------------------------------------------------------------


async def test_a_credential_gives_an_access_token_in_every_way_that_clients_send_it(door: Door) -> None:
    made = await door.tokens.create("loader", groups=frozenset({"g"}))
    id, secret = made.token.id, made.secret
    grant = {"grant_type": "client_credentials", "scope": "catalog"}
    for answer in (
        await door.oauth(**grant, client_id=id, client_secret=secret),
        await door.oauth(f"{id}:{secret}", **grant),
        await door.oauth(**grant, client_secret=made.text),
        await door.oauth(**grant, client_id=id, client_secret=made.text),
    ):
        assert answer.status == 200, answer.body
        document = answer.json()
        assert (document["token_type"], document["expires_in"]) == ("bearer", 3600)
        assert document["issued_token_type"] == ACCESS_TOKEN
        assert answer.header("Cache-Control") == "no-store"
        assert (await door.who(document["access_token"]))["groups"] == ["g"]


async def test_an_access_token_is_refreshed_by_exchange_also_when_it_has_expired_and_the_credential_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = SystemClock().now_ms()
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: now_ms)
    async with asking(tmp_path, access_token_s=60) as door:
        made = await door.tokens.create("loader")
        other = await door.tokens.create("other")
        exchange = {"grant_type": EXCHANGE, "subject_token_type": ACCESS_TOKEN}
        first = (await door.oauth(**exchange, subject_token=made.text)).json()["access_token"]
        now_ms += 59_000
        second = (await door.oauth(**exchange, subject_token=first)).json()["access_token"]
        now_ms += 2_000
        assert await door.who(first) == (401, "NotAuthorizedException")
        assert (await door.who(second))["name"] == "loader"
        late = await door.oauth(**exchange, subject_token=first)
        assert (late.status, late.json()["error"]) == (401, "invalid_grant")
        shown = await door.oauth(f"{made.token.id}:{made.secret}", **exchange, subject_token=first)
        assert (await door.who(shown.json()["access_token"]))["name"] == "loader"
        foreign = await door.oauth(f"{other.token.id}:{other.secret}", **exchange, subject_token=first)
        assert (foreign.status, foreign.json()["error"]) == (401, "invalid_client")


async def test_oauth_errors_are_in_oauths_form(door: Door) -> None:
    made = await door.tokens.create("loader")
    known = {"client_id": made.token.id, "client_secret": made.secret}
    for form, status, error in (
        ({}, 400, "invalid_request"),
        ({"grant_type": "password"}, 400, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, 401, "invalid_client"),
        ({"grant_type": "client_credentials", **known, "client_secret": "a" * 52}, 401, "invalid_client"),
        ({"grant_type": "client_credentials", **known, "client_id": "x"}, 401, "invalid_client"),
        ({"grant_type": EXCHANGE, "subject_token": made.text}, 400, "invalid_request"),
        (
            {"grant_type": EXCHANGE, "subject_token": "x", "subject_token_type": ACCESS_TOKEN},
            400,
            "invalid_grant",
        ),
        (
            {
                "grant_type": EXCHANGE,
                "subject_token": made.text,
                "subject_token_type": ACCESS_TOKEN,
                "actor_token": "x",
            },
            400,
            "invalid_request",
        ),
    ):
        answer = await door.oauth(**form)
        assert (answer.status, answer.json()["error"]) == (status, error), form
        assert (answer.header("WWW-Authenticate") is not None) == (status == 401)
        assert made.secret not in answer.body.decode()
    as_json = await door.post("/v1/oauth/tokens", {"grant_type": "client_credentials"})
    assert (as_json.status, as_json.json()["error"]) == (400, "invalid_request")
    for body in (b"\xff", b"&".join(b"a%d=1" % n for n in range(50)), b"grant_type=a&grant_type=b"):
        answer = await door.client.send(
            "POST",
            "/v1/oauth/tokens",
            body=body,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        assert (answer.status, answer.json()["error"]) == (400, "invalid_request")


async def test_without_authentication_every_credential_gets_a_token_without_meaning(tmp_path: Path) -> None:
    async with asking(tmp_path, auth="none") as door:
        for answer in (
            await door.oauth(grant_type="client_credentials", client_id="a", client_secret="b"),
            await door.oauth("a:b", grant_type="client_credentials"),
            await door.oauth(grant_type=EXCHANGE, subject_token="anonymous", subject_token_type=ACCESS_TOKEN),
        ):
            assert answer.status == 200
            given = answer.json()
            assert (given["access_token"], given["token_type"]) == ("anonymous", "bearer")
            assert given["expires_in"] > 0
            assert (await door.get("/v1/config", given["access_token"])).status == 200
        assert (await door.oauth(grant_type="password", username="a", password="b")).json() == {
            "error": "unsupported_grant_type",
            "error_description": f"grant_type is client_credentials or {EXCHANGE}",
        }


async def test_the_token_without_meaning_is_refused_by_a_server_with_authentication(tmp_path: Path) -> None:
    async with asking(tmp_path) as door:
        assert await door.who("anonymous") == (401, "NotAuthorizedException")
        refused = await door.oauth(grant_type="client_credentials", client_id="a", client_secret="b")
        assert (refused.status, refused.json()["error"]) == (401, "invalid_client")


async def test_t_auth_5_an_access_token_that_was_tampered_with_is_nobodys(door: Door) -> None:
    made = await door.tokens.create("loader")
    given = (await door.oauth(f"{made.token.id}:{made.secret}", grant_type="client_credentials")).json()
    header, payload, mac = given["access_token"].split(".")
    said = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))

    def part(document: Any) -> str:
        return base64.urlsafe_b64encode(orjson.dumps(document)).decode().rstrip("=")

    known = orjson.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    for forged in (
        f"{header}.{part({**said, 'exp': said['exp'] + 10_000})}.{mac}",
        f"{part({**known, 'alg': 'none'})}.{payload}.",
        f"{part({**known, 'alg': 'none'})}.{payload}.{mac}",
        f"{part({**known, 'typ': 'lakepact-session'})}.{payload}.{mac}",
        f"{part({**known, 'kid': 'other'})}.{payload}.{mac}",
        f"{header}.{payload}.{mac[:-1]}",
        f"{header}.{payload}.",
        f"{header}.{payload}.{mac}=",
        f"{header}.{payload}.{mac}.{mac}",
    ):
        assert await door.who(forged) == (401, "NotAuthorizedException"), forged
    assert (await door.who(given["access_token"]))["name"] == "loader"


async def test_t_auth_8_two_servers_on_one_store_know_each_others_access_tokens_unless_their_secrets_differ(
    tmp_path: Path,
) -> None:
    async with asking(tmp_path) as one, asking(tmp_path) as two, asking(tmp_path, auth_secret="s" * 32) as three:
        made = await one.tokens.create("loader")
        for giver in (one, two):
            given = (await giver.oauth(f"{made.token.id}:{made.secret}", grant_type="client_credentials")).json()
            assert (await one.who(given["access_token"]))["name"] == "loader"
            assert (await two.who(given["access_token"]))["name"] == "loader"
            assert await three.who(given["access_token"]) == (401, "NotAuthorizedException")


# --- tokens over REST ------------------------------------------------------------------------------------------------


async def test_an_administrator_makes_rotates_and_revokes_tokens_of_their_own_account(door: Door) -> None:
    root = (await door.tokens.create("root", account="acme", admin=True)).text
    answer = await door.post("/v1/tokens", {"name": "loader", "groups": ["g"]}, root)
    assert answer.status == 200, answer.body
    assert answer.header("Cache-Control") == "no-store"
    made = answer.json()
    assert (made["account"], made["groups"], made["admin"]) == ("acme", ["g"], False)
    assert made["credential"] == made["token"].removeprefix("lakepact_").replace("_", ":")
    assert (await door.who(made["token"]))["account"] == "acme"
    listed = (await door.get("/v1/tokens", root)).json()["tokens"]
    assert [one["name"] for one in listed] == ["root", "loader"]
    assert all("token" not in one and "credential" not in one for one in listed)
    rotated = (await door.post(f"/v1/tokens/{made['id']}/rotate", {"grace-seconds": 0}, root)).json()
    assert await door.who(made["token"]) == (401, "NotAuthorizedException")
    assert (await door.who(rotated["token"]))["name"] == "loader"
    assert (await door.delete(f"/v1/tokens/{made['id']}", root)).status == 204
    assert await door.who(rotated["token"]) == (401, "NotAuthorizedException")
    again = await door.delete(f"/v1/tokens/{made['id']}", root)
    assert again.refusal == (404, "NoSuchTokenException")


async def test_t_auth_10_others_tokens_are_nobodys_business(door: Door) -> None:
    root = (await door.tokens.create("root", account="acme", admin=True)).text
    plain = (await door.tokens.create("plain", account="acme")).text
    foreign = await door.tokens.create("foreign", account="other", admin=True)
    for answer in (
        await door.get("/v1/tokens", plain),
        await door.post("/v1/tokens", {"name": "x"}, plain),
        await door.post(f"/v1/tokens/{foreign.token.id}/rotate", {}, plain),
        await door.delete(f"/v1/tokens/{foreign.token.id}", plain),
        await door.post("/v1/tokens", {"name": "x", "account": "other"}, root),
    ):
        assert answer.status == 403
    for answer in (
        await door.post(f"/v1/tokens/{foreign.token.id}/rotate", {}, root),
        await door.delete(f"/v1/tokens/{foreign.token.id}", root),
    ):
        assert answer.refusal == (404, "NoSuchTokenException")
    assert [one["name"] for one in (await door.get("/v1/tokens", root)).json()["tokens"]] == ["root", "plain"]


async def test_t_audit_1_what_is_done_to_tokens_is_in_the_trail_without_their_secrets(tmp_path: Path) -> None:
    other = {"other": {"url": f"file://{tmp_path}/other", "account": "other"}}
    async with asking(tmp_path, warehouses=other) as door:
        root, plain = await door.tokens.create("root", admin=True), await door.tokens.create("plain")
        foreign = await door.tokens.create("foreign", account="other", admin=True)
        nowhere = await door.tokens.create("nowhere", account="without a warehouse", admin=True)
        made = (await door.post("/v1/tokens", {"name": "loader", "groups": ["g"]}, root.text)).json()
        rotated = (await door.post(f"/v1/tokens/{made['id']}/rotate", {"grace-seconds": 5}, root.text)).json()
        # Even whoever sends the whole token finds its id alone in the trail.
        assert (await door.delete(f"/v1/tokens/{rotated['token']}", plain.text)).status == 403
        assert (await door.delete(f"/v1/tokens/{made['id']}", foreign.text)).status == 404
        assert (await door.delete(f"/v1/tokens/{made['id']}", root.text)).status == 204
        assert (await door.post("/v1/tokens", {"name": "x", "account": "other"}, root.text)).status == 403
        for who in (foreign, nowhere):
            assert (await door.post("/v1/tokens", {"name": "theirs"}, who.text)).status == 200
        await door.service.trail.flush()
    told = {name: _trail(tmp_path / place) for name, place in (("main", "data/warehouse"), ("other", "other"))}
    assert [(one["principal"], one["operation"], one["outcome"]) for one in told["main"]] == [
        ("root", "createToken", "applied"),
        ("root", "rotateToken", "applied"),
        ("plain", "revokeToken", "denied"),
        ("root", "revokeToken", "applied"),
        ("root", "createToken", "denied"),
    ]
    about = {"id": made["id"], "name": "loader", "groups": "g", "admin": "False"}
    assert told["main"][0]["detail"] == about
    assert told["main"][1]["detail"] == {**about, "grace-seconds": "5"}
    assert told["main"][2]["detail"] == told["main"][3]["detail"] == {"id": made["id"]}
    assert all(one["transaction-id"] for one in told["main"] if one["outcome"] == "applied")
    assert [(one["principal"], one["operation"], one["outcome"]) for one in told["other"]] == [
        ("foreign", "revokeToken", "refused"),
        ("foreign", "createToken", "applied"),
    ]
    written = orjson.dumps(told).decode()
    assert not any(one["token"].rpartition("_")[2] in written for one in (made, rotated))


def _trail(warehouse: Path) -> list[Any]:
    files = sorted((warehouse / "_catalog" / "audit").rglob("*.jsonl"))
    return [orjson.loads(line) for file in files for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"name": ""},
        {"name": 1},
        {"name": "a\nb"},
        {"name": "x" * 300},
        {"name": " x"},
        {"name": "x", "groups": "g"},
        {"name": "x", "groups": [1]},
        {"name": "x", "groups": ["g"] * 1 + [f"g{n}" for n in range(200)]},
        {"name": "x", "admin": "yes"},
        {"name": "x", "expires-in-seconds": 0},
        {"name": "x", "expires-in-seconds": -1},
        {"name": "x", "expires-in-seconds": 1e300},
        {"name": "x", "expires-in-seconds": True},
    ],
)
async def test_a_token_that_makes_no_sense_is_not_made(body: Any, door: Door) -> None:
    root = (await door.tokens.create("root", admin=True)).text
    answer = await door.post("/v1/tokens", body, root)
    assert answer.status == 400, answer.body
    assert len(await door.tokens.all()) == 1


async def test_the_longest_life_of_a_token_is_a_setting(tmp_path: Path) -> None:
    async with asking(tmp_path, token_max_s=3_600) as door:
        root = (await door.tokens.create("root", admin=True)).text
        assert (await door.post("/v1/tokens", {"name": "x", "expires-in-seconds": 3_601}, root)).status == 400
        made = (await door.post("/v1/tokens", {"name": "x"}, root)).json()
        assert made["expires-at-ms"] - made["created-at-ms"] == 3_600_000


# --- how often -------------------------------------------------------------------------------------------------------


async def test_requests_beyond_the_rate_are_429_and_come_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    async with asking(tmp_path, rate_limit_per_s=1, rate_limit_burst=2) as door:
        one = (await door.tokens.create("one")).text
        two = (await door.tokens.create("two")).text
        assert [(await door.get("/v1/config", one)).status for _ in range(3)] == [200, 200, 429]
        limited = await door.get("/v1/config", one)
        assert limited.refusal == (429, "TooManyRequestsException")
        assert limited.header("Retry-After") == "1"
        assert (await door.get("/v1/config", two)).status == 200
        assert [(await door.get("/readyz")).status for _ in range(5)] == [200] * 5
        now_s += 1
        assert [(await door.get("/v1/config", one)).status for _ in range(2)] == [200, 429]


async def test_without_names_the_rate_is_an_addresss(tmp_path: Path) -> None:
    async with asking(tmp_path, auth="none", rate_limit_per_s=0.001, rate_limit_burst=2) as door:
        assert [(await door.get("/v1/config")).status for _ in range(3)] == [200, 200, 429]


async def test_t_auth_3_wrong_tokens_are_limited_and_lock_out_no_valid_credential_of_the_same_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    async with asking(tmp_path, token_cache_s=300) as door:
        known, new = (await door.tokens.create("known")).text, (await door.tokens.create("new")).text
        assert (await door.get("/v1/config", known)).status == 200
        statuses = [(await door.get("/v1/config", f"lakepact_{'a' * 16}_{'a' * 52}")).status for _ in range(102)]
        assert statuses == [401] * 100 + [429] * 2
        assert (await door.get("/v1/config", known)).status == 200
        # One that has never been here before is verified, though others behind the same address send nonsense.
        assert (await door.get("/v1/config", new)).status == 200
        assert (await door.oauth(grant_type="client_credentials", client_secret=new)).status == 200


@pytest.mark.parametrize("remembered_s", [0, 5])
async def test_t_auth_3_a_token_that_was_good_need_not_wait_for_the_mistakes_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered_s: float
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    async with asking(tmp_path, token_cache_s=remembered_s) as door:
        known, gone = await door.tokens.create("known"), await door.tokens.create("gone")
        for made in (known, gone):
            assert (await door.get("/v1/config", made.text)).status == 200
        now_s += 6
        for _ in range(101):
            last = await door.get("/v1/config", f"lakepact_{'a' * 16}_{'a' * 52}")
        assert last.status == 429
        assert (await door.get("/v1/config", known.text)).status == 200
        # It is verified all the same: once it is revoked it is limited as others are.
        await door.tokens.revoke(gone.token.id)
        assert (await door.get("/v1/config", gone.text)).status == 429


async def test_t_auth_3_wrong_credentials_of_all_kinds_lock_out_no_valid_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = SystemClock().monotonic_s()
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda _: now_s)
    async with asking(tmp_path) as door:
        made = await door.tokens.create("late", admin=True)
        for number in range(120):
            wrong = f"lakepact_{made.token.id}_{number:052}"
            bearer = await door.get("/v1/config", wrong)
            client = await door.oauth(grant_type="client_credentials", client_secret=wrong)
        assert (bearer.status, client.status) == (429, 429)
        # The same address and the same id, with the right secret.
        assert (await door.oauth(grant_type="client_credentials", client_secret=made.text)).status == 200
        assert (await door.get("/v1/config", made.text)).status == 200


async def test_metrics_are_for_administrators_of_the_servers_own_account(tmp_path: Path) -> None:
    async with asking(tmp_path) as door:
        user = (await door.tokens.create("user")).text
        tenant = (await door.tokens.create("tenant", account="other", admin=True)).text
        admin = (await door.tokens.create("admin", admin=True)).text
        statuses = [(await door.get("/metrics", token)).status for token in (user, tenant, admin)]
    assert statuses == [403, 403, 200]
