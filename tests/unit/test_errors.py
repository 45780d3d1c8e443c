"""The picture at the top of `errors.py` is the tree, and every error has a word of its own."""

from __future__ import annotations

import inspect
import re

from lakepact import errors
from lakepact.errors import LakepactError


def every_error(root: type[LakepactError] = LakepactError) -> list[type[LakepactError]]:
    # Others may narrow an error for their own use; what callers see is what this one module defines.
    children = [child for child in root.__subclasses__() if child.__module__ == errors.__name__]
    return [root, *(found for child in children for found in every_error(child))]


def drawn_tree() -> dict[str, str | None]:
    """Each class in the picture, with the class it hangs from."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)([A-Z]\w+)", line)
        if found:
            depth = len(found[1]) // 4
            path = [*path[:depth], found[2]]
            parents[found[2]] = path[depth - 1] if depth else None
    return parents


def test_the_picture_shows_every_error_under_its_parent() -> None:
    real = {kind.__name__: kind.__bases__[0].__name__ for kind in every_error() if kind is not LakepactError}
    assert drawn_tree() == {"LakepactError": None, **real}


def test_every_error_has_a_stable_word_of_its_own_for_the_wire() -> None:
    words = [kind.type for kind in every_error()]
    assert len(words) == len(set(words))
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", word) for word in words)


def test_every_error_says_what_it_means() -> None:
    assert all(inspect.getdoc(kind) for kind in every_error())
