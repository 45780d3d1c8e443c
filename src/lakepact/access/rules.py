"""What one may do: roles, what they are held on, and what follows from them. Values only.

A role includes the earlier ones, and what is held on a namespace is held on everything below it.

    read    see it: lists, loads, histories
    write   commit to it
    create  make tables, views and namespaces in it
    manage  drop it, rename it, change a namespace's properties, say who else may do what
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Final, TypeAlias

from lakepact.access.principal import Principal
from lakepact.errors import InvalidRequest
from lakepact.kernel.keys import Key, key_of, segments_of
from lakepact.limits import NAMESPACE_LEVELS

EVERYONE: Final = "everyone"
"""The holder that everybody is whom the server knows."""

_USER: Final = "user:"
_GROUP: Final = "group:"
_MOST_HOLDER: Final = 300

Namespace: TypeAlias = tuple[str, ...]


class Role(IntEnum):
    READ = 1
    WRITE = 2
    CREATE = 3
    MANAGE = 4

    @property
    def word(self) -> str:
        """As it is written."""
        return self.name.lower()

    @classmethod
    def named(cls, word: object) -> Role:
        for role in cls:
            if role.word == word:
                return role
        raise InvalidRequest(f"a role is {', '.join(role.word for role in cls)}, not {str(word)[:40]!r}")


@dataclass(frozen=True, slots=True)
class Scope:
    """What a role is held on, by a name that a grant is kept under."""

    text: str

    @classmethod
    def account(cls) -> Scope:
        """All warehouses of an account."""
        return cls("account")

    @classmethod
    def warehouse(cls) -> Scope:
        return cls("warehouse")

    @classmethod
    def namespace(cls, levels: Iterable[str]) -> Scope:
        """A namespace and all below it."""
        return cls(key_of("namespace", *levels))

    @classmethod
    def thing(cls, family: str, id: str) -> Scope:
        """One table or view, by its id: another one that gets its name later gets nothing else."""
        return _thing(family, id)

    @property
    def kind(self) -> str:
        return self.text.partition("/")[0]

    @property
    def levels(self) -> Namespace:
        """Of a namespace."""
        return segments_of(Key(self.text))[1:]

    @property
    def id(self) -> str:
        """Of a table or view."""
        return segments_of(Key(self.text))[-1]

    @property
    def is_thing(self) -> bool:
        return self.kind not in ("account", "warehouse", "namespace")


@lru_cache(maxsize=65_536)
def _thing(family: str, id: str) -> Scope:
    # Asked for with every request.
    return Scope(key_of(family, id))


_ACCOUNT: Final = Scope.account()


@dataclass(frozen=True, slots=True)
class Rights:
    """What one principal holds in one warehouse."""

    everywhere: Role | None = None
    """On the warehouse, or on its account."""

    namespaces: Mapping[Namespace, Role] = field(default_factory=dict)
    things: Mapping[str, Role] = field(default_factory=dict)
    """Tables and views, by the text of their scope."""

    on_account: Role | None = None
    """On the account alone: it counts everywhere too."""

    def on_namespace(self, levels: Iterable[str]) -> Role | None:
        best = self.everywhere
        if self.namespaces:
            levels = tuple(levels)
            # Requests with deeper namespaces are refused before; the cost of this loop is quadratic in the depth.
            for depth in range(1, min(len(levels), NAMESPACE_LEVELS.most) + 1):
                best = higher(best, self.namespaces.get(levels[:depth]))
        return best

    def on_thing(self, levels: Iterable[str], scope: Scope) -> Role | None:
        best = self.on_namespace(levels)
        return higher(best, self.things.get(scope.text)) if self.things else best

    @property
    def highest(self) -> Role | None:
        """The best there is anywhere."""
        best = self.everywhere
        for role in (*self.namespaces.values(), *self.things.values()):
            best = higher(best, role)
        return best


ALL: Final = Rights(Role.MANAGE, on_account=Role.MANAGE)
NOTHING: Final = Rights()


def higher(one: Role | None, other: Role | None) -> Role | None:
    if one is None or other is None:
        return one if other is None else other
    return max(one, other)


def holders_of(principal: Principal) -> list[str]:
    """The names under which a principal holds roles."""
    return [EVERYONE, user(principal.name or ""), *(group(one) for one in principal.groups)]


def rights_of(roles: Iterable[tuple[str, Role]]) -> Rights:
    """What these roles come to, each held on the scope of this text."""
    everywhere: Role | None = None
    on_account: Role | None = None
    namespaces: dict[Namespace, Role] = {}
    things: dict[str, Role] = {}
    for text, role in roles:
        scope = Scope(text)
        if scope.is_thing:
            things[text] = max(role, things.get(text, role))
        elif scope.kind == "namespace":
            namespaces[scope.levels] = max(role, namespaces.get(scope.levels, role))
        else:
            everywhere = higher(everywhere, role)
            if scope == _ACCOUNT:
                on_account = higher(on_account, role)
    return Rights(everywhere, namespaces, things, on_account)


def holder(text: object) -> str:
    """A holder as it is written: `user:NAME`, `group:NAME` or `everyone`."""
    kinds = (_USER, _GROUP)
    if isinstance(text, str) and (
        text == EVERYONE or any(text.startswith(one) and len(one) < len(text) <= _MOST_HOLDER for one in kinds)
    ):
        return text
    raise InvalidRequest(f"a holder is user:NAME, group:NAME or everyone, not {str(text)[:60]!r}")


def user(name: str) -> str:
    return _USER + name


def group(name: str) -> str:
    return _GROUP + name


def principal_of(holder: str, account: str) -> Principal:
    """Somebody who is this holder and nobody else."""
    if holder.startswith(_USER):
        return Principal(holder.removeprefix(_USER), account)
    # A user without a name holds nothing.
    return Principal("", account, frozenset({holder.removeprefix(_GROUP)}) if holder != EVERYONE else frozenset())


@dataclass(frozen=True, slots=True)
class Rule:
    """What an operation needs, in words for the docs and as the role that is asked of its main object."""

    role: Role | None
    """None: it is not a matter of roles."""

    on: str

    @property
    def needed(self) -> Role:
        assert self.role is not None, self.on
        return self.role


_OWN_OR_HELD: Final = "one's own; those of others: manage on the warehouse, or on a table that it holds, prepared"


def _rules() -> dict[str, Rule]:
    read, write, create, manage = Role.READ, Role.WRITE, Role.CREATE, Role.MANAGE
    return {
        # Iceberg
        "getConfig": Rule(None, "a warehouse of one's account"),
        "listNamespaces": Rule(read, "each namespace, or anything in it; others are left out"),
        "createNamespace": Rule(create, "the parent, or the warehouse; with a `location`: manage on the warehouse"),
        "loadNamespaceMetadata": Rule(read, "the namespace, or anything in it"),
        "namespaceExists": Rule(read, "the namespace, or anything in it"),
        "dropNamespace": Rule(manage, "the namespace"),
        "updateProperties": Rule(manage, "the namespace; of `location`: manage on the warehouse"),
        "listTables": Rule(read, "each table; others are left out"),
        "createTable": Rule(create, "the namespace; at a place of one's own choice: manage on the warehouse"),
        "loadTable": Rule(read, "the table"),
        "tableExists": Rule(read, "the table"),
        "updateTable": Rule(write, "the table; if it is new: create on the namespace"),
        "dropTable": Rule(manage, "the table"),
        "reportMetrics": Rule(None, "a warehouse of one's account; nothing is kept"),
        "unregisterTable": Rule(manage, "the table"),
        "registerTable": Rule(manage, "the warehouse: the file may be anybody's"),
        "renameTable": Rule(manage, "the table, and create on the namespace it goes to"),
        "listViews": Rule(read, "each view; others are left out"),
        "createView": Rule(create, "the namespace"),
        "loadView": Rule(read, "the view"),
        "viewExists": Rule(read, "the view"),
        "replaceView": Rule(write, "the view"),
        "dropView": Rule(manage, "the view"),
        "registerView": Rule(manage, "the warehouse: the file may be anybody's"),
        "renameView": Rule(manage, "the view, and create on the namespace it goes to"),
        # Delta
        "listDeltaTables": Rule(read, "each table; others are left out"),
        "createDeltaTable": Rule(create, "the namespace; at a place of one's own choice: manage on the warehouse"),
        "loadDeltaTable": Rule(read, "the table"),
        "deltaTableExists": Rule(read, "the table"),
        "commitDeltaTable": Rule(write, "the table"),
        "dropDeltaTable": Rule(manage, "the table"),
        "loadDeltaHistory": Rule(read, "the table"),
        "importDeltaTable": Rule(manage, "the warehouse: the files may be anybody's"),
        "verifyDeltaTable": Rule(read, "the table"),
        "mirrorDeltaTables": Rule(write, "each table"),
        "renameDeltaTable": Rule(manage, "the table, and create on the namespace it goes to"),
        # transactions
        "commitTransaction": Rule(write, "every table; for new ones: create on the namespace"),
        "batchLoadTables": Rule(read, "every table"),
        "beginTransaction": Rule(read, "anything in the warehouse"),
        "listTransactions": Rule(None, "one's own; those of others: manage on the warehouse"),
        "loadTransaction": Rule(None, _OWN_OR_HELD),
        "prepareTransaction": Rule(None, "one's own, and again all that it has staged; write on what it has only read"),
        "publishTransaction": Rule(None, "one's own, and again all that it has staged"),
        "abortTransaction": Rule(None, _OWN_OR_HELD),
        "renewTransaction": Rule(None, "one's own; those of others: manage on the warehouse"),
        "reportRun": Rule(None, "one's own; those of others: manage on the warehouse"),
        "loadStateInTransaction": Rule(read, "the warehouse, or a document of one's own"),
        "putState": Rule(write, "the warehouse, or a document of one's own"),
        "loadState": Rule(read, "the warehouse, or a document of one's own"),
        # storage, and what was dropped
        "loadCredentials": Rule(read, "the table; credentials that write: write"),
        "signRequest": Rule(read, "the table; for requests that write: write"),
        "listDropped": Rule(manage, "each table or view; others are left out"),
        "undropTable": Rule(manage, "the table or view, and create on the namespace it comes back to"),
        "listReachable": Rule(manage, "the warehouse: it names the files of all tables"),
        "listReachableFiles": Rule(manage, "the warehouse: it names the files of all tables"),
        # rights, governance, and who did what
        "listGrants": Rule(manage, "what they are on; one's own may always be listed"),
        "addGrant": Rule(manage, "what it is on"),
        "removeGrant": Rule(manage, "what it is on"),
        "checkGrant": Rule(manage, "what it is on; oneself may always be asked about"),
        "loadGovernance": Rule(read, "the table or view"),
        "putGovernance": Rule(manage, "the table or view"),
        "listAudit": Rule(manage, "the warehouse; of tokens: administrators of the account"),
        # pages: each shows what may be seen
        "showHome": Rule(read, "anything in a warehouse of one's account; the server's numbers: a whole one"),
        "showWarehouse": Rule(read, "anything in the warehouse; namespaces without anything to see are left out"),
        "showNamespace": Rule(read, "the namespace, or anything in it; the rest is left out"),
        "showSearch": Rule(read, "each table, view and namespace; others are left out"),
        "showTable": Rule(read, "the table or view; other tables that its versions name: read on each"),
        "showTimeline": Rule(read, "the table; other tables that its versions name: read on each"),
        "showSnapshots": Rule(read, "the table"),
        "showLineage": Rule(read, "the table, and each other one in the picture"),
        "showGovernance": Rule(manage, "the table or view"),
        "showTransactions": Rule(read, "as `showTransaction` for each; others are left out"),
        "showTransaction": Rule(
            read, "one's own; of what others have committed the tables; what they have not: manage on the warehouse"
        ),
        "showPipelines": Rule(read, "as `showRun` for each; others are left out"),
        "showRun": Rule(read, "one's own; of the runs of others the tables they have made, read and checked"),
        "showMirrors": Rule(read, "the warehouse"),
        "showAudit": Rule(manage, "the warehouse; of tokens: administrators of the account"),
        "showServer": Rule(read, "a warehouse of one's account, the whole of it"),
        "submitGovernance": Rule(manage, "the table or view"),
        "confirmAbort": Rule(read, "as `showTransaction`"),
        "submitAbort": Rule(read, "anything in the warehouse; one's own, those of others: manage on the warehouse"),
        "submitRenew": Rule(read, "anything in the warehouse; one's own, those of others: manage on the warehouse"),
    }


RULES: Final[Mapping[str, Rule]] = _rules()
"""Every operation of the APIs. One that is not here is refused."""
