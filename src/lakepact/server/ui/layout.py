"""The frame of every page: head, navigation, search, foot; and the headers that keep a page to itself."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Final

from lakepact import __version__
from lakepact.access import Principal
from lakepact.server.http import Response
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag, visible
from lakepact.server.ui.links import Links

HTML: Final = b"text/html; charset=utf-8"
POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
GUARDS: Final = (
    (b"Content-Security-Policy", POLICY.encode()),
    (b"X-Content-Type-Options", b"nosniff"),
    (b"Referrer-Policy", b"same-origin"),
    (b"Cross-Origin-Opener-Policy", b"same-origin"),
)
_TOPS: Final = 256
"""Of different people and places, as many are remembered."""

_STATIC: Final = {"ui.css": b"text/css; charset=utf-8", "icon.svg": b"image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Static:
    """A file of the page: it never changes under its address, which holds its version."""

    body: bytes
    media: bytes
    version: str


def _static(file: str, media: bytes) -> Static:
    body = files("lakepact.server.ui").joinpath("static", file).read_bytes()
    return Static(body, media, hashlib.sha256(body).hexdigest()[:12])


STATIC: Final = {file: _static(file, media) for file, media in _STATIC.items()}


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    body: Child
    section: str = ""
    """Which entry of the navigation it belongs to."""

    warehouse: str = ""
    trail: tuple[tuple[str, str], ...] = ()
    """Where it lies: texts and addresses, from the top down."""

    aside: Markup = NOTHING
    search: str = ""
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = field(default=())
    bare: bool = False
    """For those who have not said who they are: there is nowhere to go yet."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where whoever looks may go from any page."""

    warehouses: tuple[str, ...]
    """Those in which they may see anything."""

    default: str
    """The one to lead them to from pages that are about none."""

    whole: bool
    """Whether there is a way to what is for those who may read all of a warehouse."""

    audited: frozenset[str] = frozenset()
    """The warehouses whose audit trail they may read."""


@dataclass(frozen=True, slots=True)
class _Top:
    """All that the top of a page shows."""

    section: str
    search: str
    bare: bool
    warehouse: str
    warehouses: tuple[str, ...]
    who: str | None
    whole: bool
    audited: frozenset[str]


class Frame:
    def __init__(self, links: Links, default: str) -> None:
        self._links = links
        self._anybodys = Reach((), default, True)
        # The same on page after page, for the same person.
        self._top = lru_cache(_TOPS)(self._made_top)
        self._head = join(
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("link", rel="stylesheet", href=links.static("ui.css", STATIC["ui.css"].version)),
            tag("link", rel="icon", type="image/svg+xml", href=links.static("icon.svg", STATIC["icon.svg"].version)),
        )
        self._foot = tag(
            "footer",
            tag(
                "div",
                tag("span", f"Lakepact {__version__}"),
                tag("span", "All times are UTC"),
                class_="wide",
            ),
            class_="foot",
        )

    def response(self, page: Page, principal: Principal | None = None, reach: Reach | None = None) -> Response:
        """Without a `reach` it is not known where they may go: they are led to where all begin."""
        reach = reach or self._anybodys
        who = principal.name if principal is not None else None
        warehouse = page.warehouse or reach.default
        document = join(
            Markup("<!doctype html>"),
            tag(
                "html",
                tag("head", self._head, tag("title", f"{visible(page.title)[:120]} · Lakepact")),
                tag(
                    "body",
                    _SKIP,
                    self._top(
                        _Top(
                            page.section,
                            page.search,
                            page.bare,
                            warehouse,
                            reach.warehouses,
                            who,
                            reach.whole,
                            reach.audited,
                        )
                    ),
                    tag(
                        "div",
                        page.aside,
                        tag("main", _trail(page.trail), page.body, id="main", tabindex="-1"),
                        class_="wide with-aside" if page.aside else "wide",
                    ),
                    self._foot,
                ),
                lang="en",
            ),
        )
        headers = ((b"Content-Type", HTML), (b"Cache-Control", b"private, no-cache"), *GUARDS, *page.headers)
        return Response(page.status, document.encode("utf-8", errors="replace"), headers)

    def _made_top(self, top: _Top) -> Markup:
        links, warehouse = self._links, top.warehouse
        brand = tag("a", _MARK, tag("span", "Lakepact"), class_="brand", href=links.home())
        if top.bare:
            return tag("header", tag("div", brand, class_="wide"), class_="top")
        entries = (
            ("catalog", "Catalog", links.warehouse(warehouse)),
            ("transactions", "Transactions", links.transactions(warehouse)),
            ("pipelines", "Pipelines", links.pipelines(warehouse)),
            *((("mirrors", "Mirrors", links.mirrors(warehouse)),) if top.whole else ()),
            *((("audit", "Audit", links.audit(warehouse)),) if warehouse in top.audited else ()),
            *((("server", "Server", links.server()),) if top.whole else ()),
        )
        menu = tag(
            "ul",
            (
                tag("li", tag("a", text, href=href, aria_current="true" if key == top.section else None))
                for key, text, href in entries
            ),
        )
        return tag(
            "header",
            tag(
                "div",
                brand,
                tag("nav", menu, class_="menu", aria_label="Main"),
                self._switch(top),
                self._find(top),
                tag("a", name(top.who), href=links.account(), class_="who", title="Your account") if top.who else None,
                class_="wide",
            ),
            class_="top",
        )

    def _switch(self, top: _Top) -> Markup:
        """Which warehouse it is, if there is more than one."""
        if len(top.warehouses) < 2:
            return NOTHING
        where = {
            "transactions": self._links.transactions,
            "pipelines": self._links.pipelines,
            "mirrors": self._links.mirrors,
        }.get(top.section, self._links.warehouse)

        def way(one: str) -> str:
            return self._links.audit(one) if top.section == "audit" and one in top.audited else where(one)

        return tag(
            "nav",
            tag(
                "ul",
                (
                    tag("li", tag("a", one, href=way(one), aria_current="true" if one == top.warehouse else None))
                    for one in top.warehouses
                ),
            ),
            class_="switch",
            aria_label="Warehouses",
        )

    def _find(self, top: _Top) -> Markup:
        return tag(
            "form",
            tag("input", type="hidden", name="warehouse", value=top.warehouse),
            tag("label", "Search tables", for_="q", class_="unseen"),
            tag(
                "input",
                type="search",
                id="q",
                name="q",
                value=visible(top.search) or None,
                placeholder="Search tables",
                accesskey="s",
                maxlength=200,
                autocomplete="off",
                spellcheck="false",
            ),
            role="search",
            action=self._links.search(),
            method="get",
            class_="find",
        )


@lru_cache(maxsize=1_000)
def _trail(steps: tuple[tuple[str, str], ...]) -> Markup:
    if not steps:
        return NOTHING
    return tag(
        "nav",
        tag("ol", (tag("li", tag("a", name(text), href=href)) for text, href in steps)),
        class_="trail",
        aria_label="Breadcrumbs",
    )


_SKIP: Final = tag("a", "Skip to content", class_="skip", href="#main")
_MARK: Final = tag(
    "svg",
    tag("path", d="M3 7.5c2.2-2 4.4-2 6.5 0s4.3 2 6.5 0 4-1.8 5 -1", class_="m1"),
    tag("path", d="M3 12.5c2.2-2 4.4-2 6.5 0s4.3 2 6.5 0 4-1.8 5 -1", class_="m2"),
    tag("path", d="M3 17.5c2.2-2 4.4-2 6.5 0s4.3 2 6.5 0 4-1.8 5 -1", class_="m3"),
    viewBox="0 0 24 24",
    width="22",
    height="22",
    aria_hidden="true",
    class_="mark",
)
