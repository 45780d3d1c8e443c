"""A backup of the catalog: every cell as of one instant, and what became of every transaction until then.

The file is JSON, one document a line, packed with gzip: a header, cells, records, and a last line with their number and
the digest of all before it, so that a file that was cut off is never taken for a whole one. It depends on no store:
what was saved from one kind can be restored into another.

Saved are what users have and what keeps a request from being done twice. Not saved are open and prepared transactions
(they have not happened), histories, leases, and the files in the warehouses, which are where they were.

One instant: a store of SQL shows the past, so an open transaction reads all pages of one moment. A store of documents
does not; there everything is read twice, and if nothing has moved in between, it was so at the moment between the two.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import orjson

from lakepact import __version__
from lakepact.errors import Contended, InvalidRequest, TransactionError, Unreadable
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key, key_of, segments_of
from lakepact.kernel.model import Cell, State, TransactionRecord, Value
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.this_user import may_not_write, this_user
from lakepact.upkeep.lease import UPKEEP

FORMAT: Final = 1

_PAGE: Final = 1_000
_ATTEMPTS: Final = 10
_TTL_S: Final = 3_600.0
_NO_BACKUP: Final = "is no backup of Lakepact; name a file that `lakepact backup` has made"
RESTORE_MARK: Final = key_of("lakepact", "restore")
"""Which backup this store was restored from, how far, and as which generation. Complete once it has `ended-ms`."""

RESTORING: Final = "restore"
"""The operation of the transactions that write restored cells. They leave no receipts: nothing has changed."""

_LEFT_OUT: Final = frozenset({UPKEEP, RESTORE_MARK})
"""Who looks after the store is decided anew."""


class SavedCell(NamedTuple):
    key: Key
    revision: int
    value: Value


class SavedRecord(NamedTuple):
    """What became of a transaction: committed or failed. The rest did not happen."""

    id: TransactionId
    state: State
    request_hash: str
    answer: Value


@dataclass(frozen=True, order=True, slots=True)
class LeftOut:
    """A Delta table that is in the catalog and not in its backup. Its log is its way back."""

    table: str
    warehouse: str
    location: str
    dropped: bool = False


@dataclass(frozen=True, slots=True)
class Contents:
    """What a backup holds, in numbers."""

    id: str
    made_ms: int
    cells: int
    records: int
    left_out: tuple[LeftOut, ...] = ()
    generation: int = 0
    """Of the store that was saved."""


async def save(
    store: CellStore,
    path: Path,
    clock: Clock,
    rng: Rng,
    *,
    shows_the_past: bool,
    without_delta: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Contents:
    """Write a backup to `path`, which must not exist. Whole or not at all: it gets its name when it is complete.

    Delta tables keep their versions as rows beside the cells, which are not saved here: with `without_delta` such
    tables are left out, without it their being there is an `InvalidRequest`.
    """
    _check_place(path)
    made_ms = clock.now_ms()
    id = uuid7(made_ms, rng.bits(74))
    generation = int(((await store.read([RESTORE_MARK]))[RESTORE_MARK].value or {}).get("generation", 0))
    # Before the cells: whatever is decided by now is in them.
    decided = [record async for record in _records(store)]
    say(f"{len(decided)} records")
    cells = await (_as_of_now(store, id) if shows_the_past else _read_twice(store, say))
    cells, left_out = _of_no_delta(cells, allowed=without_delta)
    say(f"{len(cells)} cells")
    meanwhile = [record async for record in _records(store, without=frozenset(one.id for one in decided))]
    decided += [record for record in meanwhile if _has_happened(record, cells)]
    with _written(path) as write:
        write(
            {
                "lakepact-backup": FORMAT,
                "id": id,
                "made-ms": made_ms,
                "version": __version__,
                "generation": generation,
                "left-out": [asdict(one) for one in left_out],
            }
        )
        for cell in cells.values():
            write({"cell": cell.key, "revision": cell.revision, "value": cell.value})
        for record in decided:
            write(
                {
                    "record": record.id,
                    "state": record.state,
                    "request-hash": record.request_hash,
                    "answer": record.answer or {},
                }
            )
    return Contents(id, made_ms, len(cells), len(decided), left_out, generation)


def contents(path: Path) -> Contents:
    """Read a backup to its end, and say what it holds. Raises `Unreadable` for one that is not whole."""
    cells = records = 0
    header: dict[str, Any] = {}
    for line in read(path):
        match line:
            case SavedCell():
                cells += 1
            case SavedRecord():
                records += 1
            case _:
                header = line
    # Files of earlier releases do not say.
    left_out = tuple(LeftOut(**one) for one in header.get("left-out", ()))
    return Contents(header["id"], header["made-ms"], cells, records, left_out, header.get("generation", 0))


def read(path: Path) -> Iterator[dict[str, Any] | SavedCell | SavedRecord]:
    """The header, then cells, then records. The last line is checked, and not given."""
    digest, lines, ended = hashlib.sha256(), 0, False
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                if ended:
                    raise Unreadable(f"{path} is damaged: it goes on after its end. Use another backup")
                document = orjson.loads(line)
                if not isinstance(document, dict):
                    raise Unreadable(f"{path} {_NO_BACKUP}")
                if "end" in document:
                    ended = True
                    if document["end"] != {"lines": lines, "sha256": digest.hexdigest()}:
                        raise Unreadable(
                            f"{path} is damaged: its contents are not those it was closed with. Use another backup"
                        )
                    continue
                digest.update(line)
                lines += 1
                yield _parsed(path, document, first=lines == 1)
    except FileNotFoundError:
        raise InvalidRequest(f"there is no file {path}; name the backup to read") from None
    except PermissionError:
        raise InvalidRequest(f"{this_user()} may not read {path}; run this as the user whose file it is") from None
    except IsADirectoryError:
        raise InvalidRequest(f"{path} is a folder; name the backup to read") from None
    except (OSError, EOFError, KeyError, ValueError, zlib.error) as error:
        if lines == 0 and isinstance(error, gzip.BadGzipFile):
            raise InvalidRequest(f"{path} {_NO_BACKUP}") from error
        if lines == 0 and isinstance(error, orjson.JSONDecodeError):
            raise Unreadable(f"{path} {_NO_BACKUP}") from error
        raise Unreadable(f"{path} is damaged, after {lines} good lines ({error}). Use another backup") from error
    if not ended:
        raise Unreadable(f"{path} is cut off: its last line is missing. Use another backup")


def _parsed(path: Path, document: dict[str, Any], *, first: bool) -> dict[str, Any] | SavedCell | SavedRecord:
    if first:
        if document.get("lakepact-backup") != FORMAT:
            raise Unreadable(
                f"{path} is no backup of format {FORMAT}: {str(document)[:80]}. Use the release that made it"
            )
        return document
    if "cell" in document:
        return SavedCell(Key(document["cell"]), document["revision"], document["value"])
    return SavedRecord(
        TransactionId(document["record"]), State(document["state"]), document["request-hash"], document["answer"]
    )


# --- reading the store ---


def _check_place(path: Path) -> None:
    """Before everything is read: whoever mistyped a folder need not wait to hear of it."""
    if os.path.lexists(path):
        raise InvalidRequest(f"{path} is there already; a backup overwrites nothing. Choose another name")
    if not os.path.isdir(path.parent):
        raise InvalidRequest(f"there is no folder {path.parent.absolute()}; make it, or choose another place")
    if (reason := may_not_write(path)) is not None:
        raise InvalidRequest(f"{path} cannot be written: {reason}. Choose another place")


async def _records(
    store: CellStore, without: frozenset[TransactionId] = frozenset()
) -> AsyncIterator[TransactionRecord]:
    after = None
    while True:
        page = await store.transactions([State.COMMITTED, State.FAILED], after=after, limit=_PAGE)
        for record in page.transactions:
            if record.id not in without:
                yield record
        if page.after is None:
            return
        after = page.after


async def _as_of_now(store: CellStore, id: TransactionId) -> dict[Key, Cell]:
    await store.begin(id, ttl_s=_TTL_S, properties={"purpose": "backup"})
    try:
        cells: dict[Key, Cell] = {}
        after = None
        while True:
            page = await store.scan_in(id, "", after, _PAGE)
            cells.update((cell.key, cell) for cell in page.cells if cell.key not in _LEFT_OUT)
            if page.after is None:
                return cells
            after = page.after
            await store.renew(id, _TTL_S)
    finally:
        # If it cannot be ended, it expires by itself.
        with suppress(TransactionError):
            await store.abort(id)


async def _read_twice(store: CellStore, say: Callable[[str], None]) -> dict[Key, Cell]:
    """Every cell keeps its revision for as long as it keeps its value, so equal revisions mean that nothing moved."""
    before = await _all_cells(store)
    for attempt in range(_ATTEMPTS):
        now = await _all_cells(store)
        if {key: cell.revision for key, cell in before.items()} == {key: cell.revision for key, cell in now.items()}:
            return now
        say(f"something was committed meanwhile; reading again ({attempt + 1} of {_ATTEMPTS})")
        before = now
    raise Contended(
        f"the catalog did not stand still for one reading in {_ATTEMPTS}. Save it at a quieter time, or stop the "
        f"servers while it is saved",
        retry_after_s=60.0,
    )


async def _all_cells(store: CellStore) -> dict[Key, Cell]:
    cells: dict[Key, Cell] = {}
    after = None
    while True:
        page = await store.scan("", after, _PAGE)
        cells.update((cell.key, cell) for cell in page.cells if cell.key not in _LEFT_OUT)
        if page.after is None:
            return cells
        after = page.after


def _has_happened(record: TransactionRecord, cells: Mapping[Key, Cell]) -> bool:
    """Whether a transaction that was decided while the cells were read is among them. One write of it tells for all."""
    return record.state is State.FAILED or any(
        write.key in cells and cells[write.key].revision > write.revision for write in record.writes
    )


def _of_no_delta(cells: dict[Key, Cell], *, allowed: bool) -> tuple[dict[Key, Cell], tuple[LeftOut, ...]]:
    """The cells without those of Delta tables, if it is allowed to leave them out, and which tables these are."""
    tables = {key for key in cells if _family(key) == "delta"}
    if tables and not allowed:
        raise InvalidRequest(
            f"{len(tables)} Delta tables keep their versions as rows of the database, which a backup does not hold. "
            f"Save the database with its own tools (pg_dump, or sqlite3's .backup), which saves everything; or leave "
            f"these tables out with --without-delta, and import them from their logs after a restore"
        )
    if not allowed:
        return cells, ()
    # One that was dropped cannot come back without its rows, and must not keep its folder from who imports its log.
    tables |= {key for key, cell in cells.items() if _family(key) == "dropped" and _is_of_delta(cell)}
    ids = {segments_of(key)[-1] for key in tables}

    def theirs(cell: Cell) -> bool:
        value = cell.value or {}
        return cell.key in tables or (
            _family(cell.key) in ("names", "locations", "dropped") and (value.get("id") or value.get("uuid")) in ids
        )

    left_out = tuple(sorted(_left_out(cells[key]) for key in tables))
    return {key: cell for key, cell in cells.items() if not theirs(cell)}, left_out


def _is_of_delta(cell: Cell) -> bool:
    return (cell.value or {}).get("kind") == "delta"


def _left_out(cell: Cell) -> LeftOut:
    value, warehouse = cell.value or {}, segments_of(cell.key)[0]
    levels = (*value.get("namespace", ()), value.get("name", ""))
    name = ".".join(f'"{level}"' if "." in level else level for level in levels)
    return LeftOut(name, warehouse, value.get("location", ""), dropped=_family(cell.key) == "dropped")


def _family(key: Key) -> str:
    segments = segments_of(key)
    return segments[1] if len(segments) > 1 else ""


# --- writing the file ---


@contextmanager
def _written(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Write lines; at the end the last one, and only then the name. Only the user may read it: it is all there is."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    digest, lines = hashlib.sha256(), 0
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as raw:
            with gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:

                def write(document: dict[str, Any]) -> None:
                    nonlocal lines
                    line = orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE, default=dict)
                    digest.update(line)
                    lines += 1
                    file.write(line)

                yield write
                file.write(
                    orjson.dumps(
                        {"end": {"lines": lines, "sha256": digest.hexdigest()}}, option=orjson.OPT_APPEND_NEWLINE
                    )
                )
            _flush(raw)
        # Not replace(): nobody's file is overwritten, whoever made it meanwhile.
        os.link(unfinished, path)
    except FileExistsError:
        raise InvalidRequest(f"{path} has come to be meanwhile; nothing was overwritten. Choose another name") from None
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}. Choose another place") from error
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _flush(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
