"""Whether a change fits a managed table: what its protocol and metadata demand of every writer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, assert_never

from lakepact.delta import schema as schemas
from lakepact.delta.actions import Action, Add, Cdc, DomainMetadata, Metadata, Protocol, Remove, Txn
from lakepact.delta.codec import sorted_actions
from lakepact.delta.errors import BadAction
from lakepact.delta.partitions import check_value
from lakepact.delta.protocol import (
    DOMAIN_METADATA,
    MANAGED_CONFIGURATION,
    TIMESTAMP_NTZ,
    features,
    is_managed,
    take_over_problems,
)

_SYSTEM_DOMAIN: Final = "delta."


def check_change(actions: Iterable[Action], protocol: Protocol, metadata: Metadata) -> None:
    """Raise `BadAction` (or `BadSchema`) if these actions cannot be the next version of a table that has these.

    It is not looked at whether removed files are there: that is for whoever knows the files.
    """
    ordered = sorted_actions(actions)
    now_protocol = next((one for one in ordered if isinstance(one, Protocol)), protocol)
    now = next((one for one in ordered if isinstance(one, Metadata)), metadata)
    _check_metadata(metadata, now)
    _check_protocol(protocol, now_protocol, now)
    schema = schemas.parse(now.schema_string)
    columns = schema.by_name()
    types = {name: column.type for name in now.partition_columns if (column := columns.get(name.lower())) is not None}
    append_only = now.configuration.get("delta.appendOnly", "").lower() == "true"
    for action in ordered:
        match action:
            case Add():
                _check_no_vector(action)
                if set(action.partition_values) != set(now.partition_columns):
                    raise BadAction(
                        f"add {action.path!r}: 'partitionValues' must have exactly the partition columns of the table, "
                        f"{list(now.partition_columns)}, found {sorted(action.partition_values)}"
                    )
                for name, value in action.partition_values.items():
                    check_value(value, types[name], f"add {action.path!r}: partition value of {name!r}")
            case Remove():
                _check_no_vector(action)
                if append_only and action.data_change:
                    raise BadAction(f"remove {action.path!r}: the table is append-only (delta.appendOnly is true)")
            case DomainMetadata():
                if DOMAIN_METADATA not in features(now_protocol):
                    raise BadAction(f"domainMetadata {action.domain!r}: the table's protocol has no {DOMAIN_METADATA}")
                if action.domain.startswith(_SYSTEM_DOMAIN):
                    raise BadAction(
                        f"domainMetadata {action.domain!r}: domains below {_SYSTEM_DOMAIN} are of the system"
                    )
            case Cdc():
                raise BadAction(f"cdc {action.path!r}: a managed table has no change data feed")
            case Protocol() | Metadata() | Txn():
                pass
            case _:
                assert_never(action)


def _check_metadata(before: Metadata, after: Metadata) -> None:
    if after is before:
        return
    if after.id != before.id:
        raise BadAction(f"metaData: 'id' is {before.id} for the life of the table, found {after.id[:80]!r}")
    if after.partition_columns != before.partition_columns:
        raise BadAction(
            f"metaData: 'partitionColumns' are {list(before.partition_columns)} for files that are there, "
            f"found {list(after.partition_columns)}; make a new table instead"
        )
    for name, value in MANAGED_CONFIGURATION.items():
        if after.configuration.get(name) != value:
            raise BadAction(f"metaData: {name!r} must stay {value!r}")
    old, new = schemas.parse(before.schema_string), schemas.parse(after.schema_string)
    schemas.check_evolution(old, new, after.partition_columns)


def _check_protocol(before: Protocol, after: Protocol, metadata: Metadata) -> None:
    problems = take_over_problems(after, metadata, recover=True)
    if problems:
        raise BadAction(f"protocol: {problems[0]}")
    if schemas.uses_timestamp_ntz(schemas.parse(metadata.schema_string)) and TIMESTAMP_NTZ not in features(after):
        raise BadAction(f"protocol: the schema has timestamp_ntz, which needs the feature {TIMESTAMP_NTZ}")
    if after is before:
        return
    if not is_managed(after):
        raise BadAction("protocol: the feature that keeps foreign writers out cannot be taken away")
    lost = sorted(features(before) - features(after))
    if lost:
        raise BadAction(f"protocol: the feature {lost[0]!r} cannot be taken away")


def _check_no_vector(action: Add | Remove) -> None:
    if action.deletion_vector is not None and isinstance(action, Add):
        raise BadAction(f"add {action.path!r}: a managed table has no deletion vectors; rewrite the file")
