"""A table that several pages of the documentation use has the same columns on all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COLUMNS = {"id": "long", "customer": "long", "day": "string", "amount": "double"}
TYPES = {
    "int64": "long",
    "string": "string",
    "float64": "double",
    "int": "long",
    "str": "string",
    "float": "double",
    "bigint": "long",
    "double": "double",
}
SQL = re.compile(
    r"CREATE (?:OR REPLACE )?TABLE (?:IF NOT EXISTS )?(?:\w+\.)?sales\.orders\s*\(([^)]*)\)", re.IGNORECASE
)

Columns = dict[str, str]


def definitions(page: Path) -> Iterator[Columns]:
    """The columns that a page gives `sales.orders`, in SQL or as the schema or the rows of a Python call."""
    text = page.read_text()
    for ddl in SQL.findall(text):
        yield of_ddl(ddl)
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if "sales.orders" not in block:
            continue
        tree = ast.parse(block)
        variables: dict[str, Columns] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                columns = of_expression(node.value, variables)
                if columns is not None:
                    variables[node.targets[0].id] = columns
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and any(
                isinstance(one, ast.Constant) and one.value == "sales.orders" for one in node.args
            ):
                arguments = [*node.args, *(one.value for one in node.keywords)]
                yield from (columns for one in arguments if (columns := of_expression(one, variables)) is not None)
            # `catalog.create_table("sales.orders", …).append(rows)`: the rows too.
            if isinstance(node, ast.Call) and "sales.orders" in ast.unparse(node.func):
                yield from (columns for one in node.args if (columns := of_expression(one, variables)) is not None)


def of_expression(node: ast.expr, variables: dict[str, Columns]) -> Columns | None:
    match node:
        case ast.Name(id=name):
            return variables.get(name)
        case ast.Attribute(value=ast.Name(id=name), attr="schema"):
            return variables.get(name)
        case ast.Dict(keys=keys, values=values) if all(isinstance(key, ast.Constant) for key in keys):
            names = [str(key.value) for key in keys if isinstance(key, ast.Constant)]
            return dict(zip(names, map(of_value, values), strict=True))
        case ast.Call(func=ast.Attribute(attr="table" | "schema"), args=[one]):
            return of_expression(one, variables)
        case ast.Call(func=ast.Attribute(attr="createDataFrame"), args=[_, ast.Constant(value=str(ddl))]):
            return of_ddl(ddl)
        case _:
            return None


def of_value(node: ast.expr) -> str:
    """The type of a column that is written as an Arrow type, or as a list of values."""
    if isinstance(node, ast.Call):
        return TYPES.get(ast.unparse(node.func).rpartition(".")[2], ast.unparse(node))
    while isinstance(node, ast.BinOp):
        node = node.left
    if isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant):
        return TYPES[type(node.elts[0].value).__name__]
    return ast.unparse(node)


def of_ddl(ddl: str) -> Columns:
    columns = [one.split() for one in ddl.split(",")]
    return {name: TYPES[kind.lower()] for name, kind, *_ in columns}


def test_sales_orders_has_the_same_columns_on_every_page() -> None:
    tables = [(page.name, columns) for page in PAGES for columns in definitions(page)]
    assert {page for page, _ in tables} >= {"README.md", "quickstart.md", "engines.md", "spark.md"}
    for page, columns in tables:
        assert columns == COLUMNS, f"{page} gives sales.orders other columns than the other pages"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_installs_lakepact_from_a_registry(page: Path) -> None:
    """It is not published: a name on a registry would be the package of a stranger."""
    commands = "\n".join(re.findall(r"^```(?:sh|bash)?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
    assert not re.search(r"""pip install [^\n]*(?<![/\w-])["']?lakepact(\[|["'\s]|$)""", commands)
