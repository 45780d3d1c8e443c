"""Who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Principal:
    """One who was recognised: by a token, by a signature, or because the server asks nobody for a name."""

    name: str | None
    """The name that grants, transactions, receipts and the audit trail keep. None: nobody was asked."""

    account: str = "default"
    """The tenant whose warehouses are in sight."""

    groups: frozenset[str] = frozenset()
    """As the identity's issuer says."""

    admin: bool = False
    """May do everything in the account, and say who else may do what."""

    def __hash__(self) -> int:
        # Asked for with every request. Whether one is an administrator is left out: it is compared then.
        return hash((self.name, self.account, self.groups))


ANYONE: Final = Principal(None, admin=True)
"""A server without authentication asks nobody for a name, and everybody may do everything."""

NOBODY: Final = Principal(None)
"""Somebody who was not asked for a name, at a door of a server that asks at all others: they may do nothing else."""
