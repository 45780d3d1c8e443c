"""A stage's function runs in the stage's session, and nothing of the user's is changed."""

from __future__ import annotations

from typing import Any

from lakepact.pipelines.binding import bound
from lakepact.pipelines.placeholder import Placeholder

OUTSIDE: Any = object()
INSIDE: Any = object()
spark = OUTSIDE
later = Placeholder()
calls: list[int] = []


def helper() -> Any:
    return spark


def test_globals_closures_and_functions_of_the_module_mean_the_session_inside() -> None:
    closed = OUTSIDE

    def stage(given: int, *, more: int = 1, session: Any = OUTSIDE) -> tuple[Any, ...]:
        calls.append(given + more)
        return spark, closed, helper(), later, session

    assert bound(stage, OUTSIDE, INSIDE)(1) == (INSIDE, INSIDE, INSIDE, INSIDE, INSIDE)
    assert calls == [2]
    assert stage(1)[0] is OUTSIDE
    assert helper() is OUTSIDE
    assert spark is OUTSIDE


def test_what_is_no_plain_function_is_left_as_it_is() -> None:
    assert bound(len, OUTSIDE, INSIDE) is len
