"""The public API explains itself: in `help()`, in `dir()` and in notebooks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import lakepact
from lakepact import client, pipelines
from lakepact.client import Lake, Transaction
from lakepact.client.collection import Collection
from lakepact.client.delta import DeltaTable, DeltaTables
from lakepact.client.grants import Grants
from lakepact.client.namespaces import Namespaces
from lakepact.client.state import States, TransactionStates
from lakepact.client.tables import Cut, LoadedTable, Tables
from lakepact.client.transactions import Transactions
from tests.unit.client.script import Script, document, lake, transaction

SURFACE = (
    Lake,
    Transaction,
    Tables,
    DeltaTables,
    Namespaces,
    Transactions,
    Grants,
    States,
    TransactionStates,
    Collection,
)
EXAMPLE = re.compile(r"\b(lake|tx|lakepact)\.\w+")
ID = "019a0000-0000-7000-8000-000000000001"
HOSTILE = "<script>alert(1)</script>"


def members(cls: type) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(cls):
        if not name.startswith("_"):
            yield name, member.fget if isinstance(member, property) else member


@pytest.mark.parametrize("cls", SURFACE, ids=lambda cls: cls.__name__)
def test_every_method_has_a_docstring_with_an_example(cls: type) -> None:
    for name, member in members(cls):
        text = inspect.getdoc(member) or ""
        assert text, f"{cls.__name__}.{name} has no docstring"
        if callable(member) and not isinstance(inspect.getattr_static(cls, name), property):
            assert EXAMPLE.search(text), f"{cls.__name__}.{name} has no example"


@pytest.mark.parametrize("name", [name for name in client.__all__ if name not in ("Identifier", "Name")])
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(client, name))


@pytest.mark.parametrize("module", [lakepact, client, pipelines], ids=lambda module: module.__name__)
def test_dir_lists_every_public_name(module: Any) -> None:
    assert set(module.__all__) <= set(dir(module))


def test_notebooks_show_objects_as_escaped_html() -> None:
    metadata = {
        "table-uuid": "u",
        "location": HOSTILE,
        "current-snapshot-id": 1,
        "current-schema-id": 0,
        "schemas": [{"schema-id": 0, "fields": [{"id": 1, "name": HOSTILE, "type": "long", "required": True}]}],
    }
    table = LoadedTable(("a", HOSTILE), "file:///m", metadata)
    schema = f'{{"type":"struct","fields":[{{"name":"{HOSTILE}","type":"long","nullable":true}}]}}'
    delta = DeltaTable(("a", HOSTILE), "id", HOSTILE, 3, 0, {"schemaString": schema, "partitionColumns": []}, {})
    shown = transaction(ID, properties={"job": HOSTILE})
    tx = lake(Script([document(shown)])).join(ID).begin(renew=False)
    here = lake(Script())
    objects = (table, delta, Cut([table]), tx, here, here.tables)
    for one in objects:
        html = one._repr_html_()
        assert html.startswith("<div>") and HOSTILE not in html
    for one in (table, delta, Cut([table]), tx):
        assert "&lt;script&gt;" in one._repr_html_()
