"""The transactions API as its page describes it: every example, over HTTP, against a server process.

Paths have no prefix, as there. Where an example has a placeholder ("...", {...}) it is filled in; nothing else differs,
except that the success example's `commit-id` is the id of the transaction, and that an answer with results is asked
for, since the Iceberg specification's own answer is 204.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S

Json = dict[str, Any]

EVENTS_UUID: Final = "550e8400-e29b-41d4-a716-446655440000"
COUNTS_UUID: Final = "660e8400-e29b-41d4-a716-446655440001"
SCHEMA: Final[Json] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
}
WIDER: Final[Json] = {
    **SCHEMA,
    "schema-id": 1,
    "fields": [*SCHEMA["fields"], {"id": 2, "name": "email", "required": False, "type": "string"}],
}

_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Api:
    url: str

    def send(self, method: str, path: str, body: Json | None = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json", **headers}, method=method
        )
        try:
            with _OPENER.open(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def commit(self, *changes: Json, **headers: str) -> tuple[int, Any]:
        return self.send("POST", "/v1/transactions/commit", {"table-changes": list(changes)}, **headers)

    def load(self, namespace: str, table: str) -> Json:
        status, answer = self.send("GET", f"/v1/main/namespaces/{namespace}/tables/{table}")
        assert status == 200, answer
        found: Json = answer
        return found

    def create(self, namespace: str, table: str, uuid: str | None = None, snapshot_id: int | None = None) -> str:
        """A table to begin with: its uuid."""
        self.send("POST", "/v1/main/namespaces", {"namespace": [namespace]})
        updates: list[Json] = [] if uuid is None else [{"action": "assign-uuid", "uuid": uuid}]
        updates += [
            {"action": "upgrade-format-version", "format-version": 1},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-partition-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ]
        if snapshot_id is not None:
            updates += [
                {"action": "add-snapshot", "snapshot": snapshot(snapshot_id, "append", "s3://bucket/metadata")},
                {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
            ]
        body = {"requirements": [{"type": "assert-create"}], "updates": updates}
        status, answer = self.send("POST", f"/v1/main/namespaces/{namespace}/tables/{table}", body)
        assert status == 200, answer
        return str(answer["metadata"]["table-uuid"])


def snapshot(snapshot_id: int, operation: str, folder: str, parent: int | None = None, **summary: str) -> Json:
    made = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": 1705398600000,
        "summary": {"operation": operation, **summary},
        "manifest-list": f"{folder}/snap-{snapshot_id}.avro",
        "schema-id": 0,
    }
    return made if parent is None else {**made, "parent-snapshot-id": parent}


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("transactions")) as running:
        yield running


@pytest.fixture
def api(server: Server) -> Api:
    return Api(server.url)


def commit_example() -> tuple[Json, Json]:
    """Two tables, each with a new snapshot: the example of the request."""
    events = {
        "identifier": {"namespace": ["analytics"], "name": "events"},
        "requirements": [
            {"type": "assert-table-uuid", "uuid": EVENTS_UUID},
            {"type": "assert-current-schema-id", "current-schema-id": 0},
        ],
        "updates": [
            {
                "action": "add-snapshot",
                "snapshot": {
                    "snapshot-id": 123456790,
                    "parent-snapshot-id": 123456789,
                    "timestamp-ms": 1705398600000,
                    "summary": {"operation": "append", "added-data-files": "5", "added-records": "10000"},
                    "manifest-list": "s3://bucket/metadata/snap-123456790.avro",
                    "schema-id": 0,
                },
            },
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 123456790},
        ],
    }
    counts = {
        "identifier": {"namespace": ["analytics"], "name": "event_counts"},
        "requirements": [{"type": "assert-table-uuid", "uuid": COUNTS_UUID}],
        "updates": [
            {
                "action": "add-snapshot",
                "snapshot": {
                    "snapshot-id": 987654322,
                    "parent-snapshot-id": 987654321,
                    "timestamp-ms": 1705398600000,
                    "summary": {"operation": "overwrite", "added-data-files": "1", "added-records": "100"},
                    "manifest-list": "s3://bucket/metadata/snap-987654322.avro",
                    "schema-id": 0,
                },
            },
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 987654322},
        ],
    }
    return events, counts


def furnish(api: Api) -> None:
    api.create("analytics", "events", EVENTS_UUID, 123456789)
    api.create("analytics", "event_counts", COUNTS_UUID, 987654321)


def test_the_request_commits_both_tables(api: Api) -> None:
    furnish(api)
    assert api.commit(*commit_example()) == (204, None)
    assert api.load("analytics", "events")["metadata"]["current-snapshot-id"] == 123456790
    assert api.load("analytics", "event_counts")["metadata"]["current-snapshot-id"] == 987654322


def test_the_answer_has_the_commits_id_and_where_each_table_is_now(api: Api) -> None:
    furnish(api)
    status, answer = api.commit(*commit_example(), Prefer="return=representation")
    assert status == 200
    assert set(answer) == {"commit-id", "results"}
    assert answer["results"] == [
        {
            "identifier": {"namespace": ["analytics"], "name": name},
            "metadata-location": api.load("analytics", name)["metadata-location"],
        }
        for name in ("events", "event_counts")
    ]
    status, transaction = api.send("GET", f"/v1/transactions/{answer['commit-id']}")
    assert (status, transaction["state"]) == (200, "committed")


def test_a_failed_requirement_rolls_everything_back_and_is_told_in_full(api: Api) -> None:
    furnish(api)
    identifier = {"namespace": ["analytics"], "name": "events"}
    evolve = [{"action": "add-schema", "schema": WIDER}, {"action": "set-current-schema", "schema-id": 1}]
    assert api.commit({"identifier": identifier, "requirements": [], "updates": evolve})[0] == 204
    before = [api.load("analytics", name) for name in ("events", "event_counts")]

    status, answer = api.commit(*reversed(commit_example()))
    assert status == 409
    error = answer["error"]
    assert (error["type"], error["code"]) == ("CommitFailedException", 409)
    assert error["message"].startswith("Transaction failed: requirement not met for table analytics.events")
    [failed] = error["failed-requirements"]
    assert failed["identifier"] == identifier
    assert failed["requirement"] == {"type": "assert-current-schema-id", "current-schema-id": 0}
    assert failed["actual"] == {"current-schema-id": 1}
    assert [api.load("analytics", name) for name in ("events", "event_counts")] == before


def test_the_example_for_the_command_line(api: Api) -> None:
    api.create("analytics", "events", EVENTS_UUID)
    api.create("analytics", "aggregates", COUNTS_UUID)
    changes = [
        {
            "identifier": {"namespace": ["analytics"], "name": name},
            "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
            "updates": [{"action": "set-properties", "updates": {"last-modified-by": "etl-pipeline"}}],
        }
        for name, uuid in (("events", EVENTS_UUID), ("aggregates", COUNTS_UUID))
    ]
    assert api.commit(*changes)[0] == 204
    for name in ("events", "aggregates"):
        assert api.load("analytics", name)["metadata"]["properties"]["last-modified-by"] == "etl-pipeline"


def test_a_coordinated_pipeline(api: Api) -> None:
    changes = []
    for name, snapshot_id in (("sales_facts", 123), ("daily_sales_summary", 456)):
        uuid = api.create("warehouse", name)
        made = snapshot(snapshot_id, "append", "s3://bucket/metadata")
        changes.append(
            {
                "identifier": {"namespace": ["warehouse"], "name": name},
                "requirements": [{"type": "assert-table-uuid", "uuid": uuid}],
                "updates": [
                    {"action": "add-snapshot", "snapshot": made},
                    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
                ],
            }
        )
    assert api.commit(*changes)[0] == 204
    assert api.load("warehouse", "sales_facts")["metadata"]["current-snapshot-id"] == 123
    assert api.load("warehouse", "daily_sales_summary")["metadata"]["current-snapshot-id"] == 456


def test_a_schema_migration(api: Api) -> None:
    changes = []
    for name in ("users", "user_profiles"):
        api.create("app", name)
        changes.append(
            {
                "identifier": {"namespace": ["app"], "name": name},
                "requirements": [{"type": "assert-current-schema-id", "current-schema-id": 0}],
                "updates": [
                    {"action": "add-schema", "schema": WIDER},
                    {"action": "set-current-schema", "schema-id": 1},
                ],
            }
        )
    assert api.commit(*changes)[0] == 204
    for name in ("users", "user_profiles"):
        assert api.load("app", name)["metadata"]["current-schema-id"] == 1
    # A second time the requirement does not hold for either of them, and both are told.
    status, answer = api.commit(*changes)
    assert status == 409
    assert [one["identifier"]["name"] for one in answer["error"]["failed-requirements"]] == ["users", "user_profiles"]


def test_a_bulk_update_of_properties_without_requirements(api: Api) -> None:
    changes = []
    for name in ("table1", "table2"):
        api.create("team_a", name)
        changes.append(
            {
                "identifier": {"namespace": ["team_a"], "name": name},
                "requirements": [],
                "updates": [{"action": "set-properties", "updates": {"owner": "new-team"}}],
            }
        )
    assert api.commit(*changes)[0] == 204
    for name in ("table1", "table2"):
        assert api.load("team_a", name)["metadata"]["properties"]["owner"] == "new-team"


@pytest.mark.parametrize(
    ("requirement", "actual"),
    [
        ({"type": "assert-create"}, None),
        ({"type": "assert-table-uuid", "uuid": COUNTS_UUID}, {"uuid": EVENTS_UUID}),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
            {"ref": "main", "snapshot-id": 123456789},
        ),
        ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9}, {"last-assigned-field-id": 1}),
        ({"type": "assert-current-schema-id", "current-schema-id": 9}, {"current-schema-id": 0}),
        (
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 9},
            {"last-assigned-partition-id": 999},
        ),
        ({"type": "assert-default-spec-id", "default-spec-id": 9}, {"default-spec-id": 0}),
        ({"type": "assert-default-sort-order-id", "default-sort-order-id": 9}, {"default-sort-order-id": 0}),
    ],
)
def test_every_requirement_of_the_page_is_checked(api: Api, requirement: Json, actual: Json | None) -> None:
    api.create("analytics", "events", EVENTS_UUID, 123456789)
    change = {
        "identifier": {"namespace": ["analytics"], "name": "events"},
        "requirements": [requirement],
        "updates": [{"action": "set-properties", "updates": {"a": "b"}}],
    }
    status, answer = api.commit(change)
    assert (status, answer["error"]["type"]) == (409, "CommitFailedException")
    [failed] = answer["error"]["failed-requirements"]
    assert failed["requirement"] == requirement
    assert actual is None or failed["actual"] == actual


def test_every_update_of_the_page_is_applied(api: Api) -> None:
    uuid = api.create("analytics", "events", EVENTS_UUID, 123456789)
    here = api.load("analytics", "events")["metadata"]["location"]
    spec = {"spec-id": 1, "fields": [{"source-id": 1, "transform": "bucket[4]", "name": "bucketed"}]}
    field = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    newer = snapshot(3, "append", "s3://bucket/metadata", 123456789)
    updates: list[Json] = [
        {"action": "assign-uuid", "uuid": uuid},
        {"action": "add-schema", "schema": WIDER},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-partition-spec", "spec": spec},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [field]}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "add-snapshot", "snapshot": newer},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 3},
        {"action": "set-snapshot-ref", "ref-name": "old", "type": "tag", "snapshot-id": 123456789},
        {"action": "remove-snapshot-ref", "ref-name": "old"},
        {"action": "remove-snapshots", "snapshot-ids": [123456789]},
        {"action": "set-location", "location": f"{here}-moved"},
        {"action": "set-properties", "updates": {"a": "b", "c": "d"}},
        {"action": "remove-properties", "removals": ["c"]},
        {"action": "upgrade-format-version", "format-version": 2},
    ]
    change = {"identifier": {"namespace": ["analytics"], "name": "events"}, "requirements": [], "updates": updates}
    status, answer = api.commit(change)
    assert status == 204, answer
    metadata = api.load("analytics", "events")["metadata"]
    assert metadata["format-version"] == 2
    assert metadata["location"] == f"{here}-moved"
    assert (metadata["current-schema-id"], metadata["default-spec-id"], metadata["default-sort-order-id"]) == (1, 1, 1)
    assert [one["snapshot-id"] for one in metadata["snapshots"]] == [3]
    assert list(metadata["refs"]) == ["main"]
    assert {name: metadata["properties"].get(name) for name in ("a", "c")} == {"a": "b", "c": None}


def test_the_errors_of_the_page(api: Api) -> None:
    api.create("analytics", "events")
    there = {"namespace": ["analytics"], "name": "events"}
    update = [{"action": "set-properties", "updates": {"a": "b"}}]
    missing = {"namespace": ["analytics"], "name": "never"}
    for body, expected in (
        ({"table-changes": "nonsense"}, (400, "BadRequestException")),
        ({}, (400, "BadRequestException")),
        ({"table-changes": [{"identifier": there, "updates": update}]}, (400, "BadRequestException")),
        (
            {"table-changes": [{"identifier": there, "requirements": [], "updates": [{"action": "fly"}]}]},
            (400, "BadRequestException"),
        ),
        (
            {"table-changes": [{"identifier": missing, "requirements": [], "updates": update}]},
            (404, "NoSuchTableException"),
        ),
    ):
        status, answer = api.send("POST", "/v1/transactions/commit", body)
        assert (status, answer["error"]["type"]) == expected
        assert answer["error"]["code"] == status


def test_the_limits_of_the_page(api: Api) -> None:
    api.create("analytics", "events")
    update = {"action": "set-properties", "updates": {"a": "b"}}
    many = [
        {"identifier": {"namespace": ["analytics"], "name": f"t{number}"}, "requirements": [], "updates": [update]}
        for number in range(101)
    ]
    status, answer = api.commit(*many)
    assert status == 400
    assert "the limit is 100" in answer["error"]["message"]
    change = {"identifier": {"namespace": ["analytics"], "name": "events"}, "requirements": []}
    assert api.commit({**change, "updates": [update] * 1_000})[0] == 204
    status, answer = api.commit({**change, "updates": [update] * 1_001})
    assert status == 400
    assert "the limit is 1000" in answer["error"]["message"].replace(",", "")
