"""The engine `duckdb`: one file for a warehouse, `_mirrors/lakepact.duckdb`, with a view of every table as of one cut.

The order of steps keeps the file from ever going back: first the file that is there is read, then the cut is taken,
then a file is made of both, and it replaces the one that was read or nothing at all. Whoever comes second begins
again.

Several commits that have queued up are one new file: the newest cut wins. What has not changed since the file was made
is left as it is in there, so the work is in the number of tables that have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from lakepact.catalog.catalog import Catalog
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.catalog.watch import Mirrored
from lakepact.delta.codec import outside_of_table
from lakepact.delta.paths import decode_path
from lakepact.delta.ports import DeltaRows, MirrorState
from lakepact.delta.protocol import is_managed
from lakepact.errors import Contended
from lakepact.mirrors.duckdb_file import (
    RESERVED,
    Shown,
    extensions_for,
    read_state,
    with_old_times,
    write_file,
)
from lakepact.mirrors.engines import Engine
from lakepact.mirrors.iceberg_files import IcebergFiles, SnapshotFiles
from lakepact.mirrors.lake import tables_now
from lakepact.mirrors.views import (
    CannotShow,
    LeadsElsewhere,
    LiveFile,
    delta_view,
    has_instants,
    iceberg_columns,
    iceberg_scan,
    iceberg_view,
)
from lakepact.stores.urls import file_path

FILE: Final = "_mirrors/lakepact.duckdb"
_ATTEMPTS: Final = 10
_MOST_REMEMBERED: Final = 1_000_000
_ROOM: Final = 4
"""A file that has grown to so many times the size it had when it was made anew is made anew."""

_ROOM_BYTES: Final = 8 << 20

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Made:
    """What is in the file now."""

    versions: dict[str, int] = field(default_factory=dict)
    """Of Delta tables, by id: the version that their views show."""

    times: dict[str, int] = field(default_factory=dict)
    """When that version was committed, in ms."""

    errors: dict[str, str] = field(default_factory=dict)
    """Why a Delta table is not in the file, by id."""

    left_out: dict[str, str] = field(default_factory=dict)
    """Why an Iceberg table is not in the file, by name."""

    replaced: bool = False


@dataclass(slots=True)
class _Known:
    """A file, as it was read or written last."""

    data: bytes | None
    tables: list[Shown]
    whole_bytes: int
    """The size of the file when it was made anew; 0 if it cannot be understood."""


class DuckdbMirror:
    """The file of one warehouse."""

    def __init__(self, catalog: Catalog, rows: DeltaRows, *, iceberg: bool) -> None:
        """`iceberg`: whether tables of that format are shown too."""
        self._parts = catalog.parts
        self._rows = rows
        self._iceberg = iceberg
        self._files = IcebergFiles(catalog.parts.warehouse, catalog.parts.blobs)
        self._known: _Known | None = None
        self._follows: dict[str, bool] = {}
        self._old_times: dict[str, bool] = {}
        """Of files of imported tables, by path: a file never changes."""

        root = catalog.parts.warehouse.root
        self._folder = str(file_path(root)) if root.startswith("file:") else None

    @property
    def wanted(self) -> bool:
        """Whether there is a file even if no Delta table asks for one."""
        return self._iceberg

    def look_again(self) -> None:
        """Forget which tables are to be shown."""
        self._follows.clear()

    def follows(self, table_ids: Iterable[str]) -> None:
        """These are to be shown."""
        self._follows.update((table_id, True) for table_id in table_ids)

    async def follow(self) -> Made:
        """Bring the file to the newest cut. Raises if there can be no file at all; a table that cannot be shown is
        left out of it, and told."""
        for _ in range(_ATTEMPTS):
            known = await self._there()
            pointers = await self._cut()
            taken_ms = self._parts.clock.now_ms()
            made = Made()
            now, queries = await self._plan(known, pointers, made)
            if not queries and set(now) == set(known.tables):
                return made
            if not now and known.data is None:
                return made
            base, before = known.data, known.tables
            if base is None or not known.whole_bytes or len(base) > max(_ROOM * known.whole_bytes, _ROOM_BYTES):
                base, before = None, []
                now, queries = await self._plan(_Known(None, [], 0), pointers, made)
            data, refused = await asyncio.to_thread(
                write_file,
                base,
                before,
                now,
                queries,
                taken_ms=taken_ms,
                extensions=extensions_for([self._parts.warehouse.root]),
            )
            self._note_refused(refused, pointers, made)
            tables = [_with_reason(one, refused) for one in now]
            if base is not None and set(tables) == set(known.tables):
                # What could not be shown before still cannot, and nothing else has changed.
                return made
            if await self._parts.blobs.replace(FILE, data, known.data):
                self._known = _Known(data, tables, len(data) if base is None else known.whole_bytes)
                made.replaced = True
                return made
            self._known = None
        raise Contended(f"{FILE} keeps being replaced by others; the next round looks again")

    async def shows(self) -> list[Mirrored]:
        """The tables whose files the views of the file name, if anybody keeps it in step."""
        followed = self._iceberg or any(
            row.engine == Engine.DUCKDB and row.state is not MirrorState.OFF for row in await self._rows.mirror_status()
        )
        data = await self._parts.blobs.get(FILE) if followed else None
        tables = None if data is None else await asyncio.to_thread(read_state, data)
        return [
            Mirrored(one.location, one.made_from, one.format == "delta") for one in tables or () if one.reason is None
        ]

    # --- how ---

    async def _there(self) -> _Known:
        if self._known is None:
            data = await self._parts.blobs.get(FILE)
            tables = None if data is None else await asyncio.to_thread(read_state, data)
            # A file that cannot be understood is replaced by a new one.
            self._known = _Known(data, tables or [], len(data) if data is not None and tables is not None else 0)
        return self._known

    async def _cut(self) -> list[Pointer]:
        parts = self._parts
        found = await tables_now(parts.store, parts.warehouse.name, parts.clock, parts.rng)
        shown_here = [
            one for one in found if (await self._is_followed(one.id) if one.kind is Kind.DELTA else self._iceberg)
        ]
        return sorted(shown_here, key=lambda one: (_schema(one), one.identifier.name))

    async def _is_followed(self, table_id: str) -> bool:
        known = self._follows.get(table_id)
        if known is None:
            known = any(
                row.engine == Engine.DUCKDB and row.state is not MirrorState.OFF
                for row in await self._rows.mirror_status(table_id=table_id)
            )
            self._follows[table_id] = known
        return known

    async def _plan(
        self, known: _Known, pointers: Sequence[Pointer], made: Made
    ) -> tuple[list[Shown], dict[tuple[str, str], str]]:
        """What shall be in the file, and the queries of the views that it has not got yet."""
        there = {(one.schema, one.name): one for one in known.tables}
        now: list[Shown] = []
        queries: dict[tuple[str, str], str] = {}
        taken: set[tuple[str, str]] = set()
        for pointer in pointers:
            one = _shown(pointer)
            place, folded = (one.schema, one.name), (one.schema.lower(), one.name.lower())
            old = there.get(place)
            if old is not None and old.made_from == one.made_from and old.reason is None and folded not in taken:
                taken.add(folded)
                now.append(old)
                self._note(pointer, None, made)
                continue
            reason: str | None = None
            try:
                _check_name(one, folded in taken)
                queries[place] = await self._query(pointer)
                taken.add(folded)
            except CannotShow as error:
                reason = str(error)
            except Exception as error:
                # Whatever it is, it is this table's matter alone.
                reason = f"{type(error).__name__}: {error}"
            self._note(pointer, reason, made)
            now.append(Shown(one.schema, one.name, one.format, one.location, one.version, one.made_from, reason))
        return now, queries

    def _note(self, pointer: Pointer, reason: str | None, made: Made) -> None:
        if pointer.kind is not Kind.DELTA:
            if reason is not None:
                made.left_out[shown(pointer.identifier)] = reason
            return
        if reason is None:
            made.versions[pointer.id] = pointer.summary["version"]
            made.times[pointer.id] = pointer.summary["ict-ms"]
        else:
            made.errors[pointer.id] = reason

    def _note_refused(self, refused: dict[tuple[str, str], str], pointers: Sequence[Pointer], made: Made) -> None:
        for pointer in pointers:
            reason = refused.get((_schema(pointer), pointer.identifier.name))
            if reason is not None:
                made.versions.pop(pointer.id, None)
                self._note(pointer, reason, made)

    async def _query(self, pointer: Pointer) -> str:
        if pointer.kind is Kind.DELTA:
            return await self._delta_query(pointer)
        metadata = (await self._parts.files.of(pointer)).document
        # Before anything else: DuckDB's own extension would follow wherever the table leads.
        found = await self._files.current(pointer.location, metadata)
        try:
            return await self._iceberg_query(metadata, found)
        except CannotShow:
            # DuckDB's own extension can, where it is installed; else its refusal is the reason.
            return iceberg_scan(self._path(pointer.metadata_location))

    async def _delta_query(self, pointer: Pointer) -> str:
        version = pointer.summary["version"]
        contents = await self._rows.contents(pointer.id, version)
        if contents.metadata is None:
            raise CannotShow(f"version {version} has no metadata")
        columns = contents.metadata.partition_columns
        files: list[LiveFile] = []
        folder = self._path(pointer.location)
        for add in await self._rows.files(pointer.id, version):
            if add.deletion_vector is not None:
                raise CannotShow("rows of its files are deleted by deletion vectors")
            if outside_of_table(add.path) is not None:
                raise LeadsElsewhere(f"it leads to {add.path[:300]}, which is not in its folder")
            values = tuple(add.partition_values.get(name) for name in columns)
            files.append(LiveFile(f"{folder}/{decode_path(add.path)}", values))
        if has_instants(contents.metadata) and await self._is_imported(pointer.id):
            files = await self._with_old_times(files)
        return await asyncio.to_thread(delta_view, contents.metadata, files)

    async def _is_imported(self, table_id: str) -> bool:
        """Whether files of it may have been written by others: then it was not ours from the beginning."""
        first = (await self._rows.contents(table_id, 0)).protocol
        return first is None or not is_managed(first)

    async def _with_old_times(self, files: list[LiveFile]) -> list[LiveFile]:
        if self._folder is None:
            raise CannotShow(
                "it was imported, and from here it cannot be told whether the timestamps in its files are INT96, which "
                "DuckDB would take in the zone of whoever reads; read it by its log"
            )
        if len(self._old_times) > _MOST_REMEMBERED:
            self._old_times.clear()
        unknown = [file.path for file in files if file.path not in self._old_times]
        old = await asyncio.to_thread(with_old_times, unknown)
        self._old_times.update((path, path in old) for path in unknown)
        return [replace(file, old_times=self._old_times[file.path]) for file in files]

    async def _iceberg_query(self, metadata: dict[str, object], found: SnapshotFiles | None) -> str:
        schemas: list[dict[str, object]] = metadata["schemas"]  # type: ignore[assignment]
        schema = next(one for one in schemas if one["schema-id"] == metadata["current-schema-id"])
        columns = iceberg_columns(schema, evolved=len(schemas) > 1)
        if found is None:
            return iceberg_view(columns, [])
        if found.other_deletes:
            raise CannotShow("rows of it are deleted by equality or by vectors")
        if not found.all_parquet:
            raise CannotShow("some of its files are not Parquet")
        properties = metadata.get("properties")
        if isinstance(properties, dict) and "schema.name-mapping.default" in properties:
            raise CannotShow("its files may have no column ids (schema.name-mapping.default)")
        files = [LiveFile(self._path(one), (), one) for one in found.data]
        deletes = [self._path(one) for one in found.position_deletes]
        return await asyncio.to_thread(iceberg_view, columns, files, deletes)

    def _path(self, location: str) -> str:
        """A location in the warehouse as DuckDB opens it. Others are refused."""
        name = self._parts.warehouse.blob_name(location)
        return location if self._folder is None else f"{self._folder}/{name}"


def _shown(pointer: Pointer) -> Shown:
    delta = pointer.kind is Kind.DELTA
    return Shown(
        _schema(pointer),
        pointer.identifier.name,
        "delta" if delta else "iceberg",
        pointer.location,
        pointer.summary["version"] if delta else None,
        pointer.metadata_location,
    )


def _schema(pointer: Pointer) -> str:
    return ".".join(pointer.identifier.namespace)


def _check_name(one: Shown, taken: bool) -> None:
    if one.schema.lower() in RESERVED:
        raise CannotShow(f"DuckDB, or this file, has a meaning of its own for the schema {one.schema}")
    if taken:
        raise CannotShow("its name differs from another one only by case, which DuckDB does not tell apart")


def _with_reason(one: Shown, refused: dict[tuple[str, str], str]) -> Shown:
    reason = refused.get((one.schema, one.name), one.reason)
    return Shown(one.schema, one.name, one.format, one.location, one.version, one.made_from, reason)
