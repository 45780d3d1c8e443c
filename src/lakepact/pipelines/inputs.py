"""Which inputs a function reads: by its parameters, and by what its source says.

    dp.read("x"), dp.read_new("x")                      a call with a name that is written out, or a constant
    spark.table("x"), spark.read.table("x"), …          whatever it is called on
    spark.sql("SELECT … FROM x"), return "SELECT …"     the tables of the query

Functions of the same module that are called are looked into as well. What is put together at run time cannot be seen
here: name it with `inputs=[…]`.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from lakepact.pipelines.sqltables import tables_in

RESERVED: Final = ("spark", "params")
"""Parameters that are given something else than an input: the session, and the run's parameters."""

_READERS: Final = ("read", "read_new")
_OWN_PACKAGE: Final = __name__.rpartition(".")[0]


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters that take an input: those that have no default and are not reserved."""
    return tuple(
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        and parameter.name not in RESERVED
    )


def found_in(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of tables that the function's source reads, each once, in their order."""
    return tuple(dict.fromkeys(_found(inspect.unwrap(function), set())))


def _found(function: Callable[..., Any], seen: set[object]) -> Iterator[str]:
    code = getattr(function, "__code__", None)
    tree = _tree(function)
    if tree is None or code in seen:
        return
    seen.add(code)
    known = _known(function)
    for node in ast.walk(tree):
        match node:
            case ast.Call():
                yield from _called(node, known, function, seen)
            case ast.Return(value=ast.expr() as value):
                text = _text(value, known)
                if text is not None and " " in text.strip():
                    yield from tables_in(text)


def _called(node: ast.Call, known: Mapping[str, Any], function: Any, seen: set[object]) -> Iterator[str]:
    argument = _text(_first(node), known)
    match node.func:
        case ast.Attribute(value=on, attr=attribute):
            own = _is_own(on, known)
            if argument is None:
                return
            if (own and attribute in _READERS) or (not own and attribute == "table"):
                yield argument
            elif attribute == "sql" and not own:
                yield from tables_in(argument)
        case ast.Name(id=name):
            value = known.get(name)
            if getattr(value, "__module__", "").startswith(_OWN_PACKAGE):
                if name in _READERS and argument is not None:
                    yield argument
            elif inspect.isfunction(value) and value.__module__ == getattr(function, "__module__", None):
                yield from _found(value, seen)
        case _:
            return


def _is_own(on: ast.expr, known: Mapping[str, Any]) -> bool:
    """Whether something is called on this package, under whatever name it was imported."""
    value = known.get(on.id) if isinstance(on, ast.Name) else None
    return isinstance(value, ModuleType) and value.__name__ == _OWN_PACKAGE


def _first(node: ast.Call) -> ast.expr | None:
    """The first argument, or the one that has the same meaning."""
    named: Iterable[ast.expr] = (word.value for word in node.keywords if word.arg in ("name", "tableName", "sqlQuery"))
    return next((*node.args[:1], *named).__iter__(), None)


def _text(node: ast.expr | None, known: Mapping[str, Any]) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if isinstance(known.get(name), str):
            return str(known[name])
        case ast.JoinedStr(values=parts):
            pieces = [_text(part.value if isinstance(part, ast.FormattedValue) else part, known) for part in parts]
            return None if None in pieces else "".join(piece for piece in pieces if piece is not None)
        case _:
            return None


def _known(function: Any) -> Mapping[str, Any]:
    """What names mean inside the function: the module's, and those it closes over."""
    try:
        closed = inspect.getclosurevars(function).nonlocals
    except (TypeError, ValueError):
        closed = {}
    return {**getattr(function, "__globals__", {}), **closed}


def _tree(function: Any) -> ast.AST | None:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        [statement, *_] = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError):
        # Typed at a prompt, or made by a program: there is no source to look at.
        return None
    if isinstance(statement, ast.FunctionDef):
        # Decorators name the output, not inputs.
        statement.decorator_list = []
    return statement
