"""A change must fit its table: partition columns, append-only tables, features, and what stays for life."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakepact.delta import schema as schemas
from lakepact.delta.actions import Action, Add, Cdc, DeletionVector, DomainMetadata, Protocol, Txn
from lakepact.delta.checks import check_change
from lakepact.delta.errors import BadAction, BadSchema
from lakepact.delta.protocol import MANAGED, managed_protocol
from lakepact.delta.schema import Field, Primitive, Struct
from tests.unit.delta.tables import META, SCHEMA, add, remove

GROWN = replace(META, schema_string=schemas.dump(Struct((*SCHEMA.fields, Field("new", Primitive("long"))))))
NTZ = replace(META, schema_string=schemas.dump(Struct((*SCHEMA.fields, Field("t", Primitive("timestamp_ntz"))))))


@pytest.mark.parametrize(
    "actions",
    [
        [add("a"), remove("b"), Txn("x", 1)],
        [add("a", None)],
        [GROWN, add("a")],
        [NTZ, managed_protocol(schemas.parse(NTZ.schema_string))],
        [managed_protocol(SCHEMA, domains=True), DomainMetadata("mine", "{}")],
    ],
)
def test_what_fits(actions: list[Action]) -> None:
    check_change(actions, MANAGED, META)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([Add("a", {}, 1, 1)], r"exactly the partition columns of the table, \['day'\], found \[\]"),
        ([Add("a", {"day": "2026-01-31", "x": "1"}, 1, 1)], "exactly the partition columns"),
        ([add("a", "31.1.2026")], "partition value of 'day': '31.1.2026' is not a date"),
        ([add("a"), add("a")], "at most one add"),
        ([replace(add("a"), deletion_vector=DeletionVector("u", "x", 1, 1, 1))], "no deletion vectors"),
        ([Cdc("c", {}, 1)], "no change data feed"),
        ([DomainMetadata("d", "{}")], "protocol has no domainMetadata"),
        ([managed_protocol(SCHEMA, domains=True), DomainMetadata("delta.x", "{}")], "are of the system"),
        ([replace(META, id="other")], "'id' is 0198e5f2"),
        ([replace(META, partition_columns=())], "'partitionColumns' are"),
        ([replace(META, configuration={})], "must stay 'true'"),
        ([Protocol(1, 2)], "keeps foreign writers out cannot be taken away"),
        ([replace(MANAGED, writer_features=("x-lakepact-managed",))], "feature 'appendOnly' cannot be taken away"),
        ([replace(MANAGED, writer_features=(*(MANAGED.writer_features or ()), "clustering"))], "clustering"),
        ([NTZ], "needs the feature timestampNtz"),
    ],
)
def test_what_does_not(actions: list[Action], message: str) -> None:
    with pytest.raises(BadAction, match=message):
        check_change(actions, MANAGED, META)


def test_a_schema_may_only_grow() -> None:
    with pytest.raises(BadSchema, match="'name' is gone"):
        check_change([replace(META, schema_string=schemas.dump(Struct(SCHEMA.fields[::2])))], MANAGED, META)


def test_an_append_only_table_keeps_its_rows_and_may_rearrange_them() -> None:
    metadata = replace(META, configuration={**META.configuration, "delta.appendOnly": "true"})
    check_change([remove("a", data_change=False), add("b", data_change=False)], MANAGED, metadata)
    with pytest.raises(BadAction, match="append-only"):
        check_change([remove("a")], MANAGED, metadata)
