"""Manifests by hand: a table's folder may hold whatever whoever writes the table has put there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
_SCHEMA = Schema(NestedField(1, "id", LongType(), required=False))


def write_rows(location: str, *ids: int) -> str:
    """A Parquet file, as Iceberg names its columns."""
    path = Path(location.removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table({"id": list(ids)}, pa.schema([field])), path)
    return location


def manifest(
    place: str,
    data: Sequence[str] = (),
    deletes: Sequence[str] = (),
    formats: Mapping[str, FileFormat] | None = None,
) -> ManifestFile:
    """One manifest at this place, that lists these files."""
    Path(place.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)
    with write_manifest(
        2, UNPARTITIONED_PARTITION_SPEC, _SCHEMA, PyArrowFileIO().new_output(place), 11, "deflate"
    ) as writer:
        for content, paths in ((DataFileContent.DATA, data), (DataFileContent.POSITION_DELETES, deletes)):
            for path in paths:
                file = DataFile.from_args(
                    content=content,
                    file_path=path,
                    file_format=(formats or {}).get(path, FileFormat.PARQUET),
                    partition=Record(),
                    record_count=1,
                    file_size_in_bytes=1,
                )
                writer.add_entry(
                    ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=11, data_file=file)
                )
    return writer.to_manifest_file()


def manifest_list(place: str, *manifests: ManifestFile) -> str:
    Path(place.removeprefix("file://")).parent.mkdir(parents=True, exist_ok=True)
    with write_manifest_list(2, PyArrowFileIO().new_output(place), 11, None, 1, "deflate") as writer:
        writer.add_manifests(list(manifests))
    return place
