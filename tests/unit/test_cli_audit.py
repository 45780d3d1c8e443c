"""`lakepact audit` and `lake.audit`: what they ask a server, and what they make of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from typer.testing import CliRunner

import lakepact
from lakepact.catalog.audit import about, tables_in
from lakepact.cli import app
from tests.support.http_stub import Asked, Stub, answering

LINE: dict[str, Any] = {
    "format": 1,
    "at-ms": 1_790_000_000_000,
    "account": "default",
    "warehouse": "main",
    "principal": "eve",
    "operation": "dropTable",
    "outcome": "denied",
    "tables": ["sales.orders"],
    "namespaces": [],
    "transaction-id": "019b76da-a800-7000-8000-0123456789ab",
    "reason": "eve may not do this",
    "client": "test",
    "detail": {"purge": "False"},
}


def page(*lines: dict[str, Any], damaged: int = 0, following: str | None = None) -> dict[str, Any]:
    return {"lines": lines, "damaged": damaged, "next-page-token": following}


@contextmanager
def server(*pages: dict[str, Any]) -> Iterator[Stub]:
    """Gives these pages, one after another."""
    left = list(pages)

    def answer(asked: Asked) -> tuple[int, str]:
        if asked.path.startswith("/v1/config"):
            return 200, json.dumps({"defaults": {}, "overrides": {"prefix": "main"}})
        assert urlsplit(asked.path).path == "/v1/main/audit"
        return 200, json.dumps(left.pop(0))

    with answering(answer, "application/json") as stub:
        yield stub


def queries(stub: Stub) -> list[dict[str, str]]:
    return [dict(parse_qsl(urlsplit(one.path).query)) for one in stub.asked[1:]]


def run(stub: Stub, *arguments: str) -> Any:
    ended = CliRunner().invoke(app, ["audit", "--uri", stub.url, *arguments])
    assert ended.exit_code == 0, ended.output
    return ended


def test_every_filter_is_the_servers() -> None:
    with server(page()) as stub:
        filters = ("--principal", "eve", "--operation", "dropTable", "--outcome", "denied", "--table", "sales.orders")
        ended = run(stub, *filters, "--before", "2026-01-31T12:00:00+01:00", "--limit", "7")
    assert queries(stub) == [
        {
            "principal": "eve",
            "operation": "dropTable",
            "outcome": "denied",
            "table": "sales.orders",
            "before": "2026-01-31T12:00:00+01:00",
            "limit": "7",
        }
    ]
    assert ended.stdout.split() == ["at", "who", "operation", "outcome", "about", "transaction"]
    assert ended.stderr.startswith("No line is like that.")


def test_a_line_is_a_row_and_what_is_left_is_said() -> None:
    with server(page(LINE, damaged=2, following="1790000000000.1.x")) as stub:
        ended = run(stub, "--limit", "1")
    row = "2026-09-21 14:13:20Z eve dropTable denied sales.orders purge=False"
    assert ended.stdout.splitlines()[1].split() == [*row.split(), LINE["transaction-id"]]
    assert "cannot be read: 2" in ended.stderr
    assert "--before 1790000000000.1.x" in ended.stderr


def test_short_pages_are_joined_until_there_are_enough() -> None:
    with server(page(following="5.0."), page(LINE, damaged=1, following="4.0."), page(LINE, following="3.0.")) as stub:
        told = json.loads(run(stub, "--limit", "2", "--json").stdout)
    assert told == {"lines": [LINE, LINE], "damaged": 1, "next-page-token": "3.0."}
    assert [(one.get("before"), one["limit"]) for one in queries(stub)] == [(None, "2"), ("5.0.", "2"), ("4.0.", "1")]


def test_the_search_for_what_is_rare_ends_and_can_go_on() -> None:
    with server(*(page(following=f"{number}.0.") for number in range(200, 0, -1))) as stub:
        assert "--before 101.0." in run(stub).stderr


def test_a_wrong_option_is_bad_input() -> None:
    for arguments in (["--outcome", "good"], ["--limit", "0"], ["--table", "orders"]):
        assert CliRunner().invoke(app, ["audit", *arguments]).exit_code == 2


def test_python_asks_the_same() -> None:
    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    with server(page(LINE)) as stub, lakepact.connect(stub.url) as lake:
        found = lake.audit(principal="eve", table=("sales", "orders"), before=moment)
        with pytest.raises(ValueError, match="limit"):
            lake.audit(limit=0)
    assert (found.lines, found.damaged, found.following) == ((LINE,), 0, None)
    asked = {"principal": "eve", "table": "sales.orders", "before": "2026-01-31T12:00:00+00:00", "limit": "100"}
    assert queries(stub) == [asked]


@pytest.mark.parametrize(
    ("line", "tables", "words"),
    [
        ({"namespaces": ["db"], "detail": {"name": "t"}}, ["db.t"], "db.t"),
        ({"tables": ["db.t"], "namespaces": ["db"], "detail": {"to": "db.u"}}, ["db.t", "db.u"], "db.t, db.u"),
        ({"detail": {"new": "db.a,db.b"}, "namespaces": ["db"]}, ["db.a", "db.b"], "db.a, db.b"),
        ({"detail": {"identifier": "db.t", "to": "db.u"}}, ["db.t", "db.u"], "db.t, db.u"),
        (
            {"tables": ["db.t"], "detail": {"holder": "user:eve", "role": "read", "on": "db.t"}},
            ["db.t"],
            "db.t holder=user:eve role=read",
        ),
        ({"detail": {"holder": "user:eve", "on": "warehouse"}}, [], "holder=user:eve on=warehouse"),
        ({"namespaces": [""], "detail": {"namespace": "db"}}, [], "db"),
        ({"namespaces": ["db"], "detail": {"namespace": "db.eu"}}, [], "db.eu"),
        ({"namespaces": ["db"]}, [], "db"),
        ({}, [], ""),
    ],
)
def test_what_a_line_is_about(line: dict[str, Any], tables: list[str], words: str) -> None:
    whole = {**LINE, "tables": [], "namespaces": [], "detail": None, **line}
    assert tables_in(whole) == tables
    assert about(whole) == words
