"""Which protocol our tables have, which features of other tables an import can carry, and what a take-over changes.

The protocol of a managed table is (1, 7) with a writer feature of our own. Every engine reads it, none writes: tried
with delta-spark 4.4.0, delta-rs 1.6.6 and DuckDB 1.5.5 (ADR 0012). A table with `timestamp_ntz` needs (3, 7), because
that type is a feature of readers too.

A feature can be *listed* without being *used*: `deletionVectors` in the protocol of a table that has none. What is
listed and not used is no obstacle, and is left out of the protocol when the table becomes ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from lakepact.delta import schema as schemas
from lakepact.delta.actions import Metadata, Protocol
from lakepact.delta.errors import BadSchema, UnsupportedFeature

MANAGED_FEATURE: Final = "x-lakepact-managed"
MANAGED: Final = Protocol(1, 7, None, ("appendOnly", "invariants", "inCommitTimestamp", MANAGED_FEATURE))
"""What a new table has, and a table that was taken over."""

ENABLE_IN_COMMIT_TIMESTAMPS: Final = "delta.enableInCommitTimestamps"
_ENABLED_AT_VERSION: Final = "delta.inCommitTimestampEnablementVersion"
_ENABLED_AT_TIMESTAMP: Final = "delta.inCommitTimestampEnablementTimestamp"
MANAGED_CONFIGURATION: Final[Mapping[str, str]] = {ENABLE_IN_COMMIT_TIMESTAMPS: "true"}
"""Set in every managed table: the times of mirrored files are not the times of their versions."""

_OURS_TO_DECIDE: Final = frozenset({"delta.checkpointPolicy", ENABLE_IN_COMMIT_TIMESTAMPS})
"""Settings that a take-over removes or replaces."""

DOMAIN_METADATA: Final = "domainMetadata"
TIMESTAMP_NTZ: Final = "timestampNtz"

_LEGACY_WRITER: Final = (
    (2, "appendOnly"),
    (2, "invariants"),
    (3, "checkConstraints"),
    (4, "changeDataFeed"),
    (4, "generatedColumns"),
    (5, "columnMapping"),
    (6, "identityColumns"),
)
"""What a writer version below 7 implies."""


@dataclass(frozen=True, slots=True)
class _Feature:
    """What is to be known of a feature."""

    used: Callable[[Metadata], bool]
    """Whether a table with this metadata makes use of it."""
    reading: bool
    """Whether the table can be read without it being understood: our readers take the live files as they are."""
    remedy: str


def _set(name: str) -> Callable[[Metadata], bool]:
    return lambda metadata: metadata.configuration.get(name, "").lower() == "true"


def _any_setting(prefix: str) -> Callable[[Metadata], bool]:
    return lambda metadata: any(name.startswith(prefix) for name in metadata.configuration)


def _column(*keys: str) -> Callable[[Metadata], bool]:
    """Whether some column carries one of these keys. A schema that cannot be read is complained about elsewhere."""

    def used(metadata: Metadata) -> bool:
        try:
            columns = schemas.column_metadata(schemas.parse(metadata.schema_string))
            return any(name.startswith(keys) for _, found in columns for name in found)
        except BadSchema:
            return False

    return used


def _always(_: Metadata) -> bool:
    return True


def _never(_: Metadata) -> bool:
    return False


def _mapped(metadata: Metadata) -> bool:
    return metadata.configuration.get("delta.columnMapping.mode", "none").lower() != "none"


_DROP = "drop the feature with ALTER TABLE … DROP FEATURE in the engine that set it"
_FEATURES: Final[Mapping[str, _Feature]] = {
    # Carried as they are.
    "appendOnly": _Feature(_never, True, ""),
    "inCommitTimestamp": _Feature(_never, True, ""),
    DOMAIN_METADATA: _Feature(_never, True, ""),
    TIMESTAMP_NTZ: _Feature(_never, True, ""),
    # Nothing of a table's state depends on them.
    "v2Checkpoint": _Feature(_never, True, ""),
    "vacuumProtocolCheck": _Feature(_never, True, ""),
    # Seen in the actions, not in the metadata: see `check_action`.
    "deletionVectors": _Feature(_never, True, ""),
    # Writers have duties that ours do not fulfil.
    "invariants": _Feature(_column("delta.invariants"), True, "remove the invariants of its columns"),
    "checkConstraints": _Feature(_any_setting("delta.constraints."), True, "drop its CHECK constraints"),
    "generatedColumns": _Feature(
        _column("delta.generationExpression"), True, "copy it to a table without generated columns"
    ),
    "identityColumns": _Feature(_column("delta.identity."), True, "copy it to a table without identity columns"),
    "allowColumnDefaults": _Feature(_column("CURRENT_DEFAULT"), True, "drop the DEFAULT of its columns"),
    "changeDataFeed": _Feature(_set("delta.enableChangeDataFeed"), True, "set delta.enableChangeDataFeed to false"),
    "rowTracking": _Feature(_set("delta.enableRowTracking"), True, "set delta.enableRowTracking to false"),
    "clustering": _Feature(_always, True, "ALTER TABLE … CLUSTER BY NONE, then " + _DROP),
    "icebergCompatV1": _Feature(_set("delta.enableIcebergCompatV1"), True, _DROP),
    "icebergCompatV2": _Feature(_set("delta.enableIcebergCompatV2"), True, _DROP),
    MANAGED_FEATURE: _Feature(
        _always,
        True,
        "a Lakepact catalog manages this table already and this log is its mirror; recover it if that catalog is lost",
    ),
    # The files do not say what the table says.
    "columnMapping": _Feature(_mapped, False, "rewrite it without column mapping"),
    "typeWidening": _Feature(_column("delta.typeChanges"), False, _DROP),
    "typeWidening-preview": _Feature(_column("delta.typeChanges"), False, _DROP),
    # Somebody else decides what its versions are.
    "catalogManaged": _Feature(_always, False, "another catalog owns its commits; " + _DROP),
    "catalogOwned-preview": _Feature(_always, False, "another catalog owns its commits; " + _DROP),
    "coordinatedCommits-preview": _Feature(
        _any_setting("delta.coordinatedCommits.commitCoordinator"), False, "another service owns its commits; " + _DROP
    ),
}


def features(protocol: Protocol) -> frozenset[str]:
    """Everything the protocol asks for, listed or implied by its versions."""
    listed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if protocol.min_writer_version < 7:
        listed |= {name for version, name in _LEGACY_WRITER if protocol.min_writer_version >= version}
    if protocol.min_reader_version == 2:
        listed.add("columnMapping")
    return frozenset(listed)


def import_problems(protocol: Protocol, metadata: Metadata) -> tuple[str, ...]:
    """Why the state of such a table cannot be carried, not even to read it. Empty: it can."""
    return tuple(_reading_problems(protocol, metadata))


def take_over_problems(protocol: Protocol, metadata: Metadata, *, recover: bool = False) -> tuple[str, ...]:
    """Why we cannot write such a table. `recover`: the Lakepact catalog that managed it is lost."""
    problems = [*_reading_problems(protocol, metadata)]
    if protocol.min_writer_version > 7:
        problems.append(f"writer version {protocol.min_writer_version}: this release knows 1 to 7")
    for name in sorted(features(protocol)):
        known = _FEATURES.get(name)
        if name == MANAGED_FEATURE and recover:
            continue
        if known is None:
            if name not in (protocol.reader_features or ()):
                problems.append(f"writer feature {name!r} is not known here; {_DROP}, or import it read-only")
        elif known.reading and known.used(metadata):
            problems.append(f"writer feature {name!r} is used; {known.remedy}")
    return tuple(problems)


def take_over(
    protocol: Protocol, metadata: Metadata, *, version: int, timestamp_ms: int, recover: bool = False
) -> tuple[Protocol, Metadata]:
    """The actions of the version that makes a table ours, at this version and this in-commit timestamp."""
    problems = take_over_problems(protocol, metadata, recover=recover)
    if problems:
        raise UnsupportedFeature(problems)
    kept = {name: value for name, value in metadata.configuration.items() if name not in _OURS_TO_DECIDE}
    was_on = metadata.configuration.get(ENABLE_IN_COMMIT_TIMESTAMPS, "").lower() == "true"
    if not was_on:
        # Readers must know from which version on to look for them.
        kept |= {_ENABLED_AT_VERSION: str(version), _ENABLED_AT_TIMESTAMP: str(timestamp_ms)}
    ours = replace(metadata, configuration={**kept, **MANAGED_CONFIGURATION})
    needs_domains = DOMAIN_METADATA in features(protocol)
    return managed_protocol(schemas.parse(metadata.schema_string), domains=needs_domains), ours


def managed_protocol(schema: schemas.Struct, *, domains: bool = False) -> Protocol:
    """The protocol of a managed table with this schema."""
    writer = [*(MANAGED.writer_features or ())]
    if domains:
        writer.append(DOMAIN_METADATA)
    if not schemas.uses_timestamp_ntz(schema):
        return Protocol(1, 7, None, tuple(writer))
    return Protocol(3, 7, (TIMESTAMP_NTZ,), (*writer, TIMESTAMP_NTZ))


def is_managed(protocol: Protocol) -> bool:
    return MANAGED_FEATURE in (protocol.writer_features or ())


def _reading_problems(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    if protocol.min_reader_version > 3:
        yield f"reader version {protocol.min_reader_version}: this release knows 1 to 3"
    for name in sorted(protocol.reader_features or ()):
        if name not in _FEATURES:
            yield f"reader feature {name!r} is not known here; {_DROP}"
    for name in sorted(features(protocol)):
        known = _FEATURES.get(name)
        if known is not None and not known.reading and known.used(metadata):
            yield f"feature {name!r} is used; {known.remedy}"
    try:
        schemas.parse(metadata.schema_string)
    except BadSchema as error:
        yield str(error)
