"""The picture at the top of this package's `errors.py` is the tree, and every error has a word of its own."""

from __future__ import annotations

import inspect
import re

import lakepact.delta
from lakepact import errors as project
from lakepact.delta import errors
from lakepact.errors import LakepactError


def ours(root: type[LakepactError] = LakepactError) -> list[type[LakepactError]]:
    below = [found for child in root.__subclasses__() for found in ours(child)]
    return [root, *below] if root.__module__ == errors.__name__ else below


def test_the_picture_shows_every_error_under_its_parent() -> None:
    drawn: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            path = [*path[:depth], found[2]]
            if depth:
                drawn[found[2]] = path[depth - 1]
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in ours()}
    assert drawn == real | {"InvalidRequest": "LakepactError", "TransactionError": "LakepactError"}


def test_every_error_has_a_word_and_says_what_it_means() -> None:
    taken = {kind.type for kind in vars(project).values() if inspect.isclass(kind) and issubclass(kind, LakepactError)}
    words = [kind.type for kind in ours()]
    assert len(words) == len(set(words))
    assert not taken & set(words)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", word) for word in words)
    assert all(inspect.getdoc(kind) for kind in ours())


def test_what_the_package_offers_is_there_and_sorted() -> None:
    assert list(lakepact.delta.__all__) == sorted(lakepact.delta.__all__)
    assert all(hasattr(lakepact.delta, name) for name in lakepact.delta.__all__)
