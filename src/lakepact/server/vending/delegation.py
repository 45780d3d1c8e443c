"""What a client gets beside a table's metadata, if it says that it can use delegated access.

The specification lets a server answer with any of the mechanisms that a client names, or with none. Here credentials go
before signing; what is not known is ignored; a warehouse without a provider, and a table for which no credential can be
made that reaches nothing else, are answered with none. A provider that fails is an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final, TypeAlias
from urllib.parse import quote

import orjson
import structlog

from lakepact.catalog.errors import Refusal
from lakepact.catalog.operations import Operations
from lakepact.catalog.overlaps import is_own_folder
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.server.http import Request
from lakepact.server.vending.aws_identity import OwnKeys
from lakepact.server.vending.cache import Checked, Credentials, Key
from lakepact.server.vending.s3 import keys_of
from lakepact.server.vending.s3_requests import SignRequest
from lakepact.server.vending.s3_signer import S3Signer
from lakepact.server.vending.scope import (
    Credential,
    Home,
    NotScopable,
    Provider,
    ProviderFailed,
    Right,
    Scope,
    scope_of,
)

HEADER: Final = "X-Iceberg-Access-Delegation"
VENDED: Final = "vended-credentials"
SIGNING: Final = "remote-signing"

NOTHING: Final = b',"config":{}}'
"""The end of an answer without anything delegated."""

_MOST_PATHS: Final = 16
"""A table has one path, and one more in every open transaction."""

RightOf: TypeAlias = Callable[[Request, Identifier], Awaitable[Right]]
"""What the sender of a request may do with a table that it may see. Without one, the catalog says."""

_log = structlog.get_logger(__name__)


class NoProvider(Refusal):
    """Nobody said how this warehouse's storage is reached for others."""

    type: ClassVar[str] = "UnsupportedOperationException"
    code: ClassVar[int] = 406


@dataclass(frozen=True, slots=True)
class Vendor:
    """How one warehouse delegates."""

    root: str
    bucket: str
    prefix: str
    config: Mapping[str, str]
    """What every client has to know to reach the storage: endpoint, region. Nothing secret."""

    provider: Provider | None = None
    credentials: Credentials | None = None
    signer: S3Signer | None = None
    own: OwnKeys | None = None
    alone: Checked | None = None
    """For which tables requests are signed without a look at all others, since they were found alone before."""

    def scope(self, home: Home, right: Right) -> Scope:
        return scope_of(self.root, self.bucket, self.prefix, home, right)


@dataclass(frozen=True, slots=True)
class Delegated:
    """The end of an answer: config, credentials."""

    text: bytes = field(repr=False)
    fields: JsonObject = field(repr=False)
    tag: str
    """What makes this answer another one than that without it."""


class Delegation:
    def __init__(
        self,
        vendors: Mapping[str, Vendor],
        right_of: RightOf | None = None,
        *,
        on_made: Callable[[], None] = lambda: None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._vendors = vendors
        self._right_of = right_of
        self._on_made = on_made
        self._on_failed = on_failed

    def vends(self, warehouse: str) -> bool:
        """Whether there are credentials for the tables of this warehouse."""
        vendor = self._vendors.get(warehouse)
        return vendor is not None and vendor.provider is not None

    def signs(self, warehouse: str) -> bool:
        """Whether requests to the storage of this warehouse are signed."""
        vendor = self._vendors.get(warehouse)
        return vendor is not None and vendor.signer is not None

    def is_asked(self, request: Request, scope: Operations) -> bool:
        """Whether the client of this request says that it can use what this warehouse delegates."""
        return bool(self._vendors) and scope.warehouse.name in self._vendors and bool(_wanted(request))

    async def asked(
        self, request: Request, scope: Operations, table: Identifier, home: Home, path: str
    ) -> Delegated | None:
        """What the client of this request gets with this table; `path` is the table's own. None: nothing."""
        if not self.is_asked(request, scope):
            return None
        vendor, wanted = self._vendors[scope.warehouse.name], _wanted(request)
        try:
            if VENDED in wanted and vendor.provider is not None:
                credential = await self._credential(vendor, scope, home, await self._right(request, scope, table, home))
                return _vended(vendor, vendor.provider, credential, path)
            # A table that is not there yet cannot be signed for.
            if SIGNING in wanted and vendor.signer is not None and not home.staged:
                await _signs_for(vendor, scope, home, vendor.scope(home, Right.READ))
                return _signing(vendor, vendor.signer, path)
        except NotScopable as refusal:
            # The one who asks for credentials alone is told; here the metadata is what was asked for.
            _log.warning("no credentials for a table", location=home.location, reason=refusal.message)
        return None

    async def credentials(
        self, request: Request, scope: Operations, table: Identifier, home: Home, path: str
    ) -> JsonObject:
        """The answer to one who asks for nothing else."""
        vendor = self._vendors.get(scope.warehouse.name)
        if vendor is None or vendor.provider is None:
            raise NoProvider(
                f"warehouse {scope.warehouse.name} gives no credentials: its settings name no provider. Use "
                f"credentials of your own"
            )
        credential = await self._credential(vendor, scope, home, await self._right(request, scope, table, home))
        config = {**vendor.config, **credential.config, **vendor.provider.refresh(_endpoint(path, "credentials"))}
        return {"storage-credentials": [{"prefix": credential.prefix, "config": config}]}

    async def sign(
        self, request: Request, scope: Operations, table: Identifier, home: Home, asked: SignRequest
    ) -> JsonObject:
        vendor = self._vendors.get(scope.warehouse.name)
        if vendor is None or vendor.signer is None or vendor.own is None:
            raise NoProvider(f"warehouse {scope.warehouse.name} signs no requests: `remote_signing` is not set for it")
        right = await self._right(request, scope, table, home)
        place = vendor.scope(home, right)
        vendor.signer.check(asked, place)
        if vendor.provider is not None:
            keys = keys_of(await self._credential(vendor, scope, home, right))
        else:
            await _signs_for(vendor, scope, home, place)
            keys = await vendor.own.get()
        return vendor.signer.sign(asked, place, keys)

    async def _right(self, request: Request, scope: Operations, table: Identifier, home: Home) -> Right:
        if self._right_of is not None:
            right = await self._right_of(request, table)
        else:
            right = Right.WRITE if await scope.may_write(table, home.id) else Right.READ
        return Right.ADD if right.deletes and scope.open_transaction is not None else right

    async def _credential(self, vendor: Vendor, operations: Operations, home: Home, right: Right) -> Credential:
        provider, credentials = vendor.provider, vendor.credentials
        assert provider is not None and credentials is not None
        scope = vendor.scope(home, right)

        async def mint() -> Credential:
            await _alone(operations, scope, home)
            try:
                made = await provider.mint(scope)
            except ProviderFailed as error:
                self._on_failed()
                _log.warning("no credentials", location=scope.location, right=right, error=str(error))
                raise
            self._on_made()
            return made

        return await credentials.get(_key(operations, home, right), mint)


def _key(operations: Operations, home: Home, right: Right) -> Key:
    """For whom a credential may be remembered.

    Nothing can come to lie in a folder that is a table's by now. Where a client chose one for a table that only an open
    transaction has, or nobody yet, something may: what was made for that is not for those who come when it is there.
    """
    before_it_is_there = "staged" if home.staged else operations.open_transaction
    return home.id, home.location, right, None if is_own_folder(home.location, home.id) else before_it_is_there


async def _signs_for(vendor: Vendor, operations: Operations, home: Home, place: Scope) -> None:
    """Refuse a table that is not alone. A load and every request to sign ask, so what was found is remembered."""
    assert vendor.alone is not None
    await vendor.alone.once(_key(operations, home, Right.READ), lambda: _alone(operations, place, home))


async def _alone(operations: Operations, scope: Scope, home: Home) -> None:
    """No other table's files may lie in this folder, nor this table in another's."""
    other = await operations.overlapping(scope.location, home.id)
    if other is not None:
        raise NotScopable(
            f"the location {scope.location} and that of another table{other and f', {other},'} lie one inside the "
            f"other: credentials for one would reach the other, so none are given. Move one of them"
        )


def _wanted(request: Request) -> frozenset[str]:
    """The mechanisms that the client names. Others than the two are none of ours."""
    header = request.header(HEADER)
    return _NOTHING_WANTED if header is None else _named(header)


_NOTHING_WANTED: Final[frozenset[str]] = frozenset()


@lru_cache(maxsize=256)
def _named(header: str) -> frozenset[str]:
    return frozenset(one.strip().lower() for one in header.split(",")) & {VENDED, SIGNING}


def _vended(vendor: Vendor, provider: Provider, credential: Credential, path: str) -> Delegated:
    shown: Delegated | None = credential.shown.get(path)
    if shown is not None:
        return shown
    config = {**vendor.config, **credential.config, **provider.refresh(_endpoint(path, "credentials"))}
    # In both places: not every client looks into the second one for a table that is not committed yet.
    fields = {"config": config, "storage-credentials": [{"prefix": credential.prefix, "config": config}]}
    if len(credential.shown) >= _MOST_PATHS:
        credential.shown.clear()
    made = credential.shown[path] = Delegated(b"," + orjson.dumps(fields)[1:], fields, credential.tag)
    return made


def _signing(vendor: Vendor, signer: S3Signer, path: str) -> Delegated:
    fields = {
        "config": {**vendor.config, **signer.config(_endpoint(path, "sign"))},
        "remote-signing-config": {"properties": {}, "headers": {}},
    }
    return Delegated(b"," + orjson.dumps(fields)[1:], fields, "signed")


def _endpoint(path: str, what: str) -> str:
    """Below the catalog's own address, as clients put it together."""
    return f"{path.removeprefix('/')}/{what}"


def table_path(tables_path: str, name: str) -> str:
    """The path of a table, below that of the tables of its namespace."""
    return f"{tables_path}/{quote(name, safe='')}"
