"""What there is for whoever asks: which warehouses, and each of them behind its guard."""

from __future__ import annotations

from lakepact.access import Principal
from lakepact.catalog.catalog import Catalog
from lakepact.catalog.guard import Guard
from lakepact.catalog.guarded_catalog import GuardedCatalog
from lakepact.catalog.guarded_transactions import GuardedTransactions
from lakepact.catalog.trail import Trail


def seen_by(catalog: Catalog, principal: Principal, trail: Trail) -> Catalog:
    """The catalog for whoever asks. A server that asks nobody for a name gives it as it is."""
    if _may_be_anybody(principal):
        return catalog
    guard = Guard(catalog, principal, trail)
    return GuardedCatalog(catalog, guard, GuardedTransactions)


def in_sight(catalog: Catalog, principal: Principal) -> bool:
    """Whether this warehouse exists for whoever asks. Those of other accounts do not."""
    return _may_be_anybody(principal) or catalog.warehouse.account == principal.account


def _may_be_anybody(principal: Principal) -> bool:
    """Whether the server asks nobody for a name. Somebody without one, where others have theirs, may do nothing."""
    return principal.name is None and principal.admin
