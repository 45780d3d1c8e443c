"""Authentication as an operator meets it: `lakepact tokens`, `lakepact serve --auth`, and no secret anywhere it should
not be."""

from __future__ import annotations

import base64
import json
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app
from lakepact.settings import Settings
from tests.support.issuer import running_issuer
from tests.support.server import running_server
from tests.support.tokens import command, create_token, store_of
from tests.support.waiting import PATIENCE_S

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(autouse=True)
def an_empty_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*Settings.model_fields, "config", "token", "token_file", "credential"]:
        monkeypatch.delenv(f"LAKEPACT_{name.upper()}", raising=False)


def run(*arguments: str, **env: str) -> Any:
    """In this process: to start another takes longer than what it does."""
    return CliRunner().invoke(app, list(arguments), env=env)


def ask(url: str, token: str | None = None, form: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=None if form is None else urllib.parse.urlencode(form).encode())
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with _OPENER.open(request, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read() + str(answer.headers).encode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read() + str(error.headers).encode()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_t_auth_11_beyond_this_machine_a_server_that_asks_nobody_is_refused_before_it_opens_anything(
    host: str, tmp_path: Path
) -> None:
    ended = run("serve", "--host", host, "--port", "0")
    assert ended.exit_code == 2
    assert "lakepact tokens create" in ended.stderr and "--insecure" in ended.stderr and "127.0.0.1" in ended.stderr
    assert not list(tmp_path.iterdir())
    # Wherever the settings come from.
    (tmp_path / "lakepact.toml").write_text(f'host = "{host}"\nworkers = 2\nport = 0\n')
    assert run("serve").exit_code == 2


def test_it_listens_there_if_somebody_says_so_or_if_it_asks(tmp_path: Path) -> None:
    with running_server(tmp_path / "insecure", "--host", "0.0.0.0", "--insecure") as server:
        assert "everybody who reaches this server may do everything" in server.log.read_text()
        assert ask(f"{server.url}/v1/config")[0] == 200
    env = {"LAKEPACT_HOST": "0.0.0.0", "LAKEPACT_AUTH": "tokens", "LAKEPACT_LOG_LEVEL": "info"}
    with running_server(tmp_path / "asking", env=env) as server:
        assert "may do everything" not in server.log.read_text()
        assert ask(f"{server.url}/v1/config")[0] == 401


def test_a_token_from_the_first_one_to_its_end(tmp_path: Path) -> None:
    first = create_token(tmp_path, "root", "--admin")
    store = store_of(tmp_path)
    # Several processes: what one of them is told holds for all.
    with running_server(tmp_path, "--auth", "tokens", "--workers", "2", env={"LAKEPACT_TOKEN_CACHE_S": "0"}) as server:
        with lakepact.connect(server.url, token=first.text) as lake:
            lake.namespaces.create("db")
        listed = json.loads(command("tokens", "list", "--store", store, "--json"))
        assert [(one["id"], one["name"], one["admin"]) for one in listed] == [(first.id, "root", True)]
        rotated = json.loads(command("tokens", "rotate", first.id, "--grace", "0s", "--store", store, "--json"))
        for _ in range(4):
            assert ask(f"{server.url}/v1/config", first.text)[0] == 401
            assert ask(f"{server.url}/v1/config", rotated["token"])[0] == 200
        # The commands that talk to a server take it from the environment, or from a file.
        (tmp_path / "token").write_text(rotated["token"])
        for token in ({"LAKEPACT_TOKEN": rotated["token"]}, {"LAKEPACT_TOKEN_FILE": str(tmp_path / "token")}):
            ended = run("namespaces", "list", "--uri", server.url, **token)
            assert (ended.exit_code, ended.stdout.split()) == (0, ["namespace", "db"]), ended.stderr
        ended = run("namespaces", "list", "--uri", server.url, "--token", f"@{tmp_path / 'token'}")
        assert ended.exit_code == 0
        ended = run("namespaces", "list", "--uri", server.url, LAKEPACT_TOKEN=first.text)
        assert ended.exit_code == 2
        assert "unauthorized" in ended.stderr and first.secret not in ended.stderr
        command("tokens", "revoke", first.id, "--store", store)
        for _ in range(4):
            assert ask(f"{server.url}/v1/config", rotated["token"])[0] == 401
    assert json.loads(command("tokens", "list", "--store", store, "--json")) == []
    assert run("tokens", "revoke", first.id, "--store", store).exit_code == 2
    assert run("tokens", "create", "x", "--expires", "soon", "--store", store).exit_code == 2


def test_t_auth_9_no_secret_is_in_a_log_an_error_a_metric_or_the_settings(tmp_path: Path) -> None:
    mixed_in = "an-auth-secret-that-nobody-may-see-0123"
    client_secret = "a-client-secret-that-nobody-may-see"
    token = create_token(tmp_path, "root", "--admin", "--group", "g")
    seen: list[bytes] = []
    with running_issuer() as issuer:
        given = issuer.settings(
            auth_secret=mixed_in,
            log_level="debug",
            grpc_port=0,
            oidc_client_id="web",
            oidc_client_secret=client_secret,
            public_url="http://127.0.0.1:8181",
        )
        env = {f"LAKEPACT_{name.upper()}": str(value) for name, value in given.items()}
        jwt, wrong_jwt = issuer.token(), issuer.token(aud="other")
        with running_server(tmp_path, env=env) as server:
            url = server.url
            form = {"grant_type": "client_credentials", "client_id": token.id, "client_secret": token.secret}
            access = json.loads(ask(f"{url}/v1/oauth/tokens", form=form)[1].partition(b"}")[0] + b"}")["access_token"]
            wrong = [f"lakepact_{token.id}_{'z' * 52}", access[:-4] + "zzzz", wrong_jwt, "s3cret-of-somebody-else"]
            for good in (token.text, access, jwt):
                assert ask(f"{url}/v1/config", good)[0] == 200
                seen += [ask(f"{url}/v1/{path}", good)[1] for path in ("whoami", "tokens", "nowhere", "main/tables")]
            for bad in wrong:
                status, body = ask(f"{url}/v1/config", bad)
                assert status == 401
                seen += [body, ask(f"{url}/v1/oauth/tokens", form={**form, "client_secret": bad})[1]]
                seen.append(ask(f"{url}/v1/oauth/tokens?client_secret={bad}")[1])
            seen += [ask(f"{url}/{path}", token.text)[1] for path in ("metrics", "health", "openapi.json")]
            commands = [
                ("config", "show"),
                ("config", "show", "--json"),
                ("tokens", "list"),
                ("tokens", "list", "--json"),
            ]
            commands += [("transactions", "list", "--json"), ("transactions", "list")]
            store = store_of(tmp_path)
            for arguments in commands:
                ended = run(*arguments, "--store", store, **{"COLUMNS": "2000", **env})
                assert ended.exit_code == 0, ended.stderr
                seen.append((ended.stdout + ended.stderr).encode())
            for one in json.loads(run("transactions", "list", "--json", "--store", store).stdout)["transactions"]:
                shown = run("transactions", "show", one["id"], "--json", "--store", store)
                seen.append(shown.stdout.encode())
            ended = run("serve", **{**env, "LAKEPACT_AUTH_SECRET": "t00-short"})
            assert ended.exit_code == 2
            seen.append((ended.stdout + ended.stderr).encode())
        seen.append(server.log.read_bytes())
    # What must not be: every secret whole, and the parts of it that are secret by themselves.
    secrets = [token.secret, access.rpartition(".")[2], jwt.rpartition(".")[2], mixed_in, client_secret, "t00-short"]
    secrets += [*(bad.rpartition("_")[2].rpartition(".")[2] for bad in wrong), *signing_keys(tmp_path)]
    assert len(secrets) >= 10
    everything = b"\n".join(seen)
    assert b"lakepact_unrecognised_total" in everything and b"signing-keys" in everything
    for secret in secrets:
        assert secret.encode() not in everything, secret
    # The store itself has the hash of the token and never the token.
    whole = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    for secret in (token.secret, access, jwt, mixed_in, client_secret):
        assert secret.encode() not in whole


def signing_keys(folder: Path) -> list[str]:
    """The server's own keys, as its store has them."""
    found: list[str] = []
    with sqlite3.connect(folder / "data" / "lakepact.db") as connection:
        for [table] in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in connection.execute(f"SELECT * FROM {table}").fetchall():
                found += [key for value in row for key in _keys_in(value)]
    assert found
    return found


def _keys_in(value: Any) -> list[str]:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    parts = text.split('"secret":"')[1:]
    keys = [part.partition('"')[0] for part in parts]
    assert all(len(base64.b64decode(key)) == 32 for key in keys)
    return keys
