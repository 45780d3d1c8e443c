"""Structural limits on what one request may send: depth, counts, lengths, decoded bytes.

Every limit is a `Limit` in `LIMITS`, and `docs/rest.md` and `docs/operations.md` list the same values. A request that
exceeds one is refused with 400 and the limit's name. The checks run before the input is walked, authorized or hashed.
They keep the work of one request linear in its size, its memory below 256 MiB, and the event loop free.

Limits that an operator can raise are settings (`max_body_bytes`, `max_metadata_bytes`, `max_tables`, `max_updates`);
they are not repeated here. `bounded_input` decodes gzip and JSON within these limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from lakepact.errors import InvalidRequest

LARGE_INPUT_BYTES: Final = 65_536
"""Request bodies above this size are parsed, checked and hashed in a worker thread instead of the event loop."""

LARGE_METADATA_BYTES: Final = 1 << 20
"""Metadata above this size is parsed, serialized and hashed in a worker thread instead of the event loop."""


class LimitExceeded(InvalidRequest):
    """A request exceeds a structural limit. Nothing was written."""

    type: ClassVar[str] = "limit-exceeded"

    def __init__(self, limit: Limit, actual: int | None, where: str) -> None:
        amount = f"{actual:,} {limit.unit}" if actual is not None else f"more than {limit.most:,} {limit.unit}"
        super().__init__(f"{where}: {amount}; the limit is {limit.most:,} ({limit.name}). {limit.advice}")
        self.limit = limit


@dataclass(frozen=True, slots=True)
class Limit:
    name: str
    most: int
    unit: str
    applies_to: str
    """For the documentation."""

    advice: str
    """What the client can do about it."""

    def check(self, actual: int, where: str) -> None:
        """Raise `LimitExceeded` if `actual` is more than the limit. `where` names the object that is too large."""
        if actual > self.most:
            raise LimitExceeded(self, actual, where)


GZIP_MEMBERS: Final = Limit(
    "gzip-members",
    1_000,
    "gzip members",
    "a compressed request body or metadata file",
    "Compress it as one gzip member",
)
JSON_DEPTH: Final = Limit("json-depth", 100, "levels", "nesting of a JSON body", "Flatten the document")
JSON_VALUES: Final = Limit(
    "json-values",
    500_000,
    "values",
    "values of a JSON body: members, array elements, objects and arrays",
    "Split the request into several smaller ones",
)
JSON_MEMBERS: Final = Limit(
    "json-members", 50_000, "members", "members of one object in a JSON body", "Split the object"
)
NAMESPACE_LEVELS: Final = Limit(
    "namespace-levels", 64, "levels", "levels of a namespace, in every operation", "Use a flatter namespace"
)
NAME_CHARACTERS: Final = Limit(
    "name-characters",
    1_024,
    "characters",
    "a level of a namespace; the name of a table, view, branch, tag, partition field or document",
    "Choose a shorter name",
)
TYPE_CHARACTERS: Final = Limit(
    "type-characters", 512, "characters", "the name of a column's type, or a transform", "Correct the type"
)
COLUMN_NAME_CHARACTERS: Final = Limit(
    "column-name-characters", 1_024, "characters", "the name of one column", "Choose a shorter name"
)
COLUMN_PATH_CHARACTERS: Final = Limit(
    "column-path-characters",
    4 << 20,
    "characters",
    "the full paths of all columns of one schema, together",
    "Shorten the names of columns that contain others",
)
SCHEMA_COLUMNS: Final = Limit(
    "schema-columns",
    10_000,
    "columns",
    "columns of one schema, nested ones included",
    "Split the table, or collect columns in a map or a list",
)
REQUEST_COLUMNS: Final = Limit(
    "request-columns",
    20_000,
    "columns",
    "columns of all schemas in one request",
    "Send the schemas in several requests",
)
STATISTICS_CHARACTERS: Final = Limit(
    "statistics-characters",
    1 << 20,
    "characters",
    "the statistics of one Delta file",
    "Collect statistics for fewer columns",
)
LAYOUT_FIELDS: Final = Limit(
    "layout-fields",
    1_000,
    "fields",
    "fields of one partition spec or sort order, or partition columns of a Delta table",
    "Partition or sort by fewer columns",
)
TABLE_PROPERTIES: Final = Limit(
    "table-properties", 10_000, "properties", "properties of one table, view or namespace", "Remove properties"
)
BATCH_RESPONSE_BYTES: Final = Limit(
    "batch-response-bytes",
    32 << 20,
    "bytes",
    "the metadata in the response of one batch load",
    "Load the tables in several requests",
)
MESSAGE_FIELDS: Final = Limit(
    "message-fields",
    10_000,
    "fields",
    "top-level fields of one gRPC message, such as its changes",
    "Send fewer changes in one call",
)
REPORT_ENTRIES: Final = Limit(
    "report-entries",
    2_000,
    "entries",
    "stages of one run report; its checks; its inputs",
    "Report fewer of them, or split the pipeline",
)
REPORT_EDGES: Final = Limit(
    "report-edges",
    20_000,
    "inputs",
    "inputs of all stages of one run report, and the lineage edges that follow from them",
    "Report fewer inputs, or write intermediate views as tables",
)

LIMITS: Final[tuple[Limit, ...]] = (
    GZIP_MEMBERS,
    JSON_DEPTH,
    JSON_VALUES,
    JSON_MEMBERS,
    NAMESPACE_LEVELS,
    NAME_CHARACTERS,
    TYPE_CHARACTERS,
    COLUMN_NAME_CHARACTERS,
    COLUMN_PATH_CHARACTERS,
    SCHEMA_COLUMNS,
    REQUEST_COLUMNS,
    STATISTICS_CHARACTERS,
    LAYOUT_FIELDS,
    TABLE_PROPERTIES,
    BATCH_RESPONSE_BYTES,
    MESSAGE_FIELDS,
    REPORT_ENTRIES,
    REPORT_EDGES,
)

_CONTAINED_TYPES: Final = ("element", "key", "value", "elementType", "keyType", "valueType")
"""Where a list or a map keeps the types of its parts: in Iceberg's schemas, and in Delta's."""


def check_namespace(levels: Sequence[str], where: str = "namespace") -> None:
    """Refuse a namespace with too many levels, or with a level that is too long."""
    NAMESPACE_LEVELS.check(len(levels), where)
    for level in levels:
        if len(level) > NAME_CHARACTERS.most:
            raise LimitExceeded(NAME_CHARACTERS, len(level), f"{where}: level {level[:40]!r}...")


def check_name(name: str, where: str) -> None:
    """Refuse the name of a table, view, branch, tag or partition field that is too long."""
    if len(name) > NAME_CHARACTERS.most:
        raise LimitExceeded(NAME_CHARACTERS, len(name), f"{where} {name[:40]!r}...")


def check_schema_size(schema: object, where: str) -> int:
    """Refuse a schema with too many columns, too long names or too long paths. Return the number of columns.

    The schema is an Iceberg or Delta schema as a client sent it. Nothing of its form is assumed: the parser that runs
    afterwards reports what is malformed. The walk is iterative and builds no path: it adds up their lengths.
    """
    columns = characters = 0
    pending: list[tuple[object, int]] = [(schema, 0)]
    while pending:
        type_, path = pending.pop()
        if not isinstance(type_, dict):
            continue
        fields = type_.get("fields")
        if isinstance(fields, list):
            for field in fields:
                if not isinstance(field, dict):
                    continue
                name = field.get("name")
                length = len(name) if isinstance(name, str) else 0
                if length > COLUMN_NAME_CHARACTERS.most:
                    raise LimitExceeded(COLUMN_NAME_CHARACTERS, length, f"{where}: column {str(name)[:40]!r}...")
                columns += 1
                characters += path + length
                contained = field.get("type")
                if isinstance(contained, dict):
                    pending.append((contained, path + length + 1))
        for part in _CONTAINED_TYPES:
            if part in type_:
                columns += 1
                characters += path + len(part)
                pending.append((type_[part], path + len(part) + 1))
        if columns > SCHEMA_COLUMNS.most:
            raise LimitExceeded(SCHEMA_COLUMNS, None, where)
        if characters > COLUMN_PATH_CHARACTERS.most:
            raise LimitExceeded(COLUMN_PATH_CHARACTERS, None, where)
    return columns


def check_request_columns(schemas: Sequence[object], where: str) -> None:
    """Refuse a request whose schemas have too many columns together."""
    total = 0
    for schema in schemas:
        total += check_schema_size(schema, where)
        REQUEST_COLUMNS.check(total, where)


def check_run_report(report: Mapping[str, Any]) -> None:
    """Refuse a run report with too many stages, checks or inputs, or whose stages name too many inputs. These fields
    are lists, which the caller has checked."""
    for field in ("stages", "checks", "inputs"):
        REPORT_ENTRIES.check(len(report.get(field) or ()), f"run report: {field!r}")
    reads = (stage.get("reads") for stage in report.get("stages") or () if isinstance(stage, dict))
    REPORT_EDGES.check(sum(len(one) for one in reads if isinstance(one, list)), "run report: 'reads' of all stages")
