"""Log lines for a person: what they show of an error."""

from __future__ import annotations

import io

import structlog

from lakepact.server.logs import for_people


def test_t_auth_9_a_traceback_shows_where_it_happened_and_no_value_of_any_variable() -> None:
    written = io.StringIO()
    with_exceptions = structlog.wrap_logger(structlog.PrintLogger(written), processors=[for_people()])

    def fails(token: str) -> None:
        raise ValueError(f"a token of {len(token)} characters")

    try:
        fails("do-not-" + "tell")
    except ValueError as error:
        with_exceptions.error("it failed", exc_info=error)

    told = written.getvalue()
    assert "a token of 11 characters" in told and "in fails" in told
    assert "do-not-tell" not in told
