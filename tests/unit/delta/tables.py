"""Small values for the tests of Delta."""

from __future__ import annotations

from lakepact.delta import schema as schemas
from lakepact.delta.actions import Action, Add, Metadata, Remove
from lakepact.delta.protocol import MANAGED, MANAGED_CONFIGURATION
from lakepact.delta.schema import Field, Primitive, Struct

SCHEMA = Struct((Field("id", Primitive("long")), Field("name", Primitive("string")), Field("day", Primitive("date"))))
META = Metadata(
    id="0198e5f2-0000-7000-8000-000000000001",
    schema_string=schemas.dump(SCHEMA),
    partition_columns=("day",),
    configuration=dict(MANAGED_CONFIGURATION),
    created_time=1_700_000_000_000,
)
CREATION: tuple[Action, ...] = (MANAGED, META)


def add(path: str, day: str | None = "2026-01-31", *, data_change: bool = True) -> Add:
    return Add(path, {"day": day}, 100, 1_700_000_000_000, data_change, '{"numRecords":1}')


def remove(path: str, day: str | None = "2026-01-31", *, data_change: bool = True) -> Remove:
    return Remove(path, 1_700_000_000_001, data_change, {"day": day}, 100)
