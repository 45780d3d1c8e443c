"""Whatever is sent, in whatever order: the result is metadata that every client can load, and nothing is lost."""

from __future__ import annotations

from copy import deepcopy
from itertools import pairwise

import orjson
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakepact.iceberg import updates
from lakepact.iceberg.draft import Context
from lakepact.iceberg.errors import InvalidIceberg, StaleUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.intent import already_applied
from lakepact.iceberg.metadata import current_snapshot_id, read
from lakepact.iceberg.parse import parse_table_updates
from lakepact.iceberg.summary import summarize_table
from lakepact.iceberg.validate import check_table_metadata
from tests.property.iceberg.moves import requests_for
from tests.unit.iceberg.tables import BORN_MS, add_snapshot, create, set_ref, snapshot

quickly = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
UNKNOWN = {"x-unknown": {"kept": [1, None, "é"]}}


@st.composite
def histories(draw: st.DrawFn, *, removing: bool = True) -> list[JsonObject]:
    """The versions of a table under a few requests. Refused ones leave no version; none changes what it was given."""
    versions = [create(draw(st.integers(1, 3))) | UNKNOWN]
    for number in range(draw(st.integers(1, 7))):
        base, now_ms = versions[-1], BORN_MS + 1_000 * (number + 1)
        request = draw(requests_for(base, now_ms))
        if not removing:
            request = [update for update in request if not update["action"].startswith("remove-")]
        before = deepcopy((base, request))
        try:
            applied = updates.apply(
                base, parse_table_updates(request), Context(now_ms, previous_location=f"file-{len(versions)}")
            )
        except (InvalidIceberg, StaleUpdate):
            applied = None
        assert (base, request) == before, "the input was changed"
        if applied is not None and applied.changed:
            versions.append(applied.metadata)
        elif applied is not None:
            assert applied.metadata is base
    return versions


def ids(metadata: JsonObject, name: str, key: str) -> list[int]:
    return [one[key] for one in metadata.get(name) or ()]


@quickly
@given(histories())
def test_every_version_is_metadata_that_clients_can_load(versions: list[JsonObject]) -> None:
    for version in versions:
        assert check_table_metadata(version) is version
        assert read(orjson.loads(orjson.dumps(version))) == version


@quickly
@given(histories())
def test_references_point_to_snapshots_and_main_is_the_current_one(versions: list[JsonObject]) -> None:
    for version in versions:
        there = set(ids(version, "snapshots", "snapshot-id"))
        assert {ref["snapshot-id"] for ref in version["refs"].values()} <= there
        main = version["refs"].get("main")
        assert current_snapshot_id(version) == (main["snapshot-id"] if main else None)
        log = ids(version, "snapshot-log", "snapshot-id")
        if main:
            assert log[-1] == main["snapshot-id"]
        for name in ("schemas", "partition-specs", "sort-orders", "snapshots"):
            key = {"schemas": "schema-id", "partition-specs": "spec-id", "sort-orders": "order-id"}.get(
                name, "snapshot-id"
            )
            assert len(set(ids(version, name, key))) == len(version[name])


@quickly
@given(histories())
def test_counters_never_go_back_and_identity_stays(versions: list[JsonObject]) -> None:
    for before, now in pairwise(versions):
        for name in (
            "format-version",
            "last-updated-ms",
            "last-column-id",
            "last-partition-id",
            "last-sequence-number",
            "next-row-id",
        ):
            assert now.get(name, 0) >= before.get(name, 0)
        assert now["table-uuid"] == before["table-uuid"]
        assert summarize_table(now).last_sequence_number >= summarize_table(before).last_sequence_number


@quickly
@given(histories())
def test_what_nobody_knows_survives_and_every_file_is_logged(versions: list[JsonObject]) -> None:
    for number, version in enumerate(versions):
        assert version["x-unknown"] == UNKNOWN["x-unknown"]
        files = [entry["metadata-file"] for entry in version["metadata-log"]]
        assert files == [f"file-{n + 1}" for n in range(number)][-len(files) :] if files else number == 0


@quickly
@given(histories(removing=False))
def test_an_id_keeps_its_meaning_while_nothing_is_removed(versions: list[JsonObject]) -> None:
    for before, now in pairwise(versions):
        for name, key in (
            ("snapshots", "snapshot-id"),
            ("schemas", "schema-id"),
            ("partition-specs", "spec-id"),
            ("sort-orders", "order-id"),
        ):
            after = {one[key]: one for one in now[name]}
            assert all(after[one[key]] == one for one in before[name])


@quickly
@given(histories())
def test_a_commit_that_is_sent_again_is_recognised(versions: list[JsonObject]) -> None:
    table = versions[-1]
    parent = current_snapshot_id(table)
    numbers: JsonObject = {"parent-snapshot-id": parent} if parent is not None else {}
    if table["format-version"] >= 2:
        numbers["sequence-number"] = table["last-sequence-number"] + 1
    if table["format-version"] >= 3:
        numbers |= {"first-row-id": table["next-row-id"], "added-rows": 1}
    made = snapshot(2**40, **numbers, **{"timestamp-ms": table["last-updated-ms"]})
    commit = parse_table_updates([add_snapshot(made), set_ref(2**40)])
    assert not already_applied(table, commit)
    done = updates.apply(table, commit, Context(table["last-updated-ms"])).metadata
    assert already_applied(done, commit)
