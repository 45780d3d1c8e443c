"""Requests made up from our own OpenAPI description, valid ones and broken ones: every answer is one that it names.

schemathesis makes the requests. Names come from a small pool beside arbitrary text, so that many of them meet something
that is there; arbitrary names alone would only ever see 404. The server is a real one with a healthy store, so nothing
may be answered with 5xx at all.

The seed is printed with the figures; LAKEPACT_FUZZ_SEED=n runs another one.
"""

from __future__ import annotations

import copy
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from lakepact.kernel.identity import uuid7
from lakepact.runtime import SystemClock
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S

SEED: Final = int(os.environ.get("LAKEPACT_FUZZ_SEED", "1"))
EXAMPLES: Final = 120 if os.environ.get("LAKEPACT_LONG") else 8
"""Of each operation, and of each mode."""

CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SCHEMA: Final = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
VERSION: Final = {
    "version-id": 1,
    "timestamp-ms": 1_700_000_000_000,
    "schema-id": 0,
    "summary": {},
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    "default-namespace": ["sales"],
}
NAMESPACES: Final = [["sales"], ["sales", "deep"], ["other"]]
TABLES: Final = ["orders", "lines", "a/b c"]
VIEWS: Final = ["totals"]
SNAPSHOT: Final = {
    "snapshot-id": 7,
    "timestamp-ms": 1_700_000_000_000,
    "sequence-number": 1,
    "manifest-list": "file:///snap.avro",
    "summary": {"operation": "append"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # One data folder for all operations: they shall meet one another's traces.
    with running_server(tmp_path_factory.mktemp("fuzz"), env={"LAKEPACT_LOG_LEVEL": "warning"}) as running:
        fill(running.url)
        yield running


@pytest.fixture(scope="module")
def description(server: Server) -> Any:
    return requests.get(f"{server.url}/openapi.json", timeout=PATIENCE_S).json()


def fill(url: str) -> None:
    def post(path: str, body: Any) -> None:
        answer = requests.post(f"{url}/v1/main/{path}", json=body, timeout=PATIENCE_S)
        assert answer.status_code in (200, 409), answer.text

    for namespace in NAMESPACES:
        post("namespaces", {"namespace": namespace})
    for name in TABLES:
        post("namespaces/sales/tables", {"name": name, "schema": SCHEMA})
    post("namespaces/sales/views", {"name": VIEWS[0], "schema": SCHEMA, "view-version": VERSION})


def also(schema: Any, *values: Any) -> Any:
    """What the schema allows, and often one of these."""
    return {"anyOf": [{"enum": list(values)}, schema]}


def with_names_from_a_pool(description: Any) -> Any:
    document = copy.deepcopy(description)
    levels = ["\x1f".join(namespace) for namespace in NAMESPACES]
    keys = [uuid7(SystemClock().now_ms(), number) for number in range(40)]
    pools = {
        "prefix": ["main"],
        "namespace": [*levels, "sales", "sales", "missing"],
        "table": [*TABLES, "new", "ü%/ +"],
        "view": [*VIEWS, "new"],
        "transaction": keys,
        "name": ["position", "new"],
        "token": ["abcdefghijklmnop", "new"],
        "warehouse": ["main"],
        "file": ["ui.css", "icon.svg", "other"],
    }
    for methods in document["paths"].values():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                if parameter.get("in") == "path":
                    parameter["schema"] = {"enum": pools[parameter["name"]]}
                    parameter.pop("example")
            if "requestBody" in operation:
                for body in operation["requestBody"]["content"].values():
                    body.pop("example")
    parameters, schemas = document["components"]["parameters"], document["components"]["schemas"]
    parameters["idempotency-key"]["schema"] = {"enum": keys}
    parameters["prefer"]["schema"] = also({"type": "string"}, "return=representation")
    identifier = schemas["Identifier"]["properties"]
    identifier["namespace"] = also(identifier["namespace"], *NAMESPACES)
    identifier["name"] = also(identifier["name"], *TABLES, *VIEWS, "new")
    for name, whole in (("Schema", SCHEMA), ("Snapshot", SNAPSHOT), ("ViewVersion", VERSION)):
        schemas[name] = also(schemas[name], whole)
    schemas["Type"] = also(schemas["Type"], "long", "string", "decimal(9, 2)", "timestamptz", "variant")
    return document


def operations(document: Any) -> list[Any]:
    results: Any = schemathesis.openapi.from_dict(document).get_all_operations()
    return [result.ok() for result in results]


MODES: Final = {"valid": GenerationMode.POSITIVE, "broken": GenerationMode.NEGATIVE}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("mode", MODES)
def test_every_answer_to_a_made_up_request_is_one_that_the_description_names(
    mode: str, server: Server, description: Any, record_property: Callable[[str, object], None]
) -> None:
    began, statuses, served = time.monotonic(), Counter[int](), 0
    for operation in operations(with_names_from_a_pool(description)):
        # What earlier operations have dropped is there again.
        fill(server.url)
        try:
            seen = try_out(operation, MODES[mode], server.url)
        except Exception as error:
            error.add_note(f"{operation.label}, {mode} requests; replay with LAKEPACT_FUZZ_SEED={SEED}")
            raise
        statuses += seen
        served += 1
    assert statuses.total() > served
    if mode == "valid":
        assert statuses[200] + statuses[204] > statuses.total() / 10, "too few requests meet anything"
    told = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items()))
    took_s = time.monotonic() - began
    record_property(
        "figure", f"schemathesis, {mode} requests, seed {SEED}: {served} operations, {told}; {took_s:.0f} s"
    )


def try_out(operation: Any, mode: GenerationMode, url: str) -> Counter[int]:
    statuses: Counter[int] = Counter()
    session = requests.Session()
    session.trust_env = False

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Any) -> None:
        response = case.call(base_url=url, session=session, timeout=PATIENCE_S)
        statuses[response.status_code] += 1
        if os.environ.get("SHOW"):
            print(operation.label, response.status_code, response.text[:150].replace(chr(10), " "))
        case.validate_response(response, checks=CHECKS)
        assert response.status_code < 500 or case.path == "/readyz", response.text

    try:
        run()
    except Exception as error:
        if type(error).__name__ == "Unsatisfiable":
            # An operation without parameters and body has no broken requests.
            return statuses
        raise
    finally:
        session.close()
    return statuses
