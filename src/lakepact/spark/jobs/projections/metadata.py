"""What receipts do not carry: schemas, owners, descriptions, branches. They come from the newest version of each table
that has changed, and of no other version.

Iceberg's metadata files are read by Spark. The versions of Delta tables are rows of the server's database, and the
server is asked for them. Both are done for a bounded number of tables at a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact.client import Lake, NotFound
from lakepact.errors import LakepactError
from lakepact.spark.jobs.projections.storage import Root, Storage, escaped

_FIELDS: Final = "ARRAY<STRUCT<id: INT, name: STRING, required: BOOLEAN, type: STRING, doc: STRING>>"
_DOCUMENT: Final = f"""
    `table-uuid` STRING, `view-uuid` STRING, properties MAP<STRING, STRING>,
    schemas ARRAY<STRUCT<`schema-id`: INT, fields: {_FIELDS}>>,
    refs MAP<STRING, STRUCT<`snapshot-id`: BIGINT>>
"""
_SHAPE: Final = """
    table_id STRING, owner STRING, description STRING, refs MAP<STRING, BIGINT>, properties MAP<STRING, STRING>,
    fields ARRAY<STRUCT<position: INT, name: STRING, field_id: INT, type: STRING, required: BOOLEAN,
    description: STRING>>
"""
_GZIP: Final = ".gz.metadata.json"
_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Version:
    """The newest version of a table or view."""

    table_id: str
    kind: str
    name: tuple[str, ...]
    metadata_location: str
    schema_id: int | None


class Metadata:
    def __init__(self, spark: SparkSession, storage: Storage, root: Root, lake: Lake) -> None:
        self._spark = spark
        self._storage = storage
        self._root = root
        self._lake = lake

    def of(self, versions: Sequence[Version]) -> DataFrame:
        """What is known of these: `table_id`, `owner`, `description`, `refs`, `properties`, `fields`. What cannot be
        read is left out."""
        files = [version for version in versions if version.kind != "delta"]
        frames = []
        for gzipped in (False, True):
            some = [one for one in files if one.metadata_location.endswith(_GZIP) == gzipped]
            text = self._read([self._root.at(one.metadata_location) for one in some], gzipped=gzipped) if some else None
            if text is not None:
                frames.append(_shaped(text, some, self._spark))
        delta = [version for version in versions if version.kind == "delta"]
        if delta:
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                found = [row for row in threads.map(self._delta, delta) if row is not None]
            frames.append(self._spark.createDataFrame(found, _SHAPE))
        return reduce(DataFrame.unionByName, frames) if frames else self._spark.createDataFrame([], _SHAPE)

    def _read(self, locations: list[str], *, gzipped: bool) -> DataFrame | None:
        """The text of these files, of those that are there."""
        load = self._gunzipped if gzipped else self._text
        try:
            return load(locations)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
        # Deleted since: by a later version of the table, or with the table.
        there = self._storage.existing(locations)
        return load(there) if there else None

    def _text(self, locations: list[str]) -> DataFrame:
        reader = self._spark.read.option("ignoreMissingFiles", "true")
        return reader.text(list(map(escaped, locations)), wholetext=True)

    def _gunzipped(self, locations: list[str]) -> DataFrame:
        # By its name it is no gzip for Spark. A function within a function goes to the executors as it is: they need
        # not have Lakepact.
        def text_of(content: bytes) -> str | None:
            import gzip
            import zlib

            try:
                return gzip.decompress(content).decode() if content[:2] == b"\x1f\x8b" else content.decode()
            except (OSError, EOFError, ValueError, zlib.error):
                return None

        reader = self._spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
        files = reader.load(list(map(escaped, locations)))
        return files.select(F.udf(text_of, "string", useArrow=False)("content").alias("value"))

    def _delta(self, version: Version) -> tuple[Any, ...] | None:
        number = int(version.metadata_location.rpartition("/")[2].partition(".")[0])
        try:
            loaded = self._lake.delta.load(version.name, version=number, files=False)
        except (NotFound, LakepactError):
            return None
        if loaded.table_id != version.table_id:
            return None
        configuration = dict(loaded.metadata.get("configuration") or {})
        fields = json.loads(loaded.schema_string).get("fields") or []
        return (
            version.table_id,
            configuration.get("owner"),
            loaded.metadata.get("description"),
            {},
            configuration,
            [_delta_field(position, field) for position, field in enumerate(fields)],
        )


def _delta_field(position: int, field: Mapping[str, Any]) -> tuple[Any, ...]:
    about, kind = field.get("metadata") or {}, field["type"]
    return (
        position,
        field["name"],
        about.get("delta.columnMapping.id"),
        kind if isinstance(kind, str) else json.dumps(kind, separators=(",", ":")),
        not field.get("nullable", True),
        about.get("comment"),
    )


def _shaped(text: DataFrame, versions: Sequence[Version], spark: SparkSession) -> DataFrame:
    schema_ids = spark.createDataFrame(
        [(one.table_id, one.schema_id) for one in versions], "table_id STRING, schema_id INT"
    )
    read = text.select(F.from_json("value", _DOCUMENT).alias("document")).select(
        F.coalesce("document.`table-uuid`", "document.`view-uuid`").alias("table_id"), "document.*"
    )
    properties = F.col("properties")
    return (
        read.join(F.broadcast(schema_ids), "table_id")
        .where("schemas IS NOT NULL")
        .select(
            "table_id",
            properties["owner"].alias("owner"),
            properties["comment"].alias("description"),
            F.transform_values("refs", lambda _, ref: ref["snapshot-id"]).alias("refs"),
            "properties",
            _fields().alias("fields"),
        )
    )


def _fields() -> Column:
    # A type that is not a simple one is a text as well: its JSON.
    return F.expr("""
        transform(
            element_at(filter(schemas, one -> one.`schema-id` <=> schema_id), 1).fields,
            (field, position) -> struct(
                position AS position, field.name AS name, field.id AS field_id, field.type AS type,
                field.required AS required, field.doc AS description
            )
        )
    """)
