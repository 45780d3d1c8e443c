"""`lakepact audit` against a server that asks for names, by those who may and by those who may not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app
from lakepact.client import Forbidden
from tests.support.server import running_server
from tests.support.tokens import create_token


def test_who_did_what_is_listed_for_those_who_manage_the_warehouse(tmp_path: Path) -> None:
    root, eve = create_token(tmp_path, "root", "--admin"), create_token(tmp_path, "eve")

    def run(*arguments: str, token: str = root.text, code: int = 0) -> str:
        ended = CliRunner().invoke(app, [*arguments, "--uri", server.url], env={"LAKEPACT_TOKEN": token})
        assert ended.exit_code == code, ended.output
        return ended.output

    with running_server(tmp_path, "--auth", "tokens") as server:
        run("namespaces", "create", "sales")
        run("grants", "add", "user:eve", "read", "--namespace", "sales")
        run("namespaces", "drop", "sales", token=eve.text, code=2)
        first, second = run("audit", "--limit", "2").splitlines()[1:3]
        assert first.split()[2:6] == ["eve", "dropNamespace", "denied", "sales"]
        assert second.split()[2:5] == ["root", "addGrant", "applied"]
        assert "--before" in run("audit", "--limit", "2")
        denied = json.loads(run("audit", "--outcome", "denied", "--json"))
        assert [one["principal"] for one in denied["lines"]] == ["eve"]
        following = json.loads(run("audit", "--limit", "2", "--json"))["next-page-token"]
        assert "createNamespace" in run("audit", "--before", following)
        assert "manage" in run("audit", token=eve.text, code=2)
        with lakepact.connect(server.url, token=eve.text) as lake, pytest.raises(Forbidden):
            lake.audit()
