"""Rows of tables as Arrow, pandas, Polars and DuckDB objects, for tables of both formats.

`lake.read`, `lake.write`, `tx.read` and `tx.write` are made of this. Arrow is the common form: everything that is read
or written passes through a `pyarrow.Table`. The libraries are optional and are imported when they are first needed.
Data files are reached with PyIceberg's FileIO, for Delta tables too, so `connect(properties=…)` holds for both formats.
"""

from __future__ import annotations

import importlib
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from lakepact.client.delta import DeltaChange, DeltaTable, DeltaTables
from lakepact.client.errors import NotFound, Unsupported
from lakepact.client.names import Name, shown, table_name
from lakepact.client.tables import Tables, epoch_ms, snapshot_at
from lakepact.delta import engine_types
from lakepact.delta import schema as schemas
from lakepact.delta.actions import Add, Remove
from lakepact.delta.partitions import typed, value_text
from lakepact.delta.paths import decode_path, partition_path
from lakepact.extras import how_to_install

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.io import FileIO

    from lakepact.client.transaction import Transaction

FrameType: TypeAlias = Literal["arrow", "pandas", "polars", "duckdb"]
WriteMode: TypeAlias = Literal["append", "overwrite", "create"]
TableFormat: TypeAlias = Literal["iceberg", "delta"]

_COLUMN_MAPPING: Final = "delta.columnMapping.mode"


# --- reading ---


def read_table(
    tables: Tables,
    delta: DeltaTables,
    catalog: RestCatalog,
    properties: Mapping[str, str],
    name: Name,
    *,
    frame_type: FrameType,
    columns: Sequence[str] | None,
    at: datetime | None,
) -> Any:
    """The rows of a table of either format, as the type of frame that `frame_type` names."""
    _check_choice("as_", frame_type, get_args(FrameType))
    if frame_type in ("pandas", "polars", "duckdb"):
        # Before anything is read: a missing library should not cost a download.
        _library(frame_type)
    if isinstance(columns, str):
        raise TypeError(f"columns is a list of names, such as [{columns!r}], not a string")
    identifier = table_name(name)
    if _format_of(tables, delta, identifier) == "iceberg":
        rows = _read_iceberg(catalog, identifier, columns, at)
    else:
        at_ms = None if at is None else epoch_ms(at)
        rows = _read_delta(delta.load(identifier, timestamp_ms=at_ms), properties, columns)
    return _frame(rows, frame_type)


def _read_iceberg(
    catalog: RestCatalog, identifier: tuple[str, ...], columns: Sequence[str] | None, at: datetime | None
) -> pa.Table:
    table = catalog.load_table(identifier)
    fields = ("*",) if columns is None else tuple(columns)
    snapshot = None
    if at is not None:
        snapshot = snapshot_at(shown(identifier), table.metadata.model_dump(by_alias=True), at)
    return table.scan(selected_fields=fields, snapshot_id=snapshot).to_arrow()


def _read_delta(table: DeltaTable, properties: Mapping[str, str], columns: Sequence[str] | None) -> pa.Table:
    import pyarrow as pa

    mapping = table.metadata.get("configuration", {}).get(_COLUMN_MAPPING, "none")
    if mapping != "none":
        raise Unsupported(f"{table.name} uses column mapping ({mapping}), which only Spark reads: use lakepact.spark")
    whole = engine_types.to_arrow(schemas.parse(table.schema_string))
    schema_to_read = whole if columns is None else pa.schema([_field(whole, table.name, one) for one in columns])
    io = _file_io(properties, table.location)
    parts = [_read_file(io, table, one, schema_to_read) for one in table.files]
    return pa.concat_tables(parts) if parts else schema_to_read.empty_table()


def _read_file(io: FileIO, table: DeltaTable, file: Add, schema_to_read: pa.Schema) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if file.deletion_vector is not None:
        raise Unsupported(f"{table.name} has deletion vectors, which only Spark reads: use lakepact.spark")
    types = {one.name: one.type for one in schemas.parse(table.schema_string).fields}
    path = decode_path(file.path)
    with io.new_input(path if "://" in path else f"{table.location}/{path}").open() as stream:
        parquet = pq.ParquetFile(stream)
        rows = parquet.metadata.num_rows
        stored = set(parquet.schema_arrow.names)
        data = parquet.read([one.name for one in schema_to_read if one.name in stored])
    columns = []
    for one in schema_to_read:
        if one.name in file.partition_values:
            value = typed(file.partition_values[one.name], types[one.name])
            columns.append(pa.array([value] * rows, one.type))
        elif one.name in stored:
            columns.append(data[one.name].cast(one.type))
        else:
            # A column that was added after this file was written.
            columns.append(pa.nulls(rows, one.type))
    return pa.table(columns, schema=schema_to_read)


def _field(schema: pa.Schema, table: str, name: str) -> pa.Field:
    if name not in schema.names:
        raise ValueError(f"{table} has no column {name!r}; it has {', '.join(schema.names)}")
    return schema.field(name)


def _frame(rows: pa.Table, frame_type: FrameType) -> Any:
    match frame_type:
        case "arrow":
            return rows
        case "pandas":
            return rows.to_pandas()
        case "polars":
            return _library("polars").from_arrow(rows)
        case "duckdb":
            return _library("duckdb").from_arrow(rows)


# --- writing ---


def arrow_table(data: Any) -> pa.Table:
    """The data as an Arrow table: of Arrow, pandas, Polars or DuckDB, a dict of columns, or a list of dicts.

    Types that only one library has become those that tables store: categories their values, nanoseconds microseconds.
    Raises `ValueError` if that would change a value.
    """
    pa = _library("pyarrow")
    source = type(data).__module__.partition(".")[0]
    if isinstance(data, pa.Table):
        rows = data
    elif isinstance(data, pa.RecordBatch):
        rows = pa.Table.from_batches([data])
    elif isinstance(data, pa.RecordBatchReader):
        rows = data.read_all()
    elif source == "pandas" and hasattr(data, "columns"):
        rows = pa.Table.from_pandas(data, preserve_index=False)
    elif source == "polars" and hasattr(data, "collect"):
        rows = data.collect().to_arrow()
    elif source == "polars" and hasattr(data, "get_columns"):
        rows = data.to_arrow()
    elif isinstance(data, Mapping):
        rows = pa.table(dict(data))
    elif isinstance(data, list) and data and all(isinstance(row, Mapping) for row in data):
        rows = pa.Table.from_pylist(data)
    elif hasattr(data, "__arrow_c_stream__"):
        rows = pa.RecordBatchReader.from_stream(data).read_all()
    elif hasattr(data, "to_arrow_table"):
        rows = data.to_arrow_table()
    else:
        raise TypeError(
            f"cannot write {type(data).__name__}: expected rows of pyarrow, pandas, Polars or DuckDB, a dict of "
            f"columns or a list of dicts"
        )
    columns = [_cast(rows[one.name], _stored_type(one.type), one.name) for one in rows.schema]
    return pa.table(columns, names=rows.column_names)


def write_table(
    tx: Transaction,
    properties: Mapping[str, str],
    name: Name,
    rows: pa.Table,
    *,
    mode: WriteMode,
    table_format: TableFormat | None,
    partition_by: Sequence[str],
) -> None:
    """Write the rows to a table inside the transaction."""
    check_write(name, mode, table_format, partition_by)
    identifier = table_name(name)
    if mode == "create":
        create = _create_delta if table_format == "delta" else _create_iceberg
        create(tx, properties, identifier, rows, partition_by)
        return
    existing_format = _format_of(tx.tables, tx.delta, identifier, or_create=True)
    if table_format not in (None, existing_format):
        raise ValueError(f"{shown(identifier)} is a table in the format {existing_format}, not {table_format}")
    if existing_format == "delta":
        _write_delta(tx, properties, identifier, rows, mode)
        return
    table = tx.pyiceberg().load_table(identifier)
    fitted = _fitted(rows, table.schema().as_arrow(), shown(identifier))
    if mode == "append":
        table.append(fitted)
    else:
        table.overwrite(fitted)


def check_write(name: Name, mode: str, table_format: str | None, partition_by: Sequence[str]) -> None:
    """Refuse what `write` does not understand, before anything is begun."""
    table_name(name)
    _check_choice("mode", mode, get_args(WriteMode))
    if table_format is not None:
        _check_choice("format", table_format, get_args(TableFormat))
    if isinstance(partition_by, str):
        raise TypeError(f"partition_by is a list of columns, such as [{partition_by!r}], not a string")
    if partition_by and mode != "create":
        raise ValueError(f"partition_by goes with mode='create'; the table of mode={mode!r} has its partitions already")


def _create_iceberg(
    tx: Transaction,
    properties: Mapping[str, str],
    identifier: tuple[str, ...],
    rows: pa.Table,
    partition_by: Sequence[str],
) -> None:
    table = tx.pyiceberg().create_table(identifier, rows.schema)
    if partition_by:
        with table.update_spec() as update:
            for column in partition_by:
                update.add_identity(_field(rows.schema, shown(identifier), column).name)
    table.append(rows)


def _create_delta(
    tx: Transaction,
    properties: Mapping[str, str],
    identifier: tuple[str, ...],
    rows: pa.Table,
    partition_by: Sequence[str],
) -> None:
    schema = engine_types.from_arrow(rows.schema)
    table = tx.delta.create(identifier, schemas.dump(schema), partition_by=partition_by)
    added = _write_files(properties, table, rows)
    _commit_delta(tx, table, added, "CREATE TABLE AS SELECT", depends=True)


def _write_delta(
    tx: Transaction, properties: Mapping[str, str], identifier: tuple[str, ...], rows: pa.Table, mode: WriteMode
) -> None:
    # Rows that are only appended do not depend on the existing files.
    table = tx.delta.load(identifier, files=mode == "overwrite")
    schema = schemas.parse(table.schema_string)
    fitted = _fitted(rows, engine_types.to_arrow(schema), table.name)
    added = _write_files(properties, table, fitted)
    now_ms = time.time_ns() // 1_000_000
    removed = [
        Remove(one.path, now_ms, True, one.partition_values, one.size, one.deletion_vector) for one in table.files
    ]
    _commit_delta(tx, table, [*removed, *added], "WRITE", depends=mode == "overwrite")


def _commit_delta(
    tx: Transaction, table: DeltaTable, actions: Sequence[Add | Remove], operation: str, *, depends: bool
) -> None:
    if not actions:
        return
    version, statements = (table.version, table.statements) if depends else (None, None)
    tx.delta.commit(
        DeltaChange(table.identifier, actions, expected_version=version, statements=statements, operation=operation)
    )


def _write_files(properties: Mapping[str, str], table: DeltaTable, rows: pa.Table) -> list[Add]:
    """Write the rows as new files of a Delta table. No reader can see them before the commit."""
    import pyarrow.parquet as pq

    from lakepact.delta.stats import add_action

    schema = schemas.parse(table.schema_string)
    io = _file_io(properties, table.location)
    folder = f"data/{uuid.uuid4()}"
    added = []
    for values, part in _partitions(rows, table.partition_columns, schema):
        directories = partition_path(values, table.partition_columns)
        path = "/".join(filter(None, (folder, directories, "part-0.parquet")))
        location = f"{table.location}/{path}"
        footers: list[Any] = []
        with io.new_output(location).create() as stream:
            pq.write_table(part, stream, compression="zstd", metadata_collector=footers)
        added.append(
            add_action(
                path,
                footers[0],
                schema,
                size=len(io.new_input(location)),
                modification_time=time.time_ns() // 1_000_000,
                partition_values=values,
            )
        )
    return added


def _partitions(
    rows: pa.Table, columns: Sequence[str], schema: schemas.Struct
) -> Iterable[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each partition, without the partition columns; the values as Delta writes them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.num_rows == 0:
        return
    if not columns:
        yield {}, rows
        return
    types = {one.name: one.type for one in schema.fields}
    rest = [name for name in rows.column_names if name not in columns]
    for combination in rows.group_by(list(columns)).aggregate([]).to_pylist():
        mask = pa.array([True] * rows.num_rows)
        for name in columns:
            value = combination[name]
            same = (
                pc.is_null(rows[name])
                if value is None
                else pc.fill_null(pc.equal(rows[name], pa.scalar(value, rows.schema.field(name).type)), False)
            )
            mask = pc.and_(mask, same)
        yield (
            {name: value_text(combination[name], types[name]) for name in columns},
            rows.filter(mask).select(rest),
        )


# --- types ---


def _fitted(rows: pa.Table, schema: pa.Schema, table: str) -> pa.Table:
    """The rows with the columns in the table's order and of its types. A missing column is left to the format."""
    import pyarrow as pa

    unknown = [name for name in rows.column_names if name not in schema.names]
    if unknown:
        raise ValueError(
            f"{table} has no column {', '.join(map(repr, unknown))}; it has {', '.join(schema.names)}. Leave the "
            f"column out, or add it to the table first"
        )
    fields = [one for one in schema if one.name in rows.column_names]
    columns = [_cast(rows[one.name], one.type, one.name) for one in fields]
    if not any(one.nullable is False for one in fields):
        return pa.table(columns, names=[one.name for one in fields])
    # A column that must not be null is declared so, as far as its values are.
    declared = [
        pa.field(one.name, column.type, nullable=one.nullable or column.null_count > 0)
        for one, column in zip(fields, columns, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(declared))


def _cast(column: pa.ChunkedArray, target: pa.DataType, name: str) -> pa.ChunkedArray:
    import pyarrow as pa

    if column.type == target:
        return column
    try:
        return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"column {name!r} is {column.type} and cannot become {target}: {error}") from error


def _stored_type(arrow_type: pa.DataType) -> pa.DataType:
    """The nearest type that tables store."""
    import pyarrow as pa

    match arrow_type:
        case _ if pa.types.is_dictionary(arrow_type):
            return _stored_type(arrow_type.value_type)
        case _ if pa.types.is_timestamp(arrow_type):
            return pa.timestamp("us", arrow_type.tz)
        case _ if pa.types.is_time(arrow_type):
            return pa.time64("us")
        case _ if arrow_type in (pa.uint8(), pa.uint16()):
            return pa.int32()
        case _ if arrow_type == pa.uint32():
            return pa.int64()
        case _ if arrow_type == pa.float16():
            return pa.float32()
        case _ if arrow_type == pa.string_view():
            return pa.string()
        case _ if arrow_type == pa.binary_view():
            return pa.binary()
        case _ if pa.types.is_struct(arrow_type):
            return pa.struct([one.with_type(_stored_type(one.type)) for one in arrow_type])
        case _ if pa.types.is_large_list(arrow_type) or pa.types.is_list(arrow_type):
            return pa.list_(arrow_type.value_field.with_type(_stored_type(arrow_type.value_type)))
        case _:
            return arrow_type


# --- what it needs ---


def _format_of(
    tables: Tables, delta: DeltaTables, identifier: tuple[str, ...], *, or_create: bool = False
) -> TableFormat:
    if tables.exists(identifier):
        return "iceberg"
    try:
        if delta.exists(identifier):
            return "delta"
    except Unsupported:
        # The server keeps its metadata in documents, and has no Delta tables.
        pass
    advice = ". Create it with mode='create'" if or_create else ""
    raise NotFound(f"table {shown(identifier)} does not exist{advice}", status=404)


def _file_io(properties: Mapping[str, str], location: str) -> FileIO:
    _library("pyiceberg")
    from pyiceberg.io import load_file_io

    return load_file_io(dict(properties), location)


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        ours = {"pyarrow": "pyiceberg", "pyiceberg": "pyiceberg", "pandas": "spark", "duckdb": "duckdb"}
        how = how_to_install(ours[name]) if name in ours and name != "pandas" else f"pip install {name}"
        raise ImportError(f"this needs {name}: {how}", name=name) from error


def _check_choice(argument: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{argument} is one of {', '.join(map(repr, choices))}, not {value!r}")
