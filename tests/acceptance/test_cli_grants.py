"""`lakepact grants` and `lakepact tables govern` against a real server, and the same from Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app
from lakepact.client import Lake, NotFound, On, Refused
from tests.support.server import running_server

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder: Path = tmp_path_factory.mktemp("server")
    with running_server(folder) as server, lakepact.connect(server.url) as lake, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEPACT_URI", server.url)
        lake.namespaces.create("sales")
        lake.tables.create("sales.orders", SCHEMA)
        yield lake


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result.output


def run_json(*arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))


def test_roles_are_given_listed_checked_and_taken_away(lake: Lake) -> None:
    table = ("--table", "sales.orders")
    assert "user:ann has the role write on table sales.orders" in run("grants", "add", "user:ann", "write", *table)
    assert run_json("grants", "add", "user:ann", "write", *table)["changed"] is False
    run("grants", "add", "group:analysts", "read", "--namespace", "sales")
    run("grants", "add", "everyone", "read", "--account")
    run("grants", "add", "user:bob", "manage")
    shown = run("grants", "list")
    assert "namespace sales" in shown and "the account" in shown and "the warehouse" in shown
    assert [one["name"] for one in run_json("grants", "list", "user:ann")] == ["orders"]
    assert run("grants", "check", "write", "--holder", "user:ann", *table).startswith("yes")
    assert run("grants", "check", "manage", "--holder", "user:ann", *table, code=1).startswith("no")
    checked = run_json("grants", "check", "read", "--holder", "group:analysts", "--namespace", "sales")
    assert (checked["role"], checked["allowed"]) == ("read", True)
    assert "has no role any more" in run("grants", "remove", "user:ann", *table)
    assert "had no role" in run("grants", "remove", "user:ann", *table)
    # Everyone may read, Ann too.
    assert run_json("grants", "check", "read", "--holder", "user:ann", *table)["role"] == "read"
    run("grants", "add", "user:ann", "own", code=2)
    run("grants", "add", "ann", "read", code=2)
    run("grants", "add", "user:ann", "read", "--account", "--table", "sales.orders", code=2)
    missing = CliRunner().invoke(app, ["tables", "show", "sales.none"]).exit_code
    run("grants", "add", "user:ann", "read", "--table", "sales.none", code=missing)


def test_python_does_the_same(lake: Lake) -> None:
    on = On.table("sales.orders")
    assert lake.grants.add("user:eve", "create", on)
    assert not lake.grants.add("user:eve", "create", on)
    assert lake.grants.check(on, "write", "user:eve")["allowed"]
    [found] = lake.grants.list("user:eve")
    assert (found["on"], found["role"], found["name"]) == ("table", "create", "orders")
    assert lake.grants.remove("user:eve", on)
    assert lake.grants.add("user:eve", "read", On.warehouse()) and lake.grants.remove("user:eve", On.warehouse())
    with pytest.raises(NotFound):
        lake.grants.add("user:eve", "read", On.namespace("none"))


def test_a_table_is_governed_and_protected(lake: Lake) -> None:
    lake.tables.create("sales.lines", SCHEMA)
    assert "protected" in run("tables", "govern", "sales.lines")
    said = run_json(
        "tables", "govern", "sales.lines", "--owner", "finance", "--tag", "pii=no", "--tag", "a=b", "--protect"
    )
    assert (said["owner"], said["tags"], said["protected"]) == ("finance", {"pii": "no", "a": "b"}, True)
    run("tables", "govern", "sales.lines", "--untag", "a", "--description", "one row a line")
    assert lake.tables.governance("sales.lines") == {
        "owner": "finance",
        "description": "one row a line",
        "tags": {"pii": "no"},
        "protected": True,
    }
    refused = CliRunner().invoke(app, ["tables", "drop", "sales.lines"])
    assert refused.exit_code != 0 and "lakepact tables govern sales.lines --unprotect" in refused.output
    with pytest.raises(Refused):
        lake.tables.drop("sales.lines")
    run("tables", "govern", "sales.lines", "--unprotect", "--owner", "")
    assert lake.tables.governance("sales.lines")["owner"] is None
    run("tables", "drop", "sales.lines")
    run("tables", "govern", "sales.orders", "--protect", "--unprotect", code=2)
