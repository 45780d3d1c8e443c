"""Protocols: ours, those an import can carry, and those we cannot write."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from lakepact.delta import schema as schemas
from lakepact.delta.actions import Metadata, Protocol
from lakepact.delta.errors import UnsupportedFeature
from lakepact.delta.protocol import (
    MANAGED,
    MANAGED_FEATURE,
    features,
    import_problems,
    is_managed,
    managed_protocol,
    take_over,
    take_over_problems,
)
from lakepact.delta.schema import Field, Primitive, Struct
from tests.unit.delta.tables import META, SCHEMA

PLAIN = replace(META, configuration={})


def configured(**settings: str) -> Metadata:
    return replace(PLAIN, configuration={f"delta.{name}": value for name, value in settings.items()})


def with_column(**metadata: str) -> Metadata:
    column = Field(
        "c",
        Primitive("long"),
        metadata={
            name.replace("delta_", "delta.").replace("identity_", "identity."): value
            for name, value in metadata.items()
        },
    )
    return replace(PLAIN, schema_string=schemas.dump(Struct((*SCHEMA.fields, column))))


def listed(*names: str, reading: bool = False) -> Protocol:
    return Protocol(3, 7, names, names) if reading else Protocol(1, 7, None, names)


def test_ours_is_read_by_all_and_written_by_none() -> None:
    assert Protocol(1, 7, None, ("appendOnly", "invariants", "inCommitTimestamp", MANAGED_FEATURE)) == MANAGED
    assert is_managed(MANAGED) and not is_managed(Protocol(1, 2))


def test_a_type_that_is_a_feature_of_readers_raises_the_reader_version() -> None:
    assert managed_protocol(SCHEMA) == MANAGED
    moment = Struct((Field("t", Primitive("timestamp_ntz")),))
    found = managed_protocol(moment)
    assert (found.min_reader_version, found.reader_features) == (3, ("timestampNtz",))
    assert "timestampNtz" in (found.writer_features or ()) and is_managed(found)
    assert "domainMetadata" in features(managed_protocol(SCHEMA, domains=True))


@pytest.mark.parametrize(
    ("protocol", "implied"),
    [
        (Protocol(1, 1), set()),
        (Protocol(1, 2), {"appendOnly", "invariants"}),
        (Protocol(1, 3), {"appendOnly", "invariants", "checkConstraints"}),
        (Protocol(2, 5), {"appendOnly", "invariants", "checkConstraints", "changeDataFeed"}
         | {"generatedColumns", "columnMapping"}),
        (Protocol(1, 7, None, ("appendOnly",)), {"appendOnly"}),
    ],
)  # fmt: skip
def test_old_versions_imply_features(protocol: Protocol, implied: set[str]) -> None:
    assert features(protocol) == implied


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(1, 1),
        Protocol(1, 2),
        Protocol(1, 4),
        Protocol(2, 5),
        Protocol(1, 6),
        listed("deletionVectors", "timestampNtz", "v2Checkpoint", "columnMapping", "vacuumProtocolCheck", reading=True),
        listed("domainMetadata", "rowTracking", "changeDataFeed", "checkConstraints", "identityColumns"),
    ],
)
def test_what_is_listed_and_not_used_is_no_obstacle(protocol: Protocol) -> None:
    assert import_problems(protocol, PLAIN) == ()
    ours, metadata = take_over(protocol, PLAIN, version=7, timestamp_ms=99)
    assert is_managed(ours)
    assert features(ours) <= {*(MANAGED.writer_features or ()), "domainMetadata"}
    assert metadata.configuration == {
        "delta.enableInCommitTimestamps": "true",
        "delta.inCommitTimestampEnablementVersion": "7",
        "delta.inCommitTimestampEnablementTimestamp": "99",
    }


def test_a_table_with_in_commit_timestamps_keeps_them_and_leaves_the_policy_of_checkpoints() -> None:
    metadata = configured(enableInCommitTimestamps="true", checkpointPolicy="v2", appendOnly="true")
    _, ours = take_over(listed("v2Checkpoint", reading=True), metadata, version=7, timestamp_ms=99)
    assert ours.configuration == {"delta.enableInCommitTimestamps": "true", "delta.appendOnly": "true"}


@pytest.mark.parametrize(
    ("protocol", "metadata", "name"),
    [
        (listed("variantType", reading=True), PLAIN, "'variantType' is not known"),
        (listed("catalogManaged", reading=True), PLAIN, "another catalog owns"),
        (listed("columnMapping", reading=True), configured(**{"columnMapping.mode": "name"}), "columnMapping"),
        (Protocol(2, 5), configured(**{"columnMapping.mode": "id"}), "columnMapping"),
        (listed("typeWidening", reading=True), with_column(delta_typeChanges="[]"), "typeWidening"),
        (Protocol(4, 7, (), ()), PLAIN, "reader version 4"),
        (Protocol(1, 2), replace(PLAIN, schema_string="{"), "not JSON"),
    ],
)
def test_what_cannot_even_be_read_is_refused_by_name(protocol: Protocol, metadata: Metadata, name: str) -> None:
    assert any(re.search(name, problem) for problem in import_problems(protocol, metadata))
    with pytest.raises(UnsupportedFeature, match=name):
        take_over(protocol, metadata, version=1, timestamp_ms=1)


@pytest.mark.parametrize(
    ("protocol", "metadata", "name"),
    [
        (listed("x-other"), PLAIN, "writer feature 'x-other' is not known"),
        (listed("clustering"), PLAIN, "CLUSTER BY NONE"),
        (listed(MANAGED_FEATURE), PLAIN, "a Lakepact catalog manages"),
        (Protocol(1, 3), configured(**{"constraints.positive": "id > 0"}), "checkConstraints"),
        (Protocol(1, 4), configured(enableChangeDataFeed="true"), "changeDataFeed"),
        (Protocol(1, 4), with_column(delta_generationExpression="id"), "generatedColumns"),
        (Protocol(1, 6), with_column(delta_identity_start="1"), "identityColumns"),
        (Protocol(1, 2), with_column(delta_invariants="{}"), "invariants"),
        (listed("allowColumnDefaults"), with_column(CURRENT_DEFAULT="1"), "allowColumnDefaults"),
        (listed("rowTracking"), configured(enableRowTracking="true"), "rowTracking"),
        (Protocol(1, 8, None, ()), PLAIN, "writer version 8"),
    ],
)
def test_what_we_cannot_write_can_still_be_read(protocol: Protocol, metadata: Metadata, name: str) -> None:
    assert not import_problems(protocol, metadata)
    with pytest.raises(UnsupportedFeature, match=name):
        take_over(protocol, metadata, version=1, timestamp_ms=1)


def test_a_table_of_a_lost_catalog_is_taken_over_when_somebody_says_so() -> None:
    assert take_over_problems(MANAGED, META)
    ours, metadata = take_over(MANAGED, META, version=3, timestamp_ms=5, recover=True)
    assert (ours, metadata) == (MANAGED, META)
