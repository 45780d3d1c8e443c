"""The picture at the top of the client's errors is the tree, and every error says what it means."""

from __future__ import annotations

import inspect
import re

from lakepact import errors as kernel_errors
from lakepact.client import errors
from lakepact.client.errors import Conflict, conflict_of
from lakepact.errors import LakepactError


def every_error() -> list[type[LakepactError]]:
    found = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, LakepactError)]
    return [one for one in found if one.__module__ == errors.__name__]


def test_the_picture_shows_every_error_under_its_parent() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r"^    ([│├└─ ]*)([A-Z]\w+)", line):
            depth = len(found[1]) // 4
            path = [*path[:depth], found[2]]
            if depth:
                drawn[found[2]] = path[depth - 1]
    assert drawn == {kind.__name__: kind.__bases__[0].__name__ for kind in every_error()}


def test_every_error_has_a_word_of_its_own_and_says_what_it_means() -> None:
    words = [kind.type for kind in every_error()]
    assert len(words) == len(set(words))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", word) for word in words)
    assert all(kind.__doc__ for kind in every_error())
    assert kernel_errors.TransactionClosed.type not in words


def test_what_pyiceberg_met_is_a_conflict_too_if_it_is_one() -> None:
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError

    assert isinstance(conflict_of(CommitFailedException("CommitFailedException: moved")), Conflict)
    assert isinstance(conflict_of(RESTError("SnapshotTooOldException: moved")), Conflict)
    assert conflict_of(RESTError("BadRequestException: closed")) is None
    assert conflict_of(NoSuchTableError("a.b")) is None
    assert conflict_of(ValueError("CommitFailedException: moved")) is None
