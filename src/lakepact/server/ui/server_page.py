"""The server itself: home, health, charts of its own numbers, upkeep, mirrors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact import __version__
from lakepact.catalog import Catalog
from lakepact.delta.ports import MirrorRow, MirrorState
from lakepact.errors import LakepactError
from lakepact.kernel.model import State
from lakepact.server.http import Request
from lakepact.server.ui import activity, text
from lakepact.server.ui.charts import Point, area
from lakepact.server.ui.data import Windows
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import (
    ACCENT,
    BAD,
    CALM,
    GOOD,
    WARN,
    alert,
    badge,
    card,
    empty,
    figures,
    grid,
    heading,
    mono,
)
from lakepact.server.ui.samples import EVERY_S, Rate, Samples
from lakepact.server.ui.transactions_page import TransactionPages
from lakepact.server.ui.versions import table_link
from lakepact.upkeep.lease import UPKEEP
from lakepact.upkeep.runner import JobRun

_MIRRORS: Final = {
    MirrorState.ACTIVE: GOOD,
    MirrorState.RETRYING: WARN,
    MirrorState.CONFLICT: BAD,
    MirrorState.DEAD: BAD,
    MirrorState.OFF: CALM,
}
_MOST_MIRRORS: Final = 500
_JOBS: Final = {
    "recover": "Finishes what crashed servers left unfinished",
    "collect": "Trims and removes old records of transactions",
    "sweep": "Removes rows of Delta commits that never came",
    "receipts": "Writes receipts that a crash has left out",
    "reconcile": "Finds committed changes without a receipt",
    "pack-receipts": "Packs the receipts of days that have ended",
    "remove-receipts": "Removes receipts that are kept no longer",
    "gc": "Collects what dropped tables and abandoned transactions left",
}


@dataclass(frozen=True, slots=True)
class About:
    """What the server page is told of the process it is in."""

    store_kind: str
    workers: int
    unready: Callable[[], Awaitable[str | None]]
    job_names: Callable[[], Sequence[str]]
    job_runs: Callable[[], Mapping[str, JobRun]]
    api_docs: str
    metrics: str


class ServerPages:
    def __init__(
        self, windows: Windows, links: Links, samples: Samples, about: About, transactions: TransactionPages
    ) -> None:
        self._windows = windows
        self._links = links
        self._samples = samples
        self._about = about
        self._transactions = transactions

    async def home(self, request: Request) -> Page:
        now = self._samples.take()
        reason = await self._about.unready()
        catalogs = await self._windows.readable(request.principal)
        first = self._windows.default_of(request.principal)
        default = next((one for one in catalogs if one.warehouse.name == first), catalogs[0])
        warehouse = default.warehouse.name
        body: list[Child] = [
            heading(
                "Overview",
                badge("ready", GOOD) if reason is None else badge("not ready", BAD),
                lead="Tables that move together: one commit changes many, every reader sees all of it or none.",
            )
        ]
        if reason is not None:
            body.append(alert("This server gets no traffic now", reason))
            return Page("Overview", body, warehouse=warehouse)
        shows = await self._windows.shows(default, request.principal)
        under_way, more = await activity.undecided_records(default, shows)
        ended = await activity.recent(default, shows, states=(State.COMMITTED,), limit=8)
        rates = self._samples.rates()
        body += [
            figures(
                (
                    ("Commits, last minute", _per_second(rates)),
                    ("Commits since start", f"{now.applied:,.0f}"),
                    ("Conflicts since start", f"{now.conflicts:,.0f}"),
                    (
                        "Under way",
                        tag(
                            "a",
                            f"{len(under_way):,}{'+' if more else ''}",
                            href=self._links.transactions(warehouse),
                        ),
                    ),
                )
            ),
            card("Warehouses", self._warehouses(catalogs), flush=True),
            card("Commit rate", self._chart(rates, "Commits a second", lambda rate: rate.commits, text.short)),
            card(
                "Latest commits",
                self._transactions.ended(default, warehouse, ended.records),
                note=tag("a", "All transactions", href=self._links.transactions(warehouse)),
                flush=True,
            ),
        ]
        return Page("Overview", body, warehouse=warehouse)

    async def server(self, request: Request) -> Page:
        now = self._samples.take()
        reason = await self._about.unready()
        rates = self._samples.rates()
        whose = "this server" if self._about.workers == 1 else f"all {self._about.workers} workers of this server"
        body = (
            heading("Server", badge("ready", GOOD) if reason is None else badge("not ready", BAD)),
            alert("It should get no traffic", reason) if reason is not None else NOTHING,
            figures(
                (
                    ("Version", __version__),
                    ("Store", self._about.store_kind),
                    ("Workers", str(self._about.workers)),
                    ("Requests now", f"{max(now.open_requests, 0):,.0f}"),
                    ("Errors since start", f"{now.errors:,.0f}"),
                )
            ),
            tag(
                "p",
                f"The charts are of {whose}, over the last hour at most, one sample every {EVERY_S:g} s. ",
                tag("a", "All metrics", href=self._about.metrics),
                " · ",
                tag("a", "API documentation", href=self._about.api_docs),
                class_="muted",
            ),
            tag(
                "div",
                card("Commit rate", self._chart(rates, "Commits a second", lambda rate: rate.commits, text.short)),
                card(
                    "Conflicts",
                    self._chart(rates, "Conflicts a second", lambda rate: rate.conflicts, text.short, "warm"),
                ),
                card("Commit latency, median", self._chart(rates, "Median", lambda rate: rate.median_s, text.duration)),
                card(
                    "Commit latency, 95 %",
                    self._chart(rates, "19 of 20 within", lambda rate: rate.slow_s, text.duration, "warm"),
                ),
                class_="pair",
            ),
            card("Upkeep", await self._upkeep(request), flush=True),
        )
        return Page("Server", body, section="server")

    async def mirrors(self, request: Request) -> Page:
        warehouse = request.params["warehouse"]
        catalog = await self._windows.catalog(warehouse, request.principal)
        found = await self._windows.mirrors(catalog)
        behind = sum(
            one.current_version > one.mirrored_version and one.state is not MirrorState.OFF for _, one in found
        )
        ill = sum(one.state in (MirrorState.CONFLICT, MirrorState.DEAD) for _, one in found)
        body = (
            heading("Mirrors", lead="Copies of Delta tables in an engine's own form. They follow every commit."),
            figures((("Mirrors", f"{len(found):,}"), ("Behind", f"{behind:,}"), ("Need somebody", f"{ill:,}")))
            if found
            else NOTHING,
            card("Tables", self._mirrors(catalog, warehouse, found), flush=True)
            if found
            else empty("No mirrors", "Delta tables appear here, with how far each engine has followed."),
        )
        return Page("Mirrors", body, section="mirrors", warehouse=warehouse)

    # --- parts ---

    def _warehouses(self, catalogs: Sequence[Catalog]) -> Markup:
        rows = (
            (
                tag("a", name(one.warehouse.name), href=self._links.warehouse(one.warehouse.name), class_="named"),
                mono(name(one.warehouse.root)),
                badge("default", ACCENT) if one.warehouse.name == self._windows.default else "",
            )
            for one in catalogs
        )
        return grid(("Name", "Place", ""), rows, label="Warehouses")

    def _chart(
        self,
        rates: Sequence[Rate],
        title: str,
        value: Callable[[Rate], float | None],
        shown: Callable[[float], str],
        look: str = "",
    ) -> Markup:
        points = [
            Point(rate.at_ms, found, text.instant_text(rate.at_ms)[11:])
            for rate in rates
            if (found := value(rate)) is not None
        ]
        if len(points) < 2:
            return tag("p", "Not enough to draw yet. Come back in a minute.", class_="muted")
        return area(points, title=title, shown=shown, look=look)

    async def _upkeep(self, request: Request) -> Markup:
        [catalog, *_] = await self._windows.readable(request.principal)
        now_ms = catalog.parts.clock.now_ms()
        try:
            cell = (await catalog.parts.store.read([UPKEEP]))[UPKEEP]
        except LakepactError as error:
            return alert("The lease of upkeep cannot be read", str(error))
        lease: Mapping[str, Any] = cell.value or {}
        told: Mapping[str, Any] = lease["jobs"] if isinstance(lease.get("jobs"), dict) else {}
        mine = {job: run.to_json() for job, run in self._about.job_runs().items()}
        last = {job: _newest(told.get(job), mine.get(job)) for job in {*self._about.job_names(), *told, *mine}}
        until_ms = text.number_of(lease.get("until_ms")) or 0
        holder = (
            join(
                "Done by ",
                mono(name(str(lease.get("owner", "?")))),
                ", whose lease ends ",
                text.instant(until_ms, now_ms=now_ms),
                ".",
            )
            if until_ms > now_ms
            else "Nobody holds the lease now; a server takes it with its next turn."
        )
        rows = (
            (
                mono(name(job)),
                _JOBS.get(job, ""),
                text.instant(run.get("began-ms"), now_ms=now_ms) if run else tag("span", "not yet", class_="muted"),
                text.duration(run.get("seconds")) if run else "–",
                (badge(name(str(run["error"])), BAD) if run.get("error") else badge("well", GOOD)) if run else "",
            )
            for job, run in sorted(last.items())
        )
        columns = ("Job", "What it does", "Last pass", "Took", "Ended")
        return join(
            grid(columns, rows, label="Upkeep", numbers=(2, 3)),
            tag("p", holder, " Passes of other servers are known up to half a lease late.", class_="muted end"),
        )

    def _mirrors(self, catalog: Catalog, warehouse: str, found: Sequence[tuple[str, MirrorRow]]) -> Markup:
        now_ms = catalog.parts.clock.now_ms()
        # Those that need somebody first, then those that are behind.
        ordered = sorted(
            found,
            key=lambda pair: (
                pair[1].state not in (MirrorState.CONFLICT, MirrorState.DEAD),
                pair[1].mirrored_version - pair[1].current_version,
                pair[0],
            ),
        )
        rows = (
            (
                table_link(self._links, warehouse, table),
                one.engine,
                badge(one.state.value, _MIRRORS[one.state]),
                f"{one.mirrored_version:,}",
                _lag(one),
                text.instant(one.last_sync_ms, now_ms=now_ms) if one.last_sync_ms else "never",
                _trouble(one),
            )
            for table, one in ordered[:_MOST_MIRRORS]
        )
        columns = ("Table", "Engine", "State", "Has version", "Behind by", "Last sync", "Trouble")
        more = len(ordered) - _MOST_MIRRORS
        return join(
            grid(columns, rows, label="Mirrors", numbers=(3, 4, 5)),
            tag("p", f"{more:,} more are in step or less far behind.", class_="muted end") if more > 0 else None,
        )


def _per_second(rates: Sequence[Rate]) -> str:
    lately = rates[-6:]
    return f"{sum(rate.commits for rate in lately) / len(lately):.2g} /s" if lately else "–"


def _newest(told: Any, mine: Mapping[str, object] | None) -> Mapping[str, Any]:
    """The newer of what the lease tells and what this process knows."""
    shared: Mapping[str, Any] = told if isinstance(told, dict) else {}
    if mine is None:
        return shared
    return max(shared, mine, key=lambda one: text.number_of(one.get("began-ms")) or 0)


def _lag(one: MirrorRow) -> Child:
    behind = one.current_version - one.mirrored_version
    if behind <= 0 or one.state is MirrorState.OFF:
        return "–" if one.state is MirrorState.OFF else "in step"
    return badge(text.plural(behind, "version"), WARN)


def _trouble(one: MirrorRow) -> Child:
    if one.last_error is None or one.state is MirrorState.ACTIVE:
        return tag("span", "–", class_="muted")
    return tag("span", name(one.last_error[:300]))
