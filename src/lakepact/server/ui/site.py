"""The routes of the page, and what is the same for all: a page becomes an answer, and so does an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import orjson
import structlog

from lakepact.access import Principal
from lakepact.catalog import Catalog
from lakepact.catalog.errors import NotFound
from lakepact.catalog.trail import Trail
from lakepact.delta.ports import DeltaRows
from lakepact.errors import LakepactError
from lakepact.server.auth.sessions import CALLBACK
from lakepact.server.auth.wiring import Auth
from lakepact.server.http import Headers, Request, Response
from lakepact.server.rest.errors import error_answer
from lakepact.server.routing import Handler, Route
from lakepact.server.ui.account_page import AccountPages
from lakepact.server.ui.audit_page import AuditPages
from lakepact.server.ui.catalog_page import CatalogPages
from lakepact.server.ui.governance_page import GovernancePages
from lakepact.server.ui.home_page import HomePages
from lakepact.server.ui.html import name, tag
from lakepact.server.ui.layout import GUARDS, STATIC, Frame, Page, Reach
from lakepact.server.ui.lineage import Lineage
from lakepact.server.ui.lineage_page import LineagePages
from lakepact.server.ui.links import ROOT, Links
from lakepact.server.ui.mirrors_page import MirrorPages
from lakepact.server.ui.parts import alert, heading
from lakepact.server.ui.pipelines_page import PipelinePages
from lakepact.server.ui.runs import RunReports
from lakepact.server.ui.samples import Samples
from lakepact.server.ui.server_page import About, ServerPages
from lakepact.server.ui.table_page import GOVERN, TablePages
from lakepact.server.ui.transactions_page import TransactionPages
from lakepact.server.ui.windows import Windows

Show: TypeAlias = Callable[[Request], Awaitable[Page]]
Act: TypeAlias = Callable[[Request], Awaitable[Response]]

_TITLES = {
    400: "That cannot be",
    403: "Not allowed",
    404: "Not here",
    405: "Not like this",
    409: "Not now",
    429: "Too often",
    503: "Not now",
}
_PERHAPS = "It may have been renamed or dropped, or you may not read it. Search for it, or ask whoever manages it."

_log = structlog.get_logger(__name__)


class Site:
    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        default_warehouse: str,
        samples: Samples,
        about: About,
        auth: Auth,
        *,
        base_path: str = "",
        rows: DeltaRows | None = None,
        trail: Trail | None = None,
    ) -> None:
        links = Links(base_path)
        windows = Windows(catalogs, default_warehouse, rows, trail)
        self._frame = Frame(links, default_warehouse)
        self._account = AccountPages(auth.sessions, auth.guard, links, self._frame, auth.login)
        runs = RunReports(windows.documents)
        self._catalog = CatalogPages(windows, links, runs)
        self._tables = TablePages(windows, links, self._catalog)
        self._governance = GovernancePages(links, self._tables, auth.sessions)
        self._transactions = TransactionPages(windows, links, auth.sessions)
        self._pipelines = PipelinePages(windows, links, runs)
        self._lineage = LineagePages(links, self._tables, Lineage(windows.timeline, runs))
        self._mirrors = MirrorPages(windows, links)
        self._audit = AuditPages(windows, links)
        self._home = HomePages(windows, links, samples, about)
        self._server = ServerPages(windows, samples, about)
        self._windows = windows
        self._links = links
        self._asks = auth.sessions.asks

    def routes(self) -> list[Route]:
        table = "/ui/catalog/{warehouse}/{namespace}/{table}"
        transaction = "/ui/transactions/{warehouse}/{transaction}"
        shown: list[tuple[str, str, Show]] = [
            ("/ui", "showHome", self._home.home),
            ("/ui/server", "showServer", self._server.server),
            ("/ui/search", "showSearch", self._catalog.search),
            ("/ui/catalog/{warehouse}", "showWarehouse", self._catalog.warehouse),
            ("/ui/catalog/{warehouse}/{namespace}", "showNamespace", self._catalog.namespace),
            (table, "showTable", self._tables.overview),
            (f"{table}/timeline", "showTimeline", self._tables.timeline),
            (f"{table}/snapshots", "showSnapshots", self._tables.snapshots),
            (f"{table}/lineage", "showLineage", self._lineage.lineage),
            (f"{table}/{GOVERN}", "showGovernance", self._governance.form),
            ("/ui/transactions/{warehouse}", "showTransactions", self._transactions.overview),
            (transaction, "showTransaction", self._transactions.show),
            (f"{transaction}/abort", "confirmAbort", self._transactions.confirm_abort),
            ("/ui/pipelines/{warehouse}", "showPipelines", self._pipelines.overview),
            ("/ui/pipelines/{warehouse}/{transaction}", "showRun", self._pipelines.run),
            ("/ui/mirrors/{warehouse}", "showMirrors", self._mirrors.mirrors),
            ("/ui/audit/{warehouse}", "showAudit", self._audit.audit),
            ("/ui/account", "showAccount", self._account.account),
        ]
        return [
            Route("GET", "/ui/static/{file}", "showStatic", self._guarded(self._static), open=True),
            Route("GET", "/ui/login", "showLogin", self._guarded(self._account.login), open=True),
            Route("POST", "/ui/login", "submitLogin", self._guarded(self._account.begin), open=True),
            Route("GET", "/ui/login/issuer", "startLogin", self._guarded(self._account.start), open=True),
            Route("GET", CALLBACK, "finishLogin", self._guarded(self._account.finish), open=True),
            Route("GET", "/ui/logout/issuer", "leaveIssuer", self._guarded(self._account.leave), open=True),
            Route("POST", "/ui/logout", "submitLogout", self._guarded(self._account.end)),
            *(Route("GET", template, operation, self._showing(show)) for template, operation, show in shown),
            Route("POST", f"{table}/{GOVERN}", "submitGovernance", self._guarded(self._governance.submit)),
            Route("POST", f"{transaction}/abort", "submitAbort", self._guarded(self._transactions.abort)),
            Route("POST", f"{transaction}/renew", "submitRenew", self._guarded(self._transactions.renew)),
        ]

    async def _static(self, request: Request) -> Response:
        file = STATIC.get(request.params["file"])
        if file is None:
            raise NotFound(f"there is no {request.params['file'][:100]!r} here")
        headers = (
            (b"Content-Type", file.media),
            (b"Cache-Control", b"public, max-age=31536000, immutable"),
            *GUARDS,
        )
        return Response(200, file.body, headers)

    def _showing(self, show: Show) -> Handler:
        async def answer(request: Request) -> Response:
            page = await show(request)
            return self._frame.response(page, request.principal, await self._reach(request.principal))

        return self._guarded(answer)

    def _guarded(self, act: Act) -> Handler:
        """An error is a page too."""

        async def answer(request: Request) -> Response:
            try:
                return await act(request)
            except Exception as error:
                told = self._told(error, request)
                return self._frame.response(_error_page(told), request.principal, await self._reach(request.principal))

        return answer

    def on_error(self, error: Exception, request: Request) -> Response:
        """The answer to whatever a handler raised: a page for people, and for all others what the API says."""
        ours = request.raw_path == ROOT or request.raw_path.startswith(ROOT + "/")
        if not ours:
            return error_answer(error)
        # Handlers of pages explain themselves: this one was not reached, so nobody knows who it is.
        return self._frame.response(_error_page(self._told(error, request), bare=self._asks))

    def refused(self, told: Response, scope: Mapping[str, Any], headers: Headers) -> Response:
        """The same for what no handler has seen: no such address, or nobody may ask. `told`: what a program is told.

        The first address of the server is a program's, who learns that nothing is there; a browser is led to the pages.
        """
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        root = self._links.root
        if path.rstrip("/") == root.removesuffix(ROOT) and b"text/html" in headers.get(b"accept", b""):
            return _moved(root)
        below = path == root or path.startswith(root + "/")
        if not below or not told.body.startswith(b'{"error"'):
            return told
        if told.status == 404 and path.endswith("/"):
            return _moved(path.rstrip("/"))
        if told.status == 404:
            return self._frame.response(_no_page(path, root, told, bare=self._asks))
        # Nobody has said who they are: there may be nothing to lead them to.
        return self._frame.response(_error_page(told, bare=self._asks))

    async def _reach(self, principal: Principal) -> Reach:
        try:
            return await self._windows.reach(principal)
        except LakepactError:
            # The page is about something else.
            return Reach((), self._windows.default_of(principal), whole=True)

    def _told(self, error: Exception, request: Request) -> Response:
        """What a program would be told."""
        told = error_answer(error)
        if told.status >= 500:
            _log.error("a page cannot be shown", request_id=request.id, exc_info=error)
        return told


def _error_page(told: Response, *, bare: bool = False) -> Page:
    """`told`: the same for programs."""
    message = str(orjson.loads(told.body)["error"]["message"])
    title = _TITLES.get(told.status, "This page cannot be shown")
    body = (
        heading(title),
        alert(str(told.status), name(message[:2_000])),
        tag("p", _PERHAPS, class_="muted") if told.status == 404 else None,
    )
    return Page(title, body, status=told.status, headers=told.headers, bare=bare)


def _no_page(path: str, root: str, told: Response, *, bare: bool) -> Page:
    """For an address that a person has typed: where endpoints are listed is of no use to them."""
    title = _TITLES[404]
    body = (
        heading(title),
        alert("404", name(f"there is no page at {path[:200]}")),
        tag("p", "Every page can be reached from ", tag("a", root, href=root), ".", class_="muted"),
    )
    return Page(title, body, status=404, headers=told.headers, bare=bare)


def _moved(place: str) -> Response:
    return Response(303, b"", ((b"Location", place.encode("latin-1")), (b"Vary", b"Accept"), *GUARDS))
