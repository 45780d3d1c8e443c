"""The server itself: health, charts of its own numbers, upkeep. For those who may read all of some warehouse in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact import __version__
from lakepact.access import Principal
from lakepact.errors import LakepactError
from lakepact.server.http import Request
from lakepact.server.ui import text
from lakepact.server.ui.html import NOTHING, Markup, join, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.parts import BAD, GOOD, alert, badge, card, figures, grid, heading, mono
from lakepact.server.ui.rates import chart
from lakepact.server.ui.samples import EVERY_S, Samples
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows
from lakepact.upkeep.runner import JobRun

_JOBS: Final = {
    "recover": "Finishes what crashed servers left unfinished",
    "count": "Counts transactions that have not ended, for the metrics",
    "collect": "Trims and removes old records of transactions",
    "sweep": "Removes rows of Delta commits that never came",
    "receipts": "Writes receipts that a crash has left out",
    "reconcile": "Finds committed changes without a receipt",
    "pack-receipts": "Packs the receipts of days that have ended",
    "remove-receipts": "Removes receipts that are kept no longer",
    "grants": "Removes roles on what is gone",
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
    api_docs: str | None
    """Where it is. None where a browser is asked for a token that it does not have: a login is for the pages alone."""

    metrics: str | None
    """Likewise."""


class ServerPages:
    def __init__(self, windows: Windows, samples: Samples, about: About) -> None:
        self._windows = windows
        self._samples = samples
        self._about = about

    async def server(self, request: Request) -> Page:
        window = await self._window(request.principal)
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
                _elsewhere("All metrics", self._about.metrics, "/metrics", "a token of an administrator"),
                " · ",
                _elsewhere("API documentation", self._about.api_docs, "/docs"),
                class_="muted",
            ),
            tag(
                "div",
                card(
                    "Commit rate",
                    chart(rates, "Commits a second", lambda rate: rate.commits, text.short),
                    note="commits a second",
                ),
                card(
                    "Conflicts",
                    chart(rates, "Conflicts a second", lambda rate: rate.conflicts, text.short, "warm"),
                    note="conflicts a second",
                ),
                card("Commit latency, median", chart(rates, "Median", lambda rate: rate.median_s, text.duration)),
                card(
                    "Commit latency, 95 %",
                    chart(rates, "19 of 20 within", lambda rate: rate.slow_s, text.duration, "warm"),
                ),
                class_="pair",
            ),
            card("Upkeep", await self._upkeep(window), flush=True),
        )
        return Page("Server", body, section="server")

    async def _window(self, principal: Principal) -> Window:
        """Of a warehouse that may be read as a whole."""
        found = await self._windows.readable(principal)
        window = next((one for one in found if one.whole), found[0])
        window.need_whole("Health, charts and upkeep of the server are")
        return window

    async def _upkeep(self, window: Window) -> Markup:
        now_ms = window.now_ms()
        try:
            lease = await window.upkeep()
        except LakepactError as error:
            return alert("The lease of upkeep cannot be read", str(error))
        told: Mapping[str, Any] = lease["jobs"] if isinstance(lease.get("jobs"), dict) else {}
        mine = {job: run.to_json() for job, run in self._about.job_runs().items()}
        last = {job: _newest(told.get(job), mine.get(job)) for job in {*self._about.job_names(), *told, *mine}}
        # A job of one warehouse is named after it, and those of other accounts are not there.
        own = set(self._windows.warehouses_of(window.principal))
        last = {job: run for job, run in last.items() if " of " not in job or job.partition(" of ")[2] in own}
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
                _JOBS.get(job.partition(" of ")[0], ""),
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


def _elsewhere(title: str, place: str | None, path: str, token: str = "a token") -> Markup:
    return tag("a", title, href=place) if place is not None else join(f"{title}: GET {path} with {token}")


def _newest(told: Any, mine: Mapping[str, object] | None) -> Mapping[str, Any]:
    """The newer of what the lease tells and what this process knows."""
    shared: Mapping[str, Any] = told if isinstance(told, dict) else {}
    if mine is None:
        return shared
    return max(shared, mine, key=lambda one: text.number_of(one.get("began-ms")) or 0)
