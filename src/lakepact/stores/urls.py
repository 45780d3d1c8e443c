"""One URL, one store. The only place that knows every kind.

Heavy libraries are imported when their URL is opened, so that nobody needs what they do not use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lakepact.errors import InvalidSetting
from lakepact.extras import how_to_install
from lakepact.kernel.ports import BlobStore, CellStore, Clock, DocumentStore, Rng, Tasks
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores.probe import probe

_STORE_FORMS: Final = (
    "memory://",
    "sqlite:///relative/path.db",
    "sqlite:////absolute/path.db",
    "postgresql://user@host/database",
    "file:///absolute/folder",
    "s3://bucket/prefix",
    "gs://bucket/prefix",
    "az://container/prefix",
)
_BLOB_FORMS: Final = (
    *(form for form in _STORE_FORMS if not form.startswith(("sqlite", "postgresql"))),
    "abfss://container@account.dfs.core.windows.net/prefix",
)
"""Where tables are kept. Engines find them by the same URL, and on Azure they know it as `abfss`."""
_AZURE_ENDING: Final = ".dfs.core.windows.net"
_DEFAULT_SETTINGS: Final = KernelSettings()


async def open_store(
    url: str,
    settings: KernelSettings = _DEFAULT_SETTINGS,
    *,
    clock: Clock | None = None,
    rng: Rng | None = None,
    tasks: Tasks | None = None,
    options: Mapping[str, str] | None = None,
) -> CellStore:
    """The cell store behind this URL, probed and ready. `options` are for object stores (endpoint, credentials).

    Raises InvalidSetting for a URL or option that cannot be understood, StoreUnsuitable for a store that ignores
    conditions, StoreUnavailable for one that does not answer.
    """
    clock = clock or SystemClock()
    rng = rng or SystemRng()
    scheme = _scheme(url, _STORE_FORMS)
    if scheme == "sqlite":
        from lakepact.stores.sqlite import SqliteCells

        return await SqliteCells.open(sqlite_path(url), settings, clock, rng)
    if scheme in ("postgresql", "postgres"):
        with _extra("postgres", "asyncpg"):
            from lakepact.stores.postgres import PostgresCells
        return await PostgresCells.open(url, settings, clock, rng)

    from lakepact.kernel.cells import DocumentCells

    documents = await open_documents(url, options)
    try:
        if scheme != "memory":
            await probe(documents, rng)
        return DocumentCells(documents, clock, rng, tasks or AsyncioTasks(), settings)
    except BaseException:
        await documents.close()
        raise


def local_path(url: str) -> Path | None:
    """The file or folder that a URL names on this machine. None: it is elsewhere."""
    return sqlite_path(url) if url.startswith("sqlite:") else file_path(url) if url.startswith("file:") else None


def absent(url: str) -> Path | None:
    """The file or folder of a store on this machine that is not there: opening it would make a new one."""
    scheme = _scheme(url, _STORE_FORMS)
    path = local_path(url)
    if path is None:
        return None
    try:
        size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return path
    except OSError:
        # Perhaps it is there. Whoever opens it will hear what is in the way.
        return None
    # An empty file is no store yet: whoever makes one writes to it at once.
    return path if scheme == "sqlite" and size == 0 else None


async def open_documents(url: str, options: Mapping[str, str] | None = None) -> DocumentStore:
    """The bare document store behind this URL, not probed. Opening `memory://` twice gives two stores."""
    scheme = _scheme(url, _BLOB_FORMS)
    if scheme == "memory":
        from lakepact.stores.memory import MemoryDocuments

        return MemoryDocuments()
    if scheme == "file":
        from lakepact.stores.files import FileDocuments

        return await FileDocuments.open(file_path(url))
    with _extra("objects", "obstore"):
        from lakepact.stores.objects import ObjectDocuments
        from lakepact.stores.objects_client import Cloud
    place = object_place(url)
    return ObjectDocuments.open(Cloud(place.scheme), place.bucket, place.prefix, options)


async def open_blobs(url: str, options: Mapping[str, str] | None = None) -> BlobStore:
    """The blob store behind this URL: a warehouse folder or bucket."""
    scheme = _scheme(url, _BLOB_FORMS)
    if scheme == "memory":
        from lakepact.stores.memory import MemoryBlobs

        return MemoryBlobs()
    if scheme == "file":
        from lakepact.stores.blobs import FileBlobs

        return await FileBlobs.open(file_path(url))
    with _extra("objects", "obstore"):
        from lakepact.stores.blobs_objects import ObjectBlobs
        from lakepact.stores.objects_client import Cloud
    if scheme == "abfss":
        place, account = azure_place(url)
        known = {"account_name": account}
        if not (host := azure_host(url, account)).endswith(_AZURE_ENDING):
            known["endpoint"] = azure_service(host)
        return ObjectBlobs.open(Cloud.AZURE, place.bucket, place.prefix, {**known, **(options or {})})
    place = object_place(url)
    return ObjectBlobs.open(Cloud(place.scheme), place.bucket, place.prefix, options)


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    scheme: str
    bucket: str
    prefix: str


def _scheme(url: str, forms: tuple[str, ...]) -> str:
    scheme, separator, rest = url.partition("://")
    known = {form.partition("://")[0] for form in forms} | ({"postgres"} if forms is _STORE_FORMS else set())
    if not separator or scheme not in known or (scheme == "memory" and rest):
        raise _unreadable(url, forms)
    return scheme


def sqlite_path(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment or len(parts.path) < 2:
        raise _unreadable(url, _STORE_FORMS)
    # As elsewhere, the third slash ends the (empty) host and is not part of the path.
    return Path(unquote(parts.path[1:]))


def file_path(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or parts.query or parts.fragment or len(parts.path) < 2:
        raise _unreadable(url, _STORE_FORMS)
    return Path(unquote(parts.path))


def object_place(url: str) -> ObjectPlace:
    # Not urlsplit: an object prefix is taken as it is written, not percent-decoded.
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    odd_segment = prefix and any(segment in ("", ".", "..") for segment in prefix.split("/"))
    # A query would be ignored silently, and `@` in the bucket means somebody put credentials there.
    if not bucket or odd_segment or "?" in url or "#" in url or "@" in bucket:
        raise _unreadable(url, _BLOB_FORMS)
    return ObjectPlace(scheme, bucket, prefix)


def azure_host(url: str, account: str) -> str:
    """Where clients find the account: as an `abfss` URL says it, which may be in a cloud of its own."""
    host = url.partition("@")[2].partition("/")[0].lower() if url.startswith("abfss://") else ""
    return host if "." in host else f"{account}{_AZURE_ENDING}"


def azure_service(host: str) -> str:
    """Where the account's blob service answers."""
    return f"https://{host.replace('.dfs.', '.blob.', 1)}"


def azure_place(url: str) -> tuple[ObjectPlace, str]:
    """Container and prefix of an `abfss` URL, and the account, which is the beginning of its host."""
    scheme, _, rest = url.partition("://")
    container, at, address = rest.partition("@")
    host, _, prefix = address.partition("/")
    if not at or not container or not host:
        raise _unreadable(url, _BLOB_FORMS)
    return object_place(f"{scheme}://{container}/{prefix}"), host.partition(".")[0]


def _unreadable(url: str, forms: tuple[str, ...]) -> InvalidSetting:
    # Only the scheme is repeated: a URL may hold a password, and errors end up in logs.
    scheme, separator, _ = url.partition("://")
    shown = f"{scheme}://..." if separator else repr(url)
    return InvalidSetting(
        f"the store URL {shown} cannot be understood. Use one of: {', '.join(forms)}. "
        f"Endpoints and credentials are options or environment variables, not part of the URL."
    )


@contextmanager
def _extra(extra: str, module: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module:
            raise
        raise InvalidSetting(f"this store needs {module}: {how_to_install(extra)}") from error
