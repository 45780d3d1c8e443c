"""What each page of `/ui` shows, in words. They answer with HTML, errors too. All are limited to what may be seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakepact.server.openapi.tags import Operation, Tag


def _page(summary: str, text: str, *parameters: str) -> Operation:
    return Operation(Tag.PAGES, summary, text, {200: "Text"}, parameters=parameters, media="text/html")


def _way(summary: str, text: str, *parameters: str) -> Operation:
    """It leads elsewhere."""
    text += " 404 where nobody logs in over an identity provider (`oidc_client_id`)."
    return Operation(Tag.PAGES, summary, text, {303: None}, parameters=parameters, media="text/html")


def _form(summary: str, text: str) -> Operation:
    return Operation(Tag.PAGES, summary, text, {303: None}, refusals=(403, 408, 409, 504), media="text/html")


_TOKEN: Final = "The form carries its session's `csrf` and comes from a page of this server: else 403."

PAGES: Final[Mapping[str, Operation]] = {
    "showHome": _page(
        "Overview", "Whether the server is well, its warehouses, and the latest commits, as far as they may be seen."
    ),
    "showServer": _page("The server", "Health, charts, last runs of upkeep; for those who may read a whole warehouse."),
    "showStatic": Operation(Tag.PAGES, "A file of the pages", "Style and icon.", {200: "Text"}, media="*/*"),
    "showSearch": _page(
        "Search", "Tables, views and namespaces whose names hold a text.", "q", "warehouse", "after", "in"
    ),
    "showWarehouse": _page("A warehouse", "The namespaces at its root.", "after"),
    "showNamespace": _page("A namespace", "What is in it, in pages.", "after"),
    "showTable": _page(
        "A table or view", "Schema, partitioning, order, properties, size over time, branches, tags, and where it is."
    ),
    "showTimeline": _page(
        "The versions of a table", "Each with its source, lineage, quality and transaction, the newest first.", "from"
    ),
    "showSnapshots": _page("The snapshots of a table", "With their figures, the newest first."),
    "showLineage": _page("The lineage of a table", "A picture of what it was made of, and of what is made of it."),
    "showGovernance": _page(
        "Say something about a table", "The form for owner, description, tags and protection of a table or view."
    ),
    "showTransactions": _page("Transactions", "What is under way and what it waits for, and what has ended.", "state"),
    "confirmAbort": _page("Abort a transaction?", "What would be discarded, and the form that aborts it."),
    "showTransaction": _page("A transaction", "What it moved together, or what it holds and waits for."),
    "showPipelines": _page("Runs of pipelines", "Of the last 30 days, the newest first."),
    "showRun": _page("A run of a pipeline", "Its stages, its checks with sample rows, and its graph with durations."),
    "showMirrors": _page(
        "Mirrors", "How far each engine has followed each Delta table; for those who may read the whole warehouse."
    ),
    "showAudit": _page(
        "The audit trail",
        "Who asked for what, and what came of it, the newest first; for those who manage the warehouse.",
        *("principal", "operation", "outcome", "table", "before-moment"),
    ),
    "showAccount": _page("Your account", "Who you are to this server, and the way out."),
    "showLogin": _page("Log in", "The form for a token, where the server asks who looks."),
    "submitLogin": _form("Log in, by form", "With `token`: a session begins, in a cookie for these pages alone."),
    "startLogin": _way("Log in at the identity provider", "To its own page; the browser keeps a cookie.", "next"),
    "finishLogin": _way(
        "Back from the identity provider",
        "With what it sends people back with, and the cookie: a session begins, as with a token. "
        "An `error` of the identity provider's, or an answer to something else, is 401.",
        *("code", "login-state", "iss", "error"),
    ),
    "leaveIssuer": _way("Log out at the identity provider", "To where it forgets who it was, if it has such a place."),
    "submitLogout": _form("Log out, by form", f"The cookie is taken away. {_TOKEN}"),
    "submitGovernance": _form(
        "Say something about a table, by form",
        "With `owner`, `description`, `tags` (one on each line, as name=value) and `protected`, as `putGovernance` of "
        f"the API. 409 if somebody else was faster. {_TOKEN}",
    ),
    "submitAbort": _form("Abort a transaction, by form", f"As `abort` of the API. {_TOKEN}"),
    "submitRenew": _form("Renew a transaction, by form", f"For `seconds`, as `renew` of the API. {_TOKEN}"),
}
