"""A stage's function in the stage's own session, without changing anything of the user's.

A file written for `pyspark.pipelines` begins with `spark = SparkSession.active()`, and its functions read through that
name. Read so, they would read outside of the transaction. So a function is called as a copy whose globals are the same,
but for the names that stand for the user's session, which stand for the stage's; functions of the same module that it
calls come along. Modules that keep a session of their own are not looked into: give their functions the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import Any

from pyspark.sql import SparkSession

from lakepact.pipelines.placeholder import Placeholder


def bound(function: Callable[..., Any], outside: SparkSession, inside: SparkSession) -> Callable[..., Any]:
    """The same function, with `inside` wherever its module says `outside`."""
    if not isinstance(function, FunctionType):
        return function
    view: dict[str, Any] = {}
    original = function.__globals__
    for name, value in original.items():
        if _is(value, outside):
            view[name] = inside
        elif isinstance(value, FunctionType) and value.__globals__ is original:
            view[name] = _copy(value, view, outside, inside)
        else:
            view[name] = value
    return _copy(function, view, outside, inside)


def _copy(function: FunctionType, view: dict[str, Any], outside: SparkSession, inside: SparkSession) -> FunctionType:
    cells = function.__closure__
    closure = None if cells is None else tuple(_cell(cell, outside, inside) for cell in cells)
    made = FunctionType(function.__code__, view, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = _replaced(function.__kwdefaults__, outside, inside)
    made.__dict__.update(function.__dict__)
    return made


def _cell(cell: CellType, outside: SparkSession, inside: SparkSession) -> CellType:
    try:
        return CellType(inside) if _is(cell.cell_contents, outside) else cell
    except ValueError:
        # Not filled yet.
        return cell


def _replaced(values: Mapping[str, Any] | None, outside: SparkSession, inside: SparkSession) -> dict[str, Any] | None:
    if values is None:
        return None
    return {name: inside if _is(value, outside) else value for name, value in values.items()}


def _is(value: object, outside: SparkSession) -> bool:
    if value is outside or isinstance(value, Placeholder):
        return True
    # Two Python objects may stand for one session.
    return isinstance(value, SparkSession) and bool(value._jsparkSession == outside._jsparkSession)
