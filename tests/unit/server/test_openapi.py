"""The description says what is served, all of it and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lakepact.iceberg import names
from lakepact.server.app import build
from lakepact.server.openapi import undescribed
from lakepact.server.openapi.operations import OPERATIONS, TAGS
from lakepact.server.openapi.schemas import SCHEMAS, TABLE_REQUIREMENTS, TABLE_UPDATES, VIEW_REQUIREMENTS, VIEW_UPDATES
from lakepact.server.routing import Route
from lakepact.settings import Settings
from tests.unit.server.test_http import request


async def served(base_path: str = "") -> tuple[Route, ...]:
    service = await build(Settings.load(store="memory://", warehouse="memory://", base_path=base_path or None))
    await service.close()
    return service.routes


async def description(base_path: str = "") -> Any:
    [route] = [route for route in await served(base_path) if route.operation == "openapi"]
    return json.loads((await route.handler(request(method="GET"))).body)


async def test_every_route_is_described_and_every_description_is_of_a_route() -> None:
    document = await description()
    described = {
        (method.upper(), path, operation["operationId"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert described == {(route.method, route.template, route.operation) for route in await served()}


async def test_a_route_without_words_and_words_without_a_route_are_found() -> None:
    routes = await served()
    assert undescribed(routes) == set()
    stranger = Route("GET", "/stranger", "stranger", routes[0].handler)
    assert undescribed([*routes, stranger]) == {"stranger"}
    assert undescribed([route for route in routes if route.operation != "livez"]) == {"livez"}


def test_every_update_and_requirement_that_is_understood_is_described() -> None:
    assert set(TABLE_UPDATES) == names.TABLE_ACTIONS
    assert set(VIEW_UPDATES) == names.VIEW_ACTIONS
    assert set(TABLE_REQUIREMENTS) == names.TABLE_REQUIREMENTS
    assert set(VIEW_REQUIREMENTS) == names.VIEW_REQUIREMENTS


async def test_every_reference_leads_somewhere_and_every_part_is_used() -> None:
    document = await description()
    used = set(re.findall(r'"#/(components/\w+/[\w-]+)"', json.dumps(document)))
    kinds = {kind: named for kind, named in document["components"].items() if kind != "securitySchemes"}
    parts = {f"components/{kind}/{name}" for kind, named in kinds.items() for name in named}
    assert used == parts
    assert {operation.tag for operation in OPERATIONS.values()} == set(TAGS)


async def test_the_parameters_of_a_path_are_those_in_its_template() -> None:
    for path, methods in (await description())["paths"].items():
        for operation in methods.values():
            named = [one["name"] for one in operation["parameters"] if one.get("in") == "path"]
            assert named == re.findall(r"{(\w+)}", path)


def test_everything_that_changes_something_says_that_its_outcome_may_be_unknown() -> None:
    for name, operation in OPERATIONS.items():
        assert operation.changes == (name in CHANGES), name


CHANGES = {
    "createDeltaTable",
    "commitDeltaTable",
    "dropDeltaTable",
    "importDeltaTable",
    "renameDeltaTable",
    "createNamespace",
    "dropNamespace",
    "updateProperties",
    "createTable",
    "updateTable",
    "dropTable",
    "unregisterTable",
    "registerTable",
    "renameTable",
    "undropTable",
    "createView",
    "replaceView",
    "dropView",
    "registerView",
    "renameView",
    "commitTransaction",
    "beginTransaction",
    "prepareTransaction",
    "publishTransaction",
    "abortTransaction",
    "renewTransaction",
    "putState",
    "createToken",
    "rotateToken",
    "revokeToken",
    "addGrant",
    "removeGrant",
    "putGovernance",
}


async def test_each_example_is_of_the_form_it_stands_for() -> None:
    validators = pytest.importorskip("jsonschema").Draft202012Validator
    document = await description()
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                [body] = operation["requestBody"]["content"].values()
                schema = {**body["schema"], "components": document["components"]}
                validators(schema).validate(body["example"])


def test_the_schemas_are_schemas() -> None:
    validators = pytest.importorskip("jsonschema").Draft202012Validator
    for schema in SCHEMAS.values():
        validators.check_schema(schema)


async def test_the_description_names_the_base_path() -> None:
    assert (await description("/catalog"))["servers"] == [{"url": "/catalog"}]
    assert (await description())["servers"] == [{"url": "/"}]


async def test_the_page_needs_nothing_from_anywhere_else() -> None:
    [route] = [route for route in await served() if route.operation == "docs"]
    answer = await route.handler(request(method="GET"))
    headers = dict(answer.headers)
    assert headers[b"Content-Type"].startswith(b"text/html")
    assert b"default-src 'none'" in headers[b"Content-Security-Policy"]
    assert not re.findall(rb"https?://|<link|<img|src=", answer.body)
