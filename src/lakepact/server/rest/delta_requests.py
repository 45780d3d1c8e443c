"""What clients send about Delta tables, as values."""

from __future__ import annotations

from typing import Any

import orjson

from lakepact.bounded_input import parse_embedded
from lakepact.catalog.delta_import import ImportDelta
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit
from lakepact.delta.codec import parse_actions
from lakepact.delta.errors import BadAction
from lakepact.delta.fields import optional_integer, optional_text, optional_text_list, text_map
from lakepact.iceberg.fields import filled_text, json_list, json_object
from lakepact.iceberg.requests import Identifier, parse_identifier
from lakepact.limits import LAYOUT_FIELDS, STATISTICS_CHARACTERS, check_name, check_schema_size
from lakepact.mirrors import ENGINES


def parse_create_delta(body: object) -> CreateDelta:
    where = "create Delta table"
    document = json_object(body, where)
    schema = document.get("schema")
    if isinstance(schema, dict):
        schema = orjson.dumps(schema).decode()
    elif not isinstance(schema, str):
        raise BadAction(f"{where}: 'schema' is a Delta schema, as JSON or as the string that a log has")
    check_delta_schema(schema, f"{where}: 'schema'")
    name = filled_text(document, "name", where)
    check_name(name, f"{where}: 'name'")
    partition_columns = optional_text_list(document, "partition-columns", where) or ()
    LAYOUT_FIELDS.check(len(partition_columns), f"{where}: 'partition-columns'")
    return CreateDelta(
        name=name,
        schema_string=schema,
        partition_columns=partition_columns,
        configuration=text_map(document, "configuration", where) if "configuration" in document else {},
        location=optional_text(document, "location", where),
        description=optional_text(document, "description", where),
        mirrors=_mirrors(document, where),
    )


def _mirrors(document: dict[str, Any], where: str) -> tuple[str, ...] | None:
    wanted = optional_text_list(document, "mirrors", where)
    unknown = sorted(set(wanted or ()) - set(ENGINES))
    if unknown:
        raise BadAction(f"{where}: 'mirrors' are some of {', '.join(ENGINES)}, not {unknown[0][:80]!r}")
    return wanted


def parse_delta_commit(body: object, where: str, target: Identifier | None = None) -> DeltaCommit:
    """One table's change. In a commit of many the body says which table; in one of its own the path does."""
    document = json_object(body, where)
    table: Identifier | str
    if target is not None:
        table = target
    elif "table-id" in document:
        table = filled_text(document, "table-id", where)
    else:
        table = parse_identifier(document.get("identifier"), f"{where}: 'identifier'")
    expected = optional_integer(document, "expected-version", where, 0)
    read = optional_integer(document, "read-version", where, 0)
    if expected is not None and read is not None:
        raise BadAction(
            f"{where}: send 'expected-version' (the table must be at it) or 'read-version' (the change was computed on "
            f"it), not both"
        )
    parameters = document.get("operation-parameters")
    actions = json_list(document.get("actions"), f"{where}: 'actions'")
    _check_actions(actions, where)
    return DeltaCommit(
        table,
        parse_actions(actions),
        expected,
        read,
        optional_integer(document, "statements", where, 0),
        optional_text(document, "operation", where) or "WRITE",
        {} if parameters is None else json_object(parameters, f"{where}: 'operation-parameters'"),
    )


def check_delta_schema(schema_string: str, where: str) -> None:
    """Refuse a Delta schema that is too large. What else is wrong with it, its parser reports."""
    try:
        document = parse_embedded(schema_string, where)
    except (ValueError, RecursionError):
        return
    check_schema_size(document, where)


def _check_actions(actions: list[Any], where: str) -> None:
    """Refuse texts inside of actions that would take long to parse."""
    for number, action in enumerate(actions):
        if not isinstance(action, dict):
            continue
        add, metadata = action.get("add"), action.get("metaData")
        if isinstance(add, dict) and isinstance(stats := add.get("stats"), str):
            STATISTICS_CHARACTERS.check(len(stats), f"{where}: actions[{number}]: 'stats'")
        if isinstance(metadata, dict):
            if isinstance(schema := metadata.get("schemaString"), str):
                check_delta_schema(schema, f"{where}: actions[{number}]: 'schemaString'")
            if isinstance(columns := metadata.get("partitionColumns"), list):
                LAYOUT_FIELDS.check(len(columns), f"{where}: actions[{number}]: 'partitionColumns'")


def parse_import_delta(body: object, identifier: Identifier) -> ImportDelta:
    where = "import Delta table"
    document = json_object(body, where)
    options = {}
    for name in ("take-over", "dry-run", "recover"):
        options[name] = document.get(name, False)
        if not isinstance(options[name], bool):
            raise BadAction(f"{where}: '{name}' is true or false")
    location = filled_text(document, "location", where)
    return ImportDelta(identifier, location, options["take-over"], options["dry-run"], options["recover"])


def parse_delta_changes(body: object) -> list[DeltaCommit]:
    """The Delta tables of a commit of many tables."""
    if not isinstance(body, dict) or body.get("delta-changes") is None:
        return []
    changes = json_list(body["delta-changes"], "delta-changes")
    return [parse_delta_commit(one, f"delta-changes[{number}]") for number, one in enumerate(changes)]
