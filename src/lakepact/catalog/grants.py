"""Grants as cells, and what they come to for one who asks.

The grants of a warehouse lie in a few dozen buckets, each a cell; those on a whole account are few, and in one cell.
The index of a warehouse says at which revision each bucket is, and the index of the account at which each of these is.
All of them move in one commit. So whoever decides reads one small cell, the account's index, along with the tables it
decides about, in one look at the store: while it has not moved, what is remembered is what is there, and a change
counts for the next request on every replica. After a change only what moved is read again.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lakepact.access.principal import Principal
from lakepact.access.rules import ALL, NOTHING, Rights, Role, Scope, holders_of, rights_of
from lakepact.catalog.errors import BadRequest
from lakepact.catalog.keys import Keys, account_grants, account_grants_index
from lakepact.catalog.work import Draft
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell
from lakepact.kernel.ports import CellStore

_BUCKETS: Final = 64
_MOST_REMEMBERED: Final = 10_000
_MOST_IN_A_CELL: Final = 1_500
"""Grants in one cell: about as many as fit, with room to spare."""

_GRANTS: Final = "grants"
_ACCOUNT: Final = Scope.account().text

Granted: TypeAlias = Mapping[str, Mapping[str, JsonObject]]
"""By the text of a scope and by holder."""


@dataclass(frozen=True, slots=True)
class Grant:
    scope: Scope
    holder: str
    role: Role
    by: str | None = None
    at_ms: int | None = None


class Grants:
    """The grants that count in one warehouse."""

    def __init__(self, warehouse: str, keys: Keys, store: CellStore, account: str) -> None:
        self._warehouse = warehouse
        self._keys = keys
        self._store = store
        self._index = keys.grants_index()
        self._account = account_grants(account)
        self.key: Final = account_grants_index(account)
        """What a decision reads."""

        self._seen = -1
        self._seen_index = self._seen_account = 0
        self._buckets: dict[str, tuple[int, Granted]] = {}
        self._on_account: Granted = {}
        self._by_holder: dict[str, list[tuple[str, Role]]] = {}
        self._rights: OrderedDict[Principal, Rights] = OrderedDict()

    # --- deciding ---

    async def rights(self, principal: Principal, cell: Cell | None = None) -> Rights:
        """What this one may do. `cell`: that of `key`, read just now; without it it is read here."""
        if principal.admin:
            return ALL
        if principal.name is None:
            # Whoever has no name and is no administrator was not recognised by anybody.
            return NOTHING
        # What another request has seen since is as good: it is newer.
        if cell is None or cell.revision > self._seen:
            await self._refresh(cell)
        found = self._rights.get(principal)
        if found is None:
            by_holder = self._by_holder
            roles = [one for holder in holders_of(principal) for one in by_holder.get(holder, ())]
            found = self._rights[principal] = rights_of(roles) if roles else NOTHING
            if len(self._rights) > _MOST_REMEMBERED:
                self._rights.popitem(last=False)
        return found

    def at_hand(self, principal: Principal, cell: Cell | None) -> Rights | None:
        """The same, if it is remembered and `cell` says that nothing has been granted since."""
        return self._rights.get(principal) if cell is not None and cell.revision <= self._seen else None

    async def all(self) -> list[Grant]:
        """Every grant that counts here, in order."""
        await self._refresh(None)
        every = [*self._buckets.values(), (0, self._on_account)]
        found = [
            Grant(Scope(scope), holder, Role.named(one["role"]), one.get("by"), one.get("at-ms"))
            for _, granted in every
            for scope, held in granted.items()
            for holder, one in held.items()
        ]
        return sorted(found, key=lambda one: (one.scope.text, one.holder))

    async def _refresh(self, cell: Cell | None) -> None:
        if cell is None:
            cell = (await self._store.read([self.key]))[self.key]
        if cell.revision <= self._seen:
            return
        moved: Mapping[str, int] = (cell.value or {}).get("revisions", {})
        wanted = [self._account] if moved.get(_ACCOUNT, 0) > self._seen_account else []
        if moved.get(self._warehouse, 0) > self._seen_index:
            wanted.append(self._index)
        read = await self._store.read(wanted) if wanted else {}
        if (index := read.get(self._index)) is not None:
            await self._refresh_buckets(index)
            self._seen_index = max(self._seen_index, index.revision)
        if (account := read.get(self._account)) is not None and account.revision > self._seen_account:
            self._on_account, self._seen_account = _granted(account), account.revision
        if wanted:
            self._by_holder = _by_holder([*(granted for _, granted in self._buckets.values()), self._on_account])
            self._rights.clear()
        self._seen = max(self._seen, cell.revision)

    async def _refresh_buckets(self, index: Cell) -> None:
        revisions: Mapping[str, int] = (index.value or {}).get("revisions", {})
        moved = [one for one, at in revisions.items() if self._buckets.get(one, (0, {}))[0] < at]
        read = await self._store.read([self._keys.grants_bucket(one) for one in moved]) if moved else {}
        for one in moved:
            cell = read[self._keys.grants_bucket(one)]
            if cell.revision >= self._buckets.get(one, (0, {}))[0]:
                self._buckets[one] = cell.revision, _granted(cell)

    # --- changing: plans ---

    async def put(self, draft: Draft, grant: Grant) -> JsonObject:
        """From now on this holder has this role there, whatever it was before."""
        bucket, granted = await self._in(draft, grant.scope)
        held = granted.get(grant.scope.text, {})
        there = held.get(grant.holder)
        if there is not None and there["role"] == grant.role.word:
            return {"changed": False}
        said = {"role": grant.role.word, "by": grant.by, "at-ms": draft.now_ms}
        after = {**granted, grant.scope.text: {**held, grant.holder: said}}
        if sum(map(len, after.values())) > _MOST_IN_A_CELL:
            raise BadRequest(
                f"there are {_MOST_IN_A_CELL} grants beside this one, which is the limit. Grant to a group, or on a "
                f"namespace instead of its tables"
            )
        await self._write(draft, bucket, after)
        return {"changed": True}

    async def give(self, draft: Draft, scopes: Iterable[Scope], holder: str) -> JsonObject:
        """Whoever makes something manages it. Where there is no room for one more grant, that is no reason to fail."""
        for scope in scopes:
            with suppress(BadRequest):
                await self.put(draft, Grant(scope, holder, Role.MANAGE, by=None))
        return {}

    async def clear(self, draft: Draft, scopes: Iterable[Scope]) -> JsonObject:
        for scope in scopes:
            await self.forget(draft, scope)
        return {}

    async def remove(self, draft: Draft, scope: Scope, holder: str) -> JsonObject:
        bucket, granted = await self._in(draft, scope)
        held = granted.get(scope.text, {})
        if holder not in held:
            return {"changed": False}
        await self._write(draft, bucket, _without(granted, scope.text, holder))
        return {"changed": True}

    async def forget(self, draft: Draft, scope: Scope) -> None:
        """What was granted on something that goes. Another one of the same name begins without grants."""
        bucket, granted = await self._in(draft, scope)
        # A grant that comes at the same moment must not stay behind.
        draft.depend_on(self.holding(scope))
        if scope.text in granted:
            await self._write(draft, bucket, {text: held for text, held in granted.items() if text != scope.text})

    def holding(self, scope: Scope) -> Key:
        """The cell that all grants on this are in."""
        return self._account if scope.text == _ACCOUNT else self._keys.grants_bucket(_bucket_of(scope))

    async def _in(self, draft: Draft, scope: Scope) -> tuple[str | None, Granted]:
        """The bucket a scope is in (None: the account's cell), and all that is in it."""
        if scope.text == _ACCOUNT:
            await draft.read(self._account, self.key)
            return None, (await draft.current(self._account) or {}).get(_GRANTS, {})
        bucket = _bucket_of(scope)
        # Together: most often all of them are needed.
        await draft.read(self._keys.grants_bucket(bucket), self._index, self.key)
        return bucket, (await draft.current(self._keys.grants_bucket(bucket)) or {}).get(_GRANTS, {})

    async def _write(self, draft: Draft, bucket: str | None, granted: Granted) -> None:
        if bucket is None:
            draft.write(self._account, {_GRANTS: granted})
            await self._point(draft, self.key, _ACCOUNT, self._account)
            return
        key = self._keys.grants_bucket(bucket)
        draft.write(key, {_GRANTS: granted})
        await self._point(draft, self._index, bucket, key)
        await self._point(draft, self.key, self._warehouse, self._index)

    async def _point(self, draft: Draft, index: Key, name: str, to: Key) -> None:
        """Let an index say at which revision this cell is once the draft is committed."""
        revisions = (await draft.current(index) or {}).get("revisions", {})
        draft.write(index, {"revisions": {**revisions, name: draft.seen[to].revision + 1}})


def refuse_granted(namespace: Sequence[str], holding: Cell) -> None:
    """Grants are outside of transactions, and must not outlive what they are on."""
    if Scope.namespace(namespace).text in _granted(holding):
        raise BadRequest(
            f"there are grants on namespace {'.'.join(namespace)}: drop it outside of a transaction, or remove them "
            f"first with lakepact grants remove"
        )


def pointer_key(keys: Keys, scope: Scope) -> Key:
    """The cell of a table or view that a grant is on."""
    match scope.kind:
        case "tables":
            return keys.table(scope.id)
        case "views":
            return keys.view(scope.id)
        case _:
            return keys.delta(scope.id)


def _bucket_of(scope: Scope) -> str:
    return f"{hashlib.sha256(scope.text.encode()).digest()[0] % _BUCKETS:02x}"


def _granted(cell: Cell) -> Granted:
    granted: Granted = (cell.value or {}).get(_GRANTS, {})
    return granted


def _without(granted: Granted, scope: str, holder: str) -> dict[str, Any]:
    after = {
        text: {name: one for name, one in held.items() if (text, name) != (scope, holder)}
        for text, held in granted.items()
    }
    return {text: held for text, held in after.items() if held}


def _by_holder(every: Iterable[Granted]) -> dict[str, list[tuple[str, Role]]]:
    found: dict[str, list[tuple[str, Role]]] = {}
    for granted in every:
        for scope, held in granted.items():
            for holder, one in held.items():
                found.setdefault(holder, []).append((scope, Role.named(one["role"])))
    return found
