"""Transactions and what they touch, as words and links in other parts of a page."""

from __future__ import annotations

from typing import Final

from lakepact.catalog.receipts import CommittedChange
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import State, TransactionRecord
from lakepact.server.ui.activity import Touched, owner_of
from lakepact.server.ui.html import Child, Markup, name, tag
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import ACCENT, BAD, CALM, GOOD, WARN, badge, icon, mono

MOST_NAMED: Final = 4
"""Things that are named where there are many: for the others there is a page."""

_LOOKS: Final = {
    State.OPEN: ACCENT,
    State.PREPARING: WARN,
    State.PREPARED: WARN,
    State.COMMITTED: GOOD,
    State.FAILED: BAD,
    State.ABORTED: CALM,
    State.RETRYABLE: WARN,
}


def state_badge(state: State) -> Markup:
    return badge("refused" if state is State.FAILED else state.value, _LOOKS[state])


def short_id(transaction_id: str) -> str:
    """The beginning says when, the end tells it from its neighbours."""
    return f"{transaction_id[:8]}…{transaction_id[-6:]}"


def who(record: TransactionRecord) -> Child:
    """Whose it is, where the server knows."""
    owner = owner_of(record)
    return None if owner is None else name(owner)


def transaction_link(links: Links, warehouse: str, transaction_id: str) -> Markup:
    href = links.transaction(warehouse, transaction_id)
    return tag("a", mono(short_id(transaction_id)), href=href, title=transaction_id)


def touched_link(links: Links, warehouse: str, one: Touched) -> Markup:
    if one.identifier is None or one.what == "name":
        return name(one.name)
    *namespace, last = one.identifier
    href = links.table(warehouse, Identifier(tuple(namespace), last))
    return tag("a", icon(one.what), name(one.name), href=href, class_="named")


def changed_link(links: Links, warehouse: str, one: CommittedChange) -> Markup:
    if one.identifier is None:
        href = links.namespace(warehouse, one.namespace)
        return tag("a", icon("namespace"), name(".".join(one.namespace)), href=href, class_="named")
    href = links.table(warehouse, one.identifier)
    full = ".".join((*one.identifier.namespace, one.identifier.name))
    return tag("a", icon(one.kind), name(full), href=href, class_="named")
