"""Answers about tables and views. Metadata is spliced into them as the bytes it is stored as."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import orjson

from lakepact.catalog import Done
from lakepact.catalog.files import MetadataFile, referenced_only
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.server.http import Response, json_response
from lakepact.server.rest.errors import TRANSACTION_HEADER
from lakepact.server.vending.delegation import NOTHING, Delegated

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

_ETAG: Final = b"ETag"
"""Spelled so: Java's client looks for the header in this case alone."""

_NOT_KEPT: Final = (b"Cache-Control", b"private, no-store")
"""Of an answer with credentials in it."""

_NO_CONFIG: Final = NOTHING

ALL: Final = "all"
REFS: Final = "refs"


@lru_cache(maxsize=8_192)
def etag(metadata_location: str, snapshots: str = ALL, delegated: str = "") -> bytes:
    """What stands for this version of the table, shown this way. With other credentials it is another answer."""
    digest = hashlib.sha256(metadata_location.encode()).hexdigest()[:32]
    return f'"{digest}-{snapshots}{delegated and "-"}{delegated}"'.encode()


def table_answer(
    file: MetadataFile, snapshots: str = ALL, headers: Headers = (), delegated: Delegated | None = None
) -> Response:
    """The body of load, create and register: location, metadata, config."""
    tag = etag(file.location, snapshots, delegated.tag if delegated is not None else "")
    if delegated is not None:
        body, headers = _with(file, snapshots, delegated), (_NOT_KEPT, *headers)
    elif snapshots == REFS:
        body = _spliced(file.location, referenced_only(file), _NO_CONFIG)
    else:
        body = file.answer = file.answer or _spliced(file.location, file.text, _NO_CONFIG)
    return Response(200, body, ((_ETAG, tag), *headers))


def many_answer(loaded: Sequence[tuple[Identifier, MetadataFile]]) -> Response:
    """Tables loaded together, in the order they were asked for."""
    # They may be large: the response refers to the texts of the cached files, and copies none of them.
    parts = [b'{"results":[']
    for identifier, file in loaded:
        head = {
            "identifier": {"namespace": identifier.namespace, "name": identifier.name},
            "metadata-location": file.location,
        }
        parts += (b"," if len(parts) > 1 else b"", orjson.dumps(head)[:-1], b',"metadata":', file.text, _NO_CONFIG)
    parts.append(b"]}")
    return Response(200, parts=tuple(parts))


def commit_answer(file: MetadataFile, headers: Headers = ()) -> Response:
    return Response(200, _spliced(file.location, file.text, b"}"), ((_ETAG, etag(file.location)), *headers))


def view_answer(file: MetadataFile, headers: Headers = ()) -> Response:
    return Response(200, _spliced(file.location, file.text, _NO_CONFIG), headers)


def staged_answer(metadata: JsonObject, delegated: Delegated | None = None) -> Response:
    """A table that is not there yet has no metadata location."""
    if delegated is not None:
        return json_response({"metadata": metadata, **delegated.fields}, headers=(_NOT_KEPT,))
    return json_response({"metadata": metadata, "config": {}})


def not_modified(tag: bytes) -> Response:
    return Response(304, headers=((_ETAG, tag),))


def empty(done: Done) -> Response:
    return Response(204, headers=transaction_header(done))


def transaction_header(done: Done) -> Headers:
    """The id under which a change can be asked about afterwards."""
    return ((TRANSACTION_HEADER, done.transaction_id.encode()),)


def _with(file: MetadataFile, snapshots: str, delegated: Delegated) -> bytes:
    if snapshots == REFS:
        return _spliced(file.location, referenced_only(file), delegated.text)
    if file.answer_with is None or file.answer_with[0] is not delegated:
        file.answer_with = delegated, _spliced(file.location, file.text, delegated.text)
    return file.answer_with[1]


def _spliced(location: str, metadata: bytes, rest: bytes) -> bytes:
    return b"".join((b'{"metadata-location":', orjson.dumps(location), b',"metadata":', metadata, rest))
