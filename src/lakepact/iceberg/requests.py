"""Whole request bodies about tables and views, checked and turned into frozen values.

A body is never trusted: it is what `orjson` made of whatever arrived. Everything wrong with it is a `Malformed` or an
`UnknownNames`. How many tables or updates are too many is for the caller to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakepact.iceberg import names
from lakepact.iceberg.bodies import check_view_version
from lakepact.iceberg.errors import Malformed, UnknownNames
from lakepact.iceberg.fields import (
    JsonObject,
    boolean,
    check_depth,
    filled_text,
    json_list,
    json_object,
    optional_text,
    text_list,
    text_map,
)
from lakepact.iceberg.orders import UNSORTED, check_order
from lakepact.iceberg.parse import (
    Requirement,
    Update,
    parse_table_requirements,
    parse_table_updates,
    parse_view_requirements,
    parse_view_updates,
    unknown_table_names,
)
from lakepact.iceberg.schemas import check_schema
from lakepact.iceberg.specs import UNPARTITIONED, check_spec
from lakepact.limits import TABLE_PROPERTIES, check_name, check_namespace, check_request_columns


@dataclass(frozen=True, slots=True)
class Identifier:
    namespace: tuple[str, ...]
    name: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    name: str
    location: str | None
    schema: JsonObject
    spec: JsonObject
    order: JsonObject
    properties: dict[str, str]
    stage: bool


@dataclass(frozen=True, slots=True)
class Commit:
    """Requirements and updates of one table or view. A commit to its own path need not repeat the identifier."""

    identifier: Identifier | None
    requirements: tuple[Requirement, ...]
    updates: tuple[Update, ...]


@dataclass(frozen=True, slots=True)
class CreateView:
    name: str
    location: str | None
    schema: JsonObject
    version: JsonObject
    properties: dict[str, str]


def parse_create_table(value: object) -> CreateTable:
    body = _body(value, "create table")
    spec, order = body.get("partition-spec"), body.get("write-order")
    return CreateTable(
        name=_new_name(body, "create table"),
        location=optional_text(body, "location", "create table") or None,
        schema=check_schema(body.get("schema"), "schema"),
        spec=UNPARTITIONED if spec is None else check_spec(spec, "partition-spec"),
        order=UNSORTED if order is None else check_order(order, "write-order"),
        properties=_properties(body, "create table"),
        stage=False if body.get("stage-create") is None else boolean(body, "stage-create", "create table"),
    )


def parse_commit_table(value: object) -> Commit:
    body = _body(value, "commit")
    _refuse_unknown_names([body])
    _check_columns([body])
    return _commit_table(body, "commit")


def parse_commit_transaction(value: object) -> tuple[Commit, ...]:
    """The changes of a multi-table commit. Each names its table, and no table is named twice."""
    body = _body(value, "commit transaction")
    changes = [
        json_object(change, f"table-changes[{number}]")
        for number, change in enumerate(json_list(body.get("table-changes"), "table-changes"))
    ]
    _refuse_unknown_names(changes)
    _check_columns(changes)
    commits = tuple(_commit_table(change, f"table-changes[{number}]") for number, change in enumerate(changes))
    seen: set[Identifier] = set()
    for number, commit in enumerate(commits):
        if commit.identifier is None:
            raise Malformed(f"table-changes[{number}]: 'identifier' is missing")
        if commit.identifier in seen:
            # Which of the two comes first would be a guess.
            name = ".".join((*commit.identifier.namespace, commit.identifier.name))
            raise Malformed(
                f"table-changes[{number}]: table {name} is named twice; put all its updates into one change"
            )
        seen.add(commit.identifier)
    return commits


def parse_create_view(value: object) -> CreateView:
    body = _body(value, "create view")
    return CreateView(
        name=_new_name(body, "create view"),
        location=optional_text(body, "location", "create view") or None,
        schema=check_schema(body.get("schema"), "schema"),
        version=check_view_version(body.get("view-version"), "view-version"),
        properties=_properties(body, "create view"),
    )


def parse_commit_view(value: object) -> Commit:
    body = _body(value, "commit")
    requirements = body.get("requirements")
    return Commit(
        identifier=_identifier(body, "commit"),
        requirements=() if requirements is None else parse_view_requirements(requirements),
        updates=parse_view_updates(body.get("updates")),
    )


def parse_identifier(value: object, where: str) -> Identifier:
    identifier = json_object(value, where)
    namespace = text_list(identifier, "namespace", where)
    check_namespace(namespace, f"{where}: 'namespace'")
    if not all(namespace):
        raise Malformed(f"{where}: a level of 'namespace' is empty")
    name = filled_text(identifier, "name", where)
    check_name(name, f"{where}: 'name'")
    return Identifier(tuple(namespace), name)


def _body(value: object, where: str) -> JsonObject:
    body = json_object(value, where)
    check_depth(body, where)
    return body


def _refuse_unknown_names(changes: list[JsonObject]) -> None:
    unknown = [name for one in changes for name in unknown_table_names(one.get("requirements"), one.get("updates"))]
    if unknown:
        raise UnknownNames(unknown, names.TABLE_REQUIREMENTS | names.TABLE_ACTIONS)


def _check_columns(changes: list[JsonObject]) -> None:
    """Refuse a request that adds too many columns, before any of its schemas is looked at closely."""
    schemas = [update["schema"] for change in changes for update in change["updates"] if "schema" in update]
    if schemas:
        check_request_columns(schemas, "updates")


def _commit_table(body: JsonObject, where: str) -> Commit:
    return Commit(
        identifier=_identifier(body, where),
        requirements=parse_table_requirements(body.get("requirements")),
        updates=parse_table_updates(body.get("updates")),
    )


def _identifier(body: JsonObject, where: str) -> Identifier | None:
    identifier = body.get("identifier")
    return None if identifier is None else parse_identifier(identifier, f"{where}: 'identifier'")


def _new_name(body: JsonObject, where: str) -> str:
    name = filled_text(body, "name", where)
    check_name(name, f"{where}: 'name'")
    return name


def _properties(body: JsonObject, where: str) -> dict[str, str]:
    if body.get("properties") is None:
        return {}
    properties = text_map(body, "properties", where)
    TABLE_PROPERTIES.check(len(properties), f"{where}: 'properties'")
    return properties
