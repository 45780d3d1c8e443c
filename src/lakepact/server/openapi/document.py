"""The OpenAPI document, put together from the routes and from what is said about each operation.

Everything that follows from the kind of an operation is said once, here: which errors it can end in and what they
mean, which headers it takes and gives. A route that nobody has described is shown as such; `undescribed` names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from lakepact import __version__
from lakepact.server.openapi.operations import OPERATIONS, TAGS, Operation, Tag
from lakepact.server.openapi.schemas import FILLED, SCHEMAS, TEXT, UUID7, Schema, ref
from lakepact.server.routing import PREFIX, Route

_ABOUT: Final = """
An Apache Iceberg REST catalog whose tables move together: one commit changes many tables, and every reader sees all of
it or none of it.

Every path below `/v1/{prefix}/` also answers without the prefix, for the default warehouse. The prefix is the name of a
warehouse; `GET /v1/config` tells it.

Send an `Idempotency-Key`, a fresh UUIDv7, with every change. The same request under the same key happens once, however
often it is sent, also over a crash of the server: later answers are the first one again. A key that comes back with
another request is refused.

A 4xx means that certainly nothing happened. 503 means that nothing has happened yet: send it again. 500 and 504 mean
that it is not known: send it again with the same key, or ask for the transaction.

A change may carry `X-Lakepact-Timeout-Ms`, the milliseconds that its client waits for the response (1 to 86400000). The
server gives the change up shortly before that with a 503, unless it has begun the commit by then.
""".strip()

_ERRORS: Final[Mapping[int, str]] = {
    400: "The request is wrong in itself. Nothing happened; change it before you send it again.",
    401: "Who is asking? Send a bearer token, or a newer one. Nothing happened.",
    403: "You may not do that, or nobody may. Nothing happened.",
    404: "Something that the request names is not there, or is not for you to see. Nothing happened.",
    406: "This server does not do that. Nothing happened.",
    408: "The body did not arrive in time. Nothing happened.",
    409: "What is there does not allow it: it exists already, it is not empty, a requirement does not hold, or the "
    "Idempotency-Key was used for another request. Nothing happened.",
    413: "The body is larger than this server takes. Nothing happened.",
    419: "The token has expired (only if the server's settings say so; otherwise 401). Nothing happened.",
    422: "The request contradicts itself. Nothing happened.",
    429: "The caller asks too often. Nothing happened; send it again after the time that Retry-After gives.",
    500: "The server failed, and cannot say more. A change may have happened: ask for its transaction.",
    503: "Nothing has happened yet, or an earlier request with this key is still at work. Send the same request again "
    "after the time that Retry-After gives.",
    504: "It is not known whether it happened. Send the same request with the same key, or ask for the transaction "
    "that X-Lakepact-Transaction names.",
}
_RETRY_AFTER: Final = {"Retry-After": {"description": "In seconds.", "schema": TEXT}}
_TRANSACTION: Final = {
    "X-Lakepact-Transaction": {"description": "The id of the transaction, to ask about it later.", "schema": UUID7}
}
_HEADERS: Final[Mapping[str, Schema]] = {
    "ETag": {"description": "Stands for this version of the table, shown this way.", "schema": TEXT},
}

_NOT_DESCRIBED: Final = Operation(Tag.SERVER, "Not described yet", "", {200: "Description"})

_IN_PATH: Final[Mapping[str, tuple[str, Schema, str]]] = {
    "prefix": (
        "The name of the warehouse. Reads and the transactions endpoints may leave it out, with its slash.",
        FILLED,
        "main",
    ),
    "namespace": ("The namespace. Its levels are joined by the unit separator, `%1F`.", FILLED, "sales"),
    "table": ("The name of the table. A slash in it is written `%2F`.", FILLED, "orders"),
    "view": ("The name of the view. A slash in it is written `%2F`.", FILLED, "large_orders"),
    "name": ("The name of the document.", FILLED, "position"),
    "token": ("The id of the token.", FILLED, "abcdefghijklmnop"),
    "warehouse": ("The name of the warehouse.", FILLED, "main"),
    "file": ("The name of the file.", FILLED, "ui.css"),
    "transaction": ("The id of the transaction.", UUID7, "019b76da-a800-7000-8000-0123456789ab"),
}
_PARAMETERS: Final[Mapping[str, dict[str, Any]]] = {
    "warehouse": {
        "name": "warehouse",
        "in": "query",
        "description": "The name or the URL of a warehouse. Without it: the default one.",
        "schema": TEXT,
    },
    "parent": {
        "name": "parent",
        "in": "query",
        "description": "The namespace whose children are wanted, levels joined by `%1F`.",
        "schema": TEXT,
    },
    "page-token": {
        "name": "pageToken",
        "in": "query",
        "description": "Empty for the first page, then what the page before said.",
        "schema": TEXT,
    },
    "page-size": {
        "name": "pageSize",
        "in": "query",
        "description": "How many to show, at most. A page may be shorter and still have a successor.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    },
    "state": {
        "name": "state",
        "in": "query",
        "description": "Only those in one of these states, separated by commas.",
        "schema": TEXT,
    },
    "since": {
        "name": "since",
        "in": "query",
        "description": "Only those begun since this moment, in milliseconds since 1970. Pages after the first go on by "
        "their token.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999_999},
    },
    "snapshots": {
        "name": "snapshots",
        "in": "query",
        "description": "`refs`: only the snapshots that a branch or tag names.",
        "schema": {"type": "string", "enum": ["all", "refs"], "default": "all"},
    },
    "if-none-match": {
        "name": "If-None-Match",
        "in": "header",
        "description": "ETags of versions that the client has.",
        "schema": TEXT,
    },
    "access-delegation": {
        "name": "X-Iceberg-Access-Delegation",
        "in": "header",
        "description": "How the client can reach storage through the catalog: `vended-credentials`, `remote-signing`, "
        "or both, separated by commas. Others are ignored.",
        "schema": TEXT,
    },
    "purge-requested": {
        "name": "purgeRequested",
        "in": "query",
        "description": "Whether the files shall go too, later.",
        "schema": {"type": "boolean", "default": False},
    },
    "version": {
        "name": "version",
        "in": "query",
        "description": "The version to show, instead of the newest.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999_999},
    },
    "timestamp-ms": {
        "name": "timestamp-ms",
        "in": "query",
        "description": "Show the table as of this time, in milliseconds since 1970.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999_999},
    },
    "files": {
        "name": "files",
        "in": "query",
        "description": "Whether all live files are in the answer.",
        "schema": {"type": "boolean", "default": False},
    },
    "before": {
        "name": "before",
        "in": "query",
        "description": "Only versions below this one.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999_999},
    },
    "before-moment": {
        "name": "before",
        "in": "query",
        "description": "Only lines from before this moment: `2026-01-31T12:00:00Z`, milliseconds since 1970, or the "
        "token of the page before.",
        "schema": TEXT,
    },
    "principal": {
        "name": "principal",
        "in": "query",
        "description": "Only what this one asked for.",
        "schema": TEXT,
    },
    "operation": {
        "name": "operation",
        "in": "query",
        "description": "Only this operation, by its id in this description.",
        "schema": TEXT,
    },
    "outcome": {
        "name": "outcome",
        "in": "query",
        "description": "Only what came to this.",
        "schema": {"type": "string", "enum": ["applied", "staged", "denied", "refused", "unknown"]},
    },
    "table": {
        "name": "table",
        "in": "query",
        "description": "Only what is about this table or view, with dots: `sales.orders`.",
        "schema": TEXT,
    },
    "keep-ms": {
        "name": "keep-ms",
        "in": "query",
        "description": "How far back versions count, in milliseconds. Never less than a transaction may live.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999_999},
    },
    "limit": {
        "name": "limit",
        "in": "query",
        "description": "How many, at most 1,000.",
        "schema": {"type": "integer", "minimum": 0, "maximum": 999_999_999_999_999_999},
    },
    "q": {
        "name": "q",
        "in": "query",
        "description": "A part of a name, in any case.",
        "schema": TEXT,
    },
    "in": {
        "name": "in",
        "in": "query",
        "schema": TEXT,
        "description": "The namespace in which the search goes on, as the page before this one says.",
    },
    "after": {
        "name": "after",
        "in": "query",
        "description": "Where the page begins: what the page before said.",
        "schema": TEXT,
    },
    "from": {
        "name": "from",
        "in": "query",
        "description": "The version that the page begins with: what the page before said.",
        "schema": TEXT,
    },
    "next": {
        "name": "next",
        "in": "query",
        "description": "The page to go to in the end, one of these.",
        "schema": TEXT,
    },
    "code": {
        "name": "code",
        "in": "query",
        "description": "What the identity provider gives tokens for, once.",
        "schema": TEXT,
    },
    "login-state": {
        "name": "state",
        "in": "query",
        "description": "Which login it is the answer to.",
        "schema": TEXT,
    },
    "iss": {
        "name": "iss",
        "in": "query",
        "description": "Whose answer it is: the issuer.",
        "schema": TEXT,
    },
    "error": {
        "name": "error",
        "in": "query",
        "description": "Why the identity provider has let nobody in, with an `error_description`.",
        "schema": TEXT,
    },
    "prefer": {
        "name": "Prefer",
        "in": "header",
        "description": "`return=representation`: answer with what was done.",
        "schema": TEXT,
    },
    "holder": {
        "name": "holder",
        "in": "query",
        "description": "Only what this one holds: `user:NAME`, `group:NAME` or `everyone`.",
        "schema": TEXT,
    },
    "idempotency-key": {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "A UUIDv7, made anew for each change. The same key with the same request happens once.",
        "schema": UUID7,
    },
}


def document_of(routes: Iterable[Route], *, base_path: str = "") -> dict[str, Any]:
    """The description of exactly these routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = paths.setdefault(route.template, {})
        path[route.method.lower()] = _operation(route, OPERATIONS.get(route.operation, _NOT_DESCRIBED))
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lakepact", "version": __version__, "description": _ABOUT},
        "servers": [{"url": base_path or "/"}],
        "tags": [{"name": tag, "description": text} for tag, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": dict(SCHEMAS),
            "parameters": dict(_PARAMETERS),
            "responses": {f"Error{status}": _error(status) for status in _ERRORS},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        # Either: a server that asks nobody for a name takes requests without one.
        "security": [{"bearer": []}, {}],
    }


def undescribed(routes: Iterable[Route]) -> set[str]:
    """Operations that are served and not described, or described and not served. There should be none."""
    return {route.operation for route in routes} ^ OPERATIONS.keys()


def _operation(route: Route, said: Operation) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.template)
    parameters: list[dict[str, Any]] = [_in_path(name) for name in names]
    extra = (*said.parameters, "idempotency-key") if said.changes and said.takes_key else said.parameters
    parameters += [{"$ref": f"#/components/parameters/{name}"} for name in extra]
    shown: dict[str, Any] = {
        "operationId": route.operation,
        "tags": [said.tag],
        "summary": said.summary,
        "description": said.text,
        "parameters": parameters,
        "responses": _responses(route, said),
    }
    if said.body is not None:
        shown["requestBody"] = {
            "required": said.body_required,
            "content": {said.body_media: {"schema": ref(said.body), "example": said.example}},
        }
    if route.open:
        shown["security"] = []
    return shown


def _in_path(name: str) -> dict[str, Any]:
    text, schema, example = _IN_PATH.get(name, ("", FILLED, name))
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": text,
        "schema": schema,
        "example": example,
    }


def _responses(route: Route, said: Operation) -> dict[str, Any]:
    responses = {str(status): _answer(status, schema, said) for status, schema in said.answers.items()}
    for status in sorted(_statuses(route, said) - said.answers.keys()):
        if said.form_errors:
            responses[str(status)] = _oauth_error(status)
            continue
        # An answer to HEAD has no body to describe.
        if said.tag is Tag.PAGES:
            responses[str(status)] = _page_error(status)
            continue
        responses[str(status)] = (
            {"description": _ERRORS[status]}
            if route.method == "HEAD"
            else {"$ref": f"#/components/responses/Error{status}"}
        )
    return responses


def _page_error(status: int) -> dict[str, Any]:
    """A page that says why. What never came as far as a page is answered as everywhere."""
    said = "The form is not one of this server's pages, or you may not do that. Nothing happened."
    content = {"text/html": {"schema": ref("Text")}, "application/json": {"schema": ref("Error")}}
    return {"description": said if status == 403 else _ERRORS[status], "content": content}


def _statuses(route: Route, said: Operation) -> set[int]:
    """Every error that an operation of this kind can end in."""
    if said.tag is Tag.SERVER and PREFIX not in route.template:
        return {500} if route.open else {401, 419, 429, 500, 503}
    if said.tag is Tag.PAGES:
        return {400, 401, 404, 419, 429, 500, 503, *said.refusals}
    statuses = {400, 401, 403, 419, 429, 500, 503, *said.refusals}
    if said.form_errors:
        statuses -= {403, 419}
    if PREFIX in route.template:
        # At the least, the warehouse may be one that is not here.
        statuses |= {403, 404}
    if route.method in ("POST", "PUT"):
        statuses |= {408, 413}
    if said.changes:
        statuses |= {409, 504}
    return statuses


def _answer(status: int, schema: str | None, said: Operation) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": _GOOD[status]}
    if schema is not None:
        answer["content"] = {said.media: {"schema": ref(schema)}}
    headers = {name: _HEADERS[name] for name in said.headers}
    if said.changes:
        headers |= _TRANSACTION
    if headers:
        answer["headers"] = headers
    return answer


_GOOD: Final[Mapping[int, str]] = {
    200: "Done.",
    204: "Done; there is nothing more to say.",
    303: "Done; go on to the page that Location names.",
    304: "The client has this version.",
    503: "Not now.",
}


def _oauth_error(status: int) -> dict[str, Any]:
    # What is said before the handler sees the request is in the form of all other errors.
    schema = {"anyOf": [ref("OAuthError"), ref("Error")]}
    return {"description": _ERRORS[status], "content": {"application/json": {"schema": schema}}}


def _error(status: int) -> dict[str, Any]:
    error: dict[str, Any] = {
        "description": _ERRORS[status],
        "content": {"application/json": {"schema": ref("Error")}},
    }
    if status in (429, 503):
        error["headers"] = _RETRY_AFTER
    if status == 504:
        error["headers"] = _TRANSACTION
    return error
