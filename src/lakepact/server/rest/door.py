"""What every handler needs to know of a request first: which warehouse, which names, under which key, from whom."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

from lakepact.access import Principal
from lakepact.catalog import Call, Catalog
from lakepact.catalog.idempotency import request_hash
from lakepact.catalog.operations import Operations
from lakepact.catalog.sight import in_sight, seen_by
from lakepact.catalog.trail import Trail
from lakepact.catalog.work import give_up_before
from lakepact.errors import InvalidRequest
from lakepact.iceberg.requests import Identifier
from lakepact.limits import check_name, check_namespace
from lakepact.server.http import KEY_HEADER, Request, Response, idempotency_key
from lakepact.server.rest.errors import NoSuchWarehouse
from lakepact.server.routing import Handler

TRANSACTION: Final = "X-Lakepact-Transaction"
UNIT_SEPARATOR: Final = "%1F"
_LONGEST_AT_HAND: Final = 512
"""Characters of a namespace that is kept taken apart: most have far fewer, and strangers may send more."""


class Door:
    """The warehouses of this server, and the way in."""

    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        default: str,
        *,
        separator: str = UNIT_SEPARATOR,
        trail: Trail | None = None,
    ) -> None:
        """`trail`: where it is noted who asked for what."""
        self._catalogs = catalogs
        self._default = default
        self._trail = trail or Trail()
        self.separator = separator

    def catalog(self, request: Request) -> Catalog:
        """The catalog of the warehouse, whether the request is inside a transaction or not."""
        return self.named(self._prefix(request)[0], request.principal)

    def scope(self, request: Request) -> Operations:
        """What the request sees: the catalog itself, or a transaction that its prefix or its header names."""
        warehouse, transaction = self._prefix(request)
        catalog = self.named(warehouse, request.principal)
        return catalog if transaction is None else catalog.transactions.overlay(transaction)

    def transaction(self, request: Request) -> str | None:
        return self._prefix(request)[1]

    def _prefix(self, request: Request) -> tuple[str, str | None]:
        return self.target(request, request.params.get("prefix"))

    def target(self, request: Request, named: str | None) -> tuple[str, str | None]:
        """Return the warehouse of a request, and its transaction if it is inside one.

        `named` is the prefix of the path, or the `warehouse` of a query: `<warehouse>` or `<warehouse>@<transaction>`.
        The base URI and the header `X-Lakepact-Transaction` may name a transaction too. Raises `InvalidRequest` if two
        of them disagree: such a request must not change something that its sender did not mean.
        """
        warehouse, at, transaction = (named or "").partition("@")
        header = request.header(TRANSACTION)
        if request.inside is None and header is None:
            return warehouse or self.default(request.principal), transaction.lower() if at else None
        transactions = {"the prefix": transaction} if at else {}
        warehouses = {"the prefix": warehouse} if warehouse else {}
        if request.inside is not None:
            outer, at, inner = request.inside.partition("@")
            # A base URI without a warehouse is of the default one.
            warehouses["the base URI"] = outer if at else self.default(request.principal)
            transactions["the base URI"] = inner if at else outer
        if header is not None:
            transactions[f"the header {TRANSACTION}"] = header.strip()
        agreed = _agreed("transaction", {source: value.lower() for source, value in transactions.items()})
        return _agreed("warehouse", warehouses) or self.default(request.principal), agreed

    def with_prefix(self, handler: Handler) -> Handler:
        """Return a handler that refuses requests which name neither a warehouse nor a transaction.

        Some clients leave the prefix of `GET /v1/config` out of some requests. For a client that works inside a
        transaction such a request would change the default warehouse at once, and no abort would take it back.
        """

        async def checked(request: Request) -> Response:
            if "prefix" not in request.params and self.target(request, None)[1] is None:
                name, rest = self.default(request.principal), request.raw_path.removeprefix("/v1/")[:300]
                raise InvalidRequest(
                    f"{request.method} {request.raw_path[:300]} names no warehouse, and a change must name one: send "
                    f"it to /v1/{name}/{rest}, or inside a transaction to /v1/{name}@<transaction>/{rest}. A client "
                    f"that ignores the prefix of GET /v1/config, takes <catalog uri>/in/{name}@<transaction> as its "
                    f"catalog URI"
                )
            return await handler(request)

        return checked

    def named(self, warehouse: str, principal: Principal) -> Catalog:
        """The catalog of this warehouse, as this one may see it. Those of other accounts are not there."""
        return seen_by(catalog_named(self._catalogs, warehouse, principal), principal, self._trail)

    def in_sight(self, principal: Principal) -> dict[str, Catalog]:
        """The warehouses that there are for this one."""
        return {name: catalog for name, catalog in self._catalogs.items() if in_sight(catalog, principal)}

    def default(self, principal: Principal) -> str:
        """The warehouse of whoever names none."""
        return default_warehouse(self._catalogs, self._default, principal)

    def namespace(self, request: Request) -> tuple[str, ...]:
        """The namespace of the path, level by level. Both the unit separator and the advertised one part levels."""
        # Split before decoding: the advertised separator may be a character that names contain. By position and not by
        # word: a path may spell its fixed words in percent-encodings too.
        raw = request.segments[3 if "prefix" in request.params else 2]
        return self._levels(raw.replace(UNIT_SEPARATOR.lower(), UNIT_SEPARATOR))

    def parent(self, request: Request) -> tuple[str, ...]:
        """The `parent` of a listing, from the query; empty is the root."""
        for field in request.query_string.split("&"):
            name, _, value = field.partition("=")
            if name == "parent" and value:
                return self._levels(value.replace(UNIT_SEPARATOR.lower(), UNIT_SEPARATOR))
        return ()

    def identifier(self, request: Request, what: str) -> Identifier:
        name = request.params[what]
        check_name(name, f"the {what} of the path")
        return Identifier(self.namespace(request), name)

    def call(self, request: Request, operation: str, scope: Operations, body: Any = None) -> Call:
        """The change this request asks for: under its key if it has one, else under a fresh id."""
        source = {
            "kind": "rest",
            "client": request.header("x-client-version") or request.header("user-agent"),
            "principal": request.principal.name,
        }
        key, until_s = request.header(KEY_HEADER), request.waits_until_s
        give_up_s = None if until_s is None else give_up_before(until_s, time.monotonic())
        if key is None:
            return Call(scope.new_id(), operation, source=source, input_bytes=len(request.body), give_up_s=give_up_s)
        transaction_id = idempotency_key(key)
        hashed = request_hash(
            scope={
                "warehouse": scope.warehouse.name,
                "transaction": self.transaction(request),
                "principal": source["principal"],
            },
            method=request.method,
            path=self._path(request),
            query=request.query,
            body=body,
            hashed_body=request.hashed(body),
        )
        return Call(
            transaction_id,
            operation,
            keyed=True,
            request_hash=hashed,
            source=source,
            warehouse=scope.warehouse.name,
            input_bytes=len(request.body),
            give_up_s=give_up_s,
        )

    def _path(self, request: Request) -> list[str]:
        """The decoded path below the prefix: with and without a prefix it is the same request."""
        segments = [_text(segment) for segment in request.segments]
        return [segment for number, segment in enumerate(segments) if number != 1 or "prefix" not in request.params]

    def _levels(self, raw: str) -> tuple[str, ...]:
        if len(raw) <= _LONGEST_AT_HAND:
            return _levels_at_hand(raw, self.separator)
        return _levels(raw, self.separator)


def _levels(raw: str, separator: str) -> tuple[str, ...]:
    if separator.upper() != UNIT_SEPARATOR:
        raw = raw.replace(separator, UNIT_SEPARATOR).replace(unquote(separator), UNIT_SEPARATOR)
    levels = tuple(_text(level) for level in raw.split(UNIT_SEPARATOR))
    levels = tuple(part for level in levels for part in level.split("\x1f"))
    check_namespace(levels, "the namespace of the path")
    return levels


_levels_at_hand = lru_cache(maxsize=1_024)(_levels)


def default_warehouse(catalogs: Mapping[str, Catalog], default: str, principal: Principal) -> str:
    """The server's default one, or the first of the account if that is another's."""
    if default in catalogs and in_sight(catalogs[default], principal):
        return default
    return next((name for name, catalog in catalogs.items() if in_sight(catalog, principal)), default)


def catalog_named(catalogs: Mapping[str, Catalog], warehouse: str, principal: Principal) -> Catalog:
    catalog = catalogs.get(warehouse)
    if catalog is None or not in_sight(catalog, principal):
        known = ", ".join(sorted(name for name, one in catalogs.items() if in_sight(one, principal))) or "none for you"
        raise NoSuchWarehouse(f"there is no warehouse {warehouse[:100]!r}; this server has {known}")
    return catalog


def _agreed(what: str, values: Mapping[str, str]) -> str | None:
    """Return the value that all sources name. None if there is no source."""
    if len(set(values.values())) > 1:
        said = ", ".join(f"{source} names {value[:40]!r}" for source, value in values.items())
        raise InvalidRequest(f"the request names more than one {what}: {said}; name one, or the same everywhere")
    return next(iter(values.values()), None)


def _text(raw: str) -> str:
    """A part of a path, decoded as the router does it: bytes that were not escaped are UTF-8 too."""
    return unquote_to_bytes(raw.replace("+", " ").encode("latin-1")).decode("utf-8", errors="replace")


def flag(request: Request, name: str) -> bool:
    """A boolean of the query. PyIceberg writes `True`."""
    value = request.query.get(name, "false")
    if value.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name} is true or false, not {value[:40]!r}")
    return value.lower() == "true"


def page_of(request: Request) -> tuple[str | None, int | None]:
    """`pageToken` and `pageSize`. Without a token the answer is whole, whatever the size."""
    token, size = request.query.get("pageToken"), request.query.get("pageSize")
    if size is not None and (not size.isascii() or not size.isdecimal() or len(size) > 9):
        raise InvalidRequest(f"pageSize is a whole number, not {size[:40]!r}")
    if token is None or size is None:
        # A client that cannot page gets everything. One that can says so, and may leave the size to the server.
        return token, None if size is None or token is None else int(size)
    return token, int(size)


def number(request: Request, name: str) -> int | None:
    """A whole number of the query."""
    text = request.query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise InvalidRequest(f"{name} is a whole number, not {text[:40]!r}")
    return int(text)
