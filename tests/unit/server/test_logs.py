"""Log lines: what those for a person show of an error, and those of a command where nobody watches."""

from __future__ import annotations

import io
import json

import pytest
import structlog

from lakepact.server.logs import configure_command, for_people


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


def test_a_command_whose_errors_go_to_a_file_writes_json_from_info_on(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        configure_command()
        log = structlog.get_logger("anything")
        log.debug("nobody asked for this")
        log.info("collected", what="a file")
    finally:
        structlog.configure(**before)
    out, err = capsys.readouterr()
    [line] = err.splitlines()
    assert json.loads(line)["event"] == "collected"
    assert (out, "\x1b" in err) == ("", False)
