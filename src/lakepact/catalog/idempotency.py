"""What makes two requests the same: the hash that is kept with a transaction and compared when its key comes again.

It covers the method, the decoded path, the query, the body in canonical form (RFC 8785), and the scope: who asked, in
which warehouse. A key that comes back from another scope is refused, never replayed. Whole numbers beyond 53 bits are
hashed as text, since canonical JSON cannot tell two of them apart and snapshot ids are that large. The tables of a
multi-table commit are sorted first: their order means nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
import rfc8785

from lakepact.errors import InvalidRequest

_SAFE_INTEGER: Final = 2**53 - 1
_BODY: Final = b'{"body":'
"""How the hashed document begins: `body` is the first of its members, in canonical order."""


def request_hash(
    *,
    scope: Mapping[str, str | None],
    method: str,
    path: Sequence[str],
    query: Mapping[str, str],
    body: Any,
    hashed_body: Any = None,
) -> str:
    """The hash of a request. `hashed_body`: what `hash_body` returned for this body, if that was computed before."""
    state = hash_body(body) if hashed_body is None else hashed_body.copy()
    rest = {"scope": dict(scope), "method": method, "path": list(path), "query": dict(query)}
    state.update(b"," + _canonical_json(rest)[1:])
    return str(state.hexdigest())


def hash_body(body: Any) -> Any:
    """The state of a request's hash once it has covered the body, the part whose cost grows with what a client sent."""
    return hashlib.sha256(_BODY + _canonical_json(_with_sorted_tables(body)))


def _canonical_json(value: Any) -> bytes:
    """The canonical form (RFC 8785).

    orjson writes it, some ten times faster than the library made for it, unless the document has floating point numbers
    or member names outside of ASCII: orjson spells numbers and sorts names in another way.
    """
    plain = _Plain()
    try:
        document = plain.canonical(value)
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS) if plain.holds else rfc8785.dumps(document)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError, TypeError) as error:
        raise InvalidRequest(f"the body has no canonical form ({error}); send plain JSON") from None


def _with_sorted_tables(body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    lists = {name: body[name] for name in ("table-changes", "delta-changes") if isinstance(body.get(name), list)}
    return {**body, **{name: sorted(changes, key=_table) for name, changes in lists.items()}}


def _table(change: Any) -> tuple[list[str], str, str]:
    given = change if isinstance(change, dict) else {}
    identifier, table_id = given.get("identifier"), str(given.get("table-id", ""))
    if not isinstance(identifier, dict):
        return [], "", table_id
    namespace = identifier.get("namespace")
    levels = namespace if isinstance(namespace, list) else []
    return [str(level) for level in levels], str(identifier.get("name")), table_id


class _Plain:
    """Replaces integers that canonical JSON cannot express, and notes whether orjson can write the result."""

    def __init__(self) -> None:
        self.holds = True

    def canonical(self, value: Any) -> Any:
        match value:
            case bool() | None | str():
                return value
            case int():
                return value if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else {"integer": str(value)}
            case list():
                return [self.canonical(item) for item in value]
            case dict():
                if not all(name.isascii() for name in value):
                    self.holds = False
                return {name: self.canonical(item) for name, item in value.items()}
            case _:
                self.holds = False
                return value
