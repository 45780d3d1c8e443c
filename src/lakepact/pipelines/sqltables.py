"""Which tables a SQL query reads: a small reader of names, for a graph that needs no Spark to be drawn.

It knows comments, strings, quoted names, common table expressions, subqueries and functions whose arguments have a
FROM of their own. It does not judge the query: Spark will.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<string>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
    | (?P<name>(?:`(?:[^`]|``)+`|[^\W\d]\w*)(?:\s*\.\s*(?:`(?:[^`]|``)+`|\w+))*)
    | (?P<other>\|>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|(\w+)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ENDS_FROM: Final = _words(
    "where group order having limit offset union except minus intersect window qualify sort cluster distribute select "
    "set when values lateral"
)
_BEFORE_SUBQUERY: Final = _words(
    "from join in as exists select where and or not on any all some union except intersect minus lateral using with "
    "then else when case between like by having over"
)
_AFTER_TABLE: Final = _ENDS_FROM | _words(
    "join inner cross left right full outer semi anti natural on using tablesample pivot unpivot version timestamp for "
    "system_version system_time"
)
"""What may follow a table that has no other name."""

_FILE_FORMATS: Final = _words("parquet csv json orc text avro binaryfile")


@dataclass(slots=True)
class _Level:
    """What lies between two parentheses."""

    function: bool = False
    """Whether they are those of a function's arguments."""

    selects: bool = False
    in_from: bool = False
    expects_table: bool = False


def tables_in(sql: str) -> tuple[str, ...]:
    """The names after FROM and JOIN, each once, in their order, without those the query itself defines."""
    matches = list(_matches(sql))
    return tuple(dict.fromkeys(name for _, name in _relations(matches)))


def replaced(sql: str, views: Mapping[str, str]) -> str:
    """The query, reading views in place of tables. Columns may still be told by the name of the table: where it has no
    other in the query, the view gets it."""
    matches = list(_matches(sql))
    tokens = _tokens(matches)
    made, done = [], 0
    for index, name in _relations(matches):
        if name not in views:
            continue
        called = "" if _has_alias(tokens, index) else f" AS {quoted(parts_of(tokens[index][1])[-1])}"
        made += [sql[done : matches[index].start()], quoted(views[name]), called]
        done = matches[index].end()
    return "".join([*made, sql[done:]])


def _relations(matches: Sequence[re.Match[str]]) -> Iterator[tuple[int, str]]:
    """Where relations are named that the query does not define itself, and how they are called."""
    tokens = _tokens(matches)
    common = _common_names(tokens)
    levels = [_Level()]
    for index, token in enumerate(tokens):
        before = tokens[index - 1] if index else ("", "")
        if _is_table(levels, token, before) and _text(tokens, index + 1) != "(":
            parts = parts_of(token[1])
            own = len(parts) == 1 and parts[0].lower() in common
            file = len(parts) > 1 and parts[0].lower() in _FILE_FORMATS and "/" in parts[1]
            if not own and not file:
                yield index, ".".join(parts)


def _has_alias(tokens: list[tuple[str, str]], index: int) -> bool:
    after = tokens[index + 1] if index + 1 < len(tokens) else ("", "")
    return after[0] == "name" and after[1].lower() not in _AFTER_TABLE


def _is_table(levels: list[_Level], token: tuple[str, str], before: tuple[str, str]) -> bool:
    """Go one token on. Whether it stands where a relation is named."""
    kind, text = token
    level, word = levels[-1], text.lower() if kind == "name" else text
    expected, level.expects_table = level.expects_table, False
    match word:
        case "(":
            inner = _Level(function=before[0] == "name" and before[1].lower() not in _BEFORE_SUBQUERY)
            # FROM (a JOIN b): a relation in parentheses, unless SELECT comes next.
            inner.in_from = inner.expects_table = expected and not inner.function
            levels.append(inner)
        case ")":
            if len(levels) > 1:
                levels.pop()
        case ",":
            level.expects_table = level.in_from
        case "from":
            # Not those of EXTRACT(YEAR FROM ...) and IS DISTINCT FROM.
            starts = (level.selects or not level.function) and before[1].lower() != "distinct"
            level.in_from = level.expects_table = starts
        case "join":
            level.in_from = level.expects_table = True
        case "lateral" if expected:
            level.expects_table = True
        case _ if word in _ENDS_FROM or word in (";", "|>"):
            level.in_from = False
            level.selects |= word == "select"
        case _:
            return expected and kind == "name"
    return False


def parts_of(name: str) -> tuple[str, ...]:
    """The parts of a name as it is written in SQL."""
    return tuple(quoted.replace("``", "`") if quoted else plain for quoted, plain in _PART.findall(name))


def quoted(name: str) -> str:
    """A name of dotted parts as SQL takes it, whatever the parts are."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))


def _common_names(tokens: list[tuple[str, str]]) -> set[str]:
    """Names that the query defines itself: WITH a AS (...), b (x, y) AS (...)."""
    if not any(text.lower() == "with" for _, text in tokens):
        return set()
    names = set()
    for index, (kind, text) in enumerate(tokens):
        if kind == "name" and _text(tokens, index - 1) in ("with", ",", "recursive"):
            end = index + 1
            if _text(tokens, end) == "(":
                while end < len(tokens) and tokens[end][1] != ")":
                    end += 1
                end += 1
            if _text(tokens, end) == "as" and _text(tokens, end + 1) == "(":
                names.add(parts_of(text)[0].lower())
    return names


def _text(tokens: list[tuple[str, str]], index: int) -> str:
    return tokens[index][1].lower() if 0 <= index < len(tokens) else ""


def _matches(sql: str) -> Iterator[re.Match[str]]:
    return (match for match in _TOKEN.finditer(sql) if match.lastgroup != "skip")


def _tokens(matches: Iterable[re.Match[str]]) -> list[tuple[str, str]]:
    return [(match.lastgroup or "other", match[0]) for match in matches]
