"""One folder on a local disk, and the few moves on it that survive SIGKILL and power loss.

A file becomes visible whole or not at all: it is written under `@temporary`, flushed, and only then linked or renamed
into place; then its folder is flushed. `link` is the put-if-absent of POSIX. A replacement compares and renames under
one of a fixed number of lock files, which exclude other processes and other threads alike; readers take no lock.

Between becoming visible and being durable a file has two links: its own name and its temporary one, which is removed
only after the folder was flushed. So a reader can tell that what it sees could still be lost, and flushes the folder
itself before it answers: nobody acts on a write that a power failure then takes back. This needs no clock and no
lock, and it stays true when the writer dies in between.

Everything here blocks; callers run it on threads. It wants a local file system with hard links and `flock`; network
file systems are not promised. Folders are never removed, since a creator may be about to use them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final, NoReturn

from lakepact.errors import InvalidRequest, StoreUnavailable

TEMPORARY: Final = "@temporary"
LOCKS: Final = "@locks"
"""`@` occurs in no document name, so these two folders can never be documents."""

_STRIPES: Final = 64
_LOCK_WAIT_S: Final = 10.0
_STALE_AFTER_S: Final = 3_600.0
_MAX_SEGMENT_BYTES: Final = 255
_MAX_KNOWN_FOLDERS: Final = 10_000
_MOST_OPEN: Final = 64
"""Files that are open at once in one batch: a process may have a thousand, and connections are among them."""

_KNOWN_FOR_S: Final = 10.0


class LockTimeout(Exception):
    """A lock was held elsewhere for too long; nothing was written."""


class Disk:
    """Files below one root folder, by name. A name's `/` is a folder."""

    def __init__(self, root: Path, mode: int = 0o777) -> None:
        """`mode`: of the root folder, if it has to be made; less what the process takes away from all it makes."""
        self.root = root.absolute()
        self._mode = mode
        self._temporary = self.root / TEMPORARY
        self._locks = self.root / LOCKS
        # flock is per open file, and every holder opens the file anew; the thread lock only spares threads of this
        # process the polling.
        self._thread_locks = [threading.Lock() for _ in range(_STRIPES)]
        # Folders whose own entries this process has made durable. Another process may have created a folder and not
        # flushed its parent yet, so "it exists" is not enough.
        self._durable_folders: set[str] = set()
        # Folders to which no link leads: what they were then, by device and inode, and until when it is believed.
        self._without_links: dict[str, tuple[tuple[int, int], float]] = {}

    def prepare(self) -> None:
        """Make the folders and lock files, and remove temporary files that no living writer can still need."""
        self._make_root()
        self._make_durable_folder(self._temporary)
        self._make_durable_folder(self._locks)
        for stripe in range(_STRIPES):
            os.close(os.open(self._lock_path(stripe), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        stale_before = self.time_ms() / 1000 - _STALE_AFTER_S
        for entry in os.scandir(self._temporary):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < stale_before:
                    os.unlink(entry.path)

    def time_ms(self) -> int:
        """The time of the file system: when it says that a file was written which is written now."""
        path, descriptor = self._begin_temporary(b"1")
        try:
            return os.fstat(descriptor).st_mtime_ns // 1_000_000
        finally:
            os.close(descriptor)
            os.unlink(path)

    def read(self, name: str) -> bytes | None:
        """The bytes, durable by now, or None if there is no such file."""
        return self._read(self._path(name), durable=True)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        try:
            return stat.S_ISREG(os.stat(f"{self.root}/{self._legal_name(name)}").st_mode)
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return False

    def holds(self, name: str) -> bool:
        """Whether this name lies in the folder, wherever links on the way may lead."""
        path = f"{self.root}/{self._legal_name(name)}"
        return self._holds(path) if os.path.islink(path) else self.holds_folder_of(name)

    def holds_folder_of(self, name: str) -> bool:
        """The same of its folder: enough where the name itself is not followed. Nothing is created through a link."""
        folder = f"{self.root}/{self._legal_name(name)}".rpartition("/")[0]
        return not self._folder_has_links(folder) or self._holds(folder)

    def _holds(self, path: str) -> bool:
        return f"{os.path.realpath(path)}/".startswith(f"{os.path.realpath(self.root)}/")

    def make_folder(self, name: str) -> None:
        self._make_durable_folder(self._path(name))

    def create(self, name: str, data: bytes) -> bool:
        """Write the file if the name is free; durable on True. False: it is taken, nothing was written.

        An OSError leaves it open whether the file is there.
        """
        path = self._path(name)
        if self._taken(path):
            return False
        self._make_durable_folder(path.parent)
        temporary = self._write_temporary(data)
        try:
            self._link(temporary, path)
        except FileExistsError:
            os.unlink(temporary)
            self._taken(path)
            return False
        # If this fails the temporary link stays, and with it the sign that the file may not be durable.
        _flush_folder(path.parent)
        os.unlink(temporary)
        return True

    def create_all(self, files: Mapping[str, bytes]) -> None:
        """Write those whose names are free; all of them are durable on return. A folder is flushed once for many."""
        names = iter(files)
        while some := list(islice(names, _MOST_OPEN)):
            self._create_some({name: files[name] for name in some})

    def _create_some(self, files: Mapping[str, bytes]) -> None:
        paths = {self._path(name): data for name, data in files.items()}
        folders = {path.parent for path in paths}
        for folder in folders:
            self._make_durable_folder(folder)
        begun: dict[Path, tuple[Path, int]] = {}
        try:
            for path, data in paths.items():
                if not self._taken(path):
                    begun[path] = self._begin_temporary(data)
            # All are on their way before the first is waited for: a disk takes them together.
            for _, descriptor in begun.values():
                _begin_to_flush(descriptor)
            for _, descriptor in begun.values():
                _flush(descriptor)
        except BaseException:
            # Most of all where the disk is full: nobody has seen them yet.
            for written, _ in begun.values():
                os.unlink(written)
            raise
        finally:
            for _, descriptor in begun.values():
                os.close(descriptor)
        for path, (written, _) in begun.items():
            with contextlib.suppress(FileExistsError):
                self._link(written, path)
        # If this fails the temporary links stay, and with them the signs that the files may not be durable.
        for folder in folders:
            _flush_folder(folder)
        for written, _ in begun.values():
            os.unlink(written)

    def _link(self, temporary: Path, path: Path) -> None:
        try:
            os.link(temporary, path)
        except FileNotFoundError:
            # Another process may have removed empty folders, which makes the cache wrong.
            self._durable_folders = {str(self.root)}
            self._make_durable_folder(path.parent)
            os.link(temporary, path)

    def replace(self, name: str, matches: Callable[[bytes], bool], data: bytes) -> bool:
        """Replace the file if its bytes match; durable on True. False: they did not, or there is no file.

        Raises LockTimeout if nothing was written; an OSError leaves it open.
        """
        path = self._path(name)
        # Looked at once without the lock, to refuse without the cost of a flush, and to keep flushes out of the lock.
        if not self._matches(path, matches):
            return False
        temporary = self._write_temporary(data)
        with self._locked(name, temporary):
            if not self._matches(path, matches):
                os.unlink(temporary)
                return False
            moving = temporary.with_suffix(".moving")
            os.link(temporary, moving)
            os.rename(moving, path)
        _flush_folder(path.parent)
        os.unlink(temporary)
        return True

    def remove(self, name: str) -> None:
        """Remove the file if it is there; durable on return."""
        path = self._path(name)
        with self._locked(name):
            try:
                os.unlink(path)
            except (FileNotFoundError, NotADirectoryError):
                self._check_root()
                return
        _flush_folder(path.parent)

    def walk(self, prefix: str, after: str | None) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Files whose names begin with `prefix` and sort after `after`, in bytewise order of their whole names.

        Only folders that can hold such a name are read.
        """
        folder, _, _ = prefix.rpartition("/")
        if folder and not _legal(folder):
            return
        yield from self._walk(folder + "/" if folder else "", prefix, after)

    # --- how ---------------------------------------------------------------------------------------------------------

    def _walk(self, folder: str, prefix: str, after: str | None) -> Iterator[tuple[str, os.DirEntry[str]]]:
        try:
            with os.scandir(self.root / folder) as found:
                entries = [(_sort_name(entry), entry) for entry in found]
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return
        # A folder sorts as its name with `/`, since that is how all names below it go on.
        entries.sort(key=lambda pair: pair[0])
        for sort_name, entry in entries:
            name = folder + sort_name
            if not folder and entry.name in (TEMPORARY, LOCKS):
                continue
            if entry.is_symlink() and not self.holds(name.rstrip("/")):
                continue
            if sort_name.endswith("/"):
                inside = name.startswith(prefix) or prefix.startswith(name)
                passed = after is not None and name < after and not after.startswith(name)
                if inside and not passed:
                    yield from self._walk(name, prefix, after)
            elif name.startswith(prefix) and (after is None or name > after):
                yield name, entry

    def _path(self, name: str) -> Path:
        return self.root / self._legal_name(name)

    def _legal_name(self, name: str) -> str:
        if not _legal(name):
            raise InvalidRequest(
                f"{name!r} cannot be a file name here: it needs segments of 1 to {_MAX_SEGMENT_BYTES} bytes joined by "
                f"'/', none of them '.' or '..', the first neither {TEMPORARY!r} nor {LOCKS!r}"
            )
        return name

    def _folder_has_links(self, path: str) -> bool:
        """Whether there is a link on the way. Seldom is, and this is a tenth of what it takes to follow them: one look
        at a folder that is known, as long as its name leads to the same inode. (Now and then the whole way is looked
        at again: somebody may have moved a folder away, and put a link to it in its place.)"""
        if len(path) <= len(str(self.root)):
            return False
        identity = _identity(path)
        known, until = self._without_links.get(path, (None, 0.0))
        if known is not None and known == identity and time.monotonic() < until:
            return False
        if os.path.islink(path) or self._folder_has_links(path.rpartition("/")[0]):
            return True
        if identity is not None:
            if len(self._without_links) >= _MAX_KNOWN_FOLDERS:
                self._without_links = {}
            self._without_links[path] = identity, time.monotonic() + _KNOWN_FOR_S
        return False

    def _taken(self, path: Path) -> bool:
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise InvalidRequest(f"{path}: one of its folders is a file; no name may be a folder of another") from None
        if stat.S_ISDIR(mode):
            raise InvalidRequest(f"{path} is a folder of other names; no name may be a folder of another")
        return True

    def _matches(self, path: Path, matches: Callable[[bytes], bool]) -> bool:
        # What is compared need not be durable yet: our own flush of the same folder covers it.
        current = self._read(path, durable=False)
        return current is not None and matches(current)

    def _read(self, path: Path, *, durable: bool) -> bytes | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            self._check_root()
            return None
        try:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                return None
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read()
        finally:
            os.close(descriptor)
        if durable and status.st_nlink > 1:
            _flush_folder(path.parent)
        return data

    def _check_root(self) -> None:
        """A file that is not there says nothing if the whole folder has gone, as when its disk was unmounted."""
        if not self._temporary.is_dir():
            raise StoreUnavailable(
                f"the folder {self.root} is gone, or is not the one that was opened. Is its disk mounted? "
                f"Mount it and try again; nothing was written."
            )

    def _write_temporary(self, data: bytes) -> Path:
        path, descriptor = self._begin_temporary(data)
        try:
            _flush(descriptor)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path

    def _begin_temporary(self, data: bytes) -> tuple[Path, int]:
        """A file with this content, not flushed yet, and its descriptor."""
        path = self._temporary / f"{os.getpid()}-{secrets.token_hex(16)}.new"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
        except BaseException:
            os.close(descriptor)
            os.unlink(path)
            raise
        return path, descriptor

    def _make_root(self) -> None:
        missing = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, self._mode if folder == self.root else 0o777)
            _flush_folder(folder.parent)
        self._durable_folders = {str(self.root)}

    def _make_durable_folder(self, folder: Path) -> None:
        if str(folder) in self._durable_folders:
            return
        self._make_durable_folder(folder.parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        _flush_folder(folder.parent)
        if len(self._durable_folders) >= _MAX_KNOWN_FOLDERS:
            self._durable_folders = {str(self.root)}
        self._durable_folders.add(str(folder))

    def _lock_path(self, stripe: int) -> Path:
        return self._locks / f"{stripe:02x}"

    @contextlib.contextmanager
    def _locked(self, name: str, temporary: Path | None = None) -> Iterator[None]:
        """Hold the name's stripe. If it cannot be had in time, the temporary file is removed and LockTimeout raised."""
        stripe = zlib.crc32(name.encode()) % _STRIPES
        deadline = time.monotonic() + _LOCK_WAIT_S
        thread_lock = self._thread_locks[stripe]
        if not thread_lock.acquire(timeout=_LOCK_WAIT_S):
            self._give_up(name, temporary)
        try:
            descriptor = os.open(self._lock_path(stripe), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if not _acquire(descriptor, deadline):
                    self._give_up(name, temporary)
                yield
            finally:
                os.close(descriptor)  # which also unlocks it
        finally:
            thread_lock.release()

    def _give_up(self, name: str, temporary: Path | None) -> NoReturn:
        if temporary is not None:
            os.unlink(temporary)
        raise LockTimeout(
            f"the lock of {name!r} below {self._locks} was held by another process for {_LOCK_WAIT_S:g} s; "
            f"is one of them stopped?"
        )


def _acquire(descriptor: int, deadline: float) -> bool:
    # A blocking flock could not be bounded: the holder may be a stopped process.
    pause_s = 0.00005
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.005)


@lru_cache(maxsize=4_096)
def _legal(name: str) -> bool:
    segments = name.split("/")
    return (
        segments[0] not in (TEMPORARY, LOCKS)
        and "\0" not in name
        and all(
            segment not in ("", ".", "..") and len(os.fsencode(segment)) <= _MAX_SEGMENT_BYTES for segment in segments
        )
    )


def _identity(path: str) -> tuple[int, int] | None:
    """Which folder this name leads to, by device and inode; None if to none, as a link to itself."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sort_name(entry: os.DirEntry[str]) -> str:
    return entry.name + "/" if entry.is_dir() else entry.name


def _flush(descriptor: int) -> None:
    # On macOS fsync stops at the disk's own cache.
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def _begin_to_flush(descriptor: int) -> None:
    """Linux takes "not needed in memory" as a reason to write it out now, and does not wait for that. Advice only: a
    file system that does not know it is no worse off."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _flush(descriptor)
    finally:
        os.close(descriptor)
