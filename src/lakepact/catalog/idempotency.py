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

import rfc8785

from lakepact.errors import InvalidRequest

_SAFE_INTEGER: Final = 2**53 - 1


def request_hash(
    *, scope: Mapping[str, str | None], method: str, path: Sequence[str], query: Mapping[str, str], body: Any
) -> str:
    document = {
        "scope": dict(scope),
        "method": method,
        "path": list(path),
        "query": dict(query),
        "body": _canonical(_with_sorted_tables(body)),
    }
    try:
        return hashlib.sha256(rfc8785.dumps(document)).hexdigest()
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
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


def _canonical(value: Any) -> Any:
    match value:
        case bool() | None | str():
            return value
        case int():
            return value if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else {"integer": str(value)}
        case list():
            return [_canonical(item) for item in value]
        case dict():
            return {name: _canonical(item) for name, item in value.items()}
        case _:
            return value
