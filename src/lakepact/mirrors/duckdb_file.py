"""The DuckDB file: its state, and how a new one is made of an old one.

Everything here blocks; callers run it on a thread. DuckDB is an extra and imported when it is wanted. The file is made
in a temporary folder, in one transaction of DuckDB, and handed out as bytes: nobody ever opens one that is being
written.

    _lakepact.tables   what is in the file: a row a table, with the version; `reason` says why one is not there
    _lakepact.cut      when the cut was taken
    <namespace>.<name> the views
"""

from __future__ import annotations

import contextlib
import importlib.util
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lakepact.delta.engine_types import duckdb_name
from lakepact.errors import InvalidSetting
from lakepact.extras import how_to_install
from lakepact.mirrors.views import plain

if TYPE_CHECKING:
    import duckdb

OWN_SCHEMA: Final = "_lakepact"
RESERVED: Final = frozenset({OWN_SCHEMA, "information_schema", "pg_catalog", "system", "temp"})
FORMAT: Final = "2"
"""Of the views. A file of another format is made anew."""

_SCHEME_EXTENSIONS: Final = {
    "s3": "httpfs",
    "s3a": "httpfs",
    "gs": "httpfs",
    "gcs": "httpfs",
    "az": "azure",
    "abfss": "azure",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One table as it is in the file."""

    schema: str
    name: str
    format: str
    location: str
    version: int | None
    made_from: str
    """The metadata it was made from: equal means that there is nothing to do."""

    reason: str | None = None
    """Why there is no view."""


def extensions_for(paths: Iterable[str]) -> frozenset[str]:
    schemes = {path.partition("://")[0] for path in paths if "://" in path}
    return frozenset(_SCHEME_EXTENSIONS[one] for one in schemes if one in _SCHEME_EXTENSIONS)


def read_state(data: bytes) -> list[Shown] | None:
    """What is in this file, or None if it is not one of ours, or of another format."""
    duckdb = _duckdb()
    with tempfile.TemporaryDirectory(prefix="lakepact-duckdb-") as folder:
        path = Path(folder) / "lakepact.duckdb"
        path.write_bytes(data)
        try:
            with duckdb.connect(str(path), read_only=True) as connection:
                found = connection.execute(f"SELECT format FROM {OWN_SCHEMA}.cut").fetchall()
                if found != [(FORMAT,)]:
                    return None
                rows = connection.execute(
                    f"SELECT schema_name, table_name, format, location, version, made_from, reason "
                    f"FROM {OWN_SCHEMA}.tables"
                ).fetchall()
                return [Shown(*row) for row in rows]
        except duckdb.Error:
            return None


def with_old_times(paths: Sequence[str]) -> set[str]:
    """Those of these Parquet files that hold timestamps as INT96."""
    if not paths:
        return set()
    with _duckdb().connect() as connection:
        found = connection.execute(
            "SELECT DISTINCT file_name FROM parquet_schema(?) WHERE type = 'INT96'", [[plain(one) for one in paths]]
        ).fetchall()
    return {name for (name,) in found}


def write_file(
    base: bytes | None,
    before: Iterable[Shown],
    now: Iterable[Shown],
    queries: Mapping[tuple[str, str], str],
    *,
    taken_ms: int,
    extensions: Iterable[str] = (),
) -> tuple[bytes, dict[tuple[str, str], str]]:
    """The file with these tables, made of `base` that has those. `queries` are the views that are made anew.

    Also answers those that DuckDB does not take, with its reason: they are in the file without a view.
    """
    refused: dict[tuple[str, str], str] = {}
    duckdb = _duckdb()
    while True:
        with tempfile.TemporaryDirectory(prefix="lakepact-duckdb-") as folder:
            path = Path(folder) / "lakepact.duckdb"
            if base is not None:
                path.write_bytes(base)
            with duckdb.connect(str(path), config={"autoinstall_known_extensions": "false"}) as connection:
                for extension in extensions:
                    load_extension(connection, extension)
                if any("iceberg_scan(" in query for query in queries.values()):
                    _load_iceberg(connection)
                connection.execute("BEGIN")
                failed = _fill(connection, list(before), list(now), queries, refused, taken_ms)
                if failed is None:
                    connection.execute("COMMIT")
                    connection.execute("CHECKPOINT")
            if failed is None:
                return path.read_bytes(), refused
            refused[failed[0]] = failed[1]


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """From a wheel if there is one (`pip install duckdb-extension-<name>`), or as `INSTALL` has left it."""
    duckdb = _duckdb()
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        if path.is_file():
            connection.execute(f"LOAD '{path}'")
            return
    try:
        connection.execute(f"LOAD {name}")
    except duckdb.Error as error:
        raise InvalidSetting(
            f"the mirror duckdb needs DuckDB's extension {name} here: pip install "
            f"duckdb-extension-{name}=={duckdb.__version__}, or INSTALL {name} in DuckDB ({str(error)[:200]})"
        ) from None


def _load_iceberg(connection: duckdb.DuckDBPyConnection) -> None:
    """If it cannot be had, the views that need it are refused, and say so."""
    with contextlib.suppress(InvalidSetting):
        for name in ("avro", "httpfs", "iceberg"):
            load_extension(connection, name)


def _fill(
    connection: duckdb.DuckDBPyConnection,
    before: list[Shown],
    now: list[Shown],
    queries: Mapping[tuple[str, str], str],
    refused: Mapping[tuple[str, str], str],
    taken_ms: int,
) -> tuple[tuple[str, str], str] | None:
    """Bring the file from one state to the other; the view that cannot be made, if there is one."""
    duckdb = _duckdb()
    wanted = {(one.schema, one.name): one for one in now if one.reason is None}
    for old in before:
        place = (old.schema, old.name)
        if old.reason is None and (place not in wanted or place in queries):
            connection.execute(f"DROP VIEW IF EXISTS {_qualified(place)}")
    schemas = {schema for schema, _ in wanted}
    # DuckDB keeps the case of a name and compares without it.
    needed = {schema.lower() for schema in (*schemas, "main")}
    for schema in sorted({one.schema for one in before if one.reason is None and one.schema.lower() not in needed}):
        connection.execute(f"DROP SCHEMA IF EXISTS {duckdb_name(schema)}")
    for schema in sorted(schemas):
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {duckdb_name(schema)}")
    for place, query in queries.items():
        if place in refused:
            continue
        try:
            connection.execute(f"CREATE VIEW {_qualified(place)} AS {query}")
        except duckdb.Error as error:
            return place, str(error).partition("\n")[0][:1_000]
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA}")
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.tables (schema_name VARCHAR, table_name VARCHAR, format VARCHAR, "
        f"location VARCHAR, version BIGINT, made_from VARCHAR, reason VARCHAR)"
    )
    connection.execute(f"CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.cut (format VARCHAR, taken_ms BIGINT)")
    _update_rows(connection, before, now, refused)
    connection.execute(f"DELETE FROM {OWN_SCHEMA}.cut")
    connection.execute(f"INSERT INTO {OWN_SCHEMA}.cut VALUES (?, ?)", [FORMAT, taken_ms])
    return None


def _update_rows(
    connection: duckdb.DuckDBPyConnection,
    before: list[Shown],
    now: list[Shown],
    refused: Mapping[tuple[str, str], str],
) -> None:
    kept = set(before) & {one for one in now if (one.schema, one.name) not in refused}
    for old in before:
        if old not in kept:
            connection.execute(
                f"DELETE FROM {OWN_SCHEMA}.tables WHERE schema_name = ? AND table_name = ?", [old.schema, old.name]
            )
    for one in now:
        if one not in kept:
            reason = refused.get((one.schema, one.name), one.reason)
            connection.execute(
                f"INSERT INTO {OWN_SCHEMA}.tables VALUES (?, ?, ?, ?, ?, ?, ?)",
                [one.schema, one.name, one.format, one.location, one.version, one.made_from, reason],
            )


def _qualified(place: tuple[str, str]) -> str:
    return f"{duckdb_name(place[0])}.{duckdb_name(place[1])}"


def _duckdb() -> Any:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise InvalidSetting(f"the mirror duckdb needs DuckDB: {how_to_install('duckdb')}") from None
    return duckdb
