"""What can be wrong where a server is to run, looked for one thing after another. Each finding says what to do.

Nothing here raises: whatever goes wrong is what was looked for. What is written (a cell of our own, a file in each
warehouse's own folder) is what a server would write too, and the file is removed again. A store or a folder that is not
there is not made: whoever looks in the wrong place is to hear of it.
"""

from __future__ import annotations

import asyncio
import errno
import importlib.metadata
import importlib.util
import os
import re
import shutil
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from lakepact.catalog.astray import astray
from lakepact.catalog.warehouse import OWN_FOLDER, Warehouse
from lakepact.cli import services
from lakepact.cli.finding import Finding, bad, compared_clock, good, odd
from lakepact.cli.table_metadata import table_metadata
from lakepact.errors import Damaged, FormatTooNew, LakepactError
from lakepact.extras import how_to_install
from lakepact.java import JAVA_HOME, find_java
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Committed, State, Transaction, Write
from lakepact.kernel.ports import BlobStore, CellStore
from lakepact.kernel.trusted_time import TrustedClock
from lakepact.runtime import SystemClock, SystemRng
from lakepact.server.tls import Certificate
from lakepact.server.vending import Outside, Right, vendors_of
from lakepact.server.vending.delegation import Vendor
from lakepact.server.vending.scope import Scope
from lakepact.settings import Place, Settings, without_password
from lakepact.stores import absent, open_blobs, open_store
from lakepact.stores.urls import local_path
from lakepact.this_user import this_user
from lakepact.upkeep.clock_evidence import ClockEvidence, explained
from lakepact.upkeep.restore import check_complete

CELL: Final = key_of("lakepact", "doctor")
OLDEST_JAVA: Final = 17

_SLOW_MS: Final = 500.0
_LITTLE_BYTES: Final = 1 << 30
_SOON_S: Final = 14 * 86_400
_ANSWER_WITHIN_S: Final = 30.0
_clock, _rng = SystemClock(), SystemRng()


async def everything(
    settings: Settings, *, writes: bool, progress: Callable[[str], None] = lambda line: None
) -> list[Finding]:
    """Run all checks. `progress` is called with a line now and then while one of them takes long."""
    found = [good("settings", f"understood, on Python {'.'.join(map(str, sys.version_info[:3]))}")]
    found += [*disks(settings), *readers(settings)]
    found += [one async for one in store(settings, writes=writes)]
    for name, place in settings.places().items():
        found += shared(settings.store, name, place)
        found += [one async for one in warehouse(name, place, writes=writes)]
    found += [one async for one in table_metadata(settings, progress)]
    found += [one async for one in credentials(settings)]
    found += [one async for one in services.identity_provider(settings)]
    found += ports(settings)
    if importlib.util.find_spec("pyspark") is not None:
        # A server runs no pipelines: where there is no PySpark, nothing here needs Java.
        found += [*java(), *spark()]
    return found


# --- the store ---


async def store(settings: Settings, *, writes: bool) -> AsyncIterator[Finding]:
    shown = without_password(settings.store)
    if (away := _away(settings.store)) is not None:
        yield _not_made(
            "store",
            "there is no store",
            away,
            "`lakepact serve` makes a new one. If a server runs already, run this where it runs, with its settings "
            "(LAKEPACT_CONFIG, or --store).",
        )
        return
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            opened = await open_store(settings.store, settings.kernel(), options=settings.store_options)
    except (LakepactError, TimeoutError) as error:
        yield bad("store", f"{shown} cannot be opened: {_said(error)}", _do_about(settings.store, error))
        return
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            yield await _reads(opened, shown)
            yield await _commits(opened) if writes else good("store: commit", "not tried (--read-only)")
            yield await _unfinished(opened)
            yield await _store_clock(opened)
            for name, place in settings.places().items():
                yield await _tables_of(opened, name, place)
    except LakepactError as error:
        yield bad("store", f"{shown}: {error}", _do_about(settings.store, error))
    except TimeoutError:
        yield bad("store", f"{shown} did not answer within {_ANSWER_WITHIN_S:g} s", _do_about(settings.store))
    finally:
        await opened.close()
    if urlsplit(settings.store).scheme.startswith("postgres"):
        async for finding in services.postgres(settings):
            yield finding


def _said(error: Exception) -> str:
    return str(error) or f"no answer within {_ANSWER_WITHIN_S:g} s"


async def _reads(opened: CellStore, shown: str) -> Finding:
    await check_complete(opened)
    began = time.perf_counter()
    await opened.read([CELL])
    took_ms = (time.perf_counter() - began) * 1000
    if took_ms > _SLOW_MS:
        return odd("store", f"{shown} answers, after {took_ms:.0f} ms", "Move the server nearer to it.")
    return good("store", f"{shown} answers, after {took_ms:.1f} ms")


async def _commits(opened: CellStore) -> Finding:
    cell = (await opened.read([CELL]))[CELL]
    value = {"host": socket.gethostname(), "at-ms": _clock.now_ms()}
    id = uuid7(_clock.now_ms(), _rng.bits(74))
    result = await opened.commit(Transaction(id, "", (Write(CELL, cell.revision, value),)))
    if not isinstance(result, Committed):
        return odd("store: commit", f"not committed: {result}", "Run it again: somebody else was at it.")
    if (await opened.read([CELL]))[CELL].revision != cell.revision + 1:
        return bad("store: commit", "a commit was acknowledged and is not there", "Do not use this store.")
    return good("store: commit", "a commit is there when it is read back")


async def _unfinished(opened: CellStore) -> Finding:
    page = await opened.transactions([State.PREPARING, State.PREPARED], limit=1_000)
    late = [one for one in page.transactions if (one.expires_ms or 0) < _clock.now_ms()]
    if late:
        return odd(
            "store: transactions",
            f"{len(late)} transactions are past their time and not ended",
            "A running server ends them; without one run `lakepact recover`.",
        )
    return good("store: transactions", f"{len(page.transactions)} are at work, none is past its time")


async def _tables_of(opened: CellStore, name: str, place: Place) -> Finding:
    """Whether these are the settings that the store's tables were made with."""
    subject, shown = f"tables of {name}", without_password(place.url)
    count, outside = await astray(opened, Warehouse(name, place.url))
    if outside is not None:
        return bad(
            subject,
            f"a table is at {outside}, and warehouse {name} is {shown}",
            "These are the settings of another store or of another warehouse: set both as they were.",
        )
    return good(subject, f"those that were looked at ({count}) lie in it")


async def _store_clock(opened: CellStore) -> Finding:
    """Whether this machine's clock is confirmed: nothing is deleted by age with one that is not."""
    judgement = await ClockEvidence(TrustedClock(_clock), opened).read(writes=False)
    if judgement.confirmed or judgement.difference_ms:
        return compared_clock("clock: store", -judgement.difference_ms / 1000)
    return odd("clock: store", explained(judgement), "Check this machine's clock; a running server confirms it.")


def _do_about(url: str, error: Exception | None = None) -> str:
    if isinstance(error, FormatTooNew):
        return "Run the release that wrote it, or a newer one."
    if isinstance(error, Damaged):
        return (
            "Check that it is the file you mean. If so, keep a copy, and restore a backup: docs/operations.md has how."
        )
    if urlsplit(url).scheme in ("sqlite", "file"):
        return f"Check that the folder is there and that {this_user()} may write to it, and to all that is in it."
    return "Check the URL, the way there (network, proxy, endpoint), and the credentials in the options or environment."


def _away(url: str) -> Path | None:
    """Where it would be made on this machine, if it is not there yet."""
    path = absent(url) if url.startswith(("sqlite:", "file:")) else None
    return None if path is None else path.absolute()


def _not_made(subject: str, what: str, away: Path, do: str) -> Finding:
    there = _nearest(away.parent)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return bad(subject, f"{what} at {away}, and {this_user()} cannot make one in {there}", _do_about("file:"))
    if away.exists():
        return odd(subject, f"{what} at {away}, but an empty file, and none was made", do)
    return odd(subject, f"{what} at {away}, and none was made", do)


def _nearest(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there and that this user may look at."""
    return next(one for one in (path, *path.parents) if os.path.exists(one))


def disks(settings: Settings) -> Iterator[Finding]:
    """Room where something is kept on this machine."""
    urls = {"store": settings.store, **{name: place.url for name, place in settings.places().items()}}
    for name, url in urls.items():
        path = local_path(url)
        if path is None:
            continue
        there = _nearest(path.absolute())
        free = shutil.disk_usage(there).free
        if free < _LITTLE_BYTES:
            yield odd(f"disk: {name}", f"{free >> 20} MiB are left at {there}", "Make room before it is full.")
        else:
            yield good(f"disk: {name}", f"{free >> 30} GiB are left at {there}")


def readers(settings: Settings) -> Iterator[Finding]:
    """Whether others on this machine may read a store that lies on it."""
    path = local_path(settings.store)
    if path is None or not os.path.exists(path):
        return
    path = path.absolute()
    readable = path.stat().st_mode & stat.S_IROTH
    if readable and all(one.stat().st_mode & stat.S_IXOTH for one in path.parents):
        yield odd(
            "store: readers",
            f"everybody on this machine may read {path}, and with it the keys that tokens are signed with",
            f"Run `chmod {'700' if path.is_dir() else '600'} {path}` as its owner.",
        )


# --- warehouses ---


def shared(store: str, name: str, place: Place) -> Iterator[Finding]:
    """A store that all machines reach, and files that one has."""
    if place.url.startswith("file:") and urlsplit(store).scheme not in ("sqlite", "file", "memory"):
        yield odd(
            f"warehouse {name}: where",
            f"{without_password(place.url)} is a folder of this machine, and others may share the store",
            "Put the tables' files where all servers and engines reach them: set `warehouse` to a bucket.",
        )


async def warehouse(name: str, place: Place, *, writes: bool) -> AsyncIterator[Finding]:
    subject, shown = f"warehouse {name}", without_password(place.url)
    if (away := _away(place.url)) is not None:
        yield _not_made(subject, "there is no folder", away, "`lakepact serve` makes it.")
        return
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            blobs = await open_blobs(place.url, place.options)
            try:
                if not writes:
                    await blobs.list(f"{OWN_FOLDER}/", None, 1)
                    yield good(subject, f"{shown} can be listed; writing was not tried (--read-only)")
                    return
                async for finding in _tried_out(subject, shown, blobs):
                    yield finding
            finally:
                await blobs.close()
    except (LakepactError, TimeoutError) as error:
        yield bad(subject, f"{shown}: {_said(error)}", _do_about(place.url, error))


async def _tried_out(subject: str, shown: str, blobs: BlobStore) -> AsyncIterator[Finding]:
    file = f"{OWN_FOLDER}/doctor/{uuid7(_clock.now_ms(), _rng.bits(74))}"
    try:
        began_ms = _clock.now_ms()
        if not await blobs.put(file, b"first") or await blobs.get(file) != b"first":
            yield bad(subject, f"{shown}: what was written cannot be read back", "Use another warehouse.")
            return
        took_ms = _clock.now_ms() - began_ms
        if await blobs.put(file, b"second") or await blobs.get(file) != b"first":
            yield bad(
                subject,
                f"{shown}: a file that was there has been overwritten: conditions are ignored",
                "Use a store with conditional writes (If-None-Match), or no proxy that drops them.",
            )
            return
        yield good(subject, f"{shown} writes and reads (in {took_ms} ms), and overwrites nothing")
        [entry] = await blobs.list(file, None, 1)
        # The time that storage gives a file is its own clock, in seconds as a rule. The file was written at some time
        # between these two.
        nearest_ms = min(max(entry.modified_ms, began_ms), began_ms + took_ms)
        yield compared_clock(f"clock: {subject}", (entry.modified_ms - nearest_ms) / 1000)
    finally:
        await blobs.delete(file)


# --- credentials for clients ---


async def credentials(settings: Settings) -> AsyncIterator[Finding]:
    outside = Outside()
    try:
        for name, vendor in vendors_of(settings.places(), outside, _clock).items():
            yield await _credential(f"credentials {name}", vendor)
    except LakepactError as error:
        yield bad("credentials", str(error), "Correct the settings; docs/storage-credentials.md has examples.")
    finally:
        await outside.close()


async def _credential(subject: str, vendor: Vendor) -> Finding:
    """One is made for a folder with nothing in it, and thrown away."""
    folder = f"{OWN_FOLDER}/doctor/nothing"
    inside = "/".join(part for part in (vendor.prefix, folder) if part)
    try:
        if vendor.provider is not None:
            made = await vendor.provider.mint(Scope(f"{vendor.root}/{folder}", vendor.bucket, inside, Right.READ))
            lives_s = (made.expires_ms - _clock.now_ms()) / 1000
            return good(subject, f"one for reading was made; it lives for {lives_s:.0f} s")
        if vendor.own is not None:
            await vendor.own.get()
        return good(subject, "there are keys to sign with")
    except LakepactError as error:
        return bad(subject, str(error), "docs/storage-credentials.md says what the server's identity must be allowed.")


# --- ports ---


def ports(settings: Settings) -> Iterator[Finding]:
    try:
        if (found := Certificate.of(settings)) is not None:
            yield _certificate(settings, found)
    except LakepactError as error:
        yield bad("certificate", str(error), "docs/security.md says what the two files are.")
    yield _port("port", "--port", settings.host, settings.port, settings.base_path, tls=bool(settings.tls_cert))
    if settings.grpc_port is not None:
        if importlib.util.find_spec("grpc") is None:
            yield bad("gRPC", "grpcio is not installed", f"{how_to_install('grpc')}; or leave out grpc_port.")
        yield _port("gRPC port", "--grpc-port", settings.host, settings.grpc_port, None)


def _certificate(settings: Settings, found: Certificate) -> Finding:
    there = f"{settings.tls_cert} has one, and {settings.tls_key} its key"
    if (ends_at_s := found.ends_at_s) is None:
        return good("certificate", there)
    until = f"{there}; good until {datetime.fromtimestamp(ends_at_s, UTC):%Y-%m-%d %H:%M} UTC"
    left_s = ends_at_s - time.time()
    if left_s <= 0:
        return bad("certificate", until, "Renew it: no client trusts it any more.")
    if left_s < _SOON_S:
        return odd("certificate", until, "Renew it in time. A running server uses new files by itself.")
    return good("certificate", until)


def _port(subject: str, option: str, host: str, port: int, base_path: str | None, *, tls: bool = False) -> Finding:
    if port == 0:
        return good(subject, "any free one will be taken")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            health = None if base_path is None else _health(host, port, base_path, tls)
            if health is not None:
                state = "is ready" if health.get("ready") else f"is not ready: {health.get('reason')}"
                return good(subject, f"a Lakepact server {health.get('version')} listens on {host}:{port}, and {state}")
            return bad(subject, f"{host}:{port} is in use by another", f"Stop it, or choose another with {option}.")
        return bad(subject, f"{host}:{port}: {error.strerror or error}", f"Correct --host or {option}.")
    return good(subject, f"{host}:{port} is free")


def _health(host: str, port: int, base_path: str, tls: bool) -> Mapping[str, Any] | None:
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    # Its certificate need not be for the address it listens on. It is asked how it is, and told nothing.
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    handlers = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
    opener = urllib.request.build_opener(*handlers)
    try:
        with opener.open(f"{'https' if tls else 'http'}://{host}:{port}{base_path}/health", timeout=5) as answer:
            document = orjson.loads(answer.read(65_536))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and {"version", "store", "ready"} <= document.keys() else None


# --- Spark ---


def java() -> Iterator[Finding]:
    home = os.environ.get(JAVA_HOME)
    found = find_java()
    do = f"Install Java {OLDEST_JAVA} or newer, and set JAVA_HOME; or {how_to_install('java')}. Only Spark needs it."
    if found is None:
        yield odd("java", f"there is none {'in JAVA_HOME' if home else 'on the PATH'}", do)
        return
    try:
        said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        yield odd("java", f"{found} does not run: {error}", do)
        return
    version = re.search(r'version "(\d+)([^"]*)"', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        yield odd("java", f"{found} is {said.splitlines()[0] if said else 'mute'}", do)
    else:
        yield good("java", f"{found} is Java {version[1]}{version[2]}")


def spark() -> Iterator[Finding]:
    version = importlib.metadata.version("pyspark")
    from lakepact.spark.runtimes import check_fits, runtime_for

    try:
        runtime = runtime_for(version)
    except LakepactError as error:
        yield bad("spark", str(error), "Install a supported line of Spark, or run without pipelines.")
        return
    yield good("spark", f"pyspark {version}; its runtimes are {' and '.join(runtime.packages)}")
    folders = [Path(one) / "jars" for one in (os.environ.get("SPARK_HOME"), _package_folder("pyspark")) if one]
    jars = sorted({one.name for folder in folders for one in folder.glob("*.jar")})
    connectors = [one for one in jars if one.startswith(("iceberg-spark-runtime-", "delta-spark_"))]
    try:
        check_fits(connectors, runtime)
    except LakepactError as error:
        yield bad("spark: jars", str(error), "Remove the other one from Spark's folder of jars.")
        return
    yield good(
        "spark: jars", f"{', '.join(connectors) or 'no connector'} in Spark's own folder; sessions name what they need"
    )


def _package_folder(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else str(Path(spec.origin).parent)
