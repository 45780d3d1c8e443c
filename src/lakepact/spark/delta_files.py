"""Data files of Delta tables, written and read by Spark itself: no Delta runtime is needed for it.

Rows become Parquet files in a folder of their own below the table, which nobody else ever writes to; what the files
are is read from their footers. A table at one version is its live files, and nothing else.
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from lakepact.client import DeltaTable
from lakepact.delta import schema as schemas
from lakepact.delta.actions import Add
from lakepact.delta.partitions import canonical_text
from lakepact.delta.paths import decode_path, partition_values
from lakepact.delta.stats import add_action
from lakepact.errors import LakepactError

_TAIL: Final = 64 << 10
"""Of a file's end, read at once: nearly every footer is smaller."""

_MAGIC: Final = 8
_PLACE: Final = "lakepact_place"
FILE: Final = "lakepact_file"
"""The column that says which file a row is in, while a change is worked out."""


# --- writing ---


def write_files(spark: SparkSession, frame: DataFrame, table: DeltaTable, schema: schemas.Struct) -> list[Add]:
    """Write the rows of the frame into new files of the table, and say what they are. Nobody knows of them yet."""
    folder = f"{table.location}/data/{uuid.uuid4()}"
    columns = list(table.partition_columns)
    # Partition folders say times without a zone: in UTC no two instants have the same name.
    writer = frame.write.mode("error").option("compression", "zstd").option("timeZone", "UTC")
    # Spark's default for timestamps has no statistics. The session is the transaction's own.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    (writer.partitionBy(*columns) if columns else writer).parquet(folder)
    found = list(_written(spark, folder))
    if not any(one.name == "_SUCCESS" for one in found):
        raise LakepactError(f"Spark has not finished writing {folder}; nothing of it is used")
    types = {one.name: one.type for one in schema.fields}
    added = []
    for one in found:
        if one.name.startswith(("_", ".")):
            continue
        footer = one.footer()
        if footer.num_rows == 0:
            continue
        path = one.path[len(table.location) + 1 :]
        values = partition_values(path, columns)
        added.append(
            add_action(
                path,
                footer,
                schema,
                size=one.size,
                modification_time=one.modified_ms,
                partition_values={name: canonical_text(values[name], types[name]) for name in columns},
            )
        )
    return added


@dataclass(frozen=True, slots=True)
class _File:
    """A file as Hadoop's file system shows it: wherever Spark can write, this can read."""

    system: Any
    java_path: Any
    path: str
    name: str
    size: int
    modified_ms: int

    def footer(self) -> pq.FileMetaData:
        tail = self._end(_TAIL)
        length = int.from_bytes(tail[-_MAGIC:-4], "little") + _MAGIC
        if length > len(tail):
            tail = self._end(length)
        return pq.read_metadata(_Tail(tail, self.size))

    def _end(self, length: int) -> bytes:
        length = min(length, self.size)
        stream = self.system.open(self.java_path)
        try:
            stream.seek(self.size - length)
            return bytes(stream.readNBytes(length))
        finally:
            stream.close()


class _Tail(io.RawIOBase):
    """The end of a file, for a reader that needs no more of it."""

    def __init__(self, tail: bytes, size: int) -> None:
        super().__init__()
        self._tail = tail
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        begin = self._at - (self._size - len(self._tail))
        assert begin >= 0, "a footer is at the end"
        found = self._tail[begin : begin + len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)


def _written(spark: SparkSession, folder: str) -> Iterator[_File]:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    root = system.getFileStatus(path).getPath().toString().rstrip("/")
    listing = system.listFiles(path, True)
    while listing.hasNext():
        status = listing.next()
        java_path = status.getPath()
        yield _File(
            system,
            java_path,
            folder + str(java_path.toString())[len(root) :],
            str(java_path.getName()),
            int(status.getLen()),
            int(status.getModificationTime()),
        )


# --- reading ---


def struct_type(schema: schemas.Struct) -> StructType:
    return StructType.fromJson(json.loads(schemas.dump(schema)))


def read_files(
    spark: SparkSession, table: DeltaTable, files: Sequence[Add] | None = None, *, with_file: bool = False
) -> DataFrame:
    """The rows of the table, or of some of its files. `with_file`: and of each row the path its action has (`FILE`)."""
    wanted = table.files if files is None else files
    whole = struct_type(schemas.parse(table.schema_string))
    partitioned = set(table.partition_columns)
    stored = StructType([one for one in whole.fields if one.name not in partitioned])
    if not wanted:
        empty = spark.createDataFrame([], whole)
        return empty.withColumn(FILE, F.lit("")) if with_file else empty
    places = {file_location(table, one): one for one in wanted}
    # A table of nothing but partition columns still has rows: their number is in the files.
    frame = spark.read.schema(stored).parquet(*places)
    if not partitioned and not with_file:
        return frame
    known = _paths(spark, table, places.values())
    placed = frame.select("*", _one_spelling(F.col("_metadata.file_path")).alias(_PLACE))
    joined = placed.join(F.broadcast(known), _PLACE, "left")
    fields: list[StructField] = list(whole.fields)
    columns = [_value(one).alias(one.name) if one.name in partitioned else F.col(f"`{one.name}`") for one in fields]
    return joined.select(*columns, *([_known(F.col(FILE)).alias(FILE)] if with_file else []))


def _value(column: StructField) -> Column:
    """A partition value, which an action has as text."""
    return _known(F.col("lakepact_values")[column.name]).cast(column.dataType)


def _known(value: Column) -> Column:
    """The value, of a row whose file is known. A row of any other must not pass for one without a value."""
    message = F.concat(F.lit("rows come from a file that was not asked for: "), F.col(_PLACE))
    return F.when(F.col(FILE).isNotNull(), value).otherwise(F.raise_error(message))


def _one_spelling(place: Column) -> Column:
    """Spark writes the same local file with one slash or three."""
    return F.regexp_replace(place, "^file:/+", "file:/")


def _paths(spark: SparkSession, table: DeltaTable, files: Iterable[Add]) -> DataFrame:
    """Which values the partition columns have, by the place that Spark says a row comes from."""
    jvm: Any = spark._jvm
    rows = [
        (
            str(jvm.org.apache.hadoop.fs.Path(file_location(table, one)).toUri().toString()),
            one.path,
            dict(one.partition_values),
        )
        for one in files
    ]
    known = spark.createDataFrame(rows, f"{_PLACE} string, {FILE} string, lakepact_values map<string, string>")
    return known.withColumn(_PLACE, _one_spelling(F.col(_PLACE)))


def file_location(table: DeltaTable, one: Add) -> str:
    """Where a file of a table is, as Spark is given it."""
    path = decode_path(one.path)
    return path if "://" in path else f"{table.location}/{path}"
