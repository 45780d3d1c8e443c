"""Roles and rights as values; and that no operation, no route and no call is without a rule."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakepact.access import Principal, Role, Scope
from lakepact.access.rules import ALL, NOTHING, RULES, higher, holder, holders_of, principal_of, rights_of
from lakepact.catalog.catalog import Catalog
from lakepact.catalog.guarded import GuardedOperations
from lakepact.catalog.guarded_catalog import GuardedCatalog
from lakepact.catalog.guarded_transactions import GuardedOverlay, GuardedTransactions
from lakepact.catalog.operations import Operations
from lakepact.catalog.overlay import Overlay
from lakepact.catalog.pointers import Pointer
from lakepact.catalog.transactions import Transactions
from lakepact.errors import InvalidRequest
from lakepact.server.app import build
from lakepact.settings import Settings

ROOT = Path(__file__).parents[2]

INSIDE = {"parts", "names", "cells", "cut", "shows", "table_files", "grants", "dropped"} | {
    *("load_delta_of", "delta_history_of", "governance_of", "verify_delta_of"),
}
"""What only the catalog itself and its guard use. A guarded one does not have it."""

NOT_OF_THE_CATALOG = {"livez", "readyz", "health", "metrics", "openapi", "docs"} | {
    *("getToken", "whoAmI", "listTokens", "createToken", "rotateToken", "revokeToken"),
    *("showStatic", "showLogin", "submitLogin", "submitLogout", "showAccount"),
    *("startLogin", "finishLogin", "leaveIssuer"),
}
"""Operations that tell nothing of any table: the server's, and those about who is asking."""


@pytest.mark.parametrize(
    ("plain", "guarded"),
    [
        (Operations, GuardedOperations),
        (Catalog, GuardedCatalog),
        (Overlay, GuardedOverlay),
        (Transactions, GuardedTransactions),
    ],
)
def test_t_right_9_every_operation_is_behind_a_rule(plain: type, guarded: type) -> None:
    public = {name for name, _ in inspect.getmembers(plain) if not name.startswith("_")} - INSIDE
    ours = {name for one in guarded.__mro__ if one.__name__.startswith("Guarded") for name in vars(one)}
    assert public <= ours, f"without a rule: {sorted(public - ours)}"


async def test_a_guarded_catalog_has_nothing_of_the_plain_one() -> None:
    bare = object.__new__(GuardedCatalog)
    GuardedOperations.__init__(bare, None, None)  # type: ignore[arg-type]
    for name in ("parts", "names", "cells", "grants", "_worker", "_cells", "_names"):
        with pytest.raises(AttributeError):
            getattr(bare, name)
    for unguarded in (bare.cut, bare.shows, bare.table_files):
        with pytest.raises((AttributeError, TypeError)):
            await unguarded([], [])  # type: ignore[arg-type, call-arg]
    seen = cast("Pointer", None)
    for of_one in (bare.load_delta_of(seen), bare.delta_history_of(seen, None, 1), bare.governance_of(seen)):
        with pytest.raises(AttributeError):
            await of_one
    with pytest.raises(AttributeError):
        await bare.verify_delta_of(seen)


def test_no_page_looks_past_its_window() -> None:
    """What limits a page to what may be seen is in few modules. The others have no way around it."""
    behind = {"window", "windows", "lists", "search", "timeline", "activity", "runs", "receipts", "site"}
    folder = ROOT / "src" / "lakepact" / "server" / "ui"
    modules = {file.stem: file.read_text() for file in folder.glob("*.py")}
    assert behind <= set(modules)
    past = re.compile(r"\.inside\b|\.parts\.|\bimport .*\bCatalog\b|catalog\.guard|\bseen_by\b")
    assert {name for name, code in modules.items() if past.search(code)} <= behind


async def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    service = await build(Settings.load(store="memory://", warehouse="memory://"))
    await service.close()
    assert {route.operation for route in service.routes} - NOT_OF_THE_CATALOG == set(RULES)


def test_the_docs_have_every_rule() -> None:
    text = (ROOT / "docs" / "access.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| ([a-z]+ \| .+|- \| .+) \|$", text, re.MULTILINE))
    wanted = {name: f"{rule.role.word if rule.role is not None else '-'} | {rule.on}" for name, rule in RULES.items()}
    assert rows == wanted


# --- values ---

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=4)
LEVELS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)


def test_a_role_includes_the_earlier_ones() -> None:
    assert [role.word for role in sorted(Role)] == ["read", "write", "create", "manage"]
    assert all(Role.named(role.word) is role for role in Role)
    for wrong in ("own", "READ", "", None, 1):
        with pytest.raises(InvalidRequest):
            Role.named(wrong)


@given(LEVELS, NAMES)
def test_a_scope_is_told_from_every_other_by_its_text(levels: tuple[str, ...], name: str) -> None:
    namespace = Scope.namespace(levels)
    assert (namespace.kind, namespace.levels, namespace.is_thing) == ("namespace", levels, False)
    thing = Scope.thing("tables", name)
    assert (thing.kind, thing.id, thing.is_thing) == ("tables", name, True)
    assert Scope.namespace((*levels, name)) != namespace


@given(LEVELS, LEVELS, st.sampled_from(Role))
def test_what_is_held_on_a_namespace_is_held_below_it_and_nowhere_else(
    held: tuple[str, ...], asked: tuple[str, ...], role: Role
) -> None:
    rights = rights_of([(Scope.namespace(held).text, role)])
    assert rights.on_namespace(asked) == (role if asked[: len(held)] == held else None)
    assert rights.on_namespace((*held, *asked)) == role
    assert rights.everywhere is None and rights.on_account is None
    assert rights.highest == role


def test_the_best_of_all_grants_counts() -> None:
    thing = Scope.thing("tables", "x")
    rights = rights_of(
        [(thing.text, Role.READ), (thing.text, Role.WRITE), ("namespace/a", Role.READ), ("warehouse", Role.READ)]
    )
    assert rights.on_thing(("a",), thing) is Role.WRITE
    assert rights.on_thing(("a",), Scope.thing("views", "x")) is Role.READ
    assert rights_of([("account", Role.MANAGE)]).everywhere is Role.MANAGE
    assert rights_of([("account", Role.MANAGE)]).on_account is Role.MANAGE
    assert rights_of([("warehouse", Role.MANAGE)]).on_account is None
    assert (ALL.everywhere, NOTHING.highest) == (Role.MANAGE, None)
    assert higher(None, None) is None


def test_holders_are_users_groups_and_everyone() -> None:
    ann = Principal("ann", groups=frozenset({"a:b"}))
    assert set(holders_of(ann)) == {"everyone", "user:ann", "group:a:b"}
    for text in ("user:ann", "group:a:b", "everyone"):
        assert holder(text) == text
        assert text in holders_of(principal_of(text, "default"))
    # A user whose name looks like a group is no group.
    assert "group:admins" not in holders_of(Principal("group:admins"))
    for wrong in ("ann", "user:", "group:", "Everyone", "", None, 3, "user:" + "x" * 400):
        with pytest.raises(InvalidRequest):
            holder(wrong)
