"""The only place that wires: store, warehouses, catalog, routes, upkeep. A long module, for there is no other.

`build` opens everything or nothing, and says why not in an error for the command line. What it returns owns all of
it, and `close` gives it back in the opposite order.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import structlog

from lakepact.access.principal import Principal
from lakepact.catalog import Catalog, CatalogSettings
from lakepact.catalog.astray import tell_of_astray
from lakepact.catalog.sight import in_sight
from lakepact.catalog.trail import Trail
from lakepact.catalog.warehouse import Warehouse
from lakepact.errors import InvalidSetting
from lakepact.extras import how_to_install
from lakepact.kernel.ports import BlobStore, CellStore, Rng
from lakepact.kernel.trusted_time import TrustedClock
from lakepact.mirrors import Mirrors, MirrorSettings
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.server import logs
from lakepact.server.asgi import Admit, Application
from lakepact.server.auth.exposure import check_exposed
from lakepact.server.auth.wiring import Auth, auth_of
from lakepact.server.catalog_watch import CatalogWatch
from lakepact.server.health import Draining, Health
from lakepact.server.http import Request, Response
from lakepact.server.metrics import Metrics
from lakepact.server.openapi import docs_routes
from lakepact.server.rest import error_answer, rest_routes
from lakepact.server.rest.door import default_warehouse
from lakepact.server.routing import Route, Router
from lakepact.server.tls import Certificate
from lakepact.server.tracing import Asgi, Tracing, open_tracing
from lakepact.server.ui import Site
from lakepact.server.ui.samples import Samples
from lakepact.server.ui.server_page import About
from lakepact.server.vending import Delegation, Outside, vendors_of
from lakepact.settings import Settings
from lakepact.stores import delta_rows, open_blobs, open_store
from lakepact.upkeep.audit import AuditTrail
from lakepact.upkeep.clock_evidence import ClockEvidence
from lakepact.upkeep.collection import CollectorSettings, collection_job
from lakepact.upkeep.lease import Lease
from lakepact.upkeep.projection_lag import projection_lag_job
from lakepact.upkeep.receipt_jobs import ReceiptSettings, receipt_jobs
from lakepact.upkeep.receipts import Receipts
from lakepact.upkeep.restore import Restored, check_complete
from lakepact.upkeep.runner import LEASE_INTERVALS, Job, Runner, count_job, row_jobs, store_jobs

if TYPE_CHECKING:
    from lakepact.server.grpc.server import Admit as AdmitCall
    from lakepact.server.grpc.server import GrpcServer

_DRAIN_WITHIN_S: Final = 30.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """What the catalog is made of."""

    settings: Settings
    store: CellStore
    restored: Restored
    warehouses: Mapping[str, BlobStore]
    """By name; their URLs are in `settings.places()`."""

    metrics: Metrics
    clock: TrustedClock
    clock_evidence: ClockEvidence
    rng: Rng
    tasks: AsyncioTasks
    """What may go on after an answer. Drained before anything is closed."""

    process: str
    """A name that no other process has."""

    tracing: Tracing | None
    jobs: dict[str, Job] = field(default_factory=dict)
    """Upkeep. The catalog may add its own."""


@dataclass(frozen=True, slots=True)
class Service:
    asgi: Asgi
    routes: tuple[Route, ...]
    draining: Draining
    upkeep: Runner
    auth: Auth
    """Who is asking. Pages need its sessions."""

    grpc: GrpcServer | None
    """Not started yet, if the settings ask for it."""

    tls: Certificate | None
    """What to speak TLS with, at both doors. None: there is none in front of it here."""

    catalogs: Mapping[str, Catalog]
    trail: AuditTrail
    metrics: Metrics
    _stack: AsyncExitStack

    async def close(self) -> None:
        """Finish what goes on in the background, then give everything back."""
        await self._stack.aclose()


def _home(settings: Settings, catalogs: Mapping[str, Catalog]) -> Callable[[Principal], str | None]:
    """The warehouse of an account that tells of the account itself: none of another account's."""

    def home(principal: Principal) -> str | None:
        name = default_warehouse(catalogs, settings.default_warehouse, principal)
        return name if name in catalogs and in_sight(catalogs[name], principal) else None

    return home


async def build(settings: Settings, *, admit: Admit | None = None, admit_call: AdmitCall | None = None) -> Service:
    """Open what the settings name, and wire it. Raises InvalidSetting, StoreUnsuitable or StoreUnavailable.

    `admit` and `admit_call` say who sends a request, or a call. Without them nobody is asked for a name.
    """
    _check(settings)
    tls = Certificate.of(settings)
    async with AsyncExitStack() as stack:
        opened = await _open(settings, stack)
        if tls is not None:
            tls.tell(opened.metrics.certificate_ends)
        draining = Draining()
        health = Health(
            opened.store,
            store_kind=urlsplit(settings.store).scheme,
            warehouses=list(opened.warehouses),
            metrics=opened.metrics,
            draining=draining,
            open_metrics=settings.open_metrics,
            operators=settings.warehouse_account,
        )
        catalogs, watch = _catalogs(opened)
        await tell_of_astray(opened.store, [catalog.warehouse for catalog in catalogs.values()])
        mirrors = watch.mirrors
        if watch.receipts is not None:
            stack.callback(watch.receipts.hurry)
        trail = AuditTrail(
            opened.warehouses,
            opened.clock,
            process=opened.process,
            interval_s=settings.audit_interval_s,
            keep=settings.audit,
            on_lost=opened.metrics.audit_lost,
        )
        stack.push_async_callback(trail.stop)
        auth = auth_of(
            settings, opened.store, opened.clock, opened.rng, opened.metrics, trail, _home(settings, catalogs)
        )
        delegation = _delegation(opened, stack)
        lease = Lease(
            opened.store,
            opened.clock,
            opened.rng,
            owner=opened.process,
            lease_s=settings.upkeep_interval_s * LEASE_INTERVALS,
        )
        runner = Runner(
            lease,
            opened.jobs,
            opened.clock,
            opened.rng,
            interval_s=settings.upkeep_interval_s,
            on_turn=partial(_upkeep_ended, opened.metrics),
        )
        stack.push_async_callback(runner.stop)
        stack.push_async_callback(opened.clock_evidence.stop)
        samples = Samples(opened.metrics, opened.clock) if settings.ui else None
        site = None if samples is None else _site(opened, catalogs, samples, health, runner, auth, trail)
        pages = [] if site is None else site.routes()
        served = (
            *health.routes(),
            *auth.routes,
            *_catalog_routes(settings, catalogs, mirrors, delegation, trail),
            *pages,
        )
        described = docs_routes(served, base_path=settings.base_path, open=settings.open_docs)
        routes = tuple(auth.sessions.protect(route) for route in (*served, *described))
        if mirrors is not None:
            stack.push_async_callback(mirrors.stop)

        async def startup() -> None:
            # In every worker: each process has its own idea of the time.
            opened.clock_evidence.start()
            runner.start()
            trail.start()
            if samples is not None:
                samples.start()
            if mirrors is not None:
                # In every worker: each table has a lease of its own.
                mirrors.start()

        async def shutdown() -> None:
            await opened.clock_evidence.stop()
            await runner.stop()
            await trail.stop()
            if samples is not None:
                await samples.stop()
            if mirrors is not None:
                await mirrors.stop()

        application = Application(
            Router(routes, base_path=settings.base_path),
            metrics=opened.metrics,
            on_error=_on_error if site is None else site.on_error,
            max_body_bytes=settings.max_body_bytes,
            body_deadline_s=settings.request_deadline_s,
            log_request=_log_request(opened),
            startup=startup,
            shutdown=shutdown,
            admit=admit or auth.guard.admit,
            refuse=None if site is None else site.refused,
            draining=draining,
        )
        asgi: Asgi = application if opened.tracing is None else opened.tracing.application(application)
        grpc = None
        if settings.grpc_port is not None:
            grpc = _grpc(opened, catalogs, settings.grpc_port, trail, admit_call or auth.guard.admit_call, tls)
        if grpc is not None:
            stack.push_async_callback(grpc.stop)
        return Service(
            asgi, routes, draining, runner, auth, grpc, tls, catalogs, trail, opened.metrics, stack.pop_all()
        )
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class WithoutServer:
    """Store and catalogs as a server has them, for a command that works beside any number of servers."""

    store: CellStore
    clock: TrustedClock
    catalogs: Mapping[str, Catalog]
    mirrors: Mirrors | None


@asynccontextmanager
async def without_server(settings: Settings) -> AsyncIterator[WithoutServer]:
    """Open what the settings name, wired as in a server. Nothing goes on in the background but what follows commits."""
    _check(settings)
    async with AsyncExitStack() as stack:
        opened = await _open(settings, stack)
        catalogs, watch = _catalogs(opened)
        if watch.receipts is not None:
            stack.callback(watch.receipts.hurry)
        yield WithoutServer(opened.store, opened.clock, catalogs, watch.mirrors)


def _catalogs(opened: Opened) -> tuple[dict[str, Catalog], CatalogWatch]:
    """One catalog a warehouse, all of them over the one store; and what follows their commits."""
    settings, metrics = opened.settings, opened.metrics
    watch, rows = CatalogWatch(metrics), delta_rows(opened.store)
    limits = CatalogSettings(
        max_tables=settings.max_tables,
        max_updates=settings.max_updates,
        max_page=settings.max_page,
        deadline_s=settings.request_deadline_s,
        held_wait_s=settings.held_wait_s,
        cache_bytes=settings.metadata_cache_bytes,
        max_metadata_bytes=settings.max_metadata_bytes,
        multi_table=settings.multi_table_transactions,
        drop_retention_s=settings.drop_retention_s,
        longest_transaction_s=settings.max_ttl_s,
        generation=opened.restored.generation,
        restored_ms=opened.restored.ended_ms,
    )
    catalogs = {
        name: Catalog(
            Warehouse(name, place.url, place.account),
            opened.store,
            opened.warehouses[name],
            opened.clock,
            opened.rng,
            opened.tasks,
            replace(limits, mirrors=settings.mirrors_of(name)),
            rows=rows,
            watch=watch,
        )
        for name, place in settings.places().items()
    }
    opened.jobs.update({f"grants of {name}": catalog.sweep_grants for name, catalog in catalogs.items()})
    if rows is not None:
        opened.jobs.update(row_jobs(rows))
        # Where there are rows the store has an index of states.
        opened.jobs["count"] = count_job(opened.store, lambda found: metrics.unfinished_transactions(**found))
        watch.mirrors = Mirrors(
            catalogs,
            rows,
            opened.clock,
            owner=opened.process,
            settings=MirrorSettings(interval_s=settings.mirror_interval_s, max_attempts=settings.mirror_max_attempts),
            on_lag=metrics.mirror_lagged,
            on_failed=metrics.mirror_failed,
        )
    if settings.gc_interval_s > 0:
        opened.jobs["gc"] = collection_job(
            catalogs,
            opened.clock,
            CollectorSettings(settings.drop_retention_s, settings.abandoned_retention_s),
            interval_s=settings.gc_interval_s,
            expire=settings.expire_snapshots,
            on_left=metrics.gc_left,
        )
    if settings.receipts:
        watch.receipts = Receipts(
            catalogs,
            opened.store,
            opened.clock,
            opened.tasks,
            on_written=metrics.receipt_written,
            on_failed=metrics.receipt_failed,
        )
        opened.jobs["receipts"] = watch.receipts.catch_up
        opened.jobs.update(_receipt_jobs(opened, catalogs))
        opened.jobs["projection-lag"] = projection_lag_job(catalogs, opened.clock, metrics.projection_lag)
    return catalogs, watch


def _upkeep_ended(metrics: Metrics, held: bool) -> None:
    if held:
        metrics.upkeep_ended()
    else:
        # The server that holds the lease measures now. What was measured here is out of date.
        metrics.unfinished_transactions()
        metrics.projection_lag(0.0)


def _receipt_jobs(opened: Opened, catalogs: Mapping[str, Catalog]) -> dict[str, Job]:
    """What receipts want beside being written: to be missed, packed and, in the end, removed."""
    settings, metrics = opened.settings, opened.metrics
    return receipt_jobs(
        catalogs,
        opened.store,
        opened.clock,
        opened.rng,
        ReceiptSettings(
            reconcile_interval_s=settings.reconcile_interval_s,
            reconcile_depth=settings.reconcile_depth,
            pack_after_s=settings.pack_after_s,
            loose_receipt_days=settings.loose_receipt_days,
            receipt_days=settings.receipt_days,
        ),
        on_reconciled=lambda report: metrics.reconciled(
            written=report.written,
            late=report.late,
            damaged=report.damaged,
            unreadable=report.unreadable,
            failed=report.failed,
        ),
        on_packed=metrics.receipts_packed,
        on_removed=metrics.receipts_removed,
    )


def _delegation(opened: Opened, stack: AsyncExitStack) -> Delegation:
    """How clients reach the storage of those warehouses whose settings say so."""
    outside = Outside()
    stack.push_async_callback(outside.close)
    return Delegation(
        vendors_of(opened.settings.places(), outside, opened.clock),
        on_made=opened.metrics.credentials_made,
        on_failed=opened.metrics.credentials_failed,
    )


def _catalog_routes(
    settings: Settings,
    catalogs: Mapping[str, Catalog],
    mirrors: Mirrors | None,
    delegation: Delegation,
    trail: Trail,
) -> list[Route]:
    return rest_routes(
        catalogs,
        settings.default_warehouse,
        mirror=None if mirrors is None else mirrors.mirror,
        idempotency_lifetime_s=int(settings.idempotency_lifetime_s),
        multi_table_transactions=settings.multi_table_transactions,
        delegation=delegation,
        trail=trail,
    )


def _site(
    opened: Opened,
    catalogs: Mapping[str, Catalog],
    samples: Samples,
    health: Health,
    runner: Runner,
    auth: Auth,
    trail: Trail,
) -> Site:
    """The web page at `/ui`."""
    settings = opened.settings
    about = About(
        store_kind=urlsplit(settings.store).scheme,
        workers=settings.workers,
        unready=health.unready,
        job_names=lambda: list(opened.jobs),
        job_runs=lambda: runner.runs,
        api_docs=f"{settings.base_path}/docs" if settings.open_docs or not settings.auth_modes else None,
        metrics=f"{settings.base_path}/metrics" if settings.open_metrics or not settings.auth_modes else None,
    )
    rows = delta_rows(opened.store)
    return Site(
        catalogs,
        settings.default_warehouse,
        samples,
        about,
        auth,
        base_path=settings.base_path,
        rows=rows,
        trail=trail,
    )


def _grpc(
    opened: Opened,
    catalogs: Mapping[str, Catalog],
    port: int,
    trail: Trail,
    admit: AdmitCall,
    tls: Certificate | None,
) -> GrpcServer:
    """The same catalogs behind another door. Imported only where it is wanted: it needs the extra `grpc`."""
    # gRPC's core prints to standard error from the threads that serve calls, and would block with it.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from lakepact.server.grpc.server import GrpcServer
        from lakepact.server.grpc.service import TransactionsService
    except ModuleNotFoundError as error:
        raise InvalidSetting(f"gRPC needs {error.name}: {how_to_install('grpc')}") from None
    settings = opened.settings
    return GrpcServer(
        TransactionsService(catalogs, settings.default_warehouse, trail),
        host=settings.host,
        port=port,
        metrics=opened.metrics,
        max_message_bytes=settings.max_body_bytes,
        log_request=_log_request(opened),
        tracing=opened.tracing,
        admit=admit,
        tls=tls,
    )


def _log_request(opened: Opened) -> Callable[[dict[str, Any]], None]:
    line = logs.RequestLines(opened.settings.log_level)
    return line if opened.tracing is None else opened.tracing.described(line)


def _on_error(error: Exception, request: Request) -> Response:
    return error_answer(error)


def _check(settings: Settings) -> None:
    check_exposed(settings)
    memory = [url for url in (settings.store, *(place.url for place in settings.places().values())) if _memory(url)]
    if memory and settings.workers > 1:
        raise InvalidSetting("several workers cannot share memory://; use one worker, or another store and warehouse")


def _memory(url: str) -> bool:
    return urlsplit(url).scheme == "memory"


async def _open(settings: Settings, stack: AsyncExitStack) -> Opened:
    clock, rng, tasks, metrics = TrustedClock(SystemClock()), SystemRng(), AsyncioTasks(), Metrics()
    logs.count_dropped(metrics.log_lines_dropped)
    metrics.warehouses_are(settings.places())
    tracing = open_tracing(os.environ)
    if tracing is not None:
        # In a thread: what waits is sent, and that may take a moment.
        stack.push_async_callback(asyncio.to_thread, tracing.close)
    if settings.uses_data:
        await asyncio.to_thread(_make_folder, settings.data)
    store = await open_store(
        settings.store, settings.kernel(), clock=clock, rng=rng, tasks=tasks, options=settings.store_options
    )
    stack.push_async_callback(store.close)
    evidence = ClockEvidence(
        clock, store, on_judgement=lambda made: metrics.clock_judged(made.difference_ms, confirmed=made.confirmed)
    )
    # Before anything is written: what is written first must not be dated by a clock that is days wrong.
    await evidence.read()
    if tracing is not None:
        store = tracing.port(store, "store")
    restored = await check_complete(store)
    warehouses: dict[str, BlobStore] = {}
    for name, place in settings.places().items():
        blobs = await open_blobs(place.url, place.options)
        stack.push_async_callback(blobs.close)
        warehouses[name] = blobs if tracing is None else tracing.port(blobs, "warehouse")
    stack.push_async_callback(_drain, tasks)
    process = f"{socket.gethostname()}-{os.getpid()}-{rng.bits(32):08x}"
    return Opened(
        settings, store, restored, warehouses, metrics, clock, evidence, rng, tasks, process, tracing, store_jobs(store)
    )


def _make_folder(path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(
            f"the folder {path} cannot be made: {error.strerror}. Choose another with --data"
        ) from None


async def _drain(tasks: AsyncioTasks) -> None:
    try:
        async with asyncio.timeout(_DRAIN_WITHIN_S):
            await tasks.drain()
    except TimeoutError:
        _log.warning("some work after answers did not end in time; upkeep will finish it", waited_s=_DRAIN_WITHIN_S)
